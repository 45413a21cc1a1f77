"""Brokers under test: each can be killed, stopped for a while and started again."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harnesses.black_box.power import lose_power, some_of
from harnesses.peers.kafka import KafkaNode, free_port
from support.brokers import BrokerProcess, environment

TESTS = Path(__file__).parents[2]


class Target(Protocol):
    """A broker behind the proxy."""

    port: int

    def kill(self) -> None:
        """End it with SIGKILL."""

    def restart(self) -> None:
        """Start it on its directory; returns when it serves."""

    def pause(self) -> None:
        """Stop it with SIGSTOP."""

    def resume(self) -> None:
        """Let it go on."""

    def stop(self) -> None:
        """End it in good order."""


class TxnTarget:
    """`txn serve`, as it is or with broken rules (`harnesses.black_box.broken`)."""

    def __init__(
        self, data: Path, proxy_port: int, durability: str, rules: Sequence[str] = ()
    ) -> None:
        self.data = data
        program = ("-m", "harnesses.black_box.broken", ",".join(rules)) if rules else ("-m", "txn")
        self._broker = BrokerProcess(
            data,
            "group.initial.rebalance.delay.ms=0",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy_port}",
            durability=durability,
            program=program,
        )
        self.port = self._broker.port

    def kill(self) -> None:
        self._broker.kill()

    def restart(self) -> None:
        self._broker.restart()

    def pause(self) -> None:
        os.kill(self._broker.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._broker.pid, signal.SIGCONT)

    def stop(self) -> None:
        self._broker.stop()

    def lose_power(self, chance: random.Random, wait_s: float) -> None:
        """End it at one of its next syncs; forget unsynced data. It is down then."""
        os.kill(self._broker.pid, signal.SIGUSR1)
        self._broker.await_end(wait_s)
        lose_power(self.data, some_of(chance))


class KafkaTarget:
    """One Apache Kafka node."""

    def __init__(self, directory: Path, proxy_port: int) -> None:
        advertised = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy_port}",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        self.port = free_port()
        self._node = KafkaNode(directory, advertised, port=self.port)
        self._node.start()

    def kill(self) -> None:
        self._node.kill()

    def restart(self) -> None:
        self._node.start()

    def pause(self) -> None:
        os.kill(self._node.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._node.pid, signal.SIGCONT)

    def stop(self) -> None:
        self._node.stop()


class Mock:
    """librdkafka's mock cluster, in a process of its own. It keeps nothing, so it is not killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harnesses.black_box.mock"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self.port = int(output.readline().rpartition(":")[2])

    def kill(self) -> None:
        raise NotImplementedError("a mock cluster does not outlive its process")

    def restart(self) -> None:
        raise NotImplementedError("a mock cluster does not outlive its process")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
