"""Transactional applications on confluent-kafka: the speed for a user, client and all.

The client's own cost is in both brokers' times. With one producer a transaction is a chain of
requests, each waiting for the one before; with many the broker's CPU counts. Apache Kafka writes
markers after it has answered. So a next transaction meets CONCURRENT_TRANSACTIONS and its client
pauses: 100 ms in librdkafka's AddOffsetsToTxn, 20 ms in Java's AddPartitionsToTxn.
"""

import json
import subprocess
import sys
from itertools import count
from typing import Final

from benches.cases import Case, Figure, Measure, Measured, Scale
from benches.contestants import ROOT, Contestant, cpu_time, create_topic, delete_topic

MANY: Final = 32

_numbers = count()


def client_limits(scale: Scale) -> Measured:
    """Measure the client's best: against librdkafka's mock cluster.

    That keeps records in memory, knows no partition's rules and answers at once, from a thread
    of C. Its topics have four partitions, too few for many loops.
    """
    command = [sys.executable, "-m", "benches.applications", "mock"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as mock:
        assert mock.stdin is not None
        assert mock.stdout is not None
        address = mock.stdout.readline().strip()
        found = {}
        _load(address, "fill", "loop-limit", producers=1)
        for name, producers in (("small", 1), ("small", MANY), ("loop", 1)):
            topic = f"{name}-limit"
            options = {"producers": producers, "seconds": scale.application_s}
            done = _load(address, name, topic, **options, output=f"{topic}-out")
            found[f"{name}_{producers}_per_s"] = done["transactions"] / done["seconds"]
        mock.stdin.close()
    return found


def _run(broker: Contestant, application: str, topic: str, **options: object) -> Measured:
    before = cpu_time(broker.pid)
    measured = _load(broker.bootstrap_servers, application, topic, **options)
    return measured | {"cpu_s": (cpu_time(broker.pid) - before).total}


def _load(bootstrap: str, application: str, topic: str, **options: object) -> Measured:
    words = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "benches.applications", application, *words]
    done = subprocess.run(
        [*command, f"--bootstrap={bootstrap}", f"--topic={topic}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    measured: Measured = json.loads(done.stdout)
    return measured


def _application(name: str, producers: int) -> Measure:
    def measure(broker: Contestant, scale: Scale) -> Measured:
        prefix = f"{name}{next(_numbers)}"
        topic = f"{prefix}-0"
        create_topic(broker, prefix, 3 if name == "small" else producers)
        topics = [topic]
        if name == "loop":
            create_topic(broker, f"{topic}-out", producers)
            topics.append(f"{topic}-out-0")
            _run(broker, "fill", topic, producers=producers)
        options = {"producers": producers, "seconds": scale.application_s, "output": topics[-1]}
        done = _run(broker, name, topic, **options)
        for one in topics:
            delete_topic(broker, one)
        return {
            "per_s": done["transactions"] / done["seconds"],
            "commit_p50_ms": done["commit_p50_us"] / 1000,
            "cpu_us": done["cpu_s"] / done["transactions"] * 1e6,
        }

    return measure


def _figures(
    times_kafka: float, cpu_us: float | None = None, limit: str | None = None
) -> tuple[Figure, ...]:
    return (
        Figure(
            "per_s", "transactions", "1/s", times_kafka, is_rate=True, of_peer=True, limit=limit
        ),
        Figure("commit_p50_ms", "commit, p50", "ms"),
        Figure("cpu_us", "broker CPU each", "µs", cpu_us),
    )


APPLICATION_CASES: Final = (
    Case(
        "small-1",
        "confluent-kafka: 10 messages to 3 partitions, 1 producer",
        _figures(8, limit="small_1_per_s"),
        _application("small", 1),
    ),
    Case(
        "small-32",
        "the same, 32 producers",
        _figures(4, 150, limit=f"small_{MANY}_per_s"),
        _application("small", MANY),
    ),
    Case(
        "loop-1",
        "confluent-kafka: consume, transform, produce, 1 producer",
        _figures(40, limit="loop_1_per_s"),
        _application("loop", 1),
    ),
    Case(
        "loop-32",
        "the same, 32 producers",
        _figures(4),
        _application("loop", MANY),
    ),
    Case(
        "durable-1",
        "10 messages to 3 partitions, txn forces commits to the disk, 1 producer",
        _figures(4, limit="small_1_per_s"),
        _application("small", 1),
        is_durable=True,
    ),
    Case(
        "durable-32",
        "the same, 32 producers",
        _figures(4, limit=f"small_{MANY}_per_s"),
        _application("small", MANY),
        is_durable=True,
    ),
)
