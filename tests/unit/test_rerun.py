"""The second run of failed tests: a flaky one is named, and nothing else is forgiven."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """\
import sys
from pathlib import Path
from rerun import run
sys.exit(run([*sys.argv[2:], "-p", "no:cacheprovider"], Path(sys.argv[1])))
"""
FLAKY = """\
from pathlib import Path

import pytest

@pytest.mark.parametrize("odd", ["a b[c]::d"])
def test_passes_the_second_time(odd):
    was_here = Path(__file__).with_name("was-here")
    seen, _ = was_here.exists(), was_here.touch()
    assert seen, "the first failure"
"""


def run(
    place: Path, tests: str, *options: str, environment: dict[str, str] | None = None
) -> tuple[int, str, str | None]:
    """The exit code, the output, and the file of flaky tests, if there is one."""
    (place / "test_given.py").write_text(tests)
    flaky = place / "target" / "flaky.txt"
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(flaky), str(place), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), **(environment or {})},
    )
    return ended.returncode, ended.stdout, flaky.read_text() if flaky.exists() else None


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_test_that_passes_alone_is_named_as_flaky(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    code, out, flaky = run(tmp_path, FLAKY + "\ndef test_sound(): pass\n", *options)
    assert code == 0
    assert "Flaky: 1 test failed first and passed alone." in out
    assert out.splitlines()[-2].endswith("test_given.py::test_passes_the_second_time[a b[c]::d]")
    assert "the first failure" in out.split("First failure of")[1]
    assert flaky is not None
    assert "the first failure" in flaky


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, out, flaky = run(tmp_path, FLAKY + "\ndef test_wrong(): assert False\n")
    assert (code, flaky) == (1, None)
    assert out.splitlines()[-1].endswith("test_given.py::test_wrong")


def test_many_failures_are_no_bad_luck(tmp_path: Path) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_wrong(n): assert 0\n"
    code, out, _ = run(tmp_path, tests)
    assert code == 1
    assert out.splitlines()[-1].startswith("6 tests failed: too many")


def test_strict_has_no_second_run(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, FLAKY, environment={"STRICT": "1"})
    assert code == 1
    assert "once more" not in out


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, "import no_such_module\n")[0] != 0


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "")[0] == pytest.ExitCode.NO_TESTS_COLLECTED
