"""The judge of the black box, judged: a history with each anomaly, and one without."""

from collections.abc import Iterable

from harnesses.black_box.history import (
    Attempt,
    CopyStage,
    Fate,
    History,
    Instance,
    LateEndTxn,
    Partition,
    ReaderEnd,
    ReadRecord,
    SentRecord,
    View,
    copy_of,
)
from harnesses.black_box.judge import judge

ZERO, ONE, COPY = ("source", 0), ("source", 1), ("copies", 0)
STAGE = CopyStage("copiers", "source", "copies")
BEGAN, ASKED, ENDED = 10.0, 20.0, 30.0


def _view(**found: Iterable[str | tuple[int, str]]) -> View:
    """A view of partitions `zero`, `one`, `copy`: values from offset 0 on, or (offset, value)."""
    view: dict[Partition, list[tuple[int, str, str]]] = {ZERO: [], ONE: [], COPY: []}
    for name, values in found.items():
        rows = [v if isinstance(v, tuple) else (n, v) for n, v in enumerate(values)]
        view[{"zero": ZERO, "one": ONE, "copy": COPY}[name]] = [(o, "k", v) for o, v in rows]
    return view


def _write(partition: Partition, value: str, offset: int | None = None) -> SentRecord:
    return SentRecord(partition, "k", value, offset)


def _attempt(fate: Fate, *writes: SentRecord, name: str = "t#1/1") -> Attempt:
    is_asked = fate is not Fate.GONE
    return Attempt(
        name,
        "t",
        "t#1",
        BEGAN,
        list(writes) or [_write(ZERO, "a"), _write(ONE, "b")],
        ASKED if is_asked else None,
        None if fate is Fate.UNKNOWN else ENDED,
        fate,
    )


def _read(
    offset: int,
    value: str,
    *,
    at_s: float = ENDED,
    partition: Partition = ZERO,
    follows: bool = False,
) -> ReadRecord:
    return ReadRecord("reader", at_s, partition, offset, "k", value, follows)


def _names(history: History, committed: View, uncommitted: View | None = None) -> list[str]:
    history.committed = committed
    history.uncommitted = committed if uncommitted is None else uncommitted
    return [anomaly.name for anomaly in judge(history)]


BOTH = {"zero": ["a"], "one": ["b"]}


# ---------------------------------------------------------------- what fits


def test_a_history_in_which_every_promise_was_kept_is_no_anomaly() -> None:
    copies = [copy_of("a", "c#1/1"), copy_of("x", "c#1/1")]
    history = History(
        plain={"p": [_write(ZERO, "never arrived"), _write(ZERO, "x", 1)]},
        attempts=[
            _attempt(Fate.KEPT, _write(ZERO, "a", 0)),
            _attempt(Fate.GONE, _write(ZERO, "gone", 2), name="t#1/2"),
            _attempt(Fate.UNKNOWN, _write(ONE, "undone"), name="t#1/3"),
            _attempt(Fate.KEPT, *(_write(COPY, copy) for copy in copies), name="c#1/1"),
        ],
        instances=[Instance("t#1", "t", 1.0, 2.0), Instance("t#2", "t", 40.0, 41.0)],
        reads=[_read(0, "a", follows=True), _read(1, "x", follows=True)],
        ends=[
            ReaderEnd("w", 1.0, "read_committed", ZERO, 1),
            ReaderEnd("w", 2.0, "read_committed", ZERO, 3),
        ],
        stages=[STAGE],
        group_offsets={("copiers", ZERO): 2},
    )
    committed = _view(zero=["a", "x"], copy=copies)
    uncommitted = _view(zero=["a", "x", "gone"], copy=copies)
    assert _names(history, committed, uncommitted) == []


def test_a_transaction_of_unknown_outcome_may_be_there_as_a_whole() -> None:
    assert _names(History(attempts=[_attempt(Fate.UNKNOWN)]), _view(**BOTH)) == []


def test_a_transaction_of_unknown_outcome_may_be_absent_as_a_whole() -> None:
    assert _names(History(attempts=[_attempt(Fate.UNKNOWN)]), _view()) == []


# ---------------------------------------------------------------- aborted-read


def test_an_aborted_record_that_is_shown_is_an_aborted_read() -> None:
    history = History(attempts=[_attempt(Fate.GONE)])
    assert _names(history, _view(**BOTH)) == ["aborted-read"]


def test_an_aborted_record_that_a_reader_was_shown_is_an_aborted_read() -> None:
    history = History(attempts=[_attempt(Fate.GONE)], reads=[_read(0, "a")])
    history.attempts[0].commit_asked_s = ASKED  # a commit that failed, and then an abort
    assert _names(history, _view(), _view(**BOTH)) == ["aborted-read"]


def test_an_aborted_record_that_nobody_was_shown_is_none() -> None:
    history = History(attempts=[_attempt(Fate.GONE)])
    assert _names(history, _view(), _view(**BOTH)) == []


# ---------------------------------------------------------------- lost-write


def test_an_acknowledged_record_that_is_missing_is_a_lost_write() -> None:
    assert _names(History(plain={"p": [_write(ZERO, "x", 0)]}), _view()) == ["lost-write"]


def test_a_record_that_was_not_acknowledged_may_be_missing() -> None:
    assert _names(History(plain={"p": [_write(ZERO, "x")]}), _view()) == []


def test_a_committed_record_that_is_missing_is_a_lost_write() -> None:
    history = History(attempts=[_attempt(Fate.KEPT)])
    assert _names(history, _view(zero=["a"])) == ["lost-write"]


def test_a_record_that_a_reader_was_shown_and_that_is_missing_is_a_lost_write() -> None:
    history = History(plain={"p": [_write(ZERO, "x")]}, reads=[_read(0, "x")])
    assert _names(history, _view()) == ["lost-write"]


# ---------------------------------------------------------------- duplicate


def test_a_value_stored_twice_is_a_duplicate() -> None:
    history = History(plain={"p": [_write(ZERO, "x", 0)]})
    assert _names(history, _view(zero=["x", "x"])) == ["duplicate"]


def test_two_values_are_no_duplicate() -> None:
    history = History(plain={"p": [_write(ZERO, "x", 0), _write(ZERO, "y", 1)]})
    assert _names(history, _view(zero=["x", "y"])) == []


# ---------------------------------------------------------------- torn-transaction


def test_half_a_transaction_of_unknown_outcome_is_torn() -> None:
    history = History(attempts=[_attempt(Fate.UNKNOWN)])
    assert _names(history, _view(zero=["a"]), _view(**BOTH)) == ["torn-transaction"]


# ---------------------------------------------------------------- offset-split


def _copied(*copied: str, position: int = 2) -> History:
    copies = [_write(COPY, copy_of(value, "c#1/1")) for value in copied]
    return History(
        plain={"p": [_write(ZERO, "x"), _write(ZERO, "y")]},
        attempts=[_attempt(Fate.KEPT, *copies, name="c#1/1")],
        stages=[STAGE],
        group_offsets={("copiers", ZERO): position},
    )


def _views(*copied: str) -> View:
    return _view(zero=["x", "y"], copy=[copy_of(value, "c#1/1") for value in copied])


def test_offsets_ahead_of_the_output_are_split() -> None:
    assert _names(_copied("x"), _views("x")) == ["offset-split"]


def test_offsets_behind_the_output_are_split() -> None:
    history = _copied("x", "y", position=1)
    assert _names(history, _views("x", "y")) == ["group-stuck", "offset-split"]


def test_output_in_another_order_than_the_input_is_split() -> None:
    assert _names(_copied("y", "x"), _views("y", "x")) == ["offset-split"]


def test_offsets_that_fit_the_output_are_not_split() -> None:
    assert _names(_copied("x", "y"), _views("x", "y")) == []


def test_a_group_that_does_not_come_to_the_end_is_stuck() -> None:
    assert _names(_copied("x", position=1), _views("x")) == ["group-stuck"]


# ---------------------------------------------------------------- zombie-commit


def _taken_over(asked_s: float, ready_s: float) -> History:
    return History(
        attempts=[_attempt(Fate.KEPT)],
        instances=[Instance("t#1", "t", 1.0, 2.0), Instance("t#2", "t", asked_s, ready_s)],
    )


def test_a_commit_after_a_takeover_is_one_of_a_zombie() -> None:
    names = _names(_taken_over(11.0, 12.0), _view(**BOTH))
    assert names == ["aborted-read", "zombie-commit"]  # its records ought to be gone


def test_a_commit_during_a_takeover_is_none_of_a_zombie() -> None:
    assert _names(_taken_over(11.0, ASKED + 1), _view(**BOTH)) == []


def test_an_instance_that_learned_late_of_its_own_epoch_is_no_successor() -> None:
    """It was stopped between the broker's answer and its note of it, and was the older one."""
    assert _names(_taken_over(1.5, 12.0), _view(**BOTH)) == []


def test_a_commit_of_nothing_is_none_of_a_zombie() -> None:
    history = _taken_over(11.0, 12.0)
    history.attempts[0].writes.clear()
    assert _names(history, _view()) == []


# ---------------------------------------------------------------- late-end


def _late(forwarded_s: float, received_s: float = 5.0) -> LateEndTxn:
    return LateEndTxn("t", 7, 0, True, received_s, forwarded_s)


def test_a_late_end_that_commits_the_next_transaction_is_named() -> None:
    history = History(attempts=[_attempt(Fate.GONE)], late=[_late(BEGAN + 1)])
    assert _names(history, _view(zero=["a"]), _view(**BOTH)) == ["late-end"]


def test_a_late_end_that_aborts_half_of_the_next_transaction_is_named() -> None:
    history = History(attempts=[_attempt(Fate.KEPT)], late=[_late(BEGAN + 1)])
    assert _names(history, _view(one=["b"]), _view(**BOTH)) == ["late-end"]


def test_a_late_end_by_which_records_are_shown_too_early_is_named() -> None:
    history = History(
        attempts=[_attempt(Fate.KEPT)], late=[_late(BEGAN + 1)], reads=[_read(0, "a", at_s=12.0)]
    )
    assert _names(history, _view(**BOTH)) == ["late-end"]


def test_a_late_end_that_changes_nothing_is_none() -> None:
    history = History(attempts=[_attempt(Fate.KEPT)], late=[_late(BEGAN + 1)])
    assert _names(history, _view(**BOTH)) == []


def test_an_end_that_came_before_the_transaction_does_not_excuse_it() -> None:
    history = History(attempts=[_attempt(Fate.GONE)], late=[_late(BEGAN - 1)])
    assert _names(history, _view(**BOTH)) == ["aborted-read"]


# ---------------------------------------------------------------- inconsistent-offset


def test_a_reader_that_was_shown_another_record_at_an_offset_is_inconsistent() -> None:
    sent = [_write(ZERO, "x"), _write(ZERO, "y")]
    history = History(plain={"p": sent}, reads=[_read(0, "y")])
    assert _names(history, _view(zero=["x", "y"])) == ["inconsistent-offset"]


def test_readers_that_were_shown_the_same_at_an_offset_are_consistent() -> None:
    history = History(plain={"p": [_write(ZERO, "x", 0)]}, reads=[_read(0, "x"), _read(0, "x")])
    assert _names(history, _view(zero=["x"])) == []


def test_an_acknowledged_offset_that_holds_another_record_is_inconsistent() -> None:
    history = History(plain={"p": [_write(ZERO, "x", 1), _write(ZERO, "y")]})
    assert _names(history, _view(zero=["x", "y"])) == ["inconsistent-offset"]


def test_offsets_of_what_was_never_committed_may_be_used_again_after_a_power_failure() -> None:
    history = History(
        plain={"p": [_write(ZERO, "y")]},
        attempts=[_attempt(Fate.GONE, _write(ZERO, "x", 0))],
        power_losses=[25.0],
    )
    assert _names(history, _view(zero=["y"])) == []


# ---------------------------------------------------------------- precommitted-read


def test_a_record_shown_before_its_commit_was_asked_for_is_precommitted() -> None:
    history = History(attempts=[_attempt(Fate.KEPT)], reads=[_read(0, "a", at_s=ASKED - 1)])
    assert _names(history, _view(**BOTH)) == ["precommitted-read"]


def test_a_record_shown_while_its_commit_is_under_way_is_not() -> None:
    history = History(attempts=[_attempt(Fate.KEPT)], reads=[_read(0, "a", at_s=ASKED + 1)])
    assert _names(history, _view(**BOTH)) == []


def test_a_record_shown_and_then_undone_is_precommitted() -> None:
    history = History(attempts=[_attempt(Fate.UNKNOWN)], reads=[_read(0, "a")])
    assert _names(history, _view(), _view(**BOTH)) == ["precommitted-read"]


# ---------------------------------------------------------------- lso-regress, lso-stuck


def _ends(*offsets: int) -> list[ReaderEnd]:
    return [
        ReaderEnd("w", float(n), "read_committed", ZERO, offset) for n, offset in enumerate(offsets)
    ]


def test_an_end_that_moves_back_is_a_regress() -> None:
    assert _names(History(ends=_ends(3, 2)), _view()) == ["lso-regress"]


def test_an_end_that_stays_or_rises_is_none() -> None:
    assert _names(History(ends=_ends(3, 3, 4)), _view()) == []


def test_an_end_may_move_back_when_the_power_fails() -> None:
    assert _names(History(ends=_ends(3, 2, 3), power_losses=[0.5]), _view()) == []


def test_a_stable_offset_that_never_reaches_the_end_is_stuck() -> None:
    assert _names(History(stuck={ZERO: (1, 4)}), _view()) == ["lso-stuck"]


# ---------------------------------------------------------------- and what else may go wrong


def test_records_in_another_order_than_sent_are_reordered() -> None:
    history = History(plain={"p": [_write(ZERO, "x"), _write(ZERO, "y")]})
    assert _names(history, _view(zero=["y", "x"])) == ["reordered"]


def test_a_follower_that_was_not_shown_a_record_between_two_has_skipped_it() -> None:
    sent = [_write(ZERO, value) for value in "xyz"]
    history = History(
        plain={"p": sent}, reads=[_read(0, "x", follows=True), _read(2, "z", follows=True)]
    )
    assert _names(history, _view(zero=["x", "y", "z"])) == ["skipped-read"]


def test_a_reader_that_does_not_follow_may_skip() -> None:
    sent = [_write(ZERO, value) for value in "xyz"]
    history = History(plain={"p": sent}, reads=[_read(0, "x"), _read(2, "z")])
    assert _names(history, _view(zero=["x", "y", "z"])) == []


def test_a_follower_that_begins_anew_skips_nothing() -> None:
    sent = [_write(ZERO, value) for value in "xy"]
    history = History(
        plain={"p": sent},
        reads=[
            _read(0, "x", follows=True),
            _read(1, "y", follows=True),
            _read(0, "x", follows=True),
        ],
    )
    assert _names(history, _view(zero=["x", "y"])) == []


def test_a_record_that_nobody_wrote_is_a_phantom() -> None:
    assert _names(History(), _view(zero=["x"])) == ["phantom"]


def test_a_record_with_the_key_of_another_is_a_phantom() -> None:
    history = History(plain={"p": [SentRecord(ZERO, "another key", "x")]})
    assert _names(history, _view(zero=["x"])) == ["phantom"]


def test_a_record_under_read_committed_alone_is_a_phantom() -> None:
    history = History(plain={"p": [_write(ZERO, "x")]})
    assert _names(history, _view(zero=["x"]), _view()) == ["phantom"]
