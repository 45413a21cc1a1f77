"""A table is the same on txn's broker and on Apache Kafka."""

from collections.abc import Callable
from pathlib import Path

import pytest

from api.table.programs import produce, program, read
from support.clients import create_topic


def test_a_table_keeps_commits_and_forgets_aborts(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    orders, totals, name = unique("orders"), unique("totals"), unique("adder")
    create_topic(bootstrap, orders, partitions=2)
    create_topic(bootstrap, totals, partitions=2, cleanup_policy="compact")
    produce(bootstrap, orders, ("ann", 7), ("ben", 3))
    with program(bootstrap, orders, totals, name=name, store=tmp_path / "totals.db") as adder:
        with pytest.raises(ZeroDivisionError):
            adder.run_block(2, fault=ZeroDivisionError())
        assert read(bootstrap, totals) == {}
        assert adder.run_block(2) == {"ann": 7, "ben": 3}
        assert read(bootstrap, totals) == {"ann": 7, "ben": 3}
    produce(bootstrap, orders, ("ann", 1))
    with program(bootstrap, orders, totals, name=name, store=tmp_path / "totals.db") as adder:
        assert adder.run_block(1) == {"ann": 8, "ben": 3}
        assert adder.table.rows_read == 0
