"""segmentio/kafka-go, whose client sends the requests of a transaction over a pool of connections.

The broker took the older connection of a producer for that of a dead client, and hung up: one
transaction in four was lost. `go/pool.go` is the program. Go fetches the client's module.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import WAIT_S, create_topic

PROGRAM = Path(__file__).parent / "go"
PRODUCERS, TRANSACTIONS = 4, 50
SECONDS_MAX = 240.0

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="no Go on the PATH"),
    pytest.mark.timeout(2 * SECONDS_MAX),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("go") / "pool"
    built = subprocess.run(
        ["go", "build", "-o", str(path), "."],
        cwd=PROGRAM,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if "proxy.golang.org" in built.stderr or "dial tcp" in built.stderr:
        pytest.skip("Go's modules are out of reach")
    assert built.returncode == 0, built.stderr
    return path


def _log_end(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "go"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
        return int(end)
    finally:
        consumer.close()


def test_P2_kafka_go_loses_no_transaction_of_version_1(
    program: Path, txn_broker: str, unique: Callable[[str], str]
) -> None:
    topic = unique("pooled")
    create_topic(txn_broker, topic)
    done = subprocess.run(
        [str(program), txn_broker, topic, str(PRODUCERS), str(TRANSACTIONS)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed, connections = (int(count) for count in done.stdout.split())
    assert failed == 0, done.stderr
    assert connections > 2, "the producers share a pool of connections"
    assert _log_end(txn_broker, topic) == PRODUCERS * TRANSACTIONS, "a marker for each"
