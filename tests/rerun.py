"""Run pytest, and each failed test once more, alone: a rare failure is named, and costs no day.

    python tests/rerun.py -n 3 --dist loadfile tests     the arguments of pytest

A test that passes the second time is flaky. That is a defect of txn or of the test, to be mended
before other work. The last lines list these tests with their first failures, and
`target/flaky-tests.txt` has the whole reports. The exit code is pytest's own if no test failed, if
more than five did, or if one fails again. `STRICT=1` leaves the second run out.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
FLAKY: Final = ROOT / "target" / "flaky-tests.txt"
FLAKY_MAX: Final = 5
SHOWN_LINES: Final = 40
"""Last lines of a first failure that are printed; the file has all."""


class FirstFailures:
    """A plugin of pytest that keeps the reports of failed tests, those of xdist's workers too."""

    def __init__(self) -> None:
        self.reports: dict[str, str] = {}
        """Node id → its reports."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._add(report.nodeid, f"in its {report.when}:\n{report.longreprtext}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(report.nodeid, f"in its collection:\n{report.longreprtext}")

    def _add(self, test: str, text: str) -> None:
        self.reports[test] = f"{self.reports[test]}\n{text}" if test in self.reports else text


def run(arguments: Sequence[str], flaky: Path = FLAKY) -> int:
    """Run the tests; return the exit code.

    Args:
        arguments: Of pytest.
        flaky: File for the reports of flaky tests; there is none afterwards if no test is flaky.
    """
    flaky.unlink(missing_ok=True)
    first = FirstFailures()
    code = int(pytest.main(list(arguments), plugins=[first]))
    failures = first.reports
    if code != pytest.ExitCode.TESTS_FAILED or not failures or os.environ.get("STRICT"):
        return code
    if len(failures) > FLAKY_MAX:
        print(f"\n{len(failures)} tests failed: too many to be flaky (at most {FLAKY_MAX} are)")
        return code
    print(f"\n{_tests(len(failures))} failed. Each runs once more, alone", flush=True)
    if again := [test for test in failures if not _passes(test)]:
        print("\nThese failed again:", *again, sep="\n  ")
        return code
    flaky.parent.mkdir(exist_ok=True)
    flaky.write_text("\n\n".join(f"{test}\n{report}\n" for test, report in failures.items()))
    for test, report in failures.items():
        print(f"\nFirst failure of {test}:", *report.splitlines()[-SHOWN_LINES:], sep="\n  ")
    print(f"\nFlaky: {_tests(len(failures))} failed first and passed alone. Each is a defect:")
    print(*failures, f"whole reports: {flaky}", sep="\n", flush=True)
    return 0


def _passes(test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, check=False).returncode == 0


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # as `python -m pytest` does
    os.chdir(ROOT)
    sys.exit(run(sys.argv[1:]))
