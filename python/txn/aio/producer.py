"""`txn.aio.Producer`: a `txn.Producer` whose waits are awaited."""

import asyncio
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self

import txn.client
from txn.aio.client import Client
from txn.aio.consumer import Consumer
from txn.aio.transaction import Transaction, require_consumer
from txn.aio.worker import Call
from txn.client.delivery import Delivery, RecordMetadata
from txn.client.engine import EngineName
from txn.client.migration import refuse_unknown_arguments
from txn.client.reach import CONNECT_TIMEOUT
from txn.errors import RejectedError

if TYPE_CHECKING:
    from txn.client.producer import Headers

ROOM_SECONDS: Final = 0.1
"""Longest wait for room in the queue, before a record is tried again."""

RECORDS_PER_TURN: Final = 128
"""After so many records the event loop gets a turn, although there was room."""


class Producer:
    """A `txn.Producer` for asyncio, which belongs to the event loop that opens it.

        async with txn.aio.Producer(bootstrap_servers="...", transactional_id="pay-3") as producer:
            async with producer.transaction(consumer) as t:
                t.produce("out", b"value")

    The constructor does no I/O. Open it by `async with`, or by `await txn.aio.Producer.open(...)`
    and later `await producer.close()`. One thread of its own makes its calls one after the other.
    Callbacks of the settings run in that thread, or in the thread of the event loop.

    One task at a time runs a transaction. Any task of the loop may call its `produce`.

    Args:
        config: Properties by their Kafka names, passed on as they are.
        transactional_id: Property `transactional.id`: names this producer over restarts.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        timeout: Seconds to wait until the transactional id is taken over.
        connect_timeout: Seconds to wait for a first broker, if no address answers.
        engine: As that of `txn.Producer`; None: its default.
        more: Further properties, with `_` for `.`: `linger_ms=5`.

    Raises (at the opening): as `txn.Producer` does.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        transactional_id: str | None = None,
        bootstrap_servers: str | list[str] | None = None,
        timeout: float = 60.0,
        connect_timeout: float = CONNECT_TIMEOUT,
        engine: EngineName | None = None,
        **more: object,
    ) -> None:
        if engine is not None:
            more["engine"] = engine
        connect: Callable[[], txn.client.Producer] = partial(
            txn.client.Producer,
            config,
            transactional_id=transactional_id,
            bootstrap_servers=bootstrap_servers,
            timeout=timeout,
            connect_timeout=connect_timeout,
            **more,  # type: ignore[arg-type]
        )

        def make() -> txn.client.Producer:
            made = connect()
            made._records.waits_for_room = False
            return made

        name = transactional_id or (config or {}).get("transactional.id")
        whose = "the producer" if name is None else f"producer {name!r}"
        self.client: Final = Client("txn.aio.Producer", whose, make)
        self._open: weakref.ref[Transaction] | None = None
        self._room: Call[None] | None = None
        self._added = 0

    @classmethod
    async def open(cls, *args: Any, **more: Any) -> Self:
        """Make a producer and open it. Arguments are those of the class.

        A cancellation ends the opening, and leaves nothing open.
        """
        producer = cls(*args, **more)
        await producer.client.open()
        return producer

    async def __aenter__(self) -> Self:
        await self.client.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except txn.TxnError as failure:
            if error is None:
                raise
            error.add_note(f"Closing {self.client.whose}: {failure}")

    def transaction(self, consumer: Consumer | None = None, timeout: float = 60.0) -> Transaction:
        """Return a transaction for an `async with` statement: begun on entry, ended on exit.

        Arguments and errors are those of `txn.Producer.transaction`. The module
        `txn.aio.transaction` says what a cancellation does.

        Args:
            consumer: The `txn.aio.Consumer` whose offsets to commit with the transaction.
            timeout: Seconds that ending may take, also for a task that was cancelled.
        """
        if consumer is not None:
            require_consumer(consumer)
        return Transaction(self, consumer, timeout)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: "Headers | None" = None,
        partition: int | None = None,
        timestamp: int | None = None,
        **others: Never,
    ) -> None:
        """Send a record outside transactions, as `txn.Producer.produce` does; it never waits.

        Raises:
            BufferError: the queue is full, and the record was not added.
        """
        producer = self.client.sync()
        if others:
            refuse_unknown_arguments(others)
        try:
            producer.produce(
                topic, value, key, headers=headers, partition=partition, timestamp=timestamp
            )
        except BufferError as raised:
            raise self.no_room(topic) from raised

    async def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: "Headers | None" = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Send a record outside transactions, and wait until it is stored; return where.

        Waits for room in the queue first. A cancellation ends the wait; the record may be stored
        all the same.
        Several records are sent together: `await asyncio.gather(*(producer.send(...) for ...))`.

        Raises:
            TxnError: the record was not stored; its class and `action` say why.
        """
        producer = self.client.sync()

        def add() -> Delivery:
            return producer.send(
                topic, value, key, headers=headers, partition=partition, timestamp=timestamp
            )

        try:
            delivery = await self.added(add) if self.takes_turn() else add()
        except BufferError:
            delivery = await self.added(add)
        return await delivery

    async def flush(self, timeout: float = 60.0) -> None:
        """Wait until every record produced so far is stored.

        A cancellation ends the wait; the records are still sent.

        Raises errors as `txn.Producer.flush` does.
        """
        producer = self.client.sync()
        await self.client.interruptible(lambda: producer.flush(timeout))

    async def close(self, timeout: float = 60.0) -> None:
        """Flush a producer without transactions, and close the connections. Can be repeated.

        An open transaction is aborted, and its block raises RejectedError where it ends. A
        cancellation meanwhile is raised once the producer is closed.

        Raises errors as `txn.Producer.close` does.
        """
        if self.client.is_abandoned:
            return
        await self.client.close(lambda: self.client.made().close(timeout))

    # ------------------------------------------------------------ for Transaction

    def claim(self, transaction: Transaction) -> None:
        """Begin a block. Raises RejectedError if another one is open."""
        self.client.sync()
        if self._transaction() is not None:
            raise RejectedError(
                f"{self.client.whose} has a transaction open already: a producer has one at a "
                "time. Let each task open a producer with a transactional id of its own, or guard "
                "this one by an asyncio.Lock"
            )
        self._open = weakref.ref(transaction)

    def release(self, transaction: Transaction) -> None:
        """End a block."""
        if self._transaction() is transaction:
            self._open = None

    def _transaction(self) -> Transaction | None:
        return None if self._open is None else self._open()

    def no_room(self, topic: str) -> BufferError:
        """Return the error of a record that found no room in the queue."""
        return BufferError(
            f"the queue of {self.client.whose} is full, and the record for {topic!r} was not "
            "added. Use `await send(...)`, which waits for room"
        )

    def takes_turn(self) -> bool:
        """Count a record; return True if the event loop is to get a turn before it."""
        self._added += 1
        return self._added % RECORDS_PER_TURN == 0

    async def added(self, add: Callable[[], Delivery]) -> Delivery:
        """Give the event loop a turn, and add a record once there is room in the queue."""
        await asyncio.sleep(0)
        while True:
            producer = self.client.sync()
            try:
                return add()
            except BufferError:
                pass
            if self._room is None or self._room.is_over:
                self._room = self.client.call(partial(producer._handle.await_reports, ROOM_SECONDS))
            await self._room.wait()
