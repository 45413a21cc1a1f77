"""Contents of the files of a log, as entries that print as text or as JSON.

An entry is a dict that begins with its kind (`"batch"`, `"record"`, `"aborted"` …). Where something
is wrong it has a `fault`; `verify` is the tool that looks for such things.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from txn.errors import DirectoryError
from txn.inspect import files, indexes, texts
from txn.inspect.layout import (
    METADATA_TOPIC,
    FileKind,
    files_in,
    is_partition,
    kind_of,
    offset_of,
    partition_of,
    partitions_in,
)
from txn.inspect.records import control_record, internal_record
from txn.inspect.segments import (
    Damage,
    SegmentBatch,
    SegmentRecord,
    UnreadableBatchError,
    records_of,
    walk,
)
from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.snapshot import decode_snapshot
from txn.storage.ids import encode_id

Entry = dict[str, Any]


def files_to_dump(path: Path) -> Iterator[Path]:
    """The files to dump of a file, a partition's directory or a data directory.

    Raises:
        DirectoryError: there is nothing of Kafka's.
    """
    if not path.is_dir():
        if not path.exists():
            raise DirectoryError(f"{path} is not there", path=str(path))
        if kind_of(path) is None:
            raise DirectoryError(f"{path} is no file of a log, by its name", path=str(path))
        yield path
        return
    places = [path] if is_partition(path) else [path, *partitions_in(path)]
    files = [file for place in places for file in files_in(place)]
    if not files:
        raise DirectoryError(
            f"{path} holds no files of a log. Give a data directory, a partition's directory "
            "or a file",
            path=str(path),
        )
    yield from files


def dump(path: Path, *, is_deep: bool) -> Iterator[Entry]:
    """List the contents of a file; records only if `deep` is set. Raises OSError."""
    kind = kind_of(path)
    assert kind is not None, f"{path} is no file of a log"
    try:
        if kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
            files.require_plain(path)
            yield from _batches(path, is_deep)
            return
        yield from _READERS[kind](path)
    except ValueError as error:
        yield {"entry": "damage", "fault": str(error)}


# ---------------------------------------------------------------- segments


def _batches(path: Path, is_deep: bool) -> Iterator[Entry]:
    topic, _ = partition_of(path.absolute().parent) or ("", 0)
    if kind_of(path) is FileKind.METADATA_SNAPSHOT:
        topic = METADATA_TOPIC
    for batch in walk(path):
        if isinstance(batch, Damage):
            yield {
                "entry": "damage",
                "position": batch.position,
                "end": batch.end,
                "fault": batch.reason,
            }
            continue
        yield _batch(batch)
        if is_deep:
            yield from _records(path, topic, batch)


def _batch(batch: SegmentBatch) -> Entry:
    flags = {
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "log append time": batch.is_log_append_time,
    }
    has_producer = batch.producer_id >= 0
    return {
        "entry": "batch",
        "position": batch.position,
        "bytes": batch.size_bytes,
        "first_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "leader_epoch": batch.leader_epoch,
        "codec": batch.codec,
        "flags": [name for name, is_set in flags.items() if is_set],
        "producer_id": batch.producer_id if has_producer else None,
        "producer_epoch": batch.producer_epoch if has_producer else None,
        "first_sequence": batch.base_sequence if batch.base_sequence >= 0 else None,
        "last_sequence": batch.last_sequence if batch.base_sequence >= 0 else None,
        "max_timestamp_ms": batch.max_timestamp_ms,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "crc": batch.crc,
        "fault": batch.fault,
    }


def _records(path: Path, topic: str, batch: SegmentBatch) -> Iterator[Entry]:
    try:
        records = records_of(path, batch)
    except UnreadableBatchError as error:
        yield {"entry": "damage", "position": batch.position, "fault": str(error)}
        return
    for record in records:
        decoded = (
            control_record(record.key, record.value)
            if batch.is_control
            else internal_record(topic, record.key, record.value)
        )
        yield _record(record, decoded)


def _record(record: SegmentRecord, decoded: Mapping[str, Any] | None) -> Entry:
    entry: Entry = {
        "entry": "record",
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    if decoded is None or "undecodable" in decoded:
        entry |= {"key": record.key, "value": record.value}
    if record.headers:
        entry["headers"] = [[key, value] for key, value in record.headers]
    return entry | dict(decoded or {})


# ---------------------------------------------------------------- what stands beside segments


def _base_offset(path: Path) -> int:
    offset = offset_of(path)
    assert offset is not None, f"{path} is not named by an offset"
    return offset


def _index(path: Path) -> Iterator[Entry]:
    data = indexes.without_reserve(files.read_bytes(path), indexes.OFFSET_ENTRY)
    for entry in indexes.offset_entries(data, _base_offset(path)):
        yield {"entry": "index", **entry._asdict()}


def _time_index(path: Path) -> Iterator[Entry]:
    data = indexes.without_reserve(files.read_bytes(path), indexes.TIME_ENTRY)
    for entry in indexes.time_entries(data, _base_offset(path)):
        yield {"entry": "timeindex", **entry._asdict()}


def _txn_index(path: Path) -> Iterator[Entry]:
    for entry in indexes.aborted_entries(files.read_bytes(path)):
        yield {"entry": "aborted", **entry._asdict()}


def _snapshot(path: Path) -> Iterator[Entry]:
    for producer_id, state in decode_snapshot(files.read_bytes(path)).items():
        yield _producer(producer_id, state)


def _producer(producer_id: int, state: ProducerStateEntry) -> Entry:
    newest = state.batches[-1] if state.batches else None
    return {
        "entry": "producer",
        "producer_id": producer_id,
        "producer_epoch": state.producer_epoch,
        "first_sequence": newest[0] if newest else None,
        "last_sequence": newest[1] if newest else None,
        "first_offset": newest[2] if newest else None,
        "last_offset": newest[3] if newest else None,
        "last_timestamp_ms": state.last_timestamp_ms,
        "coordinator_epoch": state.coordinator_epoch,
        "txn_first_offset": state.txn_first_offset if state.txn_first_offset >= 0 else None,
    }


def _checkpoint(path: Path) -> Iterator[Entry]:
    for (topic, index), offset in sorted(texts.read_checkpoint(files.read_text(path)).items()):
        yield {"entry": "checkpoint", "topic": topic, "partition": index, "offset": offset}


def _leader_epochs(path: Path) -> Iterator[Entry]:
    for leader_epoch, start in texts.read_leader_epochs(files.read_text(path)):
        yield {"entry": "leader-epoch", "leader_epoch": leader_epoch, "start_offset": start}


def _txn_index_sums(path: Path) -> Iterator[Entry]:
    for base_offset, (entries, checksum) in texts.read_txn_index_sums(
        files.read_text(path)
    ).items():
        yield {
            "entry": "transaction index",
            "base_offset": base_offset,
            "entries": entries,
            "crc32c": checksum,
        }


def _partition_metadata(path: Path) -> Iterator[Entry]:
    topic_id = texts.read_topic_id(files.read_text(path))
    yield {"entry": "partition", "topic_id": encode_id(topic_id)}


def _meta_properties(path: Path) -> Iterator[Entry]:
    yield {"entry": "properties", **texts.read_properties(files.read_text(path))}


def _json(path: Path) -> Iterator[Entry]:
    yield {"entry": path.name, **texts.read_json(files.read_text(path))}


_READERS: Final[Mapping[FileKind, Callable[[Path], Iterator[Entry]]]] = {
    FileKind.INDEX: _index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.SNAPSHOT: _snapshot,
    FileKind.CHECKPOINT: _checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.TXN_INDEX_SUMS: _txn_index_sums,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.JSON: _json,
}
