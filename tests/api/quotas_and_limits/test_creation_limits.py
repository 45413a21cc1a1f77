"""CreateTopics, CreatePartitions and Metadata make so many partitions, and no more.

A request of 165 bytes made a million: it took 20 s, and each start after it 14 s more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

import txn
from support.wire_client import RawConnection
from txn.server.lifecycle.broker import service_of

METADATA, CREATE_TOPICS, CREATE_PARTITIONS = 3, 19, 37
POLICY_VIOLATION, INVALID_REQUEST, UNKNOWN_TOPIC = 44, 42, 3
TOO_MANY = "Excessively large number of partitions per request."

Topic = Mapping[str, Any]


@pytest.fixture
def broker() -> Iterator[txn.Broker]:
    with txn.Broker() as broker:
        yield broker


@pytest.fixture
def connection(broker: txn.Broker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def topic(name: str, partitions: int, assigned: int = 0) -> Topic:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1 if assigned else 1,
        "assignments": [{"partition_index": n, "broker_ids": [1]} for n in range(assigned)],
        "configs": (),
    }


def create(
    connection: RawConnection, topics: Iterable[Topic], *, is_trial: bool = False
) -> list[tuple[int, str | None]]:
    answer = connection.ask(
        CREATE_TOPICS, 5, topics=list(topics), timeout=30_000, validate_only=is_trial
    )
    return [(int(topic.error_code), topic.error_message) for topic in answer.topics]


def grow(connection: RawConnection, counts: Iterable[tuple[str, int]]) -> list[int]:
    topics = [{"name": name, "count": count, "assignments": None} for name, count in counts]
    answer = connection.ask(
        CREATE_PARTITIONS, 1, topics=topics, timeout=30_000, validate_only=False
    )
    return [int(result.error_code) for result in answer.results]


def names(connection: RawConnection) -> set[str]:
    answer = connection.ask(METADATA, 1, topics=None)
    return {topic.name for topic in answer.topics} - {"__consumer_offsets", "__transaction_state"}


@pytest.mark.parametrize("is_trial", [True, False])
@pytest.mark.parametrize(
    "topics",
    [
        [topic("a", 10_001)],
        [topic("a", 5_000), topic("b", 5_000), topic("c", 1)],
        [topic("a", 9_999), topic("b", -1, assigned=2)],
        [topic("a", 2**31 - 1), topic("b", 2**31 - 1)],
    ],
)
def test_a_request_for_more_than_10_000_partitions_is_refused_as_a_whole(
    connection: RawConnection, topics: list[Topic], is_trial: bool
) -> None:
    results = create(connection, topics, is_trial=is_trial)
    assert {code for code, _ in results} == {POLICY_VIOLATION}
    assert all(message is not None and message.startswith(TOO_MANY) for _, message in results)
    assert names(connection) == set()


def test_a_request_for_10_000_partitions_is_carried_out(connection: RawConnection) -> None:
    assert create(connection, [topic("a", 9_990), topic("b", 10)]) == [(0, None), (0, None)]


def test_topics_grow_by_10_000_partitions_a_request(connection: RawConnection) -> None:
    create(connection, [topic("a", 1), topic("b", 1)])
    assert grow(connection, [("a", 5_001), ("b", 5_002)]) == [POLICY_VIOLATION] * 2
    assert grow(connection, [("a", 2), ("a", 3)]) == [INVALID_REQUEST]
    assert grow(connection, [("a", 5_001), ("b", 5_001)]) == [0, 0]


def test_metadata_makes_the_topics_of_10_000_partitions_a_request() -> None:
    with (
        txn.Broker(properties={"num.partitions": 4_000}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        wanted = [{"name": name} for name in "abcd"]
        answer = connection.ask(METADATA, 1, topics=wanted)
        codes = [int(topic.error_code) for topic in answer.topics]
    assert codes == [0, 0, UNKNOWN_TOPIC, UNKNOWN_TOPIC]


def test_a_broker_takes_no_more_partitions_than_it_may() -> None:
    with (
        txn.Broker(properties={"max.partitions": 200}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        room = 200 - service_of(broker).node.image.partition_count
        first, second = create(connection, [topic("a", room - 1), topic("b", 2)])
        assert first == (0, None)
        assert second[0] == POLICY_VIOLATION
        assert "max.partitions" in (second[1] or "")
        assert grow(connection, [("a", room + 1)]) == [POLICY_VIOLATION]
        answer = connection.ask(METADATA, 1, topics=[{"name": "c"}, {"name": "d"}])
        assert [int(topic.error_code) for topic in answer.topics] == [0, UNKNOWN_TOPIC]


def test_partitions_of_deleted_topics_leave_room(broker: txn.Broker) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        before = service_of(broker).node.image.partition_count
        create(connection, [topic("a", 100)])
        grow(connection, [("a", 150)])
        assert service_of(broker).node.image.partition_count == before + 150
        connection.ask(20, 1, topic_names=["a"], timeout=30_000)
        assert service_of(broker).node.image.partition_count == before


def test_topics_by_the_thousand_are_made_while_others_are_answered(
    broker: txn.Broker, connection: RawConnection
) -> None:
    """10,000 topics in one request held the control loop for 19 s."""
    many = [topic(f"t{number}", 1) for number in range(2_000)]
    with RawConnection(broker.bootstrap_servers) as other:
        other.ask(10, 0, key="group")
        connection.send(CREATE_TOPICS, 5, topics=many, timeout=30_000, validate_only=False)
        while "t0" not in names(other):
            assert connection.has_nothing()
        other.ask(10, 0, key="group")
        assert connection.has_nothing()
        connection.socket.settimeout(60)
        answer = connection.receive(CREATE_TOPICS, 5)
    assert {int(topic.error_code) for topic in answer.topics} == {0}
