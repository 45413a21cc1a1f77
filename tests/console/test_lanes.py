"""Lanes of the timeline, from records as a coordinator writes them."""

from dataclasses import replace

from txn.cluster.facts import StateRecord
from txn.console.pages.transactions.lanes import Span, lane_of
from txn.console.timelines import WIDTH, Axis
from txn.coordinator.transaction.states import Txn, TxnState

BASE = Txn(7, 0, 60_000, TxnState.EMPTY, frozenset(), -1, 100)


def records(*states: Txn | None) -> list[StateRecord]:
    return [StateRecord(0, offset, 0, txn) for offset, txn in enumerate(states)]


def at(state: TxnState, updated_ms: int, start_ms: int = 200, epoch: int = 0) -> Txn:
    changed = BASE._replace(state=state, updated_ms=updated_ms, start_ms=start_ms)
    return changed._replace(producer_epoch=epoch)


def test_a_transaction_goes_from_begin_over_prepare_to_its_markers() -> None:
    lane = lane_of(
        records(
            BASE,
            at(TxnState.ONGOING, 200),
            at(TxnState.ONGOING, 250),
            at(TxnState.PREPARE_COMMIT, 300),
            at(TxnState.COMPLETE_COMMIT, 310),
            at(TxnState.ONGOING, 400, start_ms=400),
        )
    )
    assert lane.spans == [Span(200, 300, 310, "commit"), Span(400, None, None, "open")]
    assert lane.fences == []


def test_a_new_producer_fences_the_one_before() -> None:
    lane = lane_of(
        records(
            at(TxnState.ONGOING, 200),
            at(TxnState.PREPARE_ABORT, 300, epoch=1),
            at(TxnState.COMPLETE_ABORT, 310, epoch=1),
            at(TxnState.EMPTY, 320, start_ms=-1, epoch=2),
        )
    )
    assert lane.spans == [Span(200, 300, 310, "abort")]
    assert lane.fences == [320]


def test_a_history_that_compaction_cut_begins_where_its_last_record_says() -> None:
    lane = lane_of(records(at(TxnState.COMPLETE_ABORT, 310)))
    assert lane.spans == [Span(200, None, 310, "abort")]
    assert lane_of(records(at(TxnState.ONGOING, 200), None)).spans == []


def test_bars_stay_within_their_axis_and_can_be_seen() -> None:
    axis = Axis(1_000, 2_000)
    assert axis.bar(0, 999, "commit", "") is None
    assert axis.bar(2_001, 2_002, "commit", "") is None
    whole = axis.bar(0, 5_000, "open", "")
    assert whole is not None
    assert (whole.x, whole.width) == (0, WIDTH)
    at_the_end = axis.bar(2_000, 2_000, "fence", "")
    assert at_the_end is not None
    assert at_the_end.x + at_the_end.width <= WIDTH
    assert replace(axis, end_ms=1_000).x(1_000) == 0
