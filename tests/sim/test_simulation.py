"""Many runs of whole brokers under everything that can go wrong; SEEDS sets how many.

A seed that fails is printed with the smallest story that still shows it, and replays exactly:
`python -m sim SEED`, see `tests/README.md`.
"""

import os

import pytest

from sim.plan import make_election_plan, make_plan
from sim.world import run_plan, run_seed, shrink, text_of

SEEDS = int(os.environ.get("SEEDS", "500"))
SEEDS_PER_TEST = 250


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_nothing_that_may_never_happen_happens(first: int) -> None:
    failed = [
        result for seed in range(first, first + SEEDS_PER_TEST) if (result := run_seed(seed)).names
    ]
    assert not failed, text_of(shrink(failed[0]))


def test_nothing_is_lost_where_a_coordinator_resigns_and_is_elected_again() -> None:
    plans = [make_election_plan(seed) for seed in range(SEEDS // 25)]
    failed = [result for plan in plans if (result := run_plan(plan)).names]
    assert not failed, text_of(shrink(failed[0]))


def test_a_seed_replays_exactly() -> None:
    first, second = (run_plan(make_plan(11), tells=True) for _ in range(2))
    assert first.story == second.story
    assert first.steps == second.steps
