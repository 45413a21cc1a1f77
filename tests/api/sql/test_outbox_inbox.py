"""`txn.sql.outbox` and `txn.sql.Inbox`: the same result on clusters without two-phase commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import txn
import txn.sql
from txn.client.engine import EngineName
from txn.sql import decisions
from txn.testing import TestBroker

Connect = Callable[[], Any]


def values(broker: TestBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.records("orders")]


def rows(connect: Connect) -> list[str]:
    return [row[0] for row in connect().execute("SELECT text FROM orders ORDER BY id").fetchall()]


def place(connection: Any, *numbers: int) -> None:
    """Orders with their records, in a transaction of the program's own."""
    connection.execute("BEGIN")
    for number in numbers:
        connection.execute(f"INSERT INTO orders VALUES ({number}, 'order {number}')")
        txn.sql.outbox.add(connection, "orders", f"order {number}", key=str(number))
    connection.commit()


@contextmanager
def relay(
    broker: TestBroker, connect: Connect, engine: EngineName = "confluent-kafka"
) -> Iterator[txn.sql.outbox.Relay]:
    servers = broker.bootstrap_servers
    with (
        txn.Producer(
            bootstrap_servers=servers, transactional_id="relay", engine=engine
        ) as producer,
        txn.Consumer(bootstrap_servers=servers, group_id="relay") as memory,
    ):
        yield txn.sql.outbox.Relay(producer, connect(), memory, position=("orders", 0))


@pytest.fixture
def shop(connect: Connect) -> Any:
    connection = connect()
    txn.sql.outbox.create(connection)
    return connection


def left(shop: Any) -> int:
    count: int = shop.execute("SELECT count(*) FROM txn_outbox").fetchone()[0]
    shop.rollback() if hasattr(shop, "info") else None
    return count


@pytest.mark.parametrize("engine", ["confluent-kafka", "native"])
def test_rows_of_the_outbox_become_records_once(
    broker: TestBroker, shop: Any, connect: Connect, engine: EngineName
) -> None:
    place(shop, 1, 2, 3)
    with relay(broker, connect, engine) as first:
        assert (first.run_once(limit=2), first.run_once(), first.run_once()) == (2, 1, 0)
    place(shop, 4)
    with relay(broker, connect, engine) as second:
        assert second.run_once() == 1
    assert values(broker) == rows(connect)
    assert left(shop) == 0


def test_a_relay_stopped_before_it_deletes_publishes_nothing_twice(
    broker: TestBroker, shop: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(shop, 1, 2)
    in_transaction = decisions.in_transaction
    calls: list[object] = []

    def only_claim(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise InterruptedError("killed")
        return in_transaction(*arguments)

    with relay(broker, connect) as first, monkeypatch.context() as patch:
        patch.setattr(txn.sql.outbox, "in_transaction", only_claim)
        with pytest.raises(InterruptedError):
            first.run_once()
    assert left(shop) == 2
    place(shop, 3)
    with relay(broker, connect) as second:
        second.run_once()
    assert values(broker) == ["order 1", "order 2", "order 3"]


def test_a_relay_stopped_after_its_claim_loses_nothing(
    broker: TestBroker, shop: Any, connect: Connect
) -> None:
    place(shop, 1, 2)
    broker.refuse_next_append("orders")
    with relay(broker, connect) as first, pytest.raises(txn.TxnError, match="INVALID_RECORD"):
        first.run_once()
    with relay(broker, connect) as second:
        assert second.run_once() == 2
    assert values(broker) == ["order 1", "order 2"]


def test_a_relay_thought_dead_can_claim_nothing(
    broker: TestBroker, shop: Any, connect: Connect
) -> None:
    with relay(broker, connect) as old, relay(broker, connect) as new:
        place(shop, 1)
        with pytest.raises(txn.FencedError):
            old.run_once()
        assert new.run_once() == 1
    assert values(broker) == ["order 1"]


def test_a_row_that_is_committed_late_is_not_passed_over(
    broker: TestBroker, shop: Any, connect: Connect
) -> None:
    if not hasattr(shop, "info"):
        pytest.skip("only PostgreSQL has two writers at a time")
    late = connect()
    txn.sql.outbox.add(late, "orders", "late")  # it has the first id, and is not committed
    place(shop, 1)
    with relay(broker, connect) as running:
        assert running.run_once() == 1
        late.commit()
        assert running.run_once() == 1
    assert values(broker) == ["order 1", "late"]


@contextmanager
def inbox(
    broker: TestBroker, connection: Any, group: str = "inbox"
) -> Iterator[tuple[txn.sql.Inbox, txn.Consumer]]:
    with txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        yield txn.sql.Inbox(consumer, connection, ["in"]), consumer


def read(box: txn.sql.Inbox, connection: Any, limit: int, *, fails: bool = False) -> int:
    with box.batch(limit, timeout=20) as messages:
        for message in messages:
            number = int(message.value() or b"")
            connection.execute(f"INSERT INTO orders VALUES ({number}, 'order {number}')")
        if fails:
            raise ZeroDivisionError
    return len(messages)


def test_records_become_rows_once_over_errors_and_starts(
    broker: TestBroker, connect: Connect
) -> None:
    broker.create_topic("in")
    broker.produce("in", "1", "2", "3", "4")
    connection = connect()
    with inbox(broker, connection) as (box, _):
        with pytest.raises(ZeroDivisionError):
            read(box, connection, 2, fails=True)
        assert read(box, connection, 2) == 2
        with pytest.raises(ZeroDivisionError):
            read(box, connection, 1, fails=True)
        assert read(box, connection, 1) == 1
    with inbox(broker, connection) as (box, _):
        assert read(box, connection, 1) == 1
    assert rows(connect) == [f"order {number}" for number in (1, 2, 3, 4)]


def test_a_consumer_whose_records_another_has_read_is_refused(
    broker: TestBroker, connect: Connect
) -> None:
    broker.create_topic("in")
    broker.produce("in", "1")
    connection, other = connect(), connect()
    with inbox(broker, connection) as (box, consumer):
        # The other one gets the partition and reads it, before this one has noticed.
        consume = consumer.consume

        def consume_late(limit: int, timeout: float) -> Any:
            messages = consume(limit, timeout)
            other.execute("INSERT INTO txn_offsets VALUES ('inbox', 'in', 0, 1)")
            other.execute("INSERT INTO orders VALUES (7, 'of the other')")
            other.commit()
            return messages

        consumer.consume = consume_late  # type: ignore[method-assign,assignment]
        with pytest.raises(txn.AbortableError, match="elsewhere"):
            read(box, connection, 1)
    assert rows(connect) == ["of the other"]
