"""Finds logs that are gone, by the coordinators' records in a directory that no broker uses."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from os.path import lexists
from pathlib import Path
from struct import Struct, error

from txn.coordinator.group.offsets import OffsetTable
from txn.coordinator.group.records import OffsetRecord
from txn.coordinator.group.records import decode_record as decode_group_record
from txn.coordinator.lost_logs import CompletedCommits, KnownEnd, ends_in_offsets
from txn.coordinator.transaction.records import decode_record
from txn.identifiers import TopicPartition
from txn.inspect import segments
from txn.inspect.layout import list_partition
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Image

_MARKER_KEY = Struct(">hh")
"""Version, and 1 for a commit."""


def lost_logs(
    root: Path, partitions: Sequence[Path], image: Image
) -> dict[TopicPartition, KnownEnd]:
    """Find the partitions without a directory of whose log a coordinator's record knows.

    Args:
        root: The data directory.
        partitions: The directories of its partitions.
        image: Its metadata.

    Records that cannot be read are left out: the look at their own partition finds them.
    """
    names = {topic.topic_id: topic.name for topic in image.topics.values()}
    ids = {topic.name: topic.topic_id for topic in image.topics.values()}
    known = chain(
        _completed_commits(_of_topic(partitions, TRANSACTIONS_TOPIC)).known_ends(names.get),
        ends_in_offsets(_offsets(_of_topic(partitions, OFFSETS_TOPIC)).by_group(), ids.get),
    )
    found: dict[TopicPartition, KnownEnd] = {}
    for each in known:
        topic, index = each.place
        is_known = topic in image.topics and index < image.topics[topic].partition_count
        if is_known and not lexists(root / f"{topic}-{index}"):
            before = found.get(each.place)
            found[each.place] = each if before is None or before.end < each.end else before
    return found


def _of_topic(partitions: Sequence[Path], topic: str) -> list[Path]:
    return [path for path in partitions if path.name.rpartition("-")[0] == topic]


def _completed_commits(logs: Sequence[Path]) -> CompletedCommits:
    completed = CompletedCommits()
    for path, batch in _batches(logs):
        with suppress(OSError, ValueError, segments.UnreadableBatchError):
            for stored in segments.records_of(path, batch):
                record = decode_record(stored.key or b"", stored.value)
                if record is not None:
                    completed.read(record)
    return completed


def _offsets(logs: Sequence[Path]) -> OffsetTable:
    table = OffsetTable()
    for path, batch in _batches(logs):
        with suppress(OSError, ValueError, error, segments.UnreadableBatchError):
            for stored in segments.records_of(path, batch):
                key = stored.key or b""
                if batch.is_control:
                    is_commit = _MARKER_KEY.unpack_from(key)[1] == 1
                    table.end_transaction(batch.producer_id, is_commit=is_commit)
                    continue
                producer_id = batch.producer_id if batch.is_transactional else None
                record = decode_group_record(key, stored.value, producer_id)
                if not isinstance(record, OffsetRecord):
                    continue
                if record.value is None:
                    table.delete(record.key)
                else:
                    table.put(
                        record.key,
                        record.value,
                        record_offset=stored.offset,
                        producer_id=producer_id,
                    )
    return table


def _batches(logs: Sequence[Path]) -> Iterator[tuple[Path, segments.SegmentBatch]]:
    """The sound batches of logs, each with its segment."""
    for directory in logs:
        with suppress(OSError):
            files = list_partition(directory)
            for base_offset in files.segments:
                path = files.file(base_offset, ".log")
                for batch in segments.walk(path):
                    if isinstance(batch, segments.SegmentBatch) and not batch.fault:
                        yield path, batch
