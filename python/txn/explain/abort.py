"""Ending a transaction from outside: the plan first, then the abort.

An operator reads the plan in between. Meanwhile the transaction may end and another may begin. So
the plan is made anew before it is carried out, and nothing is done if the plan has changed.

Two ways, and the plan says which fits:

    by transactional id   InitProducerId: the coordinator aborts the open transaction and gives the
                          id a later producer epoch, so its former owner is fenced. Always safe.
    by partition          WriteTxnMarkers: an abort marker to one partition, without any
                          coordinator. Only for hanging transactions: if the transaction is open at
                          its coordinator, its other partitions can still be committed.

Sources: KIP-98 (fencing), KIP-360, KIP-664 (WriteTxnMarkers by an operator).
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from txn.cluster.facts import OpenTransaction, Owner
from txn.cluster.routing import RETRY_S, require
from txn.cluster.source import ClusterSource
from txn.coordinator.transaction.states import PREPARED, TxnState
from txn.errors import RejectedError, TxnError
from txn.explain.questions import held_open, unknown_id
from txn.explain.verdict import Standing
from txn.identifiers import TopicPartition
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

COMMITS: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT})
ABORTS: Final = frozenset({TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT})

TRIES_MAX: Final = 100
"""Kafka aborts behind an answer of CONCURRENT_TRANSACTIONS; that takes it some tries."""

SHORTEST_TIMEOUT_MS: Final = 1
"""A coordinator that no longer allows the time-out of an open transaction allows this one. No
transaction begins with it: a producer that comes back gives its own."""


@dataclass(frozen=True, slots=True)
class AbortPlan:
    """The effect that an abort would have.

    Attributes:
        what: The transaction to abort, in words.
        consequences: The effects that its client and its readers will see.
        owner: The transactional id, if by that.
        held: The transaction on its partition, if by that.
        despite_commit: Also a transaction that its coordinator committed, or may have.
    """

    what: str
    consequences: tuple[str, ...]
    owner: Owner | None = None
    held: OpenTransaction | None = None
    despite_commit: bool = False

    @property
    def transaction(self) -> tuple[object, ...]:
        """The transaction that it aborts, apart from all others."""
        if self.owner is not None:
            return self.owner.producer_id, self.owner.producer_epoch, self.owner.start_ms
        assert self.held is not None, "a plan is by id or by offset"
        return self.held.producer_id, self.held.producer_epoch, self.held.first_offset


@dataclass(frozen=True, slots=True)
class NothingOpen:
    """There is nothing to abort; says why."""

    why: str


def plan_by_id(cluster: ClusterSource, transactional_id: str) -> AbortPlan | NothingOpen:
    """Plan to abort the open transaction of a transactional id.

    Raises:
        ConfigError: the id is unknown; the message has the nearest one.
        RejectedError: it must not be aborted: it is decided, or takes part in a two-phase commit.
    """
    owner = cluster.owner(transactional_id)
    if owner is None:
        raise unknown_id(
            cluster,
            transactional_id,
            ". If a partition holds a transaction open that no coordinator knows, `txn "
            "transactions hanging` finds it",
        )
    if owner.state in PREPARED:
        decision = "commit" if owner.state is TxnState.PREPARE_COMMIT else "abort"
        raise RejectedError(
            f"the transaction of {transactional_id!r} is decided already ({decision}) and its "
            f"coordinator is at work on it. `txn explain` tells which partition it waits for"
        )
    if owner.state is not TxnState.ONGOING:
        return NothingOpen(f"{transactional_id!r} has no open transaction: {owner.state.label}")
    if not owner.has_timeout:
        raise RejectedError(
            f"the transaction of {transactional_id!r} takes part in a two-phase commit. If the "
            "other side committed, an abort would tear it: let that side decide"
        )
    partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(owner.partitions))
    return AbortPlan(
        what=(
            f"the open transaction of {transactional_id!r} (producer {owner.producer_id}, epoch "
            f"{owner.producer_epoch}) on {partitions}"
        ),
        consequences=(
            "read_committed readers will skip its records and move on",
            "consumer offsets that were sent with it will not be committed",
            f"the producer that has {transactional_id!r} now is fenced: its next request fails "
            "(PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH in older clients); a program of txn ends "
            "and has to be started again, another has to close the producer and open it anew; "
            "the records that were not committed have to be sent again",
        ),
        owner=owner,
    )


def plan_by_offset(
    cluster: ClusterSource,
    partition: TopicPartition,
    first_offset: int,
    *,
    despite_commit: bool = False,
) -> AbortPlan:
    """Plan to abort the transaction that hangs on a partition since an offset.

    Args:
        cluster: Where.
        partition: Which holds it open.
        first_offset: Since when.
        despite_commit: Also a transaction that its coordinator committed, or may have.

    Raises:
        RejectedError: nothing is open since there, its coordinator knows it as open, or has
            committed it, or cannot be asked.
    """
    name = f"{partition[0]}-{partition[1]}"
    held = held_open(cluster, [partition])
    target = next((each for each in held if each.open.first_offset == first_offset), None)
    if target is None:
        open_since = ", ".join(str(each.open.first_offset) for each in held) or "none"
        raise RejectedError(
            f"no transaction on {name} is open since offset {first_offset}. Open there: "
            f"{open_since}"
        )
    standing = target.verdict.standing
    if standing in (Standing.COMPLETED, Standing.UNREAD):
        if target.verdict.command is None and not despite_commit:
            ends = target.verdict.ended_by()
            raise RejectedError(
                f"the transaction on {name} since offset {first_offset} is ended by {ends}. An "
                f"abort may hide committed records: {target.verdict.advice}. To abort it "
                "nevertheless, give --despite-commit"
            )
    elif standing is not Standing.HANGING:
        assert target.owner is not None, "what does not hang has an owner"
        raise RejectedError(
            f"the transaction on {name} since offset {first_offset} is open at its coordinator: a "
            "marker past it could tear it. Abort it as a whole: txn transactions abort "
            f"--transactional-id {target.owner.transactional_id} {cluster.options}"
        )
    return AbortPlan(
        what=(
            f"the transaction of producer {target.open.producer_id} (epoch "
            f"{target.open.producer_epoch}) on {name} since offset {first_offset}, open at no "
            "coordinator"
        ),
        consequences=(
            f"an abort marker is appended to {name}; read_committed readers skip its records",
            "its producer is not told",
        ),
        held=target.open,
        despite_commit=despite_commit,
    )


def carry_out(cluster: ClusterSource, plan: AbortPlan) -> str:
    """Carry out a plan that still fits; return the steps done.

    Raises:
        RejectedError: the transaction is no longer open, or has been committed meanwhile.
    """
    if plan.owner is not None:
        _require_same(plan, plan_by_id(cluster, plan.owner.transactional_id))
        return _fence(cluster, plan.owner)
    assert plan.held is not None, "a plan is by id or by offset"
    _require_same(
        plan,
        plan_by_offset(
            cluster,
            plan.held.partition,
            plan.held.first_offset,
            despite_commit=plan.despite_commit,
        ),
    )
    return _mark(cluster, plan.held)


def _require_same(shown: AbortPlan, now: AbortPlan | NothingOpen) -> None:
    if isinstance(now, NothingOpen):
        raise RejectedError(f"nothing was aborted. {now.why}: it ended after it was shown")
    if now.transaction != shown.transaction:
        raise RejectedError(
            "nothing was aborted: the transaction ended after it was shown, and another one is "
            f"open. That is {now.what}. To abort it, run the command again"
        )


def _fence(cluster: ClusterSource, owner: Owner) -> str:
    request = {
        "transactional_id": owner.transactional_id,
        "transaction_timeout": owner.timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    for _ in range(TRIES_MAX):
        broker = cluster.coordinator(owner.transactional_id)
        answer = broker.call(ApiKey.INIT_PRODUCER_ID, range(5), request)
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            request["transaction_timeout"] = SHORTEST_TIMEOUT_MS
            continue
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        cluster.wait(RETRY_S)
    if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        raise RejectedError(
            f"the abort of {owner.transactional_id!r} may be decided, and its markers cannot be "
            "written yet. The broker tries on. Look for `txn.end_delayed` in its log: the line "
            "names the partition. If that is damaged, see `txn docs damage`",
            code=int(answer.error_code),
        )
    require(answer.error_code, f"transactional id {owner.transactional_id!r}")
    done = (
        f"{owner.transactional_id!r} now has producer {answer.producer_id}, epoch "
        f"{answer.producer_epoch}; the producer with epoch {owner.producer_epoch} is fenced"
    )
    was_committed = _was_committed(cluster, owner)
    if was_committed:
        raise RejectedError(
            f"the transaction was committed before the abort came. {done}, and a transaction that "
            "it began since is aborted"
        )
    if was_committed is None:
        return f"ended: __transaction_state could not be read to tell how. {done}"
    return f"aborted. {done}"


def _was_committed(cluster: ClusterSource, owner: Owner) -> bool | None:
    """Return how the transaction that was open ended; None if that cannot be read."""
    was_committed = None
    with suppress(TxnError):  # the abort is done, though the user may not read its record
        is_its_own = False
        for record in cluster.history(owner.transactional_id):
            state = None if record.txn is None else record.txn.state
            if record.txn is not None and state is TxnState.ONGOING:
                is_its_own = record.txn.start_ms == owner.start_ms
            elif is_its_own and state in COMMITS | ABORTS:
                was_committed = state in COMMITS
    return was_committed


def _mark(cluster: ClusterSource, held: OpenTransaction) -> str:
    topic, index = held.partition
    request: dict[str, Any] = {
        "markers": [
            {
                "producer_id": held.producer_id,
                "producer_epoch": held.producer_epoch,
                "transaction_result": False,
                "topics": [{"name": topic, "partition_indexes": [index]}],
                "coordinator_epoch": max(held.coordinator_epoch, 0),
            }
        ]
    }
    answer = cluster.call_leader(held.partition, ApiKey.WRITE_TXN_MARKERS, range(1, 2), request)
    results = [
        result for marker in answer.markers for each in marker.topics for result in each.partitions
    ]
    if len(results) != 1:
        raise RejectedError(
            f"the broker does not tell the fate of the marker for {topic}-{index}. See "
            f"`txn explain {topic}-{index}`"
        )
    require(results[0].error_code, f"partition {topic}-{index}")
    done = f"aborted. The marker is in {topic}-{index}"
    ends = cluster.ends([held.partition]).get(held.partition)
    if ends is None:
        return done
    stable, end = ends.last_stable_offset, ends.end_offset
    return f"{done}; read_committed reads up to offset {stable} of {end} now"
