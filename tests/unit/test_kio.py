"""Hypothesis and txn in one program, whichever is imported first."""

import subprocess
import sys

import pytest

PROGRAMS = {
    "txn first": """
import txn
txn.Broker
import sys
assert "kio" in sys.modules and "hypothesis" not in sys.modules
from hypothesis import find, strategies
assert find(strategies.integers(), lambda n: n > 6) == 7
""",
    "hypothesis first": """
from hypothesis import find, strategies
import txn
txn.Broker
from kio.static.primitive import i16
assert find(strategies.from_type(i16), lambda n: n > 6) == 7
""",
    "kio first": """
from kio.static.primitive import i16
import txn
txn.Broker
from hypothesis import find, strategies
assert find(strategies.from_type(i16), lambda n: n > 6) == 7
""",
    "another kio, without the module": """
import txn.wire
from unittest.mock import patch
with patch("importlib.util.find_spec", lambda name: None):
    from txn.wire.kio import load_request_schema
assert load_request_schema(0, 9).__name__ == "ProduceRequest"
import sys
assert "hypothesis" in sys.modules
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_each_works_as_without_the_other(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
