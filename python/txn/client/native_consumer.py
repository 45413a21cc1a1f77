"""The native engine of `txn.Consumer`: txn's own client in Rust in the place of librdkafka's.

`NativeClient` stands between `Consumer` and `confluent_kafka.Consumer` in the order of classes. So
the rules of `consumer.py` call it where they call `super()`, and exist once. The base of both is
never initialised.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, TopicPartition

from txn import _core
from txn.client.beginnings import Beginnings
from txn.client.consumer import Consumer
from txn.client.deadline import Deadline
from txn.client.engine import EngineName, arrow_module
from txn.client.native import ms_of
from txn.client.native_client import NativeClient
from txn.client.native_settings import protocol_of, require_native_consumer

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
        return NativeBeginnings(self, settings, self._errors.note)

    def poll_arrow(self, max_rows: int = 100_000, timeout: float = -1) -> "pa.RecordBatch | None":
        """Return the next records as columns; see `Consumer.poll_arrow`."""
        arrow = arrow_module(f"poll_arrow() of {self._whose}")  # before any record is taken
        self._require_source("poll_arrow", max_rows, timeout)
        columns = self._reading.read(
            lambda deadline: (self._take_columns(max_rows, deadline), False), timeout
        )
        return None if columns is None else arrow.record_batch(columns)

    def _take_columns(self, max_rows: int, deadline: Deadline) -> "_core.MessageColumns | None":
        """Take columns in slices until there are some, an error waits, or the time is over."""
        while True:
            for message in self._serve(max_rows):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._errors.note(error)
            columns = self._core.take_columns(max_rows, ms_of(deadline.slice()))
            if columns is not None:
                self._reading.note_firsts(columns["firsts"])
                return columns
            self._reading.check_nothing_came()
            if deadline.has_passed or self._errors:
                return None
