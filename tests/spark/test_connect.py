"""Spark Connect: the programs of the classic session, unchanged but for the session's address."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark.jobs import put, texts
from spark.logs import tail
from spark.processes import ConnectServer
from support import clients
from support.samples import left_out
from txn.spark.session import KEYS_HIDDEN

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

JOB_S_MAX = 600.0
PIPELINE = Path(__file__).parents[2] / "examples" / "spark" / "pipeline"


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server.master


@pytest.fixture(scope="module")
def found(connect: str, servers: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings of `connect_job.py`, and as "logged" its standard error."""
    job, place = Path(__file__).with_name("connect_job.py"), tmp_path_factory.mktemp("job")
    done = _run([str(job), connect, servers, str(place)], place, {})
    findings: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**findings, "logged": done.stderr}


def test_write_without_a_mode_appends_and_a_read_finds_it(found: dict[str, Any]) -> None:
    assert found["batch"] == ["apple", "avocado", "banana"]


def test_P3_stream_that_runs_a_batch_again_writes_every_row_exactly_once(
    found: dict[str, Any],
) -> None:
    assert found["copies"] == ["apple", "avocado", "banana", "blueberry"]


def test_P3_foreach_batch_that_runs_again_writes_every_update_exactly_once(
    found: dict[str, Any],
) -> None:
    assert found["totals"] == ["1", "2", "2"]
    assert found["status"] == "done"


def test_mistake_in_an_option_is_told_as_in_the_classic_session(found: dict[str, Any]) -> None:
    assert "unknown option 'subscribes' for reading; did you mean subscribe?" in found["mistake"]


def test_redaction_that_connect_does_not_tell_is_left_as_it_is(found: dict[str, Any]) -> None:
    """`register` failed at it, and at a second call: its own expression held the word `token`."""
    assert "redaction" not in found
    assert found["logged"].count("session.redaction ") == 1
    assert KEYS_HIDDEN in found["logged"]


@left_out
def test_P3_declarative_pipeline_writes_new_rows_once_with_every_run(
    connect: str, servers: str, tmp_path: Path
) -> None:
    place = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, place)
    spec = place / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/capitals", (tmp_path / "kept").as_uri()))
    clients.create_topic(servers, "orders", 2)
    run = ["-m", "pyspark.pipelines.cli", "run"]
    environment = {"SPARK_REMOTE": connect, "SERVERS": servers}
    put(servers, "orders", ["7 apples"])
    _run(run, place, environment)
    first = texts(servers, "capitals")
    put(servers, "orders", ["3 pears"])
    _run(run, place, environment)
    assert (first, texts(servers, "capitals")) == (["7 APPLES"], ["3 PEARS", "7 APPLES"])


def _run(
    words: list[str], place: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a Python program that has to succeed."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **environment},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=JOB_S_MAX,
        check=False,
    )
    assert done.returncode == 0, tail(done.stderr)
    return done
