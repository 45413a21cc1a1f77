"""Record batches around bytes of the test's own, their header and checksum right."""

import gzip
import struct
import zlib
from typing import Any

from support.entities import entity_builder
from support.varints import varint
from support.wire_client import RawConnection, request
from txn import _core
from txn.wire.checksums import crc32c

HEADER_BYTES = 61
PRODUCE = 0
CREATED_MS = 1_700_000_000_000

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum that its bytes give."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c(bytes(batch[21:]))) + bytes(batch[21:])


def records(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    """Records as they are without a codec."""
    return _core.encode_batch(list(pairs), CREATED_MS)[HEADER_BYTES:]


def around(
    codec: str,
    count: int,
    content: bytes,
    *,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A batch that says it holds `count` records in `content`."""
    blank = _core.encode_batch([(None, None)], CREATED_MS, *producer, sequence, is_transactional)
    batch = bytearray(blank[:HEADER_BYTES] + content)
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[22] |= CODECS[codec]
    batch[23:27] = struct.pack(">i", count - 1)
    batch[57:61] = struct.pack(">i", count)
    return sealed(batch)


def with_a_latin_1_header() -> bytes:
    """A record "1" with two headers, `café` in Latin-1 and `h` without a value."""
    record = b"\0\0\0\x01\x021\x04\x08caf\xe9\x02x\x02h\x01"
    return around("none", 1, bytes([2 * len(record)]) + record)


def gzip_bomb(content_bytes: int) -> bytes:
    """One record whose value is so many zeros, a thousandth of it packed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body_bytes = 1 + 1 + 1 + 1 + 1 + len(varint(content_bytes)) + content_bytes + 1
    packed = packer.compress(
        varint(body_bytes) + b"\0\0\0" + varint(1) + b"k" + varint(content_bytes)
    )
    zeros = bytes(1 << 20)
    for at in range(0, content_bytes, len(zeros)):
        packed += packer.compress(zeros[: content_bytes - at])
    return packed + packer.compress(b"\0") + packer.flush()


def unreadable() -> dict[str, bytes]:
    """Batches whose records no client can read, by a name; their checksums are right."""
    plain = records((b"k", b"v" * 40))
    packed = gzip.compress(plain)
    overrun = bytearray(plain)
    overrun[-1] = 2  # one header, of which nothing is there
    negative = bytearray(plain)
    negative[-1] = 1  # -1 headers
    found = {f"{codec} that is none": around(codec, 1, plain) for codec in list(CODECS)[1:]}
    found |= {f"{codec} of nothing": around(codec, 1, b"") for codec in CODECS}
    found |= {f"{codec} of rubbish": around(codec, 1, b"\xff" * 50) for codec in CODECS}
    return found | {
        "gzip that is cut": around("gzip", 1, packed[:-9]),
        "gzip with another checksum": around("gzip", 1, packed[:-8] + bytes(4) + packed[-4:]),
        "zstd with bytes behind it": around("zstd", 1, zstd_frame(plain) + b"x"),
        "skippable frames alone": around("zstd", 1, skippable_frame(b"s" * 5)),
        "gzip of fewer records": around("gzip", 2, packed),
        "gzip of two thousand million records": around("gzip", 2**31 - 1, packed),
        "gzip of more records": around("gzip", 1, gzip.compress(plain + plain)),
        "gzip whose headers overrun": around("gzip", 1, gzip.compress(bytes(overrun))),
        "records whose headers overrun": around("none", 1, bytes(overrun)),
        "records with -1 headers": around("none", 1, bytes(negative)),
        "records with the same offset": around("none", 2, plain + plain),
        "gzip of records with the same offset": around("gzip", 2, gzip.compress(plain + plain)),
    }


def zstd_frame(content: bytes) -> bytes:
    """A frame of zstd's format whose only block is stored as it is."""
    header = b"\x28\xb5\x2f\xfd\x20" + bytes([len(content)])
    return header + (len(content) << 3 | 1).to_bytes(3, "little") + content


def skippable_frame(content: bytes) -> bytes:
    """A frame of zstd's format that readers pass over."""
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", len(content)) + content


def taken() -> dict[str, bytes]:
    """Batches of one record in more than one stream, by a name; Apache Kafka takes them."""
    plain = records((b"k", b"v" * 40))
    first, second = plain[:9], plain[9:]
    skipped, frame = skippable_frame(b"s" * 5), zstd_frame(plain)
    return {
        "gzip with bytes behind it": around("gzip", 1, gzip.compress(plain) + b"x"),
        "gzip in two members": around("gzip", 1, gzip.compress(first) + gzip.compress(second)),
        "zstd in two frames": around("zstd", 1, zstd_frame(first) + zstd_frame(second)),
        "zstd behind a skippable frame": around("zstd", 1, skipped + frame),
        "zstd before a skippable frame": around("zstd", 1, frame + skipped),
        "zstd around a skippable frame": around(
            "zstd", 1, zstd_frame(first) + skipped + zstd_frame(second)
        ),
    }


def produce(
    connection: RawConnection,
    *batches: bytes,
    version: int = 9,
    topic: str = "orders",
    transactional_id: str | None = None,
) -> list[Any]:
    """Send batches for partition 0, named once for each; return the partitions' answers."""
    build = entity_builder(request(PRODUCE, version))
    data = [{"index": 0, "records": batch} for batch in batches]
    fields = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    answer = connection.call(build(fields))
    return list(answer.responses[0].partition_responses)
