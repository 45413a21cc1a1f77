"""The engines of `txn.Producer`, and the tests that the native one does not pass yet."""

from collections.abc import Mapping
from typing import Final

from txn.client.engine import ENGINES, EngineName

ALL: Final[tuple[EngineName, ...]] = ("confluent-kafka", "native")
assert set(ALL) == set(ENGINES)

NOT_YET_NATIVE: Final[Mapping[str, str]] = {
    "test_a_block_that_raises_after_its_timeout_raises_the_same_and_notes_the_timeout": (
        "the abort of version 2 finds that the cluster has aborted, and succeeds: no note"
    ),
}
"""Test → why it does not run with the native engine."""
