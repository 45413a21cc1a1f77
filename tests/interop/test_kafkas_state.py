"""What a Kafka has left in its directory is shown by txn as Kafka showed it itself."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

import txn
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from interop.test_configs import BROKER, altered, described
from support.clients import WAIT_S, commit_values, create_topic, transactional_producer
from support.config_requests import SET
from support.wire_client import RawConnection
from txn.wire.api_keys import ApiKey

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

SHARES = "__share_group_state"
SECRET = "custom.reporter.secret"
STORED = {
    SECRET: "s3cret",
    "leader.replication.throttled.rate": "1000",
    "log.cleaner.threads": "2",
    "num.network.threads": "3",
}
MAX_TIMESTAMP = -3
INVALID_TOPIC, UNKNOWN_TOPIC = 17, 3


class State(NamedTuple):
    """The answers of a broker about a directory."""

    topic: tuple[int, bool]
    """Of the topic of share groups: the error code, and whether it is internal."""
    latest: tuple[int, int]
    """Offset and timestamp of the largest timestamp in a topic of transactions."""
    here: set[str]
    everywhere: dict[str, Any]
    secrets: list[tuple[Any, ...]]


def metadata(servers: str, name: str) -> tuple[int, bool]:
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.METADATA,
            12,
            topics=[{"topic_id": None, "name": name}],
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
    (topic,) = answer.topics
    return int(topic.error_code), topic.is_internal


def latest(servers: str, topic: str) -> tuple[int, int]:
    partition = {"partition_index": 0, "timestamp": MAX_TIMESTAMP, "current_leader_epoch": -1}
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [partition]}],
        )
    ((found,),) = [each.partitions for each in answer.topics]
    return found.offset, found.timestamp


def state(servers: str) -> State:
    here, everywhere = described(servers, BROKER, "1"), described(servers, BROKER, "")
    secrets = [here[SECRET], everywhere[SECRET]]
    return State(
        metadata(servers, SHARES),
        latest(servers, "paid"),
        STORED.keys() & here.keys(),
        {
            name: (entry.value, entry.config_source)
            for name, entry in everywhere.items()
            if name in (SECRET, "log.cleaner.threads", "num.network.threads")
        },
        [
            (
                *(entry.value, entry.config_source, entry.is_sensitive, entry.read_only),
                *(entry.config_type, [(each.name, each.value) for each in entry.synonyms]),
            )
            for entry in secrets
        ],
    )


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> tuple[State, Path]:
    """The state of a Kafka, and its directory after a stop."""
    with KafkaNode(tmp_path_factory.mktemp("kafka"), FEW_PARTITIONS) as node:
        servers = node.bootstrap_servers
        for resource in ("1", ""):
            entries = [(name, SET, value) for name, value in STORED.items()]
            assert altered(servers, BROKER, resource, *entries) == 0
        create_topic(servers, "paid")
        commit_values(transactional_producer(servers, "till"), "paid", [b"1", b"2"])
        deadline = time.monotonic() + WAIT_S
        while metadata(servers, SHARES)[0] != 0 or latest(servers, "paid")[0] != 2:
            assert time.monotonic() < deadline, "Kafka makes no topic, or writes no marker"
        found = state(servers)
    return found, node.data


@pytest.fixture(scope="module")
def servers(kafkas: tuple[State, Path]) -> Iterator[str]:
    with txn.Broker(kafkas[1]) as broker:
        yield broker.bootstrap_servers


def test_its_topics_and_settings_are_shown_as_by_kafka(
    kafkas: tuple[State, Path], servers: str
) -> None:
    """A stored setting that is unknown here was not listed, nor was one that counts for nothing.

    The topic of share groups was one of a client, and a marker was no record.
    """
    theirs, _ = kafkas
    assert theirs.here == STORED.keys()
    assert theirs.topic == (0, True)
    assert state(servers) == theirs


def test_clients_do_not_write_the_topic_of_share_groups(servers: str) -> None:
    refusals: list[Any] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(SHARES, b"1", on_delivery=lambda error, _: refusals.append(error))
    assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in refusals] == [INVALID_TOPIC]


def test_the_topic_of_share_groups_is_not_made_for_a_client() -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        assert metadata(servers, SHARES) == (UNKNOWN_TOPIC, True)
        with pytest.raises(KafkaException, match="is internal"):
            create_topic(servers, SHARES)


def test_a_stored_setting_that_is_unknown_can_be_taken_away(servers: str) -> None:
    for resource in ("1", ""):
        assert altered(servers, BROKER, resource, (SECRET, 1, None)) == 0
    assert SECRET not in described(servers, BROKER, "1")
