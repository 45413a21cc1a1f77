"""The store of all transactional ids, encoded or decoded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.coordinator.transaction.records import (
    TxnRecord,
    decode_record,
    decode_value,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import AT_REST, Txn, TxnState
from txn.coordinator.transaction.store import TxnStore
from txn.coordinator.transaction.timeouts import is_expired

RESTING = Txn(
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TxnState.COMPLETE_COMMIT,
    partitions=frozenset(),
    start_ms=900,
    updated_ms=1_000,
    client_version=2,
)
OPEN = RESTING._replace(state=TxnState.ONGOING, partitions=frozenset({("t", 0)}))

STATES = [state for state in TxnState if state <= TxnState.COMPLETE_ABORT]
MORE: list[dict[str, Any]] = [
    {},
    {"previous_producer_id": 3},
    {"last_producer_epoch": 4, "client_version": 0},
    {"start_ms": -1, "producer_id": 2**40},
]
TXNS = [
    RESTING._replace(state=state, updated_ms=updated_ms, **more)
    for state in STATES
    for updated_ms in range(5)
    for more in MORE
]


def stored(transactional_id: str, value: bytes | None) -> TxnRecord:
    """A record as a start reads it."""
    record = decode_record(encode_key(transactional_id), value)
    assert record is not None
    return record


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, *TXNS])), max_size=12),
    st.integers(0, 6),
)
def test_P8_who_sleeps_and_who_does_not_makes_no_difference(
    history: list[tuple[str, Txn | None]], idle_before_ms: int
) -> None:
    known: dict[str, Txn] = {}
    applied, loaded = TxnStore(), TxnStore()
    for transactional_id, txn in history:
        applied.replay((transactional_id, txn))
        loaded.replay(stored(transactional_id, None if txn is None else encode_value(txn)))
        if txn is None:
            known.pop(transactional_id, None)
        else:
            known[transactional_id] = txn
    applied.compact_idle(idle_before_ms)
    for transactions in (applied, loaded):
        assert dict(transactions.items()) == known
        assert {i: transactions.get(i) for i in known} == known
        assert len(transactions) == len(known)
        for now_ms in (2, 5):
            assert sorted(transactions.expired(now_ms, 1)) == sorted(
                i for i, txn in known.items() if is_expired(txn, now_ms, 1)
            )
        still_decoded = {i for i, _ in transactions.decoded()}
        assert still_decoded >= {i for i, txn in known.items() if txn.state not in AT_REST}


def test_what_is_open_is_awake() -> None:
    transactions = TxnStore()
    transactions.replay(stored("open", encode_value(OPEN)))
    transactions.replay(stored("resting", encode_value(RESTING)))
    assert transactions.decoded() == [("open", OPEN)]


def test_an_id_wakes_up_with_its_next_record() -> None:
    transactions = TxnStore()
    transactions.replay(stored("pay", encode_value(RESTING)))
    transactions.replay(("pay", OPEN))
    assert transactions.decoded() == [("pay", OPEN)]
    assert len(transactions) == 1


def test_an_id_rests_for_a_while_before_it_sleeps() -> None:
    transactions = TxnStore()
    transactions.replay(("pay", RESTING))
    transactions.compact_idle(RESTING.updated_ms)
    assert transactions.decoded() == [("pay", RESTING)]
    transactions.compact_idle(RESTING.updated_ms + 1)
    assert transactions.decoded() == []


@pytest.mark.parametrize("state", sorted(AT_REST))
def test_P9_a_damaged_record_of_an_id_at_rest_is_found_when_it_is_loaded(state: TxnState) -> None:
    value = encode_value(RESTING._replace(state=state))
    for damaged in (value[:-1], value + b"\0", value[:-5] + b"\xff" * 5, value[:20]):
        with pytest.raises(ValueError, match=r"."):
            decode_value(damaged)
        transactions = TxnStore()
        with pytest.raises(ValueError, match=r"."):
            transactions.replay(stored("pay", damaged))
        assert len(transactions) == 0


def test_an_open_transaction_is_found_by_its_producer_and_partition() -> None:
    """An operator's marker looked through all ids, 20,000 of them for each partition."""
    store = TxnStore()
    other = OPEN._replace(producer_id=8)
    store.replay(("a", OPEN))
    store.replay(("b", other))
    assert [store.owner_of(("t", 0), producer_id) for producer_id in (7, 8, 9)] == ["a", "b", None]
    assert store.owner_of(("t", 1), 7) is None
    store.replay(("a", RESTING))
    store.replay(("b", None))
    assert [store.owner_of(("t", 0), producer_id) for producer_id in (7, 8)] == [None, None]


def test_an_open_transaction_is_found_under_the_producer_id_it_has_now() -> None:
    store = TxnStore()
    store.replay(("a", OPEN))
    store.replay(("a", OPEN._replace(producer_id=9)))
    assert store.owner_of(("t", 0), 7) is None
    assert store.owner_of(("t", 0), 9) == "a"
    store.replay(stored("a", encode_value(RESTING._replace(producer_id=9))))
    assert store.owner_of(("t", 0), 9) is None
