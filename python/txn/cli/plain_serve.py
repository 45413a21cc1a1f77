"""Reads the usual form of `txn serve` without typer, which is slow to import.

It knows the options of `serve.py` as pairs of a name and a value. typer handles everything else,
including help, mistakes and repetitions, so that all messages have the same form.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class PlainServe(NamedTuple):
    """The options of a plain `txn serve`; `txn.server.lifecycle.serve.serve` takes it."""

    data: Path | None
    listen: str | None
    durability: str | None
    metrics: str | None
    options: Sequence[str]
    config: Path | None
    console: str | None


def read_plain_serve(words: Sequence[str]) -> PlainServe | None:
    """Read the words behind `txn`; None unless they are `serve` and whole pairs."""
    if words[:1] != ["serve"]:
        return None
    values_of: dict[str, list[str]] = {
        name: []
        for name in (
            *("--data", "--listen", "--durability", "--metrics", "--config", "--console"),
            "-o",
        )
    }
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not equals:
            value = next(rest, "")
        name = "-o" if name == "--option" else name
        if name not in values_of or not value or value.startswith("-"):
            return None
        values_of[name].append(value)
    options = values_of.pop("-o")
    if any(len(values) > 1 for values in values_of.values()):
        return None
    data, listen, durability, metrics, config, console = (
        values[0] if values else None for values in values_of.values()
    )
    return PlainServe(
        None if data is None else Path(data),
        listen,
        durability,
        metrics,
        options,
        None if config is None else Path(config),
        console,
    )
