"""A search in the records of a topic: matches arrive while the log is read, with no time-out.

The browser ends it by leaving. A page has a plain list, so the answer is HTML that grows.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from txn.cluster.facts import LoggedBatch
from txn.console.pages.topics.browse import ends_of
from txn.console.pages.topics.records import Row, Standing, rows_of, with_standings
from txn.console.sources import Source
from txn.errors import ConfigError, TxnError
from txn.identifiers import TopicPartition
from txn.inspect.segments import SegmentRecord

STEP_BYTES: Final = 4 << 20
FOUND_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records to find; each part that is not None has to fit.

    A text fits if it stands in the key, in the value, or in a header's name or value. There are no
    patterns, so no search can cost more than reading.
    """

    key: bytes | None = None
    value: bytes | None = None
    header: bytes | None = None
    producer_id: int | None = None

    def fits(self, row: Row) -> bool:
        """Return True for a record that is looked for."""
        record = row.record
        if record is None:
            return False
        parts = [part for header in record.headers for part in header if part is not None]
        return (
            (self.producer_id is None or row.producer_id == self.producer_id)
            and (self.key is None or self.key in (record.key or b""))
            and (self.value is None or self.value in (record.value or b""))
            and (self.header is None or any(self.header in part for part in parts))
        )


@dataclass(frozen=True, slots=True)
class Start:
    """A partition to search, and where; `error` is the reason that it cannot be searched."""

    partition: TopicPartition
    first_offset: int = 0
    end_offset: int = 0
    error: TxnError | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The matches of a stretch of a log that was read, and where it ends.

    With an `error` the search of the partition ends there.
    """

    partition: TopicPartition
    rows: Sequence[Row]
    next_offset: int
    end_offset: int
    error: TxnError | None = None


def wanted_text(text: str) -> bytes | None:
    """The bytes of a field of the form: a text, or hexadecimal digits behind 0x.

    Raises ConfigError: they are no hexadecimal digits.
    """
    if not text:
        return None
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ConfigError(
                f"{text!r} is no hexadecimal number. Give pairs of digits behind 0x"
            ) from None
    return text.encode("utf-8", "replace")


def steps_of(
    source: Source, starts: Sequence[Start], wanted: Wanted
) -> Generator[Step, None, None]:
    """Search partitions one after the other, a stretch in each step, up to `FOUND_MAX` matches.

    A partition with an error ends with a step that has it, and the next partition follows.
    """
    left = FOUND_MAX
    for start in starts:
        for step in _steps_in(source, start, wanted, left):
            yield step
            left -= len(step.rows)
            if left <= 0:
                return


def _steps_in(source: Source, start: Start, wanted: Wanted, left: int) -> Iterator[Step]:
    rows: list[Row] = []  # matches, and the markers between them, which decide transactions
    count = bytes_read = 0
    next_offset, error = start.first_offset, start.error
    try:
        for batch, records in _records(source, start):
            for row in rows_of(batch, records):
                if not start.first_offset <= row.offset < start.end_offset:
                    continue
                if wanted.fits(row):
                    rows.append(row)
                    count += 1
                elif row.record is None and rows:
                    rows.append(row)
                if count == left:
                    yield _step(source, start, rows, row.offset + 1, None)
                    return
            next_offset = min(batch.batch.last_offset + 1, start.end_offset)
            bytes_read += batch.batch.size_bytes
            if bytes_read >= STEP_BYTES:
                step = _step(source, start, rows, next_offset, None)
                yield step
                if step.error is not None:
                    return
                left -= count
                rows, count, bytes_read = [], 0, 0
        if error is None:
            next_offset = start.end_offset
    except TxnError as met:
        error = met
    yield _step(source, start, rows, next_offset, error)


def _step(
    source: Source, start: Start, rows: Sequence[Row], next_offset: int, error: TxnError | None
) -> Step:
    """A step with the fates of its matches. If they are not known, it ends before the matches."""
    place = start.partition
    try:
        if any(row.standing is Standing.ENDED for row in rows):
            rows = with_standings(rows, source, place, ends_of(source, place))
    except TxnError as met:
        return Step(place, (), rows[0].offset, start.end_offset, met)
    matches = [row for row in rows if row.record is not None]
    return Step(place, matches, next_offset, start.end_offset, error)


def _records(source: Source, start: Start) -> Iterator[tuple[LoggedBatch, Sequence[SegmentRecord]]]:
    """The batches to search, with their records. Raises TxnError: the log cannot be read on."""
    if start.error is None and start.first_offset < start.end_offset:
        for batch, records in source.records(start.partition, start.first_offset):
            if batch.batch.base_offset >= start.end_offset:
                return
            yield batch, records
