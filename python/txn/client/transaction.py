"""One transaction as a `with` block: begun, and then committed or aborted, never left open.

The life of a block, and the consequence of each failure in it:

    begin ── the body ── flush ── offsets ── commit ── over
                │          │         │          ├── requires abort ─► abort ─► rewind ─► raise
                └──────────┴─────────┴──────────┤
                           any exception ─► abort ─► rewind ─► raise it again
                                                └── no answer ─► in doubt: never called aborted

- *Flush* comes first, by itself: while the commit has not been asked for, the transaction can
  still be aborted, and delivery failures are known by name.
- *An error of `produce` or `send_offsets` that the body catches* leaves output or offsets behind.
  The block goes on and cannot commit, as with Java's producer. Only an argument that does not fit
  leaves it as it was.
- *A signal during the commit* (Ctrl-C) does not stop it: the commit was decided when the body
  ended. The block learns the outcome, within its timeout, and then raises. librdkafka's answer may
  be lost to the signal. A repeated commit then answers "not in this state", which after a commit
  can only mean that it is done.
- *An exception of a callback* that is served during the commit waits for the outcome in the same
  way (`callbacks.py`). If anything else hides the answer to a commit, the abort is refused for want
  of a transaction. That is no proof of an abort: it is in doubt.
- *A signal anywhere else in the ending*, where Python may raise it between any two steps, leaves
  traces that are acted on. A transaction that was not seen to end makes its producer unfit for
  another. A consumer whose block was not seen to commit is rewound before its next one.
- *A signal between* the begin and the block, or between the block and its end, leaves a transaction
  that no `with` statement will end. The producer ends it before its next one, or when it is closed.
- *In doubt* is a commit without an answer at the deadline. It may be done, it may still
  happen; aborting it is neither possible nor honest. `InDoubtError` says so.
- *Rewind* after every failure, whichever the outcome, is right: it goes to the committed offsets.
  It goes to the target of a seek before the block only if no commit was asked for, or one is
  known to have failed.

Invariant: nothing is added to a transaction before its begin, or after its end has begun.

`block_end.py` has the loops of commit and abort, `block_offsets.py` the offsets and the rewind,
`record_queue.py` the way of a record.

Sources: librdkafka's transactional producer API (resumable calls, marks), KIP-98, KIP-447.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from txn.client.arguments import ArrowStreamExportable, Headers, is_for_arguments
from txn.client.block_consumer import require_consumer
from txn.client.block_end import BlockEnd
from txn.client.block_offsets import BlockOffsets
from txn.client.block_state import BlockPhase, BlockResult, BlockState, OpenBlock
from txn.client.deadline import Deadline
from txn.client.delivery import Delivery, OnDelivery
from txn.client.failures import error_of
from txn.client.migration import INSTEAD_IN_BLOCK, hint_for, refuse_async, refuse_unknown_arguments
from txn.client.positions import Offsets
from txn.client.two_phase import PreparedTxnState, TwoPhaseEngine
from txn.errors import AbortableError, ConfigError, RejectedError, TxnError

if TYPE_CHECKING:
    from txn.client.producer import Producer

__all__ = ["BlockPhase", "BlockResult", "OpenBlock", "Transaction", "require_consumer"]


class Transaction:
    """An open transaction; the value of `producer.transaction()`, for one `with` statement.

    Leaving the block commits; an exception, Ctrl-C included, aborts and propagates.
    `produce` may be called from any thread while the block is open; entering and leaving
    belong to one thread.
    """

    def __init__(
        self,
        producer: "Producer",
        consumer: confluent_kafka.Consumer | None,
        timeout: float,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._handle = producer._handle
        self._whose = producer._handle.whose
        self._records = producer._records
        self._outcomes = producer._outcomes
        self._place = OpenBlock(weakref.ref(self))
        # None of these parts holds the block: its producer has to see when Python drops it.
        self._state = BlockState(self._place, timeout)
        self._offsets = BlockOffsets(
            self._state, consumer, self._handle, self._outcomes, producer._cautions
        )
        self._end = BlockEnd(self._state, self._offsets, self._handle)
        self._unproduced: BaseException | None = None  # raised by a `produce`
        self._unsent: BaseException | None = None  # raised by the last `send_offsets`
        self._prepared_offsets: Offsets | None = None  # sent, once it is prepared

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with the block's replacement for another client's call."""
            hint = hint_for(name, INSTEAD_IN_BLOCK)
            raise AttributeError(f"a transaction has no {name!r}{hint}", name=name, obj=self)

        def __aenter__(self) -> NoReturn:
            refuse_async("a transaction")

        __aexit__ = __aenter__

    @property
    def open_ms(self) -> int:
        """Milliseconds since it began; 0 before that."""
        return self._state.open_ms

    @property
    def result(self) -> BlockResult | None:
        """The result of the block; None before its end."""
        return self._state.result

    def call_at_end(self, callback: "Callable[[BlockResult], object]") -> None:
        """Call back with the result when the block has ended; the callback must not raise.

        A signal at the end may come before the callback. `txn.Table` keeps its rows so.

        Raises RejectedError: the block is not open.
        """
        self._require_open("call back at its end")
        self._place.at_end.append(callback)

    @property
    def _is_open(self) -> bool:
        """True from its begin to its end."""
        return self._handle.blocks.holds(self._place)

    def __enter__(self) -> Self:
        if self._state.phase is not BlockPhase.NEW:
            raise RejectedError(
                f"this transaction of {self._whose} was begun before; call transaction() for each "
                "`with`"
            )
        try:
            self._producer._begin_block(self._place, self._state.timeout)
            self._offsets.prepare()
            self._begin()
            self._offsets.note_begun()
            return self
        except BaseException as reason:
            if not self._handle.blocks.holds(self._place):
                raise
            try:
                # A signal may have come after the transaction began and before that was noted.
                if not isinstance(reason, TxnError):
                    self._end.abort(reason)
            finally:
                self._end.leave_producer()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._handle.forked_from is not None:
            return  # of a forked child, which ends so: the transaction is its parent's
        try:
            if self._state.phase is BlockPhase.ENDED:  # by `close` or `leave_prepared`
                if error is None and not self._place.is_prepared:
                    raise RejectedError(
                        f"the transaction was aborted: {self._whose} was closed in its block"
                    )
                return
            if error is not None:
                self._end.abort(error)
                return
            try:
                self._finish()
            except BaseException as reason:
                if self._state.phase is BlockPhase.OPEN and self._place.is_prepared:
                    self._end.leave_prepared()  # the other system has decided
                elif self._state.phase is BlockPhase.OPEN:
                    self._end.abort(reason)
                raise
        finally:
            self._end.give_up_unended()

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
        """Add a record to the transaction; it is sent in the background.

        Waits while the producer's queue is full. Whether the record was stored is known when
        the block ends: a record that was not makes the block abort and raise. So does an error
        of this call that the block has caught, but for a TypeError and a refused timestamp.

        Args:
            topic: Where it goes.
            value: Its value; None is a tombstone.
            key: Its key; records of one key go to one partition.
            headers: Names and values, as a list of pairs or a mapping.
            partition: Which partition; None: by the key.
            timestamp: Milliseconds since 1970, above 0, which librdkafka cannot send; None:
                now. One that seems to count seconds, by its size, is sent with a warning.

        Raises:
            RejectedError: the record can never be stored as it is, its timestamp is 0 or negative,
                or the block is over.
            AbortableError: the transaction has failed meanwhile.
            FencedError: another producer took this transactional id.
            TypeError: an argument is unknown, as `on_delivery` is, or has a type that does not fit.
        """
        append = self._handle.append
        state = self._state
        if append is not None and state.phase is BlockPhase.OPEN and not others:
            state.produced += 1
            try:
                added = append(topic, value, key, headers, partition, timestamp)
            except BaseException as raised:  # of a signal: the record may be on its way
                self._unproduced = self._unproduced or raised
                raise
            if added:
                return
            state.produced -= 1
            if added is None:
                self._records.is_collection_due = True
        refuse_unknown_arguments(others)
        self._require_open("produce to", topic)
        record = (topic, value, key, headers, partition, timestamp)
        state.produced += 1
        try:
            self._records.add(*record, None, self._require_open)
        except BaseException as raised:
            self._note_unproduced(raised, record)
            raise

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
        """Add a record as `produce` does, and return its delivery: when and where it is stored.

        The offset is known before the transaction ends; readers of committed records see the record
        after the commit. A record that fails makes the block abort, whoever asks its delivery.

        Args:
            on_delivery: Called with (None, metadata) or (error, None), as `Delivery.
                add_done_callback` tells. The others are those of `produce`.

        Raises:
            ConfigError: `delivery.report.only.error=true`, which hides what is stored.
            RejectedError, AbortableError, FencedError, TypeError: as `produce` raises them.
        """
        self._require_open("send to", topic)
        delivery = self._outcomes.new_delivery(on_delivery)
        record = (topic, value, key, headers, partition, timestamp)
        self._state.produced += 1
        try:
            self._records.add(*record, delivery, self._require_open)
        except BaseException as raised:
            self._outcomes.reports.remove(delivery)
            self._note_unproduced(raised, record)
            raise
        return delivery

    def write_arrow(self, topic: str, batch: ArrowStreamExportable) -> int:
        """Add the rows of a record batch as records; return their number.

        No row becomes an object of Python, so this is the fastest way into a topic. The native
        engine alone has it. As with `produce`, whether the records were stored is known when the
        block ends.

        Args:
            topic: Where they go.
            batch: A `pyarrow.RecordBatch` or `Table`, or a frame of polars or pandas, with the
                column value (bytes or text; null is a tombstone), and any of key (bytes or text),
                headers (lists of key and value), partition (null: by the key) and timestamp
                (milliseconds; null: now). Another column is refused before anything is written.

        Raises:
            ConfigError: the engine is confluent-kafka, or pyarrow is not installed.
            RejectedError: the batch cannot be written as it is, a row is larger than
                message.max.bytes, or the block is over.
            AbortableError: the transaction has failed meanwhile.
            FencedError: another producer took this transactional id.
            TypeError: `batch` is something else.
        """
        self._require_open("write to", topic)
        count = 0
        for rows in self._records.rows_of(batch):
            self._state.produced += rows.count
            count += rows.count
            try:
                self._records.add_rows(topic, rows, self._require_open)
            except BaseException as raised:
                self._unproduced = self._unproduced or raised
                raise
        return count

    def send_offsets(
        self,
        offsets: Sequence[TopicPartition],
        consumer: confluent_kafka.Consumer,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of your own choice with the transaction, in place of positions.

        For programs that track their processed records. If `consumer` is the block's own, the block
        sends nothing for it by itself. Sending again replaces the offsets sent before.

        A `txn.Consumer` belongs to the block from then on, as its own does. An abort rewinds it, so
        the next block reads the records again; one that kept them would process them twice. Records
        that it lost to a rebalance abort the block. Before this call only the block's own consumer
        is rewound: give `transaction(consumer)` one that is read from inside. A plain
        `confluent_kafka.Consumer` that is not the block's own is never rewound; seek it yourself.

        Args:
            offsets: Per partition the *next* offset to read: the last one processed plus one.
            consumer: Whose group the offsets belong to; its membership is checked by the
                cluster.
            timeout: Seconds to retry; None: the block's.

        Raises:
            AbortableError: the consumer is no longer the owner of its partitions, or could not be
                rewound after the block before.
            RetriableError: the cluster did not answer in time.
            FencedError: another producer took this transactional id.
            RejectedError: another open block reads from the consumer, or the consumer has
                committed outside of the transaction since it began.
        """
        require_consumer(consumer)
        self._require_open("send offsets")
        try:
            self._offsets.send(
                offsets, consumer, self._state.timeout if timeout is None else timeout
            )
        except BaseException as raised:
            self._unsent = raised
            raise
        self._unsent = None
        self._offsets.note_sent(offsets, consumer)

    def prepare(self) -> PreparedTxnState:
        """Prepare the transaction: every record and offset is stored, and nothing can be added.

        See `txn.client.two_phase`. Leaving the block then commits; an exception aborts. Can be
        repeated.

        Returns:
            The state for the other system to store as its decision to commit. It has no
            transaction if the block has written nothing.

        Raises:
            ConfigError: the producer was not opened with `two_phase_commit`.
            AbortableError, RetriableError, FencedError, RejectedError: as at the end of a block.
        """
        client = self._handle.client()
        if not (self._producer.two_phase_commit and isinstance(client, TwoPhaseEngine)):
            raise ConfigError(
                f"{self._whose} cannot prepare a transaction: open it with "
                "engine='native' and two_phase_commit=True"
            )
        if not self._place.is_prepared:
            self._require_open("prepare")
            self._prepared_offsets = self._store()
        try:
            state = PreparedTxnState(*client.prepare_transaction())
        except KafkaException as raised:
            raise self._handle.failure(error_of(raised), "preparing a transaction") from raised
        self._place.is_prepared = True
        return state

    def leave_prepared(self) -> None:
        """Leave a prepared transaction open, since it is not known how the other system decided.

        The producer is of no use afterwards. The next producer of this transactional id completes
        the transaction. A consumer of the block is rewound.

        Raises:
            RejectedError: the transaction is not prepared.
        """
        self._end.leave_prepared()

    def _require_open(self, doing: str, topic: str | None = None) -> None:
        """Raise RejectedError if nothing can be added: the block is not open, or is prepared."""
        is_open = self._state.phase is BlockPhase.OPEN
        if is_open and not self._place.is_prepared:
            return
        if topic is not None:
            doing = f"{doing} {topic!r}"
        if is_open:
            raise RejectedError(
                f"{self._whose} cannot {doing}: the transaction is prepared, so it can "
                "only end. Do it before prepare()"
            )
        is_new = self._state.phase is BlockPhase.NEW
        raise RejectedError(
            f"{self._whose} cannot {doing}: the transaction "
            f"{'has not begun' if is_new else 'is over'}; do it inside its block, "
            "`with producer.transaction() as t:`"
        )

    # ------------------------------------------------------------ inside

    def _note_unproduced(self, raised: BaseException, record: tuple[object, ...]) -> None:
        if isinstance(raised, Exception):  # after a signal it may be on its way
            self._state.produced -= 1
        if not _leaves_block(raised, *record):
            self._unproduced = self._unproduced or raised

    def _begin(self) -> None:
        try:
            self._handle.client().begin_transaction()
        except KafkaException as raised:
            raise self._handle.failure(error_of(raised), "beginning a transaction") from raised
        self._state.begun_at = time.monotonic()
        self._state.phase = BlockPhase.OPEN

    def _finish(self) -> None:
        sent = self._prepared_offsets
        if sent is None:
            sent = self._store()
        # With time of its own: a commit that is asked for and cut short leaves a doubt.
        self._end.commit(Deadline(self._state.timeout), sent)
        is_without_offsets = not (self._offsets.has_own_consumer or self._offsets.has_sent)
        if is_without_offsets and self._state.produced > 0:
            assert self._state.begun_at is not None
            self._producer._cautions.of_forgotten_consumer(self._state.begun_at)

    def _store(self) -> Offsets:
        """Wait until every record is stored, and send the consumer's offsets, which it returns."""
        before_commit = Deadline(self._state.timeout)
        if self._offsets.is_sending:
            raise AbortableError(
                f"{self._whose} was not seen to send the offsets it was asked to. The "
                "transaction cannot commit; begin another"
            )
        if (caught := self._unproduced or self._unsent) is not None:
            raise self._refusal_after(caught) from caught
        self._flush(before_commit)
        self._offsets.require_others_kept()
        return self._offsets.send_positions(before_commit)

    def _refusal_after(self, caught: BaseException) -> TxnError:
        """Return the error for a block that caught one of these; it has the same next step."""
        call, missing = ("produce", "a record") if self._unproduced else ("send_offsets", "offsets")
        kind = type(caught) if isinstance(caught, TxnError) else AbortableError
        facts = {name: fact for name, fact in vars(caught).items() if name != "message"}
        facts.pop("__notes__", None)
        return kind(
            f"{self._whose} cannot commit: its block caught an error of {call}(), so "
            f"{missing} would be missing. Let such an error leave the block: "
            f"{str(caught) or repr(caught)}",
            **facts,
        )

    def _flush(self, deadline: Deadline) -> None:
        while (waiting := self._handle.wait(deadline.slice())) and not deadline.has_passed:
            self._outcomes.raise_undelivered()
        self._outcomes.raise_undelivered()
        if waiting:
            raise AbortableError(
                f"{self._whose} has {waiting} records that the cluster did not "
                f"acknowledge within {deadline.seconds:g} s. The transaction cannot commit; "
                "begin another",
                waiting=waiting,
            )


def _leaves_block(raised: BaseException, *record: Any) -> bool:
    """Return True if an error of `produce` leaves the block as it was.

    BufferError comes to `txn.aio` alone, which waits for room by itself.
    """
    return isinstance(raised, BufferError) or is_for_arguments(raised, *record)
