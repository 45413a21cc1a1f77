"""A tiny micro-batch of Spark through txn's source and sink, beside Spark's Kafka connector.

    python -m benches.spark [--rounds 5] [--batches 40] [--partitions 4] [--pair NAME]...
                            [--json FILE]

One session and one txn broker, which all pairs of a source and a sink use in turns. Each query
reads a topic that was filled before, one record of each partition in a batch, without a pause
between batches. So a batch is Spark's own work and the connector's. Its time is Spark's own
(`triggerExecution`), its CPU that of Spark's processes: the JVM and all Python workers.

| pair | |
|---|---|
| kafka → kafka | Spark's connector; its sink has no transaction |
| txn → txn | exactly once |
| kafka → noop, txn → noop | the source alone |
| idle → idle | a source and a sink in Python that do nothing, in one task: Spark's floor |
| idle-tasks → idle | the same with a reading task for each partition |
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
from benches.contestants import ROOT, Contestant, Txn, commit_of
from rich.console import Console
from rich.table import Table

from support.cpu import CpuMeter

Run = TypeVar("Run")

STOCK: Final = "kafka → kafka"
OWN: Final = "txn → txn"
PAIRS: Final = (STOCK, OWN, "kafka → noop", "txn → noop", "idle → idle", "idle-tasks → idle")
OF: Final = {"txn → noop": "kafka → noop"}
"""The pair that another one is divided by; else `STOCK`."""

WARM_BATCHES: Final = 10
"""Batches at the beginning of a query that are not counted."""
POLL_S: Final = 0.05
WAIT_S: Final = 120.0
PHASES: Final = (
    *("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitBatch"),
    "commitOffsets",
)

SPARK: Final = "Spark"
"""The role of its processes."""

_numbers = count()


@dataclass(frozen=True)
class Cost:
    """The cost of one batch: medians of a query's batches, in milliseconds."""

    batch_ms: float
    cpu_ms: float
    phases_ms: Mapping[str, float]


class Bench:
    """A session and its topics."""

    def __init__(self, session: Any, broker: Contestant, place: Path, partitions: int) -> None:
        self._session = session
        self._servers = broker.bootstrap_servers
        self._place = place
        self._partitions = partitions
        self._cpu = CpuMeter(partial(spark_processes, broker))

    def measure(self, pair: str, batches: int) -> Cost:
        """Run a query over so many batches, and tell the cost of one."""
        source, _, sink = pair.partition(" → ")
        writer = self._read(source).writeStream.format(sink)
        checkpoint = self._place / f"checkpoint-{next(_numbers)}"
        writer = writer.option("checkpointLocation", str(checkpoint))
        if sink in ("kafka", "txn"):
            writer = writer.option("kafka.bootstrap.servers", self._servers)
            writer = writer.option("topic", "output")
        query = writer.start()
        try:
            first, cpu_before_s = self._reached(query, WARM_BATCHES)
            last, cpu_after_s = self._reached(query, first + batches)
            found = [each for each in query.recentProgress if first < each.batchId <= last]
        finally:
            query.stop()
        durations = [each.durationMs for each in found]
        return Cost(
            batch_ms=median(each["triggerExecution"] for each in durations),
            cpu_ms=1000 * (cpu_after_s - cpu_before_s) / (last - first),
            phases_ms={
                name: median(each.get(name, 0) for each in durations)
                for name in PHASES
                if any(name in each for each in durations)
            },
        )

    def _read(self, source: str) -> Any:
        reader = self._session.readStream.format(source)
        if source.startswith("idle"):
            return reader.option("partitions", str(self._partitions)).load()
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", "input").option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", str(self._partitions))
        return reader.load().select("key", "value")

    def _reached(self, query: Any, batch: int) -> tuple[int, float]:
        """Wait until a batch has ended; return the number of the last, and the CPU so far."""
        ends = time.monotonic() + WAIT_S
        while True:
            progress, spent_s = query.lastProgress, self._cpu.seconds()[SPARK]
            if progress is not None and progress.batchId >= batch:
                return progress.batchId, spent_s
            if not query.isActive or time.monotonic() > ends:
                raise RuntimeError(f"the query stands still: {query.exception() or query.status}")
            time.sleep(POLL_S)


def main() -> None:
    arguments = _parse()
    console = Console(stderr=True)
    pairs = arguments.pair or list(PAIRS)
    found: dict[str, list[Cost]] = {pair: [] for pair in pairs}
    with spark_and_broker() as (session, broker, place):
        _fill(broker, arguments.partitions, WARM_BATCHES + arguments.batches)
        bench = Bench(session, broker, place, arguments.partitions)
        for when, pair, is_counted in in_turns(pairs, arguments.rounds):
            cost = bench.measure(pair, arguments.batches)
            console.print(
                f"{when}  {pair}: {cost.batch_ms:.0f} ms, {cost.cpu_ms:.0f} ms of CPU, "
                f"{_in_words(cost.phases_ms)}",
                markup=False,
            )
            if is_counted:
                found[pair].append(cost)
    Console(width=None if os.isatty(1) else 120).print(_table(found, arguments))
    if arguments.json is not None:
        costs = {pair: [asdict(cost) for cost in each] for pair, each in found.items()}
        arguments.json.write_text(json.dumps(costs, indent=1))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=5, help="after a cold one (5)")
    parser.add_argument("--batches", type=at_least_one, default=40, help="of each query (40)")
    parser.add_argument("--partitions", type=at_least_one, default=4, help="of the topics (4)")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this one")
    parser.add_argument("--json", type=Path, help="write every value there")
    return parser.parse_args()


def at_least_one(text: str) -> int:
    """Read a count of the command line. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def in_turns(runs: Sequence[Run], rounds: int) -> Iterator[tuple[str, Run, bool]]:
    """Yield the runs of a cold round and of so many others, each with its round's name.

    The last of the three is True where a run is counted. Every other round has them in reverse.
    """
    for number in range(rounds + 1):
        when = f"round {number}/{rounds}" if number else "cold"
        for run in runs if number % 2 else runs[::-1]:
            yield when, run, number > 0


@contextmanager
def spark_and_broker(**settings: str) -> Iterator[tuple[Any, Contestant, Path]]:
    """Run Spark with both connectors beside a txn broker; yield session, broker, directory."""
    with tempfile.TemporaryDirectory(
        prefix="txn-bench-", dir=os.environ.get("TXN_BENCH_DIR")
    ) as folder:
        broker = Txn(Path(folder))
        broker.start()
        try:
            session = _session(settings)
            try:
                yield session, broker, Path(folder)
            finally:
                session.stop()
        finally:
            broker.stop()


def _session(settings: Mapping[str, str]) -> Any:
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), path])  # for the workers

    from benches.idle_source import Idle, IdleTasks
    from pyspark.sql import SparkSession

    import txn.spark

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = (
        builder.master("local[2,4]")
        .config("spark.jars", ",".join(txn.spark.jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    txn.spark.register(session)
    for source in (Idle, IdleTasks):
        session.dataSource.register(source)
    return session


def _fill(broker: Contestant, partitions: int, batches: int) -> None:
    """Make the topics; the one to read gets a record per batch and partition, and some more."""
    from support import clients

    for name in ("input", "output"):
        clients.create_topic(broker.bootstrap_servers, name, partitions)
    producer = clients.plain_producer(broker.bootstrap_servers)
    for number in range(partitions):
        clients.send(producer, "input", [b"v" * 100] * (4 * batches), number)


def spark_processes(broker: Contestant) -> Iterator[tuple[psutil.Process, str]]:
    """The processes that this one has started, without the broker, each with its role."""
    for process in psutil.Process().children(recursive=True):
        if process.pid != broker.pid:
            yield process, SPARK


def _table(found: Mapping[str, Sequence[Cost]], arguments: argparse.Namespace) -> Table:
    table = Table(
        title=(
            f"a batch of {arguments.partitions} records, one from each partition; txn "
            f"{commit_of(ROOT)}, medians of {arguments.rounds} rounds of {arguments.batches} "
            f"batches; load average {os.getloadavg()[0]:.1f}"
        ),
        title_justify="left",
    )
    for column in ("pair", "batch", "ratio", "CPU", "ratio", "phases"):
        table.add_column(column, justify="left" if column in ("pair", "phases") else "right")
    for pair, costs in found.items():
        stock = found.get(OF.get(pair, STOCK), [])
        names = costs[0].phases_ms
        table.add_row(
            pair,
            f"{median(cost.batch_ms for cost in costs):.0f} ms",
            ratio([cost.batch_ms for cost in costs], [cost.batch_ms for cost in stock]),
            f"{median(cost.cpu_ms for cost in costs):.0f} ms",
            ratio([cost.cpu_ms for cost in costs], [cost.cpu_ms for cost in stock]),
            _in_words({name: median(cost.phases_ms[name] for cost in costs) for name in names}),
        )
    return table


def ratio(own: Sequence[float], stock: Sequence[float]) -> str:
    """The median of the rounds' ratios."""
    if not stock:
        return ""
    return f"{median(a / b for a, b in zip(own, stock, strict=True)):.2f} ×"


def _in_words(phases_ms: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in phases_ms.items())


def median(values: Iterable[float]) -> float:
    """The median of a figure's values."""
    return float(statistics.median(values))


if __name__ == "__main__":
    main()
