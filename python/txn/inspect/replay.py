"""Replays the batches of a partition by its rules, and compares the result with the stored state.

A partition's producers and aborted transactions follow from its batches alone, by
`txn.partition.ProducerStateManager.replay`. So a `.snapshot` has to be the state of that replay at
its offset. A `.txnindex` has to list the transactions that the replay saw aborted in its segment.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.identifiers import ProducerIdAndEpoch
from txn.inspect import indexes
from txn.inspect.layout import PartitionFiles, StopState, partition_of
from txn.inspect.outcome import Outcome, Surroundings, read_bytes
from txn.partition import AbortedTxn, ProducerStateManager, ReplayedBatch
from txn.partition.expiry import COORDINATOR_EPOCH, NEWEST_BATCH, Returns
from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.snapshot import decode_snapshot

ABORT_MARKER: Final = 2
"""Kind of a replayed batch."""


class ProducerStateReplay:
    """The rules of a partition, fed with its batches; holds snapshots and indexes against them.

    Begins with the snapshot at the start of the first segment; without one it knows only the rest
    of the log. Behind damage nothing more can be said.
    """

    def __init__(self, files: PartitionFiles, around: Surroundings, outcome: Outcome) -> None:
        self._files = files
        self._around = around
        self._outcome = outcome
        self._producer_state = ProducerStateManager()
        self._returns = Returns()
        self._abort_markers: dict[int, int] = {}
        self._is_stopped = False
        self._start = files.segments[0]
        self._is_whole = self._start == 0
        self._snapshots = [offset for offset in files.snapshots if offset > self._start]
        for offset in files.snapshots:
            if offset > self._start:
                break
            stored = self._read_snapshot(offset)
            if offset == self._start and stored is not None:
                self._producer_state.restore(stored, ())
                self._returns = Returns(
                    active.producer_id
                    for active in self._producer_state.describe()
                    if active.current_txn_start_offset >= 0
                )
                self._is_whole = True

    def stop(self) -> None:
        """Note that the log is damaged from here on."""
        self._is_stopped = True

    def feed(self, batches: Sequence[ReplayedBatch]) -> None:
        """Read batches, and compare each snapshot when the log passes it."""
        if self._is_stopped:
            return
        start = 0
        base_offsets = [batch[0] for batch in batches]
        while self._snapshots and base_offsets and self._snapshots[0] <= base_offsets[-1]:
            end = bisect_left(base_offsets, self._snapshots[0])
            self._replay_batches(batches[start:end])
            self._compare(self._snapshots.pop(0))
            start = end
        self._replay_batches(batches[start:])

    def open_transactions(self) -> list[OpenTransaction]:
        """Open transactions at the log's end; nothing behind damage."""
        partition = partition_of(self._files.directory)
        if self._is_stopped or partition is None:
            return []
        return [
            OpenTransaction(
                partition,
                ProducerIdAndEpoch(active.producer_id, active.producer_epoch),
                active.current_txn_start_offset,
            )
            for active in self._producer_state.describe()
            if active.current_txn_start_offset >= 0
        ]

    def finish(self, log_end_offset: int) -> None:
        """Compare the rest: the snapshots up to the log's end, and the indexes."""
        for offset in self._snapshots:
            if offset <= log_end_offset:
                self._compare(offset)
            elif self._around.state is StopState.CLEAN and not self._is_stopped:
                what = f"it is of offset {offset}, but the log ends at {log_end_offset}"
                path = self._files.file(offset, ".snapshot")
                self._outcome.find_beyond(path, what, path.parent)
        known = self._producer_state.aborted_entries()
        bounds = [*self._files.segments[1:], log_end_offset]
        for base_offset, end in zip(self._files.segments, bounds, strict=True):
            expected = [entry for entry in known if base_offset <= entry.last_offset < end]
            self._compare_index(base_offset, end, expected)

    def _replay_batches(self, batches: Sequence[ReplayedBatch]) -> None:
        try:
            self._producer_state.replay(batches)
        except AssertionError as error:  # no log can do that to a replay from its start
            path = self._files.file(self._start, ".snapshot")
            self._outcome.find(path, None, f"the log does not follow from it: {error}")
            self.stop()
        self._returns.feed(batches)
        for batch in batches:
            if batch[6] == ABORT_MARKER:
                self._abort_markers[batch[0]] = batch[2]

    # -------------------------------------------------------- snapshots

    def _read_snapshot(self, offset: int) -> bytes | None:
        data = read_bytes(self._files.file(offset, ".snapshot"), self._outcome)
        if data is None:
            return None
        try:
            decode_snapshot(data)
        except ValueError as error:
            self._outcome.find(self._files.file(offset, ".snapshot"), None, str(error))
            return None
        return data

    def _compare(self, offset: int) -> None:
        stored = self._read_snapshot(offset)
        if stored is None or self._is_stopped:
            return
        path = self._files.file(offset, ".snapshot")
        replayed = decode_snapshot(self._producer_state.snapshot())
        for producer_id, stored_state in decode_snapshot(stored).items():
            expected = replayed.pop(producer_id, None)
            if expected is None:
                if self._is_whole and self._around.cleaned_to is None:
                    what = f"it has producer {producer_id}, of which no batch is in the log"
                    self._outcome.find(path, None, what)
                continue
            forgotten = self._returns.lacking(producer_id, stored_state, expected)
            differing = [
                f"{name} {here}, the log says {there}"
                for name, here, there in zip(
                    FACTS, _facts(stored_state), _facts(expected), strict=True
                )
                if here != there
                and name not in forgotten
                and (self._is_whole or self._is_comparable(name, there))
            ]
            if differing and not self._around.may_be_missing(offset):
                what = f"it has of producer {producer_id} {' and '.join(differing)}"
                self._outcome.find(path, None, what)
        # Idle producers are forgotten after a while; one with an open transaction never is.
        for producer_id, state in replayed.items():
            if state.txn_first_offset >= 0:
                what = (
                    f"it lacks producer {producer_id}, whose transaction is open since offset "
                    f"{state.txn_first_offset}"
                )
                self._outcome.find(path, None, what)

    def _is_comparable(self, name: str, there: object) -> bool:
        """Return True if the rest of a log shows a fact as the whole log would."""
        return name != OPEN_TRANSACTION and there not in (None, -1)

    # -------------------------------------------------------- transaction indexes

    def _compare_index(self, base_offset: int, end: int, expected: Sequence[AbortedTxn]) -> None:
        path = self._files.file(base_offset, ".txnindex")
        data = read_bytes(path, self._outcome) if path.name in self._files.names else b""
        if data is None:
            return
        entries = indexes.aborted_entries(data)
        left_over = len(data) % indexes.ABORTED_ENTRY.size
        if left_over:
            position = len(data) - left_over
            self._outcome.find(path, position, f"{left_over} bytes are left over at its end")
        missing = {entry.last_offset: entry for entry in expected}
        for entry in entries:
            aborted = missing.pop(entry.last_offset, None)
            fault = self._fault_of(entry, aborted, end)
            if fault is not None:
                self._outcome.find(path, entry.position, fault)
        for lacked in missing.values():
            if not self._is_stopped and not self._around.may_be_missing(lacked.last_offset):
                what = (
                    f"it lacks the transaction that producer {lacked.producer_id} aborted, offsets "
                    f"{lacked.first_offset} to {lacked.last_offset}"
                )
                self._outcome.find(path, None, what)

    def _fault_of(
        self, entry: indexes.AbortedEntry, expected: AbortedTxn | None, end: int
    ) -> str | None:
        if entry.version != indexes.ABORTED_VERSION:
            return f"the entry has version {entry.version}, known is {indexes.ABORTED_VERSION}"
        if self._is_stopped or entry[2:] == expected:
            return None
        if entry.last_offset >= end and self._around.state is not StopState.CLEAN:
            return None  # its marker never came, or is still to come
        template = "producer {}, offsets {} to {}, last stable offset {}"
        what = f"the entry ({template.format(*entry[2:])})"
        if expected is None:
            marker = self._abort_markers.get(entry.last_offset)
            begins_below = not self._is_whole or self._around.may_be_missing(entry.last_offset)
            if begins_below and marker == entry.producer_id:
                return None  # its records are gone
            return f"{what} names no transaction that was aborted"
        if not self._is_whole or self._around.may_be_missing(entry.last_offset):
            return (
                None
                if entry.producer_id == expected.producer_id
                else f"{what} names another producer"
            )
        return f"{what} is not what the log says: {template.format(*expected)}"


OPEN_TRANSACTION: Final = "open transaction"
FACTS: Final = (
    "producer epoch",
    NEWEST_BATCH,
    "timestamp",
    COORDINATOR_EPOCH,
    OPEN_TRANSACTION,
)


def _facts(state: ProducerStateEntry) -> tuple[object, ...]:
    return (
        state.producer_epoch,
        state.batches[-1] if state.batches else None,
        state.last_timestamp_ms,
        state.coordinator_epoch,
        state.txn_first_offset,
    )
