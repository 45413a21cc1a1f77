"""Varints are the bytes that the protocol library reads."""

import pytest
from kio.serial import readers

from txn.wire.varint import unsigned_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (0x7F, b"\x7f"),
        (0x80, b"\x80\x01"),
        (300, b"\xac\x02"),
        (0x3FFF, b"\xff\x7f"),
        (0x4000, b"\x80\x80\x01"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_a_varint_has_seven_bits_a_byte_low_ones_first(value: int, encoded: bytes) -> None:
    assert unsigned_varint(value) == encoded
    assert readers.read_unsigned_varint(encoded, 0) == (value, len(encoded))
