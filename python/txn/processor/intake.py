"""The consumer's side of a worker: records that are due, records held, and what a rebalance took.

A record that is handed out and cannot be handled yet is *held*: in memory, in its order, with its
partition paused. That is so for a delayed retry that is not due, for a record that came while the
handler was at work, and for the second half of a batch that failed. Its offset is not committed, so
nothing is lost with the process. A rewind forgets all that is held, and the consumer returns it
again.

Everything happens on one thread, the worker's. Rebalances are seen in `poll` alone.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

import txn.client
from txn.identifiers import TopicPartition as Place
from txn.processor.letters import due_ms
from txn.processor.records import offset_of, place_of, record_of

BEAT_S: Final = 0.2
"""Seconds of one poll while partitions are paused."""

ASK_S: Final = 1.0
ASK_TIMEOUT_S: Final = 5.0


class Intake:
    """Hands out records in batches.

    Args:
        consumer: Subscribed here; it has `enable.partition.eof`.
        topics: Input topics.
        delayed: Retry topics, whose records have a time at which they are due.
        now_ms: The clock of due times, milliseconds since 1970.
        note_end: Called with a partition, and whether the consumer has reached its end.
        knows_end: Whether a partition was read to its end, and nothing was written to it since.
        ask_end: Asks whether a partition has nothing at an offset or behind it, for one whose end
            is not reported; None: nobody waits for ends.
    """

    def __init__(
        self,
        consumer: txn.client.Consumer,
        topics: Sequence[str],
        delayed: Collection[str],
        now_ms: Callable[[], int],
        note_end: Callable[[Place, bool], None],
        knows_end: Callable[[Place], bool],
        ask_end: Callable[[Place, int | None], bool] | None,
    ) -> None:
        self.consumer = consumer
        self._knows_end = knows_end
        self._ask_end = ask_end
        self._asked_s = self._handed_out_s = time.monotonic()
        self._delayed = delayed
        self._now_ms = now_ms
        self._note_end = note_end
        self._held: dict[Place, deque[Message]] = {}
        self._next: dict[Place, int] = {}  # one past the last record handed out
        self._at_end: set[Place] = set()
        self._paused: set[Place] = set()
        self._taken: set[Place] = set()  # of the batch under way
        self._lost: set[Place] = set()
        consumer.subscribe(
            [*topics, *delayed],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    @property
    def has_lost(self) -> bool:
        """True if a rebalance took a partition with records handed out: rewind."""
        return bool(self._lost)

    @property
    def is_drained(self) -> bool:
        """True if nothing is held, and each assigned partition was read to its end."""
        return not self._held and self._at_end >= self._next.keys()

    def take(self, count: int, wait_s: float, fill_s: float) -> list[Message]:
        """Return up to `count` records that are due.

        Args:
            count: The most records.
            wait_s: Seconds to wait for a first record.
            fill_s: Seconds to wait for the others.
        """
        self._taken.clear()
        batch = self._due(count)
        self._taken.update(map(place_of, batch))
        if len(batch) < count:
            first = self.consumer.poll(0 if batch else wait_s)
            if first is not None:
                self._taken.add(place_of(first))
                more = self.consumer.consume(count - len(batch) - 1, fill_s)
                self._accept([first, *more], batch)
        self._taken.update(map(place_of, batch))
        return batch

    def ask_ends(self) -> None:
        """Ask for ends that were not reported, if nothing has come for a while."""
        now_s = time.monotonic()
        if self._ask_end is None or now_s < ASK_S + max(self._asked_s, self._handed_out_s):
            return
        self._asked_s = now_s
        for place, following in self._next.items():
            if place in self._held or self._knows_end(place):
                continue
            try:
                offset = following if following >= 0 else self._committed(place)
            except KafkaException:
                continue  # asked again later
            if self._ask_end(place, offset):
                self._at_end.add(place)
                self._note_end(place, True)

    def beat(self) -> None:
        """Poll with every partition paused: a member that polls stays in its group."""
        self._pause(self.consumer.assignment())
        message = self.consumer.poll(BEAT_S)
        if message is not None:
            self._accept([message], None)

    def go_on(self) -> None:
        """Resume partitions that nothing is held of."""
        self._resume(self._paused - self._held.keys())

    def put_back(self, batch: Sequence[Message]) -> None:
        """Hold a batch again: `take` returns its records next."""
        for message in reversed(batch):
            self._held.setdefault(place_of(message), deque()).appendleft(message)
        self._pause([TopicPartition(*place) for place in self._held])

    def rewind(self, timeout: float) -> None:
        """Return to the committed offsets, and forget what is held. Raises TxnError."""
        for place in self._taken | self._held.keys():  # others stay where they are, at their end
            self._left_end(place)
        self._held.clear()
        self._lost.clear()
        self._taken.clear()
        self._resume(set(self._paused))
        txn.client.rewind(self.consumer, timeout)

    def lag(self) -> int:
        """Return the records of assigned partitions that are not handed out yet, as far as known.

        Held records count too. Asks no broker.
        """
        behind = sum(map(len, self._held.values()))
        for place, following in self._next.items():
            if place in self._at_end:
                continue
            try:
                _, high = self.consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            except KafkaException:
                continue
            behind += max(0, high - following) if following >= 0 else max(0, high)
        return behind

    def _committed(self, place: Place) -> int | None:
        (found,) = self.consumer.committed([TopicPartition(*place)], ASK_TIMEOUT_S)
        return found.offset if found.offset >= 0 else None

    def _due(self, count: int) -> list[Message]:
        batch: list[Message] = []
        for place, held in list(self._held.items()):
            while held and len(batch) < count and self._is_due(held[0]):
                batch.append(held.popleft())
            if not held:
                del self._held[place]
        self.go_on()
        return batch

    def _is_due(self, message: Message) -> bool:
        if message.topic() not in self._delayed:
            return True
        return due_ms(record_of(message).headers) <= self._now_ms()

    def _accept(self, messages: Iterable[Message], batch: list[Message] | None) -> None:
        """Sort messages into a batch, or hold them; without a batch hold all."""
        held = False
        for message in messages:
            place = place_of(message)
            if message.error() is not None:  # the end of a partition
                self._at_end.add(place)
                self._note_end(place, True)
                continue
            self._left_end(place)
            self._handed_out_s = time.monotonic()
            self._next[place] = offset_of(message) + 1
            if batch is not None and place not in self._held and self._is_due(message):
                batch.append(message)
            else:
                self._held.setdefault(place, deque()).append(message)
                held = True
        if held:
            self._pause([TopicPartition(*place) for place in self._held])

    def _left_end(self, place: Place) -> None:
        if place in self._at_end:
            self._at_end.discard(place)
            self._note_end(place, False)

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = {(p.topic, p.partition) for p in self.consumer.assignment()}
        places = {(p.topic, p.partition) for p in partitions} & assigned - self._paused
        if places:
            self.consumer.pause([TopicPartition(*place) for place in places])
            self._paused |= places

    def _resume(self, places: set[Place]) -> None:
        if places:
            self.consumer.resume([TopicPartition(*place) for place in places])
            self._paused -= places

    def _assigned(self, _: confluent_kafka.Consumer, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._next[each.topic, each.partition] = -1

    def _revoked(self, _: confluent_kafka.Consumer, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            place = each.topic, each.partition
            if place in self._taken or place in self._held:
                self._lost.add(place)
            self._left_end(place)
            self._held.pop(place, None)
            self._next.pop(place, None)
            self._paused.discard(place)
