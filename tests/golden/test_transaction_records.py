"""The bytes of `__transaction_state`, field by field as Kafka's schemas have them.

The three values of version 1 were given to the reader of Kafka 4.2.0 itself. It finds every field
as named here, nothing left over, and 10000 as an unknown tagged field.
"""

import uuid

import pytest

from txn.coordinator.transaction.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker

ONGOING = Txn(
    producer_id=4000,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TxnState.ONGOING,
    partitions=frozenset({("b", 0), ("flights", 2), ("flights", 0)}),
    start_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_500,
    client_version=2,
)
ONGOING_V1_BYTES = bytes.fromhex(
    "0001"  # version
    "0000000000000fa0"  # producer id
    "0003"  # producer epoch
    "0000ea60"  # timeout
    "01"  # Ongoing
    "03"  # two topics
    "0262"  # b
    "0200000000"  # one partition: 0
    "00"  # no tagged fields
    "08666c6967687473"  # flights
    "030000000000000002"  # two partitions: 0, 2
    "00"
    "0000018bcfe569f4"  # updated
    "0000018bcfe56800"  # started
    "01"  # one tagged field
    "02020002"  # client transaction version: 2 bytes, 2
)

EMPTY = Txn(
    producer_id=4000,
    producer_epoch=0,
    timeout_ms=60_000,
    state=TxnState.EMPTY,
    partitions=frozenset(),
    start_ms=-1,
    updated_ms=1_700_000_000_500,
)
EMPTY_V1_BYTES = bytes.fromhex(
    "0001"
    "0000000000000fa0"
    "0000"
    "0000ea60"
    "00"  # Empty
    "00"  # partitions are null
    "0000018bcfe569f4"
    "ffffffffffffffff"  # never started
    "00"
)

PREPARED_AT_THE_LAST_EPOCH = Txn(
    producer_id=4000,
    producer_epoch=32767,
    timeout_ms=60_000,
    state=TxnState.PREPARE_ABORT,
    partitions=frozenset(),
    start_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_500,
    previous_producer_id=3999,
    next_producer_id=4001,
    last_producer_epoch=32766,
    client_version=2,
)
PREPARED_V1_BYTES = bytes.fromhex(
    "0001"
    "0000000000000fa0"
    "7fff"
    "0000ea60"
    "03"  # PrepareAbort
    "01"  # no topics
    "0000018bcfe569f4"
    "0000018bcfe56800"
    "04"
    "00080000000000000f9f"  # previous producer id
    "01080000000000000fa1"  # next producer id
    "02020002"
    "904e027ffe"  # 10000: last producer epoch
)


TOPIC_ID = uuid.UUID(int=0x0102).bytes
NAMING_ITS_RECORDS = Txn(
    producer_id=4000,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TxnState.PREPARE_COMMIT,
    partitions=frozenset({("b", 1)}),
    start_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_500,
    last_offsets=(LastOffset(TOPIC_ID, 1, 5, 260),),
    unsynced_markers=(UnsyncedMarker(TOPIC_ID, 1, 255, 4000, 2, is_commit=True),),
)
NAMING_V1_BYTES = bytes.fromhex(
    "0001"
    "0000000000000fa0"
    "0003"
    "0000ea60"
    "02"  # PrepareCommit
    "02"
    "0262"
    "0200000001"
    "00"
    "0000018bcfe569f4"
    "0000018bcfe56800"
    "02"
    "914e20"  # 10001: last offsets, 32 bytes for each partition
    "00000000000000000000000000000102"  # topic id
    "00000001"  # partition
    "00000005"  # leader epoch
    "0000000000000104"  # offset
    "924e27"  # 10002: unsynced markers, 39 bytes each
    "00000000000000000000000000000102"
    "00000001"
    "00000000000000ff"  # offset
    "0000000000000fa0"  # producer id
    "0002"  # producer epoch
    "01"  # a commit
)


def test_the_key_is_version_0_and_the_id() -> None:
    assert encode_key("pay-ü") == bytes.fromhex("00000006") + "pay-ü".encode()
    assert decode_key(encode_key("pay-ü")) == "pay-ü"


def test_a_key_of_a_later_kind_is_passed_over() -> None:
    assert decode_key(b"\x00\x01\x00\x01x") is None


@pytest.mark.parametrize(
    ("txn", "data"),
    [
        (ONGOING, ONGOING_V1_BYTES),
        (EMPTY, EMPTY_V1_BYTES),
        (PREPARED_AT_THE_LAST_EPOCH, PREPARED_V1_BYTES),
        (NAMING_ITS_RECORDS, NAMING_V1_BYTES),
    ],
)
def test_a_value_is_version_1(txn: Txn, data: bytes) -> None:
    assert encode_value(txn) == data
    assert decode_value(data) == txn


def test_a_value_of_version_0_is_read() -> None:
    data = bytes.fromhex(
        "0000"
        "0000000000000fa0"
        "0003"
        "0000ea60"
        "04"  # CompleteCommit
        "00000001"  # one topic
        "000162"  # b
        "00000001"
        "00000007"
        "0000018bcfe569f4"
        "0000018bcfe56800"
    )
    txn = decode_value(data)
    assert txn.state is TxnState.COMPLETE_COMMIT
    assert txn.partitions == {("b", 7)}
    assert txn.client_version == 0


def test_null_partitions_of_version_0_are_read() -> None:
    data = bytes.fromhex("00000000000000000fa000030000ea6000ffffffff0000018bcfe569f4" + "ff" * 8)
    assert decode_value(data).partitions == frozenset()


def test_a_tagged_field_of_a_later_kafka_is_passed_over() -> None:
    data = EMPTY_V1_BYTES[:-1] + bytes.fromhex("010703abcdef")
    assert decode_value(data) == EMPTY


@pytest.mark.parametrize(
    "data",
    [
        ONGOING_V1_BYTES[:-1],
        ONGOING_V1_BYTES + b"\0",
        b"",
        b"\x00\x02" + ONGOING_V1_BYTES[2:],
        ONGOING_V1_BYTES[:16] + b"\x63" + ONGOING_V1_BYTES[17:],  # state 99
        ONGOING_V1_BYTES[:17] + b"\xff\xff\xff\xff\xff\xff" + ONGOING_V1_BYTES[18:],
        EMPTY_V1_BYTES[:-1] + bytes.fromhex("010203000002"),  # an int16 of three bytes
        EMPTY_V1_BYTES[:-1] + bytes.fromhex("01914e0100"),  # a part of a last offset
    ],
)
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"wanted|follow|not known|not a valid|tagged|varint"):
        decode_value(data)
