"""`async with producer.transaction(consumer) as t:` — a block of `txn.Producer` for asyncio.

Each step of the block's life is one call of the synchronous block, on the worker of its consumer.
A block without a consumer runs on the worker of its producer. So nobody reads from the consumer
while the block begins or ends.

    begin ──── the body ──── commit ──── over
      │            │            ├── refused ─► abort ─► rewind ─► raise
      │            │            └── no answer ─► in doubt ─► raise
      └────────────┴── exception, cancellation ─► abort ─► rewind ─► raise it again

A cancellation is an exception of the task, and may come at each `await`:

- *While it begins*: the call ends, the block is aborted, and CancelledError is raised.
- *In the body*: it leaves the body as every exception does, so the block aborts.
- *While it commits*: the commit was decided when the body ended. The task waits for its outcome,
  then raises CancelledError. `result` is COMMITTED, ABORTED, FENCED or IN_DOUBT, and a note of the
  error says so, too.
- *While it aborts*: the task waits until abort and rewind are done, then raises CancelledError.

Each wait is bounded by the block's `timeout`. Behind it no transaction of the block is open, the
producer is free or says that another has to be opened, and the consumer stands where its group's
next reader would begin.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from confluent_kafka import TopicPartition

from txn.aio.client import Client
from txn.aio.consumer import Consumer
from txn.client.block_consumer import reached_by
from txn.client.delivery import Delivery
from txn.client.migration import refuse_unknown_arguments
from txn.client.transaction import BlockResult

if TYPE_CHECKING:
    from txn.aio.producer import Producer
    from txn.client.producer import Headers


class Transaction:
    """An open transaction; the value of `producer.transaction()`, for one `async with` statement.

    Leaving the block commits. An exception aborts and goes on, and so does a cancellation.
    """

    def __init__(self, producer: "Producer", consumer: Consumer | None, timeout: float) -> None:
        self._producer = producer
        self._consumer = consumer
        self._block = producer.client.sync().transaction(
            None if consumer is None else consumer.client.sync(), timeout
        )
        self._sends_positions = consumer is not None
        self._others: list[Consumer] = []  # whose offsets were sent beside those of its own

    @property
    def result(self) -> BlockResult | None:
        """The result of the block; None before its end."""
        return self._block.result

    @property
    def open_ms(self) -> int:
        """Milliseconds since it began; 0 before that."""
        return self._block.open_ms

    async def __aenter__(self) -> Self:
        self._producer.claim(self)
        try:
            cancelled, error = await self._step(self._begin)
            if cancelled is not None:
                if error is None:
                    await self._step(partial(self._end, cancelled))
                raise cancelled from error
            if error is not None:
                raise error
        except BaseException:
            self._producer.release(self)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            cancelled, failure = await self._step(partial(self._end, error))
            if cancelled is not None:
                if error is None:
                    _note_outcome(cancelled, self.result, failure)
                raise cancelled from (failure or error)
            if failure is not None and failure is not error:
                raise failure
        finally:
            self._producer.release(self)

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
        """Add a record to the transaction at once; it is sent in the background.

        Arguments and errors are those of `txn.client.Transaction.produce`. It never waits.

        Raises:
            BufferError: the producer's queue is full. The record was not added, and the block may
                go on: `await t.send(...)` waits for room.
        """
        self._producer.client.sync()
        if others:
            refuse_unknown_arguments(others)
        try:
            self._block.produce(
                topic, value, key, headers=headers, partition=partition, timestamp=timestamp
            )
        except BufferError as raised:
            raise self._producer.no_room(topic) from raised

    async def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: "Headers | None" = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Add a record to the transaction, and wait for room in the queue if there is none.

        The event loop goes on meanwhile. A task that was cancelled here has not added the record.
        The delivery that it returns may be awaited for the record's offset; the end of the block
        waits for every record all the same. Arguments and errors are those of
        `txn.client.Transaction.produce`.
        """
        producer = self._producer
        if not producer.takes_turn():
            try:
                producer.client.sync()
                return self._block.send(
                    topic,
                    value,
                    key,
                    headers=headers,
                    partition=partition,
                    timestamp=timestamp,
                )
            except BufferError:
                pass
        return await producer.added(
            lambda: self._block.send(
                topic, value, key, headers=headers, partition=partition, timestamp=timestamp
            )
        )

    async def send_offsets(
        self,
        offsets: Sequence[TopicPartition],
        consumer: Consumer,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of your own choice, as `txn.client.Transaction.send_offsets` does.

        A cancellation waits until they are sent or refused. No other task may read from the
        consumer until the block has ended.
        """
        require_consumer(consumer)
        self._producer.client.sync()
        consumer.client.sync()
        if consumer is self._consumer:
            self._sends_positions = False
        else:
            self._others.append(consumer)
        cancelled, error = await self._step(
            lambda: self._block.send_offsets(offsets, consumer.client.made(), timeout=timeout)
        )
        if cancelled is not None:
            raise cancelled from error
        if error is not None:
            raise error

    # ------------------------------------------------------------ inside

    async def _step(
        self, step: Callable[[], None]
    ) -> tuple[asyncio.CancelledError | None, BaseException | None]:
        """Make a call of the block; return the cancellation that came meanwhile, and its error."""
        cancelled: asyncio.CancelledError | None = None
        for other in self._others:
            cancelled = await other.idle() or cancelled
        clients: list[Client[Any]] = [self._producer.client]
        if self._consumer is not None:
            clients.insert(0, self._consumer.client)
        for client in clients:
            if not client.is_closed and not client.is_abandoned:
                call = client.call(step)
                return await call.end() or cancelled, call.error
        try:
            step()  # closed clients wait for nothing
        except BaseException as raised:
            return cancelled, raised
        return cancelled, None

    def _begin(self) -> None:
        try:
            self._block.__enter__()
        finally:
            self._drop_moved()

    def _end(self, reason: BaseException | None) -> None:
        """End the synchronous block, as a `with` statement does."""
        error = reason
        try:
            if error is None:
                try:
                    self._send_handed_out()
                except BaseException as raised:
                    error = raised
            if error is None:
                self._block.__exit__(None, None, None)
            else:
                self._block.__exit__(type(error), error, error.__traceback__)
                if error is not reason:
                    raise error
        finally:
            self._drop_moved()

    def _send_handed_out(self) -> None:
        """Send the positions that the program knows, if the consumer holds records back.

        An unknown position is left for the end of the block, which refuses it.
        """
        if self._consumer is None or not self._sends_positions or not len(self._consumer.handover):
            return
        consumer = self._consumer.client.made()
        if consumer._positions.describe_unknown_positions() is None:
            offsets = self._consumer.handover.handed_out(reached_by(consumer))
            self._block.send_offsets(offsets, consumer)

    def _drop_moved(self) -> None:
        for consumer in (self._consumer, *self._others):
            if consumer is not None and not consumer.client.is_closed:
                consumer.handover.drop_moved(consumer.client.made())


def require_consumer(consumer: object) -> None:
    """Raise TypeError for a consumer of another kind."""
    if not isinstance(consumer, Consumer):
        raise TypeError(
            f"a transaction of txn.aio takes a txn.aio.Consumer, or none, not {consumer!r}"
        )


def _note_outcome(
    cancelled: asyncio.CancelledError, result: BlockResult | None, failure: BaseException | None
) -> None:
    if result is BlockResult.COMMITTED:
        cancelled.add_note("The transaction was committed before this was raised.")
    elif result is BlockResult.IN_DOUBT:
        cancelled.add_note(str(failure))
    else:
        cancelled.add_note(f"The transaction was not committed: {failure}")
