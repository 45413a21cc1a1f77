"""The reads of a `txn.Consumer`: `poll`, `consume` and `poll_arrow`, in slices of a second.

Invariant: every record that a read returns is noted in `Positions` before the program has it, and
every error is raised once, by the read that met it or by the next one. A fatal error is raised by
each later read. A read that an exception ends may have swallowed records, so the block after it
aborts (`Positions.note_interrupt`). An exception to that is UnreachableError: no record ever came.

Two errors are not raised. The end of a partition (`enable.partition.eof`) stays a message. An
exceeded `max.poll.interval.ms` counts as a loss of the partitions.

Between two slices a read hears Ctrl-C, looks after the first broker (`Reach`), and begins the
partitions whose committed offsets were not known before (`Beginnings`).
"""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, Message

from txn.client.beginnings import Beginnings
from txn.client.cautions import note_read
from txn.client.deadline import Deadline
from txn.client.existence import Existence
from txn.client.failures import translate
from txn.client.positions import Positions
from txn.client.reach import Reach
from txn.client.redaction import Redaction
from txn.errors import TxnError, UnreachableError

if TYPE_CHECKING:
    from txn.client.consumer import Consumer

Taken = TypeVar("Taken")


class ReadErrors:
    """The errors of a consumer that its next read raises.

    Args:
        whose: Which consumer, as a message begins.
        positions: Hears of a loss of the partitions.
        redaction: Takes secrets out of messages.
    """

    def __init__(self, whose: str, positions: Positions, redaction: Redaction) -> None:
        self._whose = whose
        self._positions = positions
        self._redaction = redaction
        self._next: TxnError | None = None
        self._fatal: TxnError | None = None

    def __bool__(self) -> bool:
        return self._next is not None

    def note(self, error: KafkaError) -> None:
        """Remember an error for the next read; a second one becomes a note of the first."""
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # in librdkafka's log, too
            self._positions.note_expired()
            return
        error = self._redaction.error(error)
        report = translate(error, whose=self._whose, doing="reading")
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = self._fatal or report
        if self._next is None:
            self._next = report
        elif str(report) not in (str(self._next), *getattr(self._next, "__notes__", ())):
            self._next.add_note(str(report))

    def note_fault(self, fault: TxnError | None) -> None:
        """Remember a fault of the consumer's own assignment, if there is no error already."""
        self._next = self._next or fault

    @property
    def is_waiting(self) -> bool:
        """True if the next read raises."""
        return self._next is not None or self._fatal is not None

    def raise_next(self) -> None:
        """Raise the error that waits, or the fatal one, if there is any."""
        report, self._next = self._next or self._fatal, None
        if report is not None:
            raise report.with_traceback(None)


class Reading:
    """Reads of one consumer, on either engine.

    Args:
        consumer: Who reads.
        positions: Are told what it hands out.
        errors: Are raised by its reads.
        beginnings: Partitions held back.
        existence: Partitions that nothing came from.
        reach: Whether the cluster was ever reached.
    """

    def __init__(
        self,
        consumer: "Consumer",
        *,
        positions: Positions,
        errors: ReadErrors,
        beginnings: Beginnings,
        existence: Existence,
        reach: Reach,
    ) -> None:
        self._consumer = consumer
        self._positions = positions
        self._errors = errors
        self._beginnings = beginnings
        self._existence = existence
        self._reach = reach

    def messages(self, take: Callable[[Deadline], list[Message]], timeout: float) -> list[Message]:
        """Return the messages that `take` returns, without its errors, which are raised.

        Args:
            take: Returns messages by its deadline, and earlier if an error waits: `poll` or
                `consume`.
            timeout: Seconds; below 0: without end.
        """

        def take_some(deadline: Deadline) -> tuple[list[Message], bool]:
            return self._sorted(take(deadline))

        return self.read(take_some, timeout) or []

    def read(self, take: Callable[[Deadline], tuple[Taken, bool]], timeout: float) -> Taken | None:
        """Return what `take` returns, once it is not empty; None after the time-out.

        Args:
            take: Returns records, and whether it met errors. It takes no longer than its deadline.
            timeout: Seconds; below 0: without end.

        Raises:
            TxnError: an error of the consumer that has waited for a read.
        """
        self._consumer._leave_fast_path()
        self._errors.raise_next()
        deadline = Deadline(math.inf if timeout < 0 else timeout)
        while True:
            try:
                self._positions.begin_read()
                taken, has_errors = take(deadline)
                if taken or not (has_errors or self._errors):
                    return taken
            except UnreachableError:
                raise  # with nothing taken: nothing ever came
            except BaseException:
                self._positions.note_interrupt()
                raise
            self._errors.raise_next()
            if deadline.has_passed:
                return None

    def poll(self, poll: Callable[[float], Message | None], deadline: Deadline) -> list[Message]:
        """Call the engine's `poll` in slices until it returns a message."""
        while True:
            self._beginnings.ask()
            message = poll(min(deadline.slice(), self._beginnings.due_s()))
            if message is not None:
                self._reach.prove()
                return [message]
            self.check_nothing_came()
            if deadline.has_passed or self._errors:
                return []

    def consume(
        self,
        consume: Callable[[int, float], list[Message]],
        num_messages: int,
        deadline: Deadline,
    ) -> list[Message]:
        """Call the engine's `consume` in slices until it has returned so many messages.

        With the native engine a change of the group waits until the messages of earlier slices are
        handed out: behind it a partition that comes back is read again from its committed offset.
        """
        messages: list[Message] = []
        while True:
            self._beginnings.ask()
            slice_s = min(deadline.slice(), self._beginnings.due_s())
            if messages:
                further = self._consumer._consume_further(num_messages - len(messages), slice_s)
                if further is None:
                    return messages
                messages += further
            else:
                messages += consume(num_messages, slice_s)
            if messages:
                self._reach.prove()
                self._reach.check()
            else:
                self.check_nothing_came()
            if len(messages) >= num_messages or deadline.has_passed or self._errors:
                return messages

    def check_nothing_came(self) -> None:
        """Look for the reason why no record came. Raises UnreachableError."""
        self._reach.check()
        self._errors.note_fault(self._existence.fault())

    def note_firsts(self, records: list[tuple[str, int, int]]) -> None:
        """Remember the first record of each partition in columns that a read hands out."""
        self._reach.prove()
        note_read(self._consumer, time.monotonic())
        self._existence.forget(
            self._positions.note_firsts(((topic, part), offset) for topic, part, offset in records)
        )

    def _sorted(self, taken: list[Message]) -> tuple[list[Message], bool]:
        """Return the messages that are no errors, and whether there were errors."""
        errors = [error for message in taken if (error := error_of_message(message)) is not None]
        messages = taken
        if errors:
            messages = [message for message in taken if error_of_message(message) is None]
        if messages:
            note_read(self._consumer, time.monotonic())
        self._existence.forget(self._positions.note_messages(messages))
        for error in errors:
            self._errors.note(error)
        return messages, bool(errors)


def error_of_message(message: Message) -> KafkaError | None:
    """Return the error that a message stands for; the end of a partition is none."""
    error = message.error()
    return None if error is None or error.code() == KafkaError._PARTITION_EOF else error
