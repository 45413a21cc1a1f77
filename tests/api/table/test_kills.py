"""A program with a table is killed at the steps of its transaction, and its totals are right."""

import pytest

from kit.everywhere import function_of, prepare_table
from txn.testing import crash_everywhere


@pytest.mark.parametrize("store", ["in_memory", "in_a_file"])
def test_a_killed_program_counts_each_record_once(store: str) -> None:
    report = crash_everywhere(
        function_of("table/totals", store),
        input=prepare_table,
        output=["out", "totals"],
        stops=["kill", "kill after", "lose answer", "rebalance"],
        steps=["Produce", "AddOffsetsToTxn", "EndTxn"],
        quick=8,
        jobs=2,
    )
    assert report.findings == ()
    assert report.runs == 8
