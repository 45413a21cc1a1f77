"""Snapshots of the metadata log are `<offset>-<epoch>.checkpoint` in its directory.

A snapshot has the contents of the log below an offset, as record batches from offset 0 on. The
first and the last are control batches. A stop in order writes one if the log has grown since the
newest. It is for Apache Kafka, which otherwise forgets users that the log still has: Kafka 4.2
replays a log without a snapshot as one change, and there the removal of one user's credential may
remove the credentials of all users of the mechanism.

Invariant: a snapshot gets its name once it is on the disk, so no named snapshot is torn. Older ones
are removed afterwards. The log keeps all its records, so a damaged snapshot is ignored if they
begin at offset 0.

Source: KIP-630; Apache Kafka, `RecordsSnapshotWriter`.
"""

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from txn import _core
from txn.errors import CorruptLogError, StorageError
from txn.logs import log as logger
from txn.metadata.snapshot import SnapshotRecords
from txn.storage.base import PartitionLog
from txn.storage.plain_files import read_plain
from txn.storage.private import replace_file, sync_directory

SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")
"""Name of a snapshot: the offset where it ends, and the epoch there."""

UNFINISHED_SUFFIX: Final = ".part"
"""Suffix of its name until it is on the disk."""

READ_BYTES: Final = 1 << 20
BATCH_RECORDS: Final = 1000
"""Number of records in a batch of a snapshot."""

HEADER_TYPE, FOOTER_TYPE, LEADER_TYPE = 3, 4, 2
"""Types of control records. Source: KIP-595, KIP-630."""
CONTROL: Final = 0x20

_HEADER: Final = struct.Struct(">qiibIhi")
"""The begin of a batch: base offset, bytes that follow, leader epoch, magic, checksum, attributes,
last offset delta."""
_CHECKSUM_AT, _CHECKED_FROM = 17, 21
_COUNT_AT, _RECORDS_AT = 57, 61
_LENGTH_BYTES: Final = 12


class FoundSnapshot(NamedTuple):
    """A snapshot: the offset where the log goes on, its file, and its bytes."""

    end: int
    path: Path | None
    content: bytes


class MetadataSnapshots:
    """The snapshots in the directory of the metadata log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def newest(self, log: PartitionLog) -> tuple[int, list[bytes]]:
        """The newest snapshot: where the log goes on, and its records' values.

        Without one that is the log's start, and nothing.

        Raises:
            CorruptLogError: a snapshot is damaged and the log does not hold its contents, or the
                log begins after its end.
        """
        found = self._newest(log)
        return found.end, _values(found.content)

    def _newest(self, log: PartitionLog) -> FoundSnapshot:
        damage: CorruptLogError | None = None
        for end, path in self._paths():
            if not log.log_start_offset <= end <= log.log_end_offset:
                continue
            try:
                return FoundSnapshot(end, path, _read_whole(path))
            except CorruptLogError as error:
                damage = damage or error
                logger.warning(
                    "metadata.snapshot_passed_over", path=str(path), reason=error.message
                )
        if log.log_start_offset > 0:
            raise damage or CorruptLogError(
                f"{self._directory} begins at offset {log.log_start_offset} and holds no snapshot "
                "of what was before. Put back a copy of its .checkpoint files",
                path=str(self._directory),
            )
        return FoundSnapshot(0, None, b"")

    def _paths(self) -> list[tuple[int, Path]]:
        """End offset and path of each snapshot, newest first."""
        names = os.listdir(self._directory) if self._directory.is_dir() else []
        found = [
            (int(match[1]), self._directory / name)
            for name in names
            if (match := SNAPSHOT_NAME.fullmatch(name))
        ]
        return sorted(found, reverse=True)

    def store(self, log: PartitionLog, stored: _core.PartitionLog, now_ms: int) -> None:
        """Write a snapshot of all that the log says, unless there is one.

        A log that names the voters of its quorum stays without: no snapshot here can.

        Args:
            log: The metadata log; all of it is synced first.
            stored: The same, as it is on the disk.
            now_ms: The time of day.

        Raises:
            CorruptLogError: the log is damaged.
            StorageError: a disk refuses it; there is no other snapshot than before.
        """
        end = log.log_end_offset
        before = self._newest(log)
        if before.end == end:
            self._remove_before(end, is_new=False)
            return
        values = _all_values(before, stored)
        if values is None:
            return
        log.sync()
        leader_epoch = log.epoch_of(end - 1)
        path = self._directory / f"{end:020}-{leader_epoch:010}.checkpoint"
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        try:
            replace_file(path, unfinished, _encoded(values, leader_epoch, now_ms), os.fsync)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from error
        self._remove_before(end, is_new=True)

    def _remove_before(self, end: int, *, is_new: bool) -> None:
        """Remove older snapshots and unfinished ones, once the name of the new one is synced."""
        needless = [path for other, path in self._paths() if other < end]
        needless += self._directory.glob(f"*.checkpoint{UNFINISHED_SUFFIX}")
        if not needless and not is_new:
            return
        try:
            sync_directory(self._directory, os.fsync)
            for path in needless:
                path.unlink()
        except OSError as error:
            raise StorageError(f"cannot change {self._directory}: {error}") from error


def _all_values(before: FoundSnapshot, stored: _core.PartitionLog) -> list[bytes] | None:
    """The values of a snapshot of the whole log; None if none can be made here."""
    records = SnapshotRecords()
    if _names_voters(before.content):
        return None
    for value in _values(before.content):
        records.read(value)
    for content in _read_from(stored, before.end):
        if _names_voters(content):
            return None
        for value in _values(content, start=before.end):
            records.read(value)
    return None if records.is_open else records.values()


def _read_from(stored: _core.PartitionLog, offset: int) -> Iterator[bytes]:
    """Read stored batches, from the one that holds an offset to the end of the log."""
    while offset < stored.log_end_offset:
        try:
            content = stored.read(offset, READ_BYTES)
        except _core.CorruptLogError as error:
            raise CorruptLogError(str(error.args[0])) from error
        except (_core.LogRefusedError, OSError) as error:
            raise StorageError(f"cannot read the metadata log: {error}") from error
        yield content
        for _, header in _batches(content):
            offset = header[0] + header[6] + 1


def _batches(content: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Position and first fields of each batch."""
    position = 0
    while position + _HEADER.size <= len(content):
        header = _HEADER.unpack_from(content, position)
        yield position, header
        position += _LENGTH_BYTES + header[1]


def _names_voters(content: bytes) -> bool:
    """Return True if there are control records other than those of leaders, begins and ends.

    The voters of a quorum that may change are such. Source: KIP-853.
    """
    return any(
        header[5] & CONTROL
        and _control_type(content, position) not in (LEADER_TYPE, HEADER_TYPE, FOOTER_TYPE)
        for position, header in _batches(content)
    )


def _control_type(content: bytes, position: int) -> int:
    """The type of the only record of a control batch; -1 if there are more."""
    (count,) = struct.unpack_from(">i", content, position + _COUNT_AT)
    if count != 1:
        return -1
    at = position + _RECORDS_AT
    for fixed_bytes in (1, 0, 0, 0):  # length and attributes, time, offset, length of the key
        while content[at] & 0x80:
            at += 1
        at += 1 + fixed_bytes
    _, kind = struct.unpack_from(">hh", content, at)
    return int(kind)


def _read_whole(path: Path) -> bytes:
    """The bytes of a snapshot, which ends with a control record."""
    try:
        content = read_plain(path)
        batches = [batch[-1] for batch in _core.decode_batches(content)]
    except (_core.CorruptLogError, OSError) as error:
        raise CorruptLogError(f"{path}: {error.args[0]}", path=str(path)) from error
    if not batches or batches[-1]:
        raise CorruptLogError(f"{path} ends in the middle. Put back a copy", path=str(path))
    return content


def _values(content: bytes, start: int = 0) -> list[bytes]:
    """The values of the records in batches, from an offset on."""
    try:
        decoded = _core.decode_batches(content)
    except _core.CorruptLogError as error:
        raise CorruptLogError(str(error.args[0])) from error
    return [
        value or b""
        for *_, records in decoded
        for offset, _, _, value in records
        if offset >= start
    ]


def _encoded(values: list[bytes], leader_epoch: int, now_ms: int) -> bytes:
    """The bytes of a snapshot."""
    header = _control_record(HEADER_TYPE, struct.pack(">hqb", 0, now_ms, 0))
    footer = _control_record(FOOTER_TYPE, struct.pack(">hb", 0, 0))
    batches: list[list[tuple[bytes | None, bytes | None]]] = [[header]]
    for at in range(0, len(values), BATCH_RECORDS):
        batches.append([(None, value) for value in values[at : at + BATCH_RECORDS]])
    batches.append([footer])
    content = bytearray()
    offset = 0
    for number, records in enumerate(batches):
        batch = bytearray(_core.encode_batch(records, now_ms))
        base, size, _, magic, checksum, attributes, delta = _HEADER.unpack_from(batch)
        if number in (0, len(batches) - 1):
            attributes |= CONTROL
        _HEADER.pack_into(
            batch, 0, base + offset, size, leader_epoch, magic, checksum, attributes, delta
        )
        struct.pack_into(">I", batch, _CHECKSUM_AT, _core.crc32c(bytes(batch[_CHECKED_FROM:])))
        content += batch
        offset += len(records)
    return bytes(content)


def _control_record(kind: int, value: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of a control record of the first version."""
    return struct.pack(">hh", 0, kind), value
