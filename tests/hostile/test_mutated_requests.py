"""Thousands of mutated requests a second: no crash, no hang, no leak, no traceback.

More: `HOSTILE_SECONDS=600 SEED=7 pytest -s tests/hostile/test_mutated_requests.py`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from hostile.fairness import LATE_S
from hostile.neighbour import FORGOTTEN_MS, FORGOTTEN_TOPIC, TOPIC, Forgotten, Neighbour, p99
from hostile.target import MIB, TargetBroker
from support.brokers import TESTS, environment
from support.clients import create_topic, read_all
from support.exploring import seed_of_run
from txn.server.loop.scheduler import SYNC_THREADS

SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "6"))
SEED: Final = seed_of_run()
P99_S: Final = 0.25
GROWTH_MAX: Final = 200 * MIB
RATE_MIN: Final = 50
"""Answers a second, on a machine that is busy; alone it makes thousands."""

KEPT_BYTES: Final = 20
"""Items that one request leaves for good on average: few make a transactional id, a group or a
topic.
"""

POOLED_THREADS: Final = min(32, (os.cpu_count() or 1) + 4) + SYNC_THREADS + 2
"""Those that decode bodies, sync logs and open batches start when first needed, and stay."""


@pytest.mark.timeout(SECONDS + 120)
def test_P5_mutated_requests_harm_nobody(tmp_path: Path) -> None:
    target = TargetBroker(tmp_path / "data")
    servers = target.bootstrap_servers
    for topic in (TOPIC, FORGOTTEN_TOPIC):
        create_topic(servers, topic)
    with Neighbour(servers, "warm-up"):
        Forgotten(servers, "warm-up-too").close()
    before = target.gauges()
    command = [sys.executable, "-m", "hostile.fuzzer", servers]
    command += ["--seconds", str(SECONDS), "--seed", str(SEED)]
    late: list[float] = []

    with Neighbour(servers) as neighbour:
        fuzzer = subprocess.Popen(
            command, cwd=TESTS, env=environment(), stdout=subprocess.PIPE, text=True
        )
        while fuzzer.poll() is None and neighbour.failure is None:
            late.append(_time_of_a_timeout(servers, len(late)))
        told, _ = fuzzer.communicate()

    counts = json.loads(told or "{}")
    answered = counts.get("answered", 0)
    seen = (
        f"seed {SEED}: {answered} requests answered, {answered / SECONDS:.0f} a second, {counts}; "
        f"{len(neighbour.times_s)} transactions, p99 {p99(neighbour.times_s):.3f} s; "
        f"timeouts after {max(late):.2f} s at most; {before} became {target.gauges()}"
    )
    print(seen)
    assert neighbour.failure is None, seen
    assert not target.faults_in_log(), (seen, target.faults_in_log()[:5])
    assert p99(neighbour.times_s) <= P99_S, seen
    assert max(late) <= FORGOTTEN_MS / 1000 + LATE_S, seen
    assert answered > RATE_MIN * SECONDS, seen
    kept = GROWTH_MAX + KEPT_BYTES * answered
    target.await_calm(before, memory=kept, descriptors=2_000, threads=POOLED_THREADS)
    values = [value for value in read_all(servers, TOPIC) if value is not None]
    assert values[-len(neighbour.written) :] == neighbour.written, seen
    assert not target.stop_and_verify(), seen


def _time_of_a_timeout(servers: str, number: int) -> float:
    """Time that a transaction whose client is gone holds its readers."""
    forgotten = Forgotten(servers, f"forgotten-{number % 3}")
    while not forgotten.is_over():
        time.sleep(0.02)
    forgotten.close()
    return time.monotonic() - forgotten.began
