"""Spark jobs killed in the worst moments leave every row in the output exactly once (P3, P4).

The short version; `main.py` beside this file kills as often as it is told to. `make test` plays a
stream that `format("txn")` writes to txn, and one that the sink function writes to Apache Kafka.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark.kill.harness import ApacheBroker, KillableBroker, KillCase, Moment, TxnBroker
from support.samples import EVERY, LEFT_OUT

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

MOMENTS = {
    "map": [Moment.STABLE, Moment.WORKER, Moment.BROKER],
    "dedup": [Moment.HIGH, Moment.STABLE],
    "update": [Moment.STABLE, Moment.OFFSETS],
}
ON_KAFKA = {"map": [Moment.WORKER], "dedup": [Moment.HIGH], "update": [Moment.OFFSETS]}
PLAYED = {(TxnBroker, "map"), (ApacheBroker, "update")}
ROWS_PER_KILL = 4_000
"""Enough batches that every kill finds the job at work."""


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
    if EVERY > 1 and (type(broker), job) not in PLAYED:
        pytest.skip(LEFT_OUT)
    moments = (MOMENTS if isinstance(broker, TxnBroker) else ON_KAFKA)[job]
    rows = ROWS_PER_KILL * len(moments)
    verdict = KillCase(job, broker, tmp_path, rows=rows).run(moments, seed=1)
    assert verdict.holds, verdict
    assert verdict.kills.total() == len(moments)
