"""No history within the bounds breaks the coordinator; the search sees it when one could."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from model.coordinator_search import Bounds, Search
from support.samples import left_out
from support.seam import Seam
from txn.coordinator.transaction.decide import (
    TV1,
    TV2,
    Done,
    End,
    Refuse,
    Write,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    plan,
)
from txn.coordinator.transaction.states import (
    COMPLETED,
    LAST_PRODUCER_EPOCH,
    PREPARE,
    ProducerIdAndEpoch,
    TxnResult,
    TxnState,
)
from txn.wire.error_codes import ErrorCode

ALONE = Bounds(transactions=3, reconnects=2)
TAKEN_OVER = Bounds(transactions=2, reconnects=1, takeovers=1)
FAULTS = Bounds(transactions=2, reconnects=2, timeouts=1, refusals=1)
RESTARTED = Bounds(transactions=2, reconnects=2, timeouts=1, restarts=1)
UNFORCED = Bounds(transactions=2, reconnects=2, refusals=1, unforced=1)
POOLED = Bounds(transactions=3, reconnects=2, pooled=1)
POOLED_FAULTS = Bounds(transactions=2, reconnects=1, pooled=2, timeouts=1, restarts=1)
OFFSETS = Bounds(transactions=2, reconnects=2, timeouts=1, restarts=1, commits_offsets=True)
EVERYTHING = Bounds(transactions=1, reconnects=1, takeovers=1, timeouts=1, refusals=1, unforced=1)


ALL = [ALONE, TAKEN_OVER, FAULTS, RESTARTED, UNFORCED, POOLED, POOLED_FAULTS, OFFSETS, EVERYTHING]


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("bounds", ALL, ids=str)
def test_P3_P7_no_history_within_bounds_breaks_the_coordinator(
    bounds: Bounds, version: int
) -> None:
    check(bounds, (version,))


@pytest.mark.parametrize("versions", [(TV1, TV2), (TV2, TV1)], ids=str)
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(each, marks=[] if each in (TAKEN_OVER, EVERYTHING) else left_out)
        for each in ALL
    ],
    ids=str,
)
def test_P3_P7_nor_does_one_of_clients_of_both_versions(
    bounds: Bounds, versions: tuple[int, ...]
) -> None:
    check(bounds, versions)


def check(bounds: Bounds, versions: tuple[int, ...]) -> None:
    searched = Search(bounds, versions).run()
    assert searched.found is None, f"\n{searched.found}"
    assert searched.states > 1_000


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("bounds", [ALONE, EVERYTHING], ids=str)
def test_P7_nor_does_one_in_which_the_epochs_are_used_up(bounds: Bounds, version: int) -> None:
    searched = Search(bounds, (version,), first_epoch=LAST_PRODUCER_EPOCH - 1).run()
    assert searched.found is None, f"\n{searched.found}"


LAGGING = Bounds(transactions=2, reconnects=2, timeouts=1)


@pytest.mark.parametrize("commits_offsets", [False, True])
def test_P3_every_close_that_counts_is_waited_for(commits_offsets: bool) -> None:
    bounds = replace(LAGGING, commits_offsets=commits_offsets)
    searched = Search(bounds, (TV1,), closes_lag=True).run()
    assert searched.found is None, f"\n{searched.found}"


# ---------------------------------------------------------------- liars it catches


def found(**search: Any) -> str | None:
    """The name of the first anomaly."""
    wanted: dict[str, Any] = {"bounds": TAKEN_OVER, "versions": (TV1,)} | search
    searched = Search(**wanted).run()
    return None if searched.found is None else searched.found.anomaly


def test_a_late_end_decides_the_next_transaction_if_connections_are_not_told_apart() -> None:
    unaware: dict[str, Any] = {"bounds": ALONE, "knows_connections": False}
    assert found(**unaware) == "late-begin"
    assert found(**unaware, ignores=frozenset({"late-begin"})) == "late-end"


def test_a_client_with_a_pool_is_cut_off_if_the_order_of_connections_alone_counts() -> None:
    assert found(bounds=POOLED, knows_closes=False) == "false-hang-up"


def test_late_offsets_enter_the_next_transaction_if_the_close_alone_does_not_count() -> None:
    assert found(bounds=OFFSETS, serves_left_offsets=True) == "late-offsets"


@pytest.fixture
def seam() -> Iterator[Seam]:
    with Seam() as seam:
        yield seam


def test_it_sees_an_end_that_does_not_look_at_the_epoch(seam: Seam) -> None:
    @seam.instead_of(decide_end)
    def forgetful(txn: Any, producer: ProducerIdAndEpoch, *rest: Any, **named: Any) -> Any:
        return decide_end(txn, producer if txn is None else txn.producer, *rest, **named)

    # The effect of the late end and the join before it is seen, whichever client is first.
    assert found() in ("late-end", "zombie-commit", "false-answer")


def test_it_sees_an_end_of_version_2_that_leaves_the_epoch(seam: Seam) -> None:
    @seam.instead_of(decide_end_and_bump)
    def without_bump(txn: Any, producer: ProducerIdAndEpoch, outcome: Any, **named: Any) -> Any:
        decision = decide_end_and_bump(txn, producer, outcome, **named)
        if not isinstance(decision, End):
            return decision
        return plan(decision.prepare._replace(producer_epoch=txn.producer_epoch))

    assert found(bounds=ALONE, versions=(TV2,)) in ("late-begin", "late-end", "false-fence")


def test_it_sees_an_end_that_agrees_with_everybody(seam: Seam) -> None:
    @seam.instead_of(decide_end)
    def agreeing(txn: Any, *rest: Any, **named: Any) -> Any:
        if txn is not None and txn.state in COMPLETED:
            return Done(txn)
        return decide_end(txn, *rest, **named)

    timed_out = replace(FAULTS, refusals=0)

    @seam.instead_of(decide_fence)
    def keeps_epoch(txn: Any, **named: Any) -> Any:
        return plan(txn._replace(state=PREPARE[TxnResult.ABORT]))

    assert found(bounds=timed_out) == "false-answer"


def test_it_sees_a_commit_that_seems_to_succeed_behind_the_abort_that_undid_it(
    seam: Seam,
) -> None:
    @seam.instead_of(decide_end)
    def agreeing(txn: Any, producer: Any, outcome: Any, **named: Any) -> Any:
        if txn is not None and txn.state is TxnState.COMPLETE_ABORT:
            return Done(txn)
        return decide_end(txn, producer, outcome, **named)

    assert found(bounds=UNFORCED) == "false-answer"


def test_it_sees_an_abort_of_its_own_that_fences_the_client(
    seam: Seam,
) -> None:
    @seam.instead_of(decide_end)
    def fencing(txn: Any, producer: Any, outcome: Any, **named: Any) -> Any:
        decision = decide_end(txn, producer, outcome, **named)
        if outcome is not TxnResult.ABORT or not isinstance(decision, End):
            return decision
        return decide_fence(txn, now_ms=0, new_producer_id=lambda: 1)

    assert found(bounds=UNFORCED) == "false-fence"


def test_it_sees_a_join_that_does_not_wait_for_a_prepare(seam: Seam) -> None:
    @seam.instead_of(decide_add)
    def hasty(txn: Any, *rest: Any, **named: Any) -> Any:
        decision = decide_add(txn, *rest, **named)
        if isinstance(decision, Refuse) and decision.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return Write(txn._replace(state=TxnState.ONGOING))
        return decision

    assert found(bounds=FAULTS, knows_connections=False, ignores=frozenset({"late-begin"})) in (
        "illegal-move",
        "late-end",
    )


def test_it_sees_a_takeover_that_leaves_the_epoch(seam: Seam) -> None:
    @seam.instead_of(decide_init)
    def without_fence(txn: Any, expected: Any, **named: Any) -> Any:
        decision = decide_init(txn, expected, **named)
        if txn is None or not isinstance(decision, Write):
            return decision
        return Write(decision.txn._replace(producer_epoch=txn.producer_epoch))

    assert found() in ("zombie-commit", "late-end")
