"""Requests that a TV1 client left behind on an old connection touch nothing when they come after
all.

The anomaly is Jepsen's. A client gives up waiting for EndTxn, connects again, has its transaction
ended and begins the next. Then the first EndTxn arrives and decides that one. Nothing in a request
of transaction version 1 tells the two apart; see `txn.coordinator.transaction.connections`.

A client with a pool sends each request over any of its connections, and all of them are served.
"""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from support.clients import create_topic
from support.entities import entity_builder
from support.wire_client import RawConnection, request

OFFSET_FETCH, INIT, ADD, ADD_OFFSETS, END, OFFSETS, DESCRIBE = 9, 22, 24, 25, 26, 28, 65


def added(producer: dict[str, Any]) -> dict[str, Any]:
    """The fields of an AddPartitionsToTxn."""
    return {
        "v3_and_below_transactional_id": "pay",
        "v3_and_below_producer_id": producer["producer_id"],
        "v3_and_below_producer_epoch": producer["producer_epoch"],
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
    }


class ProducerConnection(RawConnection):
    """One connection of a producer whose transactional id is `pay`."""

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        schema = request(key, version)
        return self.call(entity_builder(schema)(fields))

    def init(self) -> dict[str, Any]:
        answer = self.ask(INIT, 4, transactional_id="pay", transaction_timeout=60_000)
        assert answer.error_code == 0
        return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def add(self, producer: dict[str, Any]) -> int:
        answer = self.ask(ADD, 3, **added(producer))
        (topic,) = answer.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def leave_behind(self, key: int, version: int, /, **fields: Any) -> None:
        """Send a request and close the connection behind it; the broker hangs up on it.

        Both travel in one segment: a pool that is known is not waited for.
        """
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self.send(key, version, **fields)
        self.socket.shutdown(socket.SHUT_WR)
        assert self.is_closed_by_peer()

    def end_late(self, producer: dict[str, Any]) -> None:
        self.leave_behind(END, 4, transactional_id="pay", committed=True, **producer)

    def end(self, producer: dict[str, Any], version: int = 4) -> Any:
        return self.ask(END, version, transactional_id="pay", committed=True, **producer)

    def state(self) -> str:
        answer = self.ask(DESCRIBE, 0, transactional_ids=["pay"])
        return str(answer.transaction_states[0].transaction_state)


@pytest.fixture
def old(servers: str) -> Iterator[ProducerConnection]:
    create_topic(servers, "orders")
    with ProducerConnection(servers) as connection:
        yield connection


@pytest.fixture
def new(old: ProducerConnection, servers: str) -> Iterator[ProducerConnection]:
    with ProducerConnection(servers) as connection:
        yield connection


def in_the_next_transaction(old: ProducerConnection, new: ProducerConnection) -> dict[str, Any]:
    """A producer that began over one connection and went on over a later one."""
    producer = old.init()
    assert old.add(producer) == 0
    assert new.end(producer).error_code == 0
    assert new.add(producer) == 0
    return producer


def test_P3_a_late_end_leaves_the_next_transaction_open(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)

    old.end_late(producer)

    assert new.state() == "Ongoing"
    assert new.end(producer).error_code == 0


def test_P5_a_late_join_opens_no_transaction(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    assert new.end(producer).error_code == 0

    old.leave_behind(ADD, 3, **added(producer))

    assert new.state() == "CompleteCommit"


def test_P3_the_close_may_come_a_moment_after_the_request(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    old.send(END, 4, transactional_id="pay", committed=True, **producer)
    assert new.state() == "Ongoing"

    old.socket.shutdown(socket.SHUT_WR)

    assert old.is_closed_by_peer()
    assert new.state() == "Ongoing"


def test_P3_a_pool_is_told_from_what_it_leaves_behind(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    assert old.end(producer).error_code == 0
    assert old.add(producer) == 0

    new.end_late(producer)

    assert old.state() == "Ongoing"


def test_a_client_that_goes_back_to_an_earlier_connection_is_served(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    assert old.end(producer).error_code == 0
    assert new.state() == "CompleteCommit"


def test_a_commit_whose_client_leaves_at_once_is_carried_out(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = old.init()
    assert old.add(producer) == 0
    old.send(END, 4, transactional_id="pay", committed=True, **producer)
    old.socket.shutdown(socket.SHUT_WR)
    assert old.receive(END, 4).error_code == 0
    assert new.state() == "CompleteCommit"


def test_a_fenced_producer_is_told_so_over_any_connection(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    new.init()
    assert old.end(producer).error_code == 90


def test_version_2_needs_no_connections_to_tell_transactions_apart(
    old: ProducerConnection, new: ProducerConnection
) -> None:
    producer = in_the_next_transaction(old, new)
    answer = old.end(producer, version=5)
    assert (answer.error_code, answer.producer_epoch) == (0, producer["producer_epoch"] + 1)


def offsets(producer: dict[str, Any], partition: int, offset: int) -> dict[str, Any]:
    """The fields of a TxnOffsetCommit of the group `g`."""
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    known = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "orders", "partitions": [row]}]
    return {"transactional_id": "pay", "group_id": "g", **producer, **known, "topics": topics}


class OffsetsProducer:
    """A producer with a connection to the transaction coordinator; others are to the groups'."""

    def __init__(self, connection: ProducerConnection) -> None:
        self.connection = connection
        self.identity = connection.init()

    def add_offsets(self) -> None:
        member = {"transactional_id": "pay", "group_id": "g", **self.identity}
        assert self.connection.ask(ADD_OFFSETS, 3, **member).error_code == 0

    def commit_offset(self, over: ProducerConnection, partition: int, offset: int) -> None:
        stored = over.ask(OFFSETS, 3, **offsets(self.identity, partition, offset))
        assert stored.topics[0].partitions[0].error_code == 0

    def end(self, *, committed: bool = True) -> None:
        fields = {"transactional_id": "pay", "committed": committed, **self.identity}
        assert self.connection.ask(END, 4, **fields).error_code == 0

    def committed(self, partition: int) -> int:
        topics = [{"name": "orders", "partition_indexes": [partition]}]
        fields = {"group_id": "g", "topics": topics, "require_stable": True}
        answer = self.connection.ask(OFFSET_FETCH, 7, **fields)
        return int(answer.topics[0].partitions[0].committed_offset)


@pytest.fixture
def offsets_producer(servers: str) -> Iterator[OffsetsProducer]:
    create_topic(servers, "orders", 2)
    with ProducerConnection(servers) as connection:
        yield OffsetsProducer(connection)


@pytest.fixture
def groups(
    offsets_producer: OffsetsProducer, servers: str
) -> Iterator[tuple[ProducerConnection, ProducerConnection]]:
    """Two connections to the group coordinator, the earlier one first."""
    with ProducerConnection(servers) as old, ProducerConnection(servers) as new:
        yield old, new


def test_P3_late_offsets_do_not_enter_the_next_transaction(
    offsets_producer: OffsetsProducer, groups: tuple[ProducerConnection, ProducerConnection]
) -> None:
    old, new = groups
    offsets_producer.add_offsets()
    offsets_producer.commit_offset(new, 0, 7)

    old.leave_behind(OFFSETS, 3, **offsets(offsets_producer.identity, 0, 5))

    offsets_producer.end()
    assert offsets_producer.committed(0) == 7


@pytest.mark.parametrize("had_offsets", [True, False])
def test_P3_late_offsets_that_come_before_the_next_ones_are_not_committed(
    had_offsets: bool,
    offsets_producer: OffsetsProducer,
    groups: tuple[ProducerConnection, ProducerConnection],
) -> None:
    old, new = groups
    if had_offsets:
        offsets_producer.add_offsets()
        offsets_producer.commit_offset(old, 1, 1)
        offsets_producer.end()
    offsets_producer.add_offsets()
    offsets_producer.end(committed=False)  # its TxnOffsetCommit is still under way
    offsets_producer.add_offsets()
    old.send(OFFSETS, 3, **offsets(offsets_producer.identity, 1, 99))
    assert new.state() == "Ongoing"

    old.socket.shutdown(socket.SHUT_WR)

    assert old.is_closed_by_peer()
    offsets_producer.commit_offset(new, 0, 2)
    offsets_producer.end()
    assert offsets_producer.committed(0) == 2
    assert offsets_producer.committed(1) == (1 if had_offsets else -1)


def test_offsets_whose_client_stays_are_committed_after_an_abort_without_any(
    offsets_producer: OffsetsProducer, groups: tuple[ProducerConnection, ProducerConnection]
) -> None:
    old, new = groups
    for offset, connection in enumerate((old, new, old, old)):
        offsets_producer.add_offsets()
        offsets_producer.end(committed=False)
        offsets_producer.add_offsets()
        offsets_producer.commit_offset(connection, 0, offset)
        offsets_producer.end()
        assert offsets_producer.committed(0) == offset
