"""Coroutines that begin at once, and go on as tasks: results, errors and ends are the same."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from txn.server.loop.eager import Suspended, run, step


async def _double(of: "asyncio.Future[int]") -> int:
    return 2 * await of


def test_what_waits_for_nothing_has_its_result_at_once() -> None:
    async def answer() -> int:
        return 7

    assert step(answer()) == 7


def test_what_waits_goes_on_where_it_was_through_every_wait() -> None:
    async def twice(first: "asyncio.Future[int]", second: "asyncio.Future[int]") -> int:
        return await _double(first) + await _double(second)

    async def story() -> int:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        rest = step(twice(first, second))
        assert isinstance(rest, Suspended)
        first.set_result(1)  # before anybody waits for the rest
        loop.call_later(0.01, second.set_result, 10)
        return await rest

    assert asyncio.run(story()) == 22


def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        step(fail())


def test_what_it_waits_for_may_fail_and_be_handled() -> None:
    async def handle(of: "asyncio.Future[int]") -> str:
        try:
            await of
        except OSError as error:
            return str(error)
        return "no error"

    async def story() -> Any:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        rest = step(handle(future))
        assert isinstance(rest, Suspended)
        future.set_exception(OSError("disk"))
        return await rest

    assert asyncio.run(story()) == "disk"


def test_a_task_that_is_cancelled_ends_what_it_waits_for() -> None:
    async def story() -> bool:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        rest = step(_double(future))
        assert isinstance(rest, Suspended)

        async def wait() -> int:
            return await rest

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return future.cancelled()

    assert asyncio.run(story())


def test_what_nobody_awaits_can_be_closed_where_it_is() -> None:
    went: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            went.append("closed")

    async def story() -> None:
        rest = step(wait())
        assert isinstance(rest, Suspended)
        rest.close()
        rest.close()

    asyncio.run(story())
    assert went == ["closed"]


def test_work_that_waits_for_nothing_has_no_task() -> None:
    went: list[str] = []

    async def work() -> None:
        went.append("done")

    loop = asyncio.new_event_loop()
    assert run(loop, work()) is None
    assert went == ["done"]
    loop.close()


class Body:
    """Bytes of a request, as large as they may be."""


def test_a_wait_that_failed_keeps_nothing_until_the_next_collection() -> None:
    """The future, its error, the traceback and the frame that waited were a cycle: a hundred
    malformed requests of megabytes each stayed in memory.
    """

    def decode(body: Body) -> None:
        raise ValueError("malformed")

    async def serve(body: Body) -> bool:
        try:
            await asyncio.get_running_loop().run_in_executor(None, decode, body)
        except ValueError:
            return False
        return True

    async def story() -> "weakref.ref[Body]":
        body = Body()
        kept = weakref.ref(body)
        rest = step(serve(body))
        assert isinstance(rest, Suspended)
        assert not await rest
        return kept

    gc.collect()
    gc.disable()
    try:
        kept = asyncio.run(story())
        assert kept() is None
    finally:
        gc.enable()
