"""Names and sizes that everybody in a run agrees on."""

from typing import Final

from harnesses.black_box.history import CopyStage, Partition

SOURCE: Final = "source"
STAGES: Final = (CopyStage("copiers", SOURCE, "copies"), CopyStage("chain", "copies", "chained"))
TOPICS: Final = (SOURCE, *(stage.sink for stage in STAGES))
PARTITIONS: Final = 3
KEYS: Final = tuple(f"k{number}" for number in range(7))
"""Key n goes to partition n modulo `PARTITIONS`."""

TIMEOUT_MS: Final = 4_000
"""Time-out of every transaction; an open one is aborted after it."""


def partitions() -> list[Partition]:
    """Every partition of a run."""
    return [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
