"""The health of a broker, for probes.

`live`: the process answers, no bug has ended the service, and the control loop turns. `ready`: it
is live, every listener is open, both coordinators are loaded whole, and no partition has failed. A
broker that starts is live and not ready.

The control loop is asked by a call that it makes in its next round. Without a probe nothing is
asked. A loop that is busy gets `ANSWER_S`. After that the probe answers, and the call stays; one
that has waited for `STUCK_S` shows that the loop no longer turns.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from txn.server.lifecycle.service import Service

ANSWER_S: Final = 1.0
STUCK_S: Final = 10.0
NAMED_MAX: Final = 20
"""The most failed partitions that are named."""

Call = Callable[[], object]


class Health(NamedTuple):
    """The answer to a probe."""

    is_well: bool
    facts: dict[str, Any]

    def body(self) -> bytes:
        """The facts as JSON."""
        return json.dumps(self.facts).encode() + b"\n"


class LoopProbe:
    """Tells whether a loop still makes calls. Used from one thread.

    Args:
        call_soon: Has the loop make a call, from any thread.
        clock: Seconds on a clock that never steps.
    """

    def __init__(
        self, call_soon: Callable[[Call], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._asked_at = 0.0
        self._turned = threading.Event()
        self._turned.set()

    def waiting_s(self, answer_s: float = ANSWER_S) -> float:
        """Seconds that the loop has owed a turn; 0 if it took one now."""
        if self._turned.is_set():
            self._turned = turned = threading.Event()
            self._asked_at = self._clock()
            self._call_soon(turned.set)
        return 0.0 if self._turned.wait(answer_s) else self._clock() - self._asked_at


class HealthProbes:
    """Answers probes of a broker, from before its start on. Used from one thread."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._loop: LoopProbe | None = None

    def watch(self, call_soon: Callable[[Call], object]) -> None:
        """Ask the control loop from now on: it has begun to turn."""
        self._loop = LoopProbe(call_soon)

    def live(self) -> Health:
        """Return whether the broker works, or starts."""
        if self._service.failure is not None:
            return Health(False, {"status": "failed", "reason": self._service.failure.reason})
        if self._loop is None:
            return Health(True, {"status": "starting"})
        try:
            waiting_s = self._loop.waiting_s()
        except RuntimeError:  # the loop is closed
            return Health(False, {"status": "stopped"})
        if waiting_s >= STUCK_S:
            facts = {"status": "stuck", "control_loop_seconds": round(waiting_s, 1)}
            return Health(False, facts)
        return Health(True, {"status": "ok"})

    def ready(self) -> Health:
        """Return whether the broker serves everything it has."""
        live = self.live()
        if self._loop is None or not live.is_well:
            missing: list[dict[str, Any]] = [{"part": "broker", "reason": live.facts["status"]}]
        else:
            missing = list(_missing(self._service))
        is_ready = not missing
        return Health(
            is_ready, {"status": "ready" if is_ready else "not ready", "missing": missing}
        )


def _missing(service: "Service") -> Iterator[dict[str, Any]]:
    if not service.is_listening:
        yield {"part": "listeners", "reason": "a thread that serves connections has ended"}
    node = service.node
    for part, failed in (
        ("transaction coordinator", node.transactions.failed_count),
        ("group coordinator", node.groups.failed_count),
    ):
        if failed:
            yield {"part": part, "reason": f"{failed} of its partitions cannot be read"}
    failed = 0
    for topic, partitions in list(node.partitions.items()):  # one step beside the control loop
        for index, reason in partitions.failures():
            failed += 1
            if failed <= NAMED_MAX:
                yield {"part": "partition", "name": f"{topic}-{index}", "reason": reason}
    if failed > NAMED_MAX:
        yield {"part": "partitions", "reason": f"{failed - NAMED_MAX} more cannot be used"}
