"""The measured cases: one function per case, from a broker to figures.

A *case* is a kind of load. A *figure* is a number it gives, with the target of txn and, where there
is one, the limit of the machine. Steady cases run against two brokers that stay up, in turns; the
others start brokers of their own.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from benches.contestants import (
    ROOT,
    Contestant,
    CountedTxn,
    HeldConnections,
    Txn,
    cpu_time,
    create_topic,
    delete_topic,
    load,
    log_in,
    resident_mb,
)

GB: Final = 1e9
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Figure:
    """One number of the table.

    Attributes:
        key: Its name among the results of a case.
        title: Its description.
        unit: Of the value.
        target: The value to reach, None where there is none.
        is_rate: More is better; else less is.
        of_peer: The target is a multiple of the peer's value.
        limit: Key of the machine's limit (`limits`), or None.
    """

    key: str
    title: str
    unit: str
    target: float | None = None
    is_rate: bool = False
    of_peer: bool = False
    limit: str | None = None

    def is_met(self, value: float, peer: float | None) -> bool | None:
        """Say whether a value reaches the target; None where that cannot be said."""
        if self.target is None or (self.of_peer and not peer):
            return None
        goal = self.target * (peer or 1) if self.of_peer else self.target
        return value >= goal if self.is_rate else value <= goal


@dataclass(frozen=True)
class Scale:
    """Amount to send: all of it, or a little for a first look."""

    produce_bytes: int
    fetch_rounds: int
    sync_requests: int
    small_transactions: int
    warm_up_records: int
    partitions: int
    idle_partitions: int
    connections: int
    handshakes: int
    crash_bytes: int
    application_s: float


FULL: Final = Scale(
    produce_bytes=10**9,
    fetch_rounds=4,
    sync_requests=100_000,
    small_transactions=10_000,
    warm_up_records=12_000_000,
    partitions=1000,
    idle_partitions=10_000,
    connections=5000,
    handshakes=4000,
    crash_bytes=10**9,
    application_s=4.0,
)
QUICK: Final = Scale(
    produce_bytes=2 * 10**8,
    fetch_rounds=1,
    sync_requests=10_000,
    small_transactions=2000,
    warm_up_records=1_000_000,
    partitions=200,
    idle_partitions=2000,
    connections=500,
    handshakes=1000,
    crash_bytes=2 * 10**8,
    application_s=1.5,
)

Make = Callable[[Path], Contestant]
"""Makes a contestant with its files in a directory."""

Measured = dict[str, float]
Measure = Callable[[Contestant, Scale], Measured]


@dataclass(frozen=True)
class Case:
    """A kind of load.

    Attributes:
        name: For `--case`.
        title: For people.
        figures: Its results.
        measure: Runs it once against a broker.
        is_steady: The broker stays up between rounds, and Kafka is warmed up first.
        for_peer: Whether Apache Kafka is measured too.
        is_durable: txn runs with `durability=commit`, its default for a directory; Apache Kafka
            as ever, which syncs nothing at a commit. Steady cases only.
        is_secured: The load comes over TLS 1.3 or by SASL. Both brokers have the same certificate,
            and the client offers one cipher suite.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    measure: Measure
    is_steady: bool = True
    for_peer: bool = True
    is_durable: bool = False
    is_secured: bool = False


# ---------------------------------------------------------------- steady loads

_numbers = count()


def _fresh_name(prefix: str) -> str:
    return f"{prefix}{next(_numbers)}"


def _produce(record_bytes: int, batch_bytes: int) -> Measure:
    def measure(broker: Contestant, scale: Scale) -> Measured:
        name = _fresh_name("produce")
        create_topic(broker, name, 1)
        done = load(
            broker,
            "produce",
            topic=f"{name}-0",
            bytes=scale.produce_bytes,
            record_bytes=record_bytes,
            batch_bytes=batch_bytes,
        )
        delete_topic(broker, f"{name}-0")
        gigabytes = done["bytes"] / GB
        return {
            "cpu_s_per_gb": done["cpu_s"] / gigabytes,
            "user_s_per_gb": done["cpu_user_s"] / gigabytes,
            "mb_per_s": done["bytes"] / 1e6 / done["seconds"],
        }

    return measure


def _fetch(isolation: str) -> Measure:
    def measure(broker: Contestant, scale: Scale) -> Measured:
        topic = _kept_topic(broker, "fetch", 6, scale, _fill_six_partitions)
        done = load(
            broker,
            "fetch",
            topic=topic,
            partitions=6,
            isolation=isolation,
            rounds=scale.fetch_rounds,
        )
        gigabytes = done["bytes"] / GB
        return {
            "cpu_s_per_gb": done["cpu_s"] / gigabytes,
            "user_s_per_gb": done["cpu_user_s"] / gigabytes,
            "gb_per_s": gigabytes / done["seconds"],
        }

    return measure


def _tls_fetch(broker: Contestant, scale: Scale) -> Measured:
    found = _fetch("read_uncommitted")(broker, scale)
    return {"cpu_s_per_gb": found["cpu_s_per_gb"], "mb_per_s": found["gb_per_s"] * 1000}


def _fill_six_partitions(broker: Contestant, topic: str, scale: Scale) -> None:
    load(
        broker,
        "produce",
        topic=topic,
        partitions=6,
        connections=6,
        bytes=scale.produce_bytes // 2,
    )


def _fetch_sessions(broker: Contestant, scale: Scale) -> Measured:
    topic = _kept_topic(broker, "sessions", scale.partitions, scale, _fill_one_partition)
    measured: Measured = {}
    for kind, requests in (("full", 500), ("idle", 5000), ("one", 5000)):
        done = load(
            broker,
            "fetch-sessions",
            topic=topic,
            partitions=scale.partitions,
            kind=kind,
            requests=requests * scale.fetch_rounds,
        )
        measured[f"{kind}_cpu_us"] = done["cpu_s"] / done["requests"] * 1e6
    return measured


def _fill_one_partition(broker: Contestant, topic: str, _: Scale) -> None:
    load(broker, "produce", topic=topic, requests=1, batch_bytes=0)


def _sync_produce(clients: int) -> Measure:
    def measure(broker: Contestant, scale: Scale) -> Measured:
        name = _fresh_name("sync")
        create_topic(broker, name, 6)
        done = load(
            broker,
            "produce",
            topic=f"{name}-0",
            partitions=min(clients, 6),
            connections=clients,
            in_flight=1,
            batch_bytes=0,
            requests=scale.sync_requests * (1 if clients == 1 else 4),
        )
        delete_topic(broker, f"{name}-0")
        return {
            "p50_us": done["p50_us"],
            "p99_us": done["p99_us"],
            "cpu_us": done["cpu_s"] / done["requests"] * 1e6,
        }

    return measure


def _transactions(broker: Contestant, scale: Scale) -> Measured:
    name = _fresh_name("small")
    create_topic(broker, name, 1)
    count = scale.small_transactions // 10
    done = load(broker, "transactions", topic=f"{name}-0", id="bench-small", count=count)
    delete_topic(broker, f"{name}-0")
    return {"p50_us": done["p50_us"], "cpu_us": done["cpu_s"] / count * 1e6}


def _aborted(broker: Contestant, scale: Scale) -> Measured:
    topic = _kept_topic(broker, "aborted", 1, scale, _fill_with_aborts)
    times: dict[str, list[float]] = {"read_uncommitted": [], "read_committed": []}
    for _ in range(5):
        for isolation, seen in times.items():
            done = load(
                broker,
                "fetch",
                topic=topic,
                partitions=1,
                isolation=isolation,
                rounds=10 * scale.fetch_rounds,
            )
            seen.append(done["p50_us_per_mib"])
    plain, committed = (median(seen) for seen in times.values())
    return {
        "uncommitted_us_per_mib": plain,
        "committed_us_per_mib": committed,
        "ratio": committed / plain,
    }


def _fill_with_aborts(broker: Contestant, topic: str, scale: Scale) -> None:
    load(
        broker,
        "transactions",
        topic=topic,
        id="bench-aborted",
        count=scale.small_transactions,
        abort_every=2,
    )


_kept: dict[tuple[int, str], str] = {}


def _kept_topic(
    broker: Contestant,
    prefix: str,
    partitions: int,
    scale: Scale,
    fill: Callable[[Contestant, str, Scale], None],
) -> str:
    """A topic that is filled once per broker and read in every round."""
    key = (broker.pid, prefix)
    if key not in _kept:
        name = _fresh_name(prefix)
        create_topic(broker, name, partitions)
        _kept[key] = f"{name}-0"
        fill(broker, _kept[key], scale)
    return _kept[key]


def warm_up(broker: Contestant, scale: Scale) -> None:
    """Let a JIT settle: many records in, all of them out, many small requests."""
    name = _fresh_name("warm")
    create_topic(broker, name, 6)
    topic = f"{name}-0"
    per_batch = (64 << 10) // 108
    load(
        broker,
        "produce",
        topic=topic,
        partitions=6,
        connections=2,
        requests=scale.warm_up_records // per_batch,
    )
    for isolation in ("read_uncommitted", "read_committed"):
        load(broker, "fetch", topic=topic, partitions=6, isolation=isolation)
    load(
        broker,
        "produce",
        topic=topic,
        partitions=6,
        connections=8,
        in_flight=1,
        batch_bytes=0,
        requests=2 * scale.sync_requests,
    )
    delete_topic(broker, topic)


# ---------------------------------------------------------------- brokers of their own


def _memory(broker: Contestant, scale: Scale) -> Measured:
    with _Started(broker):
        idle = resident_mb(broker.pid)
        create_topic(broker, "memory", 6)
        for connections, batch_bytes in ((6, 64 << 10), (2, MIB)):
            load(
                broker,
                "produce",
                topic="memory-0",
                partitions=6,
                connections=connections,
                batch_bytes=batch_bytes,
                bytes=scale.produce_bytes,
            )
        load(broker, "fetch", topic="memory-0", partitions=6, isolation="read_committed")
        return {"idle_mb": idle, "loaded_mb": resident_mb(broker.pid)}


def _start(broker: Contestant, scale: Scale) -> Measured:
    began = time.perf_counter()
    with _Started(broker):
        waited = time.perf_counter() - began
        return {"serve_ms": waited * 1000, "cpu_ms": cpu_time(broker.pid).total * 1000}


IN_PROCESS: Final = """\
import time, txn
times = []
for _ in range(6):
    began = time.perf_counter()
    broker = txn.Broker()
    times.append(time.perf_counter() - began)
    broker.close()
print(min(times[1:]) * 1000, sorted(times[1:])[2] * 1000)
"""


def _start_in_process(broker: Contestant, scale: Scale) -> Measured:
    assert isinstance(broker, Txn), "Apache Kafka runs in no Python process"
    done = subprocess.run(
        [str(broker.python), "-c", IN_PROCESS], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {"broker_ms": float(done.stdout.split()[1])}


def _crash(broker: Contestant, scale: Scale) -> Measured:
    with _Started(broker):
        create_topic(broker, "crash", 1)
        load(broker, "produce", topic="crash-0", bytes=scale.crash_bytes)
        broker.kill()
        began = time.perf_counter()
        broker.start()
        load(broker, "produce", topic="crash-0", requests=1, batch_bytes=0)
        return {"seconds": time.perf_counter() - began}


COMMITTERS: Final = (1, 8, 32)


def _group_commit(broker: Contestant, scale: Scale) -> Measured:
    """Commits with `durability=commit`, by ever more producers at once, on the disk of `data`."""
    assert isinstance(broker, Txn), "Apache Kafka forces nothing at a commit"
    measured: Measured = {}
    for producers in COMMITTERS:
        broker.data.mkdir(parents=True)
        counted = CountedTxn(broker.python, broker.data)
        create_topic(counted, "group", 3)
        for number in range(2):  # the first makes files and takes ids
            each = max(scale.small_transactions // producers // (1 if number else 20), 10)
            before = counted.sync_count()
            done = load(
                counted,
                "transactions",
                topic="group-0",
                partitions=3,
                id="bench",
                producers=producers,
                count=each,
            )
            syncs = counted.sync_count() - before
        counted.stop()
        shutil.rmtree(broker.data)
        measured |= {
            f"commits_per_s_{producers}": done["transactions"] / done["seconds"],
            f"syncs_{producers}": syncs / done["transactions"],
            f"p50_us_{producers}": done["p50_us"],
        }
    return measured


def _group_commit_figures() -> Iterator[Figure]:
    for number in COMMITTERS:
        who = "1 producer" if number == 1 else f"{number} producers"
        yield Figure(f"commits_per_s_{number}", f"{who}: commits", "1/s", is_rate=True)
        yield Figure(f"syncs_{number}", f"{who}: fdatasync calls per commit", "")
        yield Figure(f"p50_us_{number}", f"{who}: p50, produce to end", "µs")


def _partitions(broker: Contestant, scale: Scale) -> Measured:
    with _Started(broker):
        made = load(
            broker,
            "create-topics",
            prefix="many",
            topics=1,
            partitions=scale.partitions,
            write="true",
        )
        return {
            "created_per_s": made["partitions"] / made["seconds_created"],
            "written_per_s": made["partitions"] / made["seconds_written"],
        }


def _idle_partitions(broker: Contestant, scale: Scale) -> Measured:
    """Made and left alone; then others that a client has fetched from, once."""
    assert isinstance(broker, Txn), "only txn promises that they cost next to nothing"

    def bytes_each(prefix: str, **options: object) -> float:
        before = resident_mb(broker.pid)
        topics = scale.idle_partitions // 1000
        load(broker, "create-topics", prefix=prefix, topics=topics, partitions=1000, **options)
        return (resident_mb(broker.pid) - before) * 1e6 / scale.idle_partitions

    with _Started(broker):
        create_topic(broker, "first", 1)
        idle, fetched = bytes_each("idle", touch="false"), bytes_each("fetched")
        files = sum(1 for path in broker.data.iterdir() if path.name[:4] in ("idle", "fetc"))
        return {"bytes_each": idle, "fetched_bytes_each": fetched, "files": files}


def _connections(broker: Contestant, scale: Scale) -> Measured:
    with _Started(broker):
        create_topic(broker, "first", 1)
        with HeldConnections(broker, 100):
            pass  # modules that the first connections load
        before = resident_mb(broker.pid)
        with HeldConnections(broker, scale.connections) as opened:
            after = resident_mb(broker.pid)
        return {
            "held": 100 * opened["connections"] / scale.connections,
            "kb_each": (after - before) * 1000 / scale.connections,
        }


def _handshakes(broker: Contestant, scale: Scale) -> Measured:
    done = load(broker, "handshakes", count=scale.handshakes)
    return {"per_s": done["count"] / done["seconds"], "cpu_us": done["cpu_s"] / done["count"] * 1e6}


def _log_ins(broker: Contestant, scale: Scale) -> Measured:
    done = log_in(broker, scale.handshakes // 4)
    return {"per_s": done["count"] / done["seconds"], "cpu_us": done["cpu_s"] / done["count"] * 1e6}


def _tls_connections(broker: Contestant, scale: Scale) -> Measured:
    with _Started(broker):
        with HeldConnections(broker, 100):
            pass  # modules that the first connections load
        memory = resident_mb(broker.pid)
        with HeldConnections(broker, scale.connections) as opened:
            grown = resident_mb(broker.pid) - memory
            idle = cpu_time(broker.pid)
            time.sleep(HELD_S)
            held = cpu_time(broker.pid) - idle
        return {
            "held": 100 * opened["connections"] / scale.connections,
            "kb_each": grown * 1000 / scale.connections,
            "held_cpu_ms": held.total / HELD_S * 1000,
        }


HELD_S: Final = 5
"""Time for which connections are held and their cost is measured."""


class _Started:
    """A broker that runs inside a `with` block, on data that nobody needs afterwards."""

    def __init__(self, broker: Contestant) -> None:
        self._broker = broker

    def __enter__(self) -> None:
        self._broker.start()

    def __exit__(self, *_: object) -> None:
        self._broker.kill()


def in_a_place(make: Make, measure: Measure, scale: Scale) -> Measured:
    """Run a case that is not steady, on a fresh directory."""
    place = Path(tempfile.mkdtemp(prefix="txn-bench-", dir=os.environ.get("TXN_BENCH_DIR")))
    try:
        return measure(make(place), scale)
    finally:
        shutil.rmtree(place, ignore_errors=True)


# ---------------------------------------------------------------- the table


def _produce_figures(cpu: float, rate: float | None = None) -> tuple[Figure, ...]:
    return (
        Figure("cpu_s_per_gb", "broker CPU per GB", "s", cpu, limit="produce_cpu_s_per_gb"),
        Figure("mb_per_s", "rate", "MB/s", rate, is_rate=True, of_peer=True),
    )


FETCH_FIGURES: Final = (
    Figure("cpu_s_per_gb", "broker CPU per GB", "s", 0.2, limit="sendfile_cpu_s_per_gb"),
    Figure("gb_per_s", "rate", "GB/s", 4.0, is_rate=True, limit="sendfile_gb_per_s"),
)

TLS_FIGURES: Final = (
    Figure("cpu_s_per_gb", "broker CPU per GB", "s", 0.5, of_peer=True),
    Figure("mb_per_s", "rate", "MB/s", is_rate=True),
)

CASES: Final = (
    Case(
        "produce-100",
        "produce 100 B records, 64 KiB batches, one connection",
        _produce_figures(0.9, 3.0),
        _produce(100, 64 << 10),
    ),
    Case(
        "produce-1k",
        "produce 1 KiB records, 64 KiB batches",
        _produce_figures(0.8),
        _produce(1024, 64 << 10),
    ),
    Case(
        "produce-1mb",
        "produce 1 KiB records, 1 MiB batches",
        _produce_figures(0.7),
        _produce(1024, MIB),
    ),
    Case(
        "fetch",
        "fetch from page cache, 6 partitions, read_uncommitted",
        FETCH_FIGURES,
        _fetch("read_uncommitted"),
    ),
    Case(
        "fetch-committed",
        "fetch from page cache, 6 partitions, read_committed",
        FETCH_FIGURES,
        _fetch("read_committed"),
    ),
    Case(
        "fetch-sessions",
        "fetch of 1,000 partitions, in sessions and without",
        (
            Figure("full_cpu_us", "broker CPU, no session", "µs", 1.0, of_peer=True),
            Figure("idle_cpu_us", "broker CPU, session, none changed", "µs", 0.1, of_peer=True),
            Figure("one_cpu_us", "broker CPU, session, one has a record", "µs", 0.1, of_peer=True),
        ),
        _fetch_sessions,
    ),
    Case(
        "sync",
        "sync produce of 100 B, one client",
        (
            Figure("p50_us", "p50", "µs", 25, limit="round_trip_p50_us"),
            Figure("cpu_us", "broker CPU per request", "µs", 12, limit="round_trip_cpu_us"),
        ),
        _sync_produce(1),
    ),
    Case(
        "sync-64",
        "sync produce of 100 B, 64 clients",
        (
            Figure("p50_us", "p50", "µs"),
            Figure("cpu_us", "broker CPU per request", "µs", 7, limit="round_trip_cpu_us"),
        ),
        _sync_produce(64),
    ),
    Case(
        "transactions",
        "transaction of 10 records, version 2",
        (
            Figure("p50_us", "p50, produce to end", "µs"),
            Figure("cpu_us", "broker CPU each", "µs"),
        ),
        _transactions,
    ),
    Case(
        "aborted",
        "fetch over 10,000 small transactions, half of them aborted",
        (
            Figure("uncommitted_us_per_mib", "read_uncommitted, p50 per MiB", "µs"),
            Figure("committed_us_per_mib", "read_committed, p50 per MiB", "µs"),
            Figure("ratio", "read_committed to read_uncommitted", "×", 1.1),
        ),
        _aborted,
    ),
    Case(
        "tls-produce",
        "produce 1 KiB records, 64 KiB batches, over TLS 1.3 (AES-256-GCM)",
        TLS_FIGURES,
        _produce(1024, 64 << 10),
        is_secured=True,
    ),
    Case(
        "tls-fetch",
        "fetch from page cache, 6 partitions, over TLS 1.3 (AES-256-GCM)",
        TLS_FIGURES,
        _tls_fetch,
        is_secured=True,
    ),
    Case(
        "tls-handshakes",
        "TLS 1.3 handshakes, one request each",
        (
            Figure("per_s", "rate, 4 clients", "1/s", is_rate=True),
            Figure("cpu_us", "broker CPU each", "µs", 0.5, of_peer=True),
        ),
        _handshakes,
        is_secured=True,
    ),
    Case(
        "scram-log-ins",
        "log-ins by SCRAM-SHA-256",
        (
            Figure("per_s", "rate, 4 clients", "1/s", is_rate=True),
            Figure("cpu_us", "broker CPU each", "µs", 1.0, of_peer=True),
        ),
        _log_ins,
        is_secured=True,
    ),
    Case(
        "tls-connections",
        "5,000 idle connections over TLS 1.3",
        (
            Figure("held", "held", "%", 100, is_rate=True),
            Figure("kb_each", "memory each", "kB", 0.5, of_peer=True),
            Figure("held_cpu_ms", "CPU a second to hold all", "ms"),
        ),
        _tls_connections,
        is_steady=False,
        is_secured=True,
    ),
    Case(
        "memory",
        "resident memory",
        (
            Figure("idle_mb", "idle", "MB", 50),
            Figure("loaded_mb", "after load", "MB", 110),
        ),
        _memory,
        is_steady=False,
    ),
    Case(
        "start",
        "start of the server, from exec to serving",
        (Figure("serve_ms", "time", "ms", 150), Figure("cpu_ms", "CPU meanwhile", "ms")),
        _start,
        is_steady=False,
    ),
    Case(
        "start-in-process",
        "`txn.Broker()`",
        (Figure("broker_ms", "time", "ms", 10),),
        _start_in_process,
        is_steady=False,
        for_peer=False,
    ),
    Case(
        "crash",
        "kill -9 with 1 GB of log, until the next ack",
        (Figure("seconds", "time", "s", 1.0),),
        _crash,
        is_steady=False,
    ),
    Case(
        "group-commit",
        "transactions over 3 partitions, durability=commit",
        tuple(_group_commit_figures()),
        _group_commit,
        is_steady=False,
        for_peer=False,
    ),
    Case(
        "partitions",
        "1,000 partitions made",
        (
            Figure("created_per_s", "created and writable", "1/s", 5000, is_rate=True),
            Figure("written_per_s", "and one record in each", "1/s", is_rate=True),
        ),
        _partitions,
        is_steady=False,
    ),
    Case(
        "idle-partitions",
        "10,000 idle partitions",
        (
            Figure("bytes_each", "memory each", "B", 1000),
            Figure("fetched_bytes_each", "once a client fetched from it", "B"),
            Figure("files", "directories", "", 0),
        ),
        _idle_partitions,
        is_steady=False,
        for_peer=False,
    ),
    Case(
        "connections",
        "5,000 idle connections",
        (
            Figure("held", "held", "%", 100, is_rate=True),
            Figure("kb_each", "memory each", "kB", 10),
        ),
        _connections,
        is_steady=False,
    ),
)


def limits(directory: Path, bytes_: int) -> Measured:
    """Measure this machine's best; produce needs append, checksum and receive."""
    found = load(None, "limits", directory=directory, bytes=bytes_)
    parts = ("append_cpu_s_per_gb", "crc_cpu_s_per_gb", "receive_cpu_s_per_gb")
    return found | {"produce_cpu_s_per_gb": sum(found[part] for part in parts)}
