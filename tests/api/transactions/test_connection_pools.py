"""A client with a pool of connections sends each request of a transaction over any of them.

segmentio/kafka-go does so. AddPartitionsToTxn went over one connection, EndTxn over another. The
broker took the older one for that of a dead client, so one transaction in four was lost.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.clients import create_topic, read_all
from support.wire_producer import TV1_PRODUCE, TV2_PRODUCE, Identity, WireProducer, identity

ADD, ADD_OFFSETS = 24, 25
TRANSACTIONS = 12


class Pool:
    """Connections of one producer, and the order in which it uses them."""

    def __init__(self, servers: str, size: int, seed: int | None) -> None:
        self.opened = ExitStack()
        self.connections = [self.opened.enter_context(WireProducer(servers)) for _ in range(size)]
        self._chance = None if seed is None else random.Random(seed)
        self._turn = 0

    def next(self) -> WireProducer:
        """The connection of the next request: in turn, or by chance."""
        if self._chance is not None:
            return self._chance.choice(self.connections)
        self._turn = (self._turn + 1) % len(self.connections)
        return self.connections[self._turn]


@pytest.fixture(params=[(2, None), (3, None), (5, 1), (5, 2)], ids=str)
def pool(request: pytest.FixtureRequest, servers: str) -> Iterator[Pool]:
    create_topic(servers, "orders")
    pool = Pool(servers, *request.param)
    with pool.opened:
        yield pool


def values(outcomes: list[bool]) -> list[bytes]:
    """The values of the committed transactions."""
    return [b"%d" % number for number, committed in enumerate(outcomes) if committed]


def outcomes() -> list[bool]:
    """Mostly commits."""
    return [number % 5 != 3 for number in range(TRANSACTIONS)]


def add(connection: WireProducer, producer: Identity) -> int:
    answer = connection.ask(
        ADD,
        3,
        v3_and_below_transactional_id="pay",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
    )
    (topic,) = answer.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def add_offsets(connection: WireProducer, producer: Identity) -> int:
    answer = connection.ask(
        ADD_OFFSETS,
        3,
        transactional_id="pay",
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id="copies",
    )
    return int(answer.error_code)


def test_P2_P3_a_pool_loses_no_transaction_of_version_1(pool: Pool, servers: str) -> None:
    producer = identity(pool.next().start(two_phase=False))
    for number, committed in enumerate(outcomes()):
        assert add(pool.next(), producer) == 0
        code = pool.next().produce(producer, number, b"%d" % number, TV1_PRODUCE)
        assert code == 0
        assert add_offsets(pool.next(), producer) == 0
        assert pool.next().commit_offset(producer, "copies", "orders", number, version=3) == 0
        answer = pool.next().end(producer, committed=committed, version=4)
        assert int(answer.error_code) == 0
    assert read_all(servers, "orders") == values(outcomes())


def test_P2_P3_a_pool_loses_no_transaction_of_version_2(pool: Pool, servers: str) -> None:
    producer = identity(pool.next().start(two_phase=False))
    for number, committed in enumerate(outcomes()):
        assert pool.next().produce(producer, 0, b"%d" % number, TV2_PRODUCE) == 0
        assert pool.next().commit_offset(producer, "copies", "orders", number) == 0
        producer = identity(pool.next().end(producer, committed=committed))
    assert read_all(servers, "orders") == values(outcomes())


def test_P2_P3_a_pool_starts_again_over_any_connection(pool: Pool, servers: str) -> None:
    """Each transaction has a start of its own, as with clients that keep no producer."""
    for number in range(TRANSACTIONS):
        producer = identity(pool.next().start(two_phase=False))
        assert add(pool.next(), producer) == 0
        assert pool.next().produce(producer, 0, b"%d" % number, TV1_PRODUCE) == 0
        assert int(pool.next().end(producer, version=4).error_code) == 0
    assert read_all(servers, "orders") == values([True] * TRANSACTIONS)
