"""Metrics, read over HTTP as Prometheus does, of brokers that real clients use."""

import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

import txn
from support.clients import commit_values, create_topic, read_all, transactional_producer
from txn.errors import ConfigError
from txn.server.metrics.table import METRICS

WAIT_S = 20.0
RECORDS = 25

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as response:
        text: str = response.read().decode()
        return text


def samples(address: str) -> Samples:
    families = text_string_to_metric_families(scrape(address))
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def of_request(found: Samples, name: str, request: str) -> float:
    return found.get((f"kafka_network_requestmetrics_{name}", (("request", request),)), 0)


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def samples_when_sent(address: str, request: str, count: int) -> Samples:
    """The samples once so many answers are counted as sent: that comes just after the sending."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = samples(address)
        if of_request(found, "totaltime_seconds_count", request) >= count:
            return found
        assert time.monotonic() < deadline, f"{request}: fewer than {count} were sent"


def test_what_is_served_and_the_table_are_the_same() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        assert broker.metrics_address is not None
        text = scrape(broker.metrics_address)
    served = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    told = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    assert served == {name: metric.kind for name, metric in METRICS.items()}
    ours = {name: metric.about for name, metric in METRICS.items() if "process_" not in name}
    assert {name: told[name] for name in ours} == ours


def test_every_request_passes_every_point_once() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce("orders", str(number).encode())
            assert producer.flush(WAIT_S) == 0
        assert broker.metrics_address is not None
        found = samples_when_sent(broker.metrics_address, "Produce", RECORDS)

    assert of_request(found, "requests_total", "Produce") == RECORDS
    for stage in ("requestqueue", "local", "remote", "responsesend", "total"):
        name = f"{stage}time_seconds"
        assert of_request(found, f"{name}_count", "Produce") == RECORDS
        last = (("le", "+Inf"), ("request", "Produce"))
        assert found[f"kafka_network_requestmetrics_{name}_bucket", last] == RECORDS
    topics = "kafka_server_brokertopicmetrics"
    assert value(found, f"{topics}_messagesin_total") == RECORDS
    assert value(found, "txn_log_appended_batches_total") == RECORDS
    assert value(found, f"{topics}_failedproducerequests_total") == 0


def test_an_answer_that_waits_for_the_disk_takes_its_time_behind_the_decision(
    tmp_path: Path,
) -> None:
    with txn.Broker(tmp_path / "data", durability="always", metrics="127.0.0.1:0") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(10):  # a disk may be done before an answer waits for it
            producer.produce("orders", b"1")
            assert producer.flush(WAIT_S) == 0
        assert broker.metrics_address is not None
        found = samples_when_sent(broker.metrics_address, "Produce", 10)
    assert of_request(found, "remotetime_seconds_sum", "Produce") > 0
    assert value(found, "kafka_log_logflushstats_logflushrateandtime_seconds_count") > 0


def test_an_open_transaction_is_counted_and_names_the_partition_it_holds_back() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        address = broker.metrics_address
        assert address is not None
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "writer")
        producer.begin_transaction()
        producer.produce("orders", b"1")
        producer.flush(WAIT_S)
        held = samples(address)
        producer.commit_transaction(WAIT_S)
        free = samples(address)
    lag = "kafka_cluster_partition_laststableoffsetlag"
    assert value(held, "txn_transactions_open", state="Ongoing") == 1
    assert value(held, lag, topic="orders", partition="0") == 1
    assert value(held, "txn_partitions_held_back") == 1
    assert value(free, "txn_transactions_open", state="Ongoing") == 0
    assert value(free, "txn_partitions_held_back") == 0
    assert not [name for name, _ in free if name == lag]


def test_what_a_consumer_is_sent_and_its_connection_are_counted() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        assert broker.metrics_address is not None
        producer = transactional_producer(broker.bootstrap_servers, "writer")
        commit_values(producer, "orders", [b"1", b"2"])
        assert read_all(broker.bootstrap_servers, "orders") == [b"1", b"2"]
        found = samples(broker.metrics_address)
    appended = value(found, "kafka_server_brokertopicmetrics_bytesin_total")
    assert value(found, "kafka_server_brokertopicmetrics_bytesout_total") >= appended
    connections = [
        value(
            found,
            "kafka_server_socket_server_metrics_connection_count",
            listener="PLAINTEXT",
            networkProcessor=processor,
        )
        for processor in "01"
    ]
    assert sum(connections) > 0


def test_serve_answers_where_it_is_told_to(tmp_path: Path) -> None:
    listens = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "txn", "serve", "--data", str(tmp_path / "data"), *listens],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        found = re.fullmatch(r"metrics on http://(\S+)/metrics\n", lines[1])
        assert found is not None
        assert value(samples(found[1]), "txn_network_reactors") == 2
        process.terminate()
    assert process.returncode == 0


def test_a_broker_serves_no_metrics_unless_it_is_told_to() -> None:
    with txn.Broker() as broker:
        assert broker.metrics_address is None


def test_metrics_are_for_this_machine_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics cannot be served on 0\.0\.0\.0:0"):
        txn.Broker(tmp_path / "data", metrics="0.0.0.0:0")
    assert not (tmp_path / "data").exists()
    with txn.Broker(metrics="0.0.0.0:0", metrics_allow_remote=True) as broker:
        assert broker.metrics_address is not None
        port = broker.metrics_address.rpartition(":")[2]
        assert value(samples(f"127.0.0.1:{port}"), "txn_network_reactors") == 2
