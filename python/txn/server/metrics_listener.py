"""`GET /metrics`, `/healthz` and `/readyz` over HTTP: one thread, one request at a time.

It answers from before the logs are opened: a broker that starts is live, not ready, and has no
metrics yet.

A request is read up to its empty line, at most `HEAD_BYTES_MAX` within `REQUEST_S`: neither a slow
nor a long one holds up others. Headers are ignored, a body is not read, and every answer closes the
connection.
"""

import contextlib
import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from txn.errors import AddressError, ConfigError
from txn.logs import rare_log
from txn.server.health import Health

HEAD_BYTES_MAX: Final = 8 << 10
REQUEST_S: Final = 2.0
"""A request has to arrive within this time."""
RESPONSE_S: Final = 5.0
"""A client has to take the answer within this time."""
BACKLOG: Final = 8

TEXT: Final = "text/plain; charset=utf-8"
METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"

WELL: Final = "200 OK"
UNAVAILABLE: Final = "503 Service Unavailable"

Page = tuple[str, str, bytes]
"""Status, content type and body."""


class Probes(Protocol):
    """The health of a broker; a `txn.server.health.HealthProbes`."""

    def live(self) -> Health:
        """Tell whether it works, or starts."""
        ...

    def ready(self) -> Health:
        """Tell whether it serves everything it has."""
        ...


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
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, _, _, _, address = addresses[0]
            if not is_remote_allowed and not ipaddress.ip_address(address[0]).is_loopback:
                raise ConfigError(
                    f"metrics cannot be served on {host}:{port}: everyone who reaches that address "
                    "could read them. Give a loopback address, or set metrics.allow.remote=true",
                    property="metrics.listener",
                )
            self._socket = socket.create_server(
                (str(address[0]), port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            raise AddressError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}. Give another "
                "address; port 0 takes a free one",
                host=host,
                port=port,
            ) from error
        host, port = self._socket.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._metrics: Callable[[], bytes] | None = None

    def start(self, probes: Probes) -> None:
        """Begin to answer probes."""
        self._thread = threading.Thread(
            target=self._run, args=(probes,), name="txn-metrics", daemon=True
        )
        self._thread.start()

    def serve_metrics(self, metrics: Callable[[], bytes]) -> None:
        """Serve the text that a call returns, too."""
        self._metrics = metrics

    def stop(self) -> None:
        """Serve no more; the request under way is answered."""
        self._is_stopped = True
        with contextlib.suppress(OSError):  # it wakes the thread, which may have gone
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
        self._metrics = None

    def _run(self, probes: Probes) -> None:
        # A program may let SIGPIPE end it, and a write to a client that has left raises the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        while not self._is_stopped:
            try:
                client, _ = self._socket.accept()
            except OSError:  # stopped, or the process has no descriptor left
                time.sleep(0 if self._is_stopped else 0.1)
                continue
            with client:
                try:
                    self._serve(client, probes)
                except OSError:
                    pass  # the client left, or was too slow
                except Exception:
                    rare_log.exception("metrics.failed")

    def _serve(self, client: socket.socket, probes: Probes) -> None:
        (status, kind, body), has_body = self._answer(_read_head(client), probes)
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        client.settimeout(RESPONSE_S)  # for all of it
        client.sendall(head.encode() + (body if has_body else b""))

    def _answer(self, head: bytes | None, probes: Probes) -> tuple[Page, bool]:
        """The answer to a request, and whether its body is sent."""
        if head is None:
            return ("431 Request Header Fields Too Large", TEXT, b""), False
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return ("400 Bad Request", TEXT, b"This is no HTTP/1 request.\n"), True
        method, target = words[0], words[1].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return ("405 Method Not Allowed", TEXT, b"Use GET or HEAD.\n"), True
        return self._page(target, probes), method != b"HEAD"

    def _page(self, target: bytes, probes: Probes) -> Page:
        if target == b"/healthz":
            return _page_of(probes.live())
        if target == b"/readyz":
            return _page_of(probes.ready())
        if target != b"/metrics":
            return "404 Not Found", TEXT, b"There are /metrics, /healthz and /readyz.\n"
        if self._metrics is None:
            return UNAVAILABLE, TEXT, b"The broker starts.\n"
        return WELL, METRICS_TEXT, self._metrics()


def _page_of(health: Health) -> Page:
    return WELL if health.is_well else UNAVAILABLE, JSON, health.body()


def _read_head(client: socket.socket) -> bytes | None:
    """The head of a request; None if it is too long. Raises OSError."""
    deadline = time.monotonic() + REQUEST_S
    head = bytearray()
    while b"\r\n\r\n" not in head:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        client.settimeout(left_s)
        received = client.recv(HEAD_BYTES_MAX)
        head += received
        if not received:
            raise ConnectionResetError
        if len(head) > HEAD_BYTES_MAX:
            return None
    return bytes(head)
