"""Reads the batches in the bytes of a Fetch answer, with the reader of segments."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from txn.cluster.facts import LoggedBatch
from txn.errors import CorruptLogError
from txn.inspect.records import control_record
from txn.inspect.segments import (
    Damage,
    SegmentBatch,
    SegmentRecord,
    UnreadableBatchError,
    records_of,
    walk,
)


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """A piece of a log as it was fetched."""

    path: Path
    batches: tuple[LoggedBatch, ...]

    def records(self, batch: LoggedBatch) -> list[SegmentRecord]:
        """The records of one of the batches. Raises CorruptLogError."""
        return records_in(self.path, batch.batch)


@contextmanager
def fetched(data: bytes) -> Iterator[FetchedPiece]:
    """The whole batches of fetched bytes; one that is cut off at the end is left out.

    Raises:
        CorruptLogError: a marker cannot be read, or a checksum is wrong.
    """
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        batches = []
        for batch in walk(path):
            if isinstance(batch, Damage):
                break
            _require_sound(batch)
            batches.append(logged(path, batch))
        yield FetchedPiece(path, tuple(batches))


def logged(path: Path, batch: SegmentBatch) -> LoggedBatch:
    """Return the kind of marker that a batch is. Raises CorruptLogError."""
    if not (batch.is_control and batch.is_transactional):
        return LoggedBatch(batch, None)
    records = records_in(path, batch)
    if not records:  # compaction may leave the header alone
        return LoggedBatch(batch, None)
    control = control_record(records[0].key, records[0].value)
    return LoggedBatch(batch, control.get("control", "unreadable"))


def records_in(path: Path, batch: SegmentBatch) -> list[SegmentRecord]:
    """The records of a batch. Raises CorruptLogError."""
    _require_sound(batch)
    try:
        return records_of(path, batch)
    except UnreadableBatchError as error:
        raise CorruptLogError(f"{error}. Run `txn log verify` on the broker's directory") from error


def _require_sound(batch: SegmentBatch) -> None:
    if batch.fault is not None:
        raise CorruptLogError(
            f"the batch at offset {batch.base_offset} is damaged: {batch.fault}. Run `txn log "
            "verify` on the broker's directory"
        )
