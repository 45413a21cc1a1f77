"""Sends the flights at a steady rate, each once, over restarts of the broker."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from spark.long.rows import PARTITIONS, Record, Years
from support import clients

SETTINGS: Final = {"transactional.id": "long-feed", "linger.ms": 20, "log_level": 0}
PAUSE_S: Final = 0.2


class Feed:
    """A thread that sends one transaction a second.

    Args:
        servers: The cluster.
        topic: The input.
        years: The rows.
        count: Rows in all.
        rate: Rows a second. After an outage it is twice as fast, until it has caught up.
    """

    def __init__(self, servers: str, topic: str, years: Years, count: int, rate: float) -> None:
        self.count = count
        self.sent = 0
        """Rows that are in the input."""
        self.failure: BaseException | None = None
        self._servers = servers
        self._topic = topic
        self._years = years
        self._rate = rate
        self._stop = threading.Event()
        self._producer = self._new_producer()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    @property
    def is_through(self) -> bool:
        """Say whether all rows are in the input."""
        return self.sent >= self.count

    def stop(self) -> None:
        """End the thread after its transaction."""
        self._stop.set()
        self._thread.join(clients.WAIT_S * 2)

    def send(self, records: Sequence[Record]) -> None:
        """Commit records as one transaction, however often the broker restarts meanwhile."""
        while not self._try(records):
            self._stop.wait(PAUSE_S)

    def _run(self) -> None:
        began_s = time.monotonic()
        try:
            while not self.is_through and not self._stop.wait(PAUSE_S):
                due = min(int((time.monotonic() - began_s) * self._rate), self.count)
                end = min(due, self.sent + int(2 * self._rate) + 1)
                if end == self.count or end - self.sent >= self._rate:
                    self.send(list(self._years.send(self.sent, end)))
                    self.sent = end
        except BaseException as error:
            self.failure = error

    def _try(self, records: Iterable[Record]) -> bool:
        """Try once; say whether the records were committed."""
        places = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        before: list[TopicPartition] | None = None
        producer = self._producer
        try:
            before = self._ends(places)
            producer.begin_transaction()
            for record in records:
                producer.produce(self._topic, record.value, partition=record.partition)
            _patiently(producer.commit_transaction)
            return True
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if before is None:
                return False
            if error.txn_requires_abort():
                _patiently(producer.abort_transaction)
                return False
            # Its state is unknown: a new producer ends it, and readers know how.
            self._producer = self._new_producer()
            return any(self._has_records(place) for place in before)

    def _new_producer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self._servers, **SETTINGS})
        _patiently(producer.init_transactions)
        return producer

    def _ends(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        consumer = Consumer(self._settings())
        try:
            return [
                TopicPartition(
                    place.topic,
                    place.partition,
                    consumer.get_watermark_offsets(place, timeout=clients.WAIT_S)[1],
                )
                for place in places
            ]
        finally:
            consumer.close()

    def _has_records(self, place: TopicPartition) -> bool:
        """Say whether a committed record is at or after a place."""
        consumer = Consumer(self._settings())
        try:
            consumer.assign([place])
            while True:
                message = consumer.poll(clients.WAIT_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    return True
                if error.code() == KafkaError._PARTITION_EOF:
                    return False
        finally:
            consumer.close()

    def _settings(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self._servers,
            "group.id": "long-feed",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }


def _patiently(step: Callable[[float], None]) -> None:
    """Do a step of a transaction, again and again while the broker is away.

    Raises:
        KafkaException: repeating it cannot help.
    """
    while True:
        try:
            step(clients.WAIT_S)
            return
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
