"""The phases of `txn demo`: load, run and kill, verify."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import txn
from txn.demo import flights
from txn.demo.flights import FLIGHT_COUNT, TABLES, Table
from txn.demo.judge import ComparedRows, Judge
from txn.demo.kills import Kill, Victim
from txn.demo.processes import kill_family, start_family
from txn.demo.topics import PARTITIONS, output_topics
from txn.errors import TxnError
from txn.storage.private import make_directory

ROWS_PER_TRANSACTION = 20_000
BROKER_START_S = 60.0
FAILURES_MAX = 5
"""A driver that fails this often without being killed will not get there."""

POLL_S = 0.2

Progress = Callable[[float, str], None]
"""Called with the finished share, from 0 to 1, and the current phase."""


class DemoError(TxnError):
    """The demo could not run to its end."""


@dataclass(slots=True)
class Death:
    """A kill as it happened."""

    victim: str
    at_s: float
    share: float


@dataclass(slots=True)
class RunResult:
    """The result of one run through Spark."""

    seconds: float = 0.0
    deaths: list[Death] = field(default_factory=list)
    driver_starts: int = 0
    driver_failures: int = 0


class BrokerProcess:
    """`txn serve` as a process of its own, which can be killed and comes back at its address."""

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log
        self._port = 0
        self._process = self._start()

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def kill_and_restart(self) -> None:
        """SIGKILL it, and start it again on the same directory and port."""
        kill_family(self._process)
        self._process = self._start()

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        seen = self._log.stat().st_size if self._log.exists() else 0
        command = [sys.executable, "-m", "txn", "serve", "--data", str(self._directory)]
        process = start_family([*command, "--listen", f"127.0.0.1:{self._port}"], self._log)
        deadline = time.monotonic() + BROKER_START_S
        while time.monotonic() < deadline and process.poll() is None:
            for line in self._log.read_bytes()[seen:].decode(errors="replace").splitlines():
                if line.startswith("listening on "):
                    self._port = int(line.rpartition(":")[2])
                    return process
            time.sleep(0.01)
        kill_family(process)
        raise DemoError(f"the broker did not start; its log is {self._log}")


class Demo:
    """One demo in one directory: data, checkpoints and logs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        make_directory(directory)

    def load(self, progress: Progress) -> None:
        """Put all tables into topics, in transactions, through a broker in this process."""
        with txn.Broker(self.data) as broker:
            _create_topics(broker.bootstrap_servers)
            producer = txn.Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20},
                transactional_id="txn-demo-loader",
            )
            with producer:
                for table in TABLES:
                    _load_table(producer, table, progress)

    @contextmanager
    def broker(self) -> Iterator[BrokerProcess]:
        """Run the broker as its own process."""
        process = BrokerProcess(self.data, self.directory / "broker.log")
        try:
            yield process
        finally:
            process.stop()

    def run(
        self, broker: BrokerProcess, kills: list[Kill], progress: Progress, *, is_stock: bool
    ) -> RunResult:
        """Run the Spark job to its end, killing as planned and starting it again each time."""
        return _SparkRun(self, broker, kills, progress, is_stock=is_stock).finish()

    def verify(self, broker: BrokerProcess, progress: Progress) -> list[ComparedRows]:
        """Compare the contents of the topics with the expected ones."""
        enriched, statistics = output_topics(is_stock=False)
        judge = Judge(broker.bootstrap_servers)
        checks: list[Callable[[], ComparedRows]] = [
            judge.flights,
            lambda: judge.enriched(enriched),
            lambda: judge.statistics(statistics),
            lambda: judge.held_back(enriched),
            lambda: judge.held_back(statistics),
        ]
        return _all(checks, progress)

    def verify_stock(self, broker: BrokerProcess, progress: Progress) -> list[ComparedRows]:
        """Count the rows that Spark's own sink repeated."""
        enriched, statistics = output_topics(is_stock=True)
        judge = Judge(broker.bootstrap_servers)
        checks: list[Callable[[], ComparedRows]] = [
            lambda: judge.enriched(enriched),
            lambda: judge.statistics(statistics),
        ]
        return _all(checks, progress)


def _all(checks: list[Callable[[], ComparedRows]], progress: Progress) -> list[ComparedRows]:
    findings = []
    for number, check in enumerate(checks):
        progress(number / len(checks), "reading back")
        findings.append(check())
    progress(1.0, "read back")
    return findings


class _SparkRun:
    def __init__(
        self,
        demo: Demo,
        broker: BrokerProcess,
        kills: list[Kill],
        progress: Progress,
        *,
        is_stock: bool,
    ) -> None:
        self._broker = broker
        self._kills = list(kills)
        self._progress = progress
        self._log = demo.directory / ("spark-stock.log" if is_stock else "spark.log")
        self._enriched, _ = output_topics(is_stock=is_stock)
        self._command = [
            *(sys.executable, "-m", "txn.demo.job"),
            *("--bootstrap-servers", broker.bootstrap_servers),
            *("--directory", str(demo.directory)),
            *(["--stock"] if is_stock else []),
        ]
        self._result = RunResult()
        self._started = time.monotonic()
        self._due: float | None = None

    def finish(self) -> RunResult:
        driver = self._start_driver()
        try:
            while True:
                time.sleep(POLL_S)
                share = self._share()
                self._progress(share, self._story())
                if self._is_due(share):
                    driver = self._kill(driver, share)
                elif driver.poll() == 0 and not self._kills:
                    break
                elif driver.poll() is not None:
                    driver = self._restart_driver(driver)
        finally:
            kill_family(driver)
        self._result.seconds = time.monotonic() - self._started
        self._progress(1.0, self._story())
        return self._result

    def _kill(self, driver: subprocess.Popen[bytes], share: float) -> subprocess.Popen[bytes]:
        kill = self._kills.pop(0)
        self._due = None
        at_s = time.monotonic() - self._started
        self._result.deaths.append(Death(kill.victim.value, at_s, share))
        if kill.victim is Victim.BROKER:
            self._broker.kill_and_restart()
            return driver
        kill_family(driver)
        return self._start_driver()

    def _is_due(self, share: float) -> bool:
        """Return True if the next kill's share is reached and its delay has passed."""
        if not self._kills or share < self._kills[0].share:
            return False
        if self._due is None:
            self._due = time.monotonic() + self._kills[0].delay_s
        return time.monotonic() >= self._due

    def _start_driver(self) -> subprocess.Popen[bytes]:
        self._result.driver_starts += 1
        return start_family(self._command, self._log)

    def _restart_driver(self, ended: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Start again after an end that was not planned, such as one for want of a broker."""
        kill_family(ended)
        self._result.driver_failures += ended.returncode != 0
        if self._result.driver_failures > FAILURES_MAX:
            raise DemoError(
                f"Spark failed {FAILURES_MAX + 1} times without being killed. Its log, "
                f"{self._log}, ends with: {_last_line(self._log)}"
            )
        return self._start_driver()

    def _share(self) -> float:
        """Share of the flights that a read_committed reader would find by now."""
        with suppress(KafkaException):
            return min(_readable(self._broker.bootstrap_servers, self._enriched) / FLIGHT_COUNT, 1)
        return 0.0

    def _story(self) -> str:
        return (
            f"{len(self._result.deaths)} killed, {len(self._kills)} to go, "
            f"{self._result.driver_starts} starts of Spark"
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "(nothing)")


def _readable(bootstrap_servers: str, topic: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "txn-demo",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=2.0)[1]
            for n in range(PARTITIONS)
        )
    finally:
        consumer.close()


def _create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    names = [table.name for table in TABLES]
    names += [*output_topics(is_stock=False), *output_topics(is_stock=True)]
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        made.result()


def _load_table(producer: txn.Producer, table: Table, progress: Progress) -> None:
    rows = flights.read(table)
    done = 0
    is_more = True
    while is_more:
        is_more = False
        with producer.transaction() as transaction:
            for row in rows:
                transaction.produce(
                    table.name, key=flights.key_of(table, row), value=flights.value_of(row)
                )
                done += 1
                is_more = done % ROWS_PER_TRANSACTION == 0
                if is_more:
                    break
        progress(min(done / FLIGHT_COUNT, 1), f"{done:,} {table.name}")
