"""P9: a directory of an Apache Kafka that was killed while its cleaner swapped in an empty segment.

The story: Kafka starts on it and has every key. txn refused the partition, as its own cleaner
leaves no segment empty. After the `accept-loss` that it advised no broker started.
"""

import shutil
from pathlib import Path

import pytest

import txn
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from support.clients import WAIT_S, create_topic, plain_producer, read_messages
from txn.inspect.verify import verify

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

TOPIC = "compacted"
SEGMENTS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "1500",
    "min_cleanable_dirty_ratio": "1.0",
    "min_compaction_lag_ms": "86400000",
}
KEYS, RECORDS = 7, 60
EMPTY = b""


def newest(servers: str) -> dict[bytes | None, bytes | None]:
    """The newest value of each key."""
    return {message.key(): message.value() for message in read_messages(servers, TOPIC)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a Kafka with several segments, of which each begins anew with every key."""
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaNode(directory, FEW_PARTITIONS) as node:
        create_topic(node.bootstrap_servers, TOPIC, 1, **SEGMENTS)
        producer = plain_producer(node.bootstrap_servers)
        for number in range(RECORDS):
            value = b"%d %s" % (number, b"v" * 90)
            producer.produce(TOPIC, value=value, key=b"key-%d" % (number % KEYS))
            assert producer.flush(WAIT_S) == 0
        node.kill()
    return directory


@pytest.mark.parametrize("files", [("log",), ("log", "index", "timeindex")])
def test_P9_an_empty_swap_of_kafka_is_finished_as_kafka_does(
    killed: Path, tmp_path: Path, files: tuple[str, ...]
) -> None:
    """Its old segment is on its way out, wholly or by its log alone."""
    left = tmp_path / "left"
    shutil.copytree(killed, left)
    first = min((left / "data" / f"{TOPIC}-0").glob("*.log"))
    for extension in files:
        old = first.with_suffix(f".{extension}")
        old.rename(old.with_suffix(f".{extension}.deleted"))
    first.with_suffix(".log.swap").write_bytes(EMPTY)
    shutil.copytree(left, tmp_path / "kafka")
    with KafkaNode(tmp_path / "kafka", FEW_PARTITIONS) as node:
        expected = newest(node.bootstrap_servers)
    assert len(expected) == KEYS

    assert verify(left / "data").findings == []
    for _ in range(2):
        with txn.Broker(left / "data") as broker:
            assert newest(broker.bootstrap_servers) == expected
    assert first.read_bytes() == EMPTY
    assert not list(first.parent.glob("*.swap"))
    assert verify(left / "data").findings == []
