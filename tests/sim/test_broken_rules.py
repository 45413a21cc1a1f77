"""The checkers catch a broker that breaks a rule: each rule in turn is broken on purpose."""

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from sim.broken import RULES, BrokenRule
from sim.plan import (
    SimPlan,
    make_cleaned_lost_cache_plan,
    make_copier_plan,
    make_first_ids_power_plan,
    make_late_plan,
    make_lost_cache_plan,
    make_prepared_power_plan,
    make_prepared_refusal_plan,
    make_two_lost_caches_plan,
    make_unmark_plan,
    make_unread_power_plan,
    make_upgrade_crash_plan,
    make_upgrade_plan,
)
from sim.world import run_plan

LAST_FOUND_AT: Final[Mapping[str, int]] = {
    "a starting producer fences nobody": 63,
    "what a TV1 client left on a connection is served": 72,
    "recovery aborts what was to commit": 11,
    "a start believes every PREPARE": 17,
    "a start after a kill believes every PREPARE": 17,
    "an unread commit is finished after a kill": 184,
    "the last record is taken for a lost one": 11,
    "PREPARE ends a later transaction": 24,
    "an abort is synced behind its marker": 424,
    "a marker that is written again ends a later transaction": 17,
    "a start forgets the markers that it wrote": 57,
    "timeouts go by the time of day": 15,
    "offsets count though aborted": 17,
    "a power failure ends what is prepared": 160,
    "what is prepared is not forced": 51,
    "that something is prepared is not forced": 47,
    "what is handed over to two-phase commit is not forced before": 20,
    "offsets that are handed over to two-phase commit are not forced before": 19,
    "a start lets more into what is kept": 57,
    "who was taken over ends what is kept": 64,
    "a refused marker is not tried again": 91,
    "a deletion ends what began below it": 46,
    "a log start is not kept": 36,
    "tombstones are cleaned away at once": 13,
    "a start takes segments that power has shortened for cleaned ones": 11,
}
"""The first seed that showed the anomaly of a rule, where ten before it did not.

It is tried first: the others cost a minute. A change of the plans makes it a seed like any other.
"""


@pytest.mark.parametrize("broken", RULES, ids=str)
def test_a_broken_rule_is_found_by_its_anomaly(broken: BrokenRule) -> None:
    seeds = [LAST_FOUND_AT.get(broken.rule, 0), *range(broken.seeds_max)]
    with broken.applied():
        found = (run_plan(broken.plans(seed)).names for seed in seeds)
        assert any(broken.must_find in names for names in found)


def test_each_rule_with_a_seed_to_try_first_is_there() -> None:
    assert LAST_FOUND_AT.keys() <= {broken.rule for broken in RULES}


def test_what_a_tv1_client_left_on_a_connection_ends_no_later_transaction() -> None:
    assert not [seed for seed in range(40) if run_plan(make_late_plan(seed)).anomalies]


def test_a_broker_that_breaks_no_rule_hands_partitions_over_unharmed() -> None:
    results = [run_plan(make_copier_plan(seed)) for seed in range(20)]
    assert not [result for result in results if result.anomalies]
    assert sum(result.committed for result in results) > 20 * 10


@pytest.mark.parametrize("make", [make_upgrade_plan, make_upgrade_crash_plan])
def test_a_broker_that_breaks_no_rule_hands_open_transactions_over_unharmed(
    make: Callable[[int], SimPlan],
) -> None:
    results = [run_plan(make(seed)) for seed in range(60)]
    assert not [result for result in results if result.anomalies]
    assert sum(result.committed for result in results) > 60


@pytest.mark.parametrize("make", [make_unmark_plan, make_unread_power_plan])
def test_P9_what_is_gone_or_unread_is_refused_by_name_and_nothing_is_decided_for_it(
    make: Callable[[int], SimPlan],
) -> None:
    results = [run_plan(make(seed), tells=True) for seed in range(60)]
    assert not [result for result in results if result.anomalies]
    refused = [result for result in results if any("will not start" in s for s in result.story)]
    assert len(refused) > 10


@pytest.mark.parametrize(
    "make", [make_lost_cache_plan, make_two_lost_caches_plan, make_cleaned_lost_cache_plan]
)
def test_P3_a_lost_cache_is_found_or_tears_nothing_until_an_operator_tells_of_it(
    make: Callable[[int], SimPlan],
) -> None:
    results = [run_plan(make(seed), tells=True) for seed in range(60)]
    assert not [result for result in results if result.anomalies]
    for words in ("finds that the storage lost its cache", "tells of the lost cache"):
        assert sum(any(words in line for line in result.story) for result in results) > 5


@pytest.mark.parametrize("make", [make_prepared_power_plan, make_prepared_refusal_plan])
def test_P2_what_is_prepared_is_committed_whatever_the_disk_does(
    make: Callable[[int], SimPlan],
) -> None:
    results = [run_plan(make(seed)) for seed in range(60)]
    assert not [result for result in results if result.anomalies]
    assert sum(result.committed for result in results) > 60 * 2


def test_P7_no_producer_id_is_given_out_twice_where_power_fails_at_the_first_of_a_block() -> None:
    results = [run_plan(make_first_ids_power_plan(seed)) for seed in range(100)]
    assert not [result for result in results if result.anomalies]
