"""Virtual time: events in the order they are due, and event loops that live on it.

Nothing waits. Time is microseconds since the run began, and moves only from one entry of the
agenda to the next. Events due at the same moment happen in the order they were entered, so a run is
the same each time.

Each process (a life of the broker, the clients together) has a `SimLoop` of its own, so that
asyncio code runs in it unchanged. A process that dies takes its loop with it: its due events never
happen.
"""

import asyncio
import heapq
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any
from weakref import WeakSet

US_PER_MS = 1_000
US_PER_S = 1_000_000


class Crash(BaseException):
    """The process that was running is gone."""


class AgendaEntry:
    """Something that is due; or that was, if `call` is None."""

    __slots__ = ("args", "call", "loop")

    def __init__(self, loop: "SimLoop", call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Let it not happen."""
        self.call = None

    def cancelled(self) -> bool:
        return self.call is None


class Agenda:
    """Everything that is due in one run."""

    def __init__(self) -> None:
        self.now_us = 0
        self.clock_step_us = 0
        """The sum of the changes to the time of day since the beginning."""
        self.steps = 0
        self._ready: deque[AgendaEntry] = deque()
        self._later: list[tuple[int, int, AgendaEntry]] = []
        self._order = 0

    @property
    def time_of_day_us(self) -> int:
        """The time of a clock that may be set, 0 at the beginning."""
        return self.now_us + self.clock_step_us

    def soon(self, loop: "SimLoop", call: Callable[..., object], *args: Any) -> AgendaEntry:
        """Make a call when the present work is done."""
        entry = AgendaEntry(loop, call, args)
        self._ready.append(entry)
        return entry

    def at(
        self, when_us: int, loop: "SimLoop", call: Callable[..., object], *args: Any
    ) -> AgendaEntry:
        """Make a call at a time; soon when that has passed."""
        if when_us <= self.now_us:
            return self.soon(loop, call, *args)
        entry = AgendaEntry(loop, call, args)
        self._order += 1
        heapq.heappush(self._later, (when_us, self._order, entry))
        return entry

    def run(self, until_us: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that is due up to a time, or until something is over."""
        ready, later = self._ready, self._later
        running: SimLoop | None = None
        try:
            while True:
                if ready:
                    entry = ready.popleft()
                elif later and later[0][0] <= until_us:
                    if is_over():
                        return
                    self.now_us, _, entry = heapq.heappop(later)
                else:
                    break
                call = entry.call
                if call is None or entry.loop.is_dead:
                    continue
                entry.call = None
                self.steps += 1
                if entry.loop is not running:
                    running = entry.loop
                    _set_running_loop(running)
                with suppress(Crash):
                    call(*entry.args)
        finally:
            _set_running_loop(None)
        self.now_us = max(self.now_us, until_us)


class SimLoop(asyncio.AbstractEventLoop):
    """An asyncio loop on an agenda: as much of one as brokers and clients use."""

    def __init__(self, agenda: Agenda, on_error: Callable[[BaseException], object]) -> None:
        self.agenda = agenda
        self.is_dead = False
        self._on_error = on_error
        self._begun: WeakSet[Coroutine[Any, Any, Any]] = WeakSet()

    def die(self) -> None:
        """Make no more calls; work that has not started never will, which is no bug."""
        self.is_dead = True
        for work in list(self._begun):
            if getcoroutinestate(work) == CORO_CREATED:
                work.close()

    def call_soon(self, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        return self.agenda.soon(self, callback, *args)

    def call_later(self, delay, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        return self.after(int(delay * US_PER_S), callback, *args)

    def after(self, delay_us: int, call: Callable[..., object], *args: Any) -> AgendaEntry:
        """Make a call after a time."""
        return self.agenda.at(self.agenda.now_us + delay_us, self, call, *args)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> "asyncio.Task[Any]":  # type: ignore[override]
        task = asyncio.Task(coro, loop=self)
        self._begun.add(coro)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Crash):
            self._on_error(error)

    def time(self) -> float:
        return self.agenda.now_us / US_PER_S

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors are reported when a task ends; the rest of a dead process is nothing to report."""

    async def sleep(self, delay_us: int) -> None:
        """Wait for a time to pass."""
        done = self.create_future()
        self.after(delay_us, done.set_result, None)
        await done
