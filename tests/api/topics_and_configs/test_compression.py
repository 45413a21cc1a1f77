"""`compression.type`: batches are stored under their topic's codec, whatever their clients send."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.admin._resource import ResourceType

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    read_messages,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.damaged import segment_of
from support.packed import CODECS, around, gzip_bomb, produce, records, taken
from support.wire_client import RawConnection
from support.wire_producer import WireProducer, identity
from txn import _core
from txn.inspect.dump import dump

MESSAGE_TOO_LARGE = 10
TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"%d" % number * 40 for number in range(50)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def servers(data: Path) -> Iterator[str]:
    with txn.Broker(data, durability="process") as broker:
        yield broker.bootstrap_servers


def stored_codecs(data: Path, topic: str) -> list[str]:
    """The codec of each batch of records that a topic's partition 0 holds."""
    batches = dump(segment_of(data, topic), is_deep=True)
    return [
        each["codec"]
        for each in batches
        if each["entry"] == "batch" and "control" not in each["flags"]
    ]


def codec_of(compression_type: str) -> str:
    return "none" if compression_type == "uncompressed" else compression_type


@pytest.mark.parametrize("compression_type", TYPES)
@pytest.mark.parametrize("sent", CODECS)
def test_P1_P6_records_are_stored_under_the_topics_codec_and_read_by_every_client(
    servers: str, data: Path, compression_type: str, sent: str
) -> None:
    topic = f"{sent}-as-{compression_type}"
    create_topic(servers, topic, compression_type=compression_type)
    producer = plain_producer(servers, compression_type=sent, enable_idempotence=True, linger_ms=20)
    assert send(producer, topic, VALUES) == list(range(50))
    assert set(stored_codecs(data, topic)) == {codec_of(compression_type)}
    assert read_all(servers, topic) == VALUES
    chunks = _core.KafkaClient(servers).fetch(topic, 0, 0, 50)
    assert [chunk["rows"] for chunk in chunks] == [50]


def test_P3_P6_a_transaction_keeps_its_flags_sequences_and_end(servers: str, data: Path) -> None:
    create_topic(servers, "transactions", compression_type="zstd")
    producer = transactional_producer(servers, "repacked", compression_type="gzip")
    for number in range(3):
        commit_values(producer, "transactions", [b"%d" % number] * 20)
    producer.begin_transaction()
    send(producer, "transactions", [b"aborted"] * 20)
    producer.abort_transaction(WAIT_S)
    assert read_all(servers, "transactions") == [b"0"] * 20 + [b"1"] * 20 + [b"2"] * 20
    found = dump(segment_of(data, "transactions"), is_deep=False)
    batches = [each for each in found if each["entry"] == "batch"]
    control = [each for each in batches if "control" in each["flags"]]
    others = [each for each in batches if "control" not in each["flags"]]
    assert {each["codec"] for each in control} == {"none"}
    assert {each["codec"] for each in others} == {"zstd"}
    assert all("transactional" in each["flags"] for each in batches)
    assert [each["first_sequence"] for each in others] == sorted(
        each["first_sequence"] for each in others
    )


def test_P6_a_request_sent_again_is_known_by_its_sequences(servers: str, data: Path) -> None:
    """All of it is repacked by another thread, also the batches that are for one partition."""
    create_topic(servers, "again", compression_type="lz4")
    batches = [
        around("none", 1, records((b"k", b"%d" % nth)), producer=(4_712, 0), sequence=nth)
        for nth in range(5)
    ]
    with RawConnection(servers) as connection:
        for _ in range(2):
            answers = produce(connection, *batches, topic="again")
            assert [(int(one.error_code), one.base_offset) for one in answers] == [
                (0, nth) for nth in range(5)
            ]
    assert stored_codecs(data, "again") == ["lz4"] * 5
    assert read_all(servers, "again") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_request_of_many_large_batches_is_repacked_part_by_part(servers: str, data: Path) -> None:
    """It comes to 4 MB of stored bytes, more than a request may have repacked at a time."""
    create_topic(servers, "parts", compression_type="uncompressed")
    producer = (4_713, 0)
    batches = [
        around("gzip", 1, gzip_bomb(900_000), producer=producer, sequence=nth) for nth in range(5)
    ]
    with RawConnection(servers) as connection:
        answers = produce(connection, *batches, topic="parts")
    assert [(int(one.error_code), one.base_offset) for one in answers] == [
        (0, nth) for nth in range(5)
    ]
    assert read_all(servers, "parts") == [bytes(900_000)] * 5
    assert stored_codecs(data, "parts") == ["none"] * 5


def test_P7_large_batches_join_their_transaction(servers: str, data: Path) -> None:
    """The repacked bytes of the first wait for the coordinator, those of the others are made
    again."""
    create_topic(servers, "joined", compression_type="uncompressed")
    with WireProducer(servers, "joins-repacked") as producer:
        who = identity(producer.start(two_phase=False))
        batches = [
            around(
                "gzip",
                1,
                gzip_bomb(900_000),
                producer=who,
                sequence=nth,
                is_transactional=True,
            )
            for nth in range(3)
        ]
        answers = produce(
            producer, *batches, version=12, topic="joined", transactional_id="joins-repacked"
        )
        assert [int(one.error_code) for one in answers] == [0, 0, 0]
        identity(producer.end(who))
    assert read_all(servers, "joined") == [bytes(900_000)] * 3


def test_a_batch_that_grows_beyond_max_message_bytes_is_refused_as_by_kafka(servers: str) -> None:
    create_topic(servers, "grown", compression_type="uncompressed")
    bomb = around("gzip", 1, gzip_bomb(2_000_000))
    with RawConnection(servers) as connection:
        (answer,) = produce(connection, bomb, topic="grown")
    assert int(answer.error_code) == MESSAGE_TOO_LARGE
    assert "more than max.message.bytes=1048588" in answer.error_message
    assert ends(servers, "grown") == (0, 0)


def test_a_codec_altered_counts_for_the_next_batch(servers: str, data: Path) -> None:
    create_topic(servers, "altered")
    producer = plain_producer(servers, compression_type="none")
    send(producer, "altered", [b"as it came"])
    alter(servers, ResourceType.TOPIC, "altered", "gzip")
    send(producer, "altered", [b"gzip"])
    alter(servers, ResourceType.TOPIC, "altered", "producer")
    send(producer, "altered", [b"as it came"])
    assert stored_codecs(data, "altered") == ["none", "gzip", "none"]
    assert read_all(servers, "altered") == [b"as it came", b"gzip", b"as it came"]


def test_a_codec_of_the_broker_counts_for_topics_without_their_own(tmp_path: Path) -> None:
    properties = {"compression.type": "zstd", "compression.zstd.level": "7"}
    with txn.Broker(tmp_path, properties=properties) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "inherits")
        create_topic(servers, "own", compression_type="producer")
        producer = plain_producer(servers, compression_type="none")
        for topic in ("inherits", "own"):
            send(producer, topic, [b"1"])
        alter(servers, ResourceType.BROKER, "1", "lz4")
        for topic in ("inherits", "own"):
            send(producer, topic, [b"2"])
            assert read_all(servers, topic) == [b"1", b"2"]
    assert stored_codecs(tmp_path, "inherits") == ["zstd", "lz4"]
    assert stored_codecs(tmp_path, "own") == ["none", "none"]


def alter(servers: str, kind: ResourceType, name: str, compression_type: str) -> None:
    entry = ConfigEntry(
        "compression.type",
        compression_type,
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WAIT_S)


def test_times_of_the_append_are_those_of_the_records(servers: str, data: Path) -> None:
    create_topic(
        servers, "stamped", compression_type="snappy", message_timestamp_type="LogAppendTime"
    )
    send(plain_producer(servers), "stamped", [b"1"])
    (message,) = read_messages(servers, "stamped")
    kind, time_ms = message.timestamp()
    (batch,) = dump(segment_of(data, "stamped"), is_deep=False)
    assert (kind, batch["max_timestamp_ms"], batch["codec"]) == (2, time_ms, "snappy")


def test_acks_all_is_taken_with_more_min_insync_replicas_than_replicas_as_by_kafka(
    servers: str,
) -> None:
    """MirrorMaker makes topics with the settings of its source, which may have three replicas."""
    create_topic(servers, "mirrored", min_insync_replicas="2", compression_type="lz4")
    assert send(plain_producer(servers, acks="all"), "mirrored", [b"1"]) == [0]
    code, out, err = run_txn("topics", "describe", "mirrored", "--bootstrap", servers)
    assert code == 0, err
    assert "compression.type=lz4" in out
    assert "min.insync.replicas=2" in out


@pytest.mark.parametrize("name", taken())
def test_content_in_several_streams_is_stored_and_read_by_librdkafka(
    servers: str, name: str
) -> None:
    """librdkafka reads one gzip member alone: its consumers stood still at such a batch."""
    topic = name.replace(" ", "-")
    create_topic(servers, topic)
    with RawConnection(servers) as connection:
        (answer,) = produce(connection, taken()[name], topic=topic)
        assert (int(answer.error_code), answer.base_offset) == (0, 0)
        produce(connection, around("gzip", 1, gzip.compress(records((b"k", b"2")))), topic=topic)
    assert read_all(servers, topic) == [b"v" * 40, b"2"]


def test_batches_are_packed_by_threads_that_serve_no_connection(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    try:
        servers = process.bootstrap_servers
        create_topic(servers, "as-it-came")
        create_topic(servers, "packed", compression_type="gzip")
        producer = plain_producer(servers)
        send(producer, "as-it-came", [b"1"])
        assert "txn-opener-0" not in threads(process.pid)
        send(producer, "packed", [b"1"])
        assert "txn-opener-0" in threads(process.pid)
    finally:
        assert process.stop() == 0


def threads(pid: int) -> set[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    return {comm.read_text().strip() for comm in tasks}


def test_bombs_that_are_stored_uncompressed_take_little_memory(tmp_path: Path) -> None:
    """A request of 100 kB comes to 80 MB in the log."""
    process = BrokerProcess(tmp_path / "data")
    try:
        create_topic(process.bootstrap_servers, "bombs", compression_type="uncompressed")
        bomb = around("gzip", 1, gzip_bomb(1_000_000))
        with RawConnection(process.bootstrap_servers) as connection:
            produce(connection, bomb, topic="bombs")
            before = process.memory_peak
            answers = produce(connection, *[bomb] * 80, topic="bombs")
        assert {int(answer.error_code) for answer in answers} == {0}
        assert process.memory_peak - before < 20_000_000
    finally:
        assert process.stop() == 0
