"""A Spark Connect server is killed with its sessions, and every row is there once (P3)."""

from pathlib import Path

import pytest

from spark.kill.harness import KillCase, Moment, TxnBroker
from spark.processes import ConnectServer
from support.samples import left_out

ROWS = 10_000
"""Five batches, of which two lose the server."""


@left_out
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_P3_stream_whose_connect_server_is_killed_writes_every_row_exactly_once(
    tmp_path: Path,
) -> None:
    broker = TxnBroker(tmp_path)
    try:
        with ConnectServer(tmp_path) as server:
            case = KillCase("map", broker, tmp_path, rows=ROWS, cluster=server)
            verdict = case.run([Moment.NODE, Moment.NODE], seed=1)
    finally:
        broker.stop()
    assert verdict.holds, verdict
    assert verdict.starts == 3, "a client's query ends with its server"
