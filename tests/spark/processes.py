"""Spark's own servers as processes, for tests that kill them.

Each is the leader of its own session and listens on the loopback address.
"""

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pyspark

from harnesses.peers.kafka import free_port
from spark.kill.harness import Session, kill_session

START_S = 120.0
SPARK_HOME: Final = Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])

ENVIRONMENT: Final = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
}

CLASSES: Final = "org.apache.spark.deploy"
WORKERS: Final = 2


class StandaloneCluster:
    """A master and two workers of Spark standalone; one core and one executor each.

    Logs and the executors' directories are in `directory`.
    """

    environment: Mapping[str, str] = ENVIRONMENT

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._running = ExitStack()
        self._workers: deque[subprocess.Popen[bytes]] = deque()

    def __enter__(self) -> Self:
        log = self._directory / "master.log"
        master = self._start("master.Master", log, "--port", str(self._port))
        try:
            _await(master, self._port, log)
        except BaseException:
            self._running.close()
            raise
        for _ in range(WORKERS):
            self._add_worker()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kill_and_restart(self) -> None:
        """SIGKILL the oldest worker, its executor and their Python processes; add a new one."""
        kill_session(self._workers.popleft())
        self._add_worker()

    def _add_worker(self) -> None:
        size = ("--cores", "1", "--memory", "1g", "-d", str(self._directory / "work"))
        log = self._directory / "workers.log"
        self._workers.append(self._start("worker.Worker", log, *size, self.master))

    def _start(self, name: str, log: Path, *words: str) -> "subprocess.Popen[bytes]":
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"{CLASSES}.{name}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *words]
        return self._running.enter_context(Session(command, log, ENVIRONMENT))


class ConnectServer:
    """A Spark Connect server, which keeps its port over restarts; its log is in `directory`."""

    environment: Mapping[str, str] = {}

    def __init__(self, directory: Path) -> None:
        self._log = directory / "connect.log"
        self._port = free_port()
        self.master = f"sc://127.0.0.1:{self._port}"
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kill_and_restart(self) -> None:
        """SIGKILL the server and its Python processes, and with them all sessions; start it."""
        kill_session(self._server)
        self._start()

    def _start(self) -> None:
        configs = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2,4]"]
        command += ["--driver-memory", "1g"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [word for pair in configs.items() for word in ("--conf", "=".join(pair))]
        session = Session([*command, "spark-internal"], self._log, ENVIRONMENT)
        self._server = self._running.enter_context(session)
        try:
            _await(self._server, self._port, self._log)
        except BaseException:
            self._running.close()
            raise


def _await(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    ends_s = time.monotonic() + START_S
    while not _answers(port):
        assert server.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < ends_s, log.read_text()[-4000:]
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
