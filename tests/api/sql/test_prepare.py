"""`prepare` and `complete_transaction` (KIP-939): another system decides how a transaction ends."""

from collections.abc import Callable

import pytest

import txn
from txn.testing import TestBroker

Open = Callable[[], txn.Producer]


def values(broker: TestBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("orders")]


def leave_prepared(producer: txn.Producer, value: str = "7 apples") -> txn.PreparedTxnState:
    with producer.transaction() as t:
        t.produce("orders", value)
        state = t.prepare()
        t.leave_prepared()
    producer.close()
    return state


def test_a_block_that_prepares_commits_at_its_end(broker: TestBroker, open_producer: Open) -> None:
    with open_producer() as producer, producer.transaction() as t:
        t.produce("orders", "7 apples")
        t.prepare()
        assert values(broker) == []
    assert values(broker) == [b"7 apples"]


def test_each_transaction_has_a_state_of_its_own(open_producer: Open) -> None:
    states = set()
    producer = open_producer()
    for _ in range(3):
        with producer.transaction() as t:
            t.produce("orders", "7 apples")
            states.add(str(t.prepare()))
    assert len(states) == 3


def test_a_kept_transaction_commits_if_its_state_was_decided(
    broker: TestBroker, open_producer: Open
) -> None:
    state = leave_prepared(open_producer())
    broker.clock.advance(3600)  # beyond every transaction.timeout.ms
    after = open_producer()
    assert after.kept_transaction == state
    assert after.complete_transaction(txn.PreparedTxnState.parse(str(state)))
    assert values(broker) == [b"7 apples"]


@pytest.mark.parametrize("decided", ["", "0:0"])
def test_a_kept_transaction_aborts_if_another_state_was_decided(
    broker: TestBroker, open_producer: Open, decided: str
) -> None:
    first = open_producer()
    with first.transaction() as t:  # its state is 0:0 or another one that is over
        t.produce("orders", "first")
    leave_prepared(first)
    after = open_producer()
    assert not after.complete_transaction(txn.PreparedTxnState.parse(decided))
    assert after.kept_transaction is None
    assert values(broker) == [b"first"]


def test_a_kept_transaction_stays_over_starts_that_do_not_complete_it(
    broker: TestBroker, open_producer: Open
) -> None:
    state = leave_prepared(open_producer())
    open_producer().close()
    broker.restart()
    assert open_producer().complete_transaction(state)
    assert values(broker) == [b"7 apples"]


def test_a_completed_producer_runs_transactions(broker: TestBroker, open_producer: Open) -> None:
    state = leave_prepared(open_producer())
    producer = open_producer()
    with pytest.raises(txn.RejectedError, match="complete_transaction"), producer.transaction():
        pass
    producer.complete_transaction(state)
    with producer.transaction() as t:
        t.produce("orders", "3 pears")
    assert values(broker) == [b"7 apples", b"3 pears"]


def test_a_prepared_transaction_takes_no_more_records(
    broker: TestBroker, open_producer: Open
) -> None:
    with (
        pytest.raises(txn.RejectedError, match="is prepared"),
        open_producer().transaction() as t,
    ):
        t.produce("orders", "7 apples")
        t.prepare()
        t.produce("orders", "3 pears")
    assert values(broker) == []


def test_an_error_after_prepare_aborts(broker: TestBroker, open_producer: Open) -> None:
    producer = open_producer()
    with pytest.raises(ZeroDivisionError), producer.transaction() as t:
        t.produce("orders", "7 apples")
        t.prepare()
        raise ZeroDivisionError
    with producer.transaction() as t:
        t.produce("orders", "3 pears")
    assert values(broker) == [b"3 pears"]


def test_an_empty_transaction_has_the_empty_state(open_producer: Open) -> None:
    with open_producer().transaction() as t:
        state = t.prepare()
    assert (str(state), state.has_transaction) == ("", False)


def test_a_closed_producer_leaves_what_is_prepared(broker: TestBroker, open_producer: Open) -> None:
    producer = open_producer()
    with producer.transaction() as t:
        t.produce("orders", "7 apples")
        state = t.prepare()
        producer.close()
    assert open_producer().complete_transaction(state)
    assert values(broker) == [b"7 apples"]


def test_the_confluent_engine_is_refused(broker: TestBroker) -> None:
    with pytest.raises(txn.ConfigError, match="engine='native'"):
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="x",
            two_phase_commit=True,
            engine="confluent-kafka",
        )


def test_a_producer_without_an_id_is_refused(broker: TestBroker) -> None:
    with pytest.raises(txn.ConfigError, match="no transactional id"):
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, engine="native", two_phase_commit=True
        )


def test_a_cluster_that_does_not_allow_it_says_what_to_set(txn_broker: TestBroker) -> None:
    with pytest.raises(txn.RejectedError, match=r"transaction\.two\.phase\.commit\.enable=true"):
        txn.Producer(
            bootstrap_servers=txn_broker.bootstrap_servers,
            transactional_id="shop",
            engine="native",
            two_phase_commit=True,
        )


def test_an_ordinary_producer_prepares_nothing(broker: TestBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "other"}
    with (
        txn.Producer(settings, engine="native") as producer,
        pytest.raises(txn.ConfigError, match="two_phase_commit=True"),
        producer.transaction() as t,
    ):
        t.prepare()


@pytest.mark.parametrize("text", ["7", "7:", ":3", "7:-1", "a:b"])
def test_a_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no prepared transaction"):
        txn.PreparedTxnState.parse(text)
