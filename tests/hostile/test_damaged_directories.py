"""P9 for whole directories: any damage made while nobody runs is refused by name, or right.

Directories of txn and of Apache Kafka, left by a clean stop, a SIGKILL and a power failure. A seed
chooses some of every file's damages. All: `HOSTILE_EVERY=1`; more: `HOSTILE_CASES=500 SEED=7`. One
of them: `PYTHONPATH=tests python -m hostile.runner --only "txn killed .lock removed"`.
"""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from hostile.left import make_left
from hostile.runner import Matrix, make_matrix, run_cases

EVERY: Final = bool(os.environ.get("HOSTILE_EVERY"))
CASES: Final = int(os.environ.get("HOSTILE_CASES", "40"))
SEED: Final = int(os.environ.get("SEED", "5"))
WORKERS: Final = 2

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0 if EVERY else 300)]


def faults_of(matrix: Matrix, count: int, scratch: Path) -> list[str]:
    """Run a sample of cases; return the broken promises."""
    cases = matrix.cases()
    if not EVERY:
        cases = random.Random(SEED).sample(cases, count)
    kinds: Counter[str] = Counter()
    faults = []
    for case, verdict in run_cases(matrix, cases, scratch, workers=WORKERS):
        kinds[verdict.kind] += 1
        faults += [f"{case}: {fault}" for fault in verdict.faults]
    print(f"seed {SEED}: {len(cases)} cases: {dict(kinds)}")
    assert kinds["right"]
    return faults


def test_P9_no_damage_to_a_directory_of_txn_is_served_in_silence(tmp_path: Path) -> None:
    matrix = make_matrix({"txn": make_left("txn", tmp_path / "txn")}, tmp_path)

    assert faults_of(matrix, CASES, tmp_path) == []


@pytest.mark.peer
def test_P9_no_damage_to_a_directory_of_kafka_is_served_in_silence(tmp_path: Path) -> None:
    left = make_left("kafka", tmp_path / "kafka", closes=EVERY)

    assert faults_of(make_matrix({"kafka": left}, tmp_path), CASES // 3, tmp_path) == []
