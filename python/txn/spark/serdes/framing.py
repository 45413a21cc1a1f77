"""The bytes before a value: a zero byte, and the id of its schema as 4 bytes, big endian.

With Protobuf the indexes of the message follow: the place of its type in the file, and in the types
around it. Their count and the indexes are zigzag varints; one zero byte stands for the first type.

Source: "Wire format" of Confluent's documentation of its serializers.
"""

import struct
from collections.abc import Sequence
from typing import Final

from txn.spark.serdes.errors import BadRowError

MAGIC: Final = 0
HEADER: Final = struct.Struct(">bi")
INDEXES_MAX: Final = 100


def unframed(framed: bytes) -> tuple[int, bytes]:
    """The id of a value's schema, and the rest. Raises BadRowError: it has no such header."""
    if len(framed) < HEADER.size or framed[0] != MAGIC:
        raise BadRowError("it does not begin with a zero byte and the id of a schema")
    return HEADER.unpack_from(framed)[1], framed[HEADER.size :]


def header(id: int) -> bytes:
    """The bytes before a value of a schema."""
    return HEADER.pack(MAGIC, id)


def read_indexes(content: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes of a message, and the rest. Raises BadRowError: they are cut or too many."""
    count, at = _varint(content, 0)
    if count == 0:
        return (0,), content[at:]
    if not 0 < count <= INDEXES_MAX:
        raise BadRowError(f"it has {count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _varint(content, at)
        found.append(index)
    return tuple(found), content[at:]


def written_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes of the indexes of a message."""
    if tuple(indexes) == (0,):
        return b"\0"
    return b"".join(_zigzag(each) for each in (len(indexes), *indexes))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(content) or shift > 28:
            raise BadRowError("the indexes of its message are cut")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at


def _zigzag(value: int) -> bytes:
    left = (value << 1) ^ (value >> 31)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
