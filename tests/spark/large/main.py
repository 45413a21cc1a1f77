"""A batch of many gigabytes, a stream over 1,000 partitions, a task that writes 5,000 of them.

    python tests/spark/large/main.py [--gib 8] [--inputs 1000] [--outputs 5000] [--directory D]
                                     [--json]

Starts a broker of its own. The batch needs twice `--gib` on the disk, for it is read from one topic
and written to another; 0 leaves it out. CPU is that of Spark's processes and of the broker.

Exit code 0: each row of each part is in the output once, with its content.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
from confluent_kafka import KafkaError

import txn.spark
from spark.long.memory import Meter
from spark.sessions import session
from support import clients
from support.brokers import BrokerProcess
from support.cpu import CpuMeter
from txn.demo.judge import committed_values

GIB: Final = 1 << 30
ROW_BYTES: Final = 1_000
POOL: Final = os.urandom(1 << 20)
"""Values are slices of it: they do not compress, and are known from their row's number."""

SPARK: Final = {
    "spark.app.name": "txn-large",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
BATCH_PARTITIONS: Final = 8
BATCHES: Final = 4
LOOK_S: Final = 0.5
ROWS_PER_PARTITION: Final = 100
SPARE_GIB: Final = 8
"""Room on the disk that stays free."""


@dataclass
class Part:
    """One part of the run."""

    name: str
    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    missing: int = 0
    repeated: int = 0
    wrong: int = 0
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return not (self.missing or self.repeated or self.wrong)


class Large:
    """A broker, a session and the parts that were run."""

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        self.directory = directory
        self.parts: list[Part] = []
        self._tell = tell
        self._broker = BrokerProcess(directory / "data")
        self.servers = self._broker.bootstrap_servers
        self.spark = session(SPARK)
        txn.spark.register(self.spark)
        self._cpu = CpuMeter(self._children)
        self._stop = threading.Event()
        threading.Thread(target=self._watch_cpu, name="cpu", daemon=True).start()

    def stop(self) -> None:
        """Stop both."""
        self._stop.set()
        self.spark.stop()
        self._broker.stop()

    @contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """Measure a part."""
        found = Part(name)
        self._tell(f"{name} …")
        before, began_s = self._cpu.seconds(), time.monotonic()
        yield found
        found.seconds = round(time.monotonic() - began_s, 1)
        after = self._cpu.seconds()
        found.cpu_s = {role: round(after[role] - before.get(role, 0.0), 1) for role in after}
        self.parts.append(found)
        self._tell(f"{name}: {found.seconds} s, CPU {found.cpu_s} {found.facts or ''}")

    # ---------------------------------------------------------------- parts

    def many_inputs(self, partitions: int) -> None:
        """Copy a topic with many partitions as a stream of several batches."""
        rows = partitions * ROWS_PER_PARTITION
        clients.create_topic(self.servers, "inputs", partitions)
        clients.create_topic(self.servers, "copied", 3)
        self._fill("inputs", rows, partitions, 100)
        checkpoint = self.directory / "checkpoint"
        with self.part(f"a stream over {partitions:,} partitions") as part:
            query = (
                self.spark.readStream.format("txn")
                .option("kafka.bootstrap.servers", self.servers)
                .option("subscribe", "inputs")
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", str(rows // BATCHES))
                .load()
                .select("value")
                .coalesce(2)
                .writeStream.format("txn")
                .option("kafka.bootstrap.servers", self.servers)
                .option("topic", "copied")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            durations = [progress.durationMs for progress in query.recentProgress]
            part.facts = {
                name: [each.get(name) for each in durations]
                for name in ("triggerExecution", "latestOffset", "queryPlanning", "addBatch")
            }
            sizes = [p.stat().st_size for p in (checkpoint / "offsets").iterdir()]
            part.facts["offsets_bytes_max"] = max(sizes)
        self._judge(part, "copied", rows, 100)

    def many_outputs(self, partitions: int) -> None:
        """Write rows to many partitions in one task, so in one transaction; twice."""
        clients.create_topic(self.servers, "outputs", partitions)
        each = 4 * partitions
        for number in range(2):
            with self.part(f"a task of {partitions:,} partitions, write {number + 1}") as part:
                values = self.spark.range(number * each, (number + 1) * each, 1, 1).selectExpr(
                    "concat(id, '|', repeat('x', 80)) AS value",
                    f"int(id % {partitions}) AS partition",
                )
                values.write.format("txn").option("kafka.bootstrap.servers", self.servers).option(
                    "topic", "outputs"
                ).mode("append").save()
        check = Rows(2 * each, lambda number, text: text == b"x" * 80)
        check.read(self.servers, "outputs")
        check.tell(part)

    def batch(self, gib: float) -> None:
        """Read a topic and write it to another one, as one batch."""
        rows = int(gib * GIB / ROW_BYTES)
        for topic in ("large", "large-copy"):
            clients.create_topic(self.servers, topic, BATCH_PARTITIONS)
        with self.part(f"filling a topic with {gib} GiB"):
            self._fill("large", rows, BATCH_PARTITIONS, ROW_BYTES)
        meter = Meter(self.directory / "memory.csv", self._pids, self._python_processes)
        with self.part(f"a batch of {gib} GiB, read and written") as part:
            source = (
                self.spark.read.format("txn")
                .option("kafka.bootstrap.servers", self.servers)
                .option("subscribe", "large")
                .option("columns", "value")
                .load()
            )
            source.write.format("txn").option("kafka.bootstrap.servers", self.servers).option(
                "topic", "large-copy"
            ).mode("append").save()
        meter.stop()
        part.facts["cpu_s_per_gib"] = {
            role: round(spent_s / gib, 1) for role, spent_s in part.cpu_s.items()
        }
        part.facts["peak_mib"] = {
            role: max(sample.mib for sample in meter.samples if sample.role == role)
            for role in {sample.role for sample in meter.samples}
        }
        self._judge(part, "large-copy", rows, ROW_BYTES)

    def _fill(self, topic: str, rows: int, partitions: int, size: int) -> None:
        producer = clients.plain_producer(self.servers, linger_ms=50, batch_size=1 << 20)
        failed: list[KafkaError] = []

        def settle(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number in range(rows):
            while True:
                try:
                    value = b"%d|%b" % (number, _content(number, size))
                    producer.produce(
                        topic, value, partition=number % partitions, on_delivery=settle
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        assert not failed, failed[0]

    def _judge(self, part: Part, topic: str, rows: int, size: int) -> None:
        check = Rows(rows, lambda number, text: text == _content(number, size))
        check.read(self.servers, topic)
        check.tell(part)

    # ---------------------------------------------------------------- processes

    def _children(self) -> list[tuple[psutil.Process, str]]:
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                is_broker = process.pid == self._broker.pid
                kind = "driver JVM" if "java" in process.name() else "Python workers"
                found.append((process, "broker" if is_broker else kind))
        return found

    def _watch_cpu(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._cpu.seconds()

    def _pids(self) -> dict[str, int]:
        return {role: p.pid for p, role in self._children() if role != "Python workers"}

    def _python_processes(self) -> tuple[int, list[int]]:
        return os.getpid(), [p.pid for p, role in self._children() if role == "Python workers"]


class Rows:
    """Counts rows by their numbers."""

    def __init__(self, count: int, is_content: Callable[[int, bytes], bool]) -> None:
        self._count = count
        self._is_content = is_content
        self._seen = bytearray(count)
        self._found = self._repeated = self._wrong = 0

    def read(self, servers: str, topic: str) -> None:
        """Take in all committed rows of a topic."""
        for value in committed_values(servers, topic):
            self._note(value or b"")

    def _note(self, value: bytes) -> None:
        digits, _, text = value.partition(b"|")
        number = int(digits)
        self._found += 1
        if number >= self._count or not self._is_content(number, text):
            self._wrong += 1
        elif self._seen[number]:
            self._repeated += 1
        else:
            self._seen[number] = 1

    def tell(self, part: Part) -> None:
        """Write the findings down."""
        part.rows, part.repeated, part.wrong = self._found, self._repeated, self._wrong
        part.missing = self._seen.count(0)


def _content(number: int, size: int) -> bytes:
    start = number * 7_919 % (len(POOL) - size)
    return POOL[start : start + size]


def main() -> int:
    given = _given()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    directory = given.directory or Path(tempfile.mkdtemp(prefix="txn-large-"))
    directory.mkdir(parents=True, exist_ok=True)
    disk = shutil.disk_usage(directory)
    free_gib = (disk.free - SPARE_GIB * GIB) / GIB
    if 2.1 * given.gib > free_gib:
        print(
            f"{directory} has room for {max(free_gib, 0) / 2.1:.1f} GiB read and written, with "
            f"{SPARE_GIB} GiB left free. Lower --gib, or name another --directory",
            file=sys.stderr,
        )
        return 2
    large = Large(directory, lambda line: print(line, file=sys.stderr, flush=True))
    try:
        if given.inputs:
            large.many_inputs(given.inputs)
        if given.outputs:
            large.many_outputs(given.outputs)
        if given.gib:
            large.batch(given.gib)
    finally:
        large.stop()
        if given.directory is None:
            shutil.rmtree(directory)
    if given.json:
        print(json.dumps([{**asdict(part), "holds": part.holds} for part in large.parts], indent=1))
    else:
        for part in large.parts:
            _show(part)
    return 0 if all(part.holds for part in large.parts) else 1


def _show(part: Part) -> None:
    cpu = ", ".join(f"{role} {spent_s} s" for role, spent_s in part.cpu_s.items())
    print(f"{part.name}: {part.seconds} s; CPU: {cpu}")
    if part.rows:
        print(
            f"  {'each row once' if part.holds else 'WRONG'}: {part.rows:,} rows, missing "
            f"{part.missing}, repeated {part.repeated}, wrong {part.wrong}"
        )
    for name, value in part.facts.items():
        print(f"  {name}: {value}")


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=8, help="size of the batch [8]; 0: none")
    parser.add_argument("--inputs", type=int, default=1_000, help="partitions read [1000]; 0: none")
    parser.add_argument("--outputs", type=int, default=5_000, help="of one task [5000]; 0: none")
    parser.add_argument("--directory", type=Path, help="keeps data and checkpoints")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
