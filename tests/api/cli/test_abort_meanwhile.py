"""`txn transactions abort` while its transaction ends: by the client, or by the broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import txn
from support.at_work import copy_at_work
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import Terminal, run_txn
from support.late_batch import let_hang
from txn.cluster import brokers, source


def test_an_abort_by_id_goes_on_where_its_timeout_is_no_longer_allowed(tmp_path: Path) -> None:
    """`explain` advised it, and it ended with INVALID_TRANSACTION_TIMEOUT."""
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-5")
        producer.begin_transaction()
        send(producer, "orders", [b"1"])
        copy_at_work(tmp_path / "data", tmp_path / "left")  # as a kill leaves it
    limits = {"transaction.max.timeout.ms": "10000"}
    with txn.Broker(tmp_path / "left", properties=limits) as broker:
        code, out, err = run_txn(*ABORT_PAY_5, broker.bootstrap_servers, "--yes")
        assert (code, err) == (0, "")
        assert "aborted. 'pay-5' now has producer" in out


class Meanwhile(Terminal):
    """Somebody who says yes late: something happens while the question stands."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__("y\n")
        self._happens = happens

    def readline(self, _limit: int = -1) -> str:
        self._happens()
        return super().readline()


@pytest.fixture
def client() -> Iterator[tuple[str, Producer]]:
    """A broker, and a client with an open transaction of 'pay-5' on orders-0."""
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-5")
        producer.begin_transaction()
        send(producer, "orders", [b"1"])
        yield broker.bootstrap_servers, producer


ABORT_PAY_5 = ("transactions", "abort", "--transactional-id", "pay-5", "--bootstrap")


def test_a_commit_while_an_abort_is_asked_about_is_told_and_fences_nobody(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fenced the producer, and said \"aborted\" of a committed transaction."""
    servers, producer = client
    monkeypatch.setattr("sys.stdin", Meanwhile(lambda: producer.commit_transaction(WAIT_S)))
    code, out, err = run_txn(*ABORT_PAY_5, servers)
    assert (code, "aborted." in out) == (1, False)
    assert err == (
        "Abort it? [y/N]: txn: nothing was aborted. 'pay-5' has no open transaction: "
        "CompleteCommit: it ended after it was shown\n"
    )
    commit_values(producer, "orders", [b"2"])
    assert read_all(servers, "orders") == [b"1", b"2"]


def test_the_next_transaction_is_not_aborted_in_place_of_the_one_that_was_shown(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, producer = client

    def goes_on() -> None:
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        send(producer, "orders", [b"2"])

    monkeypatch.setattr("sys.stdin", Meanwhile(goes_on))
    code, _, err = run_txn(*ABORT_PAY_5, servers)
    assert code == 1
    told = (
        "Abort it? [y/N]: txn: nothing was aborted: the transaction ended after it was shown, and"
    )
    assert err.startswith(told)
    assert "That is the open transaction of 'pay-5' (producer " in err
    producer.commit_transaction(WAIT_S)
    assert read_all(servers, "orders") == [b"1", b"2"]


def test_a_commit_that_overtakes_the_abort_is_not_told_as_aborted(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, producer = client
    asked: list[str] = []
    coordinator = source.ClusterSource.coordinator

    def overtaken(self: source.ClusterSource, name: str) -> brokers.RemoteBroker:
        asked.append(name)
        if len(asked) == 3:  # the plan, the second plan, the abort
            producer.commit_transaction(WAIT_S)
        return coordinator(self, name)

    monkeypatch.setattr(source.ClusterSource, "coordinator", overtaken)
    code, out, err = run_txn(*ABORT_PAY_5, servers, "--yes")
    assert (code, "aborted." in out) == (1, False)
    assert err.startswith("txn: the transaction was committed before the abort came. 'pay-5' now")
    assert read_all(servers, "orders") == [b"1"]


def test_what_hung_and_ended_while_it_is_asked_about_gets_no_second_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        offset = let_hang(broker, "orders", 1_000, b"late")
        place = ("--topic-partition", "orders-0", "--start-offset", offset)
        end = ("transactions", "abort", *place, "--bootstrap", servers)
        monkeypatch.setattr("sys.stdin", Meanwhile(lambda: run_txn(*end, "--yes")))
        code, _, err = run_txn(*end)
        assert (code, "no transaction on orders-0 is open since offset" in err) == (1, True)
        assert ends(servers, "orders") == (offset + 2, offset + 2)
