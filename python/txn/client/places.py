"""Partitions of a consumer: their positions, their places and their names."""

from collections.abc import Iterable

import confluent_kafka
from confluent_kafka import TopicPartition

from txn.identifiers import TopicPartition as Place


def positions_of(
    consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
) -> list[TopicPartition]:
    """The valid positions of a consumer.

    One is invalid after an assignment or a seek, until a record is handed out.
    """
    return [p for p in consumer.position(partitions) if p.error is None and p.offset >= 0]


def places_of(partitions: Iterable[TopicPartition]) -> frozenset[Place]:
    """The places of some partitions, without their offsets."""
    return frozenset((p.topic, p.partition) for p in partitions)


def names_of(places: Iterable[Place]) -> str:
    """The names of places in order, for a message; "none" if there are none."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "none"
