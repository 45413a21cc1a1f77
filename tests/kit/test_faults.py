"""Faults on request: each happens, is told, and harms nothing else."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from support.clients import WAIT_S, commit_values, plain_producer, send, transactional_producer
from support.wire_client import RawConnection
from txn.errors import RejectedError
from txn.testing import TestBroker, WaitError
from txn.wire.api_keys import ApiKey

HEARTBEATS: dict[str, object] = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[TestBroker]:
    with TestBroker(properties=HEARTBEATS) as broker:
        yield broker


@pytest.fixture
def broker(shared: TestBroker) -> Iterator[TestBroker]:
    yield shared
    shared.heal()


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.create_topic()


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_a_lost_answer_is_of_a_request_that_was_done(broker: TestBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap_servers, topic)
    lost = broker.lose_answer("EndTxn")
    assert not lost.happened
    commit_values(producer, topic, [b"once"])
    assert lost.happened
    assert values(broker, topic) == [b"once"]


def test_a_lost_request_never_came_to_the_broker(broker: TestBroker, topic: str) -> None:
    lost = broker.lose_request("Produce")
    with pytest.raises(KafkaException, match=r"_MSG_TIMED_OUT|timed out|_TRANSPORT"):
        send(plain_producer(broker.bootstrap_servers, retries=0), topic, [b"x"])
    assert lost.happened
    assert values(broker, topic) == []


def test_the_second_request_may_be_meant(broker: TestBroker, topic: str) -> None:
    producer = plain_producer(broker.bootstrap_servers, retries=0)
    broker.lose_request("Produce", 2)
    send(producer, topic, [b"first"])
    with pytest.raises(KafkaException, match=r"_MSG_TIMED_OUT|timed out|_TRANSPORT"):
        send(producer, topic, [b"second"])
    assert values(broker, topic) == [b"first"]


def test_faults_of_one_api_count_the_same_requests(broker: TestBroker, topic: str) -> None:
    """The second one counted only the requests behind the first, and came one too late."""
    first, second = broker.lose_answer("Produce"), broker.lose_answer("Produce", 2)
    send(plain_producer(broker.bootstrap_servers), topic, [b"x"])  # the retry is the second
    assert (first.happened, second.happened) == (True, True)


def test_a_held_request_waits_for_its_release(broker: TestBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap_servers, topic)
    with broker.hold("EndTxn") as held:
        commit = threading.Thread(target=commit_values, args=(producer, topic, [b"v"]))
        commit.start()
        held.wait()
        assert values(broker, topic) == []
        assert broker.transactions()[topic] == "Ongoing"
    commit.join()
    assert values(broker, topic) == [b"v"]


def test_the_first_release_of_a_held_request_decides(broker: TestBroker, topic: str) -> None:
    """A second release, right behind it, had the request delivered that was to be dropped."""
    producer = plain_producer(broker.bootstrap_servers, retries=0)
    held = broker.hold("Produce")
    producer.produce(topic, b"v")
    producer.poll(0)
    held.wait()
    held.release(deliver=False)
    held.release()
    assert producer.flush(WAIT_S) == 0
    assert values(broker, topic) == []


def test_a_held_answer_is_of_a_request_that_was_done(broker: TestBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap_servers, topic)
    with broker.hold_answer("EndTxn") as held:
        commit = threading.Thread(target=commit_values, args=(producer, topic, [b"v"]))
        commit.start()
        held.wait()
        assert values(broker, topic) == [b"v"]
        assert commit.is_alive()
    commit.join()


def test_cut_connections_are_those_of_the_client_id(broker: TestBroker, topic: str) -> None:
    names = ("left", "right")
    left, right = (plain_producer(broker.bootstrap_servers, client_id=name) for name in names)
    for producer in (left, right):
        send(producer, topic, [b"before"])
    assert broker.cut("left") >= 1
    with pytest.raises(RejectedError, match=r"no client with client\.id 'middle' is connected"):
        broker.cut("middle")
    for producer in (left, right):
        send(producer, topic, [b"after"])
    assert len(values(broker, topic)) == 4


def test_a_cut_without_any_client_is_refused() -> None:
    with TestBroker() as empty, pytest.raises(RejectedError, match="no client is connected"):
        empty.cut()


def test_a_delay_delays_each_way(broker: TestBroker, topic: str) -> None:
    producer = plain_producer(broker.bootstrap_servers)
    send(producer, topic, [b"quick"])
    broker.delay(0.2)
    began_s = time.monotonic()
    send(producer, topic, [b"slow"])
    assert time.monotonic() - began_s >= 0.4
    with pytest.raises(RejectedError, match="a delay is 0 seconds or more"):
        broker.delay(-1)


def test_nothing_passes_during_a_pause(broker: TestBroker, topic: str) -> None:
    producer = plain_producer(broker.bootstrap_servers)
    send(producer, topic, [b"before"])
    broker.pause()
    producer.produce(topic, b"during")
    assert producer.flush(0.1) == 1
    assert values(broker, topic) == [b"before"]
    broker.resume()
    assert producer.flush(WAIT_S) == 0
    assert values(broker, topic) == [b"before", b"during"]


def test_a_refused_append_is_an_error_of_its_delivery(broker: TestBroker, topic: str) -> None:
    other = broker.create_topic()
    producer = plain_producer(broker.bootstrap_servers)
    refused = broker.refuse_next_append(topic)
    send(producer, other, [b"of another topic"])
    assert not refused.happened
    with pytest.raises(KafkaException) as raised:
        send(producer, topic, [b"refused"])
    assert raised.value.args[0].code() == KafkaError.INVALID_RECORD
    send(producer, topic, [b"accepted"])
    assert values(broker, topic) == [b"accepted"]


def test_a_retriable_refusal_is_tried_again(broker: TestBroker, topic: str) -> None:
    refused = broker.refuse_next_append(error="NOT_ENOUGH_REPLICAS")
    send(plain_producer(broker.bootstrap_servers, retry_backoff_ms=1), topic, [b"v"])
    assert refused.happened
    assert values(broker, topic) == [b"v"]


def test_an_acknowledgement_of_none_does_not_shift_answers(broker: TestBroker, topic: str) -> None:
    producer = plain_producer(broker.bootstrap_servers, acks=0)
    send(producer, topic, [b"a", b"b"])
    broker.wait_for_records(topic, 2)
    producer.list_topics(topic, WAIT_S)


def test_P7_a_fenced_producer_makes_nothing_visible(broker: TestBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap_servers, topic)
    producer.begin_transaction()
    send(producer, topic, [b"of a zombie"])
    broker.fence(topic)
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(WAIT_S)
    assert raised.value.args[0].fatal()
    assert values(broker, topic) == []
    with pytest.raises(RejectedError, match="'nobody' is not in use"):
        broker.fence("nobody")


CLASSIC: dict[str, str | int] = {"heartbeat.interval.ms": 50, "session.timeout.ms": 6000}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "classic": CLASSIC,
    "consumer": {"group.protocol": "consumer"},  # its interval is HEARTBEATS
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rebalance_takes_partitions_and_gives_them_again(
    broker: TestBroker, topic: str, protocol: str
) -> None:
    """The kit knew no members of a group of KIP-848."""
    assigned: list[int] = []
    common = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
    consumer = Consumer({**common, **PROTOCOLS[protocol]})
    try:
        consumer.subscribe(
            [topic], on_assign=lambda _, partitions: assigned.append(len(partitions))
        )
        while not assigned:
            consumer.poll(0.05)
        [member] = broker.members(topic)
        assert broker.rebalance(topic) == 1
        while len(assigned) < 2:
            consumer.poll(0.05)
        assert broker.members(topic) == [member] or protocol == "classic"
    finally:
        consumer.close()
    with pytest.raises(RejectedError, match="group 'strangers' has no members"):
        broker.rebalance("strangers")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "subscription",
    [
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hiH", 0, 2**31 - 1, 3) + b"\xff\xff\xff",
        b"x",
    ],
    ids=["a count without names", "no text", "one byte"],
)
def test_a_member_may_say_anything_about_its_subscription(
    broker: TestBroker, topic: str, subscription: bytes
) -> None:
    """The kit believed the number of topics, and kept two thousand million empty names."""
    with RawConnection(broker.bootstrap_servers) as connection:
        protocols = [{"name": "range", "metadata": subscription}]
        joined = connection.ask(
            *(ApiKey.JOIN_GROUP, 2),
            group_id=topic,
            session_timeout=30_000,
            rebalance_timeout=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        connection.ask(
            *(ApiKey.SYNC_GROUP, 2),
            group_id=topic,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[{"member_id": joined.member_id, "assignment": b""}],
        )
        assert broker.members(topic) == [joined.member_id]


def test_healing_forgets_faults_and_frees_held_requests(broker: TestBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap_servers, topic)
    held = broker.hold("EndTxn")
    never = broker.lose_request("Produce", 2)
    commit = threading.Thread(target=commit_values, args=(producer, topic, [b"v"]))
    commit.start()
    held.wait()
    broker.heal()
    commit.join()
    commit_values(producer, topic, [b"w"])
    assert not never.happened
    assert values(broker, topic) == [b"v", b"w"]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda broker: broker.hold("EndTx"), r"'EndTx' is no request.*did you mean EndTxn\?"),
        (lambda broker: broker.lose_answer("Nonsense"), "such as Produce or EndTxn"),
        (lambda broker: broker.hold("EndTxn", 0), "number is 1 for the next EndTxn, not 0"),
        (
            lambda broker: broker.refuse_next_append(error="INVALID_RECROD"),
            r"did you mean INVALID_RECORD\?",
        ),
        (lambda broker: broker.refuse_next_append("nowhere"), "topic 'nowhere' is not there"),
    ],
)
def test_a_fault_that_cannot_be_had_is_refused(
    broker: TestBroker, ask: "object", told: str
) -> None:
    assert callable(ask)
    with pytest.raises(RejectedError, match=told):
        ask(broker)


def test_a_fault_that_does_not_happen_is_told(broker: TestBroker) -> None:
    with pytest.raises(WaitError, match=r"no EndTxn came within 0\.01 s.*bootstrap_servers"):
        broker.hold("EndTxn").wait(0.01)


def test_a_stranger_to_the_protocol_costs_its_connection_alone(
    broker: TestBroker, topic: str
) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(1) == b""
    commit_values(transactional_producer(broker.bootstrap_servers, topic), topic, [b"v"])
    assert values(broker, topic) == [b"v"]


def test_a_large_record_passes(broker: TestBroker, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 4_000_000}
    )
    producer.produce(topic, b"x" * 900_000)
    assert producer.flush(WAIT_S) == 0
    [record] = broker.records(topic)
    assert len(record.value or b"") == 900_000
