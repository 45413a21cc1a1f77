"""Loads, right after the start of a server, the modules that the first request of each kind needs.

Handlers, and schemas of messages, are modules, and importing one needs a file descriptor. A process
that has no descriptor left at that moment would fail a request that it could answer otherwise.
Importing all modules at the start would make it some 300 ms longer. So a thread imports them once
the broker answers. It imports a little at a time, so that requests go first.

A broker within a program imports each module when it is first needed. Few kinds of requests occur
there, and all modules would cost half a second of the program's CPU.
"""

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from txn.broker.apis.table import BoundApi
from txn.logs import log
from txn.server.loop.requests import load_request
from txn.wire.messages import load_response

PAUSE_S: Final = 0.002
"""Pause between two schemas, each some 2 ms of work."""
FIRST_PAUSE_S: Final = 0.1
"""Pause for clients that waited for the start."""
RETRY_S: Final = 1.0

LATER: Final = (
    *("concurrent.futures.thread", "difflib", "encodings.utf_16_be", "linecache", "re2"),
    *("shutil", "traceback"),
)
"""Modules that requests, log lines or the end of a broker load when they first need them."""


class Preload:
    """The thread that loads; it ends by itself.

    Args:
        apis: The APIs that are answered, by their keys.
    """

    def __init__(self, apis: Mapping[int, BoundApi]) -> None:
        self._apis = apis
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="txn-preload", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the rest; returns when the thread has ended, if it ever began."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def join(self) -> None:
        """Wait until everything is loaded."""
        self._thread.join()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        is_logged = False
        for load in self._steps():
            while not self._stopping.wait(pause_s):
                try:
                    load()
                except Exception as error:  # no descriptor is left, or no memory
                    if not is_logged:
                        log.warning("preload.failed", reason=repr(error))
                    is_logged, pause_s = True, RETRY_S
                else:
                    pause_s = PAUSE_S
                    break
            else:
                return
        if gc.get_freeze_count() > 0:  # `txn serve` froze its own modules at the start too
            gc.freeze()

    def _steps(self) -> Iterator[Callable[[], object]]:
        for key, api in self._apis.items():
            first, last = api.versions
            for version in range(first, last + 1):
                yield partial(_load_request, api, key, version)
                yield partial(_load_response, api, key, version)
        for name in LATER:
            yield partial(import_module, name)


def _load_request(api: BoundApi, key: int, version: int) -> None:
    load_request(api.answerer.request, key, version)


def _load_response(api: BoundApi, key: int, version: int) -> None:
    load_response(api.answerer.response, key, version)
