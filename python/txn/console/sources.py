"""Connections to the facts, one user's apart from another's.

The functions of `txn.cluster` and `txn.explain` are synchronous, and a source serves one caller at
a time. So a request borrows a source, and gives it back. Idle sources are kept for the next one.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.cli.cluster import Cluster
from txn.errors import ConfigError, RetriableError
from txn.explain.directory import DirectorySource
from txn.security.client import SecuritySettings
from txn.wire.transaction_descriptions import CONSOLE_CLIENT_ID

IDLE_MAX: Final = 4
"""Idle sources that are kept for a user."""

FRESH_S: Final = 1.0
"""The age up to which a source's list of topics and leaders is used without asking again."""

DIRECTORY_FRESH_S: Final = 10.0
"""The age up to which the files of a directory count as read."""

USERS_FILE: Final = "FILE"
"""Stands in a command line for the file of properties of a user who logged in."""

Source = RunningCluster | DirectorySource


@dataclass(frozen=True, slots=True)
class Way:
    """The way to the facts: a running cluster or the directory of a stopped broker."""

    cluster: Cluster
    data: Path | None = None

    @property
    def is_running(self) -> bool:
        """True if brokers are asked."""
        return self.data is None

    @property
    def takes_passwords(self) -> bool:
        """True if a user of the cluster logs in by name and password."""
        security = self.cluster.security
        return self.is_running and security.is_authenticated and security.token is None

    @property
    def name(self) -> str:
        """The servers or the directory, as a person knows them."""
        return self.cluster.servers if self.data is None else str(self.data)

    @property
    def options_of_user(self) -> str:
        """The options of a command of a user who logged in: their own file, not the console's."""
        return f"--bootstrap {self.cluster.servers} --command-config {USERS_FILE}"

    def as_user(self, username: str, password: str) -> SecuritySettings:
        """The settings of the connection of one user of the cluster."""
        return replace(self.cluster.security, username=username, password=password)

    def open(self, security: SecuritySettings, options: str | None = None) -> Source:
        """Connect, or read the directory.

        Args:
            security: The way in of the user.
            options: The options of this user's commands; None: those of the console.

        Raises:
            RetriableError: no broker answers.
            RejectedError: the cluster does not let the user in.
            DirectoryError: the directory cannot be read.
        """
        if self.data is not None:
            return DirectorySource(self.data)
        return RunningCluster(
            self.cluster.servers,
            security=security,
            options=options or self.cluster.options,
            advice="Start one of these brokers, and reload this page",
            client_id=CONSOLE_CLIENT_ID,
        )


class Sources:
    """The sources of one user.

    Args:
        way: Where the facts are.
        security: The way in of this user.
        options: The options of this user's commands; None: those of the console.
    """

    def __init__(self, way: Way, security: SecuritySettings, options: str | None = None) -> None:
        self.way = way
        self._security = security
        self._options = options
        self._lock = threading.Lock()
        self._idle: list[tuple[Source, float]] = []
        self._is_closed = False

    @contextmanager
    def borrowed(self) -> Iterator[Source]:
        """A source for the caller alone. A source that met an error is not used again."""
        source, looked_up = self._pop()
        if isinstance(source, RunningCluster) and time.monotonic() - looked_up > FRESH_S:
            try:
                source.refresh()
            except RetriableError:  # the broker it knew has gone
                source.close()
                source = self.way.open(self._security, self._options)
            looked_up = time.monotonic()
        try:
            yield source
        except BaseException as error:
            if isinstance(error, ConfigError):  # the user's mistake; the source is sound
                self._put_back(source, looked_up)
            else:
                _close(source)
            raise
        self._put_back(source, looked_up)

    @contextmanager
    def cluster(self) -> Iterator[RunningCluster]:
        """A running cluster for the caller alone. Raises ConfigError: files are read."""
        with self.borrowed() as source:
            if not isinstance(source, RunningCluster):
                raise ConfigError(
                    "the files of a stopped broker do not tell this. Start the broker, and give "
                    "the console its address by --bootstrap"
                )
            yield source

    def client_settings(self) -> dict[str, object]:
        """The properties by which a producer or a consumer connects as the same user.

        Raises:
            ConfigError: files are read; or librdkafka has nothing like a setting.
        """
        from txn.access.librdkafka import librdkafka_settings

        if not self.way.is_running:
            raise ConfigError("a stopped broker takes no records. Start it first")
        settings = dict(librdkafka_settings(self._security))
        return settings | {"bootstrap.servers": self.way.cluster.servers}

    def close(self) -> None:
        """Close the idle sources; a borrowed one is closed when it comes back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for source, _ in idle:
            _close(source)

    def _pop(self) -> tuple[Source, float]:
        with self._lock:
            while self._idle:
                source, looked_up = self._idle.pop()
                age_s = time.monotonic() - looked_up
                if isinstance(source, RunningCluster) or age_s < DIRECTORY_FRESH_S:
                    return source, looked_up
        return self.way.open(self._security, self._options), time.monotonic()

    def _put_back(self, source: Source, looked_up: float) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_MAX:
                self._idle.append((source, looked_up))
                return
        _close(source)


def _close(source: Source) -> None:
    if isinstance(source, RunningCluster):
        source.close()
