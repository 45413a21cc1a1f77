"""Connections between clients and the broker, and how they fail.

One connection keeps its order both ways, as TCP does; connections overtake each other. The
broker serves one request of a connection at a time. A connection fails at the request a fault
names, in one of three ways:

    lost         the request never arrives
    unanswered   it is served, and its answer never arrives
    late         the client sees the connection break, closes it, opens another, and goes on; the
                 request is still on its way and arrives seconds later, its close behind it

When the broker dies, all its connections break.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sim.agenda import Agenda, SimLoop
from sim.broker import PRODUCE, SimBroker
from support.sessions import session

CLOSE_US = 100_000
"""Time that a close needs behind the last request of its connection."""

Answered = Callable[[Any], object]


class DisconnectedError(Exception):
    """The connection broke; whether requests under way were served is unknown."""


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """The fate of a client's n-th request."""

    client: str
    request: int
    kind: str
    delay_us: int
    """Time until the client notices; for "late" also part of the delay of the request."""


class Frame:
    """A request on its way."""

    __slots__ = ("answered", "fault", "future", "key", "request", "version")

    def __init__(
        self,
        key: int,
        version: int,
        request: Any,
        future: "asyncio.Future[Any]",
        fault: NetworkFault | None,
    ) -> None:
        self.key = key
        self.version = version
        self.request = request
        self.future = future
        self.fault = fault


class SimConnection:
    """One connection, both ends of it."""

    def __init__(
        self, agenda: Agenda, loop: SimLoop, broker: SimBroker, chance: random.Random
    ) -> None:
        self.is_broken = False
        """True once the client sees the connection break."""
        self._agenda = agenda
        self._loop = loop
        self._broker = broker
        self._number = next(broker.accepted)
        self._chance = chance
        self._sent: deque[Frame] = deque()
        """Requests on their way to the broker."""
        self._queue: deque[Frame] = deque()
        self._is_busy = False
        self._waiting: list[asyncio.Future[Any]] = []
        self._arrives_us = self._answered_us = 0
        self._closed_us: int | None = None
        """When the client closes its end."""

    def request(
        self, key: int, version: int, request: Any, fault: NetworkFault | None
    ) -> "asyncio.Future[Any]":
        """Send a request; DisconnectedError is raised where its answer is awaited."""
        future = self._loop.create_future()
        self._waiting.append(future)
        if self.is_broken:
            self.break_after(0)
            return future
        frame = Frame(key, version, request, future, fault)
        delay_us = self._chance.choice((40, 100, 300, 1_000, 5_000))
        if fault is not None and fault.kind != "unanswered":
            self.is_broken = True
            self.break_after(fault.delay_us)
            if fault.kind == "lost":
                return future
            delay_us += fault.delay_us + self._chance.choice((0, 1_000, 500_000, 3_000_000))
        self._arrives_us = max(self._arrives_us, self._agenda.now_us + delay_us)
        self._sent.append(frame)
        if key != PRODUCE:
            self._agenda.at(self._arrives_us, self._broker.loop, self._arrive, frame)
            return future

        def arrive() -> None:
            # A reactor may take it early, but not before the requests sent ahead of it.
            if arrive in self._broker.incoming and self._sent[0] is frame:
                self._broker.incoming.remove(arrive)
                self._arrive(frame)

        self._broker.incoming.append(arrive)
        self._agenda.at(self._arrives_us, self._broker.loop, arrive)
        return future

    def break_after(self, delay_us: int) -> None:
        """Let the client see that the connection is gone."""
        self.is_broken = True
        if self._closed_us is None:
            self._closed_us = self._agenda.now_us + delay_us
        waiting, self._waiting = self._waiting, []
        self._loop.after(delay_us, _fail, waiting)

    def has_left(self) -> bool:
        """Say whether the client's close has reached the broker."""
        if self._closed_us is None:
            return False
        reached_us = max(self._closed_us, self._arrives_us) + CLOSE_US
        return reached_us <= self._agenda.now_us

    # ------------------------------------------------------------ the broker's end

    def _arrive(self, frame: Frame) -> None:
        assert self._sent.popleft() is frame, "a connection keeps its order"
        self._queue.append(frame)
        self._serve()

    def _serve(self) -> None:
        while self._queue and not self._is_busy and not self._broker.is_dead:
            self._is_busy = True
            frame = self._queue.popleft()
            self._broker.receive(
                session(connection=self._number, has_left=self.has_left),
                frame.key,
                frame.version,
                frame.request,
                partial(self._answer, frame),
                self._hang_up,
            )

    def _hang_up(self) -> None:
        self._queue.clear()
        self.break_after(0)

    def _answer(self, frame: Frame, answer: Any) -> None:
        if self._broker.is_dead:
            return
        self._is_busy = False
        if frame.fault is not None and frame.fault.kind == "unanswered":
            self._queue.clear()
            self.break_after(frame.fault.delay_us)
            return
        delay_us = self._chance.choice((40, 100, 300, 1_000))
        self._answered_us = max(self._answered_us, self._agenda.now_us + delay_us)
        self._agenda.at(self._answered_us, self._loop, self._deliver, frame, answer)
        if self._queue:
            self._agenda.soon(self._broker.loop, self._serve)

    def _deliver(self, frame: Frame, answer: Any) -> None:
        if not frame.future.done() and not self.is_broken:
            self._waiting.remove(frame.future)
            frame.future.set_result(answer)


def _fail(waiting: "list[asyncio.Future[Any]]") -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(DisconnectedError())
