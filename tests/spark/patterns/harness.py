"""Runs programs of `examples/spark/`, kills them, and compares their outputs with the oracles.

The programs run as they do for users, without an end. The harness sends records bite by bite. It
kills, starts again with the same arguments, and in the end asks them to stop by SIGTERM. They have
to leave no transaction open.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import KafkaError, Message

from spark.kill.harness import (
    OUTPUT_PARTITIONS,
    KillableBroker,
    Session,
    TopicEnds,
    kill_a_worker,
    kill_session,
    session_of,
)
from spark.logs import tail
from spark.patterns.oracle import PATTERNS, Bite, Fed, Outputs, Pattern, text_of
from spark.sessions import SMALL
from support import clients
from txn.spark import checkpoint

EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples" / "spark"

RECORDS_PER_BATCH: Final = 16
EVERY: Final = "500 milliseconds"
SCATTER_S: Final = (0.0, 0.02, 0.1, 0.2, 0.4)
"""A bite is more than a batch, and batches are further apart than this: a kill meets open work."""

HANGS_S: Final = 400.0
POLL_S: Final = 0.1

SPARK: Final = {
    **SMALL,
    # A session lives for a minute: compiling its code costs more than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}

SETTINGS: Final = [word for k, v in SPARK.items() for word in ("--conf", f"{k}={v}")]
"""The same as arguments of a program."""


class Strike(Enum):
    """The moment of a kill. All of the session is killed, unless the comment names another."""

    ANY = "any"  # while records wait in every input
    PLANNED = "planned"  # Spark noted a new batch in a checkpoint
    WRITTEN = "written"  # an output's high watermark moved
    STABLE = "stable"  # its last stable offset moved
    WORKER = "worker"  # its high watermark moved; one Python worker
    BROKER = "broker"  # its high watermark moved; the broker, which restarts


class Fault(Enum):
    """A broken rule, which has to be found."""

    SPARKS_SINK = "sparks-sink"
    NEW_CHECKPOINT = "new-checkpoint"


@dataclass
class Finding:
    """The outputs of a program beside those that it must have."""

    program: str
    expected: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    extra: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    killed_at_work: int = 0

    @property
    def holds(self) -> bool:
        return not (self.missing or self.extra or self.complaints)


def compare(pattern: Pattern, fed: Fed, outputs: Outputs) -> Finding:
    """Compare the outputs of a program with those of its oracle."""
    expected = pattern.expected(fed, outputs)
    finding = Finding(pattern.program, complaints=pattern.complaints(outputs))
    for role, messages in outputs.items():
        found = Counter(map(text_of, messages))
        finding.expected += expected[role].total()
        finding.missing += expected[role] - found
        finding.extra += found - expected[role]
    return finding


class Running:
    """A program's topics, its checkpoint, and the records that it was sent."""

    def __init__(self, pattern: Pattern, servers: str, there: str, directory: Path) -> None:
        self.pattern = pattern
        self.servers = servers
        self.output_servers = there if pattern.program == "two_clusters" else servers
        name = f"{pattern.program}-{time.time_ns()}"
        self.checkpoint = directory / name
        self.topics = {role: f"{role}-{name}" for role in (*pattern.inputs, *pattern.outputs)}
        self.opening: Bite = []
        self.others: Bite = []
        self.killed_at_work = 0
        self._bites = 0
        for role, partitions in pattern.inputs.items():
            clients.create_topic(servers, self.topics[role], partitions)
        for role in pattern.outputs:
            clients.create_topic(self.output_servers, self.topics[role], OUTPUT_PARTITIONS)

    def arguments(self, config: Path | None) -> list[str]:
        words = {f"--{role}": topic for role, topic in self.topics.items()}
        words["--checkpoint"] = str(self.checkpoint)
        words["--max-offsets-per-trigger"] = str(RECORDS_PER_BATCH)
        words["--every"] = EVERY
        if config is not None:
            words["--command-config"] = str(config)
        if self.pattern.program == "two_clusters":
            words["--output-bootstrap-servers"] = self.output_servers
        found = [word for pair in words.items() for word in pair]
        return found + SETTINGS

    def next_bite(self) -> Bite:
        """More input, not sent yet."""
        self._bites += 1
        return self.pattern.bite(self._bites - 1)

    @property
    def fed(self) -> Fed:
        return Fed(self.opening, self.others)

    def planned(self) -> int:
        return newest(self.checkpoint / "offsets")

    def is_committed(self) -> bool:
        """Say whether Spark knows all that was sent to be through."""
        batch = newest(self.checkpoint / "commits")
        if batch < 0:
            return False
        streams = {self.topics[role] for role in self.pattern.streams}
        sent = Counter((self.topics[r.topic], r.partition) for r in self.fed.all)
        wanted = {place: n for place, n in sent.items() if place[0] in streams}
        found = checkpoint.source_offsets(str(self.checkpoint), batch)
        return wanted == {(topic, number): end for topic, number, end in found if end}

    def finding(self) -> Finding:
        """Compare the present outputs, as a read_committed reader finds them."""
        found = compare(self.pattern, self.fed, {r: self._read(r) for r in self.pattern.outputs})
        found.killed_at_work = self.killed_at_work
        return found

    def held_back(self) -> list[str]:
        """Outputs with a transaction that nobody ends."""
        return [
            f"{self.topics[role]}-{partition} ends at {high} and is stable to {stable}"
            for role in self.pattern.outputs
            for partition in range(OUTPUT_PARTITIONS)
            for stable, high in [clients.ends(self.output_servers, self.topics[role], partition)]
            if stable < high
        ]

    def _read(self, role: str) -> list[Message]:
        return clients.read_messages(self.output_servers, self.topics[role])


def started_together(plan: Sequence[tuple[str, Sequence[str]]], log: Path, *flags: str) -> Session:
    """Start programs with their arguments as queries of one session."""
    file = log.with_suffix(".plan")
    file.write_text(json.dumps(plan))
    program = str(Path(__file__).with_name("together.py"))
    # Spark's workers load the programs' classes by the modules' names.
    named = {"PYTHONPATH": str(EXAMPLES)}
    return Session([sys.executable, program, str(file), *flags], log, named)


class PatternCase:
    """Programs of examples on one broker: each as a process of its own, or several in one.

    Args:
        programs: Their names.
        broker: The cluster.
        directory: For checkpoints and the log.
        there: Servers of the second cluster.
        config: A file for `--command-config`, if the programs come by another listener.
        servers: That listener.
        fault: A rule to break.
    """

    def __init__(
        self,
        programs: Sequence[str],
        broker: KillableBroker,
        directory: Path,
        *,
        there: str | None = None,
        config: Path | None = None,
        servers: str | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.broker = broker
        self.directory = directory
        self.log = directory / f"{programs[0]}.log"
        self.config = config
        self.servers = servers or broker.bootstrap_servers
        self.fault = fault
        mine = broker.bootstrap_servers
        self.programs = [Running(PATTERNS[p], mine, there or mine, directory) for p in programs]
        self.starts = 0
        self.cpu_s = 0.0
        """CPU of the programs, of all their processes that lived at a kill or at the end."""

    def run(self, strikes: Sequence[Strike], seed: int) -> list[Finding]:
        """Open, strike, close, stop; then compare.

        More strikes follow if one of the programs has not been at work when it was killed.
        """
        if self.fault is Fault.NEW_CHECKPOINT:
            self._run_idle()
        else:
            self._open_and_strike(list(strikes), random.Random(seed))
        with self._started() as process:
            self._feed_bites()
            self._feed([(p, p.others, list(p.pattern.closing)) for p in self.programs])
            self._settle(process)
            self.cpu_s += _cpu_s(process)
            process.send_signal(signal.SIGTERM)
            code = process.wait(HANGS_S)
        findings = [program.finding() for program in self.programs]
        for program, finding in zip(self.programs, findings, strict=True):
            finding.complaints += program.held_back()
            finding.complaints += [f"SIGTERM ended it with {code}"] if code else []
        return findings

    def _run_idle(self) -> None:
        """Run until nothing is left to do, then kill.

        A transaction left open under a name that is forgotten would hold readers back for long.
        """
        with self._started() as process:
            self._feed_bites()
            self._settle(process)

    def _open_and_strike(self, left: list[Strike], dice: random.Random) -> None:
        with self._started() as process:
            for number in range(max(len(p.pattern.opening) for p in self.programs)):
                self._feed(
                    [(p, p.opening, _part(p.pattern.opening, number)) for p in self.programs]
                )
                self._settle(process)
            self._strike_until_killed(process, left, dice)
        while left or not all(program.killed_at_work for program in self.programs):
            with self._started() as process:
                self._strike_until_killed(process, left, dice)

    def tail(self) -> str:
        """The end of the programs' log."""
        return tail(self.log)

    # ---------------------------------------------------------------- processes

    def _started(self) -> Session:
        self.starts += 1
        if self.fault is Fault.NEW_CHECKPOINT:
            for program in self.programs:
                program.checkpoint = program.checkpoint.with_suffix(f".{self.starts}")
        plan = [(p.pattern.program, self._arguments(p)) for p in self.programs]
        if len(plan) == 1 and self.fault is not Fault.SPARKS_SINK:
            ((name, words),) = plan
            return Session([sys.executable, str(EXAMPLES / f"{name}.py"), *words], self.log)
        broken = ["--stock"] if self.fault is Fault.SPARKS_SINK else []
        return started_together(plan, self.log, *broken)

    def _arguments(self, program: Running) -> list[str]:
        return ["--bootstrap-servers", self.servers, *program.arguments(self.config)]

    def _strike_until_killed(
        self, process: subprocess.Popen[bytes], left: list[Strike], dice: random.Random
    ) -> None:
        """Strike until a strike ends the session, after the last one at any moment."""
        while process.poll() is None:
            self._strike(left.pop(0) if left else Strike.ANY, process, dice)

    def _strike(
        self, strike: Strike, process: subprocess.Popen[bytes], dice: random.Random
    ) -> None:
        """Send a bite, wait for the moment, and kill."""
        if strike is Strike.ANY:
            planned = {program.checkpoint: program.planned() for program in self.programs}
            self._feed_bites()
            self._await(
                process,
                lambda: all(p.planned() > planned[p.checkpoint] for p in self.programs),
            )
            self._feed_bites()
        else:
            self._await_move(strike, process, dice.choice(self.programs))
        time.sleep(dice.choice(SCATTER_S))
        if strike is Strike.WORKER:
            kill_a_worker(process.pid, dice)
        elif strike is Strike.BROKER:
            self.broker.kill_and_restart()
        else:
            self.cpu_s += _cpu_s(process)
            kill_session(process)
        for program in self.programs:
            program.killed_at_work += not program.is_committed()

    def _await_move(
        self, strike: Strike, process: subprocess.Popen[bytes], program: Running
    ) -> None:
        level = "read_committed" if strike is Strike.STABLE else "read_uncommitted"
        topic = program.topics[program.pattern.outputs[0]]
        with TopicEnds(program.output_servers, topic, level) as end:
            look = program.planned if strike is Strike.PLANNED else end
            before = look()
            self._feed_bites()
            self._await(process, lambda: look() > before or program.is_committed())

    def _await(self, process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANGS_S
        while not is_so():
            assert process.poll() is None, f"the program ended:\n{self.tail()}"
            assert time.monotonic() < deadline, f"it hangs:\n{self.tail()}"
            time.sleep(POLL_S / 10)

    def _settle(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until all that was sent is through, and its results are there."""
        deadline = time.monotonic() + HANGS_S
        left = list(self.programs)
        while left:
            assert process.poll() is None, f"the program ended:\n{self.tail()}"
            left = [p for p in left if not p.is_committed() or p.finding().missing]
            if time.monotonic() > deadline:
                late = {p.pattern.program: dict(p.finding().missing) for p in left}
                raise AssertionError(f"these do not come: {late}\n{self.tail()}")
            time.sleep(POLL_S)

    # ---------------------------------------------------------------- records

    def _feed_bites(self) -> None:
        self._feed([(program, program.others, program.next_bite()) for program in self.programs])

    def _feed(self, bites: Sequence[tuple[Running, Bite, Bite]]) -> None:
        """Send a bite to each program, changes of tables first, and note it as sent."""
        producer = clients.plain_producer(self.broker.bootstrap_servers)
        failed: list[KafkaError] = []

        def settle(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for is_table in (True, False):
            for program, _, bite in bites:
                for record in bite:
                    if (record.topic == "table") is is_table:
                        value = None if record.value is None else json.dumps(record.value)
                        where = (program.topics[record.topic], value, record.key, record.partition)
                        producer.produce(*where, on_delivery=settle)
            assert producer.flush(clients.WAIT_S) == 0
        assert not failed, failed[0]
        for _, sent, bite in bites:
            sent.extend(bite)


def _part(bites: Sequence[Bite], number: int) -> Bite:
    return list(bites[number]) if number < len(bites) else []


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    spent = 0.0
    for pid in session_of(process.pid):
        with suppress(psutil.NoSuchProcess):
            spent += sum(psutil.Process(pid).cpu_times()[:4])  # with those of children that ended
    return spent


def newest(log: Path) -> int:
    """The last batch in a log of a checkpoint; -1 if there is none."""
    try:
        return max((int(p.name) for p in log.iterdir() if p.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def kinds(strikes: int, seed: int, *, is_ours: bool = True) -> list[Strike]:
    """Every kind about as often, in a random order."""
    possible = [s for s in Strike if is_ours or s is not Strike.BROKER]
    plan = [possible[number % len(possible)] for number in range(strikes)]
    random.Random(seed).shuffle(plan)
    return plan


def told(findings: Sequence[Finding]) -> str:
    """A line for each program."""
    return "\n".join(
        f"{f.program:22} {'exactly once' if f.holds else 'WRONG':12} expected {f.expected:5} "
        f"missing {f.missing.total()} extra {f.extra.total()} killed at work {f.killed_at_work}"
        + "".join(f"\n    {line}" for line in _details(f))
        for f in findings
    )


def _details(finding: Finding) -> list[str]:
    some = [f"missing {n} × {line}" for line, n in finding.missing.most_common(3)]
    some += [f"extra {n} × {line}" for line, n in finding.extra.most_common(3)]
    return some + finding.complaints[:3]
