"""The life of one transaction: the records of its coordinator and of its partitions.

Pure: records of `__transaction_state` and batches go in, events come out. The coordinator's topic
is compacted, so its oldest records may be gone; then the timeline says where it begins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from typing import Final

from txn.cluster.facts import LoggedBatch, StateRecord
from txn.coordinator.transaction.states import PREPARED, Txn, TxnState
from txn.counts import counted
from txn.identifiers import TopicPartition
from txn.metadata.image import TRANSACTIONS_TOPIC

KINDS: Final = ("producer", "records", "open", "decision", "marker", "end")
"""Kinds of events; in this order if they have the same time in several logs. A client stamps its
first records before it asks for the transaction they begin."""

_KIND_OF: Final = {
    TxnState.EMPTY: "producer",
    TxnState.ONGOING: "open",
    TxnState.PREPARE_COMMIT: "decision",
    TxnState.PREPARE_ABORT: "decision",
}
_WORDS: Final = {
    TxnState.EMPTY: "InitProducerId",
    TxnState.PREPARE_COMMIT: "decided to commit",
    TxnState.PREPARE_ABORT: "decided to abort",
    TxnState.COMPLETE_COMMIT: "committed, every partition has its marker",
    TxnState.COMPLETE_ABORT: "aborted, every partition has its marker",
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        at_ms: When; of records the newest timestamp in their first batch, which clients set.
        kind: One of `KINDS`.
        what: The event in words.
        log: The partition where it stands.
        first_offset: First offset written there.
        last_offset: Last offset written there.
        until_ms: When the last of several was written, None for one.
    """

    at_ms: int
    kind: str
    what: str
    log: str
    first_offset: int
    last_offset: int
    until_ms: int | None = None


def newest_transaction(history: Sequence[StateRecord]) -> list[StateRecord]:
    """The records of the newest transaction, with the InitProducerId right before it.

    Of an id that is at rest, that is the last one it had.
    """
    begin = 0
    for nth, record in enumerate(history):
        before = history[nth - 1].txn if nth else None
        is_open = record.txn is not None and record.txn.state is TxnState.ONGOING
        was_open = before is not None and before.state is TxnState.ONGOING
        if is_open and not was_open:
            begin = nth
    if begin and _state_of(history[begin - 1]) is TxnState.EMPTY:
        begin -= 1
    return list(history[begin:])


def transaction_in(records: Iterable[StateRecord]) -> Txn | None:
    """The last known state of a transaction before it was completed: its partitions and times."""
    newest = None
    for record in records:
        if record.txn is not None and record.txn.state in PREPARED | {TxnState.ONGOING}:
            newest = record.txn
    return newest


def coordinator_events(records: Sequence[StateRecord]) -> list[Event]:
    """The records of a coordinator, one event for each."""
    events = []
    before: Txn | None = None
    for record in records:
        events.append(
            Event(
                record.timestamp_ms,
                "end" if record.txn is None else _KIND_OF.get(record.txn.state, "end"),
                _words_of(record.txn, before),
                f"{TRANSACTIONS_TOPIC}-{record.partition}",
                record.offset,
                record.offset,
            )
        )
        before = record.txn
    return events


def is_cut_off(records: Sequence[StateRecord]) -> bool:
    """Return True if compaction has taken the beginning of a transaction."""
    first = next((each.txn for each in records if each.txn is not None), None)
    return first is not None and first.state in PREPARED


def partition_events(
    partition: TopicPartition,
    batches: Iterable[LoggedBatch],
    producer_id: int,
    *,
    is_open: bool,
) -> list[Event]:
    """Batches of a producer's newest transaction in a partition: records, then a marker.

    Args:
        partition: Whose batches they are.
        batches: From an offset on that is not behind the transaction's first.
        producer_id: Whose transaction.
        is_open: True if it may still be open there; else records after its marker are another's.
    """
    log = f"{partition[0]}-{partition[1]}"
    written: list[LoggedBatch] = []
    ended: list[Event] = []
    for each in batches:
        if each.batch.producer_id != producer_id or not each.batch.is_transactional:
            continue
        if each.marker is None:
            written.append(each)
            continue
        offset = each.batch.base_offset
        at_ms, what = each.batch.max_timestamp_ms, f"{each.marker} marker"
        marker = Event(at_ms, "marker", what, log, offset, offset)
        ended = [*_written(log, written), marker]
        written = []
    return (_written(log, written) if is_open else []) or ended


def _written(log: str, batches: Sequence[LoggedBatch]) -> list[Event]:
    if not batches:
        return []
    first, last = batches[0].batch, batches[-1].batch
    records = sum(each.batch.record_count for each in batches)
    what = counted(records, "record")
    if len(batches) > 1:
        what += f" in {counted(len(batches), 'batch', 'batches')}"
    return [
        Event(
            first.max_timestamp_ms,
            "records",
            what,
            log,
            first.base_offset,
            last.last_offset,
            last.max_timestamp_ms if len(batches) > 1 else None,
        )
    ]


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events by time; those of the same time by their offsets in a log, and by kind across logs.

    Records have their client's time, so they may come before their transaction.
    """
    found: list[Event] = []
    for _, tied in groupby(sorted(events, key=_time), key=_time):
        logs: dict[str, list[Event]] = {}
        for event in sorted(tied, key=lambda event: event.first_offset):
            logs.setdefault(event.log, []).append(event)
        # No log is sorted by kind. The merge takes the first kind among the next of each log.
        found += merge(*logs.values(), key=lambda event: KINDS.index(event.kind))
    return found


def _time(event: Event) -> int:
    return event.at_ms


def _is_prepare_to_commit(txn: Txn | None) -> bool:
    return txn is not None and txn.state is TxnState.PREPARE_COMMIT


def _state_of(record: StateRecord) -> TxnState | None:
    return None if record.txn is None else record.txn.state


def _words_of(txn: Txn | None, before: Txn | None) -> str:
    if txn is None:
        return "forgotten"
    joined = frozenset() if before is None else before.partitions
    if txn.state is TxnState.ONGOING:
        added = sorted(txn.partitions - joined)
        names = ", ".join(f"{topic}-{index}" for topic, index in added)
        if added:
            return f"{'joined by' if joined else 'begun, with'} {names}"
        if not txn.is_prepared:
            return "ongoing"
        client = txn.client
        return f"kept open for producer {client.producer_id}, epoch {client.producer_epoch}"
    words = _WORDS.get(txn.state, txn.state.label)
    open_ms = txn.updated_ms - txn.start_ms
    if txn.state is TxnState.PREPARE_ABORT and _is_prepare_to_commit(before):
        words += ", as its records did not get to the disk; nobody was told of a commit"
    elif txn.state is TxnState.PREPARE_ABORT and 0 < txn.timeout_ms <= open_ms and txn.start_ms > 0:
        words += (
            f" after {open_ms / 1000:.1f} s, longer than transaction.timeout.ms={txn.timeout_ms}"
        )
    return f"{words}: producer {txn.producer_id}, epoch {txn.producer_epoch}"
