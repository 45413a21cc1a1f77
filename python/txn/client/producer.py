"""`txn.Producer`: exactly-once transactions on confluent-kafka, for any Kafka cluster.

    with txn.Producer(bootstrap_servers="...", transactional_id="pay-3") as producer:
        with producer.transaction(consumer) as t:
            for record in consumer.consume(500, 1.0):
                t.produce("out", value=work(record))

`transaction.py` explains the effect of the block, `consumer.py` its commit for the consumer, and
`failures.py` the errors made from librdkafka's.

Opening a producer with a transactional id *takes over the id*. Before the constructor returns,
every older producer of that name is fenced and its open transaction is ended. So open the
producer before you ask for committed offsets.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Never, NoReturn, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from txn import forks
from txn.client import unclosed
from txn.client.arguments import (
    LIKE_SECONDS_FIRST,
    LIKE_SECONDS_LAST,
    MESSAGE_BYTES_MAX,
    ArrowStreamExportable,
    seconds_suspected,
    size_of,
    too_large,
    wrong_record,
)
from txn.client.callbacks import Callbacks, keeping_fatal_errors
from txn.client.cautions import Cautions
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.delivery import Delivery, OnDelivery
from txn.client.engine import EngineName, ProducerEngine, arrow_module, engine_name
from txn.client.failures import (
    ENDED,
    PURGED,
    DeliveryFailure,
    error_of,
    is_refusal,
    not_copied,
    opened_elsewhere,
    reported_by,
    timed_out,
    timeout_refused,
    translate,
    undelivered,
)
from txn.client.library_log import LibraryLog
from txn.client.librdkafka import Librdkafka
from txn.client.migration import hint_for, refuse_async, refuse_unknown_arguments
from txn.client.positions import Offsets
from txn.client.reach import CONNECT_TIMEOUT, Reach
from txn.client.redaction import Redaction
from txn.client.reports import Reports
from txn.client.settings import producer_settings, refused, take_callback
from txn.client.transaction import OpenBlock, Transaction, require_consumer
from txn.client.two_phase import (
    PreparedTxnState,
    TwoPhaseEngine,
    refused_two_phase,
    take_two_phase,
)
from txn.errors import (
    AbortableError,
    Action,
    ConfigError,
    FencedError,
    InDoubtError,
    RejectedError,
    RetriableError,
    TxnError,
)

Headers = list[tuple[str, str | bytes | None]] | dict[str, str | bytes | None]

if TYPE_CHECKING:
    from txn.client.arrow import Rows

PRODUCES_PER_POLL: Final = 256
"""Reports of delivery are collected once in so many records, and whenever the queue is full."""

TIMEOUT_MS: Final = 60_000
"""transaction.timeout.ms where it is left out."""


class Producer:
    """A producer whose records are stored exactly once, in transactions if it has an id.

    It accepts the properties of a `confluent_kafka.Producer` but is not one: it polls by itself,
    and raises errors where confluent-kafka calls back. `transaction` replaces the methods for
    transactions.

    A record without a partition goes to the partition of its key, by the hash of Java's producer
    (`partitioner=murmur2_random`). Give `partitioner="consistent_random"` for a topic whose records
    librdkafka's default has placed.

    Without a transactional id it is a plain idempotent producer: `produce`, then `flush`, which
    raises an error for undelivered records. One that is never closed is flushed at the end of the
    interpreter for up to 10 s, and records that are lost then are counted in an ERROR of the logger
    `txn.client`.

    One thread at a time runs transactions; `produce` may be called from any thread. It belongs
    to the process that opened it: in a forked child closing it does nothing, and every other use
    raises ForkedError.

    Args:
        config: Properties by their Kafka (librdkafka) names, passed on as they are.
        transactional_id: Property `transactional.id`: names this producer over restarts.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        timeout: Seconds to wait until the transactional id is taken over.
        connect_timeout: Seconds to wait for a first broker, if every address refuses or
            resolves to nothing. Once the cluster was reached, `timeout` applies.
        engine: `confluent-kafka` (librdkafka), or `native`: txn's own client. It speaks version 2
            of the transaction protocol, and has no callbacks.
        two_phase_commit: Its transactions can be prepared, and then do not end by themselves:
            see `txn.client.two_phase`. Needs the native engine.
        more: Further properties, with `_` for `.`: `linger_ms=5`.

    An exception of a callback (`error_cb`, `on_delivery`, `stats_cb`, `throttle_cb`) is raised by
    the call that waits meanwhile. During a commit it waits for the outcome; during an abort it
    becomes a note of the exception that caused that. `oauth_cb`'s is reported to `error_cb`.

    Raises:
        ConfigError: a property is unknown, given twice, missing, or breaks exactly-once.
        UnreachableError: no broker is to be reached at the bootstrap servers.
        RetriableError: the cluster was not ready in time.
        RejectedError: the cluster refuses this producer.
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
        engine: EngineName = "confluent-kafka",
        two_phase_commit: bool = False,
        **more: object,
    ) -> None:
        self._engine = engine_name(engine)
        settings = producer_settings(
            config,
            transactional_id=transactional_id,
            bootstrap_servers=bootstrap_servers,
            keywords=more,
        )
        name = settings.get("transactional.id")
        self.transactional_id: str | None = None if name is None else str(name)
        self._whose = "the producer" if name is None else f"producer {name!r}"
        self.two_phase_commit = take_two_phase(
            settings, is_wanted=two_phase_commit, engine=self._engine, whose=self._whose
        )
        if self._engine == "native":
            from txn.client.native import require_native_settings

            require_native_settings(settings, self._whose)
        self._callbacks = Callbacks()
        self._callbacks.guard(settings)
        self._on_delivery = take_callback(settings, "on_delivery")
        self._only_errors = _is_true(settings.get("delivery.report.only.error"))
        settings["on_delivery"] = self._note_delivery
        self._on_error = take_callback(settings, "error_cb")
        settings["error_cb"] = self._note_error
        self._last_report = ""  # librdkafka's last message about a connection
        self._redaction = Redaction(settings)
        settings.setdefault("logger", LibraryLog())
        self._redaction.watch(settings)
        self._reach = Reach(settings, self._whose, connect_timeout)
        self._cautions = Cautions(self._whose)
        self._failures: deque[DeliveryFailure] = deque()
        self._reports = Reports(self._whose, in_transaction=name is not None)
        self._produced = 0
        self._open: dict[str, OpenBlock] = {}  # at most one
        self._broken: TxnError | None = None
        self._last_sent: tuple[confluent_kafka.Consumer, Offsets] | None = None  # and committed
        self._forked_from: int | None = None
        self._waits_for_room = True  # False: `produce` raises BufferError while the queue is full
        self._kafka: ProducerEngine | None = self._connect(settings)
        self._reports.begin(self._kafka)
        self._timeout_ms = int(str(settings.get("transaction.timeout.ms", TIMEOUT_MS)))
        self._message_bytes_max = settings.get("message.max.bytes", MESSAGE_BYTES_MAX)
        forks.watch(self)
        if self.transactional_id is None:
            unclosed.watch(self)
        else:
            try:
                self._init_transactions(Deadline(timeout))
            except BaseException:
                self._discard_client()
                raise

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with the replacement of a method of confluent-kafka's."""
            raise AttributeError(
                f"txn.Producer has no {name!r}{hint_for(name)}", name=name, obj=self
            )

        def __aenter__(self) -> NoReturn:
            refuse_async("txn.Producer")

        __aexit__ = __aenter__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TxnError as failure:
            if error is None:
                raise
            error.add_note(f"Closing {self._whose}: {failure}")

    def transaction(
        self, consumer: confluent_kafka.Consumer | None = None, timeout: float = 60.0
    ) -> Transaction:
        """Return a transaction for a `with` statement: begun on entry, ended on exit.

        Leaving the block commits: first every record, then the consumer's offsets, then the
        transaction. An exception in the block, Ctrl-C included, aborts it, rewinds the consumer
        and propagates. A rewind goes to the group's committed offsets, or to the target of a
        seek since.

        Args:
            consumer: The consumer whose offsets to commit with the transaction: everything that
                it returned, in the block or before. Best a `txn.Consumer`. A plain
                `confluent_kafka.Consumer` must have `enable.auto.commit=false` and
                `isolation.level=read_committed` (librdkafka's default), which cannot be seen
                from outside, so the first block warns; its rebalances are noticed as
                `txn.client.block_consumer.PlainState` tells.
            timeout: Seconds that ending may take: committing, or aborting, or rewinding.

        Raises (from the `with` statement):
            AbortableError: the transaction was aborted; run the block again.
            RetriableError: it was aborted because the cluster did not answer in time.
            FencedError: another producer took over this transactional id, or the state of this
                producer is lost; close it, and open another only if `action` is REOPEN.
            InDoubtError: the commit had no answer; see `txn.errors.InDoubtError`.
            RejectedError: it was aborted and would be again; or a transaction is open already.
        """
        if consumer is not None:
            require_consumer(consumer)
        return self.make_transaction(consumer, timeout)

    def make_transaction(
        self, consumer: confluent_kafka.Consumer | None, timeout: float
    ) -> Transaction:
        """Return the block of `transaction`, not begun. `txn.otel` makes one with spans."""
        return Transaction(self, consumer, timeout)

    @property
    def kept_transaction(self) -> PreparedTxnState | None:
        """The prepared transaction of the producer before, until `complete_transaction` ends it.

        None if nothing was left open. Only with `two_phase_commit`.
        """
        client = self._client()
        kept = client.kept_transaction() if isinstance(client, TwoPhaseEngine) else None
        return None if kept is None else PreparedTxnState(*kept)

    def complete_transaction(self, state: PreparedTxnState, timeout: float = 60.0) -> bool:
        """End the prepared transaction of the producer before, as the other system has decided.

        Commits if `state` is the state of the transaction that was left open, else aborts it. Does
        nothing if none was left open. Can be repeated after an error.

        Args:
            state: The last decision to commit, or `PreparedTxnState()` if there is none.
            timeout: Seconds that the end may take.

        Returns:
            Whether a transaction was committed.

        Raises:
            RetriableError: the cluster did not answer in time; nothing is lost, call it again.
            FencedError: another producer took this transactional id, and completes it.
        """
        kept = self.kept_transaction
        if kept is None:
            return False
        client, deadline = self._client(), Deadline(timeout)
        is_commit = kept == state
        end = client.commit_transaction if is_commit else client.abort_transaction
        while True:
            try:
                end(deadline.slice() or PAUSE_SECONDS)
                return is_commit
            except KafkaException as raised:
                error = error_of(raised)
                if error.fatal() or not error.retriable() or deadline.has_passed:
                    raise self._failure(error, "completing a prepared transaction") from raised

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        **others: Never,
    ) -> None:
        """Send a record outside transactions; only for a producer without a transactional id.

        Arguments are those of `Transaction.produce`. Waits while the queue is full. Whether
        the record was stored is known at the next `flush`.

        Raises:
            RejectedError: the record can never be stored, its timestamp is 0 or negative, or the
                producer is transactional.
            FencedError: the producer has failed for good; open another.
            TypeError: an argument is unknown, as `on_delivery` is, or has a type that does not fit.
        """
        refuse_unknown_arguments(others)
        if self.transactional_id is not None:
            raise RejectedError(
                f"{self._whose} cannot produce to {topic!r} outside a transaction; use "
                "`with producer.transaction() as t: t.produce(...)`"
            )
        self._enqueue(topic, value, key, headers, partition, timestamp)

    def write_arrow(self, topic: str, batch: ArrowStreamExportable) -> int:
        """Send the rows of a record batch outside transactions, as `Transaction.write_arrow` does.

        Whether they were stored is known at the next `flush`.

        Raises:
            ConfigError: the engine is confluent-kafka.
            RejectedError: the batch cannot be written, or the producer is transactional.
            FencedError, TypeError: as `produce` raises them.
        """
        if self.transactional_id is not None:
            raise RejectedError(
                f"{self._whose} cannot write to {topic!r} outside a transaction; use "
                "`with producer.transaction() as t: t.write_arrow(...)`"
            )
        count = 0
        for rows in self._arrow_rows(batch):
            self._enqueue_rows(topic, rows)
            count += rows.count
        return count

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send a record as `produce` does, and return its delivery: when and where it is stored.

        A record that fails is raised by `flush` and `close` only if nobody has asked its delivery.

        Args:
            on_delivery: Called with (None, metadata) or (error, None), as `Delivery.
                add_done_callback` tells. The others are those of `Transaction.produce`.

        Raises:
            ConfigError: `delivery.report.only.error=true`, which hides what is stored.
            RejectedError, FencedError, TypeError: as `produce` raises them.
        """
        if self.transactional_id is not None:
            raise RejectedError(
                f"{self._whose} cannot send to {topic!r} outside a transaction; use "
                "`with producer.transaction() as t: t.send(...)`"
            )
        delivery = self._new_delivery(on_delivery)
        try:
            self._enqueue(topic, value, key, headers, partition, timestamp, delivery)
        except BaseException:
            self._reports.remove(delivery)
            raise
        return delivery

    def flush(self, timeout: float = 60.0) -> None:
        """Wait until every record produced so far is stored.

        Raises:
            RetriableError: some record was not stored, or not acknowledged in time. In the
                second case it is still on its way: flush again.
            RejectedError: some record can never be stored; or the producer is transactional,
                where the end of the block does this.
        """
        if self.transactional_id is not None:
            raise RejectedError(
                f"{self._whose} cannot flush: the end of its transaction waits for every record"
            )
        self._flush(timeout, "are still on their way; flush again")

    def _flush(self, timeout: float, fate: str) -> None:
        """Flush; `fate` says what becomes of records that were not acknowledged in time."""
        deadline = Deadline(timeout)
        while (waiting := self._wait(deadline.slice())) and not deadline.has_passed:
            self._reach.check()
        if not waiting and self._produced:
            self._reach.prove()
        self._raise_undelivered()
        if waiting:
            raise RetriableError(
                f"{waiting} records were not acknowledged within {timeout:g} s and {fate}",
                waiting=waiting,
            )

    def close(self, timeout: float = 60.0) -> None:
        """Flush a producer without transactions, and let go of the connection. Can be repeated.

        An open transaction is aborted, and its block raises RejectedError where it ends.

        Raises:
            TxnError: the error of `flush`; the producer is closed all the same.
        """
        if self._kafka is None or self._forked_from is not None:
            return
        try:
            self._end_lost(timeout)
            if (transaction := self._transaction()) is not None:
                transaction._end()
            if self.transactional_id is None and self._broken is None:
                self._flush(timeout, "are given up: the producer is closed")
        finally:
            self._discard_client()

    def __del__(self) -> None:
        # Records without a report keep it from being collected: librdkafka holds its callback.
        # An error of the constructor may come before all that is asked for here.
        if self.__dict__.get("_kafka") is not None and self.transactional_id is None:
            unclosed.log_failures(self._whose, [f for f in self._failures if not f.is_told])

    def _close_forgotten(self, timeout: float) -> None:
        client = self._kafka
        if client is None or self._forked_from is not None:
            return
        try:
            self._flush(timeout, "are given up")
        except Exception as error:
            lost = (getattr(error, "count", None) or 0) + len(client)
            if lost:
                unclosed.log_loss(self._whose, lost, error)
            if not isinstance(error, TxnError):
                raise  # of a callback of the program's
        finally:
            self._discard_client()

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child: librdkafka's threads are not in it; see `txn.forks`."""
        self._forked_from = parent
        self._reports.abandon(parent)

    @property
    def _is_abandoned(self) -> bool:
        """True in a forked child, where it is of no use."""
        return self._forked_from is not None

    def __reduce__(self) -> NoReturn:
        raise not_copied("txn.Producer")

    # ------------------------------------------------------------ for Transaction

    def _begin_block(self, place: OpenBlock, timeout: float) -> None:
        if self.transactional_id is None:
            raise ConfigError(
                "the producer has no transactional id, so it has no transactions; open it with "
                "transactional_id='a name that stays the same over restarts'"
            )
        self._end_lost(timeout)
        if self.two_phase_commit and (kept := self.kept_transaction) is not None:
            raise RejectedError(
                f"{self._whose} found the prepared transaction {kept} of the producer before it. "
                "Call complete_transaction(state) first, with the last state that the other system "
                "has stored; txn.sql.recover does it for a database"
            )
        self._client()
        # One step for all threads, and no lock that a signal could leave locked.
        if self._open.setdefault("transaction", place) is not place:
            raise RejectedError(
                f"{self._whose} has a transaction open already: a producer has one at a time. "
                "Leave that block first, or open another producer; `close` aborts it"
            )
        self._failures.clear()

    def _holds_block(self, place: OpenBlock) -> bool:
        return self._open.get("transaction") is place

    def _end_block(self, place: OpenBlock) -> None:
        if self._holds_block(place):
            del self._open["transaction"]

    def _transaction(self) -> Transaction | None:
        """Return the open transaction."""
        place = self._open.get("transaction")
        return None if place is None else place.block()

    def _end_lost(self, timeout: float) -> None:
        """End the open transaction if its block is gone."""
        place = self._open.get("transaction")
        if place is not None and place.block() is None:
            Transaction(self, None, timeout)._end_lost(place)

    def _client(self) -> ProducerEngine:
        """Return the engine's producer, if it is fit for use."""
        if self._forked_from is not None:
            raise opened_elsewhere(self._whose, self._forked_from)
        if self._broken is not None:
            kind = InDoubtError if isinstance(self._broken, InDoubtError) else FencedError
            is_over = self._broken.action is Action.GIVE_UP
            advice = "close it" if is_over else "open another"
            raise kind(
                f"{self._whose} can no longer be used; {advice}. {self._broken}",
                action=Action.GIVE_UP if is_over else Action.REOPEN,
            )
        if self._kafka is None:
            raise RejectedError(f"{self._whose} is closed; open another")
        return self._kafka

    def _give_up(self, reason: TxnError) -> None:
        """Refuse every later use: the producer is fenced, or its state is unknown."""
        if self._broken is None:
            self._broken = reason

    def _failure(self, error: KafkaError, doing: str) -> TxnError:
        """Return the error to raise for a report, after noting its meaning for this producer."""
        error = self._redaction.error(error)
        failure = self._timed_out(error) or translate(error, whose=self._whose, doing=doing)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            failure = timeout_refused(error, whose=self._whose, timeout_ms=self._timeout_ms)
        if error.fatal() or isinstance(failure, FencedError):
            self._give_up(failure)
        return failure

    def _timed_out(self, error: KafkaError) -> TxnError | None:
        """Return what to raise if the cluster aborted the open transaction for its age."""
        transaction = self._transaction()
        open_ms = 0 if transaction is None else transaction.open_ms
        if error.code() not in ENDED or open_ms < self._timeout_ms:
            return None
        return timed_out(error, whose=self._whose, open_ms=open_ms, timeout_ms=self._timeout_ms)

    def _wait(self, seconds: float) -> int:
        """Wait until every record is stored or given up; return how many still are neither.

        Raises the exception of a callback, as `_serve` does.
        """
        waiting = self._wait_only(seconds)
        self._callbacks.raise_kept()
        return waiting

    def _wait_only(self, seconds: float) -> int:
        """Wait as `_wait` does; an exception of a callback is kept for later."""
        client = self._client()
        return self._reporting(lambda: client.flush(seconds))

    def _serve(self, deadline: Deadline) -> None:
        """Pause, collecting reports of delivery meanwhile."""
        client = self._client()
        self._reporting(lambda: client.poll(min(PAUSE_SECONDS, deadline.remaining)))
        self._callbacks.raise_kept()

    def _await_reports(self, seconds: float) -> None:
        """Wait for reports of delivery; an exception of a callback is kept for a later call."""
        client = self._client()
        self._reporting(lambda: client.poll(seconds))

    def _reporting(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except (KafkaException, SystemError) as raised:
            error = reported_by(raised)
            if error is None:
                raise
            raise self._failure(error, "waiting for its records to be stored") from raised

    def _new_delivery(self, on_delivery: OnDelivery | None) -> Delivery:
        if self._only_errors:
            raise ConfigError(
                f"{self._whose} has delivery.report.only.error=true, so nothing tells it what is "
                "stored: leave that out, or use produce()",
                property="delivery.report.only.error",
            )
        return self._reports.add(on_delivery)

    def _enqueue(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        delivery: Delivery | None = None,
    ) -> None:
        client = self._client()
        if timestamp == 0:
            raise RejectedError(
                f"{self._whose} cannot send timestamp 0 to {topic!r}: librdkafka takes it for the "
                "time of sending. Give 1, the next millisecond, or none"
            )
        if isinstance(timestamp, int) and timestamp < 0:
            raise RejectedError(
                f"{self._whose} cannot send timestamp {timestamp} to {topic!r}: a timestamp counts "
                "milliseconds since 1970, as in Java's producer. Give a later time, or none"
            )
        if (
            isinstance(timestamp, int)  # another type raises its TypeError
            and LIKE_SECONDS_FIRST <= timestamp <= LIKE_SECONDS_LAST
        ):
            warnings.warn(seconds_suspected(timestamp), stacklevel=3)
        self._produced += 1
        if self._produced % PRODUCES_PER_POLL == 0:
            self._serve(Deadline(0))
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
                self._serve(Deadline(PAUSE_SECONDS if self._waits_for_room else 0))
                if self.transactional_id is not None:
                    self._raise_undelivered()
                if not self._waits_for_room:
                    raise
            except KafkaException as raised:
                if error_of(raised).code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    size = size_of(value, key)
                    raise self._too_large(error_of(raised), topic, size) from raised
                self._refuse(raised, topic)
            except TypeError as raised:
                fault = wrong_record(topic, value, key, headers, partition, timestamp)
                if fault is None:
                    raise
                raise TypeError(f"produce(): {fault}") from raised

    def _arrow_rows(self, batch: ArrowStreamExportable) -> "Iterator[Rows]":
        """Return the rows of a batch, all of them checked. Raises as `write_arrow`."""
        if self._engine != "native":
            raise ConfigError(
                f"{self._whose} has no write_arrow: give it engine='native'", property="engine"
            )
        found: Iterator[Rows] = arrow_module(f"write_arrow() of {self._whose}").rows_of(batch)
        return found

    def _enqueue_rows(self, topic: str, rows: "Rows") -> None:
        """Take rows; wait while the queue is full."""
        from txn.client.native import NativeProducer

        client = self._client()
        assert isinstance(client, NativeProducer)  # as `_arrow_rows` requires
        self._serve(Deadline(0))
        first = 0
        try:
            while (first := client.produce_rows(topic, rows, first)) < rows.count:
                self._serve(Deadline(PAUSE_SECONDS))
                if self.transactional_id is not None:
                    self._raise_undelivered()
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._too_large(error, topic, None) from raised
            self._refuse(raised, topic)

    def _too_large(self, error: KafkaError, topic: str, record_bytes: int | None) -> RejectedError:
        return RejectedError(
            too_large(self._whose, topic, record_bytes, self._message_bytes_max),
            topic=topic,
            code=error.code(),
            name=error.name(),
        )

    def _refuse(self, raised: KafkaException, topic: str) -> NoReturn:
        error = error_of(raised)
        if error.code() in (KafkaError._STATE, KafkaError._FATAL) and self._open:
            self._raise_undelivered()
            self._raise_cause()
        raise self._failure(error, f"producing to {topic!r}") from raised

    def _raise_undelivered_behind(self, error: KafkaError) -> None:
        """Raise for records that were not stored, if they are why a call is refused.

        librdkafka says no more than that the state does not allow the call. The report of the
        record comes a moment later.
        """
        if error.code() == KafkaError._STATE and not self._failures:
            self._serve(Deadline(PAUSE_SECONDS))
        self._raise_undelivered()

    def _raise_undelivered(self) -> None:
        """Raise for the records that were not stored, if any were not."""
        failures = []
        while self._failures:
            failures.append(self._failures.popleft())
        if not failures:
            return
        is_transactional = self.transactional_id is not None
        if not is_transactional:
            failures = [failure for failure in failures if not failure.is_told]
            if not failures:
                return
        if is_transactional and all(f.error.code() in PURGED for f in failures):
            self._raise_cause()
        causes = (self._timed_out(failed.error) for failed in failures)
        failure = next(filter(None, causes), None) or undelivered(
            failures, whose=self._whose, in_transaction=is_transactional
        )
        if isinstance(failure, FencedError):
            self._give_up(failure)
        raise failure

    def _raise_cause(self) -> NoReturn:
        """Raise the error by which the open transaction failed in the background.

        librdkafka gives it when it refuses a transition. It refuses `begin_transaction` in every
        state in which a transaction is open. If another thread has ended it meanwhile, this begins
        one, which is empty, and ended at once.
        """
        client = self._client()
        try:
            client.begin_transaction()
            client.abort_transaction(PAUSE_SECONDS)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() != KafkaError._STATE:
                raise self._failure(error, "producing") from raised
        raise AbortableError(
            f"{self._whose} is not in a transaction that can take records. Begin another"
        )

    # ------------------------------------------------------------ inside

    def _connect(self, settings: dict[str, object]) -> ProducerEngine:
        if self._engine == "native":
            from txn.client.native import NativeProducer

            for name in ("on_delivery", "error_cb", "delivery.report.only.error"):
                settings.pop(name, None)
            return NativeProducer(
                settings,
                self._whose,
                reports=self._reports,
                on_failure=self._note_failure,
                on_refusal=self._reach.refuse,
            )
        try:
            return Librdkafka(keeping_fatal_errors(settings), self._note_report)
        except KafkaException as raised:
            raise refused(self._whose, raised, settings) from None  # its text may have a secret

    def _init_transactions(self, deadline: Deadline) -> None:
        client = self._client()
        while True:
            try:
                client.init_transactions(deadline.slice() or PAUSE_SECONDS)
                self._reach.prove()
                return
            except KafkaException as raised:
                error = error_of(raised)
                if error.code() > 0:  # a number of Kafka's: a broker has answered
                    self._reach.prove()
                is_over = not error.retriable() or error.fatal()
                try:
                    if not is_over:
                        self._serve(deadline)
                        self._reach.check(is_over=deadline.has_passed)
                except TxnError as told:
                    self._discard_client()
                    raise told from None  # the time-out before it says nothing
                except Exception:
                    self._discard_client()
                    raise
                if is_over or deadline.has_passed:
                    failure = self._failure(error, "taking over its id")
                    if self.two_phase_commit:
                        failure = refused_two_phase(error, self._whose) or failure
                    if self._last_report:
                        failure.add_note(f"librdkafka said last: {self._last_report}")
                    self._discard_client()
                    raise failure from raised

    def _note_delivery(
        self, error: KafkaError | None, message: Message, delivery: Delivery | None = None
    ) -> None:
        if error is not None:
            error = self._redaction.error(error)
            partition = message.partition()
            self._note_failure(
                message.topic() or "",
                -1 if partition is None else partition,
                error,
                size_of(message.value(), message.key()),
                delivery,
            )
        if self._on_delivery is not None:
            self._on_delivery(error, message)

    def _note_report(self, delivery: Delivery, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            self._reports.stored(
                delivery,
                message.topic() or "",
                message.partition() or 0,
                -1 if offset is None or offset < 0 else offset,
                message.timestamp()[1],
            )
            if self._on_delivery is not None:
                self._on_delivery(error, message)
            return
        self._note_delivery(error, message, delivery)

    def _note_failure(
        self,
        topic: str,
        partition: int,
        error: KafkaError,
        size: int,
        delivery: Delivery | None = None,
    ) -> None:
        failure = DeliveryFailure(topic, partition, error, size, delivery)
        while self._failures and self._failures[0].is_told and self.transactional_id is None:
            self._failures.popleft()  # of a program that never flushes
        self._failures.append(failure)
        if delivery is not None:
            self._reports.failed(delivery, failure)

    def _note_error(self, error: KafkaError) -> None:
        error = self._redaction.error(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_report = error.str()
        if is_refusal(error):
            self._reach.refuse(error.str())
        if self._on_error is not None:
            self._on_error(error)

    def _discard_client(self) -> None:
        """Drop librdkafka's producer, with all that it still holds."""
        client, self._kafka = self._kafka, None
        if client is not None:
            self._reports.close()
            client.purge()
            del (
                client
            )  # librdkafka's threads end with the last reference, which the thread may have
            self._reports.stop()


def _is_true(setting: object) -> bool:
    return str(setting).lower() in ("true", "t", "1")
