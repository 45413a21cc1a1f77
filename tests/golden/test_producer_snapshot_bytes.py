"""The bytes of a `.snapshot` file, as Apache Kafka 4.2.0 writes and reads them.

Checked once by hand: Kafka's own ProducerStateManager wrote these bytes for this state, and
read ours back to it.
"""

from txn.partition import ActiveProducer, ProducerStateManager

# Producer 7 has a transaction open at 40 and a batch whose sequences wrap around; producer
# 4,000,000,000 is known by a marker alone.
GOLDEN = bytes.fromhex(
    "0001"  # version
    "8fabc7e2"  # CRC-32C
    "00000002"  # producers
    "0000000000000007"  # producer id
    "0003"  # producer epoch
    "00000002"  # last sequence
    "000000000000002f"  # last offset
    "00000007"  # offset delta
    "0000018bcfe5687b"  # timestamp
    "00000005"  # coordinator epoch
    "0000000000000028"  # first offset of the open transaction
    "00000000ee6b2800"
    "7fff"
    "ffffffff"
    "ffffffffffffffff"
    "00000000"
    "0000018bcfe569c8"
    "ffffffff"
    "ffffffffffffffff"
)


def test_the_snapshot_has_kafkas_bytes() -> None:
    partition = ProducerStateManager()
    partition.replay(
        [
            (10, 10, 7, 3, -1, 4, 3, 5),
            (20, 20, 4_000_000_000, 32767, -1, 1_700_000_000_456, 3, -1),
            (40, 47, 7, 3, 2_147_483_643, 1_700_000_000_123, 1, -1),
        ]
    )
    assert partition.snapshot() == GOLDEN


def test_kafkas_bytes_are_read_back() -> None:
    partition = ProducerStateManager()
    partition.restore(GOLDEN, [])
    assert partition.describe() == [
        ActiveProducer(7, 3, 2, 1_700_000_000_123, 5, 40),
        ActiveProducer(4_000_000_000, 32767, -1, 1_700_000_000_456, -1, -1),
    ]
    assert partition.admit(1, 48, 7, 3, 2_147_483_643, 8, 0, True) == (1, 40, None)
