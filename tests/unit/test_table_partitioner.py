"""The partition of a key is Java's: golden values of Kafka's own tests, and the hash in Rust."""

import pytest

from txn.table.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_negative_hash_loses_its_sign_bit() -> None:
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
