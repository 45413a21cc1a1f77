"""Checks once that a partition which the program assigned exists, if no record comes from it.

librdkafka waits for ever for a partition that does not exist, and `poll` reports nothing. For the
member of a group, librdkafka itself reports a topic that is missing.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from txn.errors import RetriableError
from txn.identifiers import TopicPartition

LOOK_AFTER_S: Final = 0.5
"""Time without a record after which an assigned partition is looked for."""

LOOK_AGAIN_S: Final = 1.0

LOOK_S: Final = 1.0
"""Longest wait for the answer; Ctrl-C is heard behind it."""


class Existence:
    """Looks for the assigned partitions of one consumer.

    Args:
        consumer: Who lists the topics.
        whose: Which consumer, as a message begins.
        clock: Monotonic seconds.
    """

    def __init__(
        self, consumer: Consumer, whose: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._consumer = consumer
        self._whose = whose
        self._clock = clock
        self._unseen: set[TopicPartition] = set()
        self._next_s = 0.0

    def watch(self, places: Iterable[TopicPartition]) -> None:
        """Look for partitions that the program has assigned."""
        self._unseen.update(places)
        self._next_s = self._clock() + LOOK_AFTER_S

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Look no longer for partitions: a record has come of them, or they are gone."""
        self._unseen.difference_update(places)

    def fault(self) -> RetriableError | None:
        """Look for the partitions, if it is time to; return the error for one that is not there.

        To be called where no record has come.
        """
        if not self._unseen or self._clock() < self._next_s:
            return None
        self._next_s = self._clock() + LOOK_AGAIN_S
        for topic in {topic for topic, _ in self._unseen}:
            try:
                found = self._consumer.list_topics(topic, LOOK_S).topics[topic]
            except (KafkaException, KeyError):  # no answer now
                return None
            if found.error is None or found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing = sorted(
                    p for t, p in self._unseen if t == topic and p not in found.partitions
                )
                if missing:
                    return self._missing(topic, missing[0], len(found.partitions))
        self._unseen.clear()
        return None

    def _missing(self, topic: str, partition: int, count: int) -> RetriableError:
        has = "there is no such topic"
        if count:
            has = f"the topic has {count} partition{'s' if count > 1 else ''}, counted from 0"
        return RetriableError(
            f"{self._whose} is assigned partition {partition} of {topic!r}, which is not there: "
            f"{has}. Correct the assignment, or create it",
            topic=topic,
            partition=partition,
        )
