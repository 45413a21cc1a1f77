"""P9 over the wire: a fetch of damaged records is refused, and everything else is served."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn import _core
from txn.server.broker import service_of
from txn.wire.api_keys import ApiKey

CORRUPT_MESSAGE = 2
KAFKA_STORAGE_ERROR = 56


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The topics `bad`, whose one record is damaged, and `good`."""
    with txn.Broker(tmp_path) as broker:
        for topic in ("bad", "good"):
            create_topic(broker.bootstrap_servers, topic)
            send(plain_producer(broker.bootstrap_servers), topic, [b"value"])
    path = tmp_path / "bad-0" / f"{0:020}.log"
    stored = bytearray(path.read_bytes())
    stored[-2] ^= 1
    path.write_bytes(stored)
    return tmp_path


def test_P9_a_fetch_of_damage_answers_corrupt_message_and_others_go_on(directory: Path) -> None:
    with txn.Broker(directory) as broker:
        client = _core.KafkaClient(broker.bootstrap_servers, timeout_ms=1000)
        with pytest.raises(_core.KafkaError) as refused:
            list(client.fetch("bad", 0, 0, 1))
        assert refused.value.args[1] == CORRUPT_MESSAGE
        assert read_all(broker.bootstrap_servers, "good") == [b"value"]
        send(plain_producer(broker.bootstrap_servers), "bad", [b"more"])


def test_P9_damage_met_just_before_a_stop_is_told(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that stopped within a second of the fetch did not report its finding."""
    with txn.Broker(directory) as broker:
        client = _core.KafkaClient(broker.bootstrap_servers, timeout_ms=1000)
        with pytest.raises(_core.KafkaError, match="CORRUPT_MESSAGE"):
            list(client.fetch("bad", 0, 0, 1))
    (line,) = (text for text in caplog.messages if text.startswith("log.damaged"))
    assert str(directory / "bad-0" / f"{0:020}.log") in line


def test_a_search_by_time_that_meets_damage_answers_corrupt_message(directory: Path) -> None:
    """It cost the client its connection, and with it every other answer."""
    partitions = [{"partition_index": 0, "timestamp": 1}]
    wanted = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": partitions} for name in ("bad", "good")],
    }
    with txn.Broker(directory) as broker, RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.call(entity_builder(request(ApiKey.LIST_OFFSETS, 7))(wanted))

    found = [(int(p.error_code), p.offset) for topic in answer.topics for p in topic.partitions]
    assert found == [(CORRUPT_MESSAGE, -1), (0, 0)]


def test_P9_a_partition_taken_out_of_service_answers_storage_error_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also to a client whose fetches and batches found its log a moment before."""
    with txn.Broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        for topic in ("bad", "good"):
            create_topic(servers, topic)
            send(plain_producer(servers), topic, [b"value"])
        client = _core.KafkaClient(servers, timeout_ms=1000)
        assert list(client.fetch("bad", 0, 0, 1))

        service_of(broker).node.host.refuse_partition(
            "bad", 0, "a transaction is open that was committed"
        )

        with pytest.raises(_core.KafkaError) as refused:
            list(client.fetch("bad", 0, 0, 1))
        assert refused.value.args[1] == KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaException, match="Disk error"):
            send(plain_producer(servers, retries=0), "bad", [b"more"])
        wanted = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                for name in ("bad", "good")
            ],
        }
        with RawConnection(servers) as connection:
            answer = connection.call(entity_builder(request(ApiKey.LIST_OFFSETS, 7))(wanted))
        found = [(int(p.error_code), p.offset) for topic in answer.topics for p in topic.partitions]
        assert found == [(KAFKA_STORAGE_ERROR, -1), (0, 1)]
        assert read_all(servers, "good") == [b"value"]
    (told,) = (line for line in caplog.messages if line.startswith("log.damaged"))
    assert "topic=bad partition=0" in told
    assert "a transaction is open that was committed" in told
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with txn.Broker(tmp_path) as broker:  # it is judged anew, and nothing is wrong with its files
        assert read_all(broker.bootstrap_servers, "bad") == [b"value"]


def test_P9_a_partition_out_of_service_loses_nothing_to_retention_and_is_not_compacted(
    tmp_path: Path,
) -> None:
    """Its records may be needed to repair it."""
    with txn.Broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        for topic in ("bad", "good"):
            create_topic(servers, topic, cleanup_policy="compact,delete", retention_ms="1")
            producer = plain_producer(servers)
            producer.produce(topic, value=b"value", key=b"key")
            assert producer.flush(WAIT_S) == 0
        service_of(broker).node.host.refuse_partition(
            "bad", 0, "a transaction is open that was committed"
        )

        service_of(broker).storage.retain(now_ms=1 << 50)
        left = {store.topic for _, store in service_of(broker).log_cleaner.compacted_logs()}

        stored = [sorted((tmp_path / f"{topic}-0").glob("*.log")) for topic in ("bad", "good")]
    assert [[path.stem.strip("0") for path in paths] for paths in stored] == [[""], ["1"]]
    assert "bad" not in left
    assert "good" in left
