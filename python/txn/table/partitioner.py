"""The partition of a key, as Java's producer, Spark and `txn.Producer` choose it.

The client in Rust has the same function for rows as columns; a test holds both against each other.

Source: Apache Kafka `Utils.murmur2` and `BuiltInPartitioner` (behaviour).
"""

from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of bytes: 32 bits, without a sign."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key among `count`: its hash without the sign bit, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % count
