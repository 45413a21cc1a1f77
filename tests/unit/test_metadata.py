"""The metadata image is the fold of its records, and the records are Kafka's bytes."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.metadata.delta import Delta, apply_all
from txn.metadata.image import Image, Placement, creation_records, name_fault
from txn.metadata.record_encoding import decode, encode
from txn.metadata.records import (
    BROKER_RESOURCE,
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
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from txn.metadata.replay import MetadataReplay
from txn.security.acls import Acl, Operation, PatternType, Permission, ResourceType

TOPIC_ID = uuid.UUID(int=7)
DIRECTORY_ID = uuid.UUID(int=9)

records: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(TopicRecord, st.text(), st.uuids()),
    st.builds(
        PartitionRecord,
        st.integers(0, 2**31 - 1),
        st.uuids(),
        st.just((1,)),
        st.tuples(st.uuids()),
        st.integers(0, 2**31 - 1),
    ),
    st.builds(
        ConfigRecord, st.text(), st.text(), st.none() | st.text(), st.sampled_from([2, 4, 16, 32])
    ),
    st.builds(RemoveTopicRecord, st.uuids()),
    st.builds(
        PartitionChangeRecord,
        st.integers(0, 2**31 - 1),
        st.uuids(),
        st.none(),
        st.none(),
        st.integers(0, 2**31 - 1),
    ),
    st.builds(FeatureLevelRecord, st.text(), st.integers(0, 2**15 - 1)),
    st.builds(ProducerIdsRecord, st.just(1), st.integers(0, 2**63 - 1)),
    st.builds(
        UserScramCredentialRecord,
        st.text(),
        st.integers(-128, 127),
        st.binary(),
        st.binary(),
        st.binary(),
        st.integers(-(2**31), 2**31 - 1),
    ),
    st.builds(RemoveUserScramCredentialRecord, st.text(), st.integers(-128, 127)),
    st.builds(
        ClientQuotaRecord,
        st.dictionaries(st.text(), st.none() | st.text()).map(lambda e: tuple(sorted(e.items()))),
        st.text(),
        st.none() | st.floats(allow_nan=False),
    ),
    st.sampled_from([BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()]),
)


@given(records)
def test_a_record_comes_back_from_its_bytes(record: MetadataRecord) -> None:
    decoded = decode(encode(record))
    assert (type(decoded), decoded) == (type(record), record)


@given(st.binary())
def test_damaged_bytes_are_a_value_error_or_a_record(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


def test_a_topic_record_has_the_bytes_of_kafkas_schema() -> None:
    expected = "01020004" + b"foo".hex() + TOPIC_ID.bytes.hex() + "00"
    assert encode(TopicRecord("foo", TOPIC_ID)).hex() == expected


def test_a_producer_ids_record_has_the_bytes_of_kafkas_schema() -> None:
    expected = "010f0000000001000000000000000000000000000003e800"
    assert encode(ProducerIdsRecord(1, 1000)).hex() == expected


def test_a_client_quota_record_has_the_bytes_of_kafkas_schema() -> None:
    entity = (("client-id", None), ("user", "ada"))
    parts = "030a" + b"client-id".hex() + "0000" + "05" + b"user".hex() + "04" + b"ada".hex() + "00"
    key, five = "13" + b"producer_byte_rate".hex(), "4014000000000000"
    written = encode(ClientQuotaRecord(entity, "producer_byte_rate", 5.0)).hex()
    assert written == "010e00" + parts + key + five + "0000"
    written = encode(ClientQuotaRecord(entity, "producer_byte_rate", None)).hex()
    assert written == "010e00" + parts + key + "00" * 8 + "0100"


def test_a_change_of_leader_has_the_bytes_of_kafkas_schema() -> None:
    expected = "010500" + "00000007" + TOPIC_ID.bytes.hex() + "010104" + "00000001"
    assert encode(PartitionChangeRecord(7, TOPIC_ID, leader=1)).hex() == expected


def test_a_partition_as_kafka_writes_it_is_read() -> None:
    """Version 2, of node 3, led in epoch 0; written by Apache Kafka 4.2."""
    written = (
        "0103020000000095eb5f09566147e3a717bbbf9ec1669102000000030200000003010100000003000000000000"
        "000002d0dfc1294bd2ed09938b6c667c2fc13e00"
    )
    directory_id = uuid.UUID("d0dfc129-4bd2-ed09-938b-6c667c2fc13e")
    topic_id = uuid.UUID("95eb5f09-5661-47e3-a717-bbbf9ec16691")
    assert decode(bytes.fromhex(written)) == PartitionRecord(0, topic_id, (3,), (directory_id,))


def test_a_partition_that_kafka_left_without_leader_is_read() -> None:
    """Version 2, with in-sync and eligible replicas beside; written by Apache Kafka 4.2."""
    written = (
        "0105020000000079bee40fd4754379a8eb485ff4ac2853040001010104ffffffff060502000000030705020000"
        "0003"
    )
    topic_id = uuid.UUID("79bee40f-d475-4379-a8eb-485ff4ac2853")
    assert decode(bytes.fromhex(written)) == PartitionChangeRecord(0, topic_id, leader=-1)


def test_a_brokers_registration_is_read_as_far_as_it_matters() -> None:
    """Version 3; the first fields of one by Apache Kafka 4.2."""
    written = "0100030000000300703fef99f5d74ce6bc876447fd3b392f000000000000000d020a"
    incarnation_id = uuid.UUID("703fef99-f5d7-4ce6-bc87-6447fd3b392f")
    assert decode(bytes.fromhex(written)) == RegisterBrokerRecord(3, incarnation_id, 13)


@pytest.mark.parametrize(
    "written", ["01140000", "01110000000003000000000000000d010001ff", "011d000000000007"]
)
def test_what_means_nothing_to_one_node_is_passed_over(written: str) -> None:
    assert decode(bytes.fromhex(written)) is None


@pytest.mark.parametrize("written", ["01030300", "01020100", "01000500", "011e0000", "017f0000"])
def test_a_type_or_version_of_a_later_kafka_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"later than 4\.4"):
        decode(bytes.fromhex(written))


def _image(*applied: MetadataRecord) -> Image:
    image = Image()
    for record in applied:
        image.apply(record)
    return image


def _orders() -> list[MetadataRecord]:
    return creation_records(
        "orders", TOPIC_ID, 3, {"retention.ms": "1"}, node_id=1, directory_id=DIRECTORY_ID
    )


def test_a_topic_is_there_with_partitions_and_settings() -> None:
    topic = _image(*_orders()).topics["orders"]
    assert (topic.partition_count, topic.settings) == (3, {"retention.ms": "1"})


def test_a_change_of_leader_is_a_leader_epoch_more() -> None:
    image = _image(
        *_orders(),
        PartitionChangeRecord(1, TOPIC_ID, leader=-1),
        PartitionChangeRecord(1, TOPIC_ID, leader=1),
        PartitionChangeRecord(1, TOPIC_ID, directories=(DIRECTORY_ID,)),
        PartitionChangeRecord(2, uuid.UUID(int=1), leader=1),
    )
    epochs = [image.topics["orders"].leader_epoch(index) for index in range(3)]
    assert epochs == [0, 2, 0]


def test_a_partition_of_this_node_and_directory_can_be_served() -> None:
    assert Placement((1,), (DIRECTORY_ID,), 0).fault(1, DIRECTORY_ID) is None


def test_a_partition_whose_directory_was_never_assigned_can_be_served() -> None:
    assert Placement((1,), (uuid.UUID(int=0),), 0).fault(1, DIRECTORY_ID) is None
    assert Placement((1,), (), 0).fault(1, DIRECTORY_ID) is None


@pytest.mark.parametrize("replicas", [(2,), (1, 2), ()])
def test_a_partition_of_other_nodes_cannot_be_served(replicas: tuple[int, ...]) -> None:
    fault = Placement(replicas, (), 0).fault(1, DIRECTORY_ID)
    assert fault is not None
    assert "this is node 1" in fault


def test_a_partition_of_another_directory_cannot_be_served() -> None:
    other = uuid.UUID(int=1000)
    fault = Placement((1,), (other,), 0).fault(1, DIRECTORY_ID)
    assert fault is not None
    assert str(other) in fault


def test_the_newest_registration_of_a_broker_counts() -> None:
    image = _image(RegisterBrokerRecord(1, TOPIC_ID, 5), RegisterBrokerRecord(1, TOPIC_ID, 9))
    assert image.broker_epochs == {1: 9}


def _replayed(*records: MetadataRecord) -> MetadataReplay:
    replay = MetadataReplay(Image())
    for record in records:
        replay.read(encode(record))
    return replay


def test_a_metadata_transaction_counts_when_it_ends() -> None:
    begun = (FeatureLevelRecord("a", 1), BeginTransactionRecord(), FeatureLevelRecord("b", 1))
    replay = _replayed(*begun)
    assert (replay.image.features, replay.is_open) == ({"a": 1}, True)
    replay.read(encode(EndTransactionRecord()))
    assert (replay.image.features, replay.is_open) == ({"a": 1, "b": 1}, False)


def test_an_aborted_metadata_transaction_counts_for_nothing() -> None:
    aborted = (BeginTransactionRecord(), FeatureLevelRecord("a", 1), AbortTransactionRecord())
    replay = _replayed(*aborted, FeatureLevelRecord("b", 1))
    assert (replay.image.features, replay.is_open) == ({"b": 1}, False)


def test_replay_names_what_somebody_may_rely_on() -> None:
    replay = MetadataReplay(Image())
    for written in ("010a0000", "01140000", "011b0000"):
        replay.read(bytes.fromhex(written))
    assert replay.unenforced == {"DelegationToken"}


def test_replay_remembers_the_topics_that_are_gone() -> None:
    assert _replayed(*_orders(), RemoveTopicRecord(TOPIC_ID)).deleted == {TOPIC_ID}


def test_a_removed_topic_leaves_nothing_and_its_name_is_free() -> None:
    image = _image(*_orders(), RemoveTopicRecord(TOPIC_ID), ConfigRecord("orders", "a", "b"))
    assert (image.topics, image.names) == ({}, {})


def test_a_removed_topic_is_like_no_other() -> None:
    image = _image(TopicRecord("or.ders", TOPIC_ID), RemoveTopicRecord(TOPIC_ID))
    assert image.alike("or_ders") is None


def test_partitions_placed_alike_share_what_is_kept_of_it() -> None:
    """10,000 idle partitions took 2.3 kB each, a copy of the same placement among it."""
    placements = _image(*_orders()).topics["orders"].placements
    assert len(placements) > 1
    assert len({id(placement) for placement in placements.values()}) == 1


def test_a_setting_of_a_broker_is_kept_apart_from_that_of_a_topic_of_its_name() -> None:
    image = _image(
        *creation_records("1", TOPIC_ID, 1, {}, node_id=1, directory_id=DIRECTORY_ID),
        ConfigRecord("1", "log.retention.ms", "5", BROKER_RESOURCE),
        ConfigRecord("1", "interval.ms", "6", 16),
    )
    assert image.topics["1"].settings == {}
    assert image.broker_settings == {"1": {"log.retention.ms": "5"}}


def test_settings_that_a_thread_reads_do_not_change_under_it() -> None:
    """The cleaner asked for a setting that an alteration took away between two looks."""
    image = _image(*_orders())
    read = image.topics["orders"].settings
    image.apply(ConfigRecord("orders", "retention.ms", None))
    assert read == {"retention.ms": "1"}


def test_a_setting_taken_away_is_gone() -> None:
    image = _image(*_orders(), ConfigRecord("orders", "retention.ms", None))
    assert image.topics["orders"].settings == {}


def test_producer_ids_never_go_back() -> None:
    image = _image(ProducerIdsRecord(1, 2000), ProducerIdsRecord(1, 1000))
    assert image.next_producer_id == 2000


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "__cluster_metadata", "or_ders"]
)
def test_a_bad_topic_name_is_refused(name: str) -> None:
    alike = _image(TopicRecord("or.ders", TOPIC_ID)).alike(name)
    assert name_fault(name, alike) is not None


@pytest.mark.parametrize("name", ["orders", "a.b-c_D9", "x" * 249, "or.ders"])
def test_a_good_topic_name_passes(name: str) -> None:
    alike = _image(TopicRecord("or.ders", TOPIC_ID)).alike(name)
    assert name_fault(name, alike) is None


def test_partitions_of_several_topics_in_turns_are_each_where_they_were_put() -> None:
    """The part after the number of a partition is read once, as long as it is the same."""
    here, there = uuid.UUID(int=7), uuid.UUID(int=8)
    records = [
        PartitionRecord(partition, topic_id, (node,), (uuid.UUID(int=node),), leader_epoch)
        for partition in range(2)
        for topic_id in (here, there)
        for node in (1, 2)
        for leader_epoch in (0, 3)
    ]
    assert [decode(encode(record)) for record in [*records, *records[::-1]]] == [
        *records,
        *records[::-1],
    ]


def image_of(*applied: MetadataRecord) -> Image:
    image = Image()
    for record in applied:
        image.apply(record)
    return image


def state(image: Image) -> object:
    return (
        image.topics,
        image.names,
        image._flat_names,
        image.broker_settings,
        image.features,
        image.next_producer_id,
        image.broker_epochs,
        image.partition_count,
    )


@given(st.lists(records), st.lists(records), st.lists(records))
def test_an_image_and_its_fork_see_nothing_of_each_other(
    before: list[MetadataRecord], ahead: list[MetadataRecord], later: list[MetadataRecord]
) -> None:
    image = image_of(*before)
    fork = image.fork()
    for record in ahead:
        fork.apply(record)
    assert state(image) == state(image_of(*before))
    for record in later:
        image.apply(record)
    assert state(fork) == state(image_of(*before, *ahead))
    assert state(image) == state(image_of(*before, *later))


ORDERS: list[MetadataRecord] = [
    TopicRecord("orders", TOPIC_ID),
    PartitionRecord(0, TOPIC_ID, (1,), (DIRECTORY_ID,)),
]


def test_a_fork_copies_the_partitions_of_a_topic_before_they_change() -> None:
    image = image_of(*ORDERS)
    fork = image.fork()
    fork.apply(PartitionRecord(1, TOPIC_ID, (1,), (DIRECTORY_ID,)))
    fork.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
    fork.apply(ConfigRecord("orders", "retention.ms", "5"))
    assert state(image) == state(image_of(*ORDERS))
    assert fork.topics["orders"].partition_count == 2


def test_a_delta_names_a_new_topic_once_with_all_its_partitions() -> None:
    image = Image()
    delta = apply_all(image, [*ORDERS, ConfigRecord("orders", "retention.ms", "5")])
    assert delta == Delta(created={"orders": image.topics["orders"]})


def test_a_delta_tells_growth_settings_and_deletion_apart() -> None:
    image = image_of(*ORDERS, TopicRecord("payments", uuid.UUID(int=8)))
    orders, payments = image.topics["orders"], image.topics["payments"]
    delta = apply_all(
        image,
        [
            PartitionRecord(1, TOPIC_ID, (1,), (DIRECTORY_ID,)),
            ConfigRecord("orders", "retention.ms", "5"),
            RemoveTopicRecord(uuid.UUID(int=8)),
        ],
    )
    assert delta == Delta(
        grown={"orders": orders}, configured={"orders": orders}, deleted={"payments": payments}
    )


def test_a_delta_of_a_topic_that_came_and_went_is_empty() -> None:
    assert apply_all(Image(), [*ORDERS, RemoveTopicRecord(TOPIC_ID)]) == Delta()


def test_a_delta_of_a_topic_that_was_replaced_deletes_the_old_one_and_creates_the_new() -> None:
    image = image_of(*ORDERS)
    old, again = image.topics["orders"], uuid.UUID(int=8)
    delta = apply_all(image, [RemoveTopicRecord(TOPIC_ID), TopicRecord("orders", again)])
    assert delta == Delta(created={"orders": image.topics["orders"]}, deleted={"orders": old})


def test_a_credential_counts_until_it_is_taken_away_and_a_fork_keeps_its_own() -> None:
    image = Image()
    credential = UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096)
    image.apply(credential)
    fork = image.fork()
    fork.apply(RemoveUserScramCredentialRecord("alice", 1))
    assert image.scram_credentials == {("alice", 1): credential}
    assert fork.scram_credentials == {}


def test_a_credential_has_the_bytes_of_kafkas_schema_and_shows_no_secret() -> None:
    """Frame version, key 11, version 0; lengths of flexible strings and bytes are one more."""
    credential = UserScramCredentialRecord("al", 2, b"s", b"xy", b"z", 4096)
    assert encode(credential).hex() == "010b00" + "03616c" + "02" + "0273" + "037879" + "027a" + (
        "00001000" + "00"
    )
    assert encode(RemoveUserScramCredentialRecord("al", 2)).hex() == "011600" + "03616c" + "0200"
    assert repr(credential) == "UserScramCredentialRecord(name='al', mechanism=2)"


READS_PAY = Acl(
    ResourceType.TOPIC,
    "pay",
    PatternType.PREFIXED,
    "User:ada",
    "10.0.0.1",
    Operation.READ,
    Permission.DENY,
)
ACL_ID = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


def test_an_access_control_entry_has_the_bytes_of_kafka() -> None:
    added = encode(AccessControlEntryRecord(ACL_ID, READS_PAY))
    removed = encode(RemoveAccessControlEntryRecord(ACL_ID))
    assert added.hex() == (
        f"011200{ACL_ID.hex}0204706179" + "0409557365723a616461" + "0931302e302e302e31" + "030200"
    )
    assert removed.hex() == f"011300{ACL_ID.hex}00"
    assert decode(added) == AccessControlEntryRecord(ACL_ID, READS_PAY)
    assert decode(removed) == RemoveAccessControlEntryRecord(ACL_ID)


def test_an_access_control_entry_of_a_later_kafka_is_refused() -> None:
    written = bytearray(encode(AccessControlEntryRecord(ACL_ID, READS_PAY)))
    written[19] = 77  # its resource type
    with pytest.raises(ValueError, match="77"):
        decode(bytes(written))


def test_a_fork_and_its_origin_do_not_share_changes_of_entries() -> None:
    origin = _image(AccessControlEntryRecord(ACL_ID, READS_PAY))
    fork = origin.fork()
    fork.apply(RemoveAccessControlEntryRecord(ACL_ID))
    other = uuid.UUID(int=2)
    origin.apply(AccessControlEntryRecord(other, READS_PAY))
    assert (set(fork.acls), set(origin.acls)) == (set(), {ACL_ID, other})


def test_a_delta_names_the_entries_before_and_after() -> None:
    image = _image(AccessControlEntryRecord(ACL_ID, READS_PAY))
    other, brief = uuid.UUID(int=2), uuid.UUID(int=3)
    delta = apply_all(
        image,
        [
            AccessControlEntryRecord(other, READS_PAY),
            AccessControlEntryRecord(brief, READS_PAY),
            RemoveAccessControlEntryRecord(brief),
            RemoveAccessControlEntryRecord(ACL_ID),
        ],
    )
    assert (set(delta.acls_before), set(delta.acls_after)) == ({ACL_ID}, {other})
