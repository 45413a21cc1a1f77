"""Real clients against a broker that is harmed; and the checker, held against brokers that lie."""

from pathlib import Path

import pytest

from harnesses.black_box.broken import POWER
from harnesses.black_box.history import Fate
from harnesses.black_box.nemesis import DEFAULT
from harnesses.black_box.run import RunPlan, run
from harnesses.black_box.workload import roles

pytestmark = pytest.mark.crash

TV1 = roles(plain=1, writers=2, copiers=1, java=0)
WRITERS = roles(plain=0, writers=3, copiers=0, java=0)


@pytest.mark.java
def test_P1_P3_P4_P5_P6_P7_hold_whatever_is_done_to_broker_clients_and_connections(
    tmp_path: Path,
) -> None:
    plan = RunPlan(seconds=8, sends=500, seed=1, faults=DEFAULT)

    verdict = run(plan, tmp_path)

    assert verdict.anomalies == []
    assert verdict.fates[Fate.KEPT] > 0
    assert verdict.fates[Fate.GONE] > 0


def test_P1_P3_P4_P5_P6_P7_hold_for_the_native_engine_beside_librdkafka(tmp_path: Path) -> None:
    clients = roles(plain=1, writers=0, copiers=1, java=0, native=4)
    plan = RunPlan(seconds=8, sends=500, seed=8, faults=DEFAULT, roles=clients)

    verdict = run(plan, tmp_path)

    assert verdict.anomalies == []
    by_native = [a for a in verdict.history.attempts if a.transactional_id.startswith("native")]
    assert {Fate.KEPT, Fate.GONE} <= {attempt.fate for attempt in by_native}


@pytest.mark.java
def test_P3_P5_P7_hold_when_requests_come_after_their_clients_have_gone_on(tmp_path: Path) -> None:
    clients = roles(plain=0, writers=2, copiers=1, java=2)
    plan = RunPlan(
        seconds=6,
        sends=400,
        seed=7,
        faults=["late-end", "late-join", "takeover"],
        roles=clients,
    )

    verdict = run(plan, tmp_path)

    assert verdict.anomalies == []
    assert verdict.fates[Fate.KEPT] > 0
    assert verdict.history.late_joins


def test_P2_holds_when_the_power_fails(tmp_path: Path) -> None:
    clients = roles(plain=0, writers=2, copiers=1, java=0)
    plan = RunPlan(
        seconds=4,
        sends=40,
        seed=2,
        durability="commit",
        rules=[POWER],
        faults=["power"],
        roles=clients,
    )

    verdict = run(plan, tmp_path)

    assert verdict.anomalies == []
    assert verdict.fates[Fate.KEPT] > 0
    assert verdict.faults["power"] > 0


# ---------------------------------------------------------------- negative controls


def test_the_mock_cluster_of_librdkafka_is_caught_showing_aborted_records(tmp_path: Path) -> None:
    plan = RunPlan(seconds=2, sends=300, seed=3, target="mock", faults=[], roles=WRITERS)

    verdict = run(plan, tmp_path)

    assert {"aborted-read", "precommitted-read", "zombie-commit"} & set(verdict.names)


def test_a_last_stable_offset_that_follows_the_newest_marker_is_caught(tmp_path: Path) -> None:
    plan = RunPlan(seconds=2, sends=300, seed=4, rules=["lso-newest-marker"], faults=[], roles=TV1)

    verdict = run(plan, tmp_path)

    assert {"precommitted-read", "aborted-read"} & set(verdict.names)


def test_a_broker_that_checks_no_epochs_is_caught(tmp_path: Path) -> None:
    plan = RunPlan(seconds=2, sends=300, seed=5, rules=["no-epoch-check"], faults=[], roles=WRITERS)

    verdict = run(plan, tmp_path)

    assert "zombie-commit" in verdict.names


def test_a_broker_that_remembers_no_batches_is_caught(tmp_path: Path) -> None:
    plain = roles(plain=3, writers=0, copiers=0, java=0)
    plan = RunPlan(
        seconds=4, sends=1000, seed=6, rules=["no-dedup"], faults=["lose-acks"], roles=plain
    )

    verdict = run(plan, tmp_path)

    assert "duplicate" in verdict.names
