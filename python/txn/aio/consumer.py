"""`txn.aio.Consumer`: a `txn.Consumer` whose calls are awaited.

`handover.py` has the rules for records that a cancelled task did not take.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Message, TopicPartition

import txn.client
from txn.aio.client import Client
from txn.aio.handover import Handover
from txn.aio.worker import Call
from txn.client import block_consumer
from txn.client.arguments import wrong_partition, wrong_wait
from txn.client.block_consumer import reached_by
from txn.client.consumer import OnRebalance
from txn.client.deadline import Deadline
from txn.client.engine import EngineName
from txn.client.places import places_of
from txn.client.reach import CONNECT_TIMEOUT

SLICE_SECONDS: Final = 0.1
"""Longest wait for records in the worker. Another call of the consumer waits for its end."""

BATCH_RECORDS: Final = 500

T = TypeVar("T")


class Consumer:
    """A `txn.Consumer` for asyncio, which belongs to the event loop that opens it.

        async with txn.aio.Consumer(bootstrap_servers="...", group_id="shop") as consumer:
            await consumer.subscribe(["orders"])
            async for batch in consumer:
                async with producer.transaction(consumer) as t:
                    ...

    The constructor does no I/O. Open it by `async with`, or by `await txn.aio.Consumer.open(...)`
    and later `await consumer.close()`. One thread of its own makes its calls one after the other.
    Callbacks of the settings and of `subscribe` run in that thread, and get the synchronous
    consumer.

    A cancelled `poll`, `consume` or `async for` loses no record: the next one returns what the
    cancelled one has fetched. A block does not commit such records before they were returned.

    Args:
        config: Properties by their Kafka names, passed on as they are.
        group_id: Property `group.id`.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        connect_timeout: Seconds to wait for a first broker before reading raises UnreachableError.
        engine: As that of `txn.Consumer`; None: its default.
        more: Further properties, with `_` for `.`: `auto_offset_reset="earliest"`.

    Raises (at the opening):
        ConfigError: a property is unknown, given twice, missing, or breaks exactly-once.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        group_id: str | None = None,
        bootstrap_servers: str | list[str] | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        engine: EngineName | None = None,
        **more: Any,
    ) -> None:
        make: Callable[[], txn.client.Consumer] = partial(
            txn.client.Consumer,
            config,
            group_id=group_id,
            bootstrap_servers=bootstrap_servers,
            connect_timeout=connect_timeout,
            engine=engine,
            **more,
        )
        group = group_id or (config or {}).get("group.id")
        self.client: Final = Client("txn.aio.Consumer", f"the consumer of group {group!r}", make)
        self.handover: Final = Handover()
        self._reading: Call[None] | None = None
        self._readers = 0
        self._fault: BaseException | None = None  # raised by the next poll or consume

    @classmethod
    async def open(cls, *args: Any, **more: Any) -> Self:
        """Make a consumer and open it. Arguments are those of the class."""
        consumer = cls(*args, **more)
        await consumer.client.open()
        return consumer

    async def __aenter__(self) -> Self:
        await self.client.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group and close the connections. Can be repeated.

        A cancellation meanwhile is raised once the consumer is closed.
        """
        if self.client.is_abandoned:
            return
        await self.client.close(lambda: self.client.made().close())

    # ------------------------------------------------------------ reading

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record.

        Args:
            timeout: Seconds to wait for one; None: without a limit. After them it returns None.

        Raises errors as `txn.Consumer.poll` does.
        """
        messages = await self._read(1, timeout)
        return messages[0] if messages else None

    async def consume(
        self, num_messages: int = BATCH_RECORDS, timeout: float | None = None
    ) -> list[Message]:
        """Return records as soon as there are some, up to `num_messages`, in their order.

        `txn.Consumer.consume` differs: it waits until it has all of `num_messages`.

        Args:
            num_messages: At most so many.
            timeout: Seconds to wait for the first one; None: without a limit. After them it
                returns an empty list.

        Raises errors as `txn.Consumer.poll` does.
        """
        return await self._read(num_messages, timeout)

    async def batches(
        self, max_records: int = BATCH_RECORDS, timeout_s: float | None = None
    ) -> AsyncIterator[list[Message]]:
        """Yield lists of 1 to `max_records` records.

        Args:
            max_records: Longest list.
            timeout_s: The iteration ends if no record came for so many seconds; None: it goes on.

        Raises errors as `txn.Consumer.poll` does.
        """
        while True:
            batch = await self._read(max_records, timeout_s)
            if not batch:
                return
            yield batch

    def __aiter__(self) -> AsyncIterator[list[Message]]:
        return self.batches()

    async def _read(self, most: int, timeout: float | None) -> list[Message]:
        if fault := wrong_wait(most, -1 if timeout is None else timeout):
            raise TypeError(f"consume(): {fault}")
        self.client.sync()
        deadline = Deadline(math.inf if timeout is None or timeout < 0 else timeout)
        has_asked = False
        self._readers += 1
        try:
            while True:
                if messages := self.handover.take(most):
                    return messages
                if (error := self._fault) is not None:
                    self._fault = None
                    raise error
                if has_asked and deadline.has_passed:
                    return []
                if self._reading is None or self._reading.is_over:
                    self._reading = self.client.call(partial(self._fetch, most, deadline))
                has_asked = True
                ends_s = deadline.remaining + SLICE_SECONDS
                await self._reading.wait(None if math.isinf(ends_s) else ends_s)
        finally:
            self._readers -= 1

    def _fetch(self, most: int, deadline: Deadline) -> None:
        """Put records into the handover, in the worker.

        It ends with the first records, and sooner if nobody waits for them, or if another call
        waits for the worker.
        """
        consumer = self.client.made()
        try:
            while True:
                first = consumer.poll(min(SLICE_SECONDS, deadline.remaining))
                if first is not None:
                    self.handover.put([first])
                    if most > 1:
                        self.handover.put(consumer.consume(most - 1, 0))
                    return
                if deadline.has_passed or self._readers == 0 or self.client.has_more_calls:
                    return
        except BaseException as raised:
            self._fault = raised

    # ------------------------------------------------------------ the other calls

    async def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe, as `txn.Consumer.subscribe` does. Callbacks run in the consumer's thread."""
        if any(asyncio.iscoroutinefunction(each) for each in (on_assign, on_revoke, on_lost)):
            raise TypeError(
                "subscribe(): a callback is a plain function: it runs in the consumer's thread, "
                "with the synchronous consumer"
            )

        def lose(consumer: Any, partitions: list[TopicPartition]) -> None:
            self.handover.drop(places_of(partitions))
            if on_revoke is not None:
                on_revoke(consumer, partitions)

        def forget(consumer: Any, partitions: list[TopicPartition]) -> None:
            self.handover.drop(places_of(partitions))
            callback = on_lost or on_revoke
            if callback is not None:
                callback(consumer, partitions)

        await self._call(lambda consumer: consumer.subscribe(topics, on_assign, lose, forget))

    async def unsubscribe(self) -> None:
        """Leave the group, as `txn.Consumer.unsubscribe` does."""

        def unsubscribe(consumer: txn.client.Consumer) -> None:
            consumer.unsubscribe()
            self.handover.clear()

        await self._call(unsubscribe)

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions by hand, as `txn.Consumer.assign` does."""

        def assign(consumer: txn.client.Consumer) -> None:
            self.handover.put_back(consumer, places_of(consumer.assignment()))
            consumer.assign(partitions)

        await self._call(assign)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions, as `txn.Consumer.incremental_assign` does."""
        await self._call(lambda consumer: consumer.incremental_assign(partitions))

    async def unassign(self) -> None:
        """Give up all partitions, as `txn.Consumer.unassign` does."""

        def unassign(consumer: txn.client.Consumer) -> None:
            self.handover.put_back(consumer, places_of(consumer.assignment()))
            consumer.unassign()

        await self._call(unassign)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Give up partitions, as `txn.Consumer.incremental_unassign` does."""

        def unassign(consumer: txn.client.Consumer) -> None:
            self.handover.put_back(consumer, places_of(partitions))
            consumer.incremental_unassign(partitions)

        await self._call(unassign)

    async def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are assigned."""
        return await self._call(lambda consumer: consumer.assignment())

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions, as `txn.Consumer.pause` does."""
        await self._call(lambda consumer: consumer.pause(partitions))

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions, as `txn.Consumer.resume` does."""
        await self._call(lambda consumer: consumer.resume(partitions))

    async def seek(self, partition: TopicPartition) -> None:
        """Continue reading at an offset, as `txn.Consumer.seek` does."""
        if fault := wrong_partition(partition):
            raise TypeError(f"seek(): {fault}")

        def seek(consumer: txn.client.Consumer) -> None:
            consumer.seek(partition)
            self.handover.drop([(partition.topic, partition.partition)])

        await self._call(seek)

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return one past the last record that the program got, of each partition."""
        return await self._call(
            lambda consumer: self.handover.handed_out(consumer.position(partitions))
        )

    async def committed(
        self, partitions: list[TopicPartition], timeout: float = 60.0
    ) -> list[TopicPartition]:
        """Return the group's committed offsets."""
        return await self._call(lambda consumer: consumer.committed(partitions, timeout))

    async def commit(self, offsets: list[TopicPartition] | None = None) -> list[TopicPartition]:
        """Commit outside transactions, and wait for the answer; as `txn.Consumer.commit` does.

        Args:
            offsets: Per partition the next offset to read; None: of all that the program got.
        """

        def commit(consumer: txn.client.Consumer) -> Any:
            self.handover.drop_moved(consumer)
            if offsets is None and len(self.handover):
                return consumer.commit(
                    offsets=self.handover.handed_out(reached_by(consumer)), asynchronous=False
                )
            given = {} if offsets is None else {"offsets": offsets}
            return consumer.commit(asynchronous=False, **given)

        done: list[TopicPartition] = await self._call(commit)
        return done

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = 60.0
    ) -> list[TopicPartition]:
        """Return the first offset at or behind each time, given in place of an offset, in ms."""
        return await self._call(lambda consumer: consumer.offsets_for_times(partitions, timeout))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 60.0
    ) -> tuple[int, int]:
        """Return the first offset of a partition, and its end."""
        return await self._call(lambda consumer: consumer.get_watermark_offsets(partition, timeout))

    async def rewind(self, timeout: float = 60.0) -> None:
        """Go back to the committed offsets, as `txn.rewind` does."""
        await self._call(lambda consumer: block_consumer.rewind(consumer, timeout))

    # ------------------------------------------------------------ for Transaction

    async def idle(self) -> asyncio.CancelledError | None:
        """Wait until nothing is read; return the cancellation that came meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        while self._reading is not None and not self._reading.is_over:
            cancelled = await self._reading.end() or cancelled
        return cancelled

    async def _call(self, call: Callable[[txn.client.Consumer], T]) -> T:
        """Make a call on the worker; a cancellation waits for its end."""
        consumer = self.client.sync()

        def run() -> T:
            try:
                return call(consumer)
            finally:
                self.handover.drop_moved(consumer)

        return await self.client.call(run).finish()
