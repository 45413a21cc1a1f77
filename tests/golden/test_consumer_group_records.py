"""Bytes of consumer groups in `__consumer_offsets` that must not drift.

They were produced by the record classes of Apache Kafka 4.4.0 (kafka-group-coordinator).
"""

import struct
import uuid

import pytest

from txn.coordinator.group.consumer.records import (
    ClassicMember,
    ConsumerKey,
    ConsumerRecord,
    ConsumerValue,
    CurrentValue,
    EpochValue,
    Kind,
    MemberState,
    MemberValue,
    PatternValue,
    TargetMemberValue,
    TargetValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from txn.coordinator.group.records import decode_record, encode_record

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-1032-547698badcfe")
OTHER_ID = uuid.UUID("11234567-89ab-cdef-1032-547698badcfe")
AT_MS = 1_700_000_000_123

KEYS = [
    (ConsumerKey(Kind.EPOCH, "pay"), "00030003706179"),
    (ConsumerKey(Kind.PARTITIONS, "pay"), "00040003706179"),
    (ConsumerKey(Kind.MEMBER, "pay", "m-1"), "0005000370617900036d2d31"),
    (ConsumerKey(Kind.TARGET, "pay"), "00060003706179"),
    (ConsumerKey(Kind.TARGET_MEMBER, "pay", "m-1"), "0007000370617900036d2d31"),
    (ConsumerKey(Kind.CURRENT, "pay", "m-1"), "0008000370617900036d2d31"),
    (ConsumerKey(Kind.PATTERN, "pay", "fl.*"), "001000037061790004666c2e2a"),
]

CLASSIC_DATA = bytes.fromhex("0100000009020672616e67650301020000")
CLASSIC = ClassicMember(9, (("range", b"\1\2"),))

VALUES: list[tuple[Kind, ConsumerValue, str]] = [
    (Kind.EPOCH, EpochValue(7, -2), "000000000007010008fffffffffffffffe"),
    (Kind.EPOCH, EpochValue(7), "00000000000700"),
    (
        Kind.MEMBER,
        MemberValue("i", "r", "c", "/127.0.0.1", ("a", "b"), "fl.*", 300_000, "range"),
        "00000269027202630b2f3132372e302e302e31030261026205666c2e2a000493e00672616e676501000100",
    ),
    (
        Kind.MEMBER,
        MemberValue("", "", "c", "/127.0.0.1", (), "", -1, ""),
        "0000010102630b2f3132372e302e302e310101ffffffff0101000100",
    ),
    (
        Kind.MEMBER,
        MemberValue("", "", "c", "/127.0.0.1", ("a",), "", 5, "", classic=CLASSIC),
        "0000010102630b2f3132372e302e302e31020261010000000501010011" + CLASSIC_DATA.hex(),
    ),
    (Kind.TARGET, TargetValue(7, AT_MS), "0000000000070100080000018bcfe5687b"),
    (Kind.TARGET, TargetValue(7), "00000000000700"),
    (
        Kind.TARGET_MEMBER,
        TargetMemberValue({TOPIC_ID: frozenset({2, 0}), OTHER_ID: frozenset({1})}),
        "0000030123456789abcdef1032547698badcfe03000000000000000200"
        "1123456789abcdef1032547698badcfe02000000010000",
    ),
    (
        Kind.CURRENT,
        CurrentValue(
            7, 6, MemberState.UNREVOKED_PARTITIONS, {TOPIC_ID: {0: 5, 2: 7}}, {OTHER_ID: {1: 6}}
        ),
        "0000000000070000000601020123456789abcdef1032547698badcfe030000000000000002010009"
        "030000000500000007021123456789abcdef1032547698badcfe0200000001010005020000000600",
    ),
    (
        Kind.PATTERN,
        PatternValue(frozenset({"flow", "flights"}), 9, AT_MS),
        "00000308666c696768747305666c6f7700000000000000090000018bcfe5687b00",
    ),
]


@pytest.mark.parametrize(("key", "stored"), KEYS)
def test_keys_are_those_of_kafka(key: ConsumerKey, stored: str) -> None:
    assert encode_key(key).hex() == stored
    assert decode_key(bytes.fromhex(stored)) == key


@pytest.mark.parametrize(("kind", "value", "stored"), VALUES)
def test_values_are_those_of_kafka(kind: Kind, value: ConsumerValue, stored: str) -> None:
    assert encode_value(value).hex() == stored
    assert decode_value(kind, bytes.fromhex(stored)) == value


def test_partitions_of_kafka_4_2_have_the_epoch_of_their_member() -> None:
    """Its records have no assignment epochs (KIP-1251)."""
    stored = "0000000000070000000600020123456789abcdef1032547698badcfe030000000000000002000100"
    value = decode_value(Kind.CURRENT, bytes.fromhex(stored))
    assert value == CurrentValue(7, 6, MemberState.STABLE, {TOPIC_ID: {0: 7, 2: 7}}, {})


def test_partitions_with_another_number_of_epochs_have_the_epoch_of_their_member() -> None:
    """Apache Kafka loads them. Here the record kept its partition of groups from its service."""
    before = CurrentValue(7, 6, MemberState.STABLE, {TOPIC_ID: {0: 5, 2: 5}}, {})
    stored = encode_value(before)
    two_epochs = b"\3\0\0\0\5\0\0\0\5"
    assert two_epochs in stored
    fewer = stored.replace(b"\x09" + two_epochs, b"\x05\2\0\0\0\5")
    assert decode_value(Kind.CURRENT, fewer) == before._replace(assigned={TOPIC_ID: {0: 7, 2: 7}})


def test_tagged_fields_of_a_later_kafka_are_kept() -> None:
    for kind, value, stored in VALUES:
        tags = {**value.tags, 9: b"new"}
        later = encode_value(value._replace(tags=tags))
        assert later != bytes.fromhex(stored)
        decoded = decode_value(kind, later)
        assert decoded == value._replace(tags=tags)
        assert decoded is not None
        assert encode_value(decoded) == later


def test_tagged_fields_of_a_later_kafka_stay_with_the_partitions_of_a_member() -> None:
    """They were lost when the member's next state was written."""
    owned: dict[uuid.UUID, dict[int, int]] = {TOPIC_ID: {0: 5}}
    topic_tags = {TOPIC_ID: {3: b"new"}, OTHER_ID: {4: b"also"}}
    before = CurrentValue(
        7,
        6,
        MemberState.UNREVOKED_PARTITIONS,
        owned,
        {OTHER_ID: {1: 6}},
        topic_tags=topic_tags,
    )
    decoded = decode_value(Kind.CURRENT, encode_value(before))
    assert decoded == before
    assert isinstance(decoded, CurrentValue)
    after = decoded._replace(epoch=8, state=MemberState.STABLE, revoking={})
    kept = after._replace(topic_tags={TOPIC_ID: {3: b"new"}})
    assert decode_value(Kind.CURRENT, encode_value(after)) == kept


def test_the_partition_metadata_of_kafka_4_0_is_passed_over() -> None:
    key = encode_key(ConsumerKey(Kind.PARTITIONS, "pay"))
    passed = ConsumerRecord(ConsumerKey(Kind.PARTITIONS, "pay"), None)
    assert decode_record(key, bytes.fromhex("00000100"), None) == passed


@pytest.mark.parametrize(("kind", "value", "stored"), VALUES)
def test_a_record_goes_through_the_door_of_all_groups(
    kind: Kind, value: ConsumerValue, stored: str
) -> None:
    record = ConsumerRecord(ConsumerKey(kind, "pay", "m-1" if kind.name in NAMED else ""), value)
    key, data = encode_record(record)
    assert data == bytes.fromhex(stored)
    assert decode_record(key, data, None) == record


NAMED = {"MEMBER", "TARGET_MEMBER", "CURRENT", "PATTERN"}


@pytest.mark.parametrize(
    "damaged",
    ["", "0000", "0001000000000700", "000000000007", "ffff00000007"],
)
def test_damaged_values_are_refused(damaged: str) -> None:
    with pytest.raises((ValueError, struct.error), match=r"unpack|bytes|version"):
        decode_value(Kind.EPOCH, bytes.fromhex(damaged))
