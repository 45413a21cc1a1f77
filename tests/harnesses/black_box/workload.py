"""Which clients a run has, and their processes: started, killed, started again."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harnesses.black_box.client import GAVE_UP
from harnesses.black_box.topics import KEYS, PARTITIONS, SOURCE, STAGES, TIMEOUT_MS
from harnesses.peers.jars import CLIENTS_3_9, NODE_4_2, JarSet, class_path, java_executable
from support.brokers import environment
from txn.client.engine import EngineName

JAVA: Final = Path(__file__).parent / "java" / "Client.java"
END_S: Final = 25.0
"""A client that has not ended by itself after it is killed."""


JVM_TERMINATED: Final = 128 + signal.SIGTERM
ENDS: Final = (None, 0, GAVE_UP, -signal.SIGKILL, -signal.SIGTERM, JVM_TERMINATED)
"""Ends of a client: not ended, ended as told, given up, killed, told before it heard."""


class ClientError(Exception):
    """A client is broken, not the broker; `clients.log` says how."""


@dataclass(frozen=True)
class ClientRole:
    """One client: its role, its name, its client library.

    Attributes:
        jars: Of a Java client; None for librdkafka.
        engine: Of a client on `txn.Producer` and `txn.Consumer`; None for any other.
        stage: Which stage a copier works on.
    """

    kind: str
    name: str
    jars: JarSet | None = None
    stage: int = 0
    engine: EngineName | None = None


def roles(
    *, plain: int, writers: int, copiers: int, java: int, java_tv1: int = 0, native: int = 0
) -> list[ClientRole]:
    """The usual clients; copiers work on every stage, of each Java client one of two kinds.

    Native clients are in turn writers, copiers of each stage, and plain ones if there are others.
    Transactions of `java` and `native` are of version 2, those of the others of version 1.
    """
    found = [ClientRole("plain", f"plain-{n}") for n in range(plain)]
    found += [ClientRole("writer", f"writer-{n}") for n in range(writers)]
    for stage in range(len(STAGES)):
        found += [ClientRole("copier", f"copier-{stage}-{n}", stage=stage) for n in range(copiers)]
    for jars, count, name in ((NODE_4_2, java, "java"), (CLIENTS_3_9, java_tv1, "older-java")):
        for n in range(count):
            kind = ("writer", "copier")[n % 2]
            found.append(ClientRole(kind, f"{name}-{kind}-{n}", jars, stage=n // 2 % len(STAGES)))
    kinds = [("writer", 0), *(("copier", stage) for stage in range(len(STAGES)))]
    kinds += [("plain", 0)] if plain else []
    for n in range(native):
        kind, stage = kinds[n % len(kinds)]
        found.append(ClientRole(kind, f"native-{kind}-{n}", stage=stage, engine="native"))
    return found


@dataclass
class RoleSlot:
    """A role and the processes that play it; two, while a transactional id changes hands."""

    role: ClientRole
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def alive(self) -> list[subprocess.Popen[bytes]]:
        """The processes that have not ended. Raises ClientError if one ended by its own fault."""
        for process in self.processes:
            if process.poll() not in ENDS:
                raise ClientError(f"{self.role.name} ended with {process.returncode}")
        self.processes = [process for process in self.processes if process.poll() is None]
        return self.processes


class Clients:
    """All client processes of a run.

    Args:
        roles: The roles of the clients.
        servers: The proxy.
        directory: Where their notes go, a file for each process.
        seed: Settles their choices.
    """

    def __init__(
        self, roles: Sequence[ClientRole], servers: str, directory: Path, seed: int
    ) -> None:
        self.slots = [RoleSlot(role) for role in roles]
        self.notes: list[Path] = []
        self._servers = servers
        self._directory = directory
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._classes = _compile() if any(role.jars for role in roles) else None

    def start(self) -> None:
        for slot in self.slots:
            self.spawn(slot)

    def spawn(self, slot: RoleSlot) -> None:
        """Start a process for a role, beside those that play it already."""
        number = next(self._numbers)
        notes = self._directory / f"{number:04d}-{slot.role.name}.notes"
        self.notes.append(notes)
        seed = str(self._chance.randrange(1 << 32))
        log = (self._directory / "clients.log").open("ab")
        with log:
            slot.processes.append(
                subprocess.Popen(
                    self._command(slot.role, notes, seed),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=environment(),
                )
            )

    def revive(self, kinds: Sequence[str] = ("plain", "writer", "copier")) -> None:
        """Start a process for every role that nobody plays any more."""
        for slot in self.slots:
            if slot.role.kind in kinds and not slot.alive():
                self.spawn(slot)

    def count_sends(self) -> int:
        """Number of records sent so far."""
        written = [path.read_bytes() for path in self.notes if path.exists()]
        return sum(text.count(b'"event": "send"') for text in written)

    def end(self, kinds: Sequence[str]) -> None:
        """Ask all of some kinds to come to an end; kill those that do not."""
        ending = [p for slot in self.slots if slot.role.kind in kinds for p in slot.alive()]
        for process in ending:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for process in ending:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Kill the remaining clients."""
        for slot in self.slots:
            for process in slot.processes:
                process.kill()
                process.wait()
        if self._classes is not None:
            shutil.rmtree(self._classes, ignore_errors=True)

    def _command(self, role: ClientRole, notes: Path, seed: str) -> list[str]:
        if role.jars is None:
            module = "client" if role.engine is None else "public_client"
            return [
                *(sys.executable, "-m", f"harnesses.black_box.{module}", role.kind, role.name),
                *(() if role.engine is None else ("--engine", role.engine)),
                *("--servers", self._servers, "--notes", str(notes), "--seed", seed),
                *("--stage", str(role.stage)),
            ]
        stage = STAGES[role.stage]
        source = stage.source if role.kind == "copier" else SOURCE
        return [
            *(java_executable(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-Dlog4j2.level=OFF", "-cp", f"{self._classes}{os.pathsep}{class_path(role.jars)}"),
            *("Client", role.kind, role.name, self._servers, str(notes), seed),
            *(source, stage.sink, stage.group),
            *(str(TIMEOUT_MS), str(PARTITIONS), str(len(KEYS))),
        ]


def _compile() -> Path:
    """Compile the Java client once for all its processes; return the class directory."""
    classes = Path(tempfile.mkdtemp(prefix="black-box-classes-"))
    subprocess.run(
        [
            str(Path(java_executable()).with_name("javac")),
            *("-d", str(classes), "-cp", class_path(CLIENTS_3_9), str(JAVA)),
        ],
        check=True,
    )
    return classes
