"""The thread beside the control loop for calls whose cost a client chooses."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from txn import _core
from txn.server.loop.scheduler import LoopScheduler


def test_neither_other_calls_nor_a_stop_wait_for_a_call_on_the_side_thread() -> None:
    """A pattern was matched by the threads of the executor, which a stop waits for."""
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, _core.Durability(1))
    begun, released, given_up = threading.Event(), threading.Event(), threading.Event()

    def endless(is_stopped: Callable[[], bool]) -> None:
        begun.set()
        released.wait()
        if is_stopped():
            given_up.set()

    async def ask() -> None:
        asked = asyncio.ensure_future(scheduler.in_side_thread("a", endless))
        await scheduler.in_worker(lambda: None)
        assert not asked.done()

    loop.run_until_complete(ask())
    assert begun.wait(60)
    scheduler.close()
    waiting = asyncio.all_tasks(loop)
    for task in waiting:
        task.cancel()
    loop.run_until_complete(asyncio.wait(waiting))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert not given_up.is_set()
    released.set()
    assert given_up.wait(60)


def test_a_failure_on_the_side_thread_is_raised_and_the_next_call_is_made() -> None:
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, _core.Durability(1))
    made: list[str] = []

    def fail(_: Callable[[], bool]) -> None:
        raise ValueError("no pattern")

    with pytest.raises(ValueError, match="no pattern"):
        loop.run_until_complete(scheduler.in_side_thread("a", fail))
    loop.run_until_complete(scheduler.in_side_thread("a", lambda _: made.append("next")))
    scheduler.close()
    loop.close()
    assert made == ["next"]


def test_the_calls_of_one_owner_delay_a_call_of_another_by_one() -> None:
    """A client with many expensive patterns made the patterns of all others wait."""
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, _core.Durability(1))
    made: list[str] = []
    begun, released = threading.Event(), threading.Event()

    def first(_: Callable[[], bool]) -> None:
        begun.set()
        released.wait()

    async def ask() -> None:
        asked = [asyncio.ensure_future(scheduler.in_side_thread("many", first))]
        await asyncio.sleep(0)
        assert begun.wait(60)
        for owner in ("many", "many", "many", "one", "many"):
            call = partial(_note, made, owner)
            asked.append(asyncio.ensure_future(scheduler.in_side_thread(owner, call)))
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(*asked)

    loop.run_until_complete(ask())
    scheduler.close()
    loop.close()
    assert made == ["many", "one", "many", "many", "many"]


def _note(made: list[str], owner: str, _: Callable[[], bool]) -> None:
    made.append(owner)
