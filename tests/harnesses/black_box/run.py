"""One run: broker, proxy, clients, nemesis, drain, verdict."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from harnesses.black_box.events import Notebook, read_notes
from harnesses.black_box.facts import Anomaly
from harnesses.black_box.history import CopyStage, Fate, History
from harnesses.black_box.judge import judge
from harnesses.black_box.nemesis import DEFAULT, Nemesis
from harnesses.black_box.observer import Observer
from harnesses.black_box.proxy import Proxy
from harnesses.black_box.targets import KafkaTarget, Mock, Target, TxnTarget
from harnesses.black_box.topics import PARTITIONS, STAGES, TOPICS
from harnesses.black_box.workload import ClientRole, Clients, roles
from support.clients import create_topic

PATIENCE_S = 120.0


@dataclass(frozen=True)
class RunPlan:
    """The parts of a run.

    Attributes:
        seconds: How long the clients work at least.
        sends: How many records they have to have sent by then; else they go on, for at most
            `PATIENCE_S`. A busy machine may need many seconds for little.
        target: "txn", "kafka" or "mock".
        durability: Of txn.
        rules: Of `harnesses.black_box.broken`; none for txn as it is.
    """

    seconds: float
    seed: int
    sends: int = 0
    target: str = "txn"
    durability: str = "process"
    rules: Sequence[str] = ()
    faults: Sequence[str] = DEFAULT
    roles: Sequence[ClientRole] = field(
        default_factory=lambda: roles(plain=1, writers=2, copiers=1, java=2)
    )

    @property
    def stages(self) -> list[CopyStage]:
        """The stages with copiers, who come to the end of their topic before the verdict."""
        worked = {role.stage for role in self.roles if role.kind == "copier"}
        return [stage for number, stage in enumerate(STAGES) if number in worked]


@dataclass(frozen=True)
class BlackBoxResult:
    """The result of a run."""

    plan: RunPlan
    history: History
    anomalies: list[Anomaly]
    faults: Counter[str]
    troubles: list[str]

    @property
    def names(self) -> Counter[str]:
        """Number of anomalies of each name."""
        return Counter(anomaly.name for anomaly in self.anomalies)

    @property
    def fates(self) -> Counter[Fate]:
        """Number of transactions by their end."""
        return Counter(attempt.fate for attempt in self.history.attempts)

    def figures(self) -> dict[str, Any]:
        """The run in numbers, as plain data."""
        history = self.history
        return {
            "target": self.plan.target,
            "durability": self.plan.durability if self.plan.target == "txn" else None,
            "rules_broken": list(self.plan.rules),
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "transactions": {o.name.lower(): n for o, n in sorted(self.fates.items(), key=str)},
            "instances": len(history.instances),
            "records_in_transactions": sum(len(a.writes) for a in history.attempts),
            "plain_records": sum(len(writes) for writes in history.plain.values()),
            "reads": len(history.reads),
            "looks_at_partition_ends": len(history.ends),
            "late_ends": len(history.late),
            "late_joins": dict(sorted(Counter(late.api for late in history.late_joins).items())),
            "faults": dict(sorted(self.faults.items())),
            "anomalies": dict(sorted(self.names.items())),
        }


def run(
    plan: RunPlan,
    directory: Path,
    *,
    over: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> BlackBoxResult:
    """Run a plan in a directory, which keeps data and notes.

    Args:
        plan: What to run.
        directory: An empty one.
        over: To be set by somebody who wants the run to end early; it is judged then too.
        tell: Gets a line of progress now and then.
    """
    over = over or threading.Event()
    chance = random.Random(plan.seed)
    notes = directory / "notes"
    notes.mkdir(parents=True)
    proxy = Proxy()
    target = _target(plan, directory, proxy.port)
    proxy.upstream_port = target.port
    # A mock cluster names its own address, so its clients go there without the proxy.
    servers = f"127.0.0.1:{target.port}" if plan.target == "mock" else proxy.bootstrap_servers
    clients = Clients(plan.roles, servers, notes, chance.randrange(1 << 32))
    nemesis = Nemesis(plan.faults, target, proxy, clients, over, chance.randrange(1 << 32))
    watch_notes = notes / "observer.notes"
    observer = Observer(servers, Notebook(watch_notes))
    try:
        _create_topics(plan, servers)
        observer.start()
        clients.start()
        began_s = time.monotonic()

        def is_enough() -> bool:
            passed_s = time.monotonic() - began_s
            faults = ", ".join(
                f"{fault} {count}" for fault, count in sorted(nemesis.counts.items())
            )
            tell(f"{passed_s:.0f} of {plan.seconds:.0f} s: {faults}")
            if passed_s < plan.seconds:
                return False
            return clients.count_sends() >= plan.sends or passed_s > plan.seconds + PATIENCE_S

        nemesis.go(is_enough)
        tell("ending writers")
        stuck = _drain(plan, clients, observer, tell)
        ends = observer.stop()
        history, troubles = read_notes([*clients.notes, watch_notes])
        history.stuck = stuck
        history.ends = ends
        history.late = list(proxy.late)
        history.late_joins = list(proxy.late_joins)
        history.power_losses = nemesis.power_losses
        observer.conclude(history, plan.stages)
    finally:
        clients.close()
        proxy.close()
        target.stop()
    tell("judging")
    return BlackBoxResult(plan, history, judge(history), nemesis.counts, troubles)


def _target(plan: RunPlan, directory: Path, proxy_port: int) -> Target:
    if plan.target == "kafka":
        return KafkaTarget(directory / "kafka", proxy_port)
    if plan.target == "mock":
        return Mock()
    return TxnTarget(directory / "data", proxy_port, plan.durability, plan.rules)


def _create_topics(plan: RunPlan, servers: str) -> None:
    if plan.target == "mock":  # it makes topics when it is asked about them, and not otherwise
        asker = Producer({"bootstrap.servers": servers})
        for topic in TOPICS:
            asker.list_topics(topic, timeout=10)
        return
    for topic in TOPICS:
        create_topic(servers, topic, PARTITIONS)


def _drain(
    plan: RunPlan, clients: Clients, observer: Observer, tell: Callable[[str], None]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Let writers end, then every stage come to its end, undisturbed."""
    clients.end(("plain", "writer"))
    tell("waiting until nothing is open")
    stuck = observer.await_stable(TOPICS[0])
    for stage in plan.stages:
        tell(f"draining {stage.source}")
        if not stuck:
            observer.await_copied(stage, lambda: clients.revive(("copier",)))
            stuck |= observer.await_stable(stage.sink)
    tell("ending copiers")
    clients.end(("copier",))
    for topic in TOPICS:
        stuck |= observer.await_stable(topic)
    return stuck
