"""Work beside requests: syncing sealed segments, retention, checkpoints, changed certificates.

One thread, apart from the control loop, which never waits for it. A chore that fails is
logged and tried again when it is next due. Before each chore, once a second at least, it looks
whether the data directory is still at its path. Where it is not, the chores end.

Source: Apache Kafka's LogManager, whose intervals these are.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from txn.clock import now_ms
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.logs import log
from txn.server.security.certificates import CHECK_MS, Certificates
from txn.storage.native import NativeStorage

TICK_MS = 1000


@dataclass(slots=True)
class PeriodicTask:
    """Something to do now and then."""

    name: str
    do: Callable[[], None]
    interval_ms: Callable[[], int]
    due_ms: float = 0


class Background:
    """The thread that does the chores of one data directory.

    Args:
        storage: The logs of the directory.
        settings: The broker's.
        certificates: Those of its listeners.
        call_when_gone: Called once the directory is no longer at its path.
    """

    def __init__(
        self,
        storage: NativeStorage,
        settings: BrokerSettings,
        certificates: Certificates,
        call_when_gone: Callable[[], object],
    ) -> None:
        self._is_in_place = storage.is_in_place
        upkeep = storage.upkeep
        self._call_when_gone = call_when_gone

        def every(name: str) -> Callable[[], int]:
            return lambda: int(settings[name])

        start_ms = time.monotonic() * 1000
        retention = "log.retention.check.interval.ms"
        first_ms = start_ms + min(settings[retention], settings["log.initial.task.delay.ms"])
        points = "log.flush.offset.checkpoint.interval.ms"
        starts = "log.flush.start.offset.checkpoint.interval.ms"
        self._tick = PeriodicTask("tick", upkeep.tick, lambda: TICK_MS, start_ms + TICK_MS)
        self._chores = [
            self._tick,
            PeriodicTask("retention", lambda: upkeep.retain(now_ms()), every(retention), first_ms),
            PeriodicTask("recovery_points", upkeep.write_recovery_points, every(points)),
            PeriodicTask("log_starts", upkeep.write_log_starts, every(starts)),
        ]
        if certificates:
            watch = PeriodicTask("certificates", certificates.check, lambda: CHECK_MS)
            self._chores.append(watch)
        for task in self._chores:
            task.due_ms = task.due_ms or start_ms + task.interval_ms()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="txn-background", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the task under way, report damage that the last readers met, and do no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            now = time.monotonic() * 1000
            for task in self._chores:
                if task.due_ms <= now and not self._stopping.is_set():
                    if not self._is_in_place():
                        self._call_when_gone()
                        return
                    self._do(task)
                    task.due_ms = time.monotonic() * 1000 + max(task.interval_ms(), 1)
            next_ms = min(task.due_ms for task in self._chores) - time.monotonic() * 1000
            if self._stopping.wait(max(next_ms, 0) / 1000):
                if self._is_in_place():
                    self._do(self._tick)
                return

    def _do(self, task: PeriodicTask) -> None:
        try:
            task.do()
        except (
            OSError,
            StorageError,
        ) as error:  # a disk that is full or fails; it may take the next one
            log.error("background.failed", task=task.name, reason=error)
        except Exception:
            log.exception("background.failed", task=task.name)
