"""The small readers behind `txn log dump` and `txn log verify`."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.coordinator.group.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    encode_group_key,
    encode_group_value,
)
from txn.inspect import indexes, texts
from txn.inspect.records import control_record, internal_record

INTERNAL_TOPICS = ("__transaction_state", "__consumer_offsets", "__cluster_metadata")


@given(
    topic=st.sampled_from(INTERNAL_TOPICS),
    key=st.none() | st.binary(max_size=60),
    value=st.none() | st.binary(max_size=60),
)
def test_any_bytes_of_an_internal_topic_are_told_and_none_raise(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    assert internal_record(topic, key, value)


def test_a_record_of_an_application_is_not_decoded() -> None:
    assert internal_record("orders", b"\0\0", b"\0\0") is None


def test_a_group_record_of_another_protocol_is_named() -> None:
    found = internal_record("__consumer_offsets", b"\0\3\1g", b"")
    assert found == {"type": "ConsumerGroupMetadata"}


def test_the_members_of_a_generation_are_told_by_name() -> None:
    """A value that had become a tuple stopped the dump of every internal topic."""
    member = MemberValue("m-1", None, "app", "/127.0.0.1", 300_000, 45_000, b"topics", b"parts")
    value = GroupValue("consumer", 3, "range", "m-1", 1000, (member,))
    key = encode_group_key(GroupKey("readers"))

    found = internal_record("__consumer_offsets", key, encode_group_value(value))

    assert found == {
        "group_id": "readers",
        "protocol_type": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m-1",
        "state_timestamp_ms": 1000,
        "members": [
            {
                "member_id": "m-1",
                "instance_id": None,
                "client_id": "app",
                "client_host": "/127.0.0.1",
                "rebalance_timeout_ms": 300_000,
                "session_timeout_ms": 45_000,
                "subscription": b"topics",
                "assignment": b"parts",
            }
        ],
    }


def test_a_metadata_record_without_use_here_is_named() -> None:
    assert internal_record("__cluster_metadata", None, b"\1\x14\0\0") == {"type": "NoOp"}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\7", {"control": "commit", "coordinator_epoch": 7}),
        (b"\0\0\0\2", b"", {"control": "leader change"}),
        (b"\0\0\0\x63", b"", {"control": "unknown 99"}),
        (None, b"", {"undecodable": "a control record without a type"}),
    ],
)
def test_a_control_record_is_told_by_its_type(
    key: bytes | None, value: bytes, told: dict[str, object]
) -> None:
    assert control_record(key, value) == told


@given(
    entries=st.lists(st.tuples(st.integers(1, 1 << 31), st.integers(1, 1 << 31)), max_size=5),
    reserve=st.integers(1, 9),
)
def test_reserved_room_is_cut_off_and_no_entry_with_it(
    entries: list[tuple[int, int]], reserve: int
) -> None:
    """An entry may end with zeros itself."""
    data = b"".join(struct.pack(">II", *entry) for entry in entries)
    assert indexes.without_reserve(data + bytes(8 * reserve), indexes.OFFSET_ENTRY) == data


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0\n1\n4\n", "is not a leader epoch and an offset"),
        ("0\n2\n4 10\n3 20\n", "goes back"),
        ("0\n2\n4 10\n5 9\n", "goes back"),
        ("0\n1\n4 -1\n", "is no number"),
        ("0\n1\n4 1", "it is cut off"),
    ],
)
def test_leader_epochs_only_grow(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        texts.read_leader_epochs(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("version: 0\ntopic_id: short\n", "no id of 22 characters"),
        ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "its version is '1'"),
        ("topic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "its version is None"),
    ],
)
def test_a_topic_id_is_twenty_two_characters(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        texts.read_topic_id(text)


def test_an_identity_has_all_its_parts() -> None:
    with pytest.raises(ValueError, match=r"it has no directory\.id"):
        texts.read_identity("#\nversion=1\ncluster.id=c\nnode.id=1\n")
