"""Groups, and the promises that join them to transactions, as librdkafka sees them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer

PARTITIONS = 4


@contextmanager
def members(
    servers: str, *instance_ids: str | None, **settings: object
) -> Iterator[list[Consumer]]:
    """Consumers of "orders" in one group; close() lets each leave."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumers = []
    for instance_id in instance_ids:
        static = {} if instance_id is None else {"group.instance.id": instance_id}
        consumers.append(
            Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6_000,
                    "heartbeat.interval.ms": 100,
                    **static,
                    **named,
                }
            )
        )
        consumers[-1].subscribe(["orders"])
    try:
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def poll_until_shared(consumers: Sequence[Consumer], shares: list[int]) -> list[Message]:
    """Poll until the group has come to rest with these many partitions each, in any order."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while sorted(len(consumer.assignment()) for consumer in consumers) != shares:
        assert time.monotonic() < deadline, "the group did not come to rest"
        found += [m for c in consumers if (m := c.poll(0.05)) is not None and m.error() is None]
    return found


def read_on(consumers: Sequence[Consumer], found: list[Message], count: int) -> list[bytes]:
    """Poll until so many different records are there; return their values in order."""
    deadline = time.monotonic() + WAIT_S
    while len({(m.partition(), m.offset()) for m in found}) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += [m for c in consumers if (m := c.poll(0.05)) is not None and m.error() is None]
    return sorted({message.value() or b"" for message in found})


def committed(consumer: Consumer) -> int:
    (place,) = consumer.committed([TopicPartition("orders", 0)], timeout=WAIT_S)
    return int(place.offset)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_miss_nothing(servers: str, strategy: str) -> None:
    create_topic(servers, "orders", partitions=PARTITIONS)
    producer = plain_producer(servers)
    for partition in range(PARTITIONS):
        send(producer, "orders", [b"%d" % partition], partition)

    with members(servers, None, "static", partition_assignment_strategy=strategy) as consumers:
        found = poll_until_shared(consumers, [2, 2])
        assert read_on(consumers, found, PARTITIONS) == [b"0", b"1", b"2", b"3"]


def test_partitions_of_a_member_that_leaves_go_to_the_others(servers: str) -> None:
    create_topic(servers, "orders", partitions=PARTITIONS)
    with members(servers, None, None) as consumers:
        first, second = consumers
        poll_until_shared(consumers, [2, 2])
        second.close()
        poll_until_shared([first], [PARTITIONS])


def test_P3_offsets_count_with_their_transaction_or_not_at_all(servers: str) -> None:
    create_topic(servers, "orders", partitions=1)
    send(plain_producer(servers), "orders", [b"a", b"b", b"c"])
    producer = transactional_producer(servers, "t")
    with members(servers, None) as (consumer,):
        poll_until_shared([consumer], [1])
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)

        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("orders", 0, 2)], consumer.consumer_group_metadata(), WAIT_S
        )
        producer.abort_transaction(WAIT_S)
        after_abort = committed(consumer)

        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("orders", 0, 3)], consumer.consumer_group_metadata(), WAIT_S
        )
        producer.commit_transaction(WAIT_S)
        assert (after_abort, committed(consumer)) == (1, 3)


def test_P7_member_whose_generation_is_over_commits_no_offsets(servers: str) -> None:
    create_topic(servers, "orders", partitions=2)
    producer = transactional_producer(servers, "t")
    with members(servers, None) as (zombie,):
        poll_until_shared([zombie], [2])
        metadata = zombie.consumer_group_metadata()
        with members(servers, None) as (newcomer,):
            poll_until_shared([zombie, newcomer], [1, 1])
            producer.begin_transaction()
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction(
                    [TopicPartition("orders", 0, 9)], metadata, WAIT_S
                )
            error = refused.value.args[0]
            assert error.code() == KafkaError.ILLEGAL_GENERATION
            assert error.txn_requires_abort()
            producer.abort_transaction(WAIT_S)
