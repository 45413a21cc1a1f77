"""Record batches as a client sends them, sound or broken on purpose, and as a fetch shows them.

`BatchSpec` describes a batch; `encode` makes its bytes. A field that is given where it would be
computed (`crc`, `length`, `record_count`, `last_offset_delta`) makes it hostile.
"""

import gzip
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.varints import varint
from txn.wire.checksums import crc32c

CREATED_MS: Final = 1_700_000_000_000
"""Timestamp of the first record of a batch, if nothing else is said: far from any clock."""

TRANSACTIONAL, CONTROL = 0x10, 0x20
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_START: Final = 21


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """A batch of format 2. `producer_id` may be a `names.Name`, to be resolved per broker."""

    values: tuple[bytes | None, ...] = (b"value",)
    producer_id: Any = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0
    timestamp_ms: int = CREATED_MS
    base_offset: int = 0
    magic: int = 2
    crc: int | None = None
    length: int | None = None
    record_count: int | None = None
    last_offset_delta: int | None = None
    max_timestamp_ms: int | None = None
    key: bytes | None = b"key"
    after: bytes = b""
    """Bytes behind the batch."""
    cut: int | None = None
    """Send this many bytes only."""
    content: bytes | None = None
    """In place of the records, compressed or not."""

    @property
    def sent(self) -> tuple[Any, int, int, int]:
        """The key by which a partition knows a retry of it."""
        return self.producer_id, self.producer_epoch, self.base_sequence, len(self.values)

    def encode(self, producer_id: int) -> bytes:
        """The bytes of the records field, with a broker's own producer id."""
        records = b"".join(record(n, self.key, value) for n, value in enumerate(self.values))
        if self.attributes & 7 == 1:
            records = gzip.compress(records, mtime=0)
        if self.content is not None:
            records = self.content
        count = len(self.values)
        body = HEADER.pack(
            self.base_offset,
            HEADER.size - 12 + len(records) if self.length is None else self.length,
            -1,
            self.magic,
            0,
            self.attributes,
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.timestamp_ms,
            self.timestamp_ms + max(count - 1, 0)
            if self.max_timestamp_ms is None
            else self.max_timestamp_ms,
            producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.record_count is None else self.record_count,
        )
        whole = body + records
        crc = crc32c(whole[CRC_START:]) if self.crc is None else self.crc
        return (whole[:17] + struct.pack(">I", crc) + whole[CRC_START:] + self.after)[: self.cut]


def transactional(producer_id: Any, producer_epoch: int, sequence: int, **given: Any) -> BatchSpec:
    """A batch of a transaction."""
    return BatchSpec(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        **{"attributes": TRANSACTIONAL, **given},
    )


def idempotent(producer_id: Any, producer_epoch: int, sequence: int, **given: Any) -> BatchSpec:
    """A batch of a producer without a transaction."""
    return transactional(producer_id, producer_epoch, sequence, **{"attributes": 0, **given})


def decode(data: bytes) -> list[dict[str, Any]]:
    """Contents of a fetch answer: every header field but the checksum, and the records' bytes.

    The checksum covers the producer id, which is each broker's own, so it is checked here
    and told as sound or not. A last batch that is cut is told by how many bytes are there.
    """
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            found.append({"bytes of a cut batch": len(data) - at})
            break
        fields = HEADER.unpack_from(data, at)
        end = at + 12 + fields[1]
        if end > len(data):
            found.append({"bytes of a cut batch": len(data) - at})
            break
        found.append(
            {
                "base_offset": fields[0],
                "leader_epoch": fields[2],
                "magic": fields[3],
                "is_sound": fields[4] == crc32c(data[at + CRC_START : end]),
                "attributes": fields[5],
                "last_offset_delta": fields[6],
                "base_timestamp": fields[7],
                "max_timestamp": fields[8],
                "producer_id": fields[9],
                "producer_epoch": fields[10],
                "base_sequence": fields[11],
                "record_count": fields[12],
                "records": data[at + HEADER.size : end].hex(),
            }
        )
        at = end
    return found


def record(
    number: int, key: bytes | None, value: bytes | None, time_delta_ms: int | None = None
) -> bytes:
    """One record without headers, its length before it; so many ms later than the batch."""
    times = varint(number if time_delta_ms is None else time_delta_ms)
    body = b"\0" + times + varint(number) + _nullable(key) + _nullable(value) + b"\0"
    return varint(len(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batches(produce: Mapping[str, Any]) -> Iterator[tuple[int, BatchSpec]]:
    """Every batch of a Produce request, and the partition that it is for."""
    for topic in produce.get("topic_data", ()):
        for partition in topic["partition_data"]:
            records = partition["records"]
            several = records if isinstance(records, tuple) else (records,)
            yield from (
                (partition["index"], batch) for batch in several if isinstance(batch, BatchSpec)
            )
