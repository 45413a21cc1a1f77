"""The README's code runs as it stands there, and its promises have tests."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROMISES = sorted(set(re.findall(r"\bP[1-9]\b", README)))


def test_the_transaction_example_is_under_20_lines() -> None:
    assert len(BLOCKS[0].strip().splitlines()) < 20


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_runs_as_it_stands(block: str, tmp_path: Path) -> None:
    shown = block.replace("consumer.close()", "consumer.close()\n    print(servers and 'done')")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", shown],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_all_nine_promises_are_listed() -> None:
    assert [f"P{number}" for number in range(1, 10)] == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_a_test_that_carries_its_name(promise: str) -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert re.search(rf"\b(def test|class Test)\w*{promise}(?![0-9])", tests)
