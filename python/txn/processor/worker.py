"""One worker: a consumer, a producer with a transactional id, and the loop of both.

    take a batch ── handle it ──────────── one transaction: outputs, dead letters, offsets
                    (no transaction is        │
                     open; if it takes        ├── rejected ─► half the batch … one record: poison
                     long, the consumer       ├── RETRY, ABORT_AND_REWIND ─► back-off, again
                     polls paused)            ├── REOPEN ─► back-off, another producer, again
                                              └── GIVE_UP ─► the processor stops with the error

- *Results outlive an abort.* After a rewind the same records come again, and results that are known
  are not computed a second time (`_results`, `_failures`: by partition and offset).
- *A rebalance while the handler runs* drops the batch: its partitions may have another owner. The
  cluster would refuse their offsets as well.
- *Bisection.* Some errors are of one record, and name none: a handler of a batch failed, or the
  broker rejected a transaction's records. The batch is then divided, each half in a transaction of
  its own. `_suspects` are the offsets of that batch, until all of them are committed.
- *Without a topic of dead letters* a failed record ends the processor. The records in front of it
  are handled again after a start.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message, TopicPartition

import txn.client
from txn.errors import Action, RejectedError, TxnError, UnreachableError
from txn.identifiers import TopicPartition as Place
from txn.logs import EventLog
from txn.processor import letters
from txn.processor.handling import (
    BatchFailedError,
    HandlerThread,
    Handling,
    Result,
    Runner,
    StoppedError,
)
from txn.processor.intake import BEAT_S, Intake
from txn.processor.letters import Failure
from txn.processor.metrics import Counters
from txn.processor.pauses import Backoff
from txn.processor.records import Output, Record, offset_of, place_of, record_of

RECORD_FAULTS: Final = frozenset(
    {
        10,  # MESSAGE_TOO_LARGE
        18,  # RECORD_LIST_TOO_LARGE
        32,  # INVALID_TIMESTAMP
        87,  # INVALID_RECORD
    }
)
"""Kafka's codes of errors that are the fault of one record. Any other rejection stops."""

PATIENCE_S: Final = 0.5
"""Seconds that a handler may take before its partitions are paused."""

RESULTS_PER_RECORD: Final = 2
"""Results that are kept, for each record of a batch of the full size."""

_log: Final = EventLog(logging.getLogger("txn.processor"))

Key = tuple[Place, int]


@dataclass(frozen=True, slots=True)
class Delay:
    """A retry topic: its records are handled `seconds` after they failed."""

    topic: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of `Processor` that a worker needs."""

    group: str
    handling: Handling
    dead_letter: str | None
    delays: Sequence[Delay]
    backoff: Backoff
    batch_size: int
    poll_seconds: float
    fill_seconds: float
    timeout: float
    stop_timeout: float
    now_ms: Callable[[], int]


class Worker:
    """Handles batches until it is stopped.

    Args:
        number: From 0 on.
        rules: The options.
        open_producer: Opens its producer, and takes over the transactional id.
        intake: Its records.
        counters: Shared with the other workers.
        is_stopping: Set: finish the batch under way, then return.
        is_forced: Set: drop the batch under way, and return.
        note_written: Called with the retry topics that a transaction is about to write to.
    """

    def __init__(
        self,
        number: int,
        rules: Rules,
        open_producer: Callable[[], txn.client.Producer],
        intake: Intake,
        counters: Counters,
        is_stopping: threading.Event,
        is_forced: threading.Event,
        note_written: Callable[[set[str]], None],
    ) -> None:
        self._number = number
        self._rules = rules
        self._open_producer = open_producer
        self._intake = intake
        self._counters = counters
        self._is_stopping = is_stopping
        self._is_forced = is_forced
        self._note_written = note_written
        self._results: dict[Key, Sequence[Output]] = {}
        self._failures: dict[Key, Failure] = {}
        self._suspects: set[Key] = set()
        self._errors = 0  # in a row, without a commit
        self.is_idle = False
        runner = Runner(rules.handling, counters, is_stopping)
        self._thread = HandlerThread(f"txn-handler-{number}", runner)

    def run(self) -> None:
        """Handle batches. Raises TxnError whose action is GIVE_UP, and what a handler raises
        beside an Exception.
        """
        has_begun = False
        try:
            while not self._is_stopping.is_set():
                try:
                    with self._open_producer() as producer:
                        has_begun = True
                        self._intake.rewind(self._rules.timeout)
                        self._batches(producer)
                except TxnError as error:
                    is_nowhere = isinstance(error, UnreachableError) and not has_begun
                    if error.action is Action.GIVE_UP or is_nowhere:
                        raise
                    self._back_off(error)
        finally:
            self._thread.close()

    def _batches(self, producer: txn.client.Producer) -> None:
        while not self._is_stopping.is_set():
            try:
                self._batch(producer)
            except TxnError as error:
                if error.action not in (Action.RETRY, Action.ABORT_AND_REWIND):
                    raise
                self._back_off(error)
                self._intake.rewind(self._rules.timeout)

    def _batch(self, producer: txn.client.Producer) -> None:
        rules = self._rules
        messages = self._intake.take(self._count(), rules.poll_seconds, rules.fill_seconds)
        self.is_idle = not messages and self._intake.is_drained
        self._counters.set_lag(self._number, self._intake.lag() + len(messages))
        if self._intake.has_lost:
            self._drop()
            return
        if not messages:
            self._intake.ask_ends()
            return
        try:
            outputs = self._outputs(messages)
        except BatchFailedError as failed:
            self._divide(messages, failed.error)
            self._intake.put_back(messages)
            return
        except StoppedError:
            return
        if self._intake.has_lost:
            self._drop()
            return
        self._intake.go_on()
        try:
            self._commit(producer, messages, outputs)
        except (TxnError, TypeError, ValueError) as error:
            self._counters.add(aborted=1)
            if not self._is_rejection(error):
                raise
            self._divide(messages, error)
            self._intake.rewind(rules.timeout)

    def _count(self) -> int:
        """Return how many records the next batch may have: half of those one of which fails."""
        return max(1, len(self._suspects) // 2) if self._suspects else self._rules.batch_size

    def _drop(self) -> None:
        _log.info("processor.batch_dropped", worker=self._number, reason="rebalance")
        self._counters.add(aborted=1)
        self._suspects.clear()
        self._intake.rewind(self._rules.timeout)

    # ------------------------------------------------------------ results

    def _outputs(self, messages: Sequence[Message]) -> list[Output]:
        """Return the outputs of a batch: of its results, its retries and its dead letters."""
        records = {_key(message): self._record(message) for message in messages}
        is_of_batch = self._rules.handling.handle_batch is not None
        unknown = {
            key: record
            for key, record in records.items()
            if key not in self._failures and (is_of_batch or key not in self._results)
        }
        if unknown:
            found = self._awaited(self._thread.submit(list(unknown.values())))
            for key, result in zip(unknown, found, strict=True):
                self._note(key, result)
        outputs: list[Output] = []
        for message in messages:
            key = _key(message)
            failure = self._failures.get(key)
            if failure is None:
                outputs += self._results[key]
            else:
                outputs.append(self._letter(message, records[key], failure))
        return outputs

    def _note(self, key: Key, result: Result) -> None:
        if isinstance(result, Failure):
            self._failures[key] = result
        else:
            self._results[key] = result

    def _record(self, message: Message) -> Record:
        record = record_of(message)
        is_retry = any(message.topic() == delay.topic for delay in self._rules.delays)
        return letters.original_of(record) if is_retry else record

    def _awaited(self, future: "Future[list[Result]]") -> list[Result]:
        """Wait for a handler. If it takes long, pause the partitions and go on polling."""
        deadline_s: float | None = None
        wait_s = PATIENCE_S
        while True:
            try:
                return future.result(wait_s)
            except NotDoneError:
                if future.done():
                    return future.result()
            if self._is_stopping.is_set():
                deadline_s = deadline_s or time.monotonic() + self._rules.stop_timeout
                if self._is_forced.is_set() or time.monotonic() > deadline_s:
                    _log.warning("processor.handler_left", worker=self._number)
                    raise StoppedError
            self._intake.beat()
            wait_s = 0.0

    def _letter(self, message: Message, record: Record, failure: Failure) -> Output:
        """Return what becomes of a record that failed: a delayed retry or a dead letter."""
        rules = self._rules
        is_delayed = any(message.topic() == delay.topic for delay in rules.delays)
        stage = letters.stage_of(record_of(message).headers) if is_delayed else 0
        if stage < len(rules.delays):
            delay = rules.delays[stage]
            due_ms = rules.now_ms() + int(delay.seconds * 1000)
            return letters.delayed(
                record,
                failure,
                topic=delay.topic,
                group=rules.group,
                due_ms=due_ms,
                stage=stage + 1,
            )
        if rules.dead_letter is None:
            raise RejectedError(
                f"the handler of group {rules.group!r} failed {failure.attempts} times on "
                f"{record}: {letters.error_class(failure.error)}: {failure.error}. Correct the "
                "handler or skip the record, or give Processor(dead_letter=…) a topic for such "
                "records",
                topic=record.topic,
                partition=record.partition,
                reason=str(failure.error),
            ) from failure.error
        return letters.dead_letter(record, failure, topic=rules.dead_letter, group=rules.group)

    # ------------------------------------------------------------ the transaction

    def _commit(
        self,
        producer: txn.client.Producer,
        messages: Sequence[Message],
        outputs: Sequence[Output],
    ) -> None:
        following: dict[Place, int] = {}
        for message in messages:
            following[place_of(message)] = offset_of(message) + 1
        consumer = self._intake.consumer
        # Before the commit: behind it another worker may read such a topic to its end at once.
        delayed = {delay.topic for delay in self._rules.delays}
        self._note_written(delayed & {each.topic for each in outputs})
        begun_s = time.monotonic()
        try:
            with producer.transaction(consumer, self._rules.timeout) as t:
                for each in outputs:
                    t.produce(
                        each.topic,
                        each.value,
                        each.key,
                        headers=list(each.headers),
                        partition=each.partition,
                        timestamp=each.timestamp_ms,
                    )
                t.send_offsets(
                    [TopicPartition(*p, offset) for p, offset in following.items()], consumer
                )
        finally:
            self._counters.add(transaction_seconds=time.monotonic() - begun_s)
        self._errors = 0
        self._note_committed(messages, outputs)

    def _note_committed(self, messages: Sequence[Message], outputs: Sequence[Output]) -> None:
        keys = [_key(message) for message in messages]
        failed = {key: self._failures.pop(key) for key in keys if key in self._failures}
        dead = self._rules.dead_letter
        letters_sent = [each for each in outputs if _is_letter(each)]
        buried = sum(each.topic == dead for each in letters_sent)
        self._counters.add(
            transactions=1,
            handled=len(keys),
            dead_lettered=buried,
            retried=len(letters_sent) - buried,
        )
        for (place, offset), failure in failed.items():
            _log.warning(
                "processor.record_failed",
                partition=f"{place[0]}-{place[1]}",
                offset=offset,
                error=letters.error_class(failure.error),
                attempts=failure.attempts,
            )
        for key in keys:
            self._results.pop(key, None)
        if len(self._results) > self._rules.batch_size * RESULTS_PER_RECORD:
            self._results.clear()  # of partitions that went to another worker
        self._suspects.difference_update(keys)

    def _is_rejection(self, error: Exception) -> bool:
        """Return True if the transaction was rejected for one of its records."""
        if isinstance(error, (TypeError, ValueError)):
            return True
        return isinstance(error, RejectedError) and error.code in RECORD_FAULTS

    def _divide(self, messages: Sequence[Message], error: Exception) -> None:
        """Suspect a batch. If it has one record only, that record has failed."""
        keys = [_key(message) for message in messages]
        if len(keys) > 1:
            self._suspects = set(keys)
            return
        (key,) = keys
        if key in self._failures:
            raise RejectedError(
                f"the letter of {self._record(messages[0])} was rejected: {error}. Enlarge "
                "max.message.bytes of the topic of dead letters, or skip the record"
            ) from error
        self._results.pop(key, None)
        attempts = self._record(messages[0]).attempts + 1
        self._failures[key] = Failure(error, attempts)

    def _back_off(self, error: TxnError) -> None:
        """Wait after an error, and go on polling meanwhile."""
        self._errors += 1
        seconds = self._rules.backoff.seconds(self._errors)
        _log.warning(
            "processor.backing_off",
            worker=self._number,
            seconds=round(seconds, 3),
            action=error.action.value,
            error=str(error),
        )
        end_s = time.monotonic() + seconds
        while (left := end_s - time.monotonic()) > 0 and not self._is_stopping.is_set():
            if left > BEAT_S:
                self._beat_quietly()
            else:
                self._is_stopping.wait(left)

    def _beat_quietly(self) -> None:
        try:
            self._intake.beat()
        except TxnError as error:
            if error.action is Action.GIVE_UP:
                raise
            self._is_stopping.wait(BEAT_S)


def _key(message: Message) -> Key:
    return place_of(message), offset_of(message)


def _is_letter(output: Output) -> bool:
    return any(name == letters.ERROR_CLASS for name, _ in output.headers)
