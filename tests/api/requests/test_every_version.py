"""Every version of the metadata and offset APIs is answered, well and ill."""

from typing import Any

import pytest

import txn
from support.clients import create_topic, plain_producer, send
from support.served import versions_of
from support.wire_client import ask
from txn.wire.api_keys import ApiKey

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100
TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = 36, 37, 38
INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 17, 40, 42


def a_topic(name: str, **values: Any) -> dict[str, Any]:
    usual = {"num_partitions": 1, "replication_factor": -1, "assignments": (), "configs": ()}
    return {"name": name, **usual, **values}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with txn.Broker(tmp_path_factory.mktemp("broker") / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders", partitions=2)
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a", b"b"])
        yield broker


@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_metadata_names_the_topic_and_what_is_unknown(broker: txn.Broker, version: int) -> None:
    wanted = [{"name": "orders", "topic_id": None}, {"name": "a/b", "topic_id": None}]
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.METADATA,
        version,
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )
    assert [(t.name, int(t.error_code), len(t.partitions)) for t in answer.topics] == [
        ("orders", 0, 2),
        ("a/b", INVALID_TOPIC, 0),
    ]


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_TOPICS))
def test_create_topics_makes_or_says_why_not(broker: txn.Broker, version: int) -> None:
    config = {"name": "retention.msec", "value": "1"}
    assigned = {"partition_index": 0, "broker_ids": (1,)}
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.CREATE_TOPICS,
        version,
        topics=[
            a_topic(f"made-{version}", configs=[{"name": "retention.ms", "value": "5"}]),
            a_topic(f"assigned-{version}", num_partitions=-1, assignments=[assigned]),
            a_topic("orders"),
            a_topic("a/b"),
            a_topic("none", num_partitions=0),
            a_topic("copies", replication_factor=3),
            a_topic("settings", configs=[config]),
            a_topic("twice"),
            a_topic("twice"),
        ],
    )
    assert [int(topic.error_code) for topic in answer.topics] == [
        0,
        0,
        TOPIC_EXISTS,
        INVALID_TOPIC,
        INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR,
        INVALID_CONFIG,
        INVALID_REQUEST,
    ]


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_TOPICS))
def test_delete_topics_deletes_or_says_why_not(broker: txn.Broker, version: int) -> None:
    create_topic(broker.bootstrap_servers, f"doomed-{version}")
    names = [f"doomed-{version}", "nobody"]
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.DELETE_TOPICS,
        version,
        topic_names=names,
        topics=[{"name": name, "topic_id": None} for name in names],
    )
    assert [int(topic.error_code) for topic in answer.responses] == [0, UNKNOWN_TOPIC]


def test_delete_topics_by_an_unknown_id_is_refused(broker: txn.Broker) -> None:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.DELETE_TOPICS,
        6,
        topics=[{"name": None, "topic_id": b"\x07" * 16}],
    )
    assert int(answer.responses[0].error_code) == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_PARTITIONS))
def test_create_partitions_grows_or_says_why_not(broker: txn.Broker, version: int) -> None:
    create_topic(broker.bootstrap_servers, f"growing-{version}")
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[
            {"name": f"growing-{version}", "count": 3, "assignments": None},
            {"name": "orders", "count": 1, "assignments": None},
            {"name": "nobody", "count": 3, "assignments": None},
        ],
        validate_only=False,
    )
    codes = [int(topic.error_code) for topic in answer.results]
    assert codes == [0, INVALID_PARTITIONS, UNKNOWN_TOPIC]


@pytest.mark.parametrize("version", versions_of(ApiKey.FIND_COORDINATOR))
@pytest.mark.parametrize(("kind", "code"), [(0, 0), (1, 0), (9, INVALID_REQUEST)])
def test_find_coordinator_names_this_node(
    broker: txn.Broker, version: int, kind: int, code: int
) -> None:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.FIND_COORDINATOR,
        version,
        key="k",
        coordinator_keys=["k"],
        key_type=kind,
    )
    found = answer.coordinators[0] if version >= 4 else answer
    expected = 0 if version == 0 else code  # version 0 knows groups alone
    assert int(found.error_code) == expected
    assert (found.port > 0) == (expected == 0)


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster_names_the_one_broker(broker: txn.Broker, version: int) -> None:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )
    assert [entry.broker_id for entry in answer.brokers] == [1]


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_OFFSETS))
@pytest.mark.parametrize(
    ("partition", "timestamp", "found"),
    [(0, -1, (2, 0)), (0, -2, (0, 0)), (9, -1, (-1, UNKNOWN_TOPIC))],
)
def test_list_offsets_finds_both_ends_and_refuses_what_is_unknown(
    broker: txn.Broker, version: int, partition: int, timestamp: int, found: tuple[int, int]
) -> None:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=1,
        topics=[
            {
                "name": "orders",
                "partitions": [{"partition_index": partition, "timestamp": timestamp}],
            }
        ],
    )
    (listed,) = answer.topics[0].partitions
    assert (listed.offset, int(listed.error_code)) == found


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch_ends_at_the_log_end(broker: txn.Broker, version: int) -> None:
    def wanted(partition: int, epoch: int) -> dict[str, int]:
        return {"partition": partition, "current_leader_epoch": -1, "leader_epoch": epoch}

    partitions = [wanted(0, 0), wanted(0, 5), wanted(9, 0)]
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        topics=[{"topic": "orders", "partitions": partitions}],
    )
    found = [(p.end_offset, int(p.error_code)) for p in answer.topics[0].partitions]
    assert found == [(2, 0), (-1, 0), (-1, UNKNOWN_TOPIC)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (3, [("metadata.version", 7)]),
        (4, [("metadata.version", 7), ("transaction.version", 0), ("group.version", 0)]),
    ],
)
def test_api_versions_names_no_feature_from_level_0_before_version_4(
    broker: txn.Broker, version: int, expected: list[tuple[str, int]]
) -> None:
    """A client that asks in version 3 may not be able to read the answer otherwise."""
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.API_VERSIONS,
        version,
        client_software_name="c",
        client_software_version="1",
    )
    assert [(one.name, one.min_version) for one in answer.supported_features] == expected
    assert {one.name for one in answer.finalized_features} == {
        "metadata.version",
        "transaction.version",
        "group.version",
    }


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_of_an_unknown_id_has_no_name_and_no_operations(
    broker: txn.Broker, version: int
) -> None:
    answer = ask(
        broker.bootstrap_servers,
        ApiKey.METADATA,
        version,
        topics=[{"name": None, "topic_id": b"\x07" * 16}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=False,
    )
    (topic,) = answer.topics
    assert int(topic.error_code) == UNKNOWN_TOPIC_ID
    assert (topic.name, topic.topic_authorized_operations) == (None, -(2**31))
