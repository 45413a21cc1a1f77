"""A fault that a test asks for: its effect, the request that it waits for, and its release.

Each fault happens once. The proxy (`proxy.py`) applies it on its own thread; tests wait for it on
theirs.
"""

import asyncio
import contextlib
import threading
from enum import Enum

from txn.testing.errors import WaitError
from txn.testing.wire import NAMES, Request
from txn.wire.error_codes import ErrorCode


class Effect(Enum):
    """The thing that a fault does to its request."""

    LOSE_REQUEST = "lose the request"
    LOSE_ANSWER = "lose the answer"
    HOLD_REQUEST = "hold the request"
    HOLD_ANSWER = "hold the answer"
    REFUSE = "refuse the append"


class Fault:
    """A fault that waits for its request, and happens once.

    Example:
        >>> lost = broker.lose_answer("EndTxn")
        >>> ...
        >>> lost.wait()
    """

    def __init__(
        self,
        effect: Effect,
        key: int,
        *,
        number: int = 1,
        topic: str | None = None,
        code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.effect = effect
        self._key = key
        self._left = number
        self._topic = topic
        self.code = code
        self.request: Request | None = None
        """The request that it happened to."""
        self._happened = threading.Event()
        self._released = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._delivers = True
        self._gate: asyncio.Event | None = None

    @property
    def happened(self) -> bool:
        """True once it has happened; a held frame is held from then on."""
        return self._happened.is_set()

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until it has happened. Raises WaitError after `timeout` seconds."""
        if not self._happened.wait(timeout):
            raise WaitError(
                f"no {NAMES[self._key]} came within {timeout:g} s, so the fault "
                f"({self.effect.value}) did not happen. Is the client connected to the "
                "bootstrap_servers of this broker?"
            )

    def release(self, *, deliver: bool = True) -> None:
        """Forward a held frame; with `deliver=False` cut its connection instead.

        The first call decides; further ones do nothing.
        """
        if self._released.is_set():
            return
        self._delivers = deliver
        self._released.set()
        if self._loop is not None and self._gate is not None:
            with contextlib.suppress(RuntimeError):  # the proxy is closed
                self._loop.call_soon_threadsafe(self._gate.set)

    def __enter__(self) -> "Fault":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "happened" if self.happened else "waits"
        return f"<{self.effect.value} of {NAMES[self._key]}: {state}>"

    def counts(self, request: Request) -> bool:
        """Count a request; True once the fault is due. Called by the proxy."""
        if request.key != self._key:
            return False
        if self._topic is not None and not request.produces_to(self._topic):
            return False
        self._left -= 1
        return self._left <= 0

    def note_happened(self) -> None:
        """Note that it happens. Called by the proxy."""
        self._happened.set()

    async def await_release(self) -> bool:
        """Hold a frame; return whether to deliver it. Called by the proxy."""
        self._loop, self._gate = asyncio.get_running_loop(), asyncio.Event()
        self._happened.set()
        if not self._released.is_set():
            await self._gate.wait()
        return self._delivers
