"""Replicas over the real log keep committed records, and a broken rule is caught."""

from pathlib import Path

import pytest

from sim.replicas import ReplicaAnomaly, ReplicationRule, run

SEEDS = 8

CAUGHT_BY = {
    ReplicationRule.HIGH_WATERMARK_WAITS: (1, 3),
    ReplicationRule.FETCH_ACKNOWLEDGES: (5, 3),
    ReplicationRule.FOLLOWER_TRUNCATES: (4, 3),
    ReplicationRule.EPOCHS_ARE_COMPARED: (4, 3),
    ReplicationRule.TRUNCATION_ASKS_FIRST: (9, 2),
    ReplicationRule.PARTITION_EPOCHS_ARE_COMPARED: (1108, 2),
    ReplicationRule.LEADER_IS_IN_SYNC: (0, 2),
    ReplicationRule.LOSS_LEAVES_THE_ISR: (3, 3),
}
"""Seed and number of replicas that show the purpose of a rule."""


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_lose_and_change_nothing_that_was_committed(
    tmp_path: Path, seed: int, replicas: int
) -> None:
    run(tmp_path, seed, replicas)


@pytest.mark.parametrize("rule", ReplicationRule, ids=lambda rule: rule.name.lower())
def test_a_rule_that_is_broken_is_caught(tmp_path: Path, rule: ReplicationRule) -> None:
    seed, replicas = CAUGHT_BY[rule]
    run(tmp_path / "kept", seed, replicas)
    with pytest.raises(ReplicaAnomaly):
        run(tmp_path / "broken", seed, replicas, frozenset({rule}))
