"""A commit that waits for the disk once keeps P2 and P3 over every power failure.

See `model/commit_search.py`. The broker follows the rules that are proven here.
"""

import pytest

from model.commit_search import Bounds, ModelRules, search


def test_P2_P3_a_commit_that_waits_once_survives_every_power_failure() -> None:
    assert search(ModelRules(), Bounds(transactions=1, power_failures=2)).anomaly is None


def test_P2_P3_no_later_transaction_takes_part_in_an_earlier_decision() -> None:
    bounds = Bounds(transactions=2, power_failures=1, foreign_records=0)
    assert search(ModelRules(), bounds).anomaly is None


@pytest.mark.parametrize(
    ("broken", "anomaly"),
    [
        (ModelRules(waits_for_data=False), "lost-write"),
        (ModelRules(waits_for_prepare=False), "lost-write"),
        (ModelRules(looks_at_named_offsets=False), "torn-transaction"),
        (ModelRules(looks_where_open_begins=False), "torn-transaction"),
        (ModelRules(carries_markers=False), "lso-regress"),
        (ModelRules(start_syncs=False), "torn-transaction"),
        (ModelRules(start_carries_markers=False), "torn-transaction"),
    ],
)
def test_the_search_notices_each_rule_that_is_broken(broken: ModelRules, anomaly: str) -> None:
    bounds = Bounds(transactions=2, power_failures=2, foreign_records=0)
    assert search(broken, bounds).anomaly == anomaly
