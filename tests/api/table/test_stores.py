"""A file of SQLite keeps rows over restarts, and a table is built again where it must be."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import txn
from api.table.programs import produce, program, table_on
from support.clients import WAIT_S, create_topic, plain_producer

Unique = Callable[[str], str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "totals.db"


def test_a_restart_reads_only_the_rest(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    produce(servers, orders, *[("ann", 1)] * 50, *[("ben", 1)] * 50)
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        adder.run_block(100)
    produce(servers, orders, ("ann", 1), ("ben", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        assert adder.run_block(2) == {"ann": 51, "ben": 51}
        assert adder.table.rows_read == 0


def test_a_table_in_memory_reads_the_topic_after_a_restart(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 1), ("ben", 1))
    with program(servers, orders, totals, name=unique("adder")) as adder:
        adder.run_block(2)
    produce(servers, orders, ("ann", 1), ("ben", 1))
    with program(servers, orders, totals, name=unique("adder")) as adder:
        assert adder.run_block(2) == {"ann": 2, "ben": 2}
        assert adder.table.rows_read == 2


def test_what_others_wrote_while_the_file_was_away_is_read(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    produce(servers, orders, ("ann", 1), ("ben", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        adder.run_block(2)
    produce(servers, orders, ("ann", 5), ("ben", 5))
    with program(servers, orders, totals, name=unique("adder")) as elsewhere:
        elsewhere.run_block(2)
    produce(servers, orders, ("ann", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        assert adder.run_block(1) == {"ann": 7, "ben": 6}
        assert adder.table.rows_read == 2


def test_a_file_whose_rows_were_not_settled_is_right_after_a_restart(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    """As after a kill: the topic has a transaction that the file does not have."""
    produce(servers, orders, ("ann", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        adder.run_block(1)
        adder.table.copy.store.close()  # nothing can be kept any more
        with pytest.raises(txn.StorageError, match="refused a change"):
            adder.table.close()
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        produce(servers, orders, ("ann", 1))
        assert adder.run_block(1) == {"ann": 2}


def test_a_topic_that_was_created_anew_is_read_from_its_start(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    produce(servers, orders, ("ann", 1), ("ben", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        adder.run_block(2)
    with txn.admin.connect(servers) as cluster:
        cluster.topics.delete(totals)
    create_topic(servers, totals, partitions=2, cleanup_policy="compact")
    other = plain_producer(servers, partitioner="murmur2_random")
    for number in range(9):  # so that the old place lies within the log
        other.produce(totals, b"5", f"new-{number}")
    assert other.flush(WAIT_S) == 0
    produce(servers, orders, ("ann", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        assert adder.run_block(1) == {"ann": 1} | {f"new-{n}": 5 for n in range(9)}


def test_a_file_that_missed_deletions_for_long_is_built_again(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    """The cleaner may have removed the deletion of a row that the file still has."""
    produce(servers, orders, ("ann", 1))
    with program(servers, orders, totals, name=unique("adder"), store=path) as adder:
        adder.run_block(1)
    with sqlite3.connect(path) as file:
        file.execute("INSERT INTO rows SELECT partition, x'6162', value FROM rows")
        file.execute("UPDATE places SET current_ms = current_ms - 86400000")
    file.close()
    with table_on(servers, totals, store=path).reader() as rows:
        assert dict(rows) == {"ann": 1}


def test_a_file_of_another_table_is_refused(
    servers: str, orders: str, totals: str, unique: Unique, path: Path
) -> None:
    create_topic(servers, unique("others"), partitions=2, cleanup_policy="compact")
    with table_on(servers, totals, store=path).reader():
        pass
    with pytest.raises(txn.ConfigError, match=f"keeps the table '{totals}'"):
        table_on(servers, unique("others"), store=path).reader()
