"""Driver and executors apart: a cluster's workers are killed, and every row is there once (P3)."""

from pathlib import Path

import pytest

from spark.kill.harness import KillCase, Moment, TxnBroker
from spark.processes import StandaloneCluster
from support.samples import left_out

ROWS = 10_000
"""Five batches, of which two lose a worker."""


@left_out
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_P3_stream_on_a_cluster_whose_workers_are_killed_writes_every_row_exactly_once(
    tmp_path: Path,
) -> None:
    broker = TxnBroker(tmp_path)
    try:
        with StandaloneCluster(tmp_path) as cluster:
            case = KillCase("map", broker, tmp_path, rows=ROWS, cluster=cluster)
            verdict = case.run([Moment.NODE, Moment.NODE], seed=1)
    finally:
        broker.stop()
    assert verdict.holds, verdict
    assert verdict.starts == 1, "the driver outlives its workers"
