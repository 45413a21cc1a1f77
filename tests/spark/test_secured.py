"""Spark jobs over TLS and SASL, on a real Apache Kafka: rows come through, secrets do not."""

import base64
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import txn.spark
from harnesses.peers.secured import PASSWORD, SecuredKafka, token
from spark.jobs import Options, finish
from spark.kill.harness import KillCase, Moment, RunningBroker
from spark.logs import tail
from spark.secured import SCRAM, TouchedByLoading, scram_over_tls
from support import clients
from support.exploring import seed_of_run
from support.samples import left_out
from support.secured_broker import secured_broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def copied(spark: SparkSession, plain: str, options: Options, place: Path) -> list[bytes]:
    """Write a row, stream it to another topic, and return that topic's rows by a batch read.

    `plain`: bootstrap servers without security, for the topics.
    """
    suffix = time.time_ns()
    source, output = f"in-{suffix}", f"out-{suffix}"
    clients.create_topic(plain, source)
    clients.create_topic(plain, output)
    row = spark.sql("SELECT '7 apples' AS value").write.format("txn")
    row.options(**options, topic=source).mode("append").save()
    rows = spark.readStream.format("txn").options(**options, subscribe=source)
    writer = rows.option("startingOffsets", "earliest").load().writeStream.format("txn")
    writer = writer.options(**options, topic=output, checkpointLocation=str(place / "checkpoint"))
    finish(writer.trigger(availableNow=True))
    table = spark.read.format("txn").options(**options, subscribe=output).load()
    return [bytes(row.value) for row in table.select("value").collect()]


def test_a_job_for_scram_over_tls_runs_as_it_stands(
    spark: SparkSession, secured_kafka: SecuredKafka, tmp_path: Path
) -> None:
    options = scram_over_tls(secured_kafka)
    assert copied(spark, secured_kafka.servers["PLAINTEXT"], options, tmp_path) == [b"7 apples"]


@pytest.mark.parametrize("way", ["mutual TLS", "SCRAM-SHA-512 over SASL_SSL"])
def test_a_job_runs_over_a_secured_listener_of_txn(
    way: str, spark: SparkSession, tmp_path: Path
) -> None:
    with secured_broker(tmp_path) as broker:
        listener, settings = broker.ways()[way]
        settings["bootstrap.servers"] = broker.servers[listener]
        options = {f"kafka.{name}": value for name, value in settings.items()}
        assert copied(spark, broker.servers["PLAINTEXT"], options, tmp_path) == [b"7 apples"]


def test_a_function_for_tokens_is_called_on_driver_and_workers(
    spark: SparkSession, secured_kafka: SecuredKafka, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    signed = token()

    def noted() -> str:
        import os

        (calls / str(os.getpid())).touch()
        return signed

    options = {
        "kafka.bootstrap.servers": secured_kafka.servers["SASL_SSL"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.ssl.ca.pem": secured_kafka.ca_pem.decode(),
        "txn.token": "noted",
    }
    txn.spark.register(spark, tokens={"noted": noted})
    assert copied(spark, secured_kafka.servers["PLAINTEXT"], options, tmp_path) == [b"7 apples"]
    assert len(list(calls.iterdir())) > 1


def test_sql_names_a_function_for_tokens_and_brings_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The option held a pickle, so a statement of SQL ran code of its own in Spark's driver."""
    touched = tmp_path / "touched"
    with secured_broker(tmp_path) as broker:
        signed = broker.token.read_text().strip()
        txn.spark.register(spark, tokens={"of a file": lambda: signed})
        options = {
            "kafka.bootstrap.servers": broker.servers["SASL_PLAINTEXT"],
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "txn.token": "of a file",
        }
        plain = broker.servers["PLAINTEXT"]
        assert copied(spark, plain, options, tmp_path) == [b"7 apples"]
        clients.create_topic(plain, "fruits")

        def count(token: str) -> int:
            given = {**options, "txn.token": token, "subscribe": "fruits"}
            listed = ", ".join(f"`{name}` '{text}'" for name, text in given.items())
            spark.sql(f"CREATE OR REPLACE TEMP VIEW fruits USING txn OPTIONS ({listed})")
            return spark.table("fruits").count()

        assert count("of a file") == 0
        code = base64.b64encode(pickle.dumps(TouchedByLoading(touched))).decode()
        with pytest.raises(AnalysisException, match=r"txn\.token names a function that the sess"):
            count(code)
    assert not touched.exists()


def test_the_state_of_a_query_is_asked_for_over_the_same_listener(
    spark: SparkSession, secured_kafka: SecuredKafka
) -> None:
    options = scram_over_tls(secured_kafka)
    servers = options["kafka.bootstrap.servers"]
    name = f"query-{time.time_ns()}"
    clients.create_topic(secured_kafka.servers["PLAINTEXT"], name)
    row = spark.sql("SELECT '7 apples' AS value").write.format("txn")
    row.options(**options, topic=name).option("txn.id", name).mode("append").save()
    access = {name: value for name, value in options.items() if name != "kafka.bootstrap.servers"}
    found = txn.spark.status(servers, name, **access)
    assert (found.id, found.open) == (name, ())
    assert txn.spark.offsets(servers, "nobody", **access) == "{}"


def test_no_secret_of_a_job_is_left_anywhere(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """The plans of a job showed the private key that was given as text.

    Spark redacts options whose name or value has a word such as "password"; the names for a key
    have none.
    """
    options = scram_over_tls(secured_kafka) | {
        "kafka.ssl.keystore.certificate.chain": secured_kafka.certificate_pem.decode(),
        "kafka.ssl.keystore.key": secured_kafka.key_pem.decode(),
    }
    wrong = {"kafka.sasl.jaas.config": SCRAM.replace(PASSWORD, f"{PASSWORD}-wrong")}
    (tmp_path / "options.json").write_text(json.dumps(options))
    (tmp_path / "wrong.json").write_text(json.dumps(options | wrong))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("secrets_job.py")), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, tail(done.stderr)
    left = {
        str(path.relative_to(tmp_path)): path.read_text(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".json"
    } | {"output": done.stdout, "errors": done.stderr}
    assert {"plans.txt", "failures.txt", "ui.txt", "checkpoint/metadata"} <= left.keys()
    assert "found [b'7 apples']" in left["plans.txt"]
    assert left["failures.txt"].count("refused the log-in of user") >= 3
    assert "redacted" in left["plans.txt"]
    key_line = secured_kafka.key_pem.decode().splitlines()[1]
    for secret in (PASSWORD, PASSWORD[:8], key_line):
        assert [name for name, text in left.items() if secret in text] == []


@left_out
@pytest.mark.crash
def test_P3_a_job_killed_over_sasl_ssl_writes_every_row_exactly_once(
    secured_kafka: SecuredKafka, tmp_path: Path
) -> None:
    options = tmp_path / "options.json"
    options.write_text(json.dumps(scram_over_tls(secured_kafka)))
    broker = RunningBroker(secured_kafka.servers["PLAINTEXT"])
    moments = [Moment.STABLE, Moment.WORKER]
    case = KillCase("map", broker, tmp_path, rows=6_000, options=options)
    verdict = case.run(moments, seed=seed_of_run())
    assert verdict.holds, verdict
    assert verdict.kills.total() == len(moments)
