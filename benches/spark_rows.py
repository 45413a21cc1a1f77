"""Rows a second of Spark through txn's source and sink, beside Spark's Kafka connector.

    python -m benches.spark_rows [--rounds 5] [--rows 8000000] [--case NAME]... [--json FILE]

One session and one txn broker, which both connectors use in turns. A row is a key of 8 bytes and a
value of 104; topics have four partitions, and Spark two tasks at a time. CPU is that of Spark's
processes, the JVM and all Python workers; the broker's stands beside it.

| case | |
|---|---|
| read | a batch read, read_committed, into Spark's `noop` sink |
| write | a batch write of rows that cost little to make; txn's is exactly once |
| made | the same rows into `noop`: the part of a write that is neither's |

`txn, two columns` is told by the option `columns` that key and value are enough. `idle` is a source
or sink in Python that does nothing, the floor of Spark for any; its source has the same columns as
`txn`, or two.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from benches.contestants import ROOT, Contestant, commit_of, cpu_time, delete_topic
from benches.spark import (
    SPARK,
    at_least_one,
    in_turns,
    median,
    ratio,
    spark_and_broker,
    spark_processes,
)
from rich.console import Console
from rich.table import Table

from support.clients import create_topic
from support.cpu import CpuMeter
from support.memory import MEMORY

STOCK: Final = "kafka"
OWN: Final = "txn"
NARROW: Final = "txn, two columns"
IDLE: Final = "idle"
IDLE_NARROW: Final = "idle, two columns"
NOOP: Final = "noop"
PARTITIONS: Final = 4
SETTINGS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}
VALUE_BYTES: Final = 104
FIRST_KEY: Final = 10_000_000
ROWS_MAX: Final = 90_000_000
"""Keys have eight digits from `FIRST_KEY` on."""
PAGES_BYTES: Final = 4 << 30

_numbers = count()


@dataclass(frozen=True)
class Cost:
    """The cost of one run.

    Attributes:
        rows_per_s: By the clock.
        cpu_s: CPU seconds of Spark's processes for a million rows.
        broker_cpu_s: Those of the broker.
    """

    rows_per_s: float
    cpu_s: float
    broker_cpu_s: float


class Bench:
    """A session and its topics."""

    def __init__(self, session: Any, broker: Contestant, rows: int) -> None:
        self._session = session
        self._broker = broker
        self._rows = rows
        self._cpu = CpuMeter(partial(spark_processes, broker))

    def fill(self) -> None:
        """Write the topic that is read."""
        create_topic(self._broker.bootstrap_servers, "rows", PARTITIONS)
        self._save(self._made(), OWN, "rows")

    def read(self, connector: str) -> Cost:
        """Read all rows of a topic."""
        reader = self._session.read.format(connector.partition(",")[0])
        if connector in (IDLE, IDLE_NARROW):
            reader = reader.option("partitions", str(PARTITIONS)).option("rows", str(self._rows))
            if connector == IDLE:
                reader = reader.option("all", "true")
        else:
            reader = reader.option("kafka.bootstrap.servers", self._broker.bootstrap_servers)
            reader = reader.option("kafka.isolation.level", "read_committed")
            reader = reader.option("subscribe", "rows")
        if connector == NARROW:
            reader = reader.option("columns", "key,value")
        rows = reader.load().select("key", "value")
        return self._measured(lambda: self._save(rows, NOOP))

    def write(self, connector: str) -> Cost:
        """Write rows to a topic of their own."""
        if connector in (NOOP, IDLE):
            return self._measured(lambda: self._save(self._made(), connector))
        topic = f"written-{next(_numbers)}"
        create_topic(self._broker.bootstrap_servers, topic, PARTITIONS)
        cost = self._measured(lambda: self._save(self._made(), connector, topic))
        delete_topic(self._broker, topic)
        return cost

    def _made(self) -> Any:
        rows = self._session.range(0, self._rows, 1, PARTITIONS)
        key = f"cast(cast(id + {FIRST_KEY} AS string) AS binary) AS key"
        return rows.selectExpr(key, f"X'{'76' * VALUE_BYTES}' AS value")

    def _save(self, rows: Any, sink: str, topic: str = "") -> None:
        writer = rows.write.format(sink).mode("append")
        if sink not in (NOOP, IDLE):
            writer = writer.option("kafka.bootstrap.servers", self._broker.bootstrap_servers)
            writer = writer.option("topic", topic)
        writer.save()

    def _measured(self, run: Callable[[], None]) -> Cost:
        _touch_pages()
        spark_before_s, broker_before = self._cpu.seconds()[SPARK], cpu_time(self._broker.pid)
        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        millions = self._rows / 1e6
        return Cost(
            rows_per_s=self._rows / seconds,
            cpu_s=(self._cpu.seconds()[SPARK] - spark_before_s) / millions,
            broker_cpu_s=(cpu_time(self._broker.pid) - broker_before).total / millions,
        )


CASES: Final[Mapping[str, tuple[Callable[[Bench, str], Cost], Sequence[str]]]] = {
    "read": (Bench.read, (STOCK, OWN, IDLE, NARROW, IDLE_NARROW)),
    "write": (Bench.write, (STOCK, OWN, IDLE)),
    "made": (Bench.write, (NOOP,)),
}


def main() -> None:
    arguments = _parse()
    console = Console(stderr=True)
    cases = arguments.case or list(CASES)
    runs = [(case, connector) for case in cases for connector in CASES[case][1]]
    found: dict[tuple[str, str], list[Cost]] = {run: [] for run in runs}
    with spark_and_broker(**SETTINGS) as (session, broker, _):
        bench = Bench(session, broker, arguments.rows)
        bench.fill()
        for when, (case, connector), is_counted in in_turns(runs, arguments.rounds):
            cost = CASES[case][0](bench, connector)
            console.print(f"{when}  {case} {connector}: {_in_words(cost)}", markup=False)
            if is_counted:
                found[case, connector].append(cost)
    Console(width=None if os.isatty(1) else 120).print(_table(found, arguments))
    if arguments.json is not None:
        costs = {" ".join(run): [asdict(cost) for cost in each] for run, each in found.items()}
        arguments.json.write_text(json.dumps(costs, indent=1))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=5, help="after a cold one (5)")
    parser.add_argument("--rows", type=_rows, default=8_000_000, help="in each run (8000000)")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one")
    parser.add_argument("--json", type=Path, help="write every value there")
    return parser.parse_args()


def _rows(text: str) -> int:
    if (rows := at_least_one(text)) > ROWS_MAX or rows % PARTITIONS:
        raise argparse.ArgumentTypeError(
            f"give a multiple of {PARTITIONS}, one part for each partition, up to {ROWS_MAX}"
        )
    return rows


def _touch_pages() -> None:
    """Have the system own free memory.

    A host takes it back from an idle machine, and the first write to such a page costs ten times as
    much. So each run begins with pages that were written a moment ago.
    """
    with tempfile.NamedTemporaryFile(dir=MEMORY) as file:
        block = bytes(16 << 20)
        for _ in range(PAGES_BYTES // len(block)):
            file.write(block)


def _in_words(cost: Cost) -> str:
    return (
        f"{cost.rows_per_s / 1e6:.2f} M rows/s, {cost.cpu_s:.2f} s of CPU for a million rows, "
        f"broker {cost.broker_cpu_s:.2f} s"
    )


def _table(found: Mapping[tuple[str, str], Sequence[Cost]], arguments: argparse.Namespace) -> Table:
    table = Table(
        title=(
            f"{arguments.rows:,} rows of {8 + VALUE_BYTES} bytes; txn {commit_of(ROOT)}, medians "
            f"of {arguments.rounds} rounds; load average {os.getloadavg()[0]:.1f}"
        ),
        title_justify="left",
    )
    for column in ("case", "connector", "rows/s", "ratio", "CPU s/M rows", "ratio", "broker s/M"):
        table.add_column(column, justify="left" if column in ("case", "connector") else "right")
    for (case, connector), costs in found.items():
        stock = found.get((case, STOCK), [])
        rates, spent = [cost.rows_per_s for cost in costs], [cost.cpu_s for cost in costs]
        table.add_row(
            case,
            connector,
            f"{median(rates) / 1e6:.2f} M",
            ratio(rates, [cost.rows_per_s for cost in stock]),
            f"{median(spent):.2f}",
            ratio([cost.cpu_s for cost in stock], spent) if stock else "",
            f"{median(cost.broker_cpu_s for cost in costs):.2f}",
        )
    return table


if __name__ == "__main__":
    main()
