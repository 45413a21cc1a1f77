"""Records that Apache Kafka's controller may have left in the metadata log, and their effect."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import txn
from support.client_quotas import described, set_quota
from support.clients import create_topic, plain_producer, read_all, send
from support.wire_client import ask
from txn.broker.metadata_log import FEATURES
from txn.config import BrokerSettings
from txn.metadata.image import Topic
from txn.metadata.record_encoding import encode
from txn.metadata.records import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from txn.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from txn.storage.native import NativeStorage
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

TOPIC_ID = uuid.UUID(int=2**100)
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
API_VERSIONS = 18


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that has stopped; `orders` has the values 0 to 2."""
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"0", b"1", b"2"])
    return tmp_path / "data"


def leave(data: Path, *values: MetadataRecord | bytes) -> None:
    """Append to the metadata log of a stopped broker."""
    storage = storage_of(data)
    store = metadata_log(storage)
    encoded = [v if isinstance(v, bytes) else encode(v) for v in values]
    store.append([(None, value) for value in encoded], timestamp_ms=0)
    store.close()
    storage.upkeep.write_recovery_points()


def storage_of(data: Path) -> NativeStorage:
    return NativeStorage.load(data, BrokerSettings(), was_clean=True)


def metadata_log(storage: NativeStorage) -> Any:
    return storage.open(Topic("__cluster_metadata", uuid.UUID(int=1)), 0)


def orders_id(data: Path) -> uuid.UUID:
    with txn.Broker(data) as broker:
        topic_id: uuid.UUID = found_topics(broker, ["orders"])[0].topic_id
        return topic_id


def found_topics(broker: txn.Broker, names: Sequence[str]) -> Any:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.METADATA,
        12,
        topics=[{"name": name, "topic_id": None} for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return answer.topics


def end_of(broker: txn.Broker, leader_epoch: int, current: int = -1) -> tuple[int, int, int]:
    """(error code, epoch, end offset) that OffsetForLeaderEpoch answers for `orders`."""
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=[{"topic": "orders", "partitions": [asked]}],
    )
    found = answer.topics[0].partitions[0]
    return int(found.error_code), found.leader_epoch, found.end_offset


@pytest.fixture
def led_anew(data: Path) -> Path:
    """`orders` is led in epoch 3, its three records having been written in epoch 0."""
    leave(data, PartitionRecord(0, orders_id(data), (1,), (), leader_epoch=3))
    return data


def test_metadata_tells_the_epoch_a_partition_is_led_in(led_anew: Path) -> None:
    with txn.Broker(led_anew) as broker:
        assert found_topics(broker, ["orders"])[0].partitions[0].leader_epoch == 3


def test_an_epoch_ends_where_the_next_leader_began(led_anew: Path) -> None:
    with txn.Broker(led_anew) as broker:
        send(plain_producer(broker.bootstrap_servers), "orders", [b"3"])
        found = [end_of(broker, epoch) for epoch in (0, 2, 3, 4)]
    assert found == [(0, 0, 3), (0, 0, 3), (0, 3, 4), (0, -1, -1)]


def test_epochs_are_the_same_after_a_restart(led_anew: Path) -> None:
    with txn.Broker(led_anew) as broker:
        send(plain_producer(broker.bootstrap_servers), "orders", [b"3"])
    with txn.Broker(led_anew) as broker:
        assert [end_of(broker, epoch)[1:] for epoch in (0, 3)] == [(0, 3), (3, 4)]


def test_a_client_with_another_leaders_epoch_is_told(led_anew: Path) -> None:
    with txn.Broker(led_anew) as broker:
        found = [end_of(broker, 0, current)[0] for current in (2, 3, 4)]
    assert found == [FENCED_LEADER_EPOCH, 0, UNKNOWN_LEADER_EPOCH]


def test_listed_offsets_carry_the_epoch_they_were_written_in(led_anew: Path) -> None:
    def wanted(timestamp: int) -> dict[str, int]:
        return {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}

    with txn.Broker(led_anew) as broker:
        send(plain_producer(broker.bootstrap_servers), "orders", [b"3"])
        answers = [
            ask(
                broker.bootstrap_servers,
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": "orders", "partitions": [wanted(timestamp)]}],
            )
            for timestamp in (-2, -1)
        ]
    found = [answer.topics[0].partitions[0] for answer in answers]
    assert [(entry.offset, entry.leader_epoch) for entry in found] == [(0, 0), (4, 3)]


def test_a_consumer_goes_on_over_a_change_of_leader(led_anew: Path) -> None:
    with txn.Broker(led_anew) as broker:
        send(plain_producer(broker.bootstrap_servers), "orders", [b"3"])
        assert read_all(broker.bootstrap_servers, "orders") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("replicas", [(2,), (1, 2)])
def test_a_directory_of_several_nodes_is_refused(data: Path, replicas: tuple[int, ...]) -> None:
    leave(data, TopicRecord("far", TOPIC_ID), PartitionRecord(0, TOPIC_ID, replicas, ()))
    with pytest.raises(txn.DirectoryError, match=r"partition far-0 .* and this is node 1"):
        txn.Broker(data)


def test_a_directory_of_a_node_with_several_is_refused(data: Path) -> None:
    elsewhere = PartitionRecord(0, TOPIC_ID, (1,), (TOPIC_ID,))
    leave(data, TopicRecord("far", TOPIC_ID), elsewhere)
    with pytest.raises(txn.DirectoryError, match=r"partition far-0 .* another directory"):
        txn.Broker(data)


def test_a_metadata_transaction_without_end_is_aborted_for_good(data: Path) -> None:
    """Else an EndTransaction that the next Kafka writes for its own would revive it."""
    leave(data, BeginTransactionRecord(), TopicRecord("half", TOPIC_ID))
    txn.Broker(data).close()
    leave(data, EndTransactionRecord())
    with txn.Broker(data) as broker:
        assert [topic.error_code != 0 for topic in found_topics(broker, ["half"])] == [True]


def test_a_record_of_a_later_kafka_is_refused(data: Path) -> None:
    leave(data, bytes.fromhex("017f0000"))
    with pytest.raises(txn.CorruptLogError, match=r"type 127, version 0.*later than 4\.4"):
        txn.Broker(data)


def test_security_that_is_not_enforced_is_warned_of(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = Acl(
        ResourceType.TOPIC,
        "pay",
        PatternType.LITERAL,
        "User:ada",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    leave(data, AccessControlEntryRecord(uuid.uuid4(), entry), bytes.fromhex("010a0000"))
    txn.Broker(data).close()
    warned = "metadata.not_enforced records=AccessControlEntry,DelegationToken"
    assert warned in caplog.text


def test_rates_of_hosts_by_name_are_warned_of_and_can_be_removed(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache Kafka takes host names and zones for an entity ip. The broker did not start."""
    key = "connection_creation_rate"
    names = ("localhost", "fe80::1%eth0")
    leave(data, *(ClientQuotaRecord((("ip", name),), key, 5.0) for name in names))
    with txn.Broker(data, durability="process") as broker:
        assert 'quota.not_enforced ip="localhost, fe80::1%eth0" names=2' in caplog.text
        for name in names:
            set_quota(broker.bootstrap_servers, {"ip": name}, connection_creation_rate=None)
        assert described(broker.bootstrap_servers) == []


def test_a_stored_rate_below_zero_lets_everybody_connect(data: Path) -> None:
    """The broker ended with its first connection."""
    leave(data, ClientQuotaRecord((("ip", None),), "connection_creation_rate", -5.0))
    with txn.Broker(data, durability="process") as broker:
        assert [one.name for one in found_topics(broker, ["orders"])] == ["orders"]


def test_features_that_only_kafka_knows_are_kept_and_not_announced(data: Path) -> None:
    leave(data, FeatureLevelRecord("share.version", 1), FeatureLevelRecord("metadata.version", 29))
    with txn.Broker(data) as broker:
        answer = ask(
            broker.bootstrap_servers,
            API_VERSIONS,
            3,
            client_software_name="test",
            client_software_version="1",
        )
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels == {"metadata.version": 29, "transaction.version": 2, "group.version": 1}


def test_a_directory_without_consumer_groups_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions made directories without the feature, and nothing else can finalize it."""
    with monkeypatch.context() as earlier:
        earlier.delitem(FEATURES, "group.version")
        txn.Broker(tmp_path / "data").close()
    assert levels_of(tmp_path / "data") == FEATURES


def test_consumer_groups_that_were_switched_off_stay_off(data: Path) -> None:
    leave(data, FeatureLevelRecord("group.version", 0))
    assert "group.version" not in levels_of(data)
    with txn.Broker(data) as broker:
        answer = ask(
            broker.bootstrap_servers,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def levels_of(data: Path) -> dict[str, int]:
    """The features that a broker announces on a directory."""
    with txn.Broker(data) as broker:
        answer = ask(
            broker.bootstrap_servers,
            API_VERSIONS,
            3,
            client_software_name="test",
            client_software_version="1",
        )
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def test_a_directory_from_before_metadata_versions_gets_one(tmp_path: Path) -> None:
    """Apache Kafka does not start without."""
    txn.Broker(tmp_path / "data", durability="process").close()
    log = tmp_path / "data" / "__cluster_metadata-0"
    for path in (*log.iterdir(), *(tmp_path / "data").glob("*-checkpoint")):
        path.unlink()
    leave(tmp_path / "data", FeatureLevelRecord("transaction.version", 2))
    txn.Broker(tmp_path / "data").close()
    stored = [
        r.value for b in metadata_log(storage_of(tmp_path / "data")).batches() for r in b.records
    ]
    assert encode(FeatureLevelRecord("metadata.version", 25)) in stored
