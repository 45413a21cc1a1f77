"""`txn.Consumer`: a `confluent_kafka.Consumer` for transactions, on either engine.

Invariant: the consumer of a block commits exactly as far as the block's output covers the input.
So each method that moves a position or a partition reports it to `Positions` (`positions.py`),
which has the rules, and each record passes through `Reading` (`reading.py`) on its way to the
program. What the methods here add to confluent-kafka's is that report, the refusal of a commit
beside a block, and arguments that are checked.

`Consumer` observes its own rebalances and reads, so the rules hold to the letter. A plain
`confluent_kafka.Consumer` cannot be observed; `block_consumer.PlainState` describes the substitute.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import new_class
from typing import TYPE_CHECKING, Any, NoReturn

import confluent_kafka
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from txn import forks
from txn.client.arguments import wrong_partition, wrong_partitions, wrong_topics, wrong_wait
from txn.client.beginnings import Beginnings
from txn.client.callbacks import keeping_fatal_error, keeping_fatal_errors
from txn.client.engine import DEFAULT_ENGINE, EngineName, engine_name
from txn.client.existence import Existence
from txn.client.failures import is_refusal, not_copied, opened_elsewhere
from txn.client.library_log import LibraryLog
from txn.client.migration import refuse_async
from txn.client.places import places_of, positions_of
from txn.client.positions import Positions
from txn.client.reach import CONNECT_TIMEOUT, Reach
from txn.client.reading import ReadErrors, Reading
from txn.client.redaction import Redaction
from txn.client.settings import consumer_settings, is_false, refused, take_callback
from txn.errors import ConfigError, RejectedError

if TYPE_CHECKING:
    import pyarrow as pa

OnRebalance = Callable[[confluent_kafka.Consumer, list[TopicPartition]], None]


class Consumer(confluent_kafka.Consumer):
    """A `confluent_kafka.Consumer` for use in transactions: `producer.transaction(consumer)`.

    It has the same methods, and five additions. It refuses settings that break exactly-once
    (`enable.auto.commit=true`, `isolation.level=read_uncommitted`), turns `enable.auto.commit` off
    by default, and keeps track of the records that it returned. It refuses `commit` and
    `store_offsets` in the block of a transaction. Last, `poll` and `consume` raise the errors that
    confluent-kafka returns as messages. The text of such an error is its `value()`, which a block
    would commit as a record. Two errors are not raised: the end of a partition
    (`enable.partition.eof`) stays a message, and an exceeded `max.poll.interval.ms` counts as a
    loss of the partitions.

    Args:
        config: Properties by their Kafka (librdkafka) names. One that the engine does not have is
            refused.
        group_id: Property `group.id`.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        connect_timeout: Seconds to wait for a first broker before `poll` and `consume` raise
            UnreachableError, if every address refuses or resolves to nothing. Once the cluster was
            reached, the consumer waits for it without a limit.
        engine: `native`, txn's own client, or `confluent-kafka` (librdkafka), which has more
            properties and `stats_cb`.
        more: Further properties, with `_` for `.`: `auto_offset_reset="earliest"`.

    It belongs to the process that opened it: in a forked child closing it does nothing, and every
    other use raises ForkedError.

    Raises:
        ConfigError: before any I/O; the message names the property.
    """

    engine: EngineName = DEFAULT_ENGINE
    """The engine of a consumer. A derived class may set its default here."""
    _is_native = False

    def __new__(cls, *_: object, engine: EngineName | None = None, **__: object) -> "Consumer":
        """Return an object of the engine's class: `NativeConsumer` is a `Consumer`, too."""
        return super().__new__(_class_of(cls, cls.engine if engine is None else engine))

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        group_id: str | None = None,
        bootstrap_servers: str | list[str] | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        engine: EngineName | None = None,
        **more: object,
    ) -> None:
        if engine is not None:  # `__new__` does not get it from the `__init__` of a derived class
            self.__class__ = _class_of(type(self), engine)
        self.engine = "native" if self._is_native else "confluent-kafka"
        settings = self._checked(
            consumer_settings(
                config, group_id=group_id, bootstrap_servers=bootstrap_servers, keywords=more
            )
        )
        self._redaction = Redaction(settings)
        settings.setdefault("logger", LibraryLog())
        self._redaction.watch(settings)
        self._on_error = take_callback(settings, "error_cb")
        settings["error_cb"] = self._note_error
        self._has_stored_offsets = is_false(settings.get("enable.auto.offset.store"))
        self.group_id = str(settings["group.id"])
        self._whose = f"the consumer of group {self.group_id!r}"
        self._reach = Reach(settings, self._whose, connect_timeout)
        try:
            super().__init__(keeping_fatal_errors(settings))
        except KafkaException as raised:
            raise refused("the consumer", raised, settings) from None  # it may have a secret
        self._positions = Positions(self)
        self._errors = ReadErrors(self._whose, self._positions, self._redaction)
        self._beginnings = self._beginnings_of(settings)
        self._existence = Existence(self, self._whose)
        self._reading = Reading(
            self,
            positions=self._positions,
            errors=self._errors,
            beginnings=self._beginnings,
            existence=self._existence,
            reach=self._reach,
        )
        self._is_subscribed = self._is_assigned = False  # by the program
        self._has_answered = False  # in `on_assign`, by an assignment of the program's
        forks.watch(self)

    @classmethod
    def _checked(cls, settings: dict[str, object]) -> dict[str, object]:
        """Return the settings that the engine takes. Raises ConfigError."""
        return settings

    def _beginnings_of(self, settings: Mapping[str, object]) -> Beginnings:
        return Beginnings(self, settings, self._errors.note)

    def _note_error(self, error: KafkaError) -> None:
        error = self._redaction.error(error)
        if is_refusal(error):
            self._reach.refuse(error.str())
        if self._on_error is not None:
            self._on_error(error)

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child: its threads are not in it; see `txn.forks`."""
        self._forked_from = parent
        self.__class__ = _Abandoned

    def __reduce__(self) -> NoReturn:
        raise not_copied("txn.Consumer")

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            refuse_async("txn.Consumer")

        __aexit__ = __aenter__

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe, as `confluent_kafka.Consumer.subscribe` does.

        A partition begins where `on_assign` assigns it at an offset, else at the group's committed
        offset. It waits while that offset belongs to an open transaction. Without any it begins
        where `auto.offset.reset` says.
        """
        if fault := wrong_topics(topics):
            raise TypeError(f"subscribe(): {fault}")

        def assigned(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self._reach.prove()
            self._positions.note_assigned(partitions)
            self._has_answered = False
            try:
                if on_assign is not None:
                    on_assign(consumer, partitions)
            finally:
                if not self._has_answered:
                    self._beginnings.assign(partitions)

        def revoked(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self._note_revoked(partitions)
            if on_revoke is not None:
                on_revoke(consumer, partitions)

        def lost(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self._note_revoked(partitions)
            callback = on_lost or on_revoke
            if callback is not None:
                callback(consumer, partitions)

        super().subscribe(
            topics,
            on_assign=keeping_fatal_error(assigned),
            on_revoke=keeping_fatal_error(revoked),
            on_lost=keeping_fatal_error(lost),
        )
        self._is_subscribed = bool(topics)

    def unsubscribe(self) -> None:
        """Leave the group, as `confluent_kafka.Consumer.unsubscribe` does."""
        super().unsubscribe()
        self._is_subscribed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions by hand, as `confluent_kafka.Consumer.assign` does.

        One without an offset begins as after `subscribe`.
        """
        if fault := wrong_partitions(partitions):
            raise TypeError(f"assign(): {fault}")
        with (
            self._beginnings.holding(partitions, ask=self._reach.is_proven) as begins,
            self._unassigning(self.assignment()),
        ):
            super().assign(begins)
        self._has_answered = True
        self._is_assigned = bool(partitions)
        self._existence.watch(places_of(partitions))
        self._positions.note_assigned(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions, as `confluent_kafka.Consumer.incremental_assign` does; see `assign`."""
        with self._beginnings.holding(partitions, ask=self._reach.is_proven) as begins:
            super().incremental_assign(begins)
        self._has_answered = True
        self._is_assigned = self._is_assigned or bool(partitions)
        self._existence.watch(places_of(partitions))
        self._positions.note_assigned(partitions)

    def unassign(self) -> None:
        """Give up all partitions, as `confluent_kafka.Consumer.unassign` does."""
        with self._unassigning(self.assignment()):
            super().unassign()
        self._has_answered = True
        self._is_assigned = False

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Give up partitions, as `confluent_kafka.Consumer.incremental_unassign` does."""
        with self._unassigning(partitions):
            super().incremental_unassign(partitions)
        self._has_answered = True
        self._is_assigned = bool(self.assignment())

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions, as `confluent_kafka.Consumer.pause` does."""
        super().pause(partitions)
        self._beginnings.note_paused(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions, as `confluent_kafka.Consumer.resume` does.

        A partition whose committed offset is not known yet resumes once it is.
        """
        super().resume(self._beginnings.note_resumed(partitions))

    def seek(self, partition: TopicPartition) -> None:
        """Continue reading at an offset, as `confluent_kafka.Consumer.seek` does.

        A transaction commits that offset if no record of the partition is handed out after it. An
        aborted block goes back there, if the seek was made before it and after the last commit. A
        relative one, as `OFFSET_BEGINNING` is, cannot be committed. The block raises RejectedError
        then, if records that no transaction has committed were handed out before.
        """
        if fault := wrong_partition(partition):
            raise TypeError(f"seek(): {fault}")
        with self._positions.seeking(partition):
            super().seek(partition)
        self._beginnings.release([(partition.topic, partition.partition)])

    def commit(self, *args: Any, **more: Any) -> Any:
        """Commit outside transactions, as `confluent_kafka.Consumer.commit` does.

        Without a message or offsets it commits the positions, so a rewind and a seek count. With
        `enable.auto.offset.store=false` it commits the stored offsets instead. The next rewind goes
        to the committed offsets, and not to the target of a seek before them.

        Raises:
            RejectedError: a block reads from the consumer, or a block did that neither committed
                nor rewound it. An abort could not undo such a commit: its records would be lost.
        """
        self._require_outside("commit")
        named = dict(zip(("message", "offsets", "asynchronous"), args, strict=False)) | more
        message, offsets = named.get("message"), named.get("offsets")
        if message is not None:
            places = frozenset({(message.topic(), message.partition())})
        elif offsets is None and not self._has_stored_offsets:
            # librdkafka would commit the last record handed out, from before a rewind, too.
            offsets = self._positions.to_commit()
            args, more = (), named | {"offsets": offsets}
            places = places_of(offsets)
        else:
            places = places_of(offsets or positions_of(self, self.assignment()))
        answer = super().commit(*args, **more)
        self._positions.note_commit(places)
        return answer

    def store_offsets(self, *args: Any, **more: Any) -> None:
        """Store offsets for a `commit`, as `confluent_kafka.Consumer.store_offsets` does.

        Raises:
            RejectedError: as `commit` does. A later one would commit them after an abort, too.
        """
        self._require_outside("store offsets")
        super().store_offsets(*args, **more)

    def _require_outside(self, doing: str) -> None:
        if self._positions.in_block():
            raise RejectedError(
                f"{self._whose} cannot {doing} in the block of a transaction: the end of the "
                "block commits its offsets, and an abort would lose the records of a commit "
                "beside it. Leave the call out, or give offsets of your own to `send_offsets`"
            )
        if self._positions.is_ahead:
            raise RejectedError(
                f"{self._whose} cannot {doing}: its last block did not commit, and it could not be "
                "rewound, so records of the block would be lost. Call `txn.rewind(consumer)` "
                "first, or run the block again"
            )

    def _seek_back(self, partition: TopicPartition) -> None:
        """Seek as a rewind does, and drop the earlier notes; see `Positions.note_rewound`."""
        super().seek(partition)

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record, as `confluent_kafka.Consumer.poll` does, and raise errors.

        Raises:
            UnreachableError: no broker was ever reached; see `connect_timeout`.
            RejectedError: the topic, the group or the offset is refused; or there is no
                subscription and no assignment.
            RetriableError: the topic or a partition is not there yet, for one.
            TxnError: another error that confluent-kafka hands out as a message.
        """
        self._require_source("poll", 1, timeout)
        reading, poll = self._reading, super().poll
        messages = reading.messages(lambda deadline: reading.poll(poll, deadline), timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, as `confluent_kafka.Consumer.consume` does.

        Raises errors as `poll` does. An error that comes among records waits for the next call.
        """
        self._require_source("consume", num_messages, timeout)
        reading, consume = self._reading, super().consume
        return reading.messages(
            lambda deadline: reading.consume(consume, num_messages, deadline), timeout
        )

    def _consume_further(self, num_messages: int, timeout: float) -> list[Message] | None:
        """Return more messages of a `consume` that has some; None: hand those out first."""
        return super().consume(num_messages, timeout)

    def poll_arrow(self, max_rows: int = 100_000, timeout: float = -1) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow record batch; None after the time-out.

        Its columns are key, value (binary), headers (a list of key and value), topic (a
        dictionary), partition, offset and timestamp (milliseconds). No record becomes an object of
        Python. The native engine alone has it.

        Args:
            max_rows: Rows of the batch at most. It comes as soon as there is one.
            timeout: Seconds to wait for a first row; -1 waits without end.

        Raises:
            ConfigError: the engine is confluent-kafka, or pyarrow is not installed (extra `arrow`).
            TxnError: as `poll`.
        """
        raise ConfigError(
            f"{self._whose} has no poll_arrow: give it engine='native'", property="engine"
        )

    def _leave_fast_path(self) -> None:
        """Make the next read pass through `Reading`; see `native_consumer.py`."""

    def _last_fast_read_s(self) -> float:
        """Return `time.monotonic` of this thread's last read on the fast path."""
        return -math.inf

    def _require_source(self, call: str, count: int, timeout: float) -> None:
        """Require fitting arguments of a read, and partitions to read from."""
        if fault := wrong_wait(count, timeout):
            raise TypeError(f"{call}(): {fault}")
        if not (self._is_subscribed or self._is_assigned):
            raise RejectedError(
                f"{self._whose} has nothing to read from: call subscribe(['topic']) first, or "
                "assign partitions"
            )

    def _note_revoked(self, partitions: list[TopicPartition]) -> None:
        self._positions.note_revoked(partitions)
        self._release(partitions)

    @contextmanager
    def _unassigning(self, partitions: list[TopicPartition]) -> Iterator[None]:
        """Keep the positions of partitions that the program unassigns."""
        with self._positions.unassigning(partitions):
            yield
        self._release(partitions)

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        self._beginnings.release(places_of(partitions))
        self._existence.forget(places_of(partitions))


class _Abandoned(Consumer):
    """A consumer in a forked child: it would wait for threads that are not there."""

    def __getattribute__(self, name: str) -> Any:
        if name == "close":
            return lambda: None
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        known = object.__getattribute__(self, "__dict__")
        raise opened_elsewhere(known["_whose"], known["_forked_from"])

    def __enter__(self) -> "_Abandoned":
        raise opened_elsewhere(self.__dict__["_whose"], self.__dict__["_forked_from"])

    def __exit__(self, *_: object) -> None:
        pass


def _class_of(cls: "type[Consumer]", engine: EngineName) -> "type[Consumer]":
    """Return the class of a consumer with this engine: the same, or one derived from it.

    Raises:
        ConfigError: the class cannot have this engine.
    """
    is_native = engine_name(engine) == "native"
    if is_native == cls._is_native:
        return cls
    if not is_native:
        if "_without_native" in cls.__dict__:  # made below, for an `__init__` that gives the engine
            without: type[Consumer] = cls.__dict__["_without_native"]
            return without
        raise ConfigError(
            f"{cls.__name__} cannot have engine={engine!r}, because it is derived from the class "
            "of native consumers: derive it from txn.Consumer",
            property="engine",
        )
    from txn.client.native_consumer import NativeConsumer

    if cls is Consumer:
        return NativeConsumer
    made = cls.__dict__.get("_with_native")
    if made is None:
        names = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "_without_native": cls,
        }
        try:
            made = new_class(cls.__name__, (cls, NativeConsumer), exec_body=partial(_put, names))
        except TypeError as error:
            raise ConfigError(
                f"{cls.__name__} cannot have engine='native': {error}. Derive it from txn.Consumer "
                "alone, or give the class the attribute engine = 'confluent-kafka'",
                property="engine",
            ) from error
        cls._with_native = made  # type: ignore[attr-defined]  # it is freed with the class
    found: type[Consumer] = made
    return found


def _put(names: Mapping[str, object], namespace: dict[str, object]) -> None:
    namespace.update(names)
