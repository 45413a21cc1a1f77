"""The bytes of a coordinator record's key or value: a version, then fields in Kafka's encoding.

Strings, arrays and tagged fields depend on whether the version is flexible. Keys never are. Pure.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from txn.wire.varint import unsigned_varint

FIRST_FLEXIBLE_VERSION: Final = 4
"""First flexible version of the values of offsets and of classic groups."""


class RecordWriter:
    """A version, then fields in Kafka's encoding of that version."""

    def __init__(self, version: int, *, is_flexible: bool | None = None) -> None:
        """Write a version; without `is_flexible` it is of an offset or a classic group."""
        self._parts = [struct.pack(">h", version)]
        if is_flexible is None:
            is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._is_flexible = is_flexible

    def done(self) -> bytes:
        """Everything written."""
        return b"".join(self._parts)

    def int32(self, value: int) -> None:
        """A number of four bytes."""
        self._parts.append(struct.pack(">i", value))

    def int8(self, value: int) -> None:
        """A number of one byte."""
        self._parts.append(struct.pack(">b", value))

    def int64(self, value: int) -> None:
        """A number of eight bytes."""
        self._parts.append(struct.pack(">q", value))

    def identifier(self, value: uuid.UUID) -> None:
        """The id of a topic."""
        self._parts.append(value.bytes)

    def int32s(self, values: Sequence[int]) -> None:
        """An array of numbers."""
        self.count(len(values))
        self._parts.append(struct.pack(f">{len(values)}i", *values))

    def count(self, items: int) -> None:
        """The length of an array."""
        self._parts.append(
            unsigned_varint(items + 1) if self._is_flexible else struct.pack(">i", items)
        )

    def string(self, value: str) -> None:
        """A text."""
        data = value.encode()
        self._parts.append(
            unsigned_varint(len(data) + 1) if self._is_flexible else struct.pack(">h", len(data))
        )
        self._parts.append(data)

    def nullable_string(self, value: str | None) -> None:
        """A text, or null."""
        if value is None:
            self._parts.append(b"\x00" if self._is_flexible else b"\xff\xff")
        else:
            self.string(value)

    def blob(self, value: bytes) -> None:
        """Bytes."""
        self._parts.append(
            unsigned_varint(len(value) + 1) if self._is_flexible else struct.pack(">i", len(value))
        )
        self._parts.append(value)

    def nullable_blob(self, value: bytes | None) -> None:
        """Bytes, or null."""
        if value is None:
            self._parts.append(b"\x00" if self._is_flexible else b"\xff\xff\xff\xff")
        else:
            self.blob(value)

    def tags(self, fields: Mapping[int, bytes]) -> None:
        """Tagged fields, by their numbers."""
        assert self._is_flexible, "tagged fields in a version that has none"
        self._parts.append(unsigned_varint(len(fields)))
        for tag, data in sorted(fields.items()):
            self._parts += (unsigned_varint(tag), unsigned_varint(len(data)), data)


class RecordReader:
    """Fields of a versioned key or value, each length checked against the bytes left.

    Bytes behind the last field are ignored, as by Apache Kafka.
    """

    def __init__(self, data: bytes, *, is_flexible: bool | None = None) -> None:
        """Read a version; without `is_flexible` it is of an offset or a classic group.

        Raises ValueError, struct.error.
        """
        self._data = data
        self._position = 0
        self.version: int = struct.unpack(">h", self._take(2))[0]
        if self.version < 0:
            raise ValueError(f"a stored record begins with the version {self.version}")
        if is_flexible is None:
            is_flexible = self.version >= FIRST_FLEXIBLE_VERSION
        self._is_flexible = is_flexible

    def int32(self) -> int:
        """A number of four bytes."""
        value: int = struct.unpack(">i", self._take(4))[0]
        return value

    def int8(self) -> int:
        """A number of one byte."""
        value: int = struct.unpack(">b", self._take(1))[0]
        return value

    def identifier(self) -> uuid.UUID:
        """The id of a topic."""
        return uuid.UUID(bytes=self._take(16))

    def int32s(self) -> tuple[int, ...]:
        """An array of numbers."""
        count = self.count()
        return struct.unpack(f">{count}i", self._take(4 * count))

    def int64(self) -> int:
        """A number of eight bytes."""
        value: int = struct.unpack(">q", self._take(8))[0]
        return value

    def string(self) -> str:
        """A text."""
        value = self.nullable_string()
        if value is None:
            raise ValueError(f"null before byte {self._position}, where a string has to be")
        return value

    def nullable_string(self) -> str | None:
        """A text, or None. Bytes that are no UTF-8 are replaced, as Java does."""
        size = self._length(">h")
        return None if size < 0 else self._take(size).decode(errors="replace")

    def blob(self) -> bytes:
        """Bytes."""
        data = self.nullable_blob()
        if data is None:
            raise ValueError(f"null before byte {self._position}, where bytes have to be")
        return data

    def nullable_blob(self) -> bytes | None:
        """Bytes, or None."""
        size = self._length(">i")
        return None if size < 0 else self._take(size)

    def count(self) -> int:
        """The length of an array; an absurd one is found by the first element missing."""
        return max(self._length(">i"), 0)

    def tags(self) -> dict[int, bytes]:
        """Tagged fields, by their numbers."""
        if not self._is_flexible:
            return {}
        return {self._varint(): self._take(self._varint()) for _ in range(self._varint())}

    def _length(self, fixed: str) -> int:
        if self._is_flexible:
            return self._varint() - 1
        value: int = struct.unpack(fixed, self._take(struct.calcsize(fixed)))[0]
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError(f"a varint before byte {self._position} is longer than 5 bytes")

    def _take(self, size: int) -> bytes:
        start, end = self._position, self._position + size
        if end > len(self._data):
            raise ValueError(f"{size} bytes expected at byte {start} of {len(self._data)}")
        self._position = end
        return self._data[start:end]
