"""Partitions of a group's member begin at the committed offset, and never at a guess.

While a transaction holds a group's offsets pending, a broker answers OffsetFetch with
UNSTABLE_OFFSET_COMMIT, and librdkafka asks again. If the assignment changes meanwhile, librdkafka
2.16 mistakes that answer for the absence of an offset. It begins the partition at
`auto.offset.reset`: records are read again, or skipped.

So txn asks in place of librdkafka. If the program gives no offset for a partition, it is assigned
at its committed offset. If that is not known within `ASK_S`, the partition is held back: it is
assigned at `HOLD` and paused, and later polls ask again. As in librdkafka, one pending offset
holds back all partitions of the same assignment.

A partition without a committed and without a pending offset begins at `auto.offset.reset`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from txn.client.failures import error_of, translate
from txn.errors import RetriableError
from txn.identifiers import TopicPartition as Place

ASK_S: Final = 1.0
"""Longest wait for committed offsets; Ctrl-C is heard between two of them."""

ASK_AGAIN_S: Final = 4.0
"""Longest time between two questions. librdkafka repeats each by itself, until it is answered."""

SEEK_AGAIN_S: Final = 0.1
"""Time that librdkafka may need to start a partition that it is still stopping."""

HOLD: Final = 0
"""A number needs no look-up, whose late answer could move a partition that was sought meanwhile."""

NO_OFFSET: Final = (OFFSET_INVALID, OFFSET_STORED)
"""The offsets of a partition for which the program names none."""

NOT_FETCHED: Final = frozenset(
    {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._UNKNOWN_PARTITION}
)
"""The answer of a seek to a partition that comes or goes."""


class Beginnings:
    """Holds back assigned partitions until their committed offsets are known.

    Args:
        consumer: A member of a group. Its own methods are called, not those of a subclass.
        settings: Its configuration, by librdkafka's names.
        report: Takes an error that does not pass by waiting.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        consumer: Consumer,
        settings: Mapping[str, object],
        report: Callable[[KafkaError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._report = report
        self._clock = clock
        strategy = str(settings.get("partition.assignment.strategy", ""))
        protocol = str(settings.get("group.protocol", ""))
        self._is_incremental = "cooperative" in strategy or protocol.lower() == "consumer"
        self._held: dict[Place, TopicPartition] = {}
        self._paused: set[Place] = set()  # by the program
        self._next_s = 0.0
        self._gap_s = 0.0

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign the partitions of a rebalance. An interrupt holds them back."""
        try:
            self._assign(partitions, ask=True)
        except KafkaException:
            raise
        except BaseException:
            with suppress(KafkaException):  # it may be done already
                self._assign(partitions, ask=False)
            raise

    def _assign(self, partitions: list[TopicPartition], *, ask: bool) -> None:
        with self.holding(partitions, ask=ask) as begins:
            if self._is_incremental:
                Consumer.incremental_assign(self._consumer, begins)
            else:
                Consumer.assign(self._consumer, begins)

    @contextmanager
    def holding(
        self, partitions: list[TopicPartition], *, ask: bool
    ) -> Iterator[list[TopicPartition]]:
        """Yield what to assign for partitions, and hold back those that cannot begin yet.

        Args:
            partitions: What the program or its group wants to be assigned.
            ask: Whether to wait for committed offsets here. The next poll asks if not.
        """
        offsetless = [each for each in partitions if each.offset in NO_OFFSET]
        known = self._committed(offsetless) if ask and offsetless else {}
        held = [each for each in offsetless if _place(each) not in known]
        yield [
            *(each for each in partitions if each.offset not in NO_OFFSET),
            *known.values(),
            *(TopicPartition(each.topic, each.partition, HOLD) for each in held),
        ]
        if held:
            Consumer.pause(self._consumer, held)
            self._held.update({_place(each): each for each in held})
            self._gap_s = ASK_S if ask else 0.0
            self._next_s = self._clock() + self._gap_s

    def due_s(self) -> float:
        """Return the seconds until `ask` is due, or infinity."""
        return max(0.0, self._next_s - self._clock()) if self._held else math.inf

    def ask(self) -> None:
        """If it is due, begin those held back whose offsets are known by now.

        To be called before each poll.
        """
        if self.due_s() > 0:
            return
        known = self._committed(list(self._held.values()))
        for place, begin in known.items():
            self._begin(place, begin)
        self._gap_s = SEEK_AGAIN_S if known else min(max(2 * self._gap_s, ASK_S), ASK_AGAIN_S)
        self._next_s = self._clock() + self._gap_s

    def _begin(self, place: Place, begin: TopicPartition) -> None:
        # librdkafka repeats a look-up of the first or last offset that a resume outdates. The
        # repetition may come behind a later seek, so such a look-up must follow the resume.
        is_looked_up = begin.offset < 0
        if is_looked_up:
            self._resume([begin])
        try:
            Consumer.seek(self._consumer, begin)
        except KafkaException as raised:
            Consumer.pause(self._consumer, [begin])
            if error_of(raised).code() not in NOT_FETCHED:
                self._report(error_of(raised))
            return
        del self._held[place]
        if not is_looked_up:
            self._resume([begin])

    def release(self, places: Iterable[Place]) -> None:
        """Hold partitions back no longer: the program has sought them, or they are gone."""
        self._resume([self._held.pop(place) for place in places if place in self._held])

    def _resume(self, partitions: list[TopicPartition]) -> None:
        if started := [each for each in partitions if _place(each) not in self._paused]:
            Consumer.resume(self._consumer, started)

    def note_paused(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember that the program has paused partitions."""
        self._paused.update(map(_place, partitions))

    def note_resumed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Remember that the program resumes partitions; return those that are not held back."""
        self._paused.difference_update(map(_place, partitions))
        return [each for each in partitions if _place(each) not in self._held]

    def _committed(self, partitions: list[TopicPartition]) -> dict[Place, TopicPartition]:
        """Return where partitions begin; those are missing whose offset is not known."""
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        errors = []
        found = []
        try:
            for each in Consumer.committed(self._consumer, asked, ASK_S):
                if each.error is None:
                    found.append(each)
                else:
                    errors.append(each.error)
        except KafkaException as raised:
            errors.append(error_of(raised))
        for error in errors:
            failure = translate(error, whose="the consumer", doing="asking what is committed")
            if not isinstance(failure, RetriableError):
                self._report(error)
        return {_place(each): each for each in found}


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition
