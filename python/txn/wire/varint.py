"""Unsigned varints, as flexible versions have lengths and tags: seven bits a byte, low ones first.

Source: KIP-482.
"""

from functools import lru_cache


@lru_cache(maxsize=1024)  # most are lengths and tags, the same again and again
def unsigned_varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
