"""Batches whose compressed records grow out of all proportion when they are opened."""

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import pyarrow

from support.varints import varint

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CHECKED_FROM: Final = 21
CODECS: Final[Mapping[str, int]] = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME_MS: Final = 1_700_000_000_000
ZEROS: Final = bytes(1 << 20)
GZIP: Final = 31
"""zlib's window bits for a gzip stream."""


@cache
def bomb(codec: str, opened_bytes: int) -> bytes:
    """A batch with one record of that many zeros, and a key, as small as the codec makes it."""
    head, zeros = _record_head(opened_bytes), opened_bytes + 1  # no headers are a zero too
    if codec == "gzip":
        return batch_around(_gzip_of_zeros(head, zeros), CODECS[codec], count=1)
    return compressed_batch(head + bytes(zeros), codec, count=1)


def compressed_batch(records: bytes, codec: str, *, count: int, after_ms: int = 0) -> bytes:
    """A batch of format 2 around encoded records, the youngest so much later than the first."""
    return batch_around(_COMPRESS[codec](records), CODECS[codec], count=count, after_ms=after_ms)


def batch_around(content: bytes, attributes: int, *, count: int, after_ms: int = 0) -> bytes:
    """A batch of format 2 around bytes that are taken for its records."""
    body = struct.pack(
        ">hiqqqhii", attributes, count - 1, TIME_MS, TIME_MS + after_ms, -1, -1, -1, count
    )
    checked = body + content
    head = struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked))
    return head + checked


def record(value_bytes: int, *, after_ms: int = 0) -> bytes:
    """A record of zeros, as if it were the first of its batch."""
    return _record_head(value_bytes, after_ms) + bytes(value_bytes + 1)


def _record_head(value_bytes: int, after_ms: int = 0) -> bytes:
    head = b"\0" + varint(after_ms) + b"\0" + varint(3) + b"key" + varint(value_bytes)
    return varint(len(head) + value_bytes + 1) + head


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, GZIP)
    return stream.compress(data) + stream.flush()


def _gzip_of_zeros(head: bytes, zeros: int) -> bytes:
    """Compress a mebibyte of zeros once, and repeat it."""
    whole, rest = divmod(zeros, len(ZEROS))
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    parts = [stream.compress(head) + stream.flush(zlib.Z_FULL_FLUSH)]
    parts += [stream.compress(ZEROS) + stream.flush(zlib.Z_FULL_FLUSH)] * whole
    parts.append(stream.compress(bytes(rest)) + stream.flush())
    checksum = zlib.crc32(head)
    for size in [len(ZEROS)] * whole + [rest]:
        checksum = zlib.crc32(ZEROS[:size], checksum)
    length = (len(head) + zeros) & 0xFFFFFFFF
    start = bytes.fromhex("1f8b08000000000000ff")
    return start + b"".join(parts) + struct.pack("<II", checksum, length)


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pyarrow.Codec(codec).compress(data, asbytes=True))


_COMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": _gzip,
    **{codec: _arrow(codec) for codec in ("snappy", "lz4", "zstd")},
}


@cache
def _table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
