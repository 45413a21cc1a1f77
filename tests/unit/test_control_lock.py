"""A loop that others stand in for: nobody is in it at the same time, and nothing is forgotten."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from txn.server.loop.control_lock import ROUNDS_MAX, ControlLockLoop

WAIT_S = 20.0


@dataclass
class PlainControlLock:
    """A control lock, and the exclusive sections of its holders."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    was_released: threading.Event = field(default_factory=threading.Event)

    def take_control_lock(self) -> None:
        self.lock.acquire()

    def release_control_lock(self) -> None:
        self.lock.release()
        self.was_released.set()


class LoopThread:
    """A loop that runs on a thread of its own."""

    def __init__(self) -> None:
        self.loop = ControlLockLoop()
        self.control_lock = PlainControlLock()
        self._thread = threading.Thread(target=self.loop.run_locked, args=(self.control_lock,))
        self._thread.start()
        self.control_lock.was_released.wait(WAIT_S)

    def run_for_loop(self, call: Callable[[], object]) -> None:
        """Make a call as a reactor does."""
        with self.control_lock.lock:
            self.loop.run_for_loop(call)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    loop_thread = LoopThread()
    yield loop_thread
    loop_thread.stop()


def test_a_call_is_made_on_the_thread_of_who_stands_in_and_knows_its_loop(
    loop_thread: LoopThread,
) -> None:
    seen: list[object] = []
    loop_thread.run_for_loop(
        lambda: seen.extend((threading.current_thread(), asyncio.get_running_loop()))
    )
    assert seen == [threading.current_thread(), loop_thread.loop]
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


@pytest.mark.parametrize(
    "leave",
    [
        lambda loop, done: loop.call_later(0.001, done.set),
        lambda loop, done: loop.create_task(_set_after(ROUNDS_MAX, done)),
    ],
    ids=["a timer", "a task of many rounds"],
)
def test_what_is_left_for_later_wakes_the_loop(
    loop_thread: LoopThread, leave: Callable[[ControlLockLoop, threading.Event], object]
) -> None:
    """It sleeps without an end, so nothing else would."""
    done = threading.Event()
    loop_thread.run_for_loop(lambda: leave(loop_thread.loop, done))
    assert done.wait(WAIT_S)


async def _set_after(rounds: int, done: threading.Event) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)
    done.set()


def test_the_next_rounds_are_made_by_who_stands_in_and_later_ones_by_the_loop(
    loop_thread: LoopThread,
) -> None:
    """The end of a sync is told through a future and a task. The loop was woken for each."""

    async def note(rounds: int) -> None:
        for _ in range(rounds):
            threads.append(threading.current_thread())
            await asyncio.sleep(0)
        done.set()

    done = threading.Event()
    threads: list[threading.Thread] = []
    loop_thread.run_for_loop(lambda: loop_thread.loop.create_task(note(ROUNDS_MAX + 2)))
    assert done.wait(WAIT_S)
    assert threads[:ROUNDS_MAX] == [threading.current_thread()] * ROUNDS_MAX
    assert threading.current_thread() not in threads[ROUNDS_MAX:]


def test_a_call_that_is_cancelled_before_its_round_is_not_made(loop_thread: LoopThread) -> None:
    def cancel_one() -> None:
        loop_thread.loop.call_soon(made.append, "kept")
        loop_thread.loop.call_soon(made.append, "cancelled").cancel()

    made: list[str] = []
    loop_thread.run_for_loop(cancel_one)
    assert made == ["kept"]


def test_a_bug_in_a_later_round_goes_to_the_loops_handler_and_harms_no_other(
    loop_thread: LoopThread,
) -> None:
    told: list[object] = []
    made: list[str] = []
    loop_thread.loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    bug = ValueError("a bug")

    def fail() -> None:
        raise bug

    def both() -> None:
        loop_thread.loop.call_soon(fail)
        loop_thread.loop.call_soon(made.append, "the other")

    loop_thread.run_for_loop(both)
    assert (told, made) == ([bug], ["the other"])


def test_an_answer_that_is_waited_for_in_the_loop_may_come_from_who_stands_in(
    loop_thread: LoopThread,
) -> None:
    async def waits(promise: "asyncio.Future[str]", heard: "list[str]") -> None:
        heard.append(await promise)
        done.set()

    done = threading.Event()
    heard: list[str] = []
    promises: list[asyncio.Future[str]] = []

    def begin() -> None:
        promises.append(asyncio.get_running_loop().create_future())
        loop_thread.loop.create_task(waits(promises[0], heard))

    loop_thread.run_for_loop(begin)
    loop_thread.run_for_loop(lambda: promises[0].set_result("decided"))
    assert done.wait(WAIT_S)
    assert heard == ["decided"]


def test_what_fails_leaves_the_thread_and_the_loop_as_they_were(loop_thread: LoopThread) -> None:
    def fail() -> None:
        loop_thread.loop.call_soon(done.set)
        raise ValueError("a bug")

    done = threading.Event()
    with pytest.raises(ValueError, match="a bug"):
        loop_thread.run_for_loop(fail)
    assert done.wait(WAIT_S)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


@pytest.fixture
def hasty_interpreter() -> Iterator[None]:
    """Threads take turns all the time."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("hasty_interpreter")
def test_the_loop_and_those_who_stand_in_are_never_in_it_together(loop_thread: LoopThread) -> None:
    """Each adds in two steps, as code does that believes itself alone."""
    total = 0
    rounds, threads = 300, 3

    def add() -> None:
        nonlocal total
        before = total
        for _ in range(20):  # long enough to be interrupted
            pass
        total = before + 1

    def as_a_reactor() -> None:
        for _ in range(rounds):
            loop_thread.run_for_loop(add)

    def in_the_loop(left: int) -> None:
        add()
        if left > 1:
            loop_thread.loop.call_later(0, in_the_loop, left - 1)
        else:
            ended.set()

    ended = threading.Event()
    loop_thread.loop.call_soon_threadsafe(in_the_loop, rounds)
    reactors = [threading.Thread(target=as_a_reactor) for _ in range(threads)]
    for thread in reactors:
        thread.start()
    for thread in reactors:
        thread.join()
    assert ended.wait(WAIT_S)
    assert total == rounds * (threads + 1)


def test_asyncios_debug_mode_does_not_take_who_stands_in_for_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    loop_thread = LoopThread()
    done = threading.Event()
    loop_thread.run_for_loop(lambda: loop_thread.loop.call_soon(done.set))
    assert done.wait(WAIT_S)
    loop_thread.stop()
