"""Batches out of the bytes of a Fetch answer, by the reader of segments."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from txn.errors import CorruptLogError
from txn.explain.facts import LoggedBatch
from txn.inspect.records import control_record
from txn.inspect.segments import Batch, Damage, Record, UnreadableBatchError, records_of, walk


class FetchedPiece:
    """A piece of a log as it was fetched; a context manager, whose batches last as long.

    A batch that is cut off at the end, as it may be, is left out.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.batches: list[LoggedBatch] = []

    def __enter__(self) -> Self:
        self._file = tempfile.NamedTemporaryFile(suffix=".log")
        self._file.write(self._data)
        self._file.flush()
        self._path = Path(self._file.name)
        for found in walk(self._path):
            if isinstance(found, Damage):
                break
            self.batches.append(logged(self._path, found))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def records(self, batch: LoggedBatch) -> list[Record]:
        """The records of one of the batches. Raises CorruptLogError."""
        return records_in(self._path, batch.batch)


def logged(path: Path, batch: Batch) -> LoggedBatch:
    """Tell of a batch what kind of marker it is. Raises CorruptLogError."""
    if not (batch.is_control and batch.is_transactional):
        return LoggedBatch(batch, None)
    records = records_in(path, batch)
    if not records:  # compaction may leave the header alone
        return LoggedBatch(batch, None)
    return LoggedBatch(batch, control_record(records[0].key, records[0].value)["control"])


def records_in(path: Path, batch: Batch) -> list[Record]:
    """The records of a batch. Raises CorruptLogError."""
    try:
        return records_of(path, batch)
    except UnreadableBatchError as error:
        raise CorruptLogError(f"{error}. Run `txn log verify` on the broker's directory") from error
