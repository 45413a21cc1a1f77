"""Bytes of `__consumer_offsets` that must not drift.

They were produced by the record classes of Apache Kafka 4.2.0 (kafka-group-coordinator).
"""

import uuid

import pytest

from txn.coordinator.group.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)

COMMITTED_MS = 1_700_000_000_123
EXPIRES_MS = 1_700_000_600_123
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-1032-547698badcfe")

OFFSET_KEY = OffsetKey("pay-consumers", "flights", 7)
OFFSET_KEY_BYTES = "0001000d7061792d636f6e73756d6572730007666c696768747300000007"
GROUP_KEY = GroupKey("pay-consumers")
GROUP_KEY_BYTES = "0002000d7061792d636f6e73756d657273"

OFFSET_VALUES = {
    0: "0000000000000000126700036dc3a90000018bcfe5687b",
    1: "0001000000000000126700036dc3a90000018bcfe5687b0000018bcfee903b",
    2: "0002000000000000126700036dc3a90000018bcfe5687b",
    3: "000300000000000012670000000500036dc3a90000018bcfe5687b",
    4: "0004000000000000126700000005046dc3a90000018bcfe5687b0100100123456789abcdef1032547698badcfe",
}
OFFSET_VALUE_WITHOUT_EXTRAS = "00040000000000001267ffffffff010000018bcfe5687b00"

GROUP_VALUES = {
    0: "00000008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d310003632d31"
    "000a2f3132372e302e302e310000afc800000003000102000000020304000a7374617469632d312d780003632d32"
    "000a2f3132372e302e302e310000271000000000000000"
    "0109",
    1: "00010008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d310003632d31"
    "000a2f3132372e302e302e31000493e00000afc800000003000102000000020304000a7374617469632d312d78"
    "0003632d32000a2f3132372e302e302e310000ea60000027100000000000000001"
    "09",
    2: "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe5687b0000000200036d2d31"
    "0003632d31000a2f3132372e302e302e31000493e00000afc800000003000102000000020304"
    "000a7374617469632d312d780003632d32000a2f3132372e302e302e310000ea600000271000000000"
    "0000000109",
    3: "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe5687b0000000200036d2d31"
    "ffff0003632d31000a2f3132372e302e302e31000493e00000afc800000003000102000000020304"
    "000a7374617469632d312d7800087374617469632d310003632d32000a2f3132372e302e302e310000ea60"
    "000027100000000000000001"
    "09",
    4: "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5687b03046d2d31"
    "0004632d310b2f3132372e302e302e31000493e00000afc804000102030304000b7374617469632d312d78"
    "097374617469632d3104632d320b2f3132372e302e302e310000ea60000027100102090000",
}
EMPTY_GROUP_VALUE = "0003000000000000ffffffff0000018bcfe5687b00000000"


def member(version: int, *, is_static: bool) -> MemberValue:
    """The fields of the two members that a version keeps."""
    rebalance_ms, session_ms = (60_000, 10_000) if is_static else (300_000, 45_000)
    return MemberValue(
        member_id="static-1-x" if is_static else "m-1",
        instance_id="static-1" if is_static and version >= 3 else None,
        client_id="c-2" if is_static else "c-1",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=rebalance_ms if version >= 1 else session_ms,
        session_timeout_ms=session_ms,
        subscription=b"" if is_static else bytes([0, 1, 2]),
        assignment=bytes([9]) if is_static else bytes([3, 4]),
    )


def generation(version: int) -> GroupValue:
    return GroupValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m-1",
        state_timestamp_ms=COMMITTED_MS if version >= 2 else -1,
        members=(member(version, is_static=False), member(version, is_static=True)),
    )


def offset_value(version: int) -> OffsetValue:
    return OffsetValue(
        offset=4711,
        leader_epoch=5 if version >= 3 else -1,
        metadata="mé",
        commit_timestamp_ms=COMMITTED_MS,
        expire_timestamp_ms=EXPIRES_MS if version == 1 else -1,
        topic_id=TOPIC_ID if version >= 4 else None,
    )


def test_keys_are_written_as_kafka_writes_them() -> None:
    assert encode_offset_key(OFFSET_KEY).hex() == OFFSET_KEY_BYTES
    assert encode_group_key(GROUP_KEY).hex() == GROUP_KEY_BYTES


def test_keys_are_read_back() -> None:
    assert decode_key(bytes.fromhex(OFFSET_KEY_BYTES)) == OFFSET_KEY
    assert decode_key(bytes.fromhex("0000" + OFFSET_KEY_BYTES[4:])) == OFFSET_KEY
    assert decode_key(bytes.fromhex(GROUP_KEY_BYTES)) == GROUP_KEY


def test_key_of_another_protocol_is_recognized_as_none_of_ours() -> None:
    consumer_group_metadata_key = bytes.fromhex("0003000570617931")
    assert decode_key(consumer_group_metadata_key) is None


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_every_version_of_a_committed_offset_is_read(version: int) -> None:
    assert decode_offset_value(bytes.fromhex(OFFSET_VALUES[version])) == offset_value(version)


@pytest.mark.parametrize("version", [1, 4])
def test_committed_offsets_are_written_in_the_versions_of_kafka_4_2(version: int) -> None:
    assert encode_offset_value(offset_value(version)).hex() == OFFSET_VALUES[version]


def test_committed_offset_without_extras_has_no_tagged_field() -> None:
    plain = OffsetValue(4711, -1, "", COMMITTED_MS)
    assert encode_offset_value(plain).hex() == OFFSET_VALUE_WITHOUT_EXTRAS
    assert decode_offset_value(bytes.fromhex(OFFSET_VALUE_WITHOUT_EXTRAS)) == plain


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_every_version_of_a_generation_is_read(version: int) -> None:
    assert decode_group_value(bytes.fromhex(GROUP_VALUES[version])) == generation(version)


def test_generations_are_written_in_the_version_of_kafka_4_2() -> None:
    assert encode_group_value(generation(3)).hex() == GROUP_VALUES[3]


def test_empty_group_is_written_as_kafka_writes_it() -> None:
    empty = GroupValue("", 0, None, None, COMMITTED_MS, ())
    assert encode_group_value(empty).hex() == EMPTY_GROUP_VALUE
    assert decode_group_value(bytes.fromhex(EMPTY_GROUP_VALUE)) == empty


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_committed_offset_that_ends_early_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="expected at byte"):
        decode_offset_value(bytes.fromhex(OFFSET_VALUES[version])[:-1])


def test_bytes_behind_a_value_are_ignored_as_by_kafka() -> None:
    assert decode_group_value(bytes.fromhex(GROUP_VALUES[3] + "00")) == generation(3)


def test_unknown_version_is_refused_by_its_number() -> None:
    with pytest.raises(ValueError, match="version 5"):
        decode_offset_value(b"\x00\x05")
    with pytest.raises(ValueError, match="version 5"):
        decode_group_value(b"\x00\x05")
