"""Kills a Spark job in the worst moments, starts it again, and counts the rows that came out.

A job runs as the leader of its own session, and is killed by that. PySpark's worker daemon leaves
its parent's process group, so killing the group would leave workers behind.

The moments, each looked for by polling from outside, with no help from the job:

| moment  | what was seen                                | what is killed             |
|---------|----------------------------------------------|----------------------------|
| stable  | the output's last stable offset moved: a transaction was just committed | the session |
| high    | its high watermark moved: tasks just wrote   | the session                |
| offsets | Spark noted a new batch in its checkpoint    | the session                |
| worker  | its high watermark moved                     | one Python worker          |
| broker  | its high watermark moved                     | the broker, which restarts |
| node    | tasks wrote, after a batch    | a worker of Spark's cluster; another one joins |
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from harnesses.peers.kafka import KafkaNode, free_port
from spark.logs import tail
from support import clients
from support.brokers import BrokerProcess
from txn.spark import checkpoint

INPUT_PARTITIONS, OUTPUT_PARTITIONS = 2, 3
ROWS = 24_000
BATCHES_KEPT = 100
"""Spark's default of minBatchesToRetain; the judge of updates needs every batch's offsets."""

RUN_S_MAX = 400.0
"""A run of the job that takes longer than this hangs."""

STARTS_WITHOUT_KILL_MAX = 5
POLL_S = 0.005
CLUSTER_POLL_S = 0.05
"""On a cluster a batch takes longer, and so does a kill."""

ALLOWS_TWO_PHASE: Final = "transaction.two.phase.commit.enable=true"
"""The sink uses it where it is allowed; on Apache Kafka it goes without."""


class Moment(Enum):
    STABLE = "stable"
    HIGH = "high"
    OFFSETS = "offsets"
    WORKER = "worker"
    BROKER = "broker"
    NODE = "node"


class KillableBroker(Protocol):
    """The harness's view of a broker."""

    @property
    def bootstrap_servers(self) -> str: ...
    def kill_and_restart(self) -> None: ...
    def stop(self) -> None: ...


class KillableCluster(Protocol):
    """The harness's view of Spark's own processes: a cluster, or a Spark Connect server."""

    @property
    def master(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, str]: ...
    def kill_and_restart(self) -> None: ...


class TxnBroker:
    """Txn's own, in a process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._process = BrokerProcess(directory / "data", ALLOWS_TWO_PHASE)

    @property
    def bootstrap_servers(self) -> str:
        return self._process.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill_and_restart(self) -> None:
        self._process.kill()
        self._process.restart()

    def stop(self) -> None:
        self._process.stop()


class ApacheBroker:
    """Apache Kafka, which keeps its ports over restarts."""

    def __init__(self, directory: Path) -> None:
        port, controller = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._node = KafkaNode(
            directory / "kafka",
            {
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": listeners,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            },
        )
        self._node.start()

    def kill_and_restart(self) -> None:
        self._node.kill()
        self._node.start()

    def stop(self) -> None:
        self._node.stop()


class RunningBroker:
    """One that runs already, and is not ours to kill."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def kill_and_restart(self) -> None:
        raise AssertionError("this broker is not ours to kill")

    def stop(self) -> None:
        pass


@dataclass
class RowComparison:
    """Rows that a reader found, and the expected ones."""

    job: str
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    seconds: float = 0.0
    expected: int = 0
    found: int = 0
    missing: int = 0
    extra: int = 0
    held_back: int = 0
    """Offsets between the last stable offset and the end: an open transaction nobody ends."""

    @property
    def holds(self) -> bool:
        return not (self.missing or self.extra or self.held_back)


class KillCase:
    """One job on one broker, with its topics, checkpoint and log.

    `options` names a file with options for the job's source and sink, over those of the broker.
    `cluster` runs the job's tasks; without one the driver does.
    """

    def __init__(
        self,
        job: str,
        broker: KillableBroker,
        directory: Path,
        *,
        rows: int = ROWS,
        options: Path | None = None,
        cluster: KillableCluster | None = None,
    ) -> None:
        self.job = job
        self.cluster = cluster
        self._poll_s = POLL_S if cluster is None else CLUSTER_POLL_S
        self.options = options
        self.broker = broker
        self.rows = rows
        name = f"{job}-{time.time_ns()}"
        self.input, self.output = f"in-{name}", f"out-{name}"
        self.checkpoint = directory / name
        self.log = directory / f"{name}.log"
        servers = broker.bootstrap_servers
        clients.create_topic(servers, self.input, INPUT_PARTITIONS)
        clients.create_topic(servers, self.output, OUTPUT_PARTITIONS)
        _load(servers, self.input, self._input_rows())

    def run(self, moments: list[Moment], seed: int) -> RowComparison:
        """Run the job to its end, killing once at each of the moments."""
        verdict = RowComparison(self.job)
        dice = random.Random(seed)
        left = list(moments)
        began = time.monotonic()
        failures = 0
        while True:
            with self._running() as process:
                verdict.starts += 1
                outcome = self._watch(process, left, dice, verdict.kills)
            if outcome == "through":
                break
            failures = failures + 1 if outcome == "failed" else 0
            assert failures < STARTS_WITHOUT_KILL_MAX, f"the job does not run:\n{self._tail()}"
        assert not left, f"the job was through before it was killed at {left}"
        verdict.seconds = time.monotonic() - began
        self._judge(verdict)
        return verdict

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        left: list[Moment],
        dice: random.Random,
        kills: Counter[str],
    ) -> str:
        """Wait for the next moment and strike; say how this run of the job ended."""
        deadline = time.monotonic() + RUN_S_MAX
        while left:
            moment = left[0]
            if not self._comes(moment, process, deadline):
                return self._end_of(process, deadline)
            # Scattered over the next moments: the commit point is a few milliseconds away.
            time.sleep(dice.choice((0.0, 0.0, 0.002, 0.01, 0.05)))
            left.pop(0)
            kills[moment.value] += 1
            if moment is Moment.WORKER:
                kill_a_worker(process.pid, dice)
            elif moment is Moment.BROKER:
                self.broker.kill_and_restart()
            elif moment is Moment.NODE:
                assert self.cluster is not None, "the job runs on no cluster"
                self.cluster.kill_and_restart()
            else:
                kill_session(process)
                return "killed"
        return self._end_of(process, deadline)

    def _comes(self, moment: Moment, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait until something moves; False if the job ended before."""
        if moment is Moment.OFFSETS:
            return self._moves(self._batch, process, deadline)
        if moment is Moment.NODE and not self._comes(Moment.STABLE, process, deadline):
            return False
        isolation = "read_committed" if moment is Moment.STABLE else "read_uncommitted"
        with TopicEnds(self.broker.bootstrap_servers, self.output, isolation) as end:
            return self._moves(end, process, deadline)

    def _moves(
        self, look: Callable[[], int], process: subprocess.Popen[bytes], deadline: float
    ) -> bool:
        before = look()
        while process.poll() is None:
            if look() > before:
                return True
            assert time.monotonic() < deadline, f"the job hangs:\n{self._tail()}"
            time.sleep(self._poll_s)
        return False

    def _end_of(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job hangs:\n{self._tail()}") from None
        return "through" if code == 0 else "failed"

    def _batch(self) -> int:
        offsets = self.checkpoint / "offsets"
        if not offsets.is_dir():
            return -1
        return max((int(p.name) for p in offsets.iterdir() if p.name.isdecimal()), default=-1)

    def _running(self) -> "Session":
        return Session(
            [
                *(sys.executable, str(Path(__file__).with_name("job.py"))),
                *("--job", self.job, "--bootstrap", self.broker.bootstrap_servers),
                *("--input", self.input, "--output", self.output),
                *("--checkpoint", str(self.checkpoint)),
                *([] if self.options is None else ["--options", str(self.options)]),
                *([] if self.cluster is None else ["--master", self.cluster.master]),
            ],
            self.log,
            None if self.cluster is None else self.cluster.environment,
        )

    def _tail(self) -> str:
        return tail(self.log)

    # ---------------------------------------------------------------- the judge

    def _input_rows(self) -> Iterator[tuple[int, int]]:
        """(partition, number) of every row of the input, in its order."""
        copies = 2 if self.job == "dedup" else 1
        for copy in range(copies):
            for number in range(self.rows // copies):
                # A number and its copy lie in different partitions.
                yield (number + copy) % INPUT_PARTITIONS, number

    def _judge(self, verdict: RowComparison) -> None:
        servers = self.broker.bootstrap_servers
        values = [value or b"" for value in clients.read_all(servers, self.output)]
        found = Counter(self._essence(value) for value in values)
        expected = Counter(self._expected())
        verdict.expected, verdict.found = expected.total(), found.total()
        verdict.missing = (expected - found).total()
        verdict.extra = (found - expected).total()
        for partition in range(OUTPUT_PARTITIONS):
            stable, high = clients.ends(servers, self.output, partition)
            verdict.held_back += high - stable

    def _essence(self, value: bytes) -> str:
        text = value.decode()
        return text.partition("|")[0] if self.job == "map" else text

    def _expected(self) -> Iterator[str]:
        if self.job != "update":
            numbers = {number for _, number in self._input_rows()}
            return (str(number) for number in numbers)
        return self._expected_updates()

    def _expected_updates(self) -> Iterator[str]:
        """Every change of every group, batch by batch as Spark's checkpoint cut the input."""
        lines: Mapping[int, list[int]] = {n: [] for n in range(INPUT_PARTITIONS)}
        for partition, number in self._input_rows():
            lines[partition].append(number)
        counts: Counter[int] = Counter()
        sums: Counter[int] = Counter()
        start = dict.fromkeys(lines, 0)
        for batch in range(self._batch() + 1):
            changed = set()
            for _, partition, end in checkpoint.source_offsets(str(self.checkpoint), batch):
                for number in lines[partition][start[partition] : end]:
                    counts[number % 97] += 1
                    sums[number % 97] += number
                    changed.add(number % 97)
                start[partition] = end
            for group in changed:
                yield f"{group}|{counts[group]}|{sums[group]}"
        assert all(start[n] == len(numbers) for n, numbers in lines.items()), start


class Session:
    """A process as leader of its own session; its remaining processes are killed at the end."""

    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        kill_session(self._process)


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL every process of a session, all at once as far as can be, and wait."""
    for pid in session_of(leader.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    leader.wait()


def session_of(session: int) -> list[int]:
    """The process ids of a session."""
    members = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                members.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return members


def kill_a_worker(session: int, dice: random.Random) -> None:
    """SIGKILL one Python worker: a child of a PySpark daemon."""
    workers = []
    for pid in session_of(session):
        try:
            parent = psutil.Process(pid).parent()
            if parent is not None and any("pyspark.daemon" in word for word in parent.cmdline()):
                workers.append(pid)
        except psutil.NoSuchProcess:
            continue
    if workers:
        os.kill(dice.choice(workers), signal.SIGKILL)


class TopicEnds:
    """The sum of a topic's ends as a reader of this isolation level sees them.

    The topic has `OUTPUT_PARTITIONS` partitions.
    """

    def __init__(self, servers: str, topic: str, isolation: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "harness",
                "isolation.level": isolation,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Callable[[], int]:
        return self._look

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def _look(self) -> int:
        return sum(self._end(partition) for partition in range(OUTPUT_PARTITIONS))

    def _end(self, partition: int) -> int:
        where = TopicPartition(self._topic, partition)
        deadline = time.monotonic() + clients.WAIT_S
        while True:
            try:
                end: int = self._consumer.get_watermark_offsets(where, timeout=clients.WAIT_S)[1]
                return end
            except KafkaException:  # a node that was just started leads nothing for a while
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def _load(servers: str, topic: str, rows: Iterator[tuple[int, int]]) -> None:
    producer = clients.plain_producer(servers, **{"linger.ms": 20})
    refused: list[Any] = []
    for partition, number in rows:
        producer.produce(
            topic,
            key=str(number),
            value=str(number),
            partition=partition,
            on_delivery=lambda error, _: refused.append(error) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(clients.WAIT_S) == 0
    assert not refused, refused[0]
