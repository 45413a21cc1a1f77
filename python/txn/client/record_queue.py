"""The way of a record, or of the rows of a batch, into the engine's queue.

Invariant: a call either adds its record once, or raises an error and has added nothing. Only a
signal may leave that open. While the queue is full the call waits, unless the producer belongs to
an event loop (`waits_for_room`).
"""

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException

from txn.client.arguments import (
    LIKE_SECONDS_FIRST,
    LIKE_SECONDS_LAST,
    MESSAGE_BYTES_MAX,
    ArrowStreamExportable,
    Headers,
    seconds_suspected,
    size_of,
    too_large,
    wrong_record,
)
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.delivery import Delivery
from txn.client.engine import EngineName, arrow_module
from txn.client.failures import error_of
from txn.client.handle import Handle
from txn.client.outcomes import Outcomes
from txn.errors import ConfigError, RejectedError

if TYPE_CHECKING:
    from txn.client.arrow import Rows

RequireOpen = Callable[[str, str], None]
"""Raises RejectedError if the block of a record has ended; is given a verb and the topic."""

PRODUCES_PER_POLL: Final = 256
"""Reports of delivery are collected once in so many records, and whenever the queue is full."""


class RecordQueue:
    """The queue of one producer, as `produce`, `send` and `write_arrow` use it.

    Args:
        handle: The engine with the queue.
        outcomes: Of the records.
        is_transactional: Whether records belong to transactions.
        engine: Which engine it is.
    """

    def __init__(
        self, handle: Handle, outcomes: Outcomes, *, is_transactional: bool, engine: EngineName
    ) -> None:
        self._handle = handle
        self._outcomes = outcomes
        self._is_transactional = is_transactional
        self._engine = engine
        self.produced = 0
        """Number of records that were asked for."""
        self.waits_for_room = True
        """False: a record raises BufferError while the queue is full."""
        self.is_collection_due = False
        """True: reports of delivery are collected before the next record, at the latest."""
        self.message_bytes_max: object = MESSAGE_BYTES_MAX

    def add(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        delivery: Delivery | None = None,
        require_open: RequireOpen | None = None,
    ) -> None:
        """Add a record; arguments and errors are those of `Transaction.produce`.

        Args:
            topic: As the arguments that follow, as for `produce`.
            delivery: Ends with the record.
            require_open: Of the record's block.
        """
        client = self._handle.client()
        self._check_timestamp(topic, timestamp)
        if (
            isinstance(timestamp, int)  # another type raises its TypeError
            and LIKE_SECONDS_FIRST <= timestamp <= LIKE_SECONDS_LAST
        ):
            warnings.warn(seconds_suspected(timestamp), stacklevel=3)
        self.produced += 1
        if self.is_collection_due or self.produced % PRODUCES_PER_POLL == 0:
            self.is_collection_due = False
            self._serve(Deadline(0), topic, require_open)
        place = -1 if partition is None else partition
        time_ms = 0 if timestamp is None else timestamp
        while True:
            try:
                if delivery is None:
                    client.produce(
                        topic,
                        value=value,
                        key=key,
                        headers=headers,
                        partition=place,
                        timestamp=time_ms,
                    )
                else:
                    client.produce_tracked(
                        topic,
                        value=value,
                        key=key,
                        headers=headers,
                        partition=place,
                        timestamp=time_ms,
                        delivery=delivery,
                    )
                return
            except BufferError:
                # Room comes with every record stored, and with every one given up after
                # message.timeout.ms; in a transaction one of those is enough to stop.
                pause = Deadline(PAUSE_SECONDS if self.waits_for_room else 0)
                self._serve(pause, topic, require_open)
                if self._is_transactional:
                    self._outcomes.raise_undelivered()
                if not self.waits_for_room:
                    raise
            except KafkaException as raised:
                if error_of(raised).code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    size = size_of(value, key)
                    raise self._too_large(error_of(raised), topic, size) from raised
                self._refuse(raised, topic, require_open)
            except (TypeError, ValueError) as raised:
                fault = wrong_record(topic, value, key, headers, partition, timestamp)
                if fault is None:
                    raise
                raise TypeError(f"produce(): {fault}") from raised

    def rows_of(self, batch: ArrowStreamExportable) -> "Iterator[Rows]":
        """Return the rows of a batch, all of them checked. Raises as `write_arrow`."""
        if self._engine != "native":
            raise ConfigError(
                f"{self._handle.whose} has no write_arrow: give it engine='native'",
                property="engine",
            )
        arrow = arrow_module(f"write_arrow() of {self._handle.whose}")
        found: Iterator[Rows] = arrow.rows_of(batch)
        return found

    def add_rows(self, topic: str, rows: "Rows", require_open: RequireOpen | None = None) -> None:
        """Add rows of the block of `require_open`; wait while the queue is full."""
        from txn.client.native import NativeProducer

        client = self._handle.client()
        assert isinstance(client, NativeProducer)  # as `rows_of` requires
        self._serve(Deadline(0), topic, require_open)
        first = 0
        try:
            while (first := client.produce_rows(topic, rows, first)) < rows.count:
                self._serve(Deadline(PAUSE_SECONDS), topic, require_open)
                if self._is_transactional:
                    self._outcomes.raise_undelivered()
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._too_large(error, topic, None) from raised
            self._refuse(raised, topic, require_open)

    def _serve(self, deadline: Deadline, topic: str, require_open: RequireOpen | None) -> None:
        self._handle.serve(deadline)
        if require_open is not None:
            # Another thread may have ended the block meanwhile, and may have begun the next one.
            require_open("produce to", topic)

    def _check_timestamp(self, topic: str, timestamp: int | None) -> None:
        if timestamp == 0:
            raise RejectedError(
                f"{self._handle.whose} cannot send timestamp 0 to {topic!r}: librdkafka takes it "
                "for the time of sending. Give 1, the next millisecond, or none"
            )
        if isinstance(timestamp, int) and timestamp < 0:
            raise RejectedError(
                f"{self._handle.whose} cannot send timestamp {timestamp} to {topic!r}: a timestamp "
                "counts milliseconds since 1970, as in Java's producer. Give a later time, or none"
            )

    def _too_large(self, error: KafkaError, topic: str, record_bytes: int | None) -> RejectedError:
        return RejectedError(
            too_large(self._handle.whose, topic, record_bytes, self.message_bytes_max),
            topic=topic,
            code=error.code(),
            name=error.name(),
        )

    def _refuse(
        self, raised: KafkaException, topic: str, require_open: RequireOpen | None
    ) -> NoReturn:
        self._handle.client()  # another thread may have closed it
        if require_open is not None:
            require_open("produce to", topic)
        error = error_of(raised)
        if error.code() in (KafkaError._STATE, KafkaError._FATAL) and self._handle.blocks.is_open:
            self._outcomes.raise_undelivered()
            self._outcomes.raise_cause()
        raise self._handle.failure(error, f"producing to {topic!r}") from raised
