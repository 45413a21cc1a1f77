"""Mistake 3: two transactional ids write for one partition.

Each instance has an id of its own and takes partition 0 by hand. So nothing fences an instance
that stood still while another one took over.
"""

import os

from confluent_kafka import Consumer, Producer, TopicPartition


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
    consumer.assign([TopicPartition("in", 0)])
    transactional_id = f"copies-{os.getpid()}"  # the mistake
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions()
    while messages := consumer.consume(2, timeout=2):
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value().upper())
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
