"""What a transaction that a partition holds open is waiting for, and what to do about it.

Pure: facts and a time go in. What the coordinator knows decides:

    running    it is open there too: its client ends it, or its time-out does
    ending     it is decided, the marker is on its way
    overdue    its time is up and the coordinator has not aborted it
    stuck      it is decided for longer than a marker takes
    hanging    the coordinator does not know it as open here: nobody will ever end it

The last three are findings. How a transaction comes to hang: a batch that came in after its
transaction had ended opens it again on that partition. Apache Kafka before 3.6 lets that happen,
later versions with `transaction.partition.verification.enable=false`; txn never does, but takes
over directories in which it did.

Sources: KIP-664 (hanging transactions), KIP-890 (how they come about), KIP-939 (time-outs).
"""

from dataclasses import dataclass
from enum import Enum
from shlex import quote
from typing import Final

from txn.coordinator.transaction.states import PREPARED, TxnState
from txn.explain.facts import OpenTransaction, Owner

GRACE_MS: Final = 30_000
"""How late a coordinator may be: Apache Kafka looks every 10 s for what has timed out, and
its clock need not be ours."""


class Standing(Enum):
    """How an open transaction stands; see the table at the top."""

    RUNNING = "running"
    ENDING = "ending"
    OVERDUE = "overdue"
    STUCK = "stuck"
    HANGING = "hanging"

    @property
    def is_finding(self) -> bool:
        """Whether somebody has to do something."""
        return self in (Standing.OVERDUE, Standing.STUCK, Standing.HANGING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an open transaction stands.

    Attributes:
        standing: In one word.
        ends: What will end it, in words; `%s` stands for `ends_ms` where that is not None.
        ends_ms: When at the latest.
        advice: The safe thing to do.
        command: The command that ends it from outside, without the source's options; None if
            there is none or it must not be ended so.
    """

    standing: Standing
    ends: str
    ends_ms: int | None
    advice: str
    command: str | None


def owns(owner: Owner, held: OpenTransaction) -> bool:
    """Say whether a coordinator knows a transaction as open, or ending, on its partition."""
    if held.partition not in owner.partitions or owner.producer_id != held.producer_id:
        return False
    if owner.state is TxnState.ONGOING:
        return owner.producer_epoch == held.producer_epoch
    return owner.state in PREPARED and owner.producer_epoch >= held.producer_epoch


def judge(held: OpenTransaction, owner: Owner | None, *, now_ms: int, is_running: bool) -> Verdict:
    """Say how an open transaction stands.

    Args:
        held: What the partition holds open.
        owner: Who uses its producer id, if anybody does.
        now_ms: The time.
        is_running: Whether brokers are at work; else the files are looked at.
    """
    if owner is None or not owns(owner, held):
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
            "whoever prepared it: it takes part in a two-phase commit and never times out",
            None,
            "find out what the other side decided, and end it the same way. Aborting it here "
            "while the other side commits tears the transaction",
            None,
        )
    if not is_running:
        return Verdict(
            Standing.RUNNING,
            "after the next start its client, or the coordinator at %s; at once if that has passed",
            due_ms,
            "start the broker. After a power failure it aborts what was open",
            None,
        )
    if now_ms > due_ms + GRACE_MS:
        return Verdict(
            Standing.OVERDUE,
            "its coordinator should have aborted it at %s and has not",
            due_ms,
            "look at the log of the broker that coordinates it; then abort it by hand",
            command,
        )
    return Verdict(
        Standing.RUNNING,
        "its client, by a commit or an abort; else the coordinator aborts it at %s",
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
    topic, index = held.partition
    advice = "abort it by hand: its records were never committed, and no client waits for them"
    if owner is not None and owner.state is TxnState.COMPLETE_COMMIT:
        advice = (
            "abort it by hand, once you know that its records may go: the newest transaction of "
            f"{owner.transactional_id!r} was committed, and these came outside of it"
        )
    return Verdict(
        Standing.HANGING,
        f"nothing: {who}",
        None,
        advice,
        f"txn transactions abort --topic-partition {quote(f'{topic}-{index}')} "
        f"--start-offset {held.first_offset}",
    )
