"""Records of a partition, and the part of them that a read_committed reader sees.

A batch of a transaction is open, committed or aborted, and the marker behind it decides. Below the
last stable offset every transaction has ended. There the broker names the aborted ones with a
read_committed Fetch, and the files of a stopped broker are read on up to the marker.
Behind that offset the log is read on up to a limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.cluster.facts import LoggedBatch, PartitionOffsets
from txn.console.sources import Source
from txn.errors import RejectedError
from txn.identifiers import TopicPartition
from txn.inspect.segments import SegmentRecord

PAGE_RECORDS: Final = 50
PAGE_BYTES: Final = 16 << 20
"""Bytes of batches after which a page ends, however few records they have."""

MARKER_BYTES_MAX: Final = 16 << 20
"""Bytes read behind a page to find the markers of transactions behind the last stable offset."""


class Standing(StrEnum):
    """The fate of a record's transaction."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    ENDED = "ended"
    """It has ended, and its marker is far behind the page; never below the last stable offset."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record, or a marker of a transaction (`record` is None then)."""

    offset: int
    timestamp_ms: int
    batch: LoggedBatch
    record: SegmentRecord | None
    standing: Standing

    @property
    def producer_id(self) -> int:
        """The producer; -1: it has none."""
        return self.batch.batch.producer_id

    def is_seen(self, ends: PartitionOffsets) -> bool:
        """True if a read_committed reader gets it."""
        is_committed = self.standing in (Standing.PLAIN, Standing.COMMITTED)
        return self.record is not None and is_committed and self.offset < ends.last_stable_offset


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Rows of a partition; `next_offset` begins the next page, None: the log ends here."""

    rows: Sequence[Row]
    next_offset: int | None


def page_of(
    source: Source, partition: TopicPartition, first_offset: int, ends: PartitionOffsets
) -> RecordPage:
    """Read a page of records and markers.

    Raises:
        RejectedError: the user may not read the topic.
        CorruptLogError: a batch cannot be read.
    """
    rows: list[Row] = []
    bytes_read = 0
    next_offset: int | None = None
    for batch, records in source.records(partition, first_offset):
        bytes_read += batch.batch.size_bytes
        found = [row for row in rows_of(batch, records) if row.offset >= first_offset]
        rows += found
        if len(rows) >= PAGE_RECORDS or bytes_read >= PAGE_BYTES:
            rows = rows[:PAGE_RECORDS]
            last = rows[-1].offset if rows else batch.batch.last_offset
            next_offset = last + 1 if last + 1 < ends.end_offset else None
            break
    return RecordPage(with_standings(rows, source, partition, ends), next_offset)


def rows_of(batch: LoggedBatch, records: Iterable[SegmentRecord]) -> list[Row]:
    """The rows of a batch; the fate of its transaction is not looked up yet."""
    found = batch.batch
    if batch.marker is not None:
        return [Row(found.base_offset, found.max_timestamp_ms, batch, None, Standing.PLAIN)]
    if found.is_control:
        return []
    standing = Standing.ENDED if found.is_transactional else Standing.PLAIN
    return [Row(each.offset, each.timestamp_ms, batch, each, standing) for each in records]


def with_standings(
    rows: Sequence[Row], source: Source, partition: TopicPartition, ends: PartitionOffsets
) -> list[Row]:
    """Look up the fate of the transactions of rows.

    Args:
        rows: In the order of the log, with every marker between them.
        source: Where to look.
        partition: The partition of the rows.
        ends: Its ends, asked for before or after the rows were read.
    """
    found = list(rows)
    # The rows of a producer behind its last marker are of one transaction, so one answer fits all.
    waiting: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if row.record is None:
            _decide(found, waiting, row.batch)
        elif row.standing is Standing.ENDED:
            waiting.setdefault(row.producer_id, []).append(place)
    first = {producer_id: rows[places[0]].offset for producer_id, places in waiting.items()}
    stable = {each for each, offset in first.items() if offset < ends.last_stable_offset}
    if isinstance(source, RunningCluster):
        for producer_id in stable:
            is_aborted = producer_id in source.aborted_at(partition, first[producer_id])
            standing = Standing.ABORTED if is_aborted else Standing.COMMITTED
            _settle(found, waiting, producer_id, standing)
    for held in source.open_transactions([partition]) if waiting else ():
        if first.get(held.producer_id, -1) >= held.first_offset:
            _settle(found, waiting, held.producer_id, Standing.OPEN)
    left = MARKER_BYTES_MAX
    if waiting:
        for batch in source.batches(partition, rows[-1].offset + 1):
            _decide(found, waiting, batch)
            left -= batch.batch.size_bytes
            if not waiting or (left <= 0 and stable.isdisjoint(waiting)):
                break
    for producer_id in stable:  # a reader gets every stable record that no marker aborts
        _settle(found, waiting, producer_id, Standing.COMMITTED)
    return found


def _decide(found: list[Row], waiting: dict[int, list[int]], batch: LoggedBatch) -> None:
    """Give the rows that wait for a marker their standing."""
    if batch.marker is None:
        return
    is_commit = batch.marker.lower().startswith("commit")
    standing = Standing.COMMITTED if is_commit else Standing.ABORTED
    _settle(found, waiting, batch.batch.producer_id, standing)


def _settle(
    found: list[Row], waiting: dict[int, list[int]], producer_id: int, standing: Standing
) -> None:
    for place in waiting.pop(producer_id, ()):
        found[place] = replace(found[place], standing=standing)


def names_of(source: Source, rows: Iterable[Row]) -> dict[int, str]:
    """The transactional ids of producers on a page, of those that the user may see."""
    producer_ids = {row.producer_id for row in rows if row.batch.batch.is_transactional}
    if not producer_ids:
        return {}
    try:
        owners = source.owners(producer_ids)
    except RejectedError:
        return {}
    return {owner.producer_id: owner.transactional_id for owner in owners}
