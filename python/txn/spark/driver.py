"""The driver's half of an exactly-once micro-batch.

Tasks write in transactions of their own and leave them open. The driver then decides once, in a
transaction of its own, and commits them. Its transactional id is `<txn.id>.driver`; its producer id
and epoch are its *token*. A request for a token fences the one before, so of two drivers only the
newer can decide.

    begin     acquire the token; finish the last decision; abort undecided ones; return the
              free producers
    (tasks)   write and keep their transactions open
    decide    check that all are open; write DECIDED in the driver's transaction and commit
              it, **the commit point**; commit the tasks' transactions; write DONE

| a crash                       | found by `begin`            | result                       |
|-------------------------------|-----------------------------|------------------------------|
| before or during the tasks    | open transactions           | aborted; the batch runs again |
| while deciding                | an uncommitted decision     | aborted with the token       |
| after it, while committing    | DECIDED                     | committed; the tasks skip    |
| after that, before Spark knew | DONE                        | the tasks skip               |
| of a task                     | its transaction, undecided  | aborted, here or by `decide` |

# A driver that was replaced and does not know it
Such a driver may stand still anywhere and continue after its successor has decided. Its later
actions on tasks' transactions must have no effect, so:

1. A driver ends tasks' transactions only by their exact identity, producer id *and* epoch.
   It never asks for a new epoch under their names: that would abort a transaction that is open now.
2. It commits only decided transactions, which its successor commits too: the answer is the same.
3. It aborts only transactions that it saw open *before* it proved that its token was still
   good. Its successor's transactions were opened later, and have other identities.

# The window that is left
Between the commit point and the last task's commit, a few milliseconds, a driver may die. If no
other begins before the tasks' transactions time out (`txn.timeout.ms`, 15 minutes), the cluster
aborts decided transactions. It also does after a power failure that lost a task's rows, because
these are synced only with the task's own commit. The loss is found, and `txn.on.lost` decides:

| `txn.on.lost` | `begin` finds the loss | `decide` finds it |
|---|---|---|
| fail | DECIDED stays, LostError | the same |
| replay | LOST: their tasks write again | LOST, ReplayError, so that the batch runs again |
| accept | DONE | DECIDED stays, LostError; accepted at the next start |

A transaction of an expired transactional id may have been committed before. So it is never
written again by itself.
A two-phase commit closes the window, where the cluster allows it (`identities`).

Source of the idea: two-phase commit with a log of decisions, as in KIP-939; the requests
are those of any Kafka since 3.0.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from txn._core import KafkaError
from txn.errors import FencedError
from txn.spark import kafka
from txn.spark.columns import keys_and_values, one_record
from txn.spark.errors import LostError, NotPreparedError, ReplayError
from txn.spark.handout import Handout
from txn.spark.in_threads import IN_ONE_THREAD, in_threads
from txn.spark.kafka import TransactionalClient, code_of, described_transactions
from txn.spark.logs import log
from txn.spark.lost_tasks import (
    BY_HAND,
    REPLAYED,
    TO_ACCEPT,
    TO_REPLAY,
    EndedBatch,
    LostTask,
    expired_text,
    lost_text,
)
from txn.spark.progress import (
    BatchStage,
    OnLost,
    Progress,
    Slot,
    TransactionIdentity,
    spares_after,
)
from txn.spark.progress_topic import PROGRESS_TOPIC_CONFIGS, read_progress
from txn.spark.transactional_ids import driver_id, is_task_id
from txn.wire.error_codes import ErrorCode

T = TypeVar("T")
R = TypeVar("R")

DRIVER_TIMEOUT_MS: Final = 60_000
"""The driver's transaction lives for two requests. Another query that shares the progress topic may
have to wait for its timeout when this driver dies between them."""

STABLE_WAIT_MS: Final = DRIVER_TIMEOUT_MS + 30_000
"""Apache Kafka looks for expired transactions every 10 seconds."""

STABLE_POLL_S: Final = 0.1


EXPIRED_MS_MIN: Final = 60 * 60_000
"""A transactional id that is unknown this long after the decision may have expired; before that,
a power failure took it. Kafka's default of transactional.id.expiration.ms is seven days."""


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """The options of the driver's half."""

    id: str
    progress_topic: str
    timeout_ms: int
    margin_ms: int
    on_lost: OnLost = OnLost.FAIL
    is_disposable: bool = False
    """Nobody will come back to this id: its record is removed once all is committed."""


class Driver:
    """The driver's half for one `txn.id`. Keeps nothing between calls but its client.

    Args:
        client: For this thread.
        settings: The requested settings.
        connect: Opens a client for another thread, when there are many transactions to end.
        now_ms: The time of day in milliseconds.
        pause: Waits for some seconds.
    """

    def __init__(
        self,
        client: TransactionalClient,
        settings: DriverSettings,
        *,
        connect: Callable[[], TransactionalClient] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._settings = settings
        self._connect = connect
        self._now_ms = now_ms
        self._pause = pause
        self._timeout_ms = min(DRIVER_TIMEOUT_MS, settings.timeout_ms)

    def begin(self, own: TransactionIdentity | None = None) -> Handout:
        """Take over: settle the transactions of earlier batches, and hand out identities for the
        next one.

        Args:
            own: The token of the batch under way. A driver that began after it keeps its place.

        Raises:
            LostError: decided transactions are gone, and `txn.on.lost` is fail.
            RefusedError: the progress cannot be read.
            FencedError: another driver took over meanwhile.
            KafkaError: the cluster did not answer in time.
        """
        began_ms = self._now_ms()
        self._ensure_topic()
        token = self._init_token() if own is None else self._renew_token(own)
        accepts = own is None and self._settings.on_lost is OnLost.ACCEPT
        progress = self._read()
        if progress is not None and progress.state is BatchStage.DECIDED:
            ended = self._commit_all(progress)
            if ended.lost and not accepts:
                self._check_replayable(progress, ended, token)
            progress, token = self._note_end(progress, ended, token)
        elif orphans := self._open_transactions():
            token = self._renew_token(token)
            self._abort(orphans)
        if progress is not None and progress.state is BatchStage.LOST and accepts:
            progress, token = self._accepted(progress, token)
        return Handout(self._settings.id, token, progress, began_ms)

    def decide(
        self,
        handout: Handout,
        query: str,
        batch: int,
        slots: Sequence[Slot],
        *,
        group: str | None = None,
        source_offsets: Sequence[tuple[str, int, int]] = (),
        source_ends: str | None = None,
    ) -> None:
        """Commit a batch: all these transactions, or none.

        Args:
            handout: The result of `begin` for this batch; a newer `begin` makes it worthless.
            query: The id in the checkpoint, kept to be compared.
            batch: Its number.
            slots: The tasks' transactions; tasks without rows have none.
            group: A consumer group that gets `source_offsets` in the same transaction.
            source_offsets: (topic, partition, next offset).
            source_ends: A digest of where the batch's sources end, kept to be compared.

        Raises:
            NotPreparedError: a transaction is not open any more, or about to time out.
            FencedError: another driver took over. It has finished the decision, if one was made.
            LostError: decided, and then gone before they could be committed.
            ReplayError: the same, and the batch has to run again for their tasks.
            KafkaError: unknown whether it is decided; the next `begin` finds out.
        """
        try:
            self._check_open(slots, handout.began_ms)
        except NotPreparedError:
            self._renew_token(handout.token)  # if a successor aborted them, the error says so
            raise
        decided = Progress(
            state=BatchStage.DECIDED if slots else BatchStage.DONE,
            query=query,
            batch=batch,
            slots=tuple(slots),
            spares=handout.spares if slots else spares_after(handout.spares, (), ()),
            rows=sum(slot.rows for slot in slots),
            written_ms=self._now_ms(),
            source_ends=source_ends,
        )
        token = self._record(decided, handout.token, group, source_offsets)
        ended = self._commit_all(decided)
        if ended.lost:
            self._check_replayable(decided, ended, token)
            self._note_end(decided, ended, token)
            raise ReplayError(lost_text(ended.lost, decided) + REPLAYED, batch=batch)
        try:
            if slots:
                _, token = self._note_end(decided, ended, token)
            if self._settings.is_disposable:
                self._record(None, token)
        except KafkaError as error:
            # An error would have the caller write rows again that are in the output.
            log.warning(
                "batch.end_not_noted txn_id=%s batch=%s reason: %s. All its rows are in the "
                "output; the next start notes it",
                *(self._settings.id, batch, error.args[0]),
            )

    def _ensure_topic(self) -> None:
        topic = self._settings.progress_topic
        try:
            self._client.partition_count(topic)
        except KafkaError as error:
            if code_of(error) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._client.create_topic(topic, 1, dict(PROGRESS_TOPIC_CONFIGS))

    def _init_token(self) -> TransactionIdentity:
        name = driver_id(self._settings.id)
        return TransactionIdentity(name, *self._client.init_producer_id(name, self._timeout_ms))

    def _renew_token(self, token: TransactionIdentity) -> TransactionIdentity:
        """Prove that no other driver has begun, by taking the token again; return the new one."""
        name, *producer = token.transactional_id, token.producer_id, token.producer_epoch
        with self._explaining_fencing(token):
            return TransactionIdentity(
                name, *self._client.init_producer_id(name, self._timeout_ms, *producer)
            )

    def _commit_all(self, decided: Progress) -> "EndedBatch":
        """Commit the decided transactions."""
        is_old = self._now_ms() - decided.written_ms > EXPIRED_MS_MIN

        def commit(client: TransactionalClient, slot: Slot) -> TransactionIdentity | LostTask:
            who = slot.identity
            try:
                producer = client.end_txn(
                    who.transactional_id, who.producer_id, who.producer_epoch, commit=True
                )
            except KafkaError as error:
                code = code_of(error)
                if code not in kafka.GONE:
                    raise
                return LostTask(slot, str(error.args[0]), is_old and code in kafka.UNKNOWN)
            return TransactionIdentity(who.transactional_id, *producer)

        answers = list(self._each(commit, decided.slots))
        return EndedBatch(
            tuple(answer for answer in answers if isinstance(answer, LostTask)),
            tuple(answer for answer in answers if isinstance(answer, TransactionIdentity)),
        )

    def _check_replayable(
        self, decided: Progress, ended: "EndedBatch", token: TransactionIdentity
    ) -> None:
        """Check that the tasks of lost transactions may write again.

        A driver that was replaced may find that its successor committed these long ago and uses
        the producers again. Only one that can still write knows of a loss.

        Raises:
            LostError: they may not.
        """
        is_unknown = any(item.is_unknown for item in ended.lost)
        is_disposable = self._settings.is_disposable
        if self._settings.on_lost is OnLost.REPLAY and not is_unknown and not is_disposable:
            return
        self._record(decided, token)
        if is_unknown:
            story = expired_text(ended.lost, decided) + TO_ACCEPT
        else:
            story = lost_text(ended.lost, decided) + (BY_HAND if is_disposable else TO_REPLAY)
        raise LostError(story, batch=decided.batch)

    def _note_end(
        self, decided: Progress, ended: "EndedBatch", token: TransactionIdentity
    ) -> tuple[Progress, TransactionIdentity]:
        """Write down how a decided batch ended, and abort the other open transactions.

        Those are left by attempts that failed or lost. They would hold back readers of the output
        until the next batch.

        Returns:
            The record that was written, and the next token.
        """
        orphans = self._open_transactions()
        finished = replace(
            decided,
            state=BatchStage.LOST if ended.lost else BatchStage.DONE,
            slots=tuple(item.slot for item in ended.lost),
            spares=spares_after(decided.spares, decided.slots, ended.next_identities),
        )
        token = self._record(finished, token)
        self._abort(orphans)
        return finished, token

    def _accepted(
        self, lost: Progress, token: TransactionIdentity
    ) -> tuple[Progress, TransactionIdentity]:
        """Write down that a batch is done without its lost rows."""
        done = replace(lost, state=BatchStage.DONE, slots=())
        token = self._record(done, token)
        log.warning(
            "batch.loss_accepted txn_id=%s batch=%s tasks=%s rows=%s. Take txn.on.lost=accept out "
            "again: it would accept the next loss, too",
            *(self._settings.id, lost.batch, [slot.task for slot in lost.slots]),
            sum(slot.rows for slot in lost.slots),
        )
        return done, token

    def _open_transactions(self) -> list[TransactionIdentity]:
        """The open transactions of tasks; none is needed once all decided ones are committed."""
        listed = self._client.list_transactions(["Ongoing"], f"{self._settings.id}.")
        names = [name for name, _, _ in listed if is_task_id(self._settings.id, name)]
        if not names:
            return []
        return [
            TransactionIdentity(one.transactional_id, one.producer_id, one.producer_epoch)
            for one in described_transactions(self._client, names)
            if one.error_code == 0 and one.state == "Ongoing"
        ]

    def _abort(self, orphans: Sequence[TransactionIdentity]) -> None:
        """Abort transactions that were listed before the token was last proved."""
        for _ in self._each(_abort_one, orphans):
            pass

    def _check_open(self, slots: Sequence[Slot], began_ms: int) -> None:
        """Check that every transaction is open and stays so while it is committed.

        Its remaining time is reckoned twice: from the start of the batch, by this machine's clock
        alone, and from its own start. The latter is later, but by the cluster's clock. The first
        never promises too much; the second is for batches that write late.
        """
        if not slots:
            return
        names = [slot.identity.transactional_id for slot in slots]
        described = {
            one.transactional_id: one for one in described_transactions(self._client, names)
        }
        for slot in slots:
            who = slot.identity
            now = described[who.transactional_id]
            current = TransactionIdentity(who.transactional_id, now.producer_id, now.producer_epoch)
            if now.error_code or now.state != "Ongoing" or current != who:
                raise NotPreparedError(
                    f"the transaction {who.transactional_id} of task {slot.task} cannot be "
                    f"committed: it is {now.state or 'unknown'} (error {now.error_code}) with "
                    f"producer {now.producer_id}, epoch {now.producer_epoch}; the task wrote as "
                    f"producer {who.producer_id}, epoch {who.producer_epoch}. It timed out after "
                    f"{self._settings.timeout_ms} ms, or another driver took over. Nothing was "
                    "decided; the batch will be replayed"
                )
            left_ms = max(began_ms, now.started_ms) + now.timeout_ms - self._now_ms()
            if left_ms < self._settings.margin_ms:
                raise NotPreparedError(
                    f"the transaction {who.transactional_id} of task {slot.task} times out in "
                    f"{left_ms} ms, less than txn.margin.ms={self._settings.margin_ms}: the batch "
                    "took too long. Nothing was decided. Make batches smaller "
                    "(maxOffsetsPerTrigger), or raise txn.timeout.ms and the cluster's "
                    "transaction.max.timeout.ms"
                )

    def _record(
        self,
        progress: Progress | None,
        token: TransactionIdentity,
        group: str | None = None,
        source_offsets: Sequence[tuple[str, int, int]] = (),
    ) -> TransactionIdentity:
        """Write a record (None: remove it) in a driver's transaction; return the next token."""
        who = (token.transactional_id, token.producer_id, token.producer_epoch)
        client = self._client
        with self._explaining_fencing(token):
            writer = client.writer(*who)
            key = self._settings.id.encode()
            value = progress.to_json() if progress is not None else None
            one_record(writer, self._settings.progress_topic, key, value)
            writer.flush()
            if group and source_offsets:
                client.add_offsets(*who, group, source_offsets)
            following = TransactionIdentity(who[0], *client.end_txn(*who, commit=True))
            # Version 1 leaves the epoch as it is. A second writer with the same epoch would start
            # its sequences at 0 again, and its records would be dropped as duplicates.
            return following if client.transaction_version >= 2 else self._renew_token(following)

    @contextmanager
    def _explaining_fencing(self, token: TransactionIdentity) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            if code_of(error) not in kafka.FENCED:
                raise
            raise FencedError(
                f"another driver took over txn.id {self._settings.id!r}: the token of this one "
                f"is producer {token.producer_id}, epoch {token.producer_epoch} "
                f"({error.args[0]}). Two queries run with the same checkpoint or txn.id, or "
                "this one was taken for dead; stop one of them",
                transactional_id=token.transactional_id,
            ) from error

    def _read(self) -> Progress | None:
        """The newest committed record.

        The driver's own transactions have ended, the token saw to that. But another query's may be
        open in front of the newest record and hide it. Then that has to end first.
        """
        topic = self._settings.progress_topic
        high = self._end(read_committed=False)
        deadline_ms = self._now_ms() + STABLE_WAIT_MS
        while (stable := self._end()) < high and self._is_mentioned(stable, high):
            if self._now_ms() > deadline_ms:
                raise NotPreparedError(
                    f"the progress of txn.id {self._settings.id!r} is at or above offset {stable} "
                    f"of {topic}-0, behind an open transaction of another query's driver that did "
                    f"not end within {STABLE_WAIT_MS} ms. Find it with `kafka-transactions list`"
                )
            self._pause(STABLE_POLL_S)
        return read_progress(self._client, topic, self._settings.id, stable)

    def _end(self, *, read_committed: bool = True) -> int:
        topic = self._settings.progress_topic
        return self._client.list_offsets(topic, [0], -1, read_committed=read_committed)[0]

    def _is_mentioned(self, start: int, end: int) -> bool:
        chunks = self._client.fetch(
            self._settings.progress_topic, 0, start, end, read_committed=False
        )
        key = self._settings.id.encode()
        return any(mentioned == key for chunk in chunks for mentioned, _ in keys_and_values(chunk))

    def _each(
        self, action: Callable[[TransactionalClient, T], R], items: Sequence[T]
    ) -> Iterator[R]:
        """Do the same for many transactions, in a few threads when there are many."""
        if len(items) <= IN_ONE_THREAD or self._connect is None:
            return iter([action(self._client, item) for item in items])
        return iter(in_threads(self._connect, action, items))


def _abort_one(client: TransactionalClient, orphan: TransactionIdentity) -> None:
    try:
        client.end_txn(
            orphan.transactional_id, orphan.producer_id, orphan.producer_epoch, commit=False
        )
    except KafkaError as error:
        if code_of(error) not in kafka.GONE:  # its task, or its timeout, was faster
            raise
