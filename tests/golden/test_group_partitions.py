"""Where Apache Kafka 4.2.0 keeps a group: `Utils.abs(group.hashCode()) % 50`, run in Java."""

import pytest

from txn.wire.hashing import coordinator_partition, java_hash

KEPT_AT = {
    "": (0, 0),
    "g": (103, 3),
    "pay-consumers": (2_072_763_480, 30),
    "flights-writer-0": (1_512_138_208, 8),
    "orders": (-1_008_770_331, 31),
    "polygenelubricants": (-(2**31), 0),
    "consumer-😀": (-856_676_710, 10),
    "txn-spark-1/driver": (373_953_145, 45),
}


@pytest.mark.parametrize("key", KEPT_AT)
def test_group_is_kept_in_the_partition_where_kafka_looks_for_it(key: str) -> None:
    assert (java_hash(key), coordinator_partition(key, 50)) == KEPT_AT[key]
