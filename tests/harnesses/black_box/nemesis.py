"""Faults of broker, clients and connections, and their times: chosen by a seed."""

import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final

from harnesses.black_box.proxy import ANY_ANSWER, END_TXN, JOINS, PRODUCE, PRODUCE_KEY, Proxy
from harnesses.black_box.targets import Target, TxnTarget
from harnesses.black_box.workload import Clients, RoleSlot

PAUSE_MAX_S: Final = 2.0
"""Shorter than any client's patience: a stop is no cut."""

HANDOVER_S: Final = 3.0
"""Time for a second instance to take a transactional id over."""

LATE_MAX_S: Final = 1.5

SENDS_BETWEEN: Final = 10
"""Between two power failures, so that there is something to lose."""
WORK_MAX_S: Final = 10.0
"""Time for these sends at most."""

FAULTS: Final = {
    "kill-broker": "SIGKILL of the broker, then a restart on its directory",
    "stop-broker": "SIGSTOP of the broker for a while",
    "kill-client": "SIGKILL of a client; another takes its place and its transactional id",
    "stop-client": "SIGSTOP of a client for a while",
    "takeover": "a client is stopped, a second one takes its transactional id, the first goes on",
    "cut": "connections are reset",
    "lose-answers": "connections are reset instead of the next answer: what was asked is done",
    "lose-acks": "the same instead of the next answer to Produce: batches are sent again",
    "delay": "every frame of some connections is late",
    "late-end": "EndTxn requests are held back, and arrive when their client has gone on",
    "late-join": "requests that let records or offsets into a transaction are held back likewise",
    "power": "the power fails: what was not synced is gone (txn only)",
}

LATE: Final = {"late-end": (END_TXN,), "late-join": JOINS}
"""Fault → the requests that it holds back."""
HELD_SHARE: Final = {END_TXN: 0.1, PRODUCE: 0.02}
"""Share of the requests of their kind; a transaction has several Produce requests."""
HELD_SHARE_OTHERWISE: Final = 0.05

DEFAULT: Final = tuple(fault for fault in FAULTS if fault not in (*LATE, "power"))


class Nemesis:
    """Harms a run until its time is up, then leaves everything whole.

    Attributes:
        counts: Fault → how often.
        power_losses: When the power failed.
    """

    def __init__(
        self,
        faults: Sequence[str],
        target: Target,
        proxy: Proxy,
        clients: Clients,
        over: threading.Event,
        seed: int,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.power_losses: list[float] = []
        self._faults = [fault for fault in faults if fault not in LATE]
        self._target = target
        self._proxy = proxy
        self._clients = clients
        self._over = over
        self._chance = random.Random(seed)
        self._late_chance = random.Random(seed)
        self._held = {api: fault for fault, apis in LATE.items() if fault in faults for api in apis}

    def go(self, is_enough: Callable[[], bool]) -> None:
        """Work until it is enough, which is asked between two faults, or the run is over."""
        if self._held:
            self._proxy.hold(self._hold_s)
        acts = {fault: getattr(self, "_" + fault.replace("-", "_")) for fault in self._faults}
        while not self._over.is_set() and not is_enough():
            self._over.wait(self._chance.uniform(0.1, 1.2))
            if self._faults:
                acts[self._chance.choice(self._faults)]()
            self._clients.revive()
        self._proxy.hold(None)
        self._proxy.delay(1.0, 0.0, self._chance)

    def _hold_s(self, api: str, _transactional_id: str) -> float:
        share = HELD_SHARE.get(api, HELD_SHARE_OTHERWISE)
        if api not in self._held or self._late_chance.random() >= share:
            return 0.0
        self.counts[self._held[api]] += 1
        return self._late_chance.uniform(0.02, LATE_MAX_S)

    # ------------------------------------------------------------ the broker

    def _kill_broker(self) -> None:
        self.counts["kill-broker"] += 1
        self._target.kill()
        self._over.wait(self._chance.choice((0.0, 0.0, 0.3)))
        self._target.restart()

    def _stop_broker(self) -> None:
        self.counts["stop-broker"] += 1
        self._target.pause()
        self._over.wait(self._chance.uniform(0.05, PAUSE_MAX_S))
        self._target.resume()

    def _power(self) -> None:
        assert isinstance(self._target, TxnTarget), "only txn can be made to lose power"
        self.counts["power"] += 1
        sends, until_s = self._clients.count_sends(), time.monotonic() + WORK_MAX_S
        while self._clients.count_sends() < sends + SENDS_BETWEEN and time.monotonic() < until_s:
            self._over.wait(0.1)
            self._clients.revive()
        self._target.lose_power(self._chance, wait_s=2.0)
        self.power_losses.append(time.monotonic())
        self._target.restart()
        self.power_losses.append(time.monotonic())

    # ------------------------------------------------------------ clients

    def _victim(self) -> "tuple[RoleSlot, subprocess.Popen[bytes]] | None":
        alive = [(slot, process) for slot in self._clients.slots for process in slot.alive()]
        return self._chance.choice(alive) if alive else None

    def _kill_client(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.counts["kill-client"] += 1
            victim[1].kill()
            victim[1].wait()

    def _stop_client(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.counts["stop-client"] += 1
            victim[1].send_signal(signal.SIGSTOP)
            self._over.wait(self._chance.uniform(0.05, PAUSE_MAX_S))
            victim[1].send_signal(signal.SIGCONT)

    def _takeover(self) -> None:
        victim = self._victim()
        if victim is None or victim[0].role.kind == "plain":
            return
        self.counts["takeover"] += 1
        slot, zombie = victim
        zombie.send_signal(signal.SIGSTOP)
        self._clients.spawn(slot)
        self._over.wait(self._chance.uniform(0.3, HANDOVER_S))
        zombie.send_signal(signal.SIGCONT)

    # ------------------------------------------------------------ connections

    def _cut(self) -> None:
        self.counts["cut"] += self._proxy.cut(self._chance.choice((0.0, 0.3, 1.0)), self._chance)

    def _lose_answers(self) -> None:
        self._lose("lose-answers", ANY_ANSWER)

    def _lose_acks(self) -> None:
        self._lose("lose-acks", (PRODUCE_KEY,))

    def _lose(self, fault: str, answers_to: Container[int]) -> None:
        share = self._chance.choice((0.3, 1.0))
        self.counts[fault] += self._proxy.lose_answers(share, self._chance, answers_to)

    def _delay(self) -> None:
        self.counts["delay"] += 1
        seconds = self._chance.choice((0.0, 0.005, 0.05, 0.3))
        self._proxy.delay(self._chance.choice((0.1, 0.5, 1.0)), seconds, self._chance)
