"""P9 over the wire: a fetch of damaged records is refused, and everything else is served."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

import txn
from harnesses.peers.jars import NODE_4_2, class_path, java_executable
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.damaged import flip_bit
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn import _core
from txn.server.lifecycle.broker import service_of
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


def spoil(data: Path, values: list[bytes], nth: int) -> None:
    """Write the topic `bad`, a batch for each value, and damage one of the batches."""
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "bad")
        producer = plain_producer(broker.bootstrap_servers)
        for value in values:
            send(producer, "bad", [value])
    path = data / "bad-0" / f"{0:020}.log"
    batch_bytes = len(path.read_bytes()) // len(values)
    flip_bit(path, (nth + 1) * batch_bytes - 2)


def test_P9_a_fetch_of_damage_answers_corrupt_message_and_others_go_on(directory: Path) -> None:
    with txn.Broker(directory) as broker:
        client = _core.KafkaClient(broker.bootstrap_servers, timeout_ms=1000)
        with pytest.raises(_core.KafkaError) as refused:
            list(client.fetch("bad", 0, 0, 1))
        assert refused.value.args[1] == CORRUPT_MESSAGE
        assert read_all(broker.bootstrap_servers, "good") == [b"value"]
        send(plain_producer(broker.bootstrap_servers), "bad", [b"more"])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("size", [100, 40_000])
def test_P9_a_reader_gets_each_sound_record_before_damage_and_then_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, isolation: str, size: int
) -> None:
    """With the default sizes the fetch failed as a whole, and no record could be read."""
    values = [b"%d" % number * size for number in range(10, 70)]
    spoil(tmp_path, values, 40)
    with txn.Broker(tmp_path) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"}
        with closing(Consumer({**settings, "isolation.level": isolation})) as consumer:
            consumer.assign([TopicPartition("bad", 0, OFFSET_BEGINNING)])
            for value in [*values[:40], None, None, None]:
                message = consumer.poll(WAIT_S)
                assert message is not None
                error = message.error()
                assert (error and error.code()) == (None if value else CORRUPT_MESSAGE)
                assert value is None or message.value() == value
    (line,) = (text for text in caplog.messages if text.startswith("log.damaged"))
    file = tmp_path / "bad-0" / f"{0:020}.log"
    position = len(file.read_bytes()) // 60 * 40
    assert f"topic=bad partition=0 path={file} position={position}" in line
    assert f"txn log accept-loss {tmp_path} bad-0" in line


@pytest.mark.java
@pytest.mark.timeout(180)
def test_P9_the_java_consumer_gets_each_sound_record_before_damage_too(tmp_path: Path) -> None:
    spoil(tmp_path, [b"%d" % number for number in range(10, 70)], 40)
    with txn.Broker(tmp_path) as broker:
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        command = [
            *(java_executable(), "-cp", class_path(NODE_4_2), tool),
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "bad"),
            *("--partition", "0", "--offset", "earliest", "--isolation-level", "read_committed"),
        ]
        read = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    values = [line for line in read.stdout.splitlines() if line.isdigit()]
    assert values == [str(number) for number in range(10, 50)], read.stderr
    assert "Encountered corrupt message when fetching offset 40" in read.stdout + read.stderr


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

        service_of(broker).storage.upkeep.retain(now_ms=1 << 50)
        left = {store.topic for _, store in service_of(broker).log_cleaner.compacted_logs()}

        stored = [sorted((tmp_path / f"{topic}-0").glob("*.log")) for topic in ("bad", "good")]
    assert [[path.stem.strip("0") for path in paths] for paths in stored] == [[""], ["1"]]
    assert "bad" not in left
    assert "good" in left
