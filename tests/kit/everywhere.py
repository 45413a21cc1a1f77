"""Plays every program of `examples/` with every stop at every step: `make crash-everywhere`.

Prints each report. Exit code 1 if a right program is found wrong, or a wrong one is not.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

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
    spec = importlib.util.spec_from_file_location(Path(path).name, EXAMPLES / f"{path}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).name] = module
    spec.loader.exec_module(module)
    function: Callable[..., object] = getattr(module, name)
    return function


def is_found_wrong(path: str, name: str, **options: Any) -> bool:
    """Play a program; print its report."""
    if path == "etl/test_etl":
        options["output"] = ["orders", "rejects"]
    print(f"\n== {path}", flush=True)
    try:
        crash_everywhere(function_of(path, name), **options)
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
        f"{path} is right, and was found wrong"
        for path, (name, options) in RIGHT.items()
        if is_found_wrong(path, name, jobs=jobs, stops=chosen, **options)
    ]
    missed += [
        f"{path} is wrong, and was not found"
        for path, options in MISTAKES.items()
        if not is_found_wrong(path, "copy", jobs=jobs, stops=chosen, **options)
    ]
    print("\n".join(missed) or "\nevery verdict is right")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
