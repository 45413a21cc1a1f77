"""The process of `txn console`: one socket, a start line, and a clean stop at SIGTERM."""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from threading import Thread
from types import FrameType
from typing import Final

import uvicorn

from txn.config import split_address
from txn.console.app import create_app
from txn.console.pages import PAGES
from txn.console.registry.reading import Schemas
from txn.console.site import Site
from txn.console.sources import Sources, Way
from txn.errors import AddressError, ConfigError, TxnError
from txn.explain.questions import all_partitions, held_open
from txn.logs import show_on_stderr

BACKLOG: Final = 128
GRACE_S: Final = 1
"""Seconds that requests have at a stop; then they are answered that the console stops."""
STOP_S: Final = 2
"""Seconds until the connections close that are still open."""


def serve(
    way: Way,
    listen: str,
    *,
    may_write: bool,
    registry: str | None,
    as_json: bool,
    print_line: Callable[[str], None],
) -> None:
    """Serve the console until SIGTERM or SIGINT.

    Args:
        way: Where the facts are.
        listen: HOST:PORT of a loopback address; port 0 means a free one.
        may_write: True if pages offer changes.
        registry: The address of a schema registry; None: records are not decoded by schemas.
        as_json: Whether the start line is JSON.
        print_line: Prints the start line.

    Raises:
        ConfigError: the address has another form, or is not of this machine alone.
        AddressError: the port is in use.
    """
    show_on_stderr()
    host, port = _address_in(listen)
    schemas = None if registry is None else Schemas(registry)
    with _listening(host, port) as listener:
        address, port = listener.getsockname()[:2]
        site = Site(way, PAGES, may_write=may_write, schemas=schemas)
        shown = f"[{address}]" if ":" in address else address
        url = f"http://{shown}:{port}/?token={site.access.token}"
        line = json.dumps({"url": url, "write": may_write}) if as_json else f"console on {url}"
        settings = uvicorn.Config(
            create_app(site, host),
            access_log=False,
            log_level="warning",
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_S,
        )
        try:
            _Server(settings, site, lambda: print_line(line)).run([listener])
        finally:
            site.access.close()
        if site.is_busy:
            # A thread that still waits for a broker cannot be ended. It could wake up in the middle
            # of Python's own end, which aborts the process.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


class _Server(uvicorn.Server):
    """A server whose streams end as soon as a stop begins."""

    def __init__(
        self, settings: uvicorn.Config, site: Site, call_when_ready: Callable[[], None]
    ) -> None:
        super().__init__(settings)
        self._site = site
        self._call_when_ready = call_when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. A signal that comes after the start line stops it in order."""
        await super().startup(sockets)
        self._call_when_ready()
        Thread(target=_warm_up, args=(self._site.way,), daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that wait for brokers get an answer in time."""
        asyncio.get_running_loop().call_later(GRACE_S, self._site.give_up)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the signals; uvicorn's own raises them again, and the exit code tells a kill."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the stop."""
        self._site.stopping.set()
        super().handle_exit(sig, frame)


def _warm_up(way: Way) -> None:
    """Load the modules of the first page while the user opens the browser."""
    sources = Sources(way, way.cluster.security)
    with suppress(TxnError, OSError), sources.borrowed() as source:
        held_open(source, all_partitions(source)[:1])
        source.owners()
    sources.close()
    # The answers about 10,000 topics are many objects, so the collector runs often. Without the
    # modules it has half of the work.
    gc.collect()
    gc.freeze()


def _address_in(listen: str) -> tuple[str, int]:
    try:
        return split_address(listen)
    except ValueError:
        raise ConfigError(f"--listen takes HOST:PORT, not {listen!r}") from None


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--listen {host}:{port}: {error.strerror}") from None
    except UnicodeError:  # of a name that DNS cannot have
        raise ConfigError(f"--listen {host}:{port}: {host!r} is no name of a host") from None
    family, _, _, _, address = found[0]
    if not ip_address(str(address[0])).is_loopback:
        raise ConfigError(
            f"--listen {host}:{port} is no loopback address, and the console speaks plain HTTP. "
            "Listen on 127.0.0.1, and reach it from another machine by `ssh -L`"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressError(
            f"the console cannot listen on {host}:{port}: {error.strerror}. Give --listen another "
            "port, or port 0 for a free one"
        ) from None
    return listener
