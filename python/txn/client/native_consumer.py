"""The native engine of `txn.Consumer`: txn's own client in Rust in the place of librdkafka's.

`NativeClient` stands between `Consumer` and `confluent_kafka.Consumer` in the order of classes. So
the rules of `consumer.py` call it where they call `super()`, and exist once. The base of both is
never initialised.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from txn import _core
from txn.client.arguments import wrong_wait
from txn.client.beginnings import Beginnings
from txn.client.cautions import note_read
from txn.client.consumer import Consumer
from txn.client.deadline import Deadline
from txn.client.engine import EngineName
from txn.client.native import ms_of
from txn.client.native_client import FOREVER_S, NativeClient
from txn.client.native_settings import protocol_of, require_native_consumer
from txn.errors import RejectedError, UnreachableError

if TYPE_CHECKING:
    import pyarrow as pa


class NativeBeginnings(Beginnings):
    """Nothing is held back: the engine begins each partition once its committed offset is known."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign the partitions of a rebalance."""
        NativeClient.incremental_assign(self._native, partitions)

    @property
    def _native(self) -> NativeClient:
        assert isinstance(self._consumer, NativeClient)
        return self._consumer

    @contextmanager
    def holding(
        self, partitions: list[TopicPartition], *, ask: bool
    ) -> Iterator[list[TopicPartition]]:
        """Yield the partitions as they are."""
        yield partitions


class NativeConsumer(Consumer, NativeClient):
    """A `txn.Consumer` on the native engine: `txn.Consumer(engine="native")` makes it."""

    engine: EngineName = "native"

    @classmethod
    def _checked(cls, settings: dict[str, object]) -> dict[str, object]:
        require_native_consumer(settings, f"the consumer of group {settings['group.id']!r}")
        settings["group.protocol"] = protocol_of(settings)
        return settings

    def _beginnings_of(self, settings: Mapping[str, object]) -> Beginnings:
        return NativeBeginnings(self, settings, self._note_report)

    def poll_arrow(self, max_rows: int = 100_000, timeout: float = -1) -> "pa.RecordBatch | None":
        """Return the next records as columns; see `Consumer.poll_arrow`."""
        from txn.client.arrow import record_batch

        if fault := wrong_wait(max_rows, timeout):
            raise TypeError(f"poll_arrow(): {fault}")
        self._require_something()
        self._raise_report()
        deadline = Deadline(FOREVER_S if timeout < 0 else timeout)
        while True:
            try:
                columns = self._take_columns(max_rows, deadline)
            except UnreachableError:
                raise  # with nothing taken: nothing ever came
            except BaseException:
                self._note_interrupt()
                raise
            if columns is not None:
                return record_batch(columns)
            self._raise_report()
            if deadline.has_passed:
                return None

    def _take_columns(self, max_rows: int, deadline: Deadline) -> "_core.MessageColumns | None":
        for message in self._serve():
            error = message.error()
            if error is not None:
                self._note_report(error)
        columns = self._core.take_columns(max_rows, ms_of(deadline.slice()))
        if columns is None:
            self._reach.check()
            self._report = self._report or self._existence.fault()
            return None
        self._reach.prove()
        note_read(self, time.monotonic())
        if self._awaited or self._sought or self._unread:
            for topic, partition, offset in columns["firsts"]:
                self._note_first((topic, partition), offset)
        return columns

    def _require_something(self) -> None:
        if not (self._is_subscribed or self._is_assigned):
            raise RejectedError(
                f"{self._whose} has nothing to read from: call subscribe(['topic']) first, or "
                "assign partitions"
            )
