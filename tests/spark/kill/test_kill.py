"""Spark jobs killed in the worst moments leave every row in the output exactly once (P3, P4).

The short version; `main.py` beside this file kills as often as it is told to.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark.kill.harness import ApacheBroker, KillableBroker, KillCase, Moment, TxnBroker

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

MOMENTS = {
    "map": [Moment.STABLE, Moment.WORKER, Moment.BROKER],
    "dedup": [Moment.HIGH, Moment.STABLE],
    "update": [Moment.STABLE, Moment.OFFSETS],
}


@pytest.fixture(scope="module", params=["txn", pytest.param("kafka", marks=pytest.mark.peer)])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KillableBroker]:
    kinds: dict[str, Callable[[Path], KillableBroker]] = {"txn": TxnBroker, "kafka": ApacheBroker}
    running = kinds[request.param](tmp_path_factory.mktemp(request.param))
    yield running
    running.stop()


@pytest.mark.parametrize("job", MOMENTS)
def test_killed_job_writes_every_row_exactly_once(
    job: str, broker: KillableBroker, tmp_path: Path
) -> None:
    verdict = KillCase(job, broker, tmp_path, rows=12_000).run(MOMENTS[job], seed=1)
    assert verdict.holds, verdict
    assert verdict.kills.total() == len(MOMENTS[job])
