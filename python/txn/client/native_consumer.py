"""The native engine of `txn.Consumer`: txn's own client in Rust in the place of librdkafka's.

`NativeClient` stands between `Consumer` and `confluent_kafka.Consumer` in the order of classes. So
the rules of `consumer.py` call it where they call `super()`, and exist once. The base of both is
never initialised.

**The fast path of `poll`.** A record passes through `Reading` only if something has to happen
before or with it. Else `poll` is one call of the core. Each slow read closes the fast path, and
`poll` opens it again for its own thread. These close it, too, or make the core return no record:

- an event of the group, the end of a partition, an error, or the answer to an asynchronous commit
  is due or may become due; or a classic group is subscribed to a pattern;
- the record is the first of its partition since its assignment, a seek or a rewind, which
  `Positions` notes; or a read was interrupted;
- the consumer is closed, or the thread has read another consumer (`cautions.py`).
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message, TopicPartition

from txn import _core
from txn.client.beginnings import Beginnings
from txn.client.consumer import Consumer
from txn.client.deadline import Deadline
from txn.client.engine import EngineName, arrow_module
from txn.client.native import ms_of
from txn.client.native_client import NativeClient
from txn.client.native_settings import protocol_of, require_native_consumer
from txn.client.reading import error_of_message

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
    _is_native = True

    @classmethod
    def _checked(cls, settings: dict[str, object]) -> dict[str, object]:
        require_native_consumer(settings, f"the consumer of group {settings['group.id']!r}")
        settings["group.protocol"] = protocol_of(settings)
        return settings

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record; see `Consumer.poll`."""
        try:
            message: Message | None = self._core.take_fast(timeout)  # type: ignore[assignment]
            if message is not None:  # a Message of the core, which has the same methods
                return message
        except BaseException:  # a signal: it may have been taken already
            self._positions.note_interrupt()
            raise
        message = super().poll(timeout)
        try:
            self._find_fast_path()
        except BaseException:
            self._positions.note_interrupt()
            raise
        return message

    def _find_fast_path(self) -> None:
        """Open the fast path if the reads after this one need no look at anything else."""
        has_others = self._errors.is_waiting or self._commits or self._patterns is not None
        if not has_others and self._reach.is_proven:
            self._core.open_fast_path(self._positions.awaiting())

    def _leave_fast_path(self) -> None:
        self._core.close_fast_path()

    def _last_fast_read_s(self) -> float:
        age_s = self._core.fast_read_age_s()
        return -math.inf if age_s is None else time.monotonic() - age_s

    def _consume_further(self, num_messages: int, timeout: float) -> list[Message] | None:
        deadline = Deadline(timeout)
        taken: list[Any] = self._core.take(num_messages, ms_of(timeout))
        return taken if taken or deadline.has_passed else None  # None: there is an event

    def _beginnings_of(self, settings: Mapping[str, object]) -> Beginnings:
        self._positions.on_awaiting = self._core.close_fast_path
        self._positions.behind_last = lambda place: self._core.handed_out(*place)
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
                error = error_of_message(message)
                if error is not None:
                    self._errors.note(error)
            columns = self._core.take_columns(max_rows, ms_of(deadline.slice()))
            if columns is not None:
                self._reading.note_firsts(columns["firsts"])
                return columns
            self._reading.check_nothing_came()
            if deadline.has_passed or self._errors:
                return None
