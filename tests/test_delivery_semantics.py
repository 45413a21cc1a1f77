"""The loops of docs/concepts/delivery-semantics.md, killed: each keeps to its section.

The page's own code is killed with SIGKILL before a request reaches the broker, or behind it,
and started again.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from txn.testing import CrashReport, crash_everywhere

pytestmark = pytest.mark.crash

PAGE: Final = Path(__file__).parent.parent / "docs" / "concepts" / "delivery-semantics.md"
ORDERS: Final = {"orders": [f"order {number}" for number in range(4)]}
KILLS: Final = ("kill", "kill after")


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Any]:
    """The functions of the page, as a module."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "loops.py"
    program.write_text("\n\n".join(block for block in blocks if "\ndef " in f"\n{block}"))
    spec = importlib.util.spec_from_file_location("loops", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loops"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["loops"]


def killed(loop: Callable[..., object], *stops: str, **options: Any) -> CrashReport:
    return crash_everywhere(loop, input=ORDERS, output="invoices", stops=stops, **options)


def story_of(loop: Callable[..., object], stop: str, step: str) -> str:
    """The message about a loop whose output is wrong."""
    with pytest.raises(AssertionError) as raised:
        killed(loop, stop, steps=[step])
    return str(raised.value)


@pytest.mark.parametrize(
    ("stop", "step"), [("kill after", "OffsetCommit 1"), ("kill", "Produce 1")]
)
def test_at_most_once_loses_orders_and_doubles_none(loops: Any, stop: str, step: str) -> None:
    story = story_of(loops.at_most_once, stop, step)
    assert "lost: invoices lacks 'ORDER 0'" in story
    assert "doubled" not in story


@pytest.mark.parametrize(
    ("stop", "step"), [("kill after", "Produce 1"), ("kill", "OffsetCommit 1")]
)
def test_at_least_once_doubles_orders_and_loses_none(loops: Any, stop: str, step: str) -> None:
    story = story_of(loops.at_least_once, stop, step)
    assert "doubled: invoices has 'ORDER 0' 2 times" in story
    assert "lost" not in story


@pytest.mark.parametrize("name", ["exactly_once", "exactly_once_by_hand"])
def test_exactly_once_does_neither(loops: Any, name: str) -> None:
    report = killed(getattr(loops, name), *KILLS, quick=8)
    assert report.findings == ()
    assert {"Produce 1", "TxnOffsetCommit 1", "EndTxn 1"} <= set(report.steps)


def test_the_other_kills_harm_neither_of_the_two(loops: Any) -> None:
    """A crash between the two acts makes the difference, and no other."""
    killed(loops.at_most_once, "kill", steps=["OffsetCommit 1"])
    killed(loops.at_least_once, "kill", steps=["Produce 1"])
