"""HTTP with one time limit for the whole answer: status, headers, body and trailers.

The timeout of a socket applies to each read alone. An answer that comes byte by byte never exceeds
it, and neither do endless interim answers (`100 Continue`).
"""

import io
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPHandler, HTTPSHandler, Request

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class _TimedFile(io.RawIOBase):
    """The bytes that a socket receives until a deadline; TimeoutError after it."""

    def __init__(self, connection: socket.socket, left: Callable[[], float]) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._read_seconds = connection.gettimeout()
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        left = self._left()
        if self._read_seconds is not None:
            left = min(left, self._read_seconds)
        self._connection.settimeout(left)
        try:
            return self._file.readinto(buffer)
        except TimeoutError:
            self._left()  # raises if it was the deadline
            raise

    def close(self) -> None:
        self._file.close()
        super().close()


def timed_handlers(
    deadline: float, context: SSLContext | None = None
) -> tuple[HTTPHandler, HTTPSHandler]:
    """Return handlers for `build_opener`, of `http:` and of `https:`.

    Args:
        deadline: Reading after this moment of `time.monotonic` raises TimeoutError.
        context: Verifies the server of `https:`.
    """

    def left() -> float:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the answer takes too long")
        return seconds

    class Response(HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
            super().__init__(sock, *args, **more)
            self.fp.close()
            self.fp = io.BufferedReader(_TimedFile(sock, left))

    class Plain(HTTPConnection):
        response_class = Response

    class Tls(HTTPSConnection):
        response_class = Response

    class PlainHandler(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Plain, req)

    class TlsHandler(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Tls, req, context=context)

    return PlainHandler(), TlsHandler()
