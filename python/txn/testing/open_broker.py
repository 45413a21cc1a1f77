"""What all parts of `TestBroker` stand on: its proxy, its engine, its client, and a wait."""

import time
from collections.abc import Callable
from typing import Final

from txn.errors import RejectedError
from txn.testing.client import KitClient
from txn.testing.engine import Engine
from txn.testing.errors import WaitError
from txn.testing.proxy import Proxy

WAIT_S: Final = 30.0
PAUSE_S: Final = 0.002
PAUSE_MAX_S: Final = 0.05


class OpenBroker:
    """A broker that may have been closed or killed; `TestBroker` opens it."""

    _engine: Engine
    _proxy: Proxy
    _kit: KitClient
    _is_open: bool

    def _client(self) -> KitClient:
        self._require_open()
        if not self._engine.is_running:
            raise RejectedError(f"{self!r} was killed; call restart() first")
        return self._kit

    def _require_open(self) -> None:
        self._proxy.require_this_process()
        if not self._is_open:
            raise RejectedError(f"{self!r} is closed; open another one")


def wait_until(is_done: Callable[[], bool], timeout: float, message: Callable[[], str]) -> None:
    """Wait for a condition with growing pauses. Raises WaitError with the message."""
    ends_s = time.monotonic() + timeout
    pause_s = PAUSE_S
    while not is_done():
        if time.monotonic() > ends_s:
            raise WaitError(message())
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, PAUSE_MAX_S)
