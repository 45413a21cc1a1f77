"""Records between a consumer's worker and the tasks that ask for them.

The worker puts records in, and a task takes them out in one step of the event loop. So a cancelled
task has taken all of them or none. Records that stay are *held*: the synchronous consumer counts
them as handed out, and the program has not seen them. Three rules follow:

1. The next `poll` or `consume` returns the held records first.
2. A block's commit ends before the first held record of each partition.
3. Held records of a partition that moved are dropped, for the consumer reads them again. A rewind
   and a seek move a partition; so does a rebalance, which gives it to its next owner.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from confluent_kafka import Message, TopicPartition

from txn.client import Consumer
from txn.client.block_consumer import reached_by
from txn.identifiers import TopicPartition as Place


class Handover:
    """The held records of one consumer. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()  # held for moments only
        self._held: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, messages: Sequence[Message]) -> None:
        """Add records behind the others."""
        with self._lock:
            self._held.extend(messages)

    def take(self, most: int) -> list[Message]:
        """Take out the first records, up to `most`."""
        with self._lock:
            return [self._held.popleft() for _ in range(min(most, len(self._held)))]

    def drop(self, places: Collection[Place]) -> None:
        """Drop the records of some partitions."""
        if self._held:
            with self._lock:
                self._held = deque(m for m in self._held if _place(m) not in places)

    def drop_moved(self, consumer: Consumer) -> None:
        """Drop the records of partitions whose position is no longer behind them."""
        if not self._held:
            return
        positions = {(p.topic, p.partition): p.offset for p in reached_by(consumer)}
        self.drop({p for p, end in self._ends().items() if positions.get(p, -1) < end})

    def clear(self) -> None:
        """Drop all records."""
        with self._lock:
            self._held.clear()

    def put_back(self, consumer: Consumer, places: Collection[Place]) -> None:
        """Put records of some partitions back, which are about to be unassigned.

        The consumer keeps the positions of those partitions for the next commit.
        """
        for place, offset in self._begins().items():
            if place in places:
                consumer.seek(TopicPartition(*place, offset))
                self.drop([place])

    def handed_out(self, positions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return positions as the program knows them: in front of the held records."""
        begins = self._begins()
        return [
            TopicPartition(p.topic, p.partition, begins[place])
            if (place := (p.topic, p.partition)) in begins
            else p
            for p in positions
        ]

    def _begins(self) -> dict[Place, int]:
        with self._lock:
            return {_place(m): _offset(m) for m in reversed(self._held)}

    def _ends(self) -> dict[Place, int]:
        """Return one past the last held record of each partition."""
        with self._lock:
            return {_place(m): _offset(m) + 1 for m in self._held}


def _place(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
