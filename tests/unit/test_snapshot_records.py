"""The records of a metadata snapshot have the content of all records of the log."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txn.metadata.image import Image
from txn.metadata.record_encoding import decode, encode
from txn.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from txn.metadata.replay import MetadataReplay
from txn.metadata.snapshot import SnapshotRecords
from txn.security.acls import Acl, Operation, PatternType, Permission, ResourceType

NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([uuid.UUID(int=number) for number in (1000, 1001, 1002)])
ACL = Acl(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
NO_OP, REGISTER_CONTROLLER = b"\x01\x14\x00\x00", b"\x01\x1b\x00anything"

RECORDS = st.one_of(
    st.builds(lambda name: TopicRecord(name, uuid.UUID(int=1000 + ord(name) - 97)), NAMES),
    st.builds(
        lambda number, topic_id: PartitionRecord(number, topic_id, (1,), (uuid.UUID(int=7),), 0),
        st.integers(0, 2),
        IDS,
    ),
    st.builds(
        lambda number, topic_id: PartitionChangeRecord(number, topic_id, leader=1),
        st.integers(0, 2),
        IDS,
    ),
    st.builds(
        lambda kind, resource, name, value: ConfigRecord(resource, name, value, kind),
        st.sampled_from([TOPIC_RESOURCE, BROKER_RESOURCE]),
        NAMES,
        NAMES,
        st.one_of(st.none(), NAMES),
    ),
    st.builds(RemoveTopicRecord, IDS),
    st.builds(FeatureLevelRecord, NAMES, st.integers(1, 9)),
    st.builds(ProducerIdsRecord, st.just(1), st.integers(0, 9000)),
    st.builds(
        UserScramCredentialRecord,
        NAMES,
        st.integers(1, 2),
        st.binary(max_size=3),
        st.just(b"k"),
        st.just(b"s"),
        st.just(4096),
    ),
    st.builds(RemoveUserScramCredentialRecord, NAMES, st.integers(1, 2)),
    st.builds(AccessControlEntryRecord, IDS, st.just(ACL)),
    st.builds(RemoveAccessControlEntryRecord, IDS),
    st.builds(
        lambda name, key, limit: ClientQuotaRecord((("user", name),), key, limit),
        NAMES,
        NAMES,
        st.one_of(st.none(), st.floats(1, 9)),
    ),
    st.sampled_from([BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()]),
)


def image_of(values: Sequence[bytes]) -> dict[str, object]:
    replay = MetadataReplay(Image())
    for value in values:
        replay.read(value)
    known = vars(replay.image)
    known["broker_settings"] = {
        name: each for name, each in known["broker_settings"].items() if each
    }
    # It counts a topic twice that is made twice, which no log does.
    return {name: known[name] for name in known if name not in ("version", "partition_count")}


def snapshot_of(values: Sequence[bytes]) -> SnapshotRecords:
    records = SnapshotRecords()
    for value in values:
        records.read(value)
    return records


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=60), st.integers(0, 60))
def test_a_snapshot_and_the_log_behind_it_say_what_the_log_says(
    records: list[MetadataRecord], at: int
) -> None:
    values = [encode(record) for record in records]
    snapshot = snapshot_of(values[:at])
    if snapshot.is_open:
        return
    assert image_of(snapshot.values() + values[at:]) == image_of(values)
    again = snapshot_of(snapshot.values())
    assert again.values() == snapshot.values()


def test_nothing_of_a_removed_user_is_left() -> None:
    users = [UserScramCredentialRecord(name, 1, b"", b"", b"", 4096) for name in "abc"]
    values = [encode(each) for each in users] + [encode(RemoveUserScramCredentialRecord("b", 1))]
    kept = [decode(value) for value in snapshot_of(values).values()]
    assert kept == [users[0], users[2]]


def test_nothing_of_a_removed_topic_is_left() -> None:
    topic_id = uuid.UUID(int=1000)
    records: list[MetadataRecord] = [
        TopicRecord("a", topic_id),
        PartitionRecord(0, topic_id, (1,), (), 0),
        ConfigRecord("a", "retention.ms", "9"),
        PartitionChangeRecord(0, topic_id, leader=1),
        RemoveTopicRecord(topic_id),
    ]
    assert snapshot_of([encode(record) for record in records]).values() == []


def test_records_of_types_that_mean_nothing_here_stay_as_they_are() -> None:
    feature = encode(FeatureLevelRecord("metadata.version", 25))
    values = [REGISTER_CONTROLLER, NO_OP, REGISTER_CONTROLLER, feature]
    assert snapshot_of(values).values() == [feature, REGISTER_CONTROLLER, REGISTER_CONTROLLER]


@pytest.mark.parametrize("end", [None, AbortTransactionRecord(), EndTransactionRecord()])
def test_a_transaction_counts_once_it_ends(end: MetadataRecord | None) -> None:
    record = encode(ProducerIdsRecord(1, 1000))
    values = [encode(BeginTransactionRecord()), record, *([encode(end)] if end else [])]
    snapshot = snapshot_of(values)
    assert snapshot.is_open is (end is None)
    assert snapshot.values() == ([record] if isinstance(end, EndTransactionRecord) else [])
