"""Many clients against a broker that is killed again and again; and the judge, judged."""

from pathlib import Path

import pytest

from black_box import (
    COPIES,
    PARTITIONS,
    SOURCE,
    Attempt,
    History,
    Outcome,
    View,
    Write,
    copy_of,
    judge,
    run_black_box,
)

pytestmark = pytest.mark.crash

RUN_S = 10.0


@pytest.mark.parametrize(("seed", "durability"), [(1, "process"), (2, "commit")])
def test_P1_P3_P4_P5_P6_P7_hold_whatever_clients_do_while_the_broker_is_killed(
    tmp_path: Path, seed: int, durability: str
) -> None:
    outcomes, anomalies = run_black_box(tmp_path / "data", RUN_S, seed, durability)

    assert anomalies == []
    assert outcomes[Outcome.KEPT] > 0
    assert outcomes[Outcome.GONE] > 0


# ---------------------------------------------------------------- the judge finds every anomaly

ZERO, ONE = (SOURCE, 0), (SOURCE, 1)


def _view(**found: list[bytes]) -> View:
    """A view of `SOURCE` and `COPIES`: partitions `s0`, `s1`, … and `c0`, `c1`, …"""
    names = {f"{topic[0]}{index}": (topic, index) for topic, index in _everything()}
    view: dict[tuple[str, int], list[tuple[int, bytes]]] = {p: [] for p in _everything()}
    return view | {names[name]: list(enumerate(values)) for name, values in found.items()}


def _everything() -> list[tuple[str, int]]:
    return [(topic, index) for topic in (SOURCE, COPIES) for index in range(PARTITIONS)]


def _attempt(outcome: Outcome) -> Attempt:
    return Attempt("t/1", [Write(ZERO, b"a"), Write(ONE, b"b")], outcome)


def _kinds(history: History, committed: View, uncommitted: View | None = None) -> list[str]:
    found = judge(history, committed, committed if uncommitted is None else uncommitted)
    return [line.partition(":")[0] for line in found]


def test_a_history_that_fits_is_no_anomaly() -> None:
    history = History(
        plain={"p": [Write(ZERO, b"x", is_acknowledged=True), Write(ZERO, b"lost")]},
        attempts=[
            _attempt(Outcome.KEPT),
            Attempt("t/2", [Write(ZERO, b"gone")], Outcome.GONE),
            Attempt("c/1", [Write((COPIES, 0), copy_of(b"a", "c/1"))], Outcome.KEPT),
        ],
        followed={ZERO: [(0, b"a")]},
        group_offsets={0: 1, 1: 0},
    )
    copies = [copy_of(b"a", "c/1")]
    committed = _view(s0=[b"a", b"x"], s1=[b"b"], c0=copies)
    uncommitted = _view(s0=[b"a", b"x", b"gone"], s1=[b"b"], c0=copies)
    assert judge(history, committed, uncommitted) == []


def test_an_acknowledged_record_that_is_missing_is_a_lost_write() -> None:
    history = History(plain={"p": [Write(ZERO, b"x", is_acknowledged=True)]})
    assert _kinds(history, _view()) == ["lost-write"]


def test_a_committed_record_that_is_missing_is_a_lost_write() -> None:
    assert _kinds(History(attempts=[_attempt(Outcome.KEPT)]), _view(s0=[b"a"])) == ["lost-write"]


def test_a_value_stored_twice_is_a_duplicate() -> None:
    history = History(plain={"p": [Write(ZERO, b"x", is_acknowledged=True)]})
    assert _kinds(history, _view(s0=[b"x", b"x"])) == ["duplicate"]


def test_records_in_another_order_than_sent_are_reordered() -> None:
    history = History(plain={"p": [Write(ZERO, b"x"), Write(ZERO, b"y")]})
    assert _kinds(history, _view(s0=[b"y", b"x"])) == ["reordered"]


def test_an_aborted_record_that_is_shown_is_an_aborted_read() -> None:
    shown = _view(s0=[b"a"], s1=[b"b"])
    assert _kinds(History(attempts=[_attempt(Outcome.GONE)]), shown) == ["aborted-read"]


def test_half_a_transaction_is_torn() -> None:
    history = History(attempts=[_attempt(Outcome.UNKNOWN)])
    whole = _view(s0=[b"a"], s1=[b"b"])
    assert _kinds(history, _view(s0=[b"a"]), whole) == ["torn-transaction"]


def test_a_record_that_nobody_wrote_is_a_phantom() -> None:
    assert _kinds(History(), _view(s0=[b"x"])) == ["phantom"]


def test_a_record_under_read_committed_alone_is_a_phantom() -> None:
    history = History(plain={"p": [Write(ZERO, b"x")]})
    assert _kinds(history, _view(s0=[b"x"]), _view()) == ["phantom"]


def test_a_follower_that_saw_something_else_is_an_unstable_read() -> None:
    history = History(plain={"p": [Write(ZERO, b"x")]}, followed={ZERO: [(0, b"y")]})
    assert _kinds(history, _view(s0=[b"x"])) == ["unstable-read"]


def test_a_follower_that_saw_more_is_an_unstable_read() -> None:
    assert _kinds(History(followed={ZERO: [(0, b"y")]}), _view()) == ["unstable-read"]


@pytest.mark.parametrize("position", [0, 2])
def test_offsets_that_do_not_fit_the_output_are_split(position: int) -> None:
    copy = copy_of(b"x", "c/1")
    history = History(
        plain={"p": [Write(ZERO, b"x"), Write(ZERO, b"y")]},
        attempts=[Attempt("c/1", [Write((COPIES, 0), copy)], Outcome.KEPT)],
        group_offsets={0: position},
    )
    assert _kinds(history, _view(s0=[b"x", b"y"], c0=[copy])) == ["offset-split"]
