"""The broker behind a test's proxy: in this process, or one of its own that can be killed."""

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from txn.config import BrokerSettings
from txn.errors import RejectedError, TxnError
from txn.server.lifecycle.service import Service
from txn.testing.clock import Ahead, AheadScheduler

READY: Final = "ready "
DONE: Final = "done"
STOP_S: Final = 30.0


class Engine(ABC):
    """A broker on a directory, which it does not own.

    Attributes:
        port: The port of its listener, another one after each start.
        is_running: False before `start`, and after `stop` or `kill`.
    """

    port: int
    is_running = False

    @abstractmethod
    def start(self, directory: Path, advertised_port: int) -> None:
        """Recover the directory and listen. Raises the errors of `txn.Broker`."""

    @abstractmethod
    def stop(self) -> None:
        """Stop in order."""

    @abstractmethod
    def advance(self, by_ms: int) -> None:
        """Move its clock, and return when each call that is due has been made."""

    def kill(self) -> None:
        """End it as SIGKILL does. Raises RejectedError: it has no process of its own."""
        raise RejectedError(
            "this broker runs in the process of the test, which SIGKILL would end. Open one with "
            "TestBroker(own_process=True), or restart() this one"
        )


def settings_of(properties: Mapping[str, object], advertised_port: int) -> BrokerSettings:
    """The settings of a broker behind a proxy. Raises ConfigError."""
    return BrokerSettings(
        {
            **properties,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised_port}",
        }
    )


class Embedded(Engine):
    """A broker in this process."""

    def __init__(self, properties: Mapping[str, object], ahead: Ahead) -> None:
        self._properties = properties
        self._ahead = ahead
        self._service: Service | None = None
        self._scheduler: AheadScheduler | None = None

    def start(self, directory: Path, advertised_port: int) -> None:
        """See `Engine`."""

        def scheduler(loop: object, durability: object) -> AheadScheduler:
            self._scheduler = AheadScheduler(loop, durability, self._ahead)  # type: ignore[arg-type]
            return self._scheduler

        settings = settings_of(self._properties, advertised_port)
        self._service = Service.open(settings, directory, None, None, scheduler=scheduler)
        self.port = int(self._service.bootstrap_servers.rpartition(":")[2])
        self.is_running = True

    def stop(self) -> None:
        """See `Engine`."""
        if self._service is not None:
            self.is_running = False
            self._service.close()
            self._service = self._scheduler = None

    def advance(self, by_ms: int) -> None:
        """See `Engine`."""
        assert self._scheduler is not None, "it runs"
        self._scheduler.advance(by_ms)


class OwnProcess(Engine):
    """A broker in a process of its own: `txn.testing.own_process`.

    It reads commands from its standard input, and stops when that ends: with the test's process,
    however that ends.
    """

    def __init__(self, properties: Mapping[str, object], ahead: Ahead) -> None:
        self._properties = properties
        self._ahead = ahead
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self, directory: Path, advertised_port: int) -> None:
        """See `Engine`."""
        words = [f"{name}={value}" for name, value in self._properties.items()]
        command = [sys.executable, "-m", "txn.testing.own_process", str(directory)]
        self._process = subprocess.Popen(
            [*command, str(advertised_port), str(self._ahead.ms), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        answer = self._read()
        if not answer.startswith(READY):
            self._reap()
            raise TxnError(f"the broker's own process did not start: {answer or 'see its stderr'}")
        self.port = int(answer.removeprefix(READY))
        self.is_running = True

    def stop(self) -> None:
        """See `Engine`."""
        if self._process is not None:
            self.is_running = False
            assert self._process.stdin is not None, "it is a pipe"
            self._process.stdin.close()
            self._reap()

    def kill(self) -> None:
        """See `Engine`."""
        if self._process is not None:
            self.is_running = False
            os.kill(self._process.pid, signal.SIGKILL)
            self._reap()

    def advance(self, by_ms: int) -> None:
        """See `Engine`."""
        assert self._process is not None, "it runs"
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(f"advance {by_ms}\n")
        answer = self._read()
        if answer != DONE:
            raise TxnError(f"the broker's own process did not move its clock: {answer!r}")
        self._ahead.ms += by_ms

    def _read(self) -> str:
        assert self._process is not None, "it runs"
        assert self._process.stdout is not None, "it is a pipe"
        return self._process.stdout.readline().strip()

    def _reap(self) -> None:
        assert self._process is not None, "it runs"
        process, self._process = self._process, None
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
