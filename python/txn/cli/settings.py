"""`txn settings`: the properties that `txn serve -o` accepts."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from txn.cli.output import print_json, print_lines
from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES, Property


def settings(
    topic: Annotated[bool, typer.Option("--topic", help="List the properties of topics.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """List the broker's properties: name, default, values and purpose.

    \b
    Examples:
      txn settings | grep -A2 retention
      txn serve -o log.retention.hours=24
    """
    table = TOPIC_PROPERTIES if topic else BROKER_PROPERTIES
    known = {name: table[name] for name in sorted(table) if not table[name].is_internal}
    if as_json:
        print_json([_as_data(name, known[name]) for name in known])
    else:
        print_lines(_as_text(known))


def _as_text(known: Mapping[str, Property]) -> Iterator[str]:
    for name, entry in known.items():
        yield f"{name}={_default(entry)}"
        yield f"    {entry.about}"
        yield f"    Takes {entry.expects}."


def _default(entry: Property) -> str:
    if entry.default is None:
        return ""
    return str(entry.default).lower() if isinstance(entry.default, bool) else str(entry.default)


def _as_data(name: str, entry: Property) -> dict[str, Any]:
    return {
        "name": name,
        "default": entry.default,
        "takes": entry.expects,
        "purpose": entry.about,
    }
