"""Clients beside each other: txn's native engine and confluent-kafka, on txn and on Apache Kafka.

    python -m benches.clients [--quick] [--case NAME]... [--rounds 5] [--json FILE]

Both brokers stay up, and the four pairs of a broker and a client take turns in every round. The
first round warms Kafka up and is not counted. Medians of the others are compared. The CPU of a
transaction or a record is the client's and the broker's together. The goal of a case is a multiple
of Apache Kafka with confluent-kafka, unless it says otherwise.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from benches.contestants import (
    KAFKA_VERSION,
    ROOT,
    Contestant,
    Kafka,
    Txn,
    cpu_time,
)
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from support.clients import create_topic

NATIVE: Final = "native"
PLAIN: Final = "confluent-kafka"
MANY: Final = 32
READ_RECORDS: Final = 1_000_000
READ_RECORDS_QUICK: Final = 200_000
LOOP_RECORDS: Final = 20_000


class Pair(NamedTuple):
    """A broker and the client that loads it."""

    broker: str
    engine: str

    def __str__(self) -> str:
        return f"{self.broker} + {self.engine}"


PAIRS: Final = (
    Pair("txn", NATIVE),
    Pair("txn", PLAIN),
    Pair("Kafka", NATIVE),
    Pair("Kafka", PLAIN),
)
PEER: Final = Pair("Kafka", PLAIN)


@dataclass(frozen=True)
class Case:
    """A kind of work.

    Attributes:
        name: Its name on the command line.
        title: Its description.
        program: Of `benches.client_programs`.
        goal: The rate to reach, as a multiple of `beside`.
        beside: Which pair and case the goal refers to; None: the peer, in the same case.
        producers: Threads, each with a transactional id.
        engines: The clients that can do it.
        is_read: It reads a topic that is filled once.
        is_time: Its figure is milliseconds; the goal is an absolute number of them.
    """

    name: str
    title: str
    program: str
    goal: float
    beside: tuple[Pair, str] | None = None
    producers: int = 1
    engines: tuple[str, ...] = (NATIVE, PLAIN)
    is_read: bool = False
    is_time: bool = False


OURS_PLAIN: Final = Pair("txn", PLAIN)
CASES: Final = (
    Case("small-1", "10 records to 3 partitions, 1 producer", "small", 12),
    Case("small-32", "the same, 32 producers", "small", 8, producers=MANY),
    Case("loop-1", "consume, transform, produce, 1 producer", "loop", 100),
    Case("loop-32", "the same, 32 producers", "loop", 6, producers=MANY),
    Case("produce", "produce 100 B, one call each", "produce", 2, (OURS_PLAIN, "produce")),
    Case(
        "aio", "the same, awaited (txn.aio)", "aio", 1, (OURS_PLAIN, "produce"), engines=(NATIVE,)
    ),
    Case(
        "columns", "the same, as columns", "columns", 20, (OURS_PLAIN, "produce"), engines=(NATIVE,)
    ),
    Case("poll", "poll 100 B, one call each", "poll", 2, (OURS_PLAIN, "poll"), is_read=True),
    Case(
        "poll-columns",
        "the same, as columns",
        "poll-columns",
        20,
        (OURS_PLAIN, "poll"),
        engines=(NATIVE,),
        is_read=True,
    ),
    Case("first", "imports and a first transaction, ms", "first", 60, is_time=True),
)


class Measured(NamedTuple):
    """One run: items a second, or milliseconds; and microseconds of CPU of an item."""

    rate: float
    cpu_us: float


Results = dict[tuple[str, Pair], list[Measured]]


def main() -> None:
    """Play the rounds; print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two short rounds; not to quote")
    names = [case.name for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this one")
    parser.add_argument("--rounds", type=int, help="how many are compared (5; quick: 2)")
    parser.add_argument("--json", type=Path, help="write every value there")
    given = parser.parse_args()
    rounds = given.rounds or (2 if given.quick else 5)
    wanted = [case for case in CASES if not given.case or case.name in given.case]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="txn-clients-") as place:
        brokers: dict[str, Contestant] = {"txn": Txn(Path(place)), "Kafka": Kafka(Path(place))}
        for name, broker in brokers.items():
            console.print(f"starting {name}")
            broker.start()
        try:
            run = _Run(brokers, 0.7 if given.quick else 2.0, given.quick)
            for number in range(rounds + 1):
                for case in wanted:
                    for pair in PAIRS:
                        if pair.engine in case.engines:
                            measured = run.measure(case, pair, is_counted=number > 0)
                            when = f"round {number}/{rounds}" if number else "warming up"
                            console.print(f"{when}  {case.name}  {pair}: {measured.rate:,.1f}")
        finally:
            for broker in brokers.values():
                broker.stop()
    console.print(
        f"{os.cpu_count()} processors, Apache Kafka {KAFKA_VERSION}, "
        f"Python {sys.version.split()[0]}"
    )
    Console(width=None if os.isatty(1) else 170).print(_table(wanted, run.results))
    if given.json is not None:
        values = {f"{name}: {pair}": found for (name, pair), found in run.results.items()}
        given.json.write_text(json.dumps(values, indent=1))


class _Run:
    def __init__(self, brokers: Mapping[str, Contestant], seconds: float, is_quick: bool) -> None:
        self.results: Results = {}
        self._brokers = brokers
        self._seconds = seconds
        self._read = READ_RECORDS_QUICK if is_quick else READ_RECORDS
        self._numbers = count()
        self._filled: dict[str, str] = {}

    def measure(self, case: Case, pair: Pair, *, is_counted: bool) -> Measured:
        broker = self._brokers[pair.broker]
        topic = self._topic_to_read(pair.broker) if case.is_read else self._new_topic(case, broker)
        before = cpu_time(broker.pid)
        done = self._program(case.program, pair, topic, case.producers, case.is_read)
        broker_s = (cpu_time(broker.pid) - before).total
        rate = done["seconds"] * 1e3 if case.is_time else done["count"] / done["seconds"]
        measured = Measured(rate, (done["cpu_s"] + broker_s) / done["count"] * 1e6)
        if is_counted:
            self.results.setdefault((case.name, pair), []).append(measured)
        if not case.is_read:
            _delete_topics(broker, [topic, f"{topic}-out"] if case.program == "loop" else [topic])
        return measured

    def _new_topic(self, case: Case, broker: Contestant) -> str:
        topic = f"{case.program}-{next(self._numbers)}"
        create_topic(broker.bootstrap_servers, topic, max(3, case.producers))
        if case.program == "loop":
            create_topic(broker.bootstrap_servers, f"{topic}-out", case.producers)
            self._fill(broker, topic, LOOP_RECORDS, case.producers)
        return topic

    def _topic_to_read(self, name: str) -> str:
        broker = self._brokers[name]
        if name not in self._filled:
            self._filled[name] = "read"
            create_topic(broker.bootstrap_servers, "read", 1)
            self._fill(broker, "read", self._read, 1)
        return self._filled[name]

    def _fill(self, broker: Contestant, topic: str, records: int, partitions: int) -> None:
        options = (f"--filled={records}", f"--producers={partitions}")
        _program(["fill", f"--bootstrap={broker.bootstrap_servers}", f"--topic={topic}", *options])

    def _program(
        self, program: str, pair: Pair, topic: str, producers: int, is_read: bool
    ) -> dict[str, float]:
        broker = self._brokers[pair.broker]
        return _program(
            [
                program,
                f"--engine={pair.engine}",
                f"--bootstrap={broker.bootstrap_servers}",
                f"--topic={topic}",
                f"--output={topic}-out",
                f"--producers={producers}",
                f"--seconds={self._seconds}",
                f"--filled={self._read if is_read else LOOP_RECORDS}",
            ]
        )


def _delete_topics(broker: Contestant, names: list[str]) -> None:
    """Delete topics, so that their pages leave the cache before they are written back."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_topics(names, operation_timeout=30).values():
        future.result()


def _program(words: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benches.client_programs", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stderr.strip()}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _table(cases: Sequence[Case], results: Results) -> Table:
    medians = {key: _median(found) for key, found in results.items()}
    table = Table(title="a second, and microseconds of CPU of client and broker for each")
    table.add_column("work")
    for pair in PAIRS:
        table.add_column(str(pair), justify="right")
    table.add_column("native on txn", justify="right")
    table.add_column("native on Kafka", justify="right")
    table.add_column("goal", justify="right")
    for case in cases:
        cells = []
        for pair in PAIRS:
            found = medians.get((case.name, pair))
            cells.append("" if found is None else f"{found.rate:,.0f} ({found.cpu_us:,.1f} µs)")
        table.add_row(case.title, *cells, *_ratios(case, medians))
    return table


def _ratios(case: Case, medians: Mapping[tuple[str, Pair], Measured]) -> tuple[str, str, str]:
    ours, theirs = medians[case.name, PAIRS[0]], medians.get((case.name, Pair("Kafka", NATIVE)))
    if case.is_time:
        return f"{ours.rate:.0f} ms", "" if theirs is None else f"{theirs.rate:.0f} ms", "60 ms"
    pair, other = case.beside or (PEER, case.name)
    beside = medians.get((other, pair))
    peer = medians.get((case.name, PEER))
    ratio = "" if beside is None else f"{ours.rate / beside.rate:.1f} ×"
    on_kafka = "" if peer is None or theirs is None else f"{theirs.rate / peer.rate:.1f} ×"
    return ratio, on_kafka, f"{case.goal:g} ×"


def _median(found: Sequence[Measured]) -> Measured:
    return Measured(
        statistics.median(each.rate for each in found),
        statistics.median(each.cpu_us for each in found),
    )


if __name__ == "__main__":
    main()
