"""One client on `txn.Producer` and `txn.Consumer`, as a process: a writer, a plain one or a copier.

    python -m harnesses.black_box.public_client ROLE NAME --engine native --servers … --notes FILE …

It does the work of `client.py` by txn's public classes, with the engine that it is given. So the
blocks of transactions, their rewinds, and the `action` of their errors are checked, too.
"""

import argparse
import itertools
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

import txn
from harnesses.black_box.client import CALL_S, GAVE_UP, row
from harnesses.black_box.events import Notebook
from harnesses.black_box.history import CopyStage, copy_of
from harnesses.black_box.topics import KEYS, PARTITIONS, SOURCE, STAGES, TIMEOUT_MS, TOPICS
from txn.client.delivery import RecordMetadata
from txn.client.engine import ENGINES, EngineName
from txn.client.transaction import BlockResult, Transaction

PAUSE_S: Final = 0.1
"""Pause after an error whose action is to try again."""

WHOLE_S: Final = 15.0
"""Time for the plain producer's last records at the end."""


class _AbortError(Exception):
    """Raised in a block to abort its transaction."""


class PublicClient:
    """The common part of all roles: the notes, the seed's choices, the producers.

    Args:
        name: The transactional id; unique in a run.
        servers: The proxy.
        engine: The engine of producers and consumers.
        notes: Where everything is written.
        seed: Settles the choices.
    """

    def __init__(
        self, name: str, servers: str, engine: EngineName, notes: Notebook, seed: int
    ) -> None:
        self.name = name
        self.notes = notes
        self.chance = random.Random(seed)
        self.over = threading.Event()
        self._servers = servers
        self._engine: EngineName = engine
        self._born = f"{name}#{os.getpid()}"
        self._instances = itertools.count(1)
        self._attempts = itertools.count(1)
        self._values = itertools.count(1)
        self._abandoned: list[object] = []

    def run(self) -> None:
        """Do the role's work until told to stop."""
        raise NotImplementedError

    # ------------------------------------------------------------ clients

    def producer(self, **settings: Any) -> txn.Producer:
        return txn.Producer(
            bootstrap_servers=self._servers,
            engine=self._engine,
            connect_timeout=CALL_S,
            linger_ms=0,
            **settings,
        )

    def instance(self) -> tuple[txn.Producer, str]:
        """Take the transactional id over; return the producer and its instance's name."""
        name = f"{self._born}.{next(self._instances)}"
        tries_left = 3
        while True:
            asked_s = time.monotonic()
            try:
                producer = self.producer(
                    transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, timeout=CALL_S
                )
            except txn.TxnError as error:
                tries_left -= self.over.is_set()
                if error.action is txn.Action.GIVE_UP or tries_left == 0:
                    self.give_up(f"it cannot be opened: {error}")
                self.trouble("open", error)
                self.over.wait(PAUSE_S)
            else:
                self.notes.note("instance", id=self.name, instance=name, asked=asked_s)
                return producer, name

    def consumer(self, group: str) -> txn.Consumer:
        return txn.Consumer(
            bootstrap_servers=self._servers,
            group_id=group,
            engine=self._engine,
            connect_timeout=CALL_S,
            auto_offset_reset="earliest",
            group_protocol="classic",
            session_timeout_ms=6_000,
        )

    def read(self, consumer: txn.Consumer, count: int, timeout_s: float) -> list[Message]:
        """Return the records shown to a consumer, and note them."""
        found = consumer.consume(count, timeout=timeout_s)
        if found:
            self.notes.note("reads", reader=self._born, rows=[row(message) for message in found])
        return found

    # ------------------------------------------------------------ records

    def value(self) -> str:
        return f"{self._born}:{next(self._values)}"

    def place(self) -> tuple[str, int]:
        """Return a key and its partition of the source."""
        key = self.chance.choice(KEYS)
        return key, KEYS.index(key) % PARTITIONS

    def acked(self, value: str) -> Callable[[txn.TxnError | None, RecordMetadata | None], None]:
        """Return the callback that notes the offset of a record."""

        def note(_: txn.TxnError | None, stored: RecordMetadata | None) -> None:
            if stored is not None and stored.offset >= 0:
                self.notes.note("ack", value=value, offset=stored.offset)

        return note

    # ------------------------------------------------------------ ends

    def keep(self, *objects: object) -> None:
        """Keep what is abandoned from being closed as garbage."""
        self._abandoned += objects

    def next_attempt(self, instance: str) -> str:
        name = f"{instance}/{next(self._attempts)}"
        self.notes.note("begin", attempt=name, id=self.name, instance=instance)
        return name

    def trouble(self, what: str, error: object) -> None:
        self.notes.note("trouble", client=self.name, what=f"{what}: {error}")

    def give_up(self, why: str) -> NoReturn:
        """End like a program whose error says so; its runner starts another."""
        self.trouble("gave up", why)
        os._exit(GAVE_UP)


class Block:
    """One transaction of a producer, with its notes."""

    def __init__(
        self, client: PublicClient, producer: txn.Producer, instance: str, consumer: Any = None
    ) -> None:
        self._client = client
        self._instance = instance
        self._open: Transaction = producer.transaction(consumer, CALL_S)
        self._name: str | None = None
        self._is_commit = False

    @property
    def name(self) -> str:
        """Its name in the notes, which begin with its first record."""
        if self._name is None:
            self._name = self._client.next_attempt(self._instance)
        return self._name

    def send(self, topic: str, key: str, partition: int, value: str) -> None:
        client = self._client
        client.notes.note(
            *("send",), topic=topic, partition=partition, key=key, value=value, attempt=self.name
        )
        self._open.send(topic, value, key, partition=partition, on_delivery=client.acked(value))

    def run(self, work: "Callable[[Block], bool]") -> txn.TxnError | None:
        """Run a block whose work says whether to commit; return the error of its end.

        None also stands for an abort that was wanted.
        """
        failure: txn.TxnError | None = None
        try:
            with self._open:
                self._is_commit = work(self)
                if self._name is not None:
                    what = "commit" if self._is_commit else "abort"
                    self._client.notes.note("ask", attempt=self._name, what=what)
                if not self._is_commit:
                    raise _AbortError
        except _AbortError:
            pass
        except txn.TxnError as error:
            failure = error
        if self._name is not None:
            self._note_end(failure)
        return failure

    def leave_open(self, send: "Callable[[Block], None]") -> None:
        """Begin, send a record, and never end."""
        try:
            self._open.__enter__()
            send(self)
        except txn.TxnError as error:
            self._client.trouble("abandoned", error)

    def _note_end(self, failure: txn.TxnError | None) -> None:
        def end(what: str, error: object) -> None:
            text = None if error is None else str(error)
            self._client.notes.note("end", attempt=self._name, what=what, error=text)

        if failure is not None:
            end("commit" if self._is_commit else "abort", failure)
        if self._open.result is BlockResult.COMMITTED:
            end("commit", None)
        elif self._open.result is BlockResult.ABORTED:
            end("abort", None)


class Writer(PublicClient):
    """Transactions of 1–4 sends and reads, one after the other, ended in every way."""

    def run(self) -> None:
        producer, instance = self.instance()
        consumer = self.consumer(f"readers-{self.name}")
        self._place(consumer)
        while not self.over.is_set():
            ways = (self._commit, self._abort, self._outwait, self._lose, self._race)
            end = self.chance.choices(ways, (60, 24, 1, 6, 6))[0]
            block = Block(self, producer, instance)
            if self.chance.random() < 0.03:
                self._abandon(producer, block)
                producer, instance = self.instance()
                continue
            failure = block.run(partial(self._work, consumer, end))
            is_taken_over = end in (self._lose, self._race)
            if failure is None and not is_taken_over:
                continue
            if failure is not None and not is_taken_over:
                if failure.action is txn.Action.GIVE_UP:
                    self.give_up(str(failure))
                if failure.action is not txn.Action.REOPEN:
                    self.over.wait(PAUSE_S)
                    continue
            self._close(producer)
            producer, instance = self.instance()
        # Only its timeout will end a transaction that is left open now.
        self._abandon(producer, Block(self, producer, instance))

    def _close(self, producer: txn.Producer) -> None:
        with suppress(txn.TxnError):
            producer.close()

    def _place(self, consumer: txn.Consumer) -> None:
        """Read on by subscription or by assignment, from the beginning or where it was."""
        if self.chance.random() < 0.3:
            consumer.subscribe([SOURCE])
            return
        consumer.unsubscribe()
        topic = self.chance.choice(TOPICS)
        some = self.chance.sample(range(PARTITIONS), self.chance.randint(1, PARTITIONS))
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in some])

    def _work(
        self, consumer: txn.Consumer, end: Callable[[Callable[[], None]], bool], block: Block
    ) -> bool:
        for _ in range(self.chance.randint(1, 4)):
            if self.chance.random() < 0.25:
                try:
                    self.read(
                        consumer, self.chance.randint(1, 100), self.chance.choice((0.0, 0.02))
                    )
                except txn.TxnError as error:
                    self.trouble("read", error)
            else:
                self._send(block)
        if self.chance.random() < 0.1:
            self._place(consumer)
        return end(partial(self._send, block))

    def _send(self, block: Block) -> None:
        key, partition = self.place()
        block.send(SOURCE, key, partition, self.value())

    # ------------------------------------------------------------ ways to end; True: commit

    def _commit(self, _: Callable[[], None]) -> bool:
        return True

    def _abort(self, _: Callable[[], None]) -> bool:
        return False

    def _outwait(self, _: Callable[[], None]) -> bool:
        """Commit about when the transaction times out."""
        self.over.wait(TIMEOUT_MS / 1000 * self.chance.uniform(0.8, 1.2))
        return True

    def _lose(self, send: Callable[[], None]) -> bool:
        """Go on, and commit, after a second instance has taken over."""
        self.keep(self.instance()[0])
        send()
        return True

    def _race(self, _: Callable[[], None]) -> bool:
        """Commit while a second instance is taking over."""
        threading.Thread(target=lambda: self.keep(self.instance()[0]), daemon=True).start()
        self.over.wait(self.chance.uniform(0.0, 0.02))
        return True

    def _abandon(self, producer: txn.Producer, block: Block) -> None:
        """Leave a transaction open, with its producer."""
        block.leave_open(self._send)
        self.keep(producer, block)


class PlainWriter(PublicClient):
    """An idempotent producer without transactions."""

    def run(self) -> None:
        producer = self.producer()
        while not self.over.is_set():
            for _ in range(self.chance.randrange(1, 20)):
                self._send(producer)
            self.over.wait(self.chance.uniform(0.0, 0.1))
        with suppress(txn.TxnError):
            producer.flush(WHOLE_S)

    def _send(self, producer: txn.Producer) -> None:
        (key, partition), value = self.place(), self.value()
        self.notes.note(
            *("send",), topic=SOURCE, partition=partition, key=key, value=value, producer=self._born
        )
        try:
            producer.send(SOURCE, value, key, partition=partition, on_delivery=self.acked(value))
        except txn.TxnError as error:
            self.notes.note("unsent", value=value)
            if error.action in (txn.Action.GIVE_UP, txn.Action.REOPEN):
                self.give_up(str(error))


class Copier(PublicClient):
    """Consume, transform, produce; any failure goes on as the error's `action` says."""

    stage: CopyStage

    def run(self) -> None:
        producer, instance = self.instance()
        consumer = self.consumer(self.stage.group)
        consumer.subscribe([self.stage.source])
        while not self.over.is_set():
            block = Block(self, producer, instance, consumer)
            failure = block.run(partial(self._copy, consumer))
            if failure is None:
                continue
            self.trouble("block", failure)
            if failure.action is txn.Action.GIVE_UP:
                self.give_up(str(failure))
            if failure.action is txn.Action.REOPEN:
                with suppress(txn.TxnError):
                    producer.close()
                producer, instance = self.instance()
            self.over.wait(PAUSE_S)
        consumer.close()

    def _copy(self, consumer: txn.Consumer, block: Block) -> bool:
        for message in self.read(consumer, self.chance.randrange(1, 200), PAUSE_S):
            _, partition, _, key, value = row(message)
            block.send(self.stage.sink, key, partition, copy_of(value, block.name))
        return self.over.is_set() or self.chance.random() < 0.85


def end_on_sigterm(client: PublicClient) -> None:
    """Wait for SIGTERM, then let the client come to its end."""
    signal.sigwait({signal.SIGTERM})
    client.over.set()


ROLES: Final[dict[str, type[PublicClient]]] = {
    "writer": Writer,
    "plain": PlainWriter,
    "copier": Copier,
}


def main() -> NoReturn:
    """Run one client until SIGTERM or an error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("name")
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--notes", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--stage", type=int, default=0, help="the stage of a copier")
    options = parser.parse_args()
    logging.getLogger("txn.client").setLevel(logging.ERROR)  # a cut is no news here
    client = ROLES[options.role](
        options.name, options.servers, options.engine, Notebook(options.notes), options.seed
    )
    if isinstance(client, Copier):
        client.stage = STAGES[options.stage]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who runs this
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as in `client.py`
    threading.Thread(target=end_on_sigterm, args=(client,), daemon=True).start()
    client.run()
    os._exit(0)  # what was abandoned is left to the broker


if __name__ == "__main__":
    main()
