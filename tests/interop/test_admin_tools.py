"""Apache Kafka's own command line tools against txn: settings, records, log directories,
transactions."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

import txn
from harnesses.peers.jars import NODE_4_2, class_path, java_executable
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.late_batch import let_hang

SECONDS_MAX = 120.0

CONFIGS = "kafka.admin.ConfigCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

HOUR_MS = 3_600_000

pytestmark = [pytest.mark.java, pytest.mark.timeout(3 * SECONDS_MAX)]


def run(tool: str, servers: str, *arguments: str) -> str:
    """Run a tool; return its output."""
    done = subprocess.run(
        [
            java_executable(),
            *("-Xmx128m", "-Dlog4j2.level=OFF"),
            *("-cp", class_path(NODE_4_2), tool, "--bootstrap-server", servers, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_kafka_configs_alters_a_topic_and_reads_it_back(
    txn_broker: str, unique: Callable[[str], str]
) -> None:
    topic = unique("configured")
    create_topic(txn_broker, topic, retention_ms="5")
    altered = "flush.ms=7,cleanup.policy=[compact,delete]"
    run(
        CONFIGS,
        txn_broker,
        *("--alter", "--topic", topic, "--add-config", altered),
        *("--delete-config", "retention.ms"),
    )
    told = run(CONFIGS, txn_broker, "--describe", "--topic", topic).splitlines()
    assert [line.strip().split(" ")[0] for line in told[1:]] == [
        "cleanup.policy=compact,delete",
        "flush.ms=7",
    ]


def test_kafka_delete_records_moves_the_start(
    txn_broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("shortened")
    create_topic(txn_broker, topic)
    send(plain_producer(txn_broker), topic, [b"a", b"b", b"c"])
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    told = run(DELETE_RECORDS, txn_broker, "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 2" in told
    assert read_all(txn_broker, topic) == [b"c"]


def test_kafka_log_dirs_tells_sizes(txn_broker: str, unique: Callable[[str], str]) -> None:
    topic = unique("measured")
    create_topic(txn_broker, topic)
    send(plain_producer(txn_broker), topic, [b"v" * 1000])
    told = run(LOG_DIRS, txn_broker, "--describe", "--topic-list", topic)
    (directory,) = json.loads(told.splitlines()[-1])["brokers"][0]["logDirs"]
    (partition,) = directory["partitions"]
    assert (directory["error"], partition["partition"]) == (None, f"{topic}-0")
    assert partition["size"] > 1000


def test_kafka_transactions_finds_what_hangs_and_aborts_it(tmp_path: Path) -> None:
    """It takes a transaction for hanging that is older than the longest timeout and known to no
    coordinator.
    """
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"before"])
        offset = let_hang(broker, "orders", 1_000, b"late", age_ms=HOUR_MS)
        send(plain_producer(servers), "orders", [b"after"])
        found = run(TRANSACTIONS, servers, "find-hanging", "--topic", "orders").splitlines()
        columns = dict(zip(found[0].split("\t"), found[1].split("\t"), strict=True))
        named = {name.strip(): value.strip() for name, value in columns.items()}
        assert len(found) == 2
        assert (named["Topic"], named["ProducerId"], named["StartOffset"]) == (
            "orders",
            "1000",
            str(offset),
        )
        place = ("--topic", "orders", "--partition", "0", "--start-offset", str(offset))
        run(TRANSACTIONS, servers, "abort", *place)
        assert read_all(servers, "orders") == [b"before", b"after"]


def test_kafka_transactions_lists_by_pattern_and_aborts(
    txn_broker: str, unique: Callable[[str], str]
) -> None:
    topic, name = unique("hanging"), unique("hangs")
    create_topic(txn_broker, topic)
    producer = transactional_producer(txn_broker, name)
    producer.begin_transaction()
    send(producer, topic, [b"a"])
    listed = run(TRANSACTIONS, txn_broker, "list", "--transactional-id-pattern", f"{name[:-3]}.*")
    of_what_hangs = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    run(TRANSACTIONS, txn_broker, "abort", *of_what_hangs)

    assert [line.split()[0] for line in listed.splitlines()[1:]] == [name]
    with pytest.raises(KafkaException, match="_FENCED"):
        producer.commit_transaction(WAIT_S)
    assert read_all(txn_broker, topic) == []
