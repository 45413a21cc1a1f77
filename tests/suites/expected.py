"""The tests of others' suites that do not pass, each with its reason, by target and suite."""

from typing import Final

EXPECTED: Final[dict[str, dict[str, dict[str, str]]]] = {
    "txn": {},
    "kafka": {},
}
