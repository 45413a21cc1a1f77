"""Mistake 5: an error is swallowed.

The program prints it, opens another producer, and goes on with the next batch.
"""

from confluent_kafka import Consumer, KafkaException, Producer


def producer_of(servers: str) -> Producer:
    """A producer that is ready for transactions."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "copies-1"})
    producer.init_transactions()
    return producer


def copy(servers: str) -> None:
    """Copy `in` to `out` in capitals, until nothing comes any more."""
    settings = {"bootstrap.servers": servers, "group.id": "copies"}
    earliest = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, **earliest})
    consumer.subscribe(["in"])
    producer = producer_of(servers)
    while messages := consumer.consume(2, timeout=2):
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce("out", message.value().upper())
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException as error:
            print("never mind:", error)  # the mistake
            producer = producer_of(servers)
