"""The values that the driver hands to the tasks of a batch.

They travel pickled; a later batch may use their producers again only while their ids have not
expired.
"""

from dataclasses import dataclass, replace
from typing import Final

from txn.spark.progress import (
    Progress,
    Spare,
    TransactionIdentity,
)

SPARE_MS_MAX: Final = 10 * 60_000
"""Producers of an older record are not used again: their ids may have expired."""


@dataclass(frozen=True, slots=True)
class Handout:
    """The values that a begun batch gives to its tasks; it travels to them pickled."""

    id: str
    token: TransactionIdentity
    progress: Progress | None
    began_ms: int
    """Begin by the driver's clock; no task's transaction is older."""

    @property
    def spares(self) -> tuple[Spare, ...]:
        """The producers that their processes may use again."""
        if self.progress is None or self.began_ms - self.progress.written_ms > SPARE_MS_MAX:
            return ()
        return self.progress.spares

    def without_spares(self) -> "Handout":
        """The same for the way back: of many tasks one is enough to bring the producers."""
        if self.progress is None:
            return self
        return replace(self, progress=replace(self.progress, spares=()))
