"""One client on librdkafka, as a process: a writer, a plain producer or a copier.

    python -m harnesses.black_box.client ROLE NAME --servers … --notes FILE --seed N [--stage …]

It ends when told to by SIGTERM, or with exit code 3 by an error after which a program would be
restarted: its runner starts it again, which takes its transactional id over. All its knowledge is
in its notes.
"""

import argparse
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from harnesses.black_box.events import Notebook
from harnesses.black_box.history import CopyStage, copy_of
from harnesses.black_box.topics import KEYS, PARTITIONS, SOURCE, STAGES, TIMEOUT_MS, TOPICS

CALL_S = 12.0
"""After it, a call is given up."""

OFFSETS_S = 4.0
"""After it, sending offsets is given up; after half as much again, the client with it. librdkafka
may wait for the group's coordinator without looking at the timeout (its issue 5456)."""

GAVE_UP = 3
"""Exit code of a client that a broker's answer, or none, has ended."""

COMMON: dict[str, Any] = {
    "log_level": 0,
    "topic.metadata.refresh.interval.ms": 5_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
}
"""The parameters of every client of a run."""


class RoleClient:
    """The common part of all roles: the notes, the seed's choices, the end."""

    def __init__(self, name: str, servers: str, notes: Notebook, seed: int) -> None:
        self.name = name
        self.servers = servers
        self.notes = notes
        self.chance = random.Random(seed)
        self.over = threading.Event()
        self._born = f"{name}#{os.getpid()}"
        self._instances = itertools.count(1)
        self._attempts = itertools.count(1)
        self._values = itertools.count(1)

    def instance(self) -> "tuple[Producer, str]":
        """Take the transactional id over; return the producer and its instance's name."""
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TIMEOUT_MS}
        producer = self.producer(**settings)
        name = f"{self._born}.{next(self._instances)}"
        asked_s = time.monotonic()
        insist(producer.init_transactions, self.over)
        self.notes.note("instance", id=self.name, instance=name, asked=asked_s)
        return producer, name

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 0, **COMMON, **settings})

    def consumer(self, group: str, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **COMMON,
                **settings,
            }
        )

    def begin(self, producer: Producer, instance: str) -> "RunningTransaction":
        name = f"{instance}/{next(self._attempts)}"
        self.notes.note("begin", attempt=name, id=self.name, instance=instance)
        producer.begin_transaction()
        return RunningTransaction(self, producer, name)

    def value(self) -> str:
        return f"{self._born}:{next(self._values)}"

    def send(
        self, by: Producer, place: tuple[str, int], key: str, value: str, **sender: str
    ) -> bool:
        """Send a record; say whether the client took it. One that has failed takes no more."""
        topic, partition = place
        self.notes.note("send", topic=topic, partition=partition, key=key, value=value, **sender)

        def settle(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.notes.note("ack", value=value, offset=message.offset())

        while True:
            try:
                by.produce(topic, value=value, key=key, partition=partition, on_delivery=settle)
            except BufferError:
                by.poll(0.1)
            except KafkaException:
                self.notes.note("unsent", value=value)
                return False
            else:
                return True

    def read(self, consumer: Consumer, count: int, timeout_s: float) -> list[Message]:
        """Take the records shown to a consumer, and note them."""
        found = [m for m in consumer.consume(count, timeout=timeout_s) if m.error() is None]
        if found:
            self.notes.note("reads", reader=self._born, rows=[row(message) for message in found])
        return found

    def leave_if_fenced(self, attempt: "RunningTransaction") -> None:
        """Leave the transactional id to the instance that has taken it over."""
        if attempt.is_fenced:
            give_up(self, "another instance has taken over")

    def run(self) -> None:
        """Do the role's work until told to stop."""
        raise NotImplementedError


class RunningTransaction:
    """One transaction under way."""

    def __init__(self, client: RoleClient, producer: Producer, name: str) -> None:
        self.name = name
        self.is_committed = False
        self.is_fenced = False
        self._client = client
        self._producer = producer

    def send(self, place: tuple[str, int], key: str, value: str) -> bool:
        return self._client.send(self._producer, place, key, value, attempt=self.name)

    def commit(self) -> bool:
        """Commit; if that asks for an abort, abort. Say whether the producer may go on."""
        failure = self._end("commit", self._producer.commit_transaction)
        self.is_committed = failure is None
        if failure is None:
            return True
        return failure.args[0].txn_requires_abort() and self.abort()

    def abort(self) -> bool:
        """Abort; say whether the producer may go on."""
        return self._end("abort", self._producer.abort_transaction) is None

    def _end(self, what: str, call: Callable[[float], object]) -> KafkaException | None:
        self._client.notes.note("ask", attempt=self.name, what=what)
        try:
            insist(call, self._client.over)
        except KafkaException as failure:
            self.is_fenced = failure.args[0].fatal()
            self._client.notes.note("end", attempt=self.name, what=what, error=str(failure))
            return failure
        self._client.notes.note("end", attempt=self.name, what=what, error=None)
        return None


class TransactionalWriter(RoleClient):
    """Transactions of 1–4 sends and polls, one after the other, ended in every way."""

    def run(self) -> None:
        producer, instance = self.instance()
        consumer = self.consumer(f"readers-{self.name}", **{"session.timeout.ms": 6_000})
        self._place(consumer)
        while not self.over.is_set():
            attempt = self.begin(producer, instance)
            for _ in range(self.chance.randint(1, 4)):
                self._operate(producer, consumer, attempt)
            if self.chance.random() < 0.1:
                self._place(consumer)
            ways = (self._commit, self._abort, self._abandon, self._outwait, self._lose, self._race)
            end = self.chance.choices(ways, (60, 24, 3, 1, 6, 6))[0]
            if not end(producer, attempt):
                if end not in (self._lose, self._race):
                    self.leave_if_fenced(attempt)
                producer, instance = self.instance()
        # Only its timeout will end a transaction that is left open now.
        attempt = self.begin(producer, instance)
        attempt.send((SOURCE, 0), KEYS[0], self.value())
        producer.flush(CALL_S)

    def _place(self, consumer: Consumer) -> None:
        """Read on by subscription or by assignment, from the beginning or where it was."""
        if self.chance.random() < 0.3:
            consumer.subscribe([SOURCE])
            return
        consumer.unsubscribe()
        topic = self.chance.choice(TOPICS)
        some = self.chance.sample(range(PARTITIONS), self.chance.randint(1, PARTITIONS))
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in some])

    def _operate(self, producer: Producer, consumer: Consumer, attempt: RunningTransaction) -> None:
        if self.chance.random() < 0.25:
            self.read(consumer, self.chance.randint(1, 100), self.chance.choice((0.0, 0.02)))
            return
        key = self.chance.choice(KEYS)
        attempt.send((SOURCE, KEYS.index(key) % PARTITIONS), key, self.value())
        if self.chance.random() < 0.2:
            producer.flush(self.chance.uniform(0.0, 0.2))

    # ------------------------------------------------------------ ways to end; True: go on with it

    def _commit(self, _: Producer, attempt: RunningTransaction) -> bool:
        return attempt.commit()

    def _abort(self, _: Producer, attempt: RunningTransaction) -> bool:
        return attempt.abort()

    def _abandon(self, _: Producer, __: RunningTransaction) -> bool:
        return False

    def _outwait(self, _: Producer, attempt: RunningTransaction) -> bool:
        """Commit about when the transaction times out."""
        self.over.wait(TIMEOUT_MS / 1000 * self.chance.uniform(0.8, 1.2))
        return attempt.commit()

    def _lose(self, producer: Producer, attempt: RunningTransaction) -> bool:
        """Go on, and commit, after a second instance has taken over."""
        producer.flush(CALL_S)
        self.instance()
        key = self.chance.choice(KEYS)
        attempt.send((SOURCE, KEYS.index(key) % PARTITIONS), key, self.value())
        attempt.commit()
        return False

    def _race(self, _: Producer, attempt: RunningTransaction) -> bool:
        """Commit while a second instance is taking over."""
        successor = threading.Thread(target=self._take_over)
        successor.start()
        self.over.wait(self.chance.uniform(0.0, 0.02))
        attempt.commit()
        successor.join()
        return False

    def _take_over(self) -> None:
        try:
            self.instance()
        except KafkaException as failure:
            self.notes.note("trouble", client=self.name, what=f"take over: {failure}")


class IdempotentWriter(RoleClient):
    """An idempotent producer without transactions."""

    def run(self) -> None:
        producer = self.producer(**{"enable.idempotence": True})
        while not self.over.is_set():
            for _ in range(self.chance.randrange(1, 20)):
                key = self.chance.choice(KEYS)
                place = SOURCE, KEYS.index(key) % PARTITIONS
                self.send(producer, place, key, self.value(), producer=self._born)
            producer.poll(0)
            self.over.wait(self.chance.uniform(0.0, 0.1))
        producer.flush(2 * CALL_S)


class Copier(RoleClient):
    """Consume, transform, produce; any failure begins anew at the committed offsets."""

    stage: CopyStage

    def run(self) -> None:
        producer, instance = self.instance()
        consumer = self.consumer(self.stage.group, **{"session.timeout.ms": 6_000})
        consumer.subscribe([self.stage.source], on_assign=self._begin_at_committed)
        while not self.over.is_set():
            if not self._copy(consumer, producer, instance):
                consumer.close()
                consumer = self.consumer(self.stage.group, **{"session.timeout.ms": 6_000})
                consumer.subscribe([self.stage.source], on_assign=self._begin_at_committed)
                producer, instance = self.instance()
        consumer.close()

    def _begin_at_committed(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin at the committed offsets, or at the beginning where there are none.

        By itself librdkafka begins anew where a transaction's offsets are pending while the group
        is rebalanced again: it takes UNSTABLE_OFFSET_COMMIT for the absence of an offset.
        """
        while not self.over.is_set():
            try:
                committed = consumer.committed(partitions, timeout=CALL_S)
                if all(each.error is None for each in committed):
                    consumer.assign(committed)
                    return
            except KafkaException as failure:
                self.notes.note("trouble", client=self.name, what=f"committed: {failure}")
            self.over.wait(0.1)
        consumer.assign([])

    def _copy(self, consumer: Consumer, producer: Producer, instance: str) -> bool:
        """Copy the present records; say whether consumer and producer may go on."""
        taken = self.read(consumer, self.chance.randrange(1, 200), 0.1)
        if not taken:
            return True
        attempt = self.begin(producer, instance)
        positions: dict[int, int] = {}
        for message in taken:
            _, partition, offset, key, value = row(message)
            attempt.send((self.stage.sink, partition), key, copy_of(value, attempt.name))
            positions[partition] = offset + 1
        if not self._send_offsets(producer, consumer, positions):
            attempt.abort()
        elif self.over.is_set() or self.chance.random() < 0.8:
            if attempt.commit() and attempt.is_committed:
                return True  # where it was aborted, the consumer has to go back
        elif self.chance.random() < 0.7:
            attempt.abort()
        self.leave_if_fenced(attempt)
        return False

    def _send_offsets(
        self, producer: Producer, consumer: Consumer, positions: dict[int, int]
    ) -> bool:
        """Send the group's offsets to the transaction; say whether they were taken."""
        offsets = [TopicPartition(self.stage.source, *each) for each in positions.items()]
        group = consumer.consumer_group_metadata()
        taken: list[bool] = []

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(offsets, group, OFFSETS_S)
                taken.append(True)
            except KafkaException as failure:
                self.notes.note("trouble", client=self.name, what=f"offsets: {failure}")
                taken.append(False)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(1.5 * OFFSETS_S)
        if not taken:
            give_up(self, "send_offsets_to_transaction does not come back")
        return taken[0]


def insist(call: Callable[[float], object], over: threading.Event) -> None:
    """Call again while librdkafka says that it may be tried again, a few times at the end."""
    tries_left = 3
    while True:
        try:
            call(CALL_S)
            return
        except KafkaException as failure:
            tries_left -= over.is_set()
            if not failure.args[0].retriable() or tries_left == 0:
                raise


def row(message: Message) -> tuple[str, int, int, str, str]:
    """(topic, partition, offset, key, value) of a record."""
    key, value = message.key() or b"", message.value() or b""
    return (
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        key.decode(),
        value.decode(),
    )


def end_on_sigterm(client: RoleClient) -> None:
    """Wait for SIGTERM, then let the client come to its end."""
    signal.sigwait({signal.SIGTERM})
    client.over.set()


def give_up(client: RoleClient, why: str) -> NoReturn:
    """End like a program that a watchdog kills: librdkafka's threads may hang."""
    client.notes.note("trouble", client=client.name, what=why)
    os._exit(GAVE_UP)


ROLES: dict[str, type[RoleClient]] = {
    "writer": TransactionalWriter,
    "plain": IdempotentWriter,
    "copier": Copier,
}


def main() -> NoReturn:
    """Run one client until SIGTERM or an error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("name")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--notes", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--stage", type=int, default=0, help="which stage a copier works on")
    options = parser.parse_args()
    notes = Notebook(options.notes)
    client = ROLES[options.role](options.name, options.servers, notes, options.seed)
    if isinstance(client, Copier):
        client.stage = STAGES[options.stage]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who runs this
    # A handler may run inside confluent-kafka while it raises, which Python answers with
    # SystemError; so SIGTERM is waited for by a thread, and blocked in all others.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=end_on_sigterm, args=(client,), daemon=True).start()
    try:
        client.run()
    except KafkaException as failure:
        give_up(client, f"stopped by {failure}")
    os._exit(0)  # destroying an abandoned producer could wait for a broker that is gone


if __name__ == "__main__":
    main()
