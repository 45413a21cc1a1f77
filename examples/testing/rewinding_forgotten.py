"""Mistake 2: a transaction is aborted, and the consumer is not rewound.

It stands behind the aborted batch, so the next commit passes over those records.
"""

from confluent_kafka import Consumer, KafkaException, Producer


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
        try:
            for message in messages:
                producer.produce("out", message.value().upper())
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction()  # the mistake: nothing takes the consumer back
