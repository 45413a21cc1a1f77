"""A member begins a partition at the committed offset, also where a transaction holds it back.

The story: a transaction had offsets pending, and the group was rebalanced twice. librdkafka took
"ask again" for "nothing is committed", and began at `auto.offset.reset`. The copies of a
consume-transform-produce were doubled, with any broker.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer
from txn.client import Consumer

Unique = Callable[[str], str]

COMMITTED, PENDING, END = 10, 15, 20


class Answers(logging.Handler):
    """Counts the answers of a broker that an offset is pending."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "UNSTABLE_OFFSET_COMMIT" in record.getMessage()


@pytest.fixture
def answers(unique: Unique) -> Answers:
    logger = logging.getLogger(unique("answers"))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(made := Answers())
    made.name = logger.name
    return made


@pytest.fixture
def source(bootstrap: str, unique: Unique) -> str:
    name = unique("source")
    create_topic(bootstrap, name, partitions=2)
    for partition in (0, 1):
        send(plain_producer(bootstrap), name, [b"%d" % n for n in range(END)], partition)
    return name


@contextmanager
def pending(bootstrap: str, source: str, group: str, end: str) -> Iterator[Callable[[], None]]:
    """A group with committed offsets, and later ones of an open transaction; ends that."""
    producer = transactional_producer(bootstrap, f"{group}-t")
    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    reader = confluent_kafka.Consumer(settings)
    reader.commit(
        offsets=[TopicPartition(source, number, COMMITTED) for number in (0, 1)],
        asynchronous=False,
    )
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(source, number, PENDING) for number in (0, 1)],
        reader.consumer_group_metadata(),
        WAIT_S,
    )
    reader.close()
    yield lambda: getattr(producer, f"{end}_transaction")(WAIT_S)


@contextmanager
def member(bootstrap: str, group: str, answers: Answers, strategy: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 50,
            "partition.assignment.strategy": strategy,
            "debug": "cgrp,topic,consumer",
            "logger": logging.getLogger(answers.name or ""),
        },
        bootstrap_servers=bootstrap,
        group_id=group,
    )
    yield made
    made.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("end", "begin"), [("abort", COMMITTED), ("commit", PENDING)])
def test_a_pending_offset_is_waited_for_over_a_rebalance(
    bootstrap: str,
    unique: Unique,
    source: str,
    answers: Answers,
    strategy: str,
    end: str,
    begin: int,
) -> None:
    group = unique("group")
    with (
        pending(bootstrap, source, group, end) as finish,
        member(bootstrap, group, answers, strategy) as first,
        member(bootstrap, group, answers, strategy) as second,
    ):
        begun: dict[int, int] = {}
        members = [first]

        def poll() -> None:
            for each in members:
                message = each.poll(0.05)
                if message is not None:
                    begun.setdefault(message.partition() or 0, message.offset() or 0)

        first.subscribe([source])
        while answers.count < 8 and not begun:
            poll()
        second.subscribe([source])
        members.append(second)
        while not (len(first.assignment()) == len(second.assignment()) == 1 or begun):
            poll()
        seen = answers.count
        while answers.count < seen + 8 and not begun:
            poll()
        early = dict(begun)
        finish()
        while len(begun) < 2:
            poll()

    assert early == {}
    assert begun == {0: begin, 1: begin}
