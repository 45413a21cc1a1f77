"""The consumer's side of a transaction: the offsets to commit for it, and how to rewind it.

A block that reads from a consumer must commit the consumer's offsets exactly as far as its
output covers the input. Three rules make that so:

1. *Everything handed out counts.* The offsets sent are the consumer's positions: one past
   the last record that `poll` or `consume` returned to the program, in this block or before it.
   After a `seek` the position is its target. A partition that the program unassigns keeps its
   position until the next commit.
2. *Nothing handed out may be lost.* When a rebalance revokes a partition with uncommitted records,
   these records belong to its next owner, who reads them again. The block that would commit their
   output is aborted. So is a block after a signal interrupted `poll` or `consume`, because records
   may have been fetched that never reached the program. So is a block whose position is unknown:
   the program sought, or assigned again, to a place that is no number.
3. *An aborted block never happened.* The consumer returns to its group's committed offsets, and
   without any to the first record that it returned. A partition that the program has sought, or
   assigned at an offset, since the last commit and before the block returns to that offset
   (`Start`). After a commit in doubt only the committed offsets are right.

`Consumer` observes its own rebalances and hand-outs, so rules 2 and 3 hold to the letter. A plain
`confluent_kafka.Consumer` cannot be observed; `PlainState` describes the substitute.

Sources: KIP-98 (offsets in transactions), KIP-447 (group metadata fences them).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from txn import forks
from txn.client.arguments import wrong_partition, wrong_partitions, wrong_topics, wrong_wait
from txn.client.beginnings import NO_OFFSET, Beginnings
from txn.client.callbacks import keeping_fatal_error, keeping_fatal_errors
from txn.client.cautions import note_read
from txn.client.deadline import Deadline
from txn.client.engine import EngineName, engine_name
from txn.client.existence import Existence
from txn.client.failures import is_refusal, not_copied, opened_elsewhere, translate
from txn.client.library_log import LibraryLog
from txn.client.migration import refuse_async
from txn.client.places import names_of, places_of, positions_of
from txn.client.reach import CONNECT_TIMEOUT, Reach
from txn.client.redaction import Redaction
from txn.client.settings import consumer_settings, is_false, refused, take_callback
from txn.errors import ConfigError, RejectedError, TxnError, UnreachableError
from txn.identifiers import TopicPartition as Place

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = Mapping[Place, int]

OnRebalance = Callable[[confluent_kafka.Consumer, list[TopicPartition]], None]

PAUSE_SECONDS: Final = 0.1


@dataclass(slots=True)
class Start:
    """Where the program had a partition begin, by a seek or by an assignment at an offset.

    Attributes:
        offset: The target. A relative one, below 0, becomes the first record handed out after it.
        made_s: `time.monotonic` of a seek; minus infinity where the partition came with it.
    """

    offset: int
    made_s: float


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
        config: Properties by their Kafka names, passed on as they are.
        group_id: Property `group.id`.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        connect_timeout: Seconds to wait for a first broker before `poll` and `consume` raise
            UnreachableError, if every address refuses or resolves to nothing. Once the cluster was
            reached, the consumer waits for it without a limit.
        engine: `confluent-kafka` (librdkafka), or `native`: txn's own client, whose groups are
            those of KIP-848.
        more: Further properties, with `_` for `.`: `auto_offset_reset="earliest"`.

    It belongs to the process that opened it: in a forked child closing it does nothing, and every
    other use raises ForkedError.

    Raises:
        ConfigError: before any I/O; the message names the property.
    """

    engine: EngineName = "confluent-kafka"

    def __new__(cls, *_: object, engine: EngineName | None = None, **__: object) -> "Consumer":
        """Return an object of the engine's class: `NativeConsumer` is a `Consumer`, too."""
        if engine is not None and engine_name(engine) != cls.engine:
            return super().__new__(_class_of(cls, engine))
        return super().__new__(cls)

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
        self._beginnings = self._beginnings_of(settings)
        self._existence = Existence(self, self._whose)
        self._is_subscribed = self._is_assigned = False  # by the program
        self._has_answered = False  # in `on_assign`, by an assignment of the program's
        self._awaited: set[Place] = set()  # assigned, and nothing handed out yet
        self._origins: dict[Place, int] = {}  # first offset handed out since the assignment
        self._committed: dict[Place, int] = {}  # positions that a transaction has committed
        self._sought: dict[Place, int | None] = {}  # targets, until a record; None: no number
        self._left: dict[Place, int | None] = {}  # positions at unassigning, not committed yet
        self._starts: dict[Place, Start] = {}  # made since the last commit, the newest of each
        self._unread: dict[Place, Start] = {}  # those with a relative target and no record yet
        self._kept: dict[Place, Start | None] | None = None  # starts at the begin of a block
        self._doubted: dict[Place, Start | None] = {}  # taken out of those by a commit
        self._in_block: Callable[[], bool] = (
            _outside_block  # an open one, which commits its offsets
        )
        self._is_ahead = False  # its block has not committed, and it is not rewound
        self._commit_made_s = -math.inf  # `time.monotonic` of the last one outside transactions
        self._lost: set[Place] = set()  # taken away with records handed out, not committed
        self._assigned_places: set[Place] = set()  # assigned during this poll or consume
        self._revoked_places: set[Place] = set()  # taken away during it, and not assigned again
        self._report: TxnError | None = None  # to be raised by the next poll or consume
        self._broken: TxnError | None = None  # a fatal one, to be raised by every one of them
        self._was_interrupted = False  # poll or consume raised: the records it had taken are gone
        forks.watch(self)

    @classmethod
    def _checked(cls, settings: dict[str, object]) -> dict[str, object]:
        """Return the settings that the engine takes. Raises ConfigError."""
        return settings

    def _beginnings_of(self, settings: Mapping[str, object]) -> Beginnings:
        return Beginnings(self, settings, self._note_report)

    def _note_error(self, error: KafkaError) -> None:
        error = self._redaction.error(error)
        if is_refusal(error):
            self._reach.refuse(error.str())
        if self._on_error is not None:
            self._on_error(error)

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child: librdkafka's threads are not in it; see `txn.forks`."""
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
            self._note_assigned(partitions)
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
        self._note_assigned(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions, as `confluent_kafka.Consumer.incremental_assign` does; see `assign`."""
        with self._beginnings.holding(partitions, ask=self._reach.is_proven) as begins:
            super().incremental_assign(begins)
        self._has_answered = True
        self._is_assigned = self._is_assigned or bool(partitions)
        self._existence.watch(places_of(partitions))
        self._note_assigned(partitions)

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
        place = (partition.topic, partition.partition)
        before = dict(self._sought)
        if partition.offset >= 0:
            self._sought[place] = partition.offset
        elif place in self._uncommitted([partition]):
            self._sought[place] = None
        else:
            self._sought.pop(place, None)
        try:
            super().seek(partition)
        except KafkaException:
            self._sought = before
            raise
        except BaseException:
            self._sought[place] = None  # a signal: it may be done
            raise
        self._beginnings.release([place])
        if partition.offset == OFFSET_STORED:
            self._forget_starts([place])
        else:
            self._begin_at(place, partition.offset, time.monotonic())

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
            offsets = self._to_commit()
            args, more = (), named | {"offsets": offsets}
            places = places_of(offsets)
        else:
            places = places_of(offsets or positions_of(self, self.assignment()))
        answer = super().commit(*args, **more)
        self._commit_made_s = time.monotonic()
        self._forget_starts(places)
        return answer

    def _to_commit(self) -> list[TopicPartition]:
        """Return the positions of assigned partitions, with leader epochs where they are known."""
        assigned = self.assignment()
        places = places_of(assigned)
        sought = [
            TopicPartition(*place, offset)
            for place, offset in self._sought.items()
            if place in places and offset is not None
        ]
        read = positions_of(self, assigned)
        return sought + [p for p in read if (p.topic, p.partition) not in self._sought]

    def store_offsets(self, *args: Any, **more: Any) -> None:
        """Store offsets for a `commit`, as `confluent_kafka.Consumer.store_offsets` does.

        Raises:
            RejectedError: as `commit` does. A later one would commit them after an abort, too.
        """
        self._require_outside("store offsets")
        super().store_offsets(*args, **more)

    def _require_outside(self, doing: str) -> None:
        if self._in_block():
            raise RejectedError(
                f"{self._whose} cannot {doing} in the block of a transaction: the end of the "
                "block commits its offsets, and an abort would lose the records of a commit "
                "beside it. Leave the call out, or give offsets of your own to `send_offsets`"
            )
        if self._is_ahead:
            raise RejectedError(
                f"{self._whose} cannot {doing}: its last block did not commit, and it could not be "
                "rewound, so records of the block would be lost. Call `txn.rewind(consumer)` "
                "first, or run the block again"
            )

    def _seek_back(self, partition: TopicPartition) -> None:
        """Seek as a rewind does, and drop the earlier notes; see `_note_rewound`."""
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
        messages = self._read(1, timeout, is_poll=True)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, as `confluent_kafka.Consumer.consume` does.

        Raises errors as `poll` does. An error that comes among records waits for the next call.
        """
        return self._read(num_messages, timeout, is_poll=False)

    def poll_arrow(self, max_rows: int = 100_000, timeout: float = -1) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow record batch; None after the time-out.

        Its columns are key, value (binary), headers (a list of key and value), topic (a
        dictionary), partition, offset and timestamp (milliseconds). No record becomes an object of
        Python. The native engine alone has it.

        Args:
            max_rows: Rows of the batch at most. It comes as soon as there is one.
            timeout: Seconds to wait for a first row; -1 waits without end.

        Raises:
            ConfigError: the engine is confluent-kafka.
            TxnError: as `poll`.
        """
        raise ConfigError(
            f"{self._whose} has no poll_arrow: give it engine='native'", property="engine"
        )

    def _read(self, num_messages: int, timeout: float, *, is_poll: bool) -> list[Message]:
        if fault := wrong_wait(num_messages, timeout):
            raise TypeError(f"{'poll' if is_poll else 'consume'}(): {fault}")
        if not (self._is_subscribed or self._is_assigned):
            raise RejectedError(
                f"{self._whose} has nothing to read from: call subscribe(['topic']) first, or "
                "assign partitions"
            )
        self._raise_report()
        deadline = Deadline(math.inf if timeout < 0 else timeout)
        left = timeout
        while True:
            try:
                messages, has_reports = self._poll_messages(num_messages, left, is_poll=is_poll)
                if messages or not has_reports:
                    return messages
            except UnreachableError:
                raise  # with nothing taken: nothing ever came
            except BaseException:
                self._note_interrupt()
                raise
            self._raise_report()
            if deadline.has_passed:
                return []
            left = -1 if timeout < 0 else deadline.remaining

    def _poll_messages(
        self, num_messages: int, timeout: float, *, is_poll: bool
    ) -> tuple[list[Message], bool]:
        """Return librdkafka's messages without its errors, and whether there were errors."""
        self._assigned_places.clear()
        self._revoked_places.clear()
        if is_poll:
            message = self._poll(timeout)
            taken = [] if message is None else [message]
        else:
            taken = self._consume(num_messages, timeout)
        reports = [error for message in taken if (error := _report_of(message)) is not None]
        messages = taken
        if reports:
            messages = [message for message in taken if _report_of(message) is None]
        if messages:
            note_read(self, time.monotonic())
        if self._awaited or self._sought or self._unread:
            for message in messages:
                self._note_handed_out(message)
        if self._revoked_places:
            # Taken before their partition was, which `_note_revoked` did not know of.
            self._lost |= self._revoked_places & {
                (str(m.topic()), m.partition() or 0) for m in messages if m.error() is None
            }
        for report in reports:
            self._note_report(report)
        return messages, bool(reports) or self._report is not None

    def _note_report(self, error: KafkaError) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # in librdkafka's log, too
            gone = [
                p for p in self.assignment() if (p.topic, p.partition) not in self._assigned_places
            ]
            self._lost |= self._uncommitted(gone).keys()
            return
        error = self._redaction.error(error)
        report = translate(error, whose=self._whose, doing="reading")
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._broken = self._broken or report
        if self._report is None:
            self._report = report
        elif str(report) not in (str(self._report), *getattr(self._report, "__notes__", ())):
            self._report.add_note(str(report))

    def _raise_report(self) -> None:
        report, self._report = self._report or self._broken, None
        if report is not None:
            raise report.with_traceback(None)

    def _poll(self, timeout: float) -> Message | None:
        """Poll; between two slices of time look after the first broker and offsets not known."""
        deadline = Deadline(math.inf if timeout < 0 else timeout)
        while True:
            self._beginnings.ask()
            message = super().poll(min(deadline.slice(), self._beginnings.due_s()))
            if message is not None:
                self._reach.prove()
                return message
            self._reach.check()
            self._report = self._report or self._existence.fault()
            if deadline.has_passed or self._report is not None:
                return None

    def _consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Consume in slices of time, as `_poll` does."""
        deadline = Deadline(math.inf if timeout < 0 else timeout)
        messages: list[Message] = []
        while True:
            self._beginnings.ask()
            slice_s = min(deadline.slice(), self._beginnings.due_s())
            messages += super().consume(num_messages - len(messages), slice_s)
            if messages:
                self._reach.prove()
            else:
                self._report = self._report or self._existence.fault()
            self._reach.check()
            if len(messages) >= num_messages or deadline.has_passed or self._report is not None:
                return messages

    def _rewind_offset(self, place: Place, committed: int) -> int | None:
        """Return the offset that a rewind goes to; None if the partition stands there already.

        Args:
            place: An assigned partition.
            committed: Its committed offset; below 0: none.
        """
        start = self._starts.get(place)
        if start is not None:
            return None if self._unread.get(place) is start else start.offset
        if committed >= 0:
            return committed
        # Unknown too when a signal swallowed the first record. librdkafka takes an invalid offset
        # for "where auto.offset.reset says".
        return self._origins.get(place, OFFSET_INVALID)

    def _describe_loss(self) -> str | None:
        """Describe the records handed out since the last rewind that are out of reach now."""
        if self._lost:
            return f"it lost {names_of(self._lost)} with records handed out and not committed"
        if self._was_interrupted:
            return "a signal interrupted its poll, which may have swallowed records"
        return None

    def _describe_unknown_positions(self) -> str | None:
        """Describe the partitions whose position cannot be committed, as it is no number yet."""
        places = {p for p, offset in (*self._sought.items(), *self._left.items()) if offset is None}
        return names_of(places) if places else None

    def _reached(self) -> dict[Place, int]:
        """Return the positions: one past the last record handed out, or the target of a seek.

        Partitions that the program has unassigned since the last commit are among them.
        """
        positions = {**self._left, **self._positions_by_place(self.assignment())}
        return {place: offset for place, offset in positions.items() if offset is not None}

    def _note_committed(self, offsets: Offsets) -> None:
        """Remember that a transaction has committed these positions."""
        self._is_ahead = False
        self._committed.update(offsets)
        self._left.clear()
        self._sought = {p: offset for p, offset in self._sought.items() if offset is not None}
        self._forget_starts(offsets)
        self._kept = None
        self._doubted = {}

    def _is_in_block(self) -> bool:
        """Return True if an open block commits its offsets."""
        return self._in_block()

    def _has_committed_since(self, since_s: float) -> bool:
        """Return True if it committed outside transactions after this `time.monotonic`."""
        return self._commit_made_s > since_s

    def _is_uncommitted(self, since_s: float) -> bool:
        """Return True if it has handed out records that nothing has committed or will.

        A commit outside transactions since this `time.monotonic` counts for all of them.
        """
        if self._in_block() or self._has_committed_since(since_s):
            return False
        try:
            return bool(self._uncommitted(self.assignment()))
        except (KafkaException, RuntimeError):  # it is closed, for one
            return False

    def _note_begun(self, since_s: float, in_block: Callable[[], bool]) -> None:
        """Remember that a block began at `since_s`: if it aborts, no later seek has been made.

        Args:
            since_s: `time.monotonic` of its begin.
            in_block: Whether the block is still open.
        """
        self._in_block = in_block
        self._is_ahead = True
        self._kept = {p: start for p, start in self._starts.items() if start.made_s <= since_s}
        self._doubted = {}

    def _note_asked(self, offsets: Offsets) -> None:
        """Remember that a commit of these positions is asked for.

        Until it is known to have failed, a rewind of their partitions goes to committed offsets.
        """
        if self._kept is not None:
            self._doubted = {p: start for p, start in self._kept.items() if p in offsets}
            self._kept = {p: start for p, start in self._kept.items() if p not in offsets}

    def _note_refused(self) -> None:
        """Remember that the commit that was asked for has failed."""
        if self._kept is not None:
            self._kept |= self._doubted

    def _note_aborted(self) -> None:
        """Forget the seeks and assignments that a block made, if one has not committed."""
        if self._kept is not None:
            self._starts = {p: start for p, start in self._kept.items() if start is not None}
            self._kept = None

    def _note_rewound(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember that the partitions are back where a block begins."""
        places = places_of(partitions)
        self._is_ahead = False
        self._starts = {p: start for p, start in self._starts.items() if p in places}
        self._unread = {p: start for p, start in self._starts.items() if start.offset < 0}
        self._sought = {p: start.offset for p, start in self._starts.items() if start.offset >= 0}
        self._lost.clear()
        self._left.clear()
        self._was_interrupted = False
        for place in places:
            self._origins.pop(place, None)
            self._awaited.add(place)

    def _note_handed_out(self, message: Message) -> None:
        if message.error() is not None:
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._note_first((topic, partition), offset)

    def _note_first(self, place: Place, offset: int) -> None:
        """Remember a record handed out; the first one since an assignment or a seek matters."""
        self._sought.pop(place, None)
        start = self._unread.pop(place, None)
        if start is not None:
            start.offset = offset
        if place in self._awaited:
            self._existence.forget([place])
            self._awaited.discard(place)
            self._origins[place] = offset

    def _begin_at(self, place: Place, offset: int, made_s: float) -> Start:
        start = self._starts[place] = Start(offset, made_s)
        self._unread.pop(place, None)
        if offset < 0:
            self._unread[place] = start
        return start

    def _forget_starts(self, places: Iterable[Place]) -> None:
        for place in places:
            self._starts.pop(place, None)
            self._unread.pop(place, None)

    def _forget_kept(self, places: Iterable[Place]) -> None:
        for place in places:
            if self._kept is not None:
                self._kept.pop(place, None)

    def _note_interrupt(self) -> None:
        self._was_interrupted = True
        self._awaited.clear()  # the next record need not be the first
        self._unread.clear()

    def _note_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._assigned_places.add(place)
            self._revoked_places.discard(place)
            if partition.offset in NO_OFFSET:
                self._forget_starts([place])
            else:
                # One that comes with its partition is older than any block.
                made_s = time.monotonic() if place in self._left else -math.inf
                start = self._begin_at(place, partition.offset, made_s)
                if self._kept is not None:
                    self._kept.setdefault(place, start)
            if place in self._left:  # handed out, not committed: as a seek
                del self._left[place]
                self._sought[place] = partition.offset if partition.offset >= 0 else None
                continue
            self._sought.pop(place, None)
            self._origins.pop(place, None)
            self._committed.pop(place, None)
            self._awaited.add(place)

    def _note_revoked(self, partitions: list[TopicPartition]) -> None:
        self._lost |= self._uncommitted(partitions).keys()
        self._revoked_places |= places_of(partitions)
        self._forget(partitions)
        self._forget_kept(places_of(partitions))

    @contextmanager
    def _unassigning(self, partitions: list[TopicPartition]) -> Iterator[None]:
        """Keep the positions of partitions that the program unassigns."""
        before = dict(self._left)
        uncommitted = self._uncommitted(partitions)
        self._left.update({p: uncommitted[p] for p in uncommitted if p not in self._lost})
        try:
            yield
        except KafkaException:
            self._left = before
            raise
        self._forget(partitions)
        for place in places_of(partitions) - self._revoked_places:
            if self._kept is not None:
                self._kept.setdefault(place, None)  # it was there without a start

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget_starts(places_of(partitions))
        self._beginnings.release(places_of(partitions))
        self._existence.forget(places_of(partitions))
        for place in places_of(partitions):
            self._sought.pop(place, None)
            self._awaited.discard(place)

    def _positions_by_place(self, partitions: list[TopicPartition]) -> dict[Place, int | None]:
        """Return the positions of partitions that have one; None for one that is no number."""
        positions = {(p.topic, p.partition): p.offset for p in positions_of(self, partitions)}
        places = places_of(partitions)
        return positions | {p: offset for p, offset in self._sought.items() if p in places}

    def _uncommitted(self, partitions: list[TopicPartition]) -> dict[Place, int | None]:
        """Return the positions of partitions that another reader would not begin at.

        That one begins at the offset committed last, or at the first record handed out.
        """
        found = {}
        for place, offset in self._positions_by_place(partitions).items():
            begin = self._committed.get(place, self._origins.get(place))
            is_untouched = begin is None and self._sought.get(place) is not None
            if offset != begin and not is_untouched:
                found[place] = offset
        return found


class _Abandoned(Consumer):
    """A consumer in a forked child: librdkafka would wait for threads that are not there."""

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
    """Return the class of a consumer with this engine. Raises ConfigError."""
    if cls is not Consumer or engine != "native":
        raise ConfigError(
            f"{cls.__name__} cannot have engine={engine!r}: call txn.Consumer itself, or derive "
            "from the class that it returns",
            property="engine",
        )
    from txn.client.native_consumer import NativeConsumer

    return NativeConsumer


def _outside_block() -> bool:
    return False


def _report_of(message: Message) -> KafkaError | None:
    """The error that a message stands for; the end of a partition is none."""
    error = message.error()
    return None if error is None or error.code() == KafkaError._PARTITION_EOF else error
