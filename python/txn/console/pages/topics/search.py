"""A search in the records of a topic: matches arrive while the log is read, with no time-out.

The browser ends it by leaving. A page has a plain list, so the answer is HTML that grows.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from txn.console.pages.topics.records import Row, rows_of
from txn.console.sources import Source
from txn.errors import ConfigError
from txn.identifiers import TopicPartition

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
class Step:
    """The matches of a stretch of a log that was read, and where it ends."""

    partition: TopicPartition
    rows: Sequence[Row]
    next_offset: int
    end_offset: int


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
    source: Source, starts: Sequence[tuple[TopicPartition, int, int]], wanted: Wanted
) -> Generator[Step, None, None]:
    """Search partitions one after the other, a stretch in each step.

    Args:
        source: Where to read.
        starts: Partitions, the offset to begin at and the one to end before.
        wanted: The records to find.
    """
    for partition, first_offset, end_offset in starts:
        if first_offset >= end_offset:
            continue
        found: list[Row] = []
        bytes_read = 0
        for batch, records in source.records(partition, first_offset):
            if batch.batch.base_offset >= end_offset:
                break
            found += [
                row
                for row in rows_of(batch, records)
                if first_offset <= row.offset < end_offset and wanted.fits(row)
            ]
            bytes_read += batch.batch.size_bytes
            if bytes_read >= STEP_BYTES or len(found) >= FOUND_MAX:
                yield Step(partition, found, batch.batch.last_offset + 1, end_offset)
                found, bytes_read = [], 0
        yield Step(partition, found, end_offset, end_offset)
