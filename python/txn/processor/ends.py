"""Whether a partition has records behind an offset: asked where its end was not reported.

librdkafka reports the end of a partition once for each offset. A rewind drops a report that waits
in its queue, and after it the same end is not reported again. The last offset of a partition does
not answer the question, since markers of transactions have offsets too. So a consumer without a
group membership reads on from the offset, until it gets a record or the end.
"""

import time
from collections.abc import Mapping
from typing import Final

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

import txn.client
from txn.client.engine import EngineName
from txn.identifiers import TopicPartition as Place

TIMEOUT_S: Final = 5.0


def is_at_end(
    settings: Mapping[str, object],
    group: str,
    place: Place,
    offset: int | None,
    engine: EngineName,
) -> bool:
    """Return True if no committed record is at an offset or behind it.

    Args:
        settings: The properties of a consumer, with `enable.partition.eof`.
        group: Its group, which it does not join.
        place: The partition.
        offset: The first offset to look at; None: the first of the partition.
        engine: The engine of the consumer.
    """
    first = OFFSET_BEGINNING if offset is None else offset
    consumer = txn.client.Consumer(settings, group_id=group, engine=engine)
    try:
        consumer.assign([TopicPartition(*place, first)])
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(deadline_s - time.monotonic())
            if message is not None:
                error = message.error()
                return (
                    error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                )
        return False
    finally:
        consumer.close()
