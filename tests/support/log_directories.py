"""A data directory with some of everything, made by real clients of any broker."""

import random
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20
"""The least that Apache Kafka takes."""


def fill(servers: str) -> dict[str, list[bytes]]:
    """Write idempotent and transactional records, in several segments and every codec.

    One transaction is left open, and every third is aborted. A group commits offsets with a
    transaction and without, and the first seventy records of `gzip` are deleted.

    Returns:
        The values written to each topic, in the order of each partition.
    """
    noise = random.Random(1)
    written: dict[str, list[bytes]] = {}
    for codec in CODECS:
        # Noise fills segments, zeros are worth compressing.
        written[codec] = [noise.randbytes(16_000) + bytes(4_000) for _ in range(80)]
        topic = make_topic(servers, codec)
        producer = plain_producer(servers, compression_type=codec, enable_idempotence=True)
        _send_keyed(producer, topic, written[codec])
    written["orders"] = _run_transactions(servers, noise)
    _commit_offsets(servers)
    _delete_records(servers, "gzip", 70)
    return written


def _delete_records(servers: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(WAIT_S)


def make_topic(servers: str, topic: str, partitions: int = 1) -> str:
    settings = {"segment_bytes": str(SEGMENT_BYTES), "index_interval_bytes": "3000"}
    create_topic(servers, topic, partitions, **settings)
    return topic


def _send_keyed(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    for number, value in enumerate(values):
        headers: list[tuple[str, str | bytes | None]] = [
            ("trace", b"%d" % number),
            ("nothing", None),
        ]
        producer.produce(topic, key=b"key-%d" % number, value=value, headers=headers, partition=0)
        if number % 5 == 4:  # five records a batch
            assert producer.flush(WAIT_S) == 0


def _run_transactions(servers: str, noise: random.Random) -> list[bytes]:
    topic = make_topic(servers, "orders")
    producer = transactional_producer(servers, "loader")
    hanging = transactional_producer(servers, "hanging")
    values = [noise.randbytes(20_000) for _ in range(90)]
    for number in range(30):
        if number == 25:
            hanging.begin_transaction()
            send(hanging, topic, [b"never decided"])
            values.insert(3 * number, b"never decided")
        producer.begin_transaction()
        first = 3 * number + (number >= 25)
        send(producer, topic, values[first : first + 3])
        if number % 3:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    return values


def _commit_offsets(servers: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["lz4", "zstd"])
        read = 0
        while read < 100:
            message = consumer.poll(WAIT_S)
            assert message is not None, "no answer while reading"
            read += 1
        consumer.commit(asynchronous=False)
        producer = transactional_producer(servers, "copier")
        producer.begin_transaction()
        send(producer, "orders", [b"copied"])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
    finally:
        consumer.close()
