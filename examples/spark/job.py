"""The command line, the session and the clean stop of the programs beside this file.

A program makes a `Program` of its docstring and of a function that starts its query. The function
gets the session and the arguments, among them:

    given.cluster      Options of `format("txn")`: the cluster, and the way in.
    given.source       The same for reading a stream: from its start, and the size of a batch.
    given.sink         The same for writing a stream, with its checkpoint.
    given.trigger      For `trigger(**…)`: a pause between batches, or until the present end.
    given.checkpoint   The directory of the checkpoint.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import javaproperties

import txn.spark

# Spark is imported after txn.spark, which says which Python the workers are.
from pyspark.sql import SparkSession  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip

Start = Callable[[SparkSession, argparse.Namespace], StreamingQuery]
Run = Callable[[SparkSession, argparse.Namespace, threading.Event], None]

SPARK = {
    "spark.master": "local[*,4]",  # 4: a failed task is tried again
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Defaults of the session; `--conf` overrides them."""


class Program:
    """A program for the shell; `options` are its topics and their defaults."""

    def __init__(
        self, doc: str | None, start: Start | None = None, run: Run | None = None, **options: str
    ) -> None:
        self.doc = doc or ""
        self.options = options
        self.run: Run = run or partial(_keep_running, start)

    def main(self) -> None:
        """Run until SIGTERM or Ctrl-C, or until the end with `--available-now`."""
        given = self.given(sys.argv[1:])
        spark = session(dict(given.conf))
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        self.run(spark, given, stop)
        spark.stop()

    def given(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments of a command line."""
        parser = argparse.ArgumentParser(
            description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        for name, default in self.options.items():
            parser.add_argument(_word(name), default=default, help=f"[default: {default}]")
        add = parser.add_argument
        add("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT[,…]")
        add("--command-config", type=Path, metavar="FILE", help="security.protocol, sasl.*, ssl.*")
        add("--checkpoint", required=True, metavar="DIRECTORY", help="new for each new job")
        add("--available-now", action="store_true", help="stop at the present end of the input")
        add("--every", default="1 second", metavar="TIME", help="between batches [1 second]")
        add("--max-offsets-per-trigger", metavar="N", help="records in a batch [all there are]")
        add("--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="Spark")
        given = parser.parse_args(words)
        given.cluster = access(given.bootstrap_servers, given.command_config)
        limit = given.max_offsets_per_trigger
        given.source = given.cluster | {"startingOffsets": "earliest"}
        given.source |= {} if limit is None else {"maxOffsetsPerTrigger": limit}
        given.sink = given.cluster | {"checkpointLocation": given.checkpoint}
        given.trigger = {"processingTime": given.every}
        if given.available_now:
            given.trigger = {"availableNow": True}
        return given


def access(servers: str, command_config: Path | None) -> dict[str, str]:
    """Options of `format("txn")` for a cluster; the file is that of Kafka's own tools."""
    properties: Mapping[str, str] = {}
    if command_config is not None:
        properties = javaproperties.loads(command_config.read_text())
    secured = {f"kafka.{name}": value for name, value in properties.items()}
    return {"kafka.bootstrap.servers": servers} | secured


def session(settings: Mapping[str, str]) -> SparkSession:
    """A session with `SPARK` and some settings over it."""
    spark = SparkSession.builder.config(map={**SPARK, **settings}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    txn.spark.register(spark)
    return spark


def _keep_running(
    start: Start | None, spark: SparkSession, given: argparse.Namespace, stop: threading.Event
) -> None:
    assert start is not None, "a program has `start` or `run`"
    txn.spark.run(lambda: start(spark, given), stop=stop)


def _word(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
