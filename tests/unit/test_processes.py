"""Test files run in processes of their own: each test is reported once, and none harms another."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALONE = """\
import os
from pathlib import Path

def test_one(tmp_path): note()
def test_two(tmp_path): note()
def note():
    with Path(__file__).with_name("pids").open("a") as pids:
        pids.write(f"{os.getpid()} {os.getppid()}\\n")
"""
SHARING = """\
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range(3))
def test_uses_it(costly, n):
    with Path(__file__).with_name("pids").open("a") as pids:
        pids.write(f"{os.getpid()} {costly}\\n")
"""
COSTLY = """\
import os
import time
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def costly():
    yield os.getpid()
    with Path(__file__).with_name("closed").open("a") as closed:
        closed.write(f"{os.getpid()}\\n")
"""
COMMAND = ("-m", "pytest", "-p", "support.file_times", "-p", "support.processes")
OPTIONS = ("-p", "no:cacheprovider", "--import-mode=importlib", "--processes", "2")


def start(place: Path, files: Mapping[str, str], *options: str) -> "subprocess.Popen[str]":
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return subprocess.Popen(
        [sys.executable, *COMMAND, *OPTIONS, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
    )


def run(place: Path, files: Mapping[str, str], *options: str) -> tuple[int, str]:
    with start(place, files, *options) as running:
        output, _ = running.communicate()
    return running.returncode, output


def test_each_file_has_a_process_that_ends_with_it(tmp_path: Path) -> None:
    code, out = run(tmp_path, {"a/test_a.py": ALONE, "b/test_b.py": ALONE})
    assert (code, "4 passed" in out) == (0, True), out
    pids = [(tmp_path / name / "pids").read_text().splitlines() for name in "ab"]
    assert [len(lines) for lines in pids] == [2, 2]
    assert [len(set(lines)) for lines in pids] == [1, 1]
    (first, parent), (second, same_parent) = (lines[0].split() for lines in pids)
    assert parent == same_parent
    assert first != second


def test_files_of_a_family_share_a_fixture_that_is_closed_once(tmp_path: Path) -> None:
    files = {f"tests/differential/test_{name}.py": SHARING for name in "abc"}
    code, out = run(tmp_path, {"conftest.py": COSTLY, **files})
    assert (code, "9 passed" in out) == (0, True), out
    lines = (tmp_path / "tests/differential/pids").read_text().splitlines()
    used = {tuple(line.split()) for line in lines}
    ((pid, made_by),) = used
    assert pid == made_by
    assert (tmp_path / "closed").read_text() == f"{pid}\n"


def test_a_crash_costs_one_test_and_is_reported(tmp_path: Path) -> None:
    crash = "import os\ndef test_one(): pass\ndef test_crash(): os._exit(7)\ndef test_three(): pass"
    code, out = run(tmp_path, {"test_a.py": crash, "test_b.py": ALONE})
    assert code == 1
    assert "1 failed, 4 passed" in out
    assert "the process ended with exit code 7 while it ran test_a.py::test_crash" in out


def test_a_process_that_exits_with_0_too_early_has_crashed(tmp_path: Path) -> None:
    code, out = run(tmp_path, {"test_a.py": "import os\ndef test_crash(): os._exit(0)"})
    assert (code, "1 failed" in out) == (1, True), out


def test_after_a_crash_another_process_of_the_family_runs_the_rest_of_the_file(
    tmp_path: Path,
) -> None:
    crash = "import os\nimport pytest\n@pytest.mark.parametrize('n', range(6))\n"
    crash += "def test_it(n): n == 1 and os._exit(7)\n"
    files = {"tests/differential/test_0.py": crash}
    files |= {f"tests/differential/test_{name}.py": SHARING for name in "ab"}
    code, out = run(tmp_path, {"conftest.py": COSTLY, **files})
    assert (code, "1 failed, 11 passed" in out) == (1, True), out
    assert "while it ran tests/differential/test_0.py::test_it[1]" in out


def test_a_timeout_ends_a_test_that_catches_every_exception(tmp_path: Path) -> None:
    slow = "import time\ndef test_slow():\n    try: time.sleep(60)\n    except Exception: pass\n"
    code, out = run(tmp_path, {"test_a.py": slow}, "--timeout=1")
    assert (code, "Timeout (>1.0s)" in out) == (1, True), out


def test_processes_that_a_file_leaves_behind_end_with_it(tmp_path: Path) -> None:
    leaves = """\
import subprocess
from pathlib import Path

def test_leaves():
    left = subprocess.Popen(["sleep", "600"])
    Path(__file__).with_name("left").write_text(str(left.pid))
    left.returncode = 0
"""
    code, out = run(tmp_path, {"test_a.py": leaves})
    assert code == 0, out
    stat = Path(f"/proc/{(tmp_path / 'left').read_text()}/stat")
    ends_s = time.monotonic() + 10
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def test_a_number_below_0_is_refused(tmp_path: Path) -> None:
    code, out = run(tmp_path, {"test_a.py": ALONE}, "--processes", "-1")
    assert (code, "--processes is -1" in out) == (4, True), out


def test_a_failure_has_its_traceback_and_its_output(tmp_path: Path) -> None:
    wrong = "def test_wrong():\n    print('said before')\n    assert 1 + 1 == 3\n"
    code, out = run(tmp_path, {"test_a.py": wrong, "test_b.py": "def test_right(): print('no')"})
    assert code == 1
    assert "assert (1 + 1) == 3" in out
    assert "said before" in out
    assert "1 failed, 1 passed" in out


def test_the_first_failure_stops_the_run_if_so_asked(tmp_path: Path) -> None:
    files = {"test_a.py": "def test_wrong(): assert 0", "test_b.py": ALONE, "test_c.py": ALONE}
    slow = "import time\ndef test_slow(): time.sleep(60)"
    began_s = time.monotonic()
    code, out = run(tmp_path, {"test_0.py": slow, **files}, "-x")
    assert (code, "stopping after 1 failures" in out) == (1, True), out
    assert time.monotonic() - began_s < 50


def test_an_error_of_the_collection_fails_the_run(tmp_path: Path) -> None:
    code, out = run(tmp_path, {"test_a.py": "import nothing_of_this_name", "test_b.py": ALONE})
    assert (code, "1 error" in out) == (2, True), out


def test_ctrl_c_closes_the_fixtures(tmp_path: Path) -> None:
    slow = """\
import time
from pathlib import Path

def test_slow(costly):
    Path(__file__).with_name("begun").touch()
    time.sleep(60)
"""
    with start(tmp_path, {"conftest.py": COSTLY, "test_a.py": slow}) as running:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate()
    assert running.returncode == 2, output
    assert re.fullmatch(r"\d+\n", (tmp_path / "closed").read_text())
