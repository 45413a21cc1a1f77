"""`txn` with rules broken on purpose: the negative controls.

    python -m harnesses.black_box.broken RULE[,RULE…] serve …

A fault that a checker misses here, it would miss in txn. The rules are those of the product's own
Python. They are replaced through the seam (`support.seam`) before the process serves; nothing in
the product knows of it. `POWER` breaks nothing: it only lets the power fail (`power.py`).
"""

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Final

from typing_extensions import override

from harnesses.black_box.power import note_syncs
from support.broken_rules import (
    Breaking,
    fence_nobody,
    follow_the_newest_marker,
    forget_batches,
    serve_late_requests,
    without_a_look,
)
from support.seam import Seam
from txn.broker.local_host import LocalHost
from txn.coordinator.operations import Request
from txn.coordinator.transaction.ending import Ending, Mark, Marked, decide, finish
from txn.coordinator.transaction.states import Txn
from txn.coordinator.transaction.unsynced import is_to_decide
from txn.errors import StorageError
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import PartitionLog

POWER: Final = "power"


def mark_before_prepare(seam: Seam) -> None:
    """Markers are written, and seen, before the Prepare that decides them is on the disk."""

    @seam.instead_of(decide)
    def leave_undecided(ending: Ending) -> Request[None]:
        yield from ()

    @seam.instead_of(finish)
    def mark_and_finish(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        marked: Marked = yield Mark(ending)
        ending.unmarked = frozenset(marked.refused)
        yield from decide(ending)
        yield from finish(ending, write, answer)


def believe_every_prepare(seam: Seam) -> None:
    """A start finishes each commit that is prepared, even where records that it names are lost."""
    seam.instead_of(is_to_decide)(lambda txn: False)


def forget_a_partition(seam: Seam) -> None:
    """A commit is decided and answered while one partition's records are not on the disk."""

    @seam.instead_of(LocalHost)
    class ForgetsAPartition(LocalHost):
        @override
        def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
            *data, newest = stores
            if newest.topic == TRANSACTIONS_TOPIC:
                data = data[:-1]
            return super().sync([*data, newest])

    @seam.instead_of(finish)
    def finish_without_a_look(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        yield from without_a_look(finish(ending, write, answer))


def recover_without_syncs(seam: Seam) -> None:
    """A start takes the contents of the logs for the state of the disk."""

    @seam.instead_of(LocalHost)
    class SyncsNothingAtAStart(LocalHost):
        @override
        def sync_now(self, stores: Iterable[PartitionLog]) -> StorageError | None:
            return None


RULES: Final[dict[str, Breaking]] = {
    "lso-newest-marker": follow_the_newest_marker,
    "no-epoch-check": fence_nobody,
    "no-dedup": forget_batches,
    "late-requests": serve_late_requests,
    "marker-before-prepare": mark_before_prepare,
    "believed-prepare": believe_every_prepare,
    "unsynced-partition": forget_a_partition,
    "unsynced-recovery": recover_without_syncs,
    POWER: note_syncs,
}


def main() -> None:
    """Break the rules, then be `txn`."""
    from txn.cli import main as txn_main

    with Seam() as seam:
        for rule in sys.argv.pop(1).split(","):
            RULES[rule](seam)
        txn_main()


if __name__ == "__main__":
    main()
