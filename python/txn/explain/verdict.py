"""The reason why a transaction is open on a partition, and the remedy.

Pure: facts and a time go in. The coordinator's state decides:

    running    it is open there too: its client ends it, or its time-out does
    ending     it is decided, the marker is on its way
    overdue    its time is up and the coordinator has not aborted it
    stuck      it is decided for longer than a marker takes
    hanging    the coordinator does not know it as open here: no client and no time-out will end it
    completed  the coordinator completed a transaction with this producer id and epoch
    unread     a part of `__transaction_state` that may have decided it cannot be read

All but the first two are findings. A transaction hangs if a batch that arrives after its end opens
it again on that partition. This happens in Apache Kafka before 3.6, and in later versions with
`transaction.partition.verification.enable=false`; in txn it never does.
A lost marker has the same effect. So the advice is never to abort a committed transaction, or one
that an unread record may have decided.

Sources: KIP-664 (hanging transactions), KIP-890 (how they come about), KIP-939 (time-outs).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from shlex import quote
from typing import Final

from txn.cluster.facts import AtStart, Completion, OpenTransaction, Owner
from txn.coordinator.transaction.states import COMPLETED, PREPARED, TxnState

GRACE_MS: Final = 30_000
"""The delay that a coordinator may have: Apache Kafka looks every 10 s for timed-out transactions,
and its clock need not be ours."""


class Standing(Enum):
    """The standing of an open transaction; see the table at the top."""

    RUNNING = "running"
    ENDING = "ending"
    OVERDUE = "overdue"
    STUCK = "stuck"
    HANGING = "hanging"
    COMPLETED = "completed"
    UNREAD = "unread"

    @property
    def is_finding(self) -> bool:
        """True if an operator has to act."""
        return self not in (Standing.RUNNING, Standing.ENDING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The standing of an open transaction, and its consequences.

    Attributes:
        standing: In one word.
        ends: The event that will end it, in words, up to its time.
        ends_ms: When at the latest; None if no time is known.
        advice: The safe thing to do.
        command: The command that ends it from outside, without the source's options; None if
            there is none or it must not be ended so.
        ends_rest: The words behind the time.
    """

    standing: Standing
    ends: str
    ends_ms: int | None
    advice: str
    command: str | None
    ends_rest: str = ""

    def ended_by(self, moment: Callable[[int], str] | None = None) -> str:
        """The event that will end it, in words; without a text for times it names none."""
        if moment is None or self.ends_ms is None:
            return self.ends + self.ends_rest
        return f"{self.ends} at {moment(self.ends_ms)}{self.ends_rest}"


def owns(owner: Owner, held: OpenTransaction) -> bool:
    """Return True if a coordinator knows a transaction as open, or ending, on its partition."""
    if held.partition not in owner.partitions or owner.producer_id != held.producer_id:
        return False
    if owner.state is TxnState.ONGOING:
        return owner.producer_epoch == held.producer_epoch
    return owner.state in PREPARED and owner.producer_epoch >= held.producer_epoch


def judge(
    held: OpenTransaction,
    owner: Owner | None,
    *,
    now_ms: int,
    is_running: bool,
    completed: Completion | None = None,
    unread: Sequence[str] = (),
    at_start: AtStart | None = None,
) -> Verdict:
    """Return the standing of an open transaction.

    Args:
        held: The open transaction of the partition.
        owner: The user of its producer id, if there is one.
        now_ms: The time.
        is_running: Whether brokers are at work; else the files are looked at.
        completed: How the coordinator completed a transaction of its producer id and epoch, as
            its records tell; None where they do not, or were not read.
        unread: The partitions of `__transaction_state` that cannot be read; with an owner, that
            of the owner.
        at_start: How the next start ends it, if power took a trace of its decision.
    """
    if owner is not None and unread:
        return _unread(unread, owner)
    if at_start is not None:
        ends = f"the next start: {at_start.value}"
        return Verdict(Standing.ENDING, ends, None, "start the broker", None)
    if owner is None or not owns(owner, held):
        completed = completed or _completion_by_state(held, owner)
        if completed is not None:
            return _completed(held, completed)
        if unread:
            return _unread(unread, owner)
        return _hanging(held, owner)
    if owner.state in PREPARED:
        return _ending(owner, now_ms, is_running)
    return _open(owner, now_ms, is_running)


def _open(owner: Owner, now_ms: int, is_running: bool) -> Verdict:
    command = f"txn transactions abort --transactional-id {quote(owner.transactional_id)}"
    due_ms = owner.deadline_ms
    if due_ms is None:
        return Verdict(
            Standing.RUNNING,
            "the system that prepared it: it takes part in a two-phase commit and never times out",
            None,
            "find out what the other side decided, and end it the same way. Aborting it here "
            "while the other side commits tears the transaction",
            None,
        )
    if not is_running:
        return Verdict(
            Standing.RUNNING,
            "its client, after the next start; else the coordinator",
            due_ms,
            "start the broker. After a power failure it aborts what was open",
            None,
            ", or at the start if that has passed",
        )
    if now_ms > due_ms + GRACE_MS:
        return Verdict(
            Standing.OVERDUE,
            "its coordinator should have aborted it",
            due_ms,
            "look at the log of the broker that coordinates it; then abort it by hand",
            command,
            " and has not",
        )
    if owner.client is not None and not owner.client.is_connected:
        return Verdict(
            Standing.RUNNING,
            "its coordinator, which aborts it",
            due_ms,
            "start its program again, which ends it at once, or wait. If its client is known to be "
            "dead, abort it by hand",
            command,
            ". The connection of its client is closed: nobody ends it earlier, unless the client "
            "connects again",
        )
    return Verdict(
        Standing.RUNNING,
        "its client, by a commit or an abort; else the coordinator aborts it",
        due_ms,
        "wait. If its client is known to be dead, abort it by hand",
        command,
    )


def _ending(owner: Owner, now_ms: int, is_running: bool) -> Verdict:
    outcome = "commit" if owner.state is TxnState.PREPARE_COMMIT else "abort"
    if not is_running:
        return Verdict(
            Standing.ENDING,
            f"the next start: it is decided ({outcome}), and its markers are written then",
            None,
            "start the broker",
            None,
        )
    if owner.updated_ms is not None and now_ms > owner.updated_ms + GRACE_MS:
        return Verdict(
            Standing.STUCK,
            f"its coordinator: it is decided ({outcome}), but the marker does not come",
            None,
            "look at the log of the broker that coordinates it: a disk refuses, or the "
            "partition's leader cannot be reached. Do not abort it: it is decided",
            None,
        )
    return Verdict(
        Standing.ENDING,
        f"its coordinator, in a moment: it is decided ({outcome}), the marker is on its way",
        None,
        "wait",
        None,
    )


def _hanging(held: OpenTransaction, owner: Owner | None) -> Verdict:
    if owner is None:
        who = "no transactional id uses its producer id"
    else:
        who = (
            f"transactional id {owner.transactional_id!r} uses its producer id, but has no "
            f"transaction open here ({owner.state.label}, producer epoch {owner.producer_epoch})"
        )
    return Verdict(
        Standing.HANGING,
        f"nothing: {who}",
        None,
        "abort it by hand, once `txn log verify` has found nothing lost in the broker's directory. "
        "No client waits for it; whether it was committed is not known any more",
        _abort_here(held),
    )


def _completion_by_state(held: OpenTransaction, owner: Owner | None) -> Completion | None:
    """The same by the owner's state alone: an end under version 2 goes on with the next epoch."""
    if owner is None or owner.state not in COMPLETED or owner.producer_id != held.producer_id:
        return None
    if owner.producer_epoch - held.producer_epoch not in (0, 1):
        return None
    is_commit = owner.state is TxnState.COMPLETE_COMMIT
    return Completion(owner.transactional_id, is_commit, owner.updated_ms)


def _abort_here(held: OpenTransaction) -> str:
    topic, index = held.partition
    return (
        f"txn transactions abort --topic-partition {quote(f'{topic}-{index}')} "
        f"--start-offset {held.first_offset}"
    )


def _completed(held: OpenTransaction, completed: Completion) -> Verdict:
    outcome = "COMMIT" if completed.is_commit else "ABORT"
    ends = f"nothing: {completed.transactional_id!r} completed it as {outcome}"
    rest = " with this producer epoch, and its marker is missing here"
    cause = (
        "Either the marker is lost, or a write came late on a broker without KIP-890: run `txn "
        "log verify` on the broker's directory"
    )
    if completed.is_commit:
        advice = f"do not abort it: its records may be committed ones. {cause}"
        return Verdict(Standing.COMPLETED, ends, completed.at_ms, advice, None, rest)
    advice = f"{cause}. To abort it is what its coordinator decided"
    return Verdict(Standing.COMPLETED, ends, completed.at_ms, advice, _abort_here(held), rest)


def _unread(unread: Sequence[str], owner: Owner | None) -> Verdict:
    names = ", ".join(unread)
    if owner is None:
        who = f"no transactional id that can be read uses its producer id, but {names}"
    else:
        who = f"{names}, which has the records of {owner.transactional_id!r},"
    return Verdict(
        Standing.UNREAD,
        f"not known: {who} cannot be read",
        None,
        f"do not abort it: it may be decided. Put back a copy of {names}, and start again",
        None,
    )
