"""Plays every program of `examples/` with every stop at every step: `make crash-everywhere`.

Right programs are played on both engines of `txn.Producer` and `txn.Consumer`; mistakes use
librdkafka itself. Prints each report. Exit code 1 if a right program is found wrong, or a wrong one
is not.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from support import engines, on_engine
from txn.client.engine import EngineName
from txn.testing import STOPS, TestBroker, crash_everywhere

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

AMOUNTS: Final = [("ann", "7"), ("ben", "3"), ("ann", "1"), ("ben", "4")]


def prepare_table(broker: TestBroker) -> None:
    """Make the topics of `table/totals`, and its input."""
    broker.create_topic("in", partitions=2)
    broker.create_topic("totals", partitions=2, cleanup_policy="compact")
    broker.produce("in", *AMOUNTS)


RIGHT: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "testing/right": ("copy", {}),
    "etl/test_etl": ("etl", {"input": {"raw": ["ann,7", "x", "ben,3", "cat,1"]}}),
    "table/totals": ("in_a_file", {"input": prepare_table, "output": ["out", "totals"]}),
    "outbox/test_outbox": ("relay", {"input": lambda broker: None, "output": "events"}),
}
MISTAKES: Final[dict[str, dict[str, Any]]] = {
    "testing/offsets_outside": {},
    "testing/rewinding_forgotten": {},
    "testing/two_ids": {},
    "testing/side_effect_inside": {"files": "mails"},
    "testing/swallowed_error": {},
}


def function_of(path: str, name: str) -> Callable[..., object]:
    """A function of a program of `examples/`."""
    return on_engine.function_of(EXAMPLES / f"{path}.py", name)


def is_found_wrong(path: str, name: str, engine: EngineName | None, **options: Any) -> bool:
    """Play a program, on an engine if one is given; print its report."""
    if path == "etl/test_etl":
        options["output"] = ["orders", "rejects"]
    print(f"\n== {path}" + (f" on {engine}" if engine else ""), flush=True)
    program: Any = function_of(path, name)
    if engine is not None:
        program = on_engine.command(engine, EXAMPLES / f"{path}.py", name)
    try:
        crash_everywhere(program, **options)
    except AssertionError as error:
        print(error, flush=True)
        return True
    return False


def check_story(shown: str) -> None:
    """Hold the story on a page against the program's own; numbers of runs and times apart."""
    again = re.search(r"stops=\['(.*)'\], steps=\['(.*)'\]", shown)
    assert again is not None, "a story says how to play it alone"
    copy = function_of("testing/swallowed_error", "copy")
    try:
        crash_everywhere(copy, stops=[again[1]], steps=[again[2]])
    except AssertionError as error:
        told = str(error).splitlines()
        fault = re.search(r"   (\S+ .*←.*)", shown)
        assert fault is not None, "a story has its fault"
        assert any(fault[1] in line for line in told), told
        for line in (*re.findall("^The shortest .*", shown, re.M), *re.findall("⇒ .*", shown)):
            assert any(line in each for each in told), told
        assert shown.splitlines()[-1] == told[-1]
        return
    raise AssertionError("no story was told")


def main(jobs: int, stops: Sequence[str]) -> int:
    """Play all with these stops, separated by commas; return the exit code."""
    chosen = [stop.strip() for each in stops for stop in each.split(",")] or list(STOPS)
    missed = [
        f"{path} on {engine} is right, and was found wrong"
        for path, (name, options) in RIGHT.items()
        for engine in engines.ALL
        if is_found_wrong(path, name, engine, jobs=jobs, stops=chosen, **options)
    ]
    missed += [
        f"{path} is wrong, and was not found"
        for path, options in MISTAKES.items()
        if not is_found_wrong(path, "copy", None, jobs=jobs, stops=chosen, **options)
    ]
    print("\n".join(missed) or "\nevery verdict is right")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
