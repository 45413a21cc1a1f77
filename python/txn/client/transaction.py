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
- *Commit* is asked for in slices of a second. librdkafka resumes the one commit with each
  call, so a signal is heard between slices and nothing is sent twice.
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
- *Offsets* are sent on a thread of their own, since librdkafka may never come back from it.
  Its producer is given up then; a transaction that was not seen to send them cannot commit.
- *Rewind* after every failure, whichever the outcome, is right: it goes to the committed offsets.
  It goes to the target of a seek before the block only if no commit was asked for, or one is
  known to have failed.

Sources: librdkafka's transactional producer API (resumable calls, marks), KIP-98, KIP-447.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from txn.client.arguments import ArrowStreamExportable, is_for_arguments
from txn.client.block_consumer import (
    PlainState,
    join,
    lost_partitions_text,
    reached_by,
    rewind,
    state_of,
)
from txn.client.bounded_call import BoundedCall
from txn.client.consumer import Consumer
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.delivery import Delivery, OnDelivery
from txn.client.engine import ProducerEngine
from txn.client.failures import StateLostError, error_of, reported_by
from txn.client.migration import INSTEAD_IN_BLOCK, hint_for, refuse_async, refuse_unknown_arguments
from txn.client.positions import Offsets
from txn.client.two_phase import PreparedTxnState, TwoPhaseEngine
from txn.errors import (
    AbortableError,
    ConfigError,
    FencedError,
    InDoubtError,
    RejectedError,
    RetriableError,
    TxnError,
)
from txn.identifiers import TopicPartition as Place

if TYPE_CHECKING:
    from txn.client.producer import Headers, Producer

JOIN_SECONDS_MAX: Final = 10.0

OFFSETS_GRACE_SECONDS: Final = 5.0
"""Time past its own timeout that librdkafka may take to send offsets before it is given up."""

ARRIVE_SECONDS_MAX: Final = 5.0
"""Time that an abort waits for a first record to be stored; see `_await_first_stored`."""

_ahead: "dict[int, tuple[confluent_kafka.Consumer, OpenBlock]]" = {}
"""Consumers that may stand beyond their committed offsets, by identity, and their block: from its
begin until it has committed or the consumer is rewound. One found here by a new block is rewound
first. Consumers that only sent offsets come here when the block has ended without either."""


class BlockPhase(Enum):
    """Stages of a block."""

    NEW = "new"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ENDED = "ended"


class BlockResult(Enum):
    """Results of a block, as far as its producer knows them."""

    COMMITTED = "commit"
    ABORTED = "abort"
    """It was aborted, or nothing had begun."""
    FENCED = "fenced"
    """Its producer lost its place or could not abort. The cluster aborts it."""
    IN_DOUBT = "unknown"
    """A commit was sent and had no answer; see `txn.errors.InDoubtError`."""


@dataclass(eq=False)
class OpenBlock:
    """The place of an entered block in its producer, which outlives the block.

    Python knows no `with` statement before `__enter__` has returned to it, nor after it has called
    `__exit__`. A signal there leaves a transaction open that nothing will end. Only the `with`
    statement keeps a block, so its producer sees that it is gone.
    """

    block: "weakref.ref[Transaction]"
    others: list[Consumer]
    """Its consumers beside its own, until they are committed or rewound."""
    has_asked_commit: bool = False
    is_prepared: bool = False
    at_end: "list[Callable[[BlockResult], object]]" = field(default_factory=list)
    """Called once with the result, when the block has ended."""

    def is_open(self) -> bool:
        """Return True if the block is there and has not ended."""
        block = self.block()
        return block is not None and block._is_open


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
        self._timeout = timeout
        self._before: PlainState | None = None
        self._phase = BlockPhase.NEW
        self._result: BlockResult | None = None
        self._produced = 0
        self._has_sent_offsets = False
        self._unproduced: BaseException | None = None  # raised by a `produce`
        self._unsent: BaseException | None = None  # raised by the last `send_offsets`
        self._sending: BoundedCall | None = None  # offsets, until they are known to be sent
        self._sends_positions = consumer is not None
        self._sent: dict[Consumer, dict[Place, int]] = {}  # offsets sent, by the block's consumers
        self._others: list[Consumer] = []  # beside its own, until committed or rewound
        self._place = OpenBlock(weakref.ref(self), self._others)
        self._begun_at: float | None = None
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
        return 0 if self._begun_at is None else int((time.monotonic() - self._begun_at) * 1000)

    @property
    def result(self) -> BlockResult | None:
        """The result of the block; None before its end."""
        return self._result

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
        return self._producer._holds_block(self._place)

    def __enter__(self) -> Self:
        if self._phase is not BlockPhase.NEW:
            raise RejectedError(
                f"this transaction of {self._producer._whose} was begun before; call "
                "transaction() for each `with`"
            )
        try:
            self._producer._begin_block(self._place, self._timeout)
            if self._consumer is not None:
                self._prepare_consumer(self._consumer)
            self._begin()
            if isinstance(self._consumer, Consumer):
                self._watch_consumer(self._consumer)
            return self
        except BaseException as reason:
            if not self._producer._holds_block(self._place):
                raise
            try:
                # A signal may have come after the transaction began and before that was noted.
                if not isinstance(reason, TxnError):
                    self._abort(reason)
            finally:
                self._leave_producer()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._producer._is_abandoned:
            return  # of a forked child, which ends so: the transaction is its parent's
        try:
            if self._phase is BlockPhase.ENDED:  # by `close` or `leave_prepared`
                if error is None and not self._place.is_prepared:
                    raise RejectedError(
                        f"the transaction was aborted: {self._producer._whose} was closed in its "
                        "block"
                    )
                return
            if error is not None:
                self._abort(error)
                return
            try:
                self._finish()
            except BaseException as reason:
                if self._phase is BlockPhase.OPEN and self._place.is_prepared:
                    self.leave_prepared()  # the other system has decided
                elif self._phase is BlockPhase.OPEN:
                    self._abort(reason)
                raise
        finally:
            self._give_up_unended()

    def _end(self) -> None:
        """Abort a transaction whose block will not end it, and let its producer go on.

        Can be repeated. One that was about to end makes the producer unfit for another.
        """
        try:
            if self._place.is_prepared and self._phase is not BlockPhase.ENDED:
                self.leave_prepared()
            elif self._phase in (BlockPhase.NEW, BlockPhase.OPEN):
                self._abort(RejectedError(f"{self._producer._whose} lost the block"))
        finally:
            self._give_up_unended()

    def _end_lost(self, place: "OpenBlock") -> None:
        """End, in its stead, a transaction that is gone."""
        self._place, self._others = place, place.others
        self._phase = BlockPhase.COMMITTING if place.has_asked_commit else BlockPhase.OPEN
        self._end()

    def _give_up_unended(self) -> None:
        if self._phase is not BlockPhase.ENDED:
            self._producer._give_up(self._unsettled())
        self._leave_producer()

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
        refuse_unknown_arguments(others)
        self._require_open(f"produce to {topic!r}")
        self._produced += 1
        try:
            self._producer._enqueue(topic, value, key, headers, partition, timestamp)
        except BaseException as raised:
            if isinstance(raised, Exception):  # after a signal it may be on its way
                self._produced -= 1
            if not _leaves_block(raised, topic, value, key, headers, partition, timestamp):
                self._unproduced = self._unproduced or raised
            raise

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: "Headers | None" = None,
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
        self._require_open(f"send to {topic!r}")
        delivery = self._producer._new_delivery(on_delivery)
        self._produced += 1
        try:
            self._producer._enqueue(topic, value, key, headers, partition, timestamp, delivery)
        except BaseException as raised:
            self._producer._reports.remove(delivery)
            if isinstance(raised, Exception):  # after a signal it may be on its way
                self._produced -= 1
            if not _leaves_block(raised, topic, value, key, headers, partition, timestamp):
                self._unproduced = self._unproduced or raised
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
        self._require_open(f"write to {topic!r}")
        count = 0
        for rows in self._producer._arrow_rows(batch):
            self._produced += rows.count
            count += rows.count
            try:
                self._producer._enqueue_rows(topic, rows)
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
            if consumer is self._consumer:
                self._sends_positions = False
            elif not isinstance(consumer, Consumer):
                self._producer._cautions.of_plain_consumer()
            elif consumer not in self._sent:
                self._add_consumer(consumer)
            self._send(offsets, consumer, Deadline(self._timeout if timeout is None else timeout))
        except BaseException as raised:
            self._unsent = raised
            raise
        self._unsent = None
        if isinstance(consumer, Consumer) and consumer in self._sent:
            self._sent[consumer].update(_by_place(offsets))

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
        client = self._producer._client()
        if not (self._producer.two_phase_commit and isinstance(client, TwoPhaseEngine)):
            raise ConfigError(
                f"{self._producer._whose} cannot prepare a transaction: open it with "
                "engine='native' and two_phase_commit=True"
            )
        if not self._place.is_prepared:
            self._require_open("prepare")
            self._prepared_offsets = self._store()
        try:
            state = PreparedTxnState(*client.prepare_transaction())
        except KafkaException as raised:
            raise self._failure(error_of(raised), "preparing a transaction") from raised
        self._place.is_prepared = True
        return state

    def leave_prepared(self) -> None:
        """Leave a prepared transaction open, since it is not known how the other system decided.

        The producer is of no use afterwards. The next producer of this transactional id completes
        the transaction. A consumer of the block is rewound.

        Raises:
            RejectedError: the transaction is not prepared.
        """
        if not self._place.is_prepared:
            raise RejectedError(f"{self._producer._whose} has no prepared transaction to leave")
        doubt = InDoubtError(
            f"{self._producer._whose} left its transaction prepared. Open another producer with "
            "this transactional id and two_phase_commit=True, which completes it as the other "
            "system has decided"
        )
        self._producer._give_up(doubt)
        self._result = BlockResult.IN_DOUBT
        self._phase = BlockPhase.ENDED
        self._producer._last_sent = None
        self._rewind_or_note(doubt)

    def _require_open(self, doing: str) -> None:
        if self._place.is_prepared and self._phase is BlockPhase.OPEN:
            raise RejectedError(
                f"{self._producer._whose} cannot {doing}: the transaction is prepared, so it can "
                "only end. Do it before prepare()"
            )
        if self._phase is not BlockPhase.OPEN:
            is_new = self._phase is BlockPhase.NEW
            raise RejectedError(
                f"{self._producer._whose} cannot {doing}: the transaction "
                f"{'has not begun' if is_new else 'is over'}; do it inside its block, "
                "`with producer.transaction() as t:`"
            )

    def _leave_producer(self) -> None:
        """Free the producer for its next transaction, and set the result of this one."""
        self._producer._end_block(self._place)
        _ahead.update((id(other), (other, self._place)) for other in self._others)
        if self._result is None:
            if self._phase is BlockPhase.COMMITTING:
                self._result = BlockResult.IN_DOUBT
            elif self._producer._broken is not None:
                self._result = BlockResult.FENCED
            else:
                self._result = BlockResult.ABORTED
        while self._place.at_end:
            self._place.at_end.pop()(self._result)

    def _prepare_consumer(self, consumer: confluent_kafka.Consumer) -> None:
        try:
            if id(consumer) in _ahead or isinstance(consumer, Consumer):
                self._require_free(consumer)
            if id(consumer) in _ahead:
                self._rewind(consumer)
            if isinstance(consumer, Consumer):
                consumer.memberid()  # raises for one that is closed
            else:
                self._producer._cautions.of_plain_consumer()
                join(consumer, Deadline(min(self._timeout, JOIN_SECONDS_MAX)))
            self._before = state_of(consumer)
            _ahead[id(consumer)] = consumer, self._place
        except KafkaException as raised:
            raise self._failure(error_of(raised), "making its consumer ready") from raised
        except RuntimeError as raised:
            raise RejectedError(
                f"the consumer of {self._producer._whose} is closed; open another"
            ) from raised

    def _add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer to the block: an abort rewinds it with the others."""
        self._require_free(consumer)
        assert self._begun_at is not None
        if consumer._positions.has_committed_since(self._begun_at):
            raise RejectedError(
                f"the consumer of group {consumer.group_id!r} has committed outside of the open "
                "transaction that sends its offsets, so an abort loses those records. Leave "
                "`commit` out: the end of the block commits"
            )
        self._others.append(consumer)
        self._watch_consumer(consumer)
        if id(consumer) in _ahead:
            raise AbortableError(
                f"the consumer of group {consumer.group_id!r} was not rewound after an earlier "
                "block, so records of it are missing here. The transaction cannot commit; begin "
                "another"
            )

    def _watch_consumer(self, consumer: Consumer) -> None:
        assert self._begun_at is not None
        self._sent[consumer] = {}
        consumer._positions.note_begun(self._begun_at, self._place.is_open)

    def _require_free(self, consumer: confluent_kafka.Consumer) -> None:
        """Refuse a consumer whose offsets another open block commits, with its own or without."""
        if isinstance(consumer, Consumer):
            is_free = not consumer._positions.in_block()
        else:
            is_free = not _ahead[id(consumer)][1].is_open()
        if not is_free:
            raise RejectedError(
                f"{self._producer._whose} cannot use the consumer of another open block: each "
                "would commit records of the other. Leave that block first, or give each a consumer"
            )

    def _begin(self) -> None:
        try:
            self._producer._client().begin_transaction()
        except KafkaException as raised:
            raise self._failure(error_of(raised), "beginning a transaction") from raised
        self._begun_at = time.monotonic()
        self._phase = BlockPhase.OPEN

    # ------------------------------------------------------------ the good end

    def _finish(self) -> None:
        sent = self._prepared_offsets
        if sent is None:
            sent = self._store()
        # With time of its own: a commit that is asked for and cut short leaves a doubt.
        self._commit(Deadline(self._timeout), sent)
        if self._consumer is None and self._produced > 0 and not self._has_sent_offsets:
            assert self._begun_at is not None
            self._producer._cautions.of_forgotten_consumer(self._begun_at)

    def _store(self) -> Offsets:
        """Wait until every record is stored, and send the consumer's offsets, which it returns."""
        before_commit = Deadline(self._timeout)
        if self._sending is not None:
            raise AbortableError(
                f"{self._producer._whose} was not seen to send the offsets it was asked to. The "
                "transaction cannot commit; begin another"
            )
        if (caught := self._unproduced or self._unsent) is not None:
            raise self._refusal_after(caught) from caught
        self._flush(before_commit)
        for other in self._others:
            self._require_kept(other._positions.describe_loss())
        return self._send_positions(before_commit)

    def _refusal_after(self, caught: BaseException) -> TxnError:
        """Return the error for a block that caught one of these; it has the same next step."""
        call, missing = ("produce", "a record") if self._unproduced else ("send_offsets", "offsets")
        kind = type(caught) if isinstance(caught, TxnError) else AbortableError
        facts = {name: fact for name, fact in vars(caught).items() if name != "message"}
        facts.pop("__notes__", None)
        return kind(
            f"{self._producer._whose} cannot commit: its block caught an error of {call}(), so "
            f"{missing} would be missing. Let such an error leave the block: "
            f"{str(caught) or repr(caught)}",
            **facts,
        )

    def _flush(self, deadline: Deadline) -> None:
        while (waiting := self._producer._wait(deadline.slice())) and not deadline.has_passed:
            self._producer._raise_undelivered()
        self._producer._raise_undelivered()
        if waiting:
            raise AbortableError(
                f"{self._producer._whose} has {waiting} records that the cluster did not "
                f"acknowledge within {deadline.seconds:g} s. The transaction cannot commit; "
                "begin another",
                waiting=waiting,
            )

    def _send_positions(self, deadline: Deadline) -> Offsets:
        """Send how far the consumer has read, and return it.

        A block that did nothing, with a consumer that is where the last block left it, sends
        nothing: its transaction then costs the cluster nothing at all.
        """
        consumer = self._consumer
        if consumer is None:
            return {}
        try:
            reason = lost_partitions_text(consumer, self._before, produced=self._produced > 0)
            reached = reached_by(consumer)
        except KafkaException as raised:
            raise self._failure(
                error_of(raised), "asking how far its consumer has read"
            ) from raised
        except RuntimeError as raised:
            raise RejectedError(
                f"the consumer of {self._producer._whose} is closed, and the block has to ask how "
                "far it has read. Close it after the block"
            ) from raised
        self._require_kept(reason)
        if not self._sends_positions:
            return {}
        if (
            isinstance(consumer, Consumer)
            and (nowhere := consumer._positions.describe_unknown_positions()) is not None
        ):
            raise RejectedError(
                f"the consumer of {self._producer._whose} was sought, or assigned again, in "
                f"{nowhere} to no offset that the transaction could commit, after records of it "
                "were handed out. Seek or assign to an offset, or send offsets of your own choice"
            )
        offsets = _by_place(reached)
        if isinstance(consumer, Consumer):
            self._sent[consumer].update(offsets)
        did_nothing = self._produced == 0 and not self._has_sent_offsets
        if did_nothing and self._producer._last_sent == (consumer, offsets):
            return offsets
        if reached:
            self._send(reached, consumer, deadline)
        return offsets

    def _require_kept(self, loss: str | None) -> None:
        if loss is not None:
            raise AbortableError(
                f"the consumer of {self._producer._whose} changed partitions: {loss}. "
                "The transaction cannot commit; begin another",
            )

    def _send(
        self,
        offsets: Sequence[TopicPartition],
        consumer: confluent_kafka.Consumer,
        deadline: Deadline,
    ) -> None:
        client = self._producer._client()
        self._has_sent_offsets = True
        metadata = consumer.consumer_group_metadata()
        # Retried with the same offsets and metadata: a request whose answer was lost may have
        # been carried out.
        while True:
            seconds = max(PAUSE_SECONDS, deadline.remaining)
            self._sending = BoundedCall(
                partial(client.send_offsets_to_transaction, list(offsets), metadata, seconds)
            )
            try:
                if self._sending.run(Deadline(seconds + OFFSETS_GRACE_SECONDS)):
                    break
            except KafkaException as raised:
                error = error_of(raised)
                if not _may_retry(error) or deadline.has_passed:
                    self._producer._raise_undelivered_behind(error)
                    raise self._failure(error, "sending offsets") from raised
            else:
                self._give_up_offsets(deadline)
            self._producer._serve(deadline)
        self._sending = None

    def _give_up_offsets(self, deadline: Deadline) -> NoReturn:
        failure = StateLostError(
            f"{self._producer._whose} sent offsets, and librdkafka has not come back from it "
            f"within {deadline.seconds:g} s. The transaction is not committed; close this "
            "producer and open another with its transactional id, which aborts it"
        )
        self._producer._give_up(failure)
        raise failure

    def _commit(self, deadline: Deadline, sent: Offsets) -> None:
        """Commit, and return only when it is done. The module's theory lists the errors."""
        client = self._producer._client()
        interrupt: BaseException | None = None
        pause = 0.0
        self._place.has_asked_commit = True
        for consumer, offsets in self._sent.items():
            consumer._positions.note_asked(offsets)
        self._phase = BlockPhase.COMMITTING
        while True:
            try:
                time.sleep(pause)
                client.commit_transaction(deadline.slice() or PAUSE_SECONDS)
                break
            except BaseException as raised:
                error = reported_by(raised)
                if error is None:
                    if interrupt is not None:
                        self._raise_in_doubt(deadline, raised)
                    interrupt = raised
                    continue
                if interrupt is not None and _is_state_error(error):
                    break  # the call that the signal interrupted had finished the commit
                if not _may_retry(error):
                    self._raise_uncommitted(error, interrupt or raised)
                if deadline.has_passed:
                    self._raise_in_doubt(deadline, interrupt or raised)
                pause = _pause_after(error)
        self._result = BlockResult.COMMITTED
        self._phase = BlockPhase.ENDED
        self._note_committed(sent)
        if interrupt is not None:
            self._producer._callbacks.add_note_to(interrupt)
        late = interrupt or self._producer._callbacks.pop_kept()
        if late is not None:
            late.add_note("The transaction was committed before this was raised.")
            raise late

    def _note_committed(self, sent: Offsets) -> None:
        if self._consumer is not None:
            self._producer._last_sent = (self._consumer, sent) if self._sends_positions else None
        for consumer, offsets in self._sent.items():
            consumer._positions.note_committed(offsets)
        self._others.clear()
        _ahead.pop(id(self._consumer), None)

    def _raise_uncommitted(self, error: KafkaError, cause: BaseException) -> NoReturn:
        self._phase = BlockPhase.OPEN
        failure = self._failure(error, "committing")
        if isinstance(failure, FencedError):
            failure.add_note(
                "It is not known whether this transaction is committed: an earlier answer to its "
                "commit may have been lost. The group's committed offsets show it."
            )
        if reported_by(cause) is not None:
            raise failure from cause
        cause.add_note(f"The transaction was not committed: {failure}")
        raise cause

    def _raise_in_doubt(self, deadline: Deadline, cause: BaseException) -> NoReturn:
        doubt = self._unsettled(f" within {deadline.seconds:g} s")
        self._producer._give_up(doubt)
        self._result = BlockResult.IN_DOUBT
        self._phase = BlockPhase.ENDED
        self._producer._last_sent = None
        self._rewind_or_note(doubt)
        self._producer._callbacks.add_note_to(doubt)
        if reported_by(cause) is not None:
            raise doubt from cause
        cause.add_note(str(doubt))
        raise cause

    def _unsettled(self, when: str = "") -> TxnError:
        """Return what to say of a transaction that was not seen to end."""
        if self._phase is BlockPhase.COMMITTING:
            return self._doubt(when)
        return StateLostError(
            f"{self._producer._whose} could not abort{when}. The cluster aborts after "
            "transaction.timeout.ms; another producer with this transactional id aborts at once: "
            "close this one and open that"
        )

    def _doubt(self, when: str = "") -> InDoubtError:
        return InDoubtError(
            f"{self._producer._whose} asked for a commit and had no answer{when}: the "
            "transaction may be committed, or may become so. Do not repeat it. Open another "
            "producer with this transactional id, which settles it, rewind the consumer, and "
            "go on from what is committed"
        )

    # ------------------------------------------------------------ the other end

    def _abort(self, reason: BaseException) -> None:
        """Abort and rewind; a failure of either is added to the reason as a note.

        A signal meanwhile waits until both are done, and is then raised in the reason's place. So
        is the error that made the producer unfit for another transaction, if the reason says that
        another would do.
        """
        self._phase = BlockPhase.ABORTING
        self._producer._last_sent = None
        if not self._producer._broken and not self._offsets_are_settled():
            self._producer._give_up(self._unsettled())
        interrupt = None if self._producer._broken else self._abort_at_cluster(reason)
        self._phase = BlockPhase.ENDED
        self._rewind_or_note(reason)
        self._producer._callbacks.add_note_to(reason)
        if interrupt is not None:
            raise interrupt
        is_in_doubt = self._result is BlockResult.IN_DOUBT and isinstance(reason, TxnError)
        promises_another = isinstance(reason, (AbortableError, RetriableError))
        if self._producer._broken and (is_in_doubt or promises_another):
            # "Begin another" would be wrong advice now.
            raise self._producer._broken from reason

    def _offsets_are_settled(self) -> bool:
        return self._sending is None or self._sending.is_over(Deadline(self._timeout))

    def _abort_at_cluster(self, reason: BaseException) -> BaseException | None:
        client = self._producer._client()
        deadline = Deadline(self._timeout)
        interrupt: BaseException | None = None
        is_first = True
        pause = 0.0
        while True:
            try:
                if is_first:
                    is_first = False
                    self._await_first_stored(client)
                time.sleep(pause)
                client.abort_transaction(deadline.slice() or PAUSE_SECONDS)
                for consumer in self._sent:
                    consumer._positions.note_refused()
                return interrupt
            except BaseException as raised:
                error = reported_by(raised)
                if error is None:
                    if interrupt is not None:
                        self._give_up_abort(deadline, reason)
                        return raised
                    interrupt = raised
                    continue
                if _is_state_error(error):
                    # None is open: never begun, or a signal hid the answer. Or the commit that
                    # was asked for before is done, or on its way.
                    if self._place.has_asked_commit:
                        self._leave_in_doubt(reason)
                    return interrupt
                if not _may_retry(error):
                    failure = self._failure(error, "aborting")
                    self._producer._give_up(failure)
                    reason.add_note(
                        f"It could not be aborted from here, so the cluster does it: {failure}"
                    )
                    return interrupt
                if deadline.has_passed:
                    self._give_up_abort(deadline, reason)
                    return interrupt
                pause = _pause_after(error)

    def _leave_in_doubt(self, reason: BaseException) -> None:
        doubt = self._doubt()
        self._producer._give_up(doubt)
        self._result = BlockResult.IN_DOUBT
        if not isinstance(reason, TxnError):
            reason.add_note(str(doubt))

    def _await_first_stored(self, client: ProducerEngine) -> None:
        """Wait until a record is stored, or none is on its way any more.

        An abort overtakes librdkafka's outstanding requests to the coordinator. While it is still
        writing the markers of the last transaction, a coordinator may not have heard of this one.
        It then refuses to abort it, and that is the end of the producer (librdkafka's issue 4849).
        """
        if self._has_sent_offsets and self._sending is None:
            return
        deadline = Deadline(min(ARRIVE_SECONDS_MAX, self._timeout))
        try:
            while 0 < self._produced <= len(client) and not deadline.has_passed:
                self._producer._wait_only(min(PAUSE_SECONDS, deadline.remaining))
        except TxnError:
            pass  # the abort that follows meets and reports it, too

    def _give_up_abort(self, deadline: Deadline, reason: BaseException) -> None:
        failure = self._unsettled(f" within {deadline.seconds:g} s")
        self._producer._give_up(failure)
        reason.add_note(str(failure))

    def _rewind_or_note(self, reason: BaseException) -> None:
        own = [] if self._consumer is None else [self._consumer]
        for consumer in (*own, *self._others):
            try:
                self._rewind(consumer)
            except RuntimeError:  # it is closed: the group's next member begins where it should
                _ahead.pop(id(consumer), None)
            except Exception as failure:
                reason.add_note(
                    f"The consumer could not be rewound ({failure}); the next transaction with it "
                    "tries again"
                )

    def _rewind(self, consumer: confluent_kafka.Consumer) -> None:
        rewind(consumer, self._timeout)
        _ahead.pop(id(consumer), None)
        self._others[:] = [each for each in self._others if each is not consumer]

    def _failure(self, error: KafkaError, doing: str) -> TxnError:
        return self._producer._failure(error, doing)


def require_consumer(consumer: object) -> None:
    """Raise TypeError for something that is no consumer, or one whose answers are awaited."""
    awaited = (getattr(consumer, name, None) for name in ("consumer_group_metadata", "poll"))
    if any(iscoroutinefunction(call) for call in awaited):
        raise TypeError(
            f"a transaction cannot use {type(consumer).__name__}, whose answers are awaited. Use a "
            "txn.Consumer; in asyncio a txn.aio.Consumer with a txn.aio.Producer"
        )
    if not hasattr(consumer, "consumer_group_metadata"):
        raise TypeError(
            f"transaction() takes the consumer whose offsets it commits, or nothing, not "
            f"{consumer!r}. The transactional id belongs to the producer: "
            "Producer(transactional_id=...)"
        )


def _leaves_block(raised: BaseException, *record: Any) -> bool:
    """Return True if an error of `produce` leaves the block as it was.

    BufferError comes to `txn.aio` alone, which waits for room by itself.
    """
    return isinstance(raised, BufferError) or is_for_arguments(raised, *record)


def _by_place(offsets: Iterable[TopicPartition]) -> dict[Place, int]:
    return {(p.topic, p.partition): p.offset for p in offsets}


def _may_retry(error: KafkaError) -> bool:
    return error.retriable() and not error.fatal() and not error.txn_requires_abort()


def _pause_after(error: KafkaError) -> float:
    """Return how long to wait before asking again; a time-out has waited already."""
    return 0.0 if error.code() == KafkaError._TIMED_OUT else PAUSE_SECONDS


def _is_state_error(error: KafkaError) -> bool:
    """True if librdkafka refused a call because no transaction is in a state for it."""
    is_marked = error.fatal() or error.txn_requires_abort() or error.retriable()
    return error.code() == KafkaError._STATE and not is_marked
