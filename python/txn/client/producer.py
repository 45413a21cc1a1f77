"""`txn.Producer`: exactly-once transactions, for any Kafka cluster.

    with txn.Producer(bootstrap_servers="...", transactional_id="pay-3") as producer:
        with producer.transaction(consumer) as t:
            for record in consumer.consume(500, 1.0):
                t.produce("out", value=work(record))

`transaction.py` explains the effect of the block, `consumer.py` its commit for the consumer,
`engine.py` the two clients under it, and `failures.py` the errors made from theirs.

Opening a producer with a transactional id *takes over the id*. Before the constructor returns,
every older producer of that name is fenced and its open transaction is ended. So open the
producer before you ask for committed offsets.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Never, NoReturn, Self

import confluent_kafka
from confluent_kafka import KafkaError, Message

from txn import forks
from txn.client import unclosed
from txn.client.arguments import MESSAGE_BYTES_MAX, ArrowStreamExportable, Headers
from txn.client.block_end import end_lost
from txn.client.callbacks import Callbacks
from txn.client.cautions import Cautions
from txn.client.deadline import Deadline
from txn.client.delivery import Delivery, OnDelivery
from txn.client.engine import DEFAULT_ENGINE, EngineName, ProducerEngine, engine_name
from txn.client.failures import not_copied
from txn.client.handle import TIMEOUT_MS, Handle
from txn.client.library_log import LibraryLog
from txn.client.migration import hint_for, refuse_async, refuse_unknown_arguments
from txn.client.native_settings import require_native_producer
from txn.client.opening import ConnectionErrors, connect, take_over
from txn.client.outcomes import Outcomes
from txn.client.reach import CONNECT_TIMEOUT, Reach
from txn.client.record_queue import RecordQueue
from txn.client.redaction import Redaction
from txn.client.settings import producer_settings, take_callback
from txn.client.transaction import OpenBlock, Transaction, require_consumer
from txn.client.two_phase import (
    PreparedTxnState,
    TwoPhaseEngine,
    complete,
    require_completed,
    take_two_phase,
)
from txn.errors import ConfigError, RejectedError, RetriableError, TxnError

__all__ = ["Headers", "Producer"]


class Producer:
    """A producer whose records are stored exactly once, in transactions if it has an id.

    It accepts the properties of a `confluent_kafka.Producer` but is not one: it polls by itself,
    and raises errors where confluent-kafka calls back. `transaction` replaces the methods for
    transactions.

    A record without a partition goes to the partition of its key, by the hash of Java's producer
    (`partitioner=murmur2_random`). Give `partitioner="consistent_random"` for a topic whose records
    librdkafka's default has placed, with `engine="confluent-kafka"`.

    Without a transactional id it is a plain idempotent producer: `produce`, then `flush`, which
    raises an error for undelivered records. One that is never closed is flushed at the end of the
    interpreter for up to 10 s, and records that are lost then are counted in an ERROR of the logger
    `txn.client`.

    One thread at a time runs transactions; `produce` may be called from any thread. It belongs
    to the process that opened it: in a forked child closing it does nothing, and every other use
    raises ForkedError.

    Args:
        config: Properties by their Kafka (librdkafka) names. One that the engine does not have is
            refused.
        transactional_id: Property `transactional.id`: names this producer over restarts.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        timeout: Seconds to wait until the transactional id is taken over.
        connect_timeout: Seconds to wait for a first broker, if every address refuses or
            resolves to nothing. Once the cluster was reached, `timeout` applies.
        engine: `native`, txn's own client, which speaks version 2 of the transaction protocol if
            the cluster does; or `confluent-kafka` (librdkafka), which has more properties, and
            the callbacks below.
        two_phase_commit: Its transactions can be prepared, and then do not end by themselves:
            see `txn.client.two_phase`. The native engine alone has it.
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
        engine: EngineName = DEFAULT_ENGINE,
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
            require_native_producer(settings, self._whose)
        callbacks = Callbacks()
        callbacks.guard(settings)
        on_delivery = take_callback(settings, "on_delivery")
        only_errors = settings.get("delivery.report.only.error")
        # Bound to the producer, which so is kept while records of it are on their way.
        settings["on_delivery"] = self._note_delivery
        on_error = take_callback(settings, "error_cb")
        settings["error_cb"] = self._note_error
        redaction = Redaction(settings)
        settings.setdefault("logger", LibraryLog())
        redaction.watch(settings)
        self._reach = Reach(settings, self._whose, connect_timeout)
        self._errors = ConnectionErrors(redaction, self._reach, on_error)
        self._cautions = Cautions(self._whose)
        self._handle = Handle(self._whose, callbacks, redaction)
        is_transactional = name is not None
        self._outcomes = Outcomes(
            self._handle,
            is_transactional=is_transactional,
            on_delivery=on_delivery,
            only_errors=only_errors,
        )
        self._records = RecordQueue(
            self._handle, self._outcomes, is_transactional=is_transactional, engine=self._engine
        )
        client = self._connect(settings)
        self._handle.attach(client)
        self._outcomes.reports.begin(client)
        self._handle.timeout_ms = int(str(settings.get("transaction.timeout.ms", TIMEOUT_MS)))
        self._records.message_bytes_max = settings.get("message.max.bytes", MESSAGE_BYTES_MAX)
        forks.watch(self)
        if not is_transactional:
            unclosed.watch(self)
            return
        try:
            take_over(
                self._handle,
                Deadline(timeout),
                reach=self._reach,
                errors=self._errors,
                is_two_phase=self.two_phase_commit,
            )
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
        client = self._handle.client()
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
        return kept is not None and complete(self._handle, kept, state, Deadline(timeout))

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
        append = self._handle.append
        if append is not None and self.transactional_id is None and not others:
            added = append(topic, value, key, headers, partition, timestamp)
            if added:
                return
            if added is None:
                self._records.is_collection_due = True
        refuse_unknown_arguments(others)
        self._require_no_transactions("produce to", topic, "produce")
        self._records.add(topic, value, key, headers, partition, timestamp)

    def write_arrow(self, topic: str, batch: ArrowStreamExportable) -> int:
        """Send the rows of a record batch outside transactions, as `Transaction.write_arrow` does.

        Whether they were stored is known at the next `flush`.

        Raises:
            ConfigError: the engine is confluent-kafka.
            RejectedError: the batch cannot be written, or the producer is transactional.
            FencedError, TypeError: as `produce` raises them.
        """
        self._require_no_transactions("write to", topic, "write_arrow")
        count = 0
        for rows in self._records.rows_of(batch):
            self._records.add_rows(topic, rows)
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
        self._require_no_transactions("send to", topic, "send")
        delivery = self._outcomes.new_delivery(on_delivery)
        try:
            self._records.add(topic, value, key, headers, partition, timestamp, delivery)
        except BaseException:
            self._outcomes.reports.remove(delivery)
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
        while (waiting := self._handle.wait(deadline.slice())) and not deadline.has_passed:
            self._reach.check()
        if not waiting and self._records.produced:
            self._reach.prove()
        if waiting:
            waiting = self._handle.count_waiting()
        self._outcomes.raise_undelivered()
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
        if self._handle.engine is None or self._handle.forked_from is not None:
            return
        try:
            self._end_lost(timeout)
            if (transaction := self._handle.blocks.transaction()) is not None:
                transaction._end.end_from_outside()
            if self.transactional_id is None and self._handle.broken is None:
                self._flush(timeout, "are given up: the producer is closed")
        finally:
            self._discard_client()

    def __del__(self) -> None:
        # Records without a report keep it from being collected: librdkafka holds its callback.
        # An error of the constructor may come before all that is asked for here.
        handle: Handle | None = self.__dict__.get("_handle")
        if handle is not None and handle.engine is not None and self.transactional_id is None:
            unclosed.log_failures(self._whose, self._outcomes.untold())

    def _close_forgotten(self, timeout: float) -> None:
        client = self._handle.engine
        if client is None or self._handle.forked_from is not None:
            return
        try:
            self._flush(timeout, "are given up")
        except Exception as error:
            waiting = self._handle.count_waiting()
            failed = (getattr(error, "count", None) or 0) + len(self._outcomes.untold())
            if lost := failed + waiting:
                unclosed.log_loss(self._whose, lost, error)
            if not isinstance(error, TxnError):
                raise  # of a callback of the program's
        finally:
            self._discard_client()

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child: its threads are not in it; see `txn.forks`."""
        self._handle.abandon(parent)
        self._outcomes.reports.abandon(parent)

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
        if self.two_phase_commit:
            require_completed(self._whose, self.kept_transaction)
        self._handle.claim(place)
        self._outcomes.forget()

    def _end_lost(self, timeout: float) -> None:
        """End the open transaction if its block is gone."""
        if (place := self._handle.blocks.lost()) is not None:
            end_lost(self, place, timeout)

    # ------------------------------------------------------------ inside

    def _require_no_transactions(self, verb: str, topic: str, call: str) -> None:
        if self.transactional_id is not None:
            raise RejectedError(
                f"{self._whose} cannot {verb} {topic!r} outside a transaction; use "
                f"`with producer.transaction() as t: t.{call}(...)`"
            )

    def _connect(self, settings: dict[str, object]) -> ProducerEngine:
        return connect(
            settings,
            self._engine,
            whose=self._whose,
            reports=self._outcomes.reports,
            on_report=self._note_report,
            on_failure=self._note_failure,
            on_refusal=self._reach.refuse,
        )

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._outcomes.note_delivery(error, message)

    def _note_report(self, delivery: Delivery, error: KafkaError | None, message: Message) -> None:
        self._outcomes.note_report(delivery, error, message)

    def _note_failure(
        self,
        topic: str,
        partition: int,
        error: KafkaError,
        size: int,
        delivery: Delivery | None = None,
    ) -> None:
        self._outcomes.note_failure(topic, partition, error, size, delivery)

    def _note_error(self, error: KafkaError) -> None:
        self._errors.note(error)

    def _discard_client(self) -> None:
        """Drop the engine, with all that it still holds."""
        client = self._handle.detach()
        if client is not None:
            self._outcomes.reports.close()
            client.purge()
            # librdkafka's threads end with the last reference, which the thread may have.
            del client
            self._outcomes.reports.stop()
