"""Mistake 1: offsets are committed outside of the transaction.

A crash between the two commits repeats the records, or loses them.
"""

from confluent_kafka import Consumer, Producer


def copy(servers: str) -> None:
    """Copy `in` to `out` in capitals, until nothing comes any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "copies",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "copies-1"})
    producer.init_transactions()
    while messages := consumer.consume(2, timeout=2):
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value().upper())
        producer.commit_transaction()
        consumer.commit(asynchronous=False)  # the mistake
