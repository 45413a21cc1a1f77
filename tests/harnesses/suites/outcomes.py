"""Outcomes of the tests of one suite, and their comparison with the expected ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal["pass", "fail", "skip"]
Outcomes = dict[str, Outcome]
"""Outcome by the name of the test."""

SHOWN_LINES: Final = 20


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite."""

    outcomes: Outcomes
    output: dict[str, str]
    """Output of each failed test."""

    def count(self, outcome: Outcome) -> int:
        """How many tests have that outcome."""
        return sum(each == outcome for each in self.outcomes.values())

    def failures(self) -> list[str]:
        """The tests that failed."""
        return sorted(test for test, each in self.outcomes.items() if each == "fail")

    def unexpected(self, expected: Mapping[str, str]) -> list[str]:
        """The failed tests that `expected` gives no reason for."""
        return [test for test in self.failures() if test not in expected]

    def mended(self, expected: Mapping[str, str]) -> list[str]:
        """The tests that `expected` gives a reason for, although they passed."""
        return sorted(test for test in expected if self.outcomes.get(test) == "pass")

    def last_lines(self, test: str) -> str:
        """The end of the output of a failed test."""
        return "\n".join(self.output.get(test, "").splitlines()[-SHOWN_LINES:])


class SuiteError(Exception):
    """A suite could not be fetched, built or run. The message says what is missing."""
