"""Coordinators that tests call without an event loop: a call that waits for nothing returns at
once.
"""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from txn.server.loop import eager


class EagerCalls:
    """Runs each coroutine method to its first wait; returns its result, or a task for the rest."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: _started(found(*args, **kwargs))


def _started(work: Coroutine[Any, Any, Any]) -> Any:
    rest = eager.step(work)
    return asyncio.ensure_future(_awaited(rest)) if isinstance(rest, eager.Suspended) else rest


async def _awaited(rest: eager.Suspended[Any]) -> Any:
    return await rest
