"""A broker under attack, and its observable state from outside: memory, descriptors, log."""

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from support.brokers import BrokerProcess
from txn.coordinator.lost_logs import CLAIMED_LOG
from txn.inspect.verify import verify

MIB: Final = 1 << 20
CALM_S: Final = 10.0
"""Time that a broker may take to give back the resources of an attack."""


class Gauges(NamedTuple):
    """Resources of a process."""

    memory: int
    """Bytes in memory."""
    descriptors: int
    threads: int


class TargetBroker(BrokerProcess):
    """`txn serve` with short times, so that an attack of seconds is long."""

    def __init__(self, data: Path, *options: str, program: Sequence[str] = ("-m", "txn")) -> None:
        super().__init__(
            data,
            *options,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
            "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=4",
            "transaction.state.log.num.partitions=4",
            "log.cleaner.backoff.ms=200",
            "log.cleaner.dedupe.buffer.size=4194304",
            program=program,
        )

    def gauges(self) -> Gauges:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return Gauges(
            _kib(status, "VmRSS") << 10,
            len(os.listdir(f"/proc/{self.pid}/fd")),
            _kib(status, "Threads"),
        )

    def most_memory(self) -> int:
        """The most bytes it has had in memory since `forget_most_memory`."""
        return _kib(Path(f"/proc/{self.pid}/status").read_text(), "VmHWM") << 10

    def forget_most_memory(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def log_text(self) -> str:
        return self.data.with_suffix(".log").read_text(errors="replace")

    def faults_in_log(self, after: int = 0) -> list[str]:
        """Lines of the level ERROR, tracebacks and panics, from a position of the log on."""
        return [
            line
            for line in self.log_text()[after:].splitlines()
            if re.search(r" ERROR |Traceback|panicked|Error: ", line)
        ]

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def await_calm(self, before: Gauges, *, memory: int, descriptors: int, threads: int) -> None:
        """Wait until it holds little more than before. Raises AssertionError."""

        def is_calm() -> bool:
            now = self.gauges()
            return (
                now.memory <= before.memory + memory
                and now.descriptors <= before.descriptors + descriptors
                and now.threads <= before.threads + threads
            )

        await_effect(is_calm, CALM_S, lambda: f"it holds {self.gauges()}, before {before}")

    def stop_and_verify(self) -> list[str]:
        """Stop it cleanly; return the findings of `txn log verify`."""
        assert self.stop() == 0
        found = [f"{each.path}: {each.what}" for each in verify(self.data).findings]
        # A mutated request may commit any offset of a topic that nobody wrote.
        return [each for each in found if CLAIMED_LOG not in each]


def await_effect(is_so: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what()}"
        time.sleep(0.02)


def _kib(status: str, name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+)", status)
    assert found is not None
    return int(found[1])
