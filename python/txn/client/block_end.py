"""The end of a block: the loops of commit and abort, and the doubts that they leave.

Invariant: a block ends once, and its result is what the cluster is known to have done. A commit
that was asked for is never called aborted. A producer whose transaction was not seen to end is
given up, so it begins no other one.

    commit ── done ───────────────► COMMITTED
      ├── refused ─► abort ───────► ABORTED, or FENCED if the producer is given up
      └── no answer at the deadline ► IN_DOUBT; aborting is neither possible nor honest
    abort ── done ────────────────► ABORTED
      ├── refused, no answer ─────► FENCED: the cluster aborts
      └── no transaction is open, and a commit was asked for before ► IN_DOUBT

- librdkafka resumes the one commit, or abort, with each call. So both are asked for in slices, and
  a signal is heard between two of them.
- A signal during a commit waits for the outcome, and so does the first signal during an abort. The
  call that was interrupted may have finished: a repeated call then answers "not in this state".

Sources: librdkafka's transactional producer API (resumable calls, marks), KIP-98.
"""

import time
from typing import TYPE_CHECKING, Final, NoReturn

from confluent_kafka import KafkaError

from txn.client.block_offsets import BlockOffsets
from txn.client.block_state import BlockPhase, BlockResult, BlockState, OpenBlock
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.engine import ProducerEngine
from txn.client.failures import StateLostError, is_state_error, may_retry, reported_by
from txn.client.handle import Handle
from txn.client.positions import Offsets
from txn.errors import (
    AbortableError,
    FencedError,
    InDoubtError,
    RejectedError,
    RetriableError,
    TxnError,
)

if TYPE_CHECKING:
    from txn.client.producer import Producer

ARRIVE_SECONDS_MAX: Final = 5.0
"""Time that an abort waits for a first record to be stored; see `_await_first_stored`."""


class BlockEnd:
    """The end of one block.

    Args:
        state: The state of the block.
        offsets: Its consumers and their offsets.
        handle: The engine of its producer.
    """

    def __init__(self, state: BlockState, offsets: BlockOffsets, handle: Handle) -> None:
        self._state = state
        self._place = state.place
        self._offsets = offsets
        self._handle = handle

    # ------------------------------------------------------------ commit

    def commit(self, deadline: Deadline, sent: Offsets) -> None:
        """Commit, and return only when it is done. The theory of `transaction.py` lists the errors.

        Args:
            deadline: Of the answer.
            sent: The positions of the block's own consumer, which commit with it.
        """
        client = self._handle.client()
        interrupt: BaseException | None = None
        pause = 0.0
        self._place.has_asked_commit = True
        self._offsets.note_asked()
        self._state.phase = BlockPhase.COMMITTING
        while True:
            try:
                if pause:
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
                if interrupt is not None and is_state_error(error):
                    break  # the call that the signal interrupted had finished the commit
                if not may_retry(error):
                    self._raise_uncommitted(error, interrupt or raised)
                if deadline.has_passed:
                    self._raise_in_doubt(deadline, interrupt or raised)
                pause = _pause_after(error)
        self._state.result = BlockResult.COMMITTED
        self._state.phase = BlockPhase.ENDED
        self._offsets.note_committed(sent)
        if interrupt is not None:
            self._handle.callbacks.add_note_to(interrupt)
        late = interrupt or self._handle.callbacks.pop_kept()
        if late is not None:
            late.add_note("The transaction was committed before this was raised.")
            raise late

    def _raise_uncommitted(self, error: KafkaError, cause: BaseException) -> NoReturn:
        self._state.phase = BlockPhase.OPEN
        failure = self._handle.failure(error, "committing")
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
        self._end_in_doubt(doubt)
        self._handle.callbacks.add_note_to(doubt)
        if reported_by(cause) is not None:
            raise doubt from cause
        cause.add_note(str(doubt))
        raise cause

    def _end_in_doubt(self, doubt: TxnError) -> None:
        self._handle.give_up(doubt)
        self._state.result = BlockResult.IN_DOUBT
        self._state.phase = BlockPhase.ENDED
        self._handle.blocks.last_sent = None
        self._offsets.rewind_or_note(doubt)

    def _unsettled(self, when: str = "") -> TxnError:
        """Return what to say of a transaction that was not seen to end."""
        if self._state.phase is BlockPhase.COMMITTING:
            return self._doubt(when)
        return StateLostError(
            f"{self._handle.whose} could not abort{when}. The cluster aborts after "
            "transaction.timeout.ms; another producer with this transactional id aborts at once: "
            "close this one and open that"
        )

    def _doubt(self, when: str = "") -> InDoubtError:
        return InDoubtError(
            f"{self._handle.whose} asked for a commit and had no answer{when}: the "
            "transaction may be committed, or may become so. Do not repeat it. Open another "
            "producer with this transactional id, which settles it, rewind the consumer, and "
            "go on from what is committed"
        )

    # ------------------------------------------------------------ abort

    def abort(self, reason: BaseException) -> None:
        """Abort and rewind; a failure of either is added to the reason as a note.

        A signal meanwhile waits until both are done, and is then raised in the reason's place. So
        is the error that made the producer unfit for another transaction, if the reason says that
        another would do.
        """
        handle = self._handle
        self._state.phase = BlockPhase.ABORTING
        handle.blocks.last_sent = None
        if not handle.broken and not self._offsets.are_settled():
            handle.give_up(self._unsettled())
        interrupt = None if handle.broken else self._abort_at_cluster(reason)
        self._state.phase = BlockPhase.ENDED
        self._offsets.rewind_or_note(reason)
        handle.callbacks.add_note_to(reason)
        if interrupt is not None:
            raise interrupt
        is_in_doubt = self._state.result is BlockResult.IN_DOUBT and isinstance(reason, TxnError)
        promises_another = isinstance(reason, (AbortableError, RetriableError))
        if handle.broken and (is_in_doubt or promises_another):
            # "Begin another" would be wrong advice now.
            raise handle.broken from reason

    def _abort_at_cluster(self, reason: BaseException) -> BaseException | None:
        client = self._handle.client()
        deadline = Deadline(self._state.timeout)
        interrupt: BaseException | None = None
        is_first = True
        pause = 0.0
        while True:
            try:
                if is_first:
                    is_first = False
                    self._await_first_stored(client)
                if pause:
                    time.sleep(pause)
                client.abort_transaction(deadline.slice() or PAUSE_SECONDS)
                self._offsets.note_refused()
                return interrupt
            except BaseException as raised:
                error = reported_by(raised)
                if error is None:
                    if interrupt is not None:
                        self._give_up_abort(deadline, reason)
                        return raised
                    interrupt = raised
                    continue
                if is_state_error(error):
                    # None is open: never begun, or a signal hid the answer. Or the commit that
                    # was asked for before is done, or on its way.
                    if self._place.has_asked_commit:
                        self._leave_in_doubt(reason)
                    return interrupt
                if not may_retry(error):
                    failure = self._handle.failure(error, "aborting")
                    self._handle.give_up(failure)
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
        self._handle.give_up(doubt)
        self._state.result = BlockResult.IN_DOUBT
        if not isinstance(reason, TxnError):
            reason.add_note(str(doubt))

    def _await_first_stored(self, client: ProducerEngine) -> None:
        """Wait until a record is stored, or none is on its way any more.

        An abort overtakes librdkafka's outstanding requests to the coordinator. While it is still
        writing the markers of the last transaction, a coordinator may not have heard of this one.
        It then refuses to abort it, and that is the end of the producer (librdkafka's issue 4849).
        """
        if self._offsets.has_sent and not self._offsets.is_sending:
            return
        deadline = Deadline(min(ARRIVE_SECONDS_MAX, self._state.timeout))
        try:
            while 0 < self._state.produced <= len(client) and not deadline.has_passed:
                self._handle.wait_only(min(PAUSE_SECONDS, deadline.remaining))
        except TxnError:
            pass  # the abort that follows meets and reports it, too

    def _give_up_abort(self, deadline: Deadline, reason: BaseException) -> None:
        failure = self._unsettled(f" within {deadline.seconds:g} s")
        self._handle.give_up(failure)
        reason.add_note(str(failure))

    # ------------------------------------------------------------ neither

    def leave_prepared(self) -> None:
        """Leave a prepared transaction open; see `Transaction.leave_prepared`."""
        if not self._place.is_prepared:
            raise RejectedError(f"{self._handle.whose} has no prepared transaction to leave")
        self._end_in_doubt(
            InDoubtError(
                f"{self._handle.whose} left its transaction prepared. Open another producer with "
                "this transactional id and two_phase_commit=True, which completes it as the other "
                "system has decided"
            )
        )

    def end_from_outside(self) -> None:
        """Abort a transaction whose block will not end it, and let its producer go on.

        Can be repeated. One that was about to end makes the producer unfit for another.
        """
        try:
            if self._place.is_prepared and self._state.phase is not BlockPhase.ENDED:
                self.leave_prepared()
            elif self._state.phase in (BlockPhase.NEW, BlockPhase.OPEN):
                self.abort(RejectedError(f"{self._handle.whose} lost the block"))
        finally:
            self.give_up_unended()

    def give_up_unended(self) -> None:
        """Give up the producer if the transaction was not seen to end, and leave it."""
        if self._state.phase is not BlockPhase.ENDED:
            self._handle.give_up(self._unsettled())
        self.leave_producer()

    def leave_producer(self) -> None:
        """Free the producer for its next transaction, and set the result of this one."""
        state = self._state
        self._handle.blocks.release(self._place)
        self._offsets.leave()
        if state.result is None:
            if state.phase is BlockPhase.COMMITTING:
                state.result = BlockResult.IN_DOUBT
            elif self._handle.broken is not None:
                state.result = BlockResult.FENCED
            else:
                state.result = BlockResult.ABORTED
        while self._place.at_end:
            self._place.at_end.pop()(state.result)


def _pause_after(error: KafkaError) -> float:
    """Return how long to wait before asking again; a time-out has waited already."""
    return 0.0 if error.code() == KafkaError._TIMED_OUT else PAUSE_SECONDS


def end_lost(producer: "Producer", place: OpenBlock, timeout: float) -> None:
    """End a transaction whose block Python has dropped."""
    phase = BlockPhase.COMMITTING if place.has_asked_commit else BlockPhase.OPEN
    state = BlockState(place, timeout, phase)
    handle = producer._handle
    offsets = BlockOffsets(state, None, handle, producer._outcomes, producer._cautions)
    BlockEnd(state, offsets, handle).end_from_outside()
