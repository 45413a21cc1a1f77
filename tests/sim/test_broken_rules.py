"""The checkers catch a broker that breaks a rule: each rule in turn is broken on purpose."""

import pytest

from sim.broken import RULES, Broken
from sim.world import run_seed


@pytest.mark.parametrize("broken", RULES, ids=str)
def test_a_broken_rule_is_found_by_its_anomaly(broken: Broken) -> None:
    with broken.applied():
        found = (run_seed(seed).names for seed in range(broken.seeds_max))
        assert any(broken.must_find in names for names in found)
