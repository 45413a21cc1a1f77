"""The brokers, as processes that are started, loaded and looked at from outside.

A broker's cost is read from `/proc`: CPU of all its threads, resident memory, open files.
"""

import compileall
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from benches import secured
from confluent_kafka.admin import AdminClient

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet  # noqa: E402
from harnesses.peers.kafka import WRITES_IDLE_RECORDS, KafkaNode, free_port  # noqa: E402
from support.brokers import BrokerProcess  # noqa: E402

LOAD_CLIENT: Final = ROOT / "target" / "release" / "txn-bench"
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")

KAFKA_HEAP: Final = "1g"
KAFKA_FLAGS: Final = (
    "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent"
)
"""The JVM options of Kafka's own start script."""
DELETE_DELAY_S: Final = 1
"""Files of deleted topics go soon, and not in the middle of the next measurement."""
PROPERTIES: Final = {
    "log.segment.delete.delay.ms": str(1000 * DELETE_DELAY_S),
    "auto.create.topics.enable": "false",
}

TXN: Final = "txn"
"""Name of the contestant that is this checkout."""
PEERS: Final[Mapping[str, JarSet]] = {"4.4.0": NODE_4_4, "4.2.0": NODE_4_2}
"""The versions of Apache Kafka that `KAFKA_VERSION` may name."""
KAFKA_VERSION: Final = os.environ.get("KAFKA_VERSION") or "4.4.0"
KAFKA: Final = f"Apache Kafka {KAFKA_VERSION}"


def python_of(checkout: Path) -> Path:
    """The interpreter that runs a checkout's txn."""
    return Path(sys.executable) if checkout == ROOT else checkout / ".venv" / "bin" / "python"


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, and whether it was changed since."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=checkout, check=False)
    return done.stdout.strip() or "unknown"


def as_installed(checkout: Path) -> str:
    """The module path of a txn without the packages that only its tests need.

    Its modules are compiled, as pip does when it installs: brokers may be forbidden to.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    hidden = str(ROOT / "benches" / "as_installed")
    compileall.compile_dir(checkout / "python" / "txn", quiet=1)
    return os.pathsep.join([hidden, *(path for path in given if path not in ("", hidden))])


class Contestant(Protocol):
    """A broker that can be started, stopped and killed."""

    name: str
    ca: Path | None
    """The issuer of its certificate; None if it is loaded without TLS."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def servers(self) -> Mapping[str, str]:
        """Bootstrap servers by the name of the listener, if it has `ca`."""

    @property
    def pid(self) -> int: ...

    def start(self) -> None:
        """Start and wait until it serves."""

    def stop(self) -> None:
        """Stop in order."""

    def kill(self) -> None:
        """SIGKILL."""


class Txn:
    """`txn serve`, by default with the durability of Apache Kafka on one node: the page cache.

    `checkout` is a built tree of txn: this one, or an earlier commit's.
    """

    def __init__(
        self,
        place: Path,
        durability: str = "process",
        *,
        checkout: Path = ROOT,
        is_secured: bool = False,
    ) -> None:
        os.environ["PYTHONPATH"] = as_installed(checkout)
        self.name = TXN if checkout == ROOT else f"{TXN} {commit_of(checkout)}"
        self.python = python_of(checkout)
        self._checkout = checkout
        self._place = place
        self._durability = durability
        self.is_durable = durability != "process"
        self.ca = secured.ca(place) if is_secured else None
        self._process: BrokerProcess | None = None

    @property
    def _running(self) -> BrokerProcess:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def bootstrap_servers(self) -> str:
        return self._running.bootstrap_servers

    @property
    def servers(self) -> Mapping[str, str]:
        return self._running.servers

    @property
    def pid(self) -> int:
        return self._running.pid

    def made_durable(self) -> "Txn":
        """The same txn with `durability=commit`."""
        return Txn(self._place, "commit", checkout=self._checkout)

    def made_secured(self) -> "Txn":
        """The same txn with TLS and SASL."""
        return Txn(self._place, checkout=self._checkout, is_secured=True)

    @property
    def data(self) -> Path:
        secured = "-secured" if self.ca else ""
        return self._place / f"{self.name.replace(' ', '-')}-{self._durability}{secured}"

    def start(self) -> None:
        if self._process is None:
            self._place.mkdir(parents=True, exist_ok=True)
            settings = PROPERTIES | (secured.properties(self._place) if self.ca else {})
            names = ("PLAINTEXT", *secured.LISTENERS) if self.ca else ()
            self._process = BrokerProcess(
                self.data,
                *(f"{name}={value}" for name, value in settings.items()),
                durability=self._durability,
                python=self.python,
                listeners={name: free_port() for name in names},
            )
            if self.ca:
                secured.make_user(self.bootstrap_servers)
        else:
            self._process.restart()

    def stop(self) -> None:
        self._running.stop()

    def kill(self) -> None:
        self._running.kill()


COUNTED: Final = """\
import sys, txn
from txn import _core
sys.setswitchinterval(0.0001)
with txn.Broker(sys.argv[1], durability="commit") as broker:
    print(broker.bootstrap_servers, flush=True)
    for _ in sys.stdin:
        print(_core.sync_count(), flush=True)
"""


class CountedTxn:
    """A broker with `durability=commit` that tells how often it forced a file to the disk."""

    name = TXN
    ca: Path | None = None
    servers: Mapping[str, str] = {}

    def __init__(self, python: Path, data: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-c", COUNTED, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.bootstrap_servers = self._line()
        self.pid = self._process.pid

    def sync_count(self) -> int:
        """So far."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return int(self._line())

    def start(self) -> None:
        """It runs from the moment it is made."""

    def stop(self) -> None:
        """Stop in order."""
        self._process.communicate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class Kafka:
    """A node of `KAFKA_VERSION` with the JVM flags of its own start script."""

    name = KAFKA

    def __init__(self, place: Path, *, is_secured: bool = False) -> None:
        os.environ["JDK_JAVA_OPTIONS"] = KAFKA_FLAGS
        self._place = place
        self.ca = secured.ca(place) if is_secured else None
        self._node = KafkaNode(
            place / ("kafka-secured" if is_secured else "kafka"),
            {
                **WRITES_IDLE_RECORDS,
                **PROPERTIES,
                **(secured.properties(place) if is_secured else {}),
            },
            jars=PEERS[KAFKA_VERSION],
            heap=KAFKA_HEAP,
            listeners=secured.LISTENERS if is_secured else None,
        )

    def made_secured(self) -> "Kafka":
        """The same Kafka with TLS and SASL."""
        return Kafka(self._place, is_secured=True)

    @property
    def bootstrap_servers(self) -> str:
        return self._node.bootstrap_servers

    @property
    def servers(self) -> Mapping[str, str]:
        return self._node.servers

    @property
    def pid(self) -> int:
        return self._node.pid

    def start(self) -> None:
        self._node.start()
        if self.ca:
            secured.make_user(self.bootstrap_servers)

    def stop(self) -> None:
        self._node.stop()

    def kill(self) -> None:
        self._node.kill()


# ---------------------------------------------------------------- looking at a process


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds of a process, all threads."""

    user: float
    system: float

    def __sub__(self, before: "CpuTime") -> "CpuTime":
        return CpuTime(self.user - before.user, self.system - before.system)

    @property
    def total(self) -> float:
        return self.user + self.system


def cpu_time(pid: int) -> CpuTime:
    """Read the cost of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return CpuTime(int(fields[11]) / TICKS_PER_SECOND, int(fields[12]) / TICKS_PER_SECOND)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB, shared libraries included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no resident memory")


# ---------------------------------------------------------------- loading a broker


def load(broker: Contestant | None, command: str, **options: object) -> dict[str, float]:
    """Run the load client; return its output and the broker's cost meanwhile.

    Returns:
        The client's figures, and `cpu_s`, `cpu_user_s`, `cpu_system_s` of the broker.
    """
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words = [word for pair in given for word in pair.split("=", 1)]
    if broker is None:
        return _run(command, words)
    before = cpu_time(broker.pid)
    printed = _run(command, [*_way_to(broker), *words])
    spent = cpu_time(broker.pid) - before
    return printed | {
        "cpu_s": spent.total,
        "cpu_user_s": spent.user,
        "cpu_system_s": spent.system,
    }


def log_in(broker: Contestant, count: int) -> dict[str, float]:
    """Log in by SCRAM so many times, without TLS; return as `load`."""
    before = cpu_time(broker.pid)
    words = ["--bootstrap", broker.servers["SASL_PLAINTEXT"], "--count", str(count)]
    words += ["--mechanism", "SCRAM-SHA-256"]
    words += ["--user", secured.USER, "--password", secured.PASSWORD]
    printed = _run("log-ins", words)
    return printed | {"cpu_s": (cpu_time(broker.pid) - before).total}


def _way_to(broker: Contestant) -> list[str]:
    """The options by which the load client reaches a broker."""
    if broker.ca is None:
        return ["--bootstrap", broker.bootstrap_servers]
    return ["--bootstrap", broker.servers["SSL"], "--ca", str(broker.ca)]


def _run(command: str, words: list[str]) -> dict[str, float]:
    done = subprocess.run(
        [str(LOAD_CLIENT), command, *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    printed: dict[str, float] = json.loads(done.stdout)
    return printed


class HeldConnections:
    """Idle connections, open inside a `with` block."""

    def __init__(self, broker: Contestant, count: int) -> None:
        self._process = subprocess.Popen(
            [
                *(str(LOAD_CLIENT), "connections", *_way_to(broker)),
                *("--count", str(count)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> dict[str, float]:
        assert self._process.stdout is not None
        printed: dict[str, float] = json.loads(self._process.stdout.readline())
        return printed

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0, "a connection was lost"


def create_topic(broker: Contestant, name: str, partitions: int) -> None:
    """Make the topic `<name>-0`."""
    load(broker, "create-topics", prefix=name, topics=1, partitions=partitions)


def delete_topic(broker: Contestant, name: str) -> None:
    """Delete a topic, so that its pages leave the cache before they are written back."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_topics([name], operation_timeout=30).values():
        future.result()
    time.sleep(1.2 * DELETE_DELAY_S)
    wait_for_quiet(broker.pid)


def wait_for_quiet(pid: int, *, limit_s: float = 20.0) -> None:
    """Wait until a process has nothing left to do on its own: a JVM compiles after a load."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = cpu_time(pid)
        time.sleep(0.5)
        if (cpu_time(pid) - before).total <= 0.02:
            return
