"""The small parts: producers of a worker, the checkpoint, the supervisor, the records, the jars."""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from spark.fake_kafka import FakeKafka
from spark.versions import PROMISED
from txn._core import KafkaError
from txn.errors import ConfigError
from txn.spark import checkpoint, connector_jars, run
from txn.spark.errors import NotPreparedError, RefusedError, is_hopeless, reason_of
from txn.spark.handout import Handout
from txn.spark.identities import OwnIdentities
from txn.spark.progress import (
    BatchStage,
    Progress,
    Slot,
    Spare,
    TransactionIdentity,
    check_replayed,
    check_skipped,
)
from txn.spark.supervise import RESTARTS_MAX

TOKEN = TransactionIdentity("q.driver", 1, 0)


def handout(*spares: TransactionIdentity) -> Handout:
    ready = tuple(Spare(identity, 0) for identity in spares)
    return Handout("q", TOKEN, Progress(BatchStage.DONE, "query-1", 0, (), ready, 0, 0), 0)


# ---------------------------------------------------------------- producers of a worker


def test_producer_is_used_again_with_the_epoch_that_was_handed_out() -> None:
    cluster, own = FakeKafka(), OwnIdentities()
    first = own.claim(cluster, handout(), 1000)
    following = TransactionIdentity(
        first.transactional_id, first.producer_id, first.producer_epoch + 1
    )
    assert own.claim(cluster, handout(following), 1000) == following
    assert len(cluster.inits) == 1


def test_producer_is_used_once_per_epoch() -> None:
    cluster, own = FakeKafka(), OwnIdentities()
    first = own.claim(cluster, handout(), 1000)
    second = own.claim(cluster, handout(first), 1000)
    assert second.transactional_id != first.transactional_id


@pytest.mark.parametrize(("timeout_ms", "is_two_phase"), [(2000, None), (1000, False)])
def test_producer_made_on_other_terms_is_not_used_again(
    timeout_ms: int, is_two_phase: bool | None
) -> None:
    """A query that was started again with another timeout went on with the one before."""
    cluster, own = FakeKafka(), OwnIdentities()
    first = own.claim(cluster, handout(), 1000)
    following = TransactionIdentity(
        first.transactional_id, first.producer_id, first.producer_epoch + 1
    )
    next_one = own.claim(cluster, handout(following), timeout_ms, is_two_phase=is_two_phase)
    assert next_one.transactional_id != first.transactional_id
    assert cluster.producers[next_one.transactional_id].timeout_ms == timeout_ms


def test_producer_of_another_process_is_left_alone() -> None:
    cluster = FakeKafka()
    theirs = OwnIdentities().claim(cluster, handout(), 1000)
    offered = TransactionIdentity(theirs.transactional_id, theirs.producer_id, 5)
    mine = OwnIdentities().claim(cluster, handout(offered), 1000)
    assert mine.transactional_id != theirs.transactional_id


def test_fork_forgets_its_parents_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, own = FakeKafka(), OwnIdentities()
    first = own.claim(cluster, handout(), 1000)
    following = TransactionIdentity(
        first.transactional_id, first.producer_id, first.producer_epoch + 1
    )
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert own.claim(cluster, handout(following), 1000) != following


def test_timeout_above_the_clusters_maximum_names_the_option() -> None:
    class Strict(FakeKafka):
        def init_producer_id(
            self,
            transactional_id: str,
            timeout_ms: int,
            producer_id: int = -1,
            producer_epoch: int = -1,
            *,
            is_two_phase: bool = False,
        ) -> tuple[int, int]:
            if is_two_phase:
                raise KafkaError("InitProducerId 6 is not offered", 35, False)
            raise KafkaError("InitProducerId: the timeout is too long", 50, False)

    with pytest.raises(ConfigError, match=r"txn\.timeout\.ms=1000: it is above its transaction"):
        OwnIdentities().claim(Strict(), handout(), 1000)


# ---------------------------------------------------------------- versions


def test_versions_with_every_part_are_those_that_the_extra_asks_for() -> None:
    """PySpark 4.3 works, and could not be installed beside txn."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    (asked,) = (each for each in extras["spark"] if each.startswith("pyspark"))
    low, high = re.fullmatch(r"pyspark>=4\.(\d+),<4\.(\d+)", asked).groups()  # type: ignore[union-attr]
    accepted = {f"4.{minor}" for minor in range(int(low), int(high))}
    whole = max(PROMISED.values(), key=len)
    assert {version for version, parts in PROMISED.items() if parts == whole} == accepted


# ---------------------------------------------------------------- records and checkpoint


def test_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(RefusedError, match="Upgrade txn"):
        Progress.from_json(b'{"version": 2}')


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text('{"id":"4c1f"}')
    (tmp_path / "offsets").mkdir()
    lines = [
        "v1",
        json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}}),
        json.dumps({"in": {"1": 20, "0": 10}}),
        json.dumps({"logOffset": 3}),
    ]
    (tmp_path / "offsets" / "7").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_query_id_is_read_from_a_local_checkpoint(stored: Path, prefix: str) -> None:
    assert checkpoint.query_id(f"{prefix}{stored}") == "4c1f"


def test_query_id_of_a_remote_checkpoint_is_unknown() -> None:
    assert checkpoint.query_id("s3a://bucket/checkpoint") is None


def test_source_offsets_are_those_of_kafka_sources(stored: Path) -> None:
    assert checkpoint.source_offsets(str(stored), 7) == [("in", 0, 10), ("in", 1, 20)]


def test_source_offsets_are_found_in_version_2_of_sparks_log(stored: Path) -> None:
    """Sources have names there; `txn.group` got no offsets, without an error."""
    _, settings, *sources = (stored / "offsets" / "7").read_text().splitlines()
    named = [f"{name}:{ends}" for name, ends in zip(("orders", "1"), sources, strict=True)]
    lines = ["v2", settings, *named, "idle:-"]
    (stored / "offsets" / "7").write_text("\n".join(lines))
    assert checkpoint.source_offsets(str(stored), 7) == [("in", 0, 10), ("in", 1, 20)]
    assert checkpoint.source_topics(str(stored)) == {"in"}


@pytest.mark.parametrize("text", ["v3\n{}\n", "", "5"])
def test_a_log_of_an_unknown_version_is_refused(stored: Path, text: str) -> None:
    (stored / "offsets" / "7").write_text(text)
    with pytest.raises(ConfigError, match="and txn knows v1 and v2"):
        checkpoint.source_offsets(str(stored), 7)


def test_source_offsets_of_another_batch_are_refused(stored: Path) -> None:
    with pytest.raises(ConfigError, match="needs the offsets of batch 8"):
        checkpoint.source_offsets(str(stored), 8)


def test_the_ends_of_a_batch_are_told_from_those_of_a_plan_made_anew(stored: Path) -> None:
    planned = checkpoint.source_ends(str(stored), 7)
    assert planned is not None
    lines = (stored / "offsets" / "7").read_text().splitlines()
    later = [lines[0], lines[1].replace("0", "5"), *lines[2:]]
    (stored / "offsets" / "7").write_text("\n".join(later))
    assert checkpoint.source_ends(str(stored), 7) == planned
    (stored / "offsets" / "7").write_text("\n".join([*lines[:2], lines[2].replace("20", "30")]))
    assert checkpoint.source_ends(str(stored), 7) not in (planned, None)
    assert checkpoint.source_ends(str(stored), 8) is None
    assert checkpoint.source_ends("s3a://bucket/checkpoint", 7) is None


def record(state: BatchStage, batch: int, ends: str | None, *slots: Slot) -> Progress:
    return Progress(state, "query-1", batch, slots, (), 0, 0, ends)


def test_batch_is_skipped_only_if_it_is_the_one_in_the_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A checkpoint of an earlier time planned batch 1 anew, with rows that were never written."""
    newest = record(BatchStage.DONE, 1, "ends")
    for same in ("ends", None):
        check_skipped(newest, 1, same)
    check_skipped(record(BatchStage.DONE, 1, None), 1, "others")
    with pytest.raises(RefusedError, match="the checkpoint was brought back from an earlier time"):
        check_skipped(newest, 1, "others")
    assert caplog.text == ""
    check_skipped(newest, 0, "others")
    assert "the checkpoint is older than the output" in caplog.text


def test_replay_writes_the_lost_rows_or_nothing() -> None:
    """A replay in one task instead of two was taken for done, and the lost rows for written."""
    lost = Slot(1, TOKEN, 2)
    known = record(BatchStage.LOST, 1, None, lost)
    check_replayed(known, 1, [Slot(1, TOKEN, 2)])
    for others in ([], [Slot(0, TOKEN, 2)], [Slot(1, TOKEN, 4)], [lost, Slot(2, TOKEN, 1)]):
        with pytest.raises(NotPreparedError, match=r"has lost rows \(task: rows\) \{1: 2\}"):
            check_replayed(known, 1, others)
    check_replayed(record(BatchStage.DONE, 1, None), 2, [])


# ---------------------------------------------------------------- the supervisor


class ScriptedQuery:
    """A query that ends as it is told to, start by start; with a batch first after a "+"."""

    def __init__(self, *ends: str | None) -> None:
        self.ends = list(ends)
        self.starts = 0
        self.pauses: list[float] = []
        self.lastProgress: object = None

    def start(self) -> StreamingQuery:
        self.starts += 1
        return cast(StreamingQuery, self)

    def awaitTermination(self) -> None:
        end = self.ends.pop(0)
        self.lastProgress = {} if end is not None and end.startswith("+") else None
        if end is not None:
            raise StreamingQueryException(end.removeprefix("+"))


def supervise(query: ScriptedQuery, *, restarts_max: int | None = RESTARTS_MAX) -> None:
    clock: Callable[[], float] = lambda: 0.0  # noqa: E731
    run(query.start, clock=clock, pause=query.pauses.append, restarts_max=restarts_max)


def test_query_that_failed_is_started_again_until_it_ends_on_purpose() -> None:
    query = ScriptedQuery("broker gone", "broker gone", None)
    supervise(query)
    assert query.starts == 3
    assert 0.5 <= query.pauses[0] <= 1.0 <= query.pauses[1] <= 2.0


def test_query_that_cannot_succeed_is_not_started_again() -> None:
    query = ScriptedQuery("Traceback ...\ntxn.spark.errors.RefusedError: batch 3 follows 3 others")
    with pytest.raises(StreamingQueryException, match="batch 3 follows"):
        supervise(query)
    assert query.starts == 1


def test_query_that_was_fenced_is_started_once_more() -> None:
    """Its own predecessor may have come to itself late; a second time it is somebody else."""
    fenced = "txn.errors.FencedError: another driver took over txn.id 'q'"
    query = ScriptedQuery(fenced, "broker gone", fenced, None)
    supervise(query)
    assert query.starts == 4
    query = ScriptedQuery(fenced, fenced, None)
    with pytest.raises(StreamingQueryException, match="another driver took over"):
        supervise(query)


def test_supervisor_gives_up_after_the_failures_it_was_given() -> None:
    query = ScriptedQuery("a", "b", "c")
    with pytest.raises(StreamingQueryException, match="c"):
        supervise(query, restarts_max=2)


def test_supervisor_gives_up_by_itself_when_no_batch_is_ever_finished() -> None:
    """It started a query without an output topic again for ever, and nobody was told."""
    query = ScriptedQuery(*["poison"] * 100)
    with pytest.raises(StreamingQueryException, match="poison"):
        supervise(query)
    assert query.starts == 11
    assert sum(query.pauses) < 400


def test_finished_batch_makes_earlier_failures_forgotten() -> None:
    query = ScriptedQuery("a", "b", "+c", "d", "+e", None)
    supervise(query, restarts_max=2)
    assert query.starts == 6


def test_supervisor_may_be_told_never_to_give_up() -> None:
    query = ScriptedQuery(*["a"] * 50, None)
    supervise(query, restarts_max=None)
    assert query.starts == 51


class EndlessQuery(ScriptedQuery):
    """A query that runs until it is stopped."""

    def __init__(self, stop: threading.Event, *, failure: str | None = None) -> None:
        super().__init__()
        self.stop_asked = stop
        self.failure = failure
        self.is_stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Let a signal come while the first wait lasts."""
        self.stop_asked.set()
        if self.is_stopped and self.failure is not None:
            raise StreamingQueryException(self.failure)
        return self.is_stopped

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("failure", [None, "the batch under way was interrupted"])
def test_query_is_stopped_by_the_event_and_not_started_again(failure: str | None) -> None:
    stop = threading.Event()
    query = EndlessQuery(stop, failure=failure)
    run(query.start, stop=stop)
    assert query.is_stopped
    assert query.starts == 1


def test_query_is_not_started_after_the_stop() -> None:
    stop = threading.Event()
    stop.set()
    query = ScriptedQuery()
    run(query.start, stop=stop)
    assert query.starts == 0


OUTAGE = "txn.spark.errors.NoAnswerError: h:1: gave up after 60000 ms"
UNREACHED = "txn.errors.UnreachableError: no broker is reached by kafka.bootstrap.servers: h:1 ref"


@pytest.mark.parametrize("outage", [OUTAGE, UNREACHED])
def test_outage_of_a_cluster_that_answered_before_is_sat_out(outage: str) -> None:
    query = ScriptedQuery("+broker gone", *[outage] * 40, None)
    supervise(query, restarts_max=3)
    assert query.starts == 42
    assert max(query.pauses) <= 60


def test_cluster_that_never_answered_is_given_up() -> None:
    query = ScriptedQuery(*[OUTAGE] * 40)
    with pytest.raises(StreamingQueryException, match="gave up after 60000 ms"):
        supervise(query, restarts_max=3)
    assert query.starts == 4


def test_restarts_and_the_end_are_told_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    query = ScriptedQuery(FAILED_TASK.replace("ConfigError", "NotPreparedError"), FAILED_TASK)
    with pytest.raises(StreamingQueryException) as raised:
        supervise(query)
    restart, end = caplog.messages
    assert restart.startswith("query.restart failures=1 delay_s=")
    assert restart.endswith("reason: NotPreparedError: there is no topic 'out'")
    assert end == (
        "query.given_up starting it again cannot help; reason: ConfigError: there is no topic 'out'"
    )
    assert raised.value.__notes__ == [
        "txn.spark.run gave up (starting it again cannot help). "
        "The reason: ConfigError: there is no topic 'out'"
    ]


FAILED_TASK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Writing job aborted
Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "kafka.py", line 200, in told
_core.KafkaError: ('topic is unknown', 3, False)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 1, in main
txn.errors.ConfigError: there is no topic 'out'

	at org.apache.spark.api.python.BasePythonRunner.java:1
java.lang.RuntimeException: wrapped
"""


CRASHED_WORKER = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Return Message:
Traceback (most recent call last):
  File "readwriter.py", line 1833, in save
    self._jwrite.save()
py4j.protocol.Py4JJavaError: An error occurred while calling o80.save.
: org.apache.spark.SparkException: Writing job aborted
\tat org.apache.spark.sql.execution.datasources.v2.V2ExistingTableWriteExec.run(x.scala:1)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.PythonRunner.read(x.scala:1)
Caused by: java.io.EOFException
\t... 28 more
Caused by: java.io.EOFException
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (FAILED_TASK, "ConfigError: there is no topic 'out'"),
        (
            CRASHED_WORKER,
            "org.apache.spark.SparkException: Writing job aborted, caused by "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed), "
            "caused by java.io.EOFException",
        ),
        (
            "Traceback (most recent call last):\n  File x\nZeroDivisionError: by zero\n\tat x",
            "Zero",
        ),
        ("[STREAM_FAILED] Query failed\n\tat java", "[STREAM_FAILED] Query failed"),
        ("", "no message"),
    ],
)
def test_reason_is_the_line_that_says_what_happened(message: str, reason: str) -> None:
    assert reason_of(message).startswith(reason)


def test_warnings_are_heard_where_nobody_set_up_logging() -> None:
    """As in a Python worker; the package's own logger drops lines that nobody listens to."""
    code = "import txn; from txn.spark.logs import log; log.warning('source.data_loss x=1')"
    quiet = f"import logging; logging.basicConfig(handlers=[logging.NullHandler()]); {code}"
    heard = f"import logging, sys; logging.basicConfig(stream=sys.stdout); {code}"
    told = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        for text in (code, quiet, heard)
    ]
    assert [done.stderr.count("WARNING source.data_loss x=1") for done in told] == [1, 1, 0]
    assert told[2].stdout.count("source.data_loss x=1") == 1


@pytest.mark.parametrize(
    ("message", "is_final"),
    [
        ("txn.errors.ConfigError: unknown option", True),
        ("txn.spark.errors.NotPreparedError: times out", False),
        ("_core.KafkaError: no node answers", False),
        ("txn.spark.errors.NoAnswerError: no node answers", False),
        ("txn.errors.RejectedError: no access", True),
    ],
)
def test_errors_are_told_apart_by_their_text(message: str, is_final: bool) -> None:
    assert is_hopeless(message) is is_final


# ---------------------------------------------------------------- the connector's jars


def test_jars_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXN_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        connector_jars.JarsUnavailableError, match=r"put these files into .*: spark"
    ):
        connector_jars.jars()


def test_a_comparison_with_another_spark_is_refused_with_the_command_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The extra installs 4.3, so the page about moving failed at its first step."""
    monkeypatch.setattr(connector_jars, "version", lambda _: "4.3.0")
    with pytest.raises(ConfigError, match=r"pip install 'pyspark==4\.2\.\*'"):
        connector_jars.jars()


def test_jar_with_another_checksum_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "spark-4.2"
    place.mkdir()
    for jar in connector_jars.JARS:
        (place / jar.file).write_bytes(b"not a jar")
    monkeypatch.setenv("TXN_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(connector_jars.JarsUnavailableError):
        connector_jars.jars()


def test_cached_jars_are_used_without_fetching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = connector_jars.Jar(
        "g", "n", "1", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    )
    monkeypatch.setattr(connector_jars, "JARS", (jar,))
    monkeypatch.setenv("TXN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "spark-4.2").mkdir()
    (tmp_path / "spark-4.2" / "n-1.jar").write_bytes(b"hello")
    assert ",".join(connector_jars.jars()) == f"{tmp_path}/spark-4.2/n-1.jar"
