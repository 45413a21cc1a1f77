"""`GET /metrics`, `/healthz` and `/readyz` over HTTP, on one thread (`http_rounds`).

It answers from before the logs are opened: a broker that starts is live, not ready, and has no
metrics yet.

Probes are answered before metrics. A page is made once for all requests that arrive together: a
thousand requests cost no more work, and no longer waits for a busy loop, than one.
"""

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from txn.errors import AddressError, ConfigError
from txn.logs import rare_log
from txn.server.metrics.health import Health
from txn.server.metrics.http_rounds import Head, HttpRounds

BACKLOG: Final = 128

TEXT: Final = "text/plain; charset=utf-8"
METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"

METRICS: Final = b"/metrics"
PATHS: Final = frozenset({METRICS, b"/healthz", b"/readyz"})

WELL: Final = "200 OK"
UNAVAILABLE: Final = "503 Service Unavailable"

Page = tuple[str, str, bytes]
"""Status, content type and body."""


class Probes(Protocol):
    """The health of a broker; a `txn.server.metrics.health.HealthProbes`."""

    def live(self) -> Health:
        """Return whether it works, or starts."""
        ...

    def ready(self) -> Health:
        """Return whether it serves everything it has."""
        ...


def checked_address(
    host: str, port: int, *, is_remote_allowed: bool
) -> tuple[socket.AddressFamily, str]:
    """Return the family and the number of an address for metrics.

    Raises:
        ConfigError: the address is not loopback, and has to be.
        OSError: there is no such address.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = addresses[0]
    if not is_remote_allowed and not ipaddress.ip_address(address[0]).is_loopback:
        raise ConfigError(
            f"metrics cannot be served on {host}:{port}: everyone who reaches that address "
            "could read them. Give a loopback address, or set metrics.allow.remote=true",
            property="metrics.listener",
        )
    return family, str(address[0])


class MetricsListener:
    """Serves probes from `start` to `stop`, and metrics from `serve_metrics` on.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        is_remote_allowed: Whether the address may be another than loopback.

    Raises:
        ConfigError: the address is not loopback, and has to be.
        AddressError: the address is taken or not of this machine.
    """

    def __init__(self, host: str, port: int, *, is_remote_allowed: bool) -> None:
        try:
            family, address = checked_address(host, port, is_remote_allowed=is_remote_allowed)
            self._socket = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise AddressError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}. Give another "
                "address; port 0 takes a free one",
                host=host,
                port=port,
            ) from error
        host, port = self._socket.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self._rounds: HttpRounds | None = None
        self._thread: threading.Thread | None = None
        self._metrics: Callable[[], bytes] | None = None

    def start(self, probes: Probes) -> None:
        """Begin to answer probes."""
        pages = _Pages(probes, lambda: self._metrics)
        self._rounds = HttpRounds(self._socket, pages.answer_all)
        self._thread = threading.Thread(target=self._rounds.run, name="txn-metrics", daemon=True)
        self._thread.start()

    def serve_metrics(self, metrics: Callable[[], bytes]) -> None:
        """Serve the text that a call returns, too."""
        self._metrics = metrics

    def stop(self) -> None:
        """Serve no more; the request under way is answered."""
        if self._rounds is not None:
            self._rounds.stop()
        with contextlib.suppress(OSError):  # it wakes the thread, which may have gone
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
        self._metrics = None


class _Pages:
    """The answers to requests.

    Args:
        probes: The health of the broker.
        metrics: Gives the call that makes the metrics' text; None: it starts.
    """

    def __init__(self, probes: Probes, metrics: Callable[[], Callable[[], bytes] | None]) -> None:
        self._probes = probes
        self._metrics = metrics

    def answer_all(self, heads: Sequence[Head]) -> Iterator[tuple[int, bytes]]:
        """See `http_rounds.AnswerAll`."""
        asked = [_read(head) for head in heads]
        pages: dict[bytes, Page | None] = {}
        for position in sorted(range(len(asked)), key=lambda at: asked[at] == METRICS):
            target = asked[position]
            if isinstance(target, bytes) and target not in pages:
                pages[target] = self._made(target)
            page = pages[target] if isinstance(target, bytes) else target
            if page is not None:
                yield position, _response(page, has_body=not _is_head(heads[position]))

    def _made(self, target: bytes) -> Page | None:
        """The page of a path; None if it cannot be made."""
        try:
            return self._page(target)
        except Exception:
            rare_log.exception("metrics.failed")
            return None

    def _page(self, target: bytes) -> Page:
        if target == b"/healthz":
            return _page_of(self._probes.live())
        if target == b"/readyz":
            return _page_of(self._probes.ready())
        metrics = self._metrics()
        if metrics is None:
            return UNAVAILABLE, TEXT, b"The broker starts.\n"
        return WELL, METRICS_TEXT, metrics()


def _read(head: Head) -> bytes | Page:
    """The path that a request asks for, one of those that there are, or its refusal."""
    if head is None:
        return "431 Request Header Fields Too Large", TEXT, b""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return "400 Bad Request", TEXT, b"This is no HTTP/1 request.\n"
    method, target = words[0], words[1].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return "405 Method Not Allowed", TEXT, b"Use GET or HEAD.\n"
    if target not in PATHS:
        return "404 Not Found", TEXT, b"There are /metrics, /healthz and /readyz.\n"
    return target


def _is_head(head: Head) -> bool:
    return head is None or head.startswith(b"HEAD ")


def _response(page: Page, *, has_body: bool) -> bytes:
    status, kind, body = page
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")


def _page_of(health: Health) -> Page:
    return WELL if health.is_well else UNAVAILABLE, JSON, health.body()
