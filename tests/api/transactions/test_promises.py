"""The promises P3-P7 as a client sees them."""

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)


def test_P3_a_committed_transaction_is_seen_whole_in_all_partitions(servers: str) -> None:
    create_topic(servers, "orders", partitions=3)
    producer = transactional_producer(servers, "t1")

    producer.begin_transaction()
    for partition in range(3):
        send(producer, "orders", [b"%d" % partition], partition)
    before = read_all(servers, "orders")
    producer.commit_transaction(WAIT_S)

    assert before == []
    assert set(read_all(servers, "orders")) == {b"0", b"1", b"2"}


def test_P3_consumer_offsets_and_output_commit_together(servers: str) -> None:
    create_topic(servers, "in")
    create_topic(servers, "out")
    send(plain_producer(servers), "in", [b"a", b"b"])
    consumer = _consumer(servers, "g1")
    consumer.subscribe(["in"])
    producer = transactional_producer(servers, "t2")

    producer.begin_transaction()
    taken = [m.value() or b"" for m in consumer.consume(2, timeout=WAIT_S)]
    send(producer, "out", taken)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)

    committed = consumer.committed([TopicPartition("in", 0)], timeout=WAIT_S)
    consumer.close()
    assert taken == [b"a", b"b"]
    assert committed[0].offset == 2
    assert read_all(servers, "out") == [b"a", b"b"]


def test_P3_an_aborted_transaction_takes_its_offsets_back(servers: str) -> None:
    create_topic(servers, "in")
    send(plain_producer(servers), "in", [b"a"])
    consumer = _consumer(servers, "g2")
    consumer.subscribe(["in"])
    producer = transactional_producer(servers, "t3")

    producer.begin_transaction()
    consumer.consume(1, timeout=WAIT_S)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    producer.abort_transaction(WAIT_S)

    committed = consumer.committed([TopicPartition("in", 0)], timeout=WAIT_S)
    consumer.close()
    assert committed[0].offset < 0


def test_P4_read_committed_shows_nothing_of_an_aborted_transaction(servers: str) -> None:
    create_topic(servers, "orders")
    producer = transactional_producer(servers, "t4")

    commit_values(producer, "orders", [b"kept 1"])
    producer.begin_transaction()
    send(producer, "orders", [b"aborted"])
    producer.abort_transaction(WAIT_S)
    commit_values(producer, "orders", [b"kept 2"])

    assert read_all(servers, "orders") == [b"kept 1", b"kept 2"]
    assert read_all(servers, "orders", isolation="read_uncommitted") == [
        b"kept 1",
        b"aborted",
        b"kept 2",
    ]


def test_P4_an_open_transaction_holds_back_what_comes_after_it(servers: str) -> None:
    create_topic(servers, "orders")
    producer = transactional_producer(servers, "t5")
    send(plain_producer(servers), "orders", [b"before"])
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    send(plain_producer(servers), "orders", [b"after"])

    while_open = read_all(servers, "orders")
    held_at = ends(servers, "orders")
    producer.commit_transaction(WAIT_S)

    assert while_open == [b"before"]
    assert held_at == (1, 3)
    assert read_all(servers, "orders") == [b"before", b"open", b"after"]


def test_P5_an_abandoned_transaction_holds_readers_no_longer_than_its_timeout(
    servers: str,
) -> None:
    create_topic(servers, "orders")
    producer = transactional_producer(servers, "t6", transaction_timeout_ms=1000)
    producer.begin_transaction()
    send(producer, "orders", [b"abandoned"])

    consumer = _consumer(servers, "g3", "read_committed")
    consumer.assign([TopicPartition("orders", 0, 0)])
    send(plain_producer(servers), "orders", [b"behind it"])
    freed = consumer.consume(1, timeout=WAIT_S)

    consumer.close()
    assert [message.value() for message in freed] == [b"behind it"]
    with pytest.raises(KafkaException, match="_FENCED"):
        producer.commit_transaction(WAIT_S)


def test_P7_a_zombie_can_neither_write_nor_commit(servers: str) -> None:
    create_topic(servers, "orders")
    zombie = transactional_producer(servers, "pay-1")
    zombie.begin_transaction()
    send(zombie, "orders", [b"from the zombie"])

    successor = transactional_producer(servers, "pay-1")
    commit_values(successor, "orders", [b"from the successor"])

    with pytest.raises(KafkaException, match="_FENCED"):
        send(zombie, "orders", [b"late"])
    with pytest.raises(KafkaException, match="_FENCED"):
        zombie.commit_transaction(WAIT_S)
    assert read_all(servers, "orders") == [b"from the successor"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_passes_through_untouched(servers: str, codec: str) -> None:
    create_topic(servers, "orders")
    values = [b"%d" % number * 50 for number in range(500)]

    send(plain_producer(servers, compression_codec=codec), "orders", values)

    assert read_all(servers, "orders") == values


def test_all_topics_can_be_listed(servers: str) -> None:
    """librdkafka sends three bytes too many when it asks for all topics; Kafka ignores them."""
    create_topic(servers, "orders")
    commit_values(transactional_producer(servers, "t8"), "orders", [b"x"])

    listed = plain_producer(servers).list_topics(timeout=WAIT_S)

    assert "orders" in listed.topics


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_record_is_there_whatever_acknowledgement_was_asked_for(servers: str, acks: str) -> None:
    create_topic(servers, "orders")

    send(plain_producer(servers, acks=acks), "orders", [b"one", b"two"])

    assert read_all(servers, "orders") == [b"one", b"two"]


def _consumer(servers: str, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
