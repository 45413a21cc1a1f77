"""Observers from the outside: a follower, the ends of partitions, the readers at the end."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from harnesses.black_box.client import COMMON, row
from harnesses.black_box.events import FOLLOWER, Notebook
from harnesses.black_box.history import CopyStage, History, Partition, ReaderEnd, Row, View
from harnesses.black_box.topics import PARTITIONS, TIMEOUT_MS, partitions

ISOLATIONS = ("read_committed", "read_uncommitted")
CALL_S = 5.0
STILL_S = 60.0
"""A group that has not moved for so long is stuck."""


class Observer:
    """Watches on two threads until `stop`; then finds out how everything ended."""

    def __init__(self, servers: str, notes: Notebook) -> None:
        self._servers = servers
        self._notes = notes
        self._over = threading.Event()
        self._ends: list[ReaderEnd] = []
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._follow, self._watch_ends)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[ReaderEnd]:
        """Watch no longer; return the ends that were seen. Raises its exception."""
        self._over.set()
        for thread in self._threads:
            thread.join(10 * CALL_S)
        if self._failures:
            raise self._failures[0]
        return self._ends

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self._failures.append(failure)

    def _follow(self) -> None:
        consumer = self._consumer("follower", "read_committed")
        everything = [TopicPartition(*place, OFFSET_BEGINNING) for place in partitions()]
        consumer.assign(everything)
        while not self._over.is_set():
            found = [m for m in consumer.consume(500, timeout=0.1) if m.error() is None]
            if found:
                self._notes.note("reads", reader=FOLLOWER, rows=[row(m) for m in found])
        consumer.close()

    def _watch_ends(self) -> None:
        """Neither the last stable offset nor the end of a partition ever moves back."""
        readers = {isolation: self._consumer("ends", isolation) for isolation in ISOLATIONS}
        while not self._over.wait(0.1):
            for isolation, reader in readers.items():
                for place in partitions():
                    offset = _end(reader, place)
                    if offset is not None:
                        self._ends.append(
                            ReaderEnd("watcher", time.monotonic(), isolation, place, offset)
                        )
        for reader in readers.values():
            reader.close()

    # ------------------------------------------------------------ the end

    def await_stable(self, topic: str) -> dict[Partition, tuple[int, int]]:
        """Wait until no transaction is open in a topic; return where one stays open too long."""
        readers = [self._consumer("ends", isolation) for isolation in ISOLATIONS]
        deadline = time.monotonic() + 3 * TIMEOUT_MS / 1000 + 30
        stuck = {}
        for index in range(PARTITIONS):
            while True:
                stable, end = (_end(reader, (topic, index)) for reader in readers)
                if stable is not None and stable == end:
                    break
                if time.monotonic() > deadline:
                    stuck[topic, index] = (stable or 0, end or 0)
                    break
                time.sleep(0.05)
        for reader in readers:
            reader.close()
        return stuck

    def await_copied(self, stage: CopyStage, keep_up: Callable[[], None]) -> None:
        """Wait until a group has come to the end of its source, or stood still for `STILL_S`.

        Args:
            stage: Whose group.
            keep_up: Called now and then; to start copiers that have ended.
        """
        view = self.read("read_committed")
        last = {index: _last_offset(view[stage.source, index]) for index in range(PARTITIONS)}
        before: dict[tuple[str, Partition], int] = {}
        while True:
            at = self.group_offsets(stage)
            if at != before:
                before, deadline = at, time.monotonic() + STILL_S
            is_there = all(at[stage.group, (stage.source, n)] > last[n] for n in last)
            if is_there or time.monotonic() > deadline:
                return
            keep_up()
            time.sleep(0.2)

    def conclude(self, history: History, stages: Sequence[CopyStage]) -> None:
        """Put the state at the end into a history."""
        history.committed = self.read("read_committed")
        history.uncommitted = self.read("read_uncommitted")
        history.stages = list(stages)
        for stage in stages:
            history.group_offsets |= self.group_offsets(stage)

    def group_offsets(self, stage: CopyStage) -> dict[tuple[str, Partition], int]:
        """Where a group is; 0 where it has committed nothing."""
        reader = self._consumer(stage.group, "read_committed")
        wanted = [TopicPartition(stage.source, index) for index in range(PARTITIONS)]
        try:
            found = _insist(lambda: reader.committed(wanted, timeout=CALL_S))
        finally:
            reader.close()
        return {
            (stage.group, (place.topic, place.partition)): (
                0 if place.offset == OFFSET_INVALID else place.offset
            )
            for place in found
        }

    def read(self, isolation: str) -> View:
        """Everything that a reader of this isolation level finds."""
        view: dict[Partition, list[Row]] = {place: [] for place in partitions()}
        reader = self._consumer("final", isolation, **{"enable.partition.eof": True})
        reader.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in view])
        left = set(view)
        while left:
            message = reader.poll(30.0)
            assert message is not None, f"no answer while reading {sorted(left)}"
            error = message.error()
            if error is None:
                topic, partition, offset, key, value = row(message)
                view[topic, partition].append((offset, key, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic() or "", message.partition() or 0))
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
        reader.close()
        return view

    def _consumer(self, group: str, isolation: str, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": group,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **COMMON,
                **settings,
            }
        )


def _last_offset(rows: list[Row]) -> int:
    return rows[-1][0] if rows else -1


def _end(reader: Consumer, partition: Partition) -> int | None:
    """The end a reader may see; None while there is no broker to say."""
    try:
        found = reader.get_watermark_offsets(TopicPartition(*partition), timeout=2.0)
    except KafkaException:
        return None
    return None if found is None else found[1]


def _insist(call: Callable[[], Any]) -> Any:
    for _ in range(10):
        try:
            return call()
        except KafkaException as failure:
            last = failure
    raise last
