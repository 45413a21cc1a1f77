"""Traps of exactly-once sinks on Spark; each has its test.

Where the trap lies in Spark, a real session runs. Where it lies in the order of requests, the
functions that Spark calls run against the cluster in memory.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

import txn.spark
from spark.fake_kafka import FakeKafka, Faulty
from spark.jobs import finish, forget_last_commit, put, stream, texts, writing
from spark.kill.harness import kill_session, session_of
from spark.logs import tail
from support import clients
from txn._core import KafkaClient
from txn.errors import ConfigError, FencedError
from txn.spark import writer as sink
from txn.spark.driver import Driver, DriverSettings
from txn.spark.errors import NotPreparedError, RefusedError, ReplayError
from txn.spark.identities import OwnIdentities
from txn.spark.options import SinkSettings, sink_settings
from txn.spark.progress import OnLost
from txn.spark.session import register
from txn.spark.transactional_ids import is_task_id

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
in_spark = pytest.mark.spark

VALUE = StructType([StructField("value", StringType())])


# ---------------------------------------------------------------- in Spark


@in_spark
def test_update_mode_is_impossible_for_a_data_source_and_possible_for_the_sink(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["a", "b", "a"])
    counts = (
        stream(spark, servers, topic)
        .groupBy("value")
        .count()
        .selectExpr("concat_ws('|', cast(value as string), count) AS value")
    )
    refused = writing(counts, servers, checkpoint, {"topic": output}).outputMode("update")
    with pytest.raises(PySparkException, match=r"(?i)update"):
        finish(refused)
    updates = (
        counts.writeStream.outputMode("update")
        .foreachBatch(txn.spark.sink(servers, output, id=output))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    finish(updates)
    put(servers, topic, ["a", "c"])
    finish(updates)
    assert texts(servers, output) == ["a|2", "a|3", "b|1", "c|1"]


@in_spark
def test_query_is_started_in_a_thread_of_its_own(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """Spark found no data source `txn` there: it asks the active session, which a thread lacks."""
    put(servers, topic, ["a"])
    writer = writing(stream(spark, servers, topic), servers, checkpoint, {"topic": output})
    with ThreadPoolExecutor(1) as thread:
        thread.submit(txn.spark.run, writer.start).result()
    assert texts(servers, output) == ["a"]


@in_spark
@pytest.mark.parametrize("path", ["format", "foreachBatch"])
def test_skipped_batch_is_drained_so_that_state_is_kept(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path, path: str
) -> None:
    """Spark died between the sink's commit and its own: the batch comes again, with its state."""
    put(servers, topic, ["a", "b", "a"])
    rows = stream(spark, servers, topic).selectExpr("cast(value as string) AS value")
    writer = _to(rows.dropDuplicates(["value"]), servers, output, checkpoint, path)
    finish(writer)
    forget_last_commit(checkpoint)
    put(servers, topic, ["b", "c"])
    finish(writer)
    assert texts(servers, output) == ["a", "b", "c"]


@in_spark
@pytest.mark.parametrize("path", ["format", "foreachBatch"])
def test_id_with_a_new_checkpoint_is_refused_and_not_skipped(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path, path: str
) -> None:
    put(servers, topic, ["1"])
    rows = stream(spark, servers, topic).select("value")
    finish(_to(rows, servers, output, tmp_path / "first", path))
    put(servers, topic, ["2"])
    with pytest.raises(StreamingQueryException, match="the checkpoint was removed, or two queries"):
        finish(_to(rows, servers, output, tmp_path / "second", path))
    assert texts(servers, output) == ["1"]


@in_spark
def test_batch_without_rows_is_decided_like_any_other(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """A batch without input has no tasks; without a decision the numbers would have a gap."""
    rows = stream(spark, servers, topic, startingOffsets="latest").select("value")
    writer = _to(rows, servers, output, checkpoint, "foreachBatch")
    finish(writer)
    put(servers, topic, ["1"])
    finish(writer)
    found = txn.spark.status(servers, f"id-{output}")
    assert (found.batch, found.state, found.rows) == (1, "done", 1)
    assert texts(servers, output) == ["1"]


@in_spark
def test_failed_task_is_tried_again_and_its_rows_are_not_doubled(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """`local[N]` would never try again; `local[N,4]` does, as a cluster does."""
    from pyspark import TaskContext
    from pyspark.sql import functions as f

    def stumble(value: str) -> str:
        context = TaskContext.get()
        assert context is not None
        if value == "n19999" and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies with its last row")
        return value

    put(servers, topic, [f"n{number}" for number in range(20_000)])
    values = stream(spark, servers, topic).selectExpr("cast(value as string) AS value")
    rows = values.select(f.udf(stumble, "string", useArrow=False)("value").alias("value"))
    finish(_to(rows, servers, output, checkpoint, "format"))
    assert texts(servers, output) == sorted(f"n{number}" for number in range(20_000))
    assert txn.spark.status(servers, f"id-{output}").open == ()
    assert [clients.ends(servers, output, n)[0] for n in range(2)] == [
        clients.ends(servers, output, n)[1] for n in range(2)
    ]


@in_spark
def test_real_time_mode_is_refused(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """There a batch is noted after it is written, so a replay may hold other rows."""
    rows = stream(spark, servers, topic).select("value")
    writer = writing(rows, servers, checkpoint, {"topic": output}).outputMode("update")
    with pytest.raises((PySparkException, StreamingQueryException), match="REAL_TIME_MODE"):
        finish(writer.trigger(realTime="5 minutes"))  # type: ignore[call-overload]


@in_spark
def test_continuous_trigger_is_refused(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    rows = stream(spark, servers, topic).select("value")
    writer = writing(rows, servers, checkpoint, {"topic": output})
    with pytest.raises(PySparkException, match="txn does not support continuous processing"):
        finish(writer.trigger(continuous="1 second"))


@in_spark
def test_asynchronous_progress_tracking_is_refused(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    rows = stream(spark, servers, topic).select("value")
    options = {"topic": output, "asyncProgressTrackingEnabled": "true"}
    with pytest.raises(
        (PySparkException, StreamingQueryException), match=r"(?i)async.* progress tracking"
    ):
        finish(writing(rows, servers, checkpoint, options).trigger(processingTime="0 seconds"))


@in_spark
def test_missing_output_topic_ends_the_supervisor_with_its_reason(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The query was started again for ever, in silence."""
    with txn.Broker(auto_create_topics_enable=False) as broker:
        servers = broker.bootstrap_servers
        clients.create_topic(servers, "in")
        put(servers, "in", ["1"])
        rows = stream(spark, servers, "in").select("value")
        writer = writing(rows, servers, tmp_path / "checkpoint", {"topic": "absent"})
        with pytest.raises(StreamingQueryException) as raised:
            txn.spark.run(writer.start, pause=lambda _: pytest.fail("it was started again"))
    (note,) = raised.value.__notes__
    reason = "ConfigError: there is no topic 'absent', and the cluster does not make it by itself"
    assert f"The reason: {reason}" in note
    assert reason in caplog.text


@in_spark
def test_workers_need_neither_an_activated_environment_nor_pandas(
    servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.py").write_text("raise ImportError('no pandas here')")
    put(servers, topic, ["1", "2"])
    environment = {
        name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"
    } | {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    java = Path(os.environ.get("JAVA_HOME") or "/usr") / "bin" / "java"
    if java.exists() and not os.environ.get("JAVA_HOME"):
        environment["JAVA_HOME"] = str(java.resolve().parents[1])
    job = [
        *(sys.executable, str(Path(__file__).parent / "kill" / "job.py"), "--job", "update"),
        *("--bootstrap", servers, "--input", topic, "--output", output),
        *("--checkpoint", str(tmp_path / "checkpoint")),
    ]
    done = subprocess.run(
        job, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, tail(done.stdout + done.stderr)
    assert texts(servers, output) == ["1|1|1", "2|1|2"]


# ---------------------------------------------------------------- with a broker alone


def test_abandoned_transactions_are_aborted_at_the_next_start(servers: str, output: str) -> None:
    """Else the output's last stable offset would stand still for the transaction's timeout.

    One was written by txn's client, one by librdkafka, which ends transactions in the older way.
    """
    name = f"id-{output}"
    client = KafkaClient(servers)
    producer_id, epoch = client.init_producer_id(f"{name}.{'0' * 16}", 900_000)
    mine = client.writer(f"{name}.{'0' * 16}", producer_id, epoch)
    mine.write(output, 1, None, (b"\0\0\0\0\1\0\0\0", b"x", None))
    mine.flush()
    theirs = clients.transactional_producer(servers, f"{name}.{'1' * 16}")
    theirs.begin_transaction()
    clients.send(theirs, output, [b"y"], 1)
    held = [clients.ends(servers, output, n) for n in range(2)]
    assert any(stable < high for stable, high in held)
    settings = DriverSettings(name, "__txn_spark", 900_000, 30_000)
    Driver(client, settings).begin()
    client.close()
    assert all(
        stable == high for stable, high in (clients.ends(servers, output, n) for n in (0, 1))
    )
    assert clients.read_all(servers, output) == []


# ---------------------------------------------------------------- in the order of requests


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """The sink's functions talk to this instead of a broker."""
    cluster = FakeKafka()
    monkeypatch.setattr(sink, "shared_client", lambda _: cluster)
    monkeypatch.setattr(sink, "await_cluster", lambda _: None)
    monkeypatch.setattr(sink, "OWN", OwnIdentities())
    return cluster


@pytest.fixture
def settings() -> SinkSettings:
    options = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "txn.id": "q"}
    return sink_settings({**options, "txn.batch": "0", "txn.query": "query-1"})


def test_progress_is_kept_in_a_compacted_topic(cluster: FakeKafka, settings: SinkSettings) -> None:
    """Committed offsets of a group would expire a week after the query stood still."""
    sink.begin_batch(settings, VALUE)
    assert cluster.counts["__txn_spark"] == 1
    assert cluster.configs["__txn_spark"]["cleanup.policy"] == "compact"


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def one_task(work: sink.Work, *values: str) -> sink.Part:
    return sink.write_task(work, "query-1", 0, 0, rows(*values))


def two_tasks(work: sink.Work, query: str) -> list[WriterCommitMessage | None]:
    return [sink.write_task(work, query, 0, task, rows(*"ab")) for task in range(2)]


def lose_the_second_task(
    cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch, writer: sink.BatchWriter, query: str
) -> None:
    """Commit two tasks; the power fails between the decision and the second one's commit."""
    parts = two_tasks(writer.work, query)
    second = parts[1]
    assert isinstance(second, sink.Part)
    assert second.slot is not None
    lost = second.slot.identity.transactional_id
    power_fails = Faulty(cluster, 2, lambda: cluster.expire([lost]), after=True)
    with monkeypatch.context() as patched:
        patched.setattr(sink, "shared_client", lambda _: power_fails)
        with pytest.raises(ReplayError):
            writer.commit(parts)


def test_abort_after_a_failed_commit_keeps_what_was_decided(
    cluster: FakeKafka, settings: SinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls abort when commit raises; the decision may have been made already."""
    cluster.now_ms = time.time_ns() // 1_000_000
    writer = sink.begin_batch(settings, VALUE)
    part = one_task(writer.work, "a", "b")

    def fail() -> None:
        raise RuntimeError("after the commit point")

    # describe, the decision's flush, its end_txn: the third request is the commit point
    faulty = Faulty(cluster, 2, fail, after=True)
    monkeypatch.setattr(sink, "shared_client", lambda _: faulty)
    with pytest.raises(RuntimeError, match="after the commit point"):
        writer.commit([part])
    assert cluster.committed("out") == []
    writer.abort([part])
    assert cluster.committed("out") == [b"a", b"b"]


def test_abort_of_an_undecided_batch_frees_the_output(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    writer = sink.begin_batch(settings, VALUE)
    one_task(writer.work, "a")
    writer.abort([None])
    assert cluster.committed("out") == []
    assert cluster.list_transactions(["Ongoing"], "q.") == []


def test_abort_of_a_replaced_driver_leaves_its_successor_alone(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    """It took over in its turn, and two copies of a query ended each other's batches for ever."""
    cluster.now_ms = time.time_ns() // 1_000_000
    old = sink.begin_batch(settings, VALUE)
    mine = one_task(old.work, "a")
    new = sink.begin_batch(settings, VALUE)
    theirs = one_task(new.work, "a")
    with pytest.raises(FencedError):
        old.commit([mine])
    old.abort([mine])
    new.commit([theirs])
    assert cluster.committed("out") == [b"a"]


def test_a_write_after_a_loss_is_not_taken_for_its_replay(
    cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows were saved under the id, and only those of the lost tasks were written."""
    cluster.now_ms = time.time_ns() // 1_000_000
    options = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "txn.id": "q"}
    replays = sink_settings({**options, "txn.on.lost": "replay"})
    lose_the_second_task(cluster, monkeypatch, sink.begin_batch(replays, VALUE), "")
    with pytest.raises(RefusedError, match=r"lost the rows of tasks \[1\].*txn\.batch=0"):
        sink.begin_batch(replays, VALUE)
    again = sink.begin_batch(replace(replays, batch=0), VALUE)
    again.commit(two_tasks(again.work, ""))
    assert cluster.committed("out") == [b"a", b"b", b"a", b"b"]


def test_a_replay_in_other_tasks_is_refused(
    cluster: FakeKafka, settings: SinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task had all the rows; nobody wrote those of the lost one, and the batch was done."""
    cluster.now_ms = time.time_ns() // 1_000_000
    settings = replace(settings, on_lost=OnLost.REPLAY)
    lose_the_second_task(cluster, monkeypatch, sink.begin_batch(settings, VALUE), "query-1")
    again = sink.begin_batch(settings, VALUE)
    part = one_task(again.work, *"abab")
    with pytest.raises(NotPreparedError, match="does not give every task the same rows"):
        again.commit([part])
    assert cluster.committed("out") == [b"a", b"b"]


def test_batch_planned_anew_under_a_used_number_is_refused(
    cluster: FakeKafka, settings: SinkSettings, tmp_path: Path
) -> None:
    """The checkpoint came back from a backup; its next batch was skipped with its new rows."""
    cluster.now_ms = time.time_ns() // 1_000_000
    settings = replace(settings, checkpoint=str(tmp_path))
    plan = tmp_path / "offsets" / "0"
    plan.parent.mkdir()
    plan.write_text('v1\n{"batchTimestampMs":1}\n{"in":{"0":2}}')
    for _ in range(2):  # the second time as a replay, which is skipped
        writer = sink.begin_batch(settings, VALUE)
        writer.commit([one_task(writer.work, "a", "b")])
    plan.write_text('v1\n{"batchTimestampMs":2}\n{"in":{"0":3}}')
    writer = sink.begin_batch(settings, VALUE)
    part = one_task(writer.work, "a", "b", "c")
    with pytest.raises(RefusedError, match="ended at other offsets"):
        writer.commit([part])
    assert cluster.committed("out") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("given", "age_ms"), [({}, 300_000), ({"kafka.metadata.max.age.ms": "0"}, 0)]
)
def test_a_task_counts_partitions_anew_after_the_time_that_a_job_sets(
    cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], age_ms: int
) -> None:
    ages = []

    def noting(*who: Any, metadata_max_age_ms: int, **settings: Any) -> Any:
        ages.append(metadata_max_age_ms)
        return FakeKafka.writer(cluster, *who, **settings)

    options = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "txn.id": "q", **given}
    work = sink.begin_batch(sink_settings(options), VALUE).work
    monkeypatch.setattr(cluster, "writer", noting)
    sink.write_task(work, "", 0, 0, rows("a"))
    assert ages == [age_ms]


def test_task_without_rows_opens_no_transaction(cluster: FakeKafka, settings: SinkSettings) -> None:
    writer = sink.begin_batch(settings, VALUE)
    part = sink.write_task(writer.work, "query-1", 0, 0, iter(rows()))
    assert part.slot is None
    assert [name for name in cluster.producers if is_task_id("q", name)] == []


def test_tasks_ask_for_an_epoch_only_under_names_that_are_new(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    """A task that asked under a shared name could shut out another's prepared transaction."""
    cluster.now_ms = time.time_ns() // 1_000_000
    for batch in range(3):
        work = sink.begin_batch(replace(settings, batch=batch), VALUE).work
        before = len(cluster.inits)
        parts = [
            sink.write_task(work, "query-1", batch, task, rows(f"{batch}-{task}"))
            for task in range(2)
        ]
        asked = cluster.inits[before:]
        sink.settle(work.settings, parts, work.handout, batch)
        assert len(asked) == (2 if batch == 0 else 0)
    assert len(cluster.committed("out")) == 6


def test_repeated_stage_gets_producers_of_its_own(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    """After a lost shuffle file attempt numbers begin at 0 again, while old attempts still run."""
    cluster.now_ms = time.time_ns() // 1_000_000
    first = sink.begin_batch(settings, VALUE)
    first.commit([one_task(first.work, "x")])
    work = sink.begin_batch(replace(settings, batch=1), VALUE).work
    old, new = (sink.write_task(work, "query-1", 1, 0, rows("y", "z")) for _ in range(2))
    assert old.slot is not None
    assert new.slot is not None
    assert old.slot.identity.transactional_id != new.slot.identity.transactional_id
    sink.settle(work.settings, [new], work.handout, 1)
    assert cluster.committed("out") == [b"x", b"y", b"z"]


def test_transactions_are_checked_before_the_decision(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    writer = sink.begin_batch(settings, VALUE)
    part = one_task(writer.work, "a")
    cluster.expire()
    with pytest.raises(NotPreparedError):
        writer.commit([part])
    assert sink.begin_batch(settings, VALUE).work.handout.progress is None


def test_tasks_that_contradict_the_batch_decide_nothing(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    """These checks were asserts, which `python -O` leaves out."""
    cluster.now_ms = time.time_ns() // 1_000_000
    writer = sink.begin_batch(settings, VALUE)
    part = one_task(writer.work, "a")
    older = replace(part.handout, token=replace(part.handout.token, producer_epoch=-1))
    strange = {
        "of which 1 have reported": [part, None],
        "reports for batch 5 of query 'query-1'": [part, replace(part, task=1, batch=5)],
        "reports for batch 0 of query 'another'": [part, replace(part, task=1, query="another")],
        "producer_epoch=-1": [part, replace(part, task=1, handout=older)],
        "found it in the output already": [part, replace(part, task=1, was_skipped=True)],
    }
    for story, parts in strange.items():
        with pytest.raises(NotPreparedError, match=story):
            writer.commit(cast("list[Any]", parts))
        assert cluster.committed("out") == []
    writer.commit([part])
    assert cluster.committed("out") == [b"a"]


def test_task_that_fails_ends_its_transaction_itself(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise RuntimeError("the job's own mistake")

    writer = sink.begin_batch(settings, VALUE)
    with pytest.raises(RuntimeError, match="the job's own mistake"):
        sink.write_task(writer.work, "query-1", 0, 0, broken())
    assert cluster.list_transactions(["Ongoing"], "q.") == []


def test_batch_that_is_done_is_read_to_its_end_and_not_written(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    cluster.now_ms = time.time_ns() // 1_000_000
    first = sink.begin_batch(settings, VALUE)
    first.commit([one_task(first.work, "a")])
    again = sink.begin_batch(settings, VALUE)
    waiting = rows("a")
    part = sink.write_task(again.work, "query-1", 0, 0, waiting)
    assert next(waiting, None) is None
    again.commit([part])
    assert cluster.committed("out") == [b"a"]


def test_process_that_commits_does_not_fence_itself(
    cluster: FakeKafka, settings: SinkSettings
) -> None:
    """Spark makes a writer there too; beginning a batch for it would end the one that runs."""
    sink.begin_batch(settings, VALUE)
    before = dict(vars(cluster.producers["q.driver"]))
    sink.committer(settings)
    assert vars(cluster.producers["q.driver"]) == before


def test_data_source_tells_the_two_processes_apart(
    cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    from txn.spark.datasource import TxnDataSource

    calls: list[str] = []
    monkeypatch.setattr(sink, "begin_stream", lambda *_: calls.append("begin"))
    monkeypatch.setattr(sink, "committer", lambda *_: calls.append("commit"))
    fresh = TxnDataSource({"kafka.bootstrap.servers": "nowhere:1"})
    fresh.streamWriter(VALUE, False)
    pickle.loads(pickle.dumps(fresh)).streamWriter(VALUE, False)
    assert calls == ["begin", "commit"]


# ---------------------------------------------------------------- around Spark


def _session(python: str, arrow_rows: str = "65536") -> SparkSession:
    configured = {"spark.sql.execution.arrow.maxRecordsPerBatch": arrow_rows}
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec=python),
        dataSource=SimpleNamespace(register=lambda _: None),
        conf=SimpleNamespace(get=configured.get, set=configured.__setitem__),
    )
    return cast(SparkSession, session)


def test_session_with_another_python_for_its_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Import txn\.spark before the session is made"):
        register(_session("python3"))


def test_session_whose_python_is_another_name_in_the_same_environment_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "python"
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    (tmp_path / "python3").symlink_to("python")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(driver))
    register(_session("python3"))


def test_import_says_which_python_the_workers_are() -> None:
    code = "import os, txn.spark; print(os.environ['PYSPARK_PYTHON'])"
    environment = {name: v for name, v in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == sys.executable


def test_small_arrow_batches_are_advised_against(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn.spark"):
        register(_session(sys.executable, "10000"))
    assert "spark.sql.execution.arrow.maxRecordsPerBatch" in caplog.text


@pytest.mark.parametrize("rows", ["0", "-1"])
def test_endless_arrow_batches_are_warned_of(rows: str, caplog: pytest.LogCaptureFixture) -> None:
    """Spark ends a read with an AssertionError of its own, which names no setting."""
    txn.spark.register(_session(sys.executable, rows))
    (record,) = (each for each in caplog.records if each.name == "txn.spark")
    assert record.levelname == "WARNING"
    assert "refuses to read a source in Python with it" in record.getMessage()


def test_large_arrow_batches_need_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn.spark"):
        register(_session(sys.executable, "65536"))
    assert caplog.text == ""


def test_killing_by_session_reaches_what_left_the_process_group() -> None:
    """PySpark's worker daemon calls setpgid; a harness that kills the group leaves workers."""
    script = "import os, time; os.setpgid(0, 0); print('left', flush=True); time.sleep(100)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    leader = subprocess.Popen(
        [sys.executable, "-c", parent], start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    with leader.stdout:
        leader.stdout.readline()
    children = set(session_of(leader.pid)) - {leader.pid}
    assert {os.getpgid(pid) for pid in children} != {leader.pid}
    kill_session(leader)
    psutil.wait_procs(list(_processes(children)), timeout=10)
    assert session_of(leader.pid) == []


def _processes(pids: set[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        if psutil.pid_exists(pid):
            yield psutil.Process(pid)


def _to(rows: DataFrame, servers: str, output: str, checkpoint: Path, path: str) -> Any:
    """Write to a topic by one of the two ways, under one id."""
    if path == "format":
        return writing(rows, servers, checkpoint, {"topic": output, "txn.id": f"id-{output}"})
    return (
        rows.writeStream.foreachBatch(txn.spark.sink(servers, output, id=f"id-{output}"))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
