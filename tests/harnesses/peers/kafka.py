"""A real Apache Kafka node to hold txn against: one KRaft node on loopback.

`KafkaNode` starts and stops one; the fixture `kafka_peer` keeps one for a whole test run,
started by the first test that asks for it. A node needs a JDK 17 or newer, the jars of
`harnesses.peers.jars` and about 600 MB of memory.
"""

import base64
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from harnesses.peers.jars import (
    CONTROL,
    JarSet,
    PeerUnavailableError,
    class_path,
    java_executable,
)
from harnesses.peers.kept import keep, kept, remove
from support.clients import commit_values, create_topic, read_all, transactional_producer

START_SECONDS_MAX: Final = 300.0
"""A start needs 10 s of CPU: on 2 cores with a load of 30 it took more than 90 s."""
STOP_SECONDS_MAX: Final = 30.0
STARTED: Final = "Kafka Server started"
"""The line that a node writes to its log once it serves requests."""

ONE_NODE: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    # Internal topics want three replicas unless told that there is one node.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # It writes a record each half second otherwise; many tests leave a node idle.
    "metadata.max.idle.interval.ms": "0",
    # A group of tests need not wait for members who might still come.
    "group.initial.rebalance.delay.ms": "0",
    # Nor for the node to look for transactions that took too long.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

FORMATTED: Final = Path(__file__).resolve().parents[3] / "target" / "formatted"
"""Formatted directories, by what Kafka's tool made them of."""
FORMAT_READS: Final = ("node.id", "process.roles", "log.dirs", "metadata.log.dir", "unstable.")
"""Beginnings of the settings that a format depends on."""

PORTS: Final = range(10_000, 32_000)
_given: Final[set[int]] = set()
"""Ports that `free_port` has returned."""

WRITES_IDLE_RECORDS: Final[Mapping[str, str]] = {"metadata.max.idle.interval.ms": "500"}
"""Kafka's default, for a metadata log like a user's."""

FEW_PARTITIONS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""For a node that lives for one test: 50 of each cost a start and a stop one second of CPU."""

LOG_TO_FILE: Final = """\
Configuration:
  Appenders:
    File: {{name: F, fileName: "{path}", PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}}}
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: F}}}}
"""


class KafkaNode:
    """One Apache Kafka node in a directory of its own; a context manager that serves while open.

    A directory that holds a node's data already is used as it is, so a node can be stopped
    and started again.

    Args:
        directory: Where configuration, logs and data (`data/`) go; made if it is missing.
        properties: Broker settings in Kafka's names, over those of `ONE_NODE`.
        port: Where clients find it; a free one if none is given.
        host: What it calls itself to clients; a name or an address of loopback.
        ports: Ports of listeners by name, in place of free ones.
        jars: Which Kafka to run.
        listeners: More listeners for clients, by name with their protocols, each at a free port.
        format_options: Options of the format of the directory, such as users of SCRAM.
        heap: The JVM's heap, as `-Xmx` takes it.

    Raises:
        PeerUnavailableError: on entry, when there is no Java, no jars, or the node does not
            start; the message carries the end of its log.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        ports: Mapping[str, int] | None = None,
        jars: JarSet = CONTROL,
        heap: str = "512m",
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.bootstrap_servers = ""
        self.servers: dict[str, str] = {}
        """Bootstrap servers by the name of the listener, while the node runs."""
        self.controller = ""
        """Address of the controller, while the node runs."""
        self._listeners = dict(listeners or {})
        self._format_options = list(format_options)
        self._properties = dict(properties or {})
        self._host = host
        self._ports = dict(ports or {})
        if port is not None:
            self._ports["PLAINTEXT"] = port
        self._jars = jars
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The node's log directory: partitions, checkpoints, `meta.properties`."""
        return self.directory / "data"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None, "the node is not running"
        return self._process.pid

    def __enter__(self) -> "KafkaNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Format the data directory if it is new, start the node, wait until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.servers = {
            name: f"{self._host}:{self._ports.get(name) or free_port()}"
            for name in ("PLAINTEXT", *self._listeners)
        }
        self.bootstrap_servers = self.servers["PLAINTEXT"]
        self.controller = f"127.0.0.1:{free_port()}"
        config = self._write_properties()
        if not (self.data / "meta.properties").exists():
            self._format(config)
        log = self.directory / "server.log"
        log.unlink(missing_ok=True)
        with (self.directory / "output.log").open("wb") as output:
            self._process = subprocess.Popen(
                [*self._java(f"-Xms{self._heap}", f"-Xmx{self._heap}"), "kafka.Kafka", str(config)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._wait_until_serving(log)

    def stop(self) -> None:
        """Stop the node cleanly; one that does not stop in time is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node with SIGKILL, as a power failure of the process would."""
        self._end(signal.SIGKILL)

    def _end(self, signal_number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write_properties(self) -> Path:
        config = self.directory / "server.properties"
        served = ",".join(f"{name}://{server}" for name, server in self.servers.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | self._listeners
        properties = {
            **ONE_NODE,
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"{served},CONTROLLER://{self.controller}",
            "advertised.listeners": served,
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "log.dirs": str(self.data),
            **self._properties,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        (self.directory / "log4j2.yaml").write_text(
            LOG_TO_FILE.format(path=self.directory / "server.log")
        )
        return config

    def _format(self, config: Path) -> None:
        """Format by Kafka's own tool, once for each Kafka; other nodes get a copy, with new ids.

        The tool is a JVM, which costs a third of a node's short life.
        """
        read = sorted(each for each in self._properties.items() if each[0].startswith(FORMAT_READS))
        key = repr((self._jars, self._format_options, read))
        made = FORMATTED / hashlib.sha256(key.encode()).hexdigest()[:12]
        if not made.exists():
            self._format_anew(config)
            FORMATTED.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=FORMATTED) as place, suppress(OSError):
                # It fails where another process was faster.
                Path(shutil.copytree(self.data, Path(place) / "data")).rename(made)
            return
        shutil.copytree(made, self.data)
        identity = self.data / "meta.properties"
        lines = identity.read_text().splitlines()
        others = [line for line in lines if not line.startswith(("cluster.id=", "directory.id="))]
        lines = [*others, f"cluster.id={_new_id()}", f"directory.id={_new_id()}"]
        identity.write_text("".join(f"{line}\n" for line in lines))

    def _format_anew(self, config: Path) -> None:
        done = subprocess.run(
            [
                *self._java(),
                *("kafka.tools.StorageTool", "format", "-c", str(config)),
                f"--cluster-id={_new_id()}",  # which may begin with a dash
                *self._format_options,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PeerUnavailableError(
                f"Apache Kafka could not format {self.data}:\n{done.stdout}{done.stderr}"
            )

    def _wait_until_serving(self, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (log.exists() and STARTED in log.read_text(errors="replace")):
            try:
                code = self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                what = f"did not serve within {START_SECONDS_MAX:.0f} s"
            else:
                what = f"ended with exit code {code}"
            self.kill()
            raise PeerUnavailableError(f"Apache Kafka {what}:\n{self._last_words(log)}")

    def _last_words(self, log: Path) -> str:
        output = self.directory / "output.log"
        texts = [path.read_text(errors="replace") for path in (output, log) if path.exists()]
        return "\n".join("\n".join(texts).splitlines()[-30:])

    def _java(self, *options: str) -> list[str]:
        return [
            java_executable(),
            *options,
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.yaml'}",
            *("-cp", class_path(self._jars)),
        ]


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, another one with each call.

    It lies below the ports that a kernel gives to connections: none of those takes it meanwhile.
    """
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


@pytest.fixture(scope="session")
def kafka_peer() -> str:
    """Bootstrap servers of the control, a real Apache Kafka, one for the whole run.

    `TXN_PEER_BOOTSTRAP` names one that runs already, to save the start while writing tests.
    """
    running = os.environ.get("TXN_PEER_BOOTSTRAP")
    return running or kept("kafka", __name__)[1]["PLAINTEXT"]


@contextmanager
def ready_node(directory: Path) -> Iterator[KafkaNode]:
    """Run the control for many tests."""
    with KafkaNode(directory, jars=CONTROL) as node:
        commit_once(node.bootstrap_servers)
        yield node


def commit_once(servers: str) -> None:
    """Run a first transaction. Kafka makes `__transaction_state` for it, and answers its commit
    seconds before the markers: a test that reads its own commit would find nothing.
    """
    create_topic(servers, "first")
    commit_values(transactional_producer(servers, "first"), "first", [b"1"])
    ends_s = time.monotonic() + START_SECONDS_MAX
    while not read_all(servers, "first"):
        assert time.monotonic() < ends_s, "Kafka writes no markers"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with ready_node(place) as kept_node:
        keep(place, kept_node.servers)
    remove(place)
