"""confluent-kafka in few words, for tests."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 30.0
POLL_S = 0.005
"""Pause between two looks for an effect. Without one, the looks take a whole core."""


def create_topic(servers: str, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic, and wait until the broker knows it: a controller answers before that."""
    admin = AdminClient({"bootstrap.servers": servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    for made in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        made.result(WAIT_S)
    ends_s = time.monotonic() + WAIT_S
    while len(admin.list_topics(name, WAIT_S).topics[name].partitions) < partitions:
        assert time.monotonic() < ends_s, f"the broker does not get to know {name!r}"
        time.sleep(0.01)


def plain_producer(servers: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 0, **_dotted(settings)})


def transactional_producer(servers: str, transactional_id: str, **settings: Any) -> Producer:
    """An initialised transactional producer."""
    producer = plain_producer(servers, transactional_id=transactional_id, **settings)
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, topic: str, values: Iterable[bytes], partition: int = 0) -> list[int]:
    """Produce and wait; return the offsets. Raises KafkaException on a failed delivery."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def settle(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for value in values:
        producer.produce(topic, value=value, partition=partition, on_delivery=settle)
    assert producer.flush(WAIT_S) == 0, "records are still on their way"
    if failed:
        raise KafkaException(failed[0])
    return [message.offset() or 0 for message in delivered]


def commit_values(producer: Producer, topic: str, values: Iterable[bytes]) -> None:
    """One committed transaction."""
    producer.begin_transaction()
    send(producer, topic, values)
    producer.commit_transaction(WAIT_S)


def read_all(
    servers: str, topic: str, *, isolation: str = "read_committed", **settings: Any
) -> list[bytes | None]:
    """All values a reader of this isolation level finds, partition by partition."""
    messages = read_messages(servers, topic, isolation=isolation, **settings)
    return [message.value() for message in messages]


def read_messages(
    servers: str, topic: str, *, isolation: str = "read_committed", **settings: Any
) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an end is told by a fetch that found nothing
            **_dotted(settings),
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        left = set(partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        found: list[Message] = []
        while left:
            message = consumer.poll(WAIT_S)  # consume(n) would wait until it has n
            assert message is not None, f"no answer while reading {topic}"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()


def ends(servers: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """(last stable offset, high watermark) of a partition."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "ends", "isolation.level": isolation}
        )
        try:
            where = TopicPartition(topic, partition)
            found.append(consumer.get_watermark_offsets(where, timeout=WAIT_S)[1])
        finally:
            consumer.close()
    return found[0], found[1]


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
