"""Rows of a table are kept with the transaction that wrote them, and forgotten with it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import txn
from api.table.programs import Program, produce, program, read, table_on
from support.clients import create_topic, read_messages
from txn.client.engine import EngineName
from txn.errors import ConfigError, RejectedError

Unique = Callable[[str], str]


@pytest.mark.parametrize("engine", ["confluent-kafka", "native"])
def test_a_commit_keeps_the_rows_and_shows_them_to_readers(
    servers: str, orders: str, totals: str, unique: Unique, engine: EngineName
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3), ("ann", 1))
    with program(servers, orders, totals, name=unique("adder"), engine=engine) as adder:
        assert adder.run_block(3) == {"ann": 8, "ben": 3}
        assert adder.table.get("ann") == 8
        assert read(servers, totals) == {"ann": 8, "ben": 3}


@pytest.mark.parametrize("engine", ["confluent-kafka", "native"])
def test_an_abort_forgets_the_rows_and_the_block_runs_again(
    servers: str, orders: str, totals: str, unique: Unique, engine: EngineName
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with program(servers, orders, totals, name=unique("adder"), engine=engine) as adder:
        with pytest.raises(ZeroDivisionError):
            adder.run_block(2, fault=ZeroDivisionError())
        assert (adder.table.get("ann"), read(servers, totals)) == (None, {})
        assert adder.run_block(2) == {"ann": 7, "ben": 3}


def test_an_abort_brings_back_what_was_there_before(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ann", 1))
    with program(servers, orders, totals, name=unique("adder")) as adder:
        adder.run_block(1)
        with pytest.raises(ZeroDivisionError):
            adder.run_block(1, fault=ZeroDivisionError())
        assert adder.table.get("ann") == 7
        assert adder.run_block(1) == {"ann": 8}


def test_a_row_is_deleted_by_a_tombstone_in_the_transaction(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with program(servers, orders, totals, name=unique("adder")) as adder:
        adder.run_block(2)
        produce(servers, orders, ("ann", 1))
        with adder.producer.transaction(adder.consumer) as t:
            rows = adder.table.within(t)
            assert [record.key() for record in adder.take(1)] == [b"ann"]
            del rows["ann"]
            assert (dict(rows), len(rows), "ann" in rows) == ({"ben": 3}, 1, False)
            with pytest.raises(KeyError):
                del rows["ann"]
        assert read(servers, totals) == {"ben": 3}
        stored = [(m.key(), m.value()) for m in read_messages(servers, totals)]
        assert [value for key, value in stored if key == b"ann"] == [b"7", None]


def test_a_key_is_in_the_partition_that_java_gives_it(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    """The records of the input went there by librdkafka's murmur2, so all keys are owned."""
    names = [(f"name-{number}" * (number % 5), number) for number in range(1, 60)]
    produce(servers, orders, *names)
    with program(servers, orders, totals, name=unique("adder")) as adder:
        adder.run_block(len(names))
    put = {(m.key(), m.partition()) for m in read_messages(servers, orders)}
    assert {(m.key(), m.partition()) for m in read_messages(servers, totals)} == put


def test_the_mapping_is_over_with_its_block(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7))
    with program(servers, orders, totals, name=unique("adder")) as adder:
        with adder.producer.transaction(adder.consumer) as t:
            rows = adder.table.within(t)
            adder.take(1)
            assert adder.table.within(t).get("ann") is None
            with pytest.raises(RejectedError, match="ask the mapping of `within`"):
                adder.table.get("ann")
        with pytest.raises(RejectedError, match="is over"):
            rows["ann"] = 7
        with pytest.raises(RejectedError, match="the transaction is over"):
            adder.table.within(t)


def test_a_key_of_a_partition_of_another_member_is_refused(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id=unique("adder")) as producer,
        txn.Consumer(bootstrap_servers=servers, group_id=unique("alone")) as consumer,
        table_on(servers, totals) as table,
    ):
        table.assign(consumer, [TopicPartition(orders, 0, 0)])
        alone = Program(producer, consumer, table)
        with producer.transaction(consumer) as t:
            rows = table.within(t)
            name = alone.take(1)[0].key().decode()
            other = {"ann": "ben", "ben": "ann"}[name]
            rows[name] = 1
            with pytest.raises(RejectedError, match=r"partition 1 .* It owns: 0"):
                rows[other] = 1
        assert read(servers, totals) == {name: 1}


def test_an_input_with_other_partitions_is_refused(
    servers: str, totals: str, unique: Unique
) -> None:
    create_topic(servers, unique("wide"), partitions=3)
    with (
        txn.Consumer(bootstrap_servers=servers, group_id="any") as consumer,
        table_on(servers, totals) as table,
        pytest.raises(ConfigError, match=r"has 3 partitions .* has 2.*Create the topic .* 3"),
    ):
        table.subscribe(consumer, [unique("wide")])


def test_a_topic_that_is_not_compacted_is_refused(
    servers: str, orders: str, unique: Unique
) -> None:
    create_topic(servers, unique("plain"), partitions=2)
    with (
        txn.Consumer(bootstrap_servers=servers, group_id="any") as consumer,
        table_on(servers, unique("plain")) as table,
        pytest.raises(ConfigError, match=r"cleanup\.policy=delete.*txn configs"),
    ):
        table.subscribe(consumer, [orders])


def test_a_value_that_its_serde_does_not_make_bytes_is_refused(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7))
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id=unique("adder")) as producer,
        txn.Consumer(
            bootstrap_servers=servers, group_id=unique("raw"), auto_offset_reset="earliest"
        ) as consumer,
        txn.Table(totals, bootstrap_servers=servers) as table,
    ):
        table.subscribe(consumer, [orders])
        with producer.transaction(consumer) as t:
            rows = table.within(t)
            (record,) = Program(producer, consumer, table).take(1)
            rows[record.key()] = record.value()
            with pytest.raises(RejectedError, match="returns str"):
                rows[record.key()] = "text"
        assert table.get(b"ann") == b"7"


def test_a_store_of_another_process_or_program_is_refused(
    servers: str, orders: str, totals: str, unique: Unique, tmp_path: Path
) -> None:
    path = tmp_path / "totals.db"
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE mine (x)").connection.close()
    with program(servers, orders, totals, name=unique("adder"), store=path):
        with pytest.raises(txn.DirectoryError, match="in use by another table"):
            table_on(servers, totals, store=path).reader()
        with pytest.raises(txn.DirectoryError, match="of another program"):
            table_on(servers, totals, store=other).reader()
    with table_on(servers, totals, store=path).reader() as rows:
        assert dict(rows) == {}
