"""P9 for whole directories: any damage made while nobody runs is refused by name, or right.

Directories of txn and of Apache Kafka, left by a clean stop, a SIGKILL and a power failure. Each
kind of file in each of them is damaged once, and each damage done; a seed chooses the rest. All:
`HOSTILE_EVERY=1`; more: `HOSTILE_CASES=500 SEED=7`. One of them:
`PYTHONPATH=tests python -m damage.runner --only "txn killed .lock removed"`.
"""

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from damage.cases import FILE_DAMAGES, STATES, DamageCase, first_round, in_rounds
from damage.left import let_checkpoints_be_older, make_left
from damage.runner import make_matrix, run_cases
from support.exploring import seed_of_run
from support.memory import MEMORY

EVERY: Final = bool(os.environ.get("HOSTILE_EVERY"))
CASES: Final = int(os.environ.get("HOSTILE_CASES", "0"))
SEED: Final = seed_of_run(5)
WORKERS: Final = 2

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0 if EVERY else 300)]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for hundreds of brokers."""
    with tempfile.TemporaryDirectory(prefix="txn-damage-", dir=MEMORY) as name:
        yield Path(name)


def faults_of(broker: str, scratch: Path) -> list[str]:
    """Run a sample of cases; return the broken promises."""
    matrix = make_matrix({broker: make_left(broker, scratch / broker)}, scratch)
    every = matrix.cases()
    count = len(every) if EVERY else max(CASES, first_round(every))
    missing = {(state, damage) for state in STATES for damage in FILE_DAMAGES}
    cases: list[DamageCase] = []
    for case in in_rounds(every, random.Random(SEED)):
        # Some are of logs alone, which have no more than a few turns in a round.
        if len(cases) < count or (case.state, case.damage) in missing:
            cases.append(case)
            missing.discard((case.state, case.damage))
        elif not missing:
            break
    assert not missing
    kinds: Counter[str] = Counter()
    faults = []
    for case, verdict in run_cases(matrix, cases, scratch, workers=WORKERS):
        kinds[verdict.kind] += 1
        faults += [f"{case}: {fault}" for fault in verdict.faults]
    print(f"seed {SEED}: {len(cases)} of {len(every)} cases: {dict(kinds)}")
    assert kinds["right"]
    return faults


def test_P9_no_damage_to_a_directory_of_txn_is_served_in_silence(scratch: Path) -> None:
    assert faults_of("txn", scratch) == []


def test_P9_a_cut_of_a_marker_that_no_checkpoint_knows_proves_a_lost_cache(scratch: Path) -> None:
    """The start then ends every other transaction too, as after a power failure.

    The judge took that for another log when a slow machine had left the checkpoints behind.
    """
    left = make_left("txn", scratch / "txn")
    topics = ("seats", "txns")
    for topic in topics:
        let_checkpoints_be_older(left.killed, topic)
    matrix = make_matrix({"txn": left}, scratch)
    logs = [max(left.killed.glob(f"{topic}-0/*.log")) for topic in topics]
    last = [str(log.relative_to(left.killed)) for log in logs]
    cases = [case for case in matrix.cases() if case.state == "killed" and case.path in last]
    results = list(run_cases(matrix, cases, scratch, workers=WORKERS))
    assert len(results) == len(topics) * len(FILE_DAMAGES)
    assert [f"{case}: {fault}" for case, result in results for fault in result.faults] == []
    assert "cut" in {result.kind for _, result in results}


@pytest.mark.peer
def test_P9_no_damage_to_a_directory_of_kafka_is_served_in_silence(scratch: Path) -> None:
    assert faults_of("kafka", scratch) == []
