"""The HTTP server of the registry: loopback, a thread for each connection, bounded bodies."""

import json
import socket
import threading
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from txn.errors import TxnError
from txn.testing.registry.errors import RegistryError
from txn.testing.registry.routes import Raw

BODY_BYTES_MAX: Final = 4 << 20
CONNECTIONS_MAX: Final = 256
IDLE_S: Final = 60.0
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

Answer = Callable[[str, str, bytes], object]
"""From a method, a target and a body. Raises RegistryError, TxnError."""


class Server:
    """Listens on a port of 127.0.0.1 until it is closed.

    Args:
        answer: Answers a request; it is called from many threads.
        user: The "name:password" that requests have to bring; None if none is needed.

    Attributes:
        port: Its port.
    """

    def __init__(self, answer: Answer, user: str | None) -> None:
        self.answer = answer
        self.user = user
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._is_open = True
        self._thread = threading.Thread(
            target=self._accept, name="txn-testing-registry", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Close every connection, and wait for the threads."""
        with self._lock:
            self._is_open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in left.values():
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve,
                args=(connection, address),
                name="txn-testing-registry-connection",
                daemon=True,
            )
            with self._lock:
                if not self._is_open or len(self._open) >= CONNECTIONS_MAX:
                    connection.close()
                    continue
                self._open[connection] = thread
                thread.start()

    def _serve(self, connection: socket.socket, address: object) -> None:
        try:
            with suppress(OSError):
                _Handler(connection, address, self)  # type: ignore[arg-type]
        finally:
            with self._lock:
                self._open.pop(connection, None)
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "txn"
    sys_version = ""
    timeout = IDLE_S
    wbufsize = -1  # an answer leaves in one packet
    server: Server  # type: ignore[assignment]

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP; the connection ends."""
        self.close_connection = True
        self._send(code, {"error_code": code, "message": message or HTTPStatus(code).phrase})

    def do_GET(self) -> None:  # the methods have the names that http.server asks for
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        try:
            body = self._body()
            self._require_user()
            self._send(200, self.server.answer(self.command, self.path, body))
        except RegistryError as error:
            self._send(error.status, {"error_code": error.code, "message": error.message})
        except TxnError as error:
            text = f"Error in the backend Kafka store: {error}"
            self._send(500, {"error_code": 50001, "message": text})
        except OSError:
            raise
        except Exception as error:
            self._send(500, {"error_code": 500, "message": f"{type(error).__name__}: {error}"})

    def _body(self) -> bytes:
        given = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") is not None or not given.isdecimal():
            self.close_connection = True
            raise RegistryError(411, 411, "HTTP 411 Length Required")
        if len(given) > 9 or int(given) > BODY_BYTES_MAX:
            self.close_connection = True
            text = f"the body has {given[:20]} bytes, and the registry takes {BODY_BYTES_MAX}"
            raise RegistryError(413, 413, text)
        body = self.rfile.read(int(given))
        if len(body) < int(given):
            self.close_connection = True
            raise RegistryError(400, 400, "HTTP 400 Bad Request")
        return body

    def _require_user(self) -> None:
        user = self.server.user
        if user is None:
            return
        scheme, _, secret = self.headers.get("Authorization", "").partition(" ")
        found = b""
        if scheme.lower() == "basic":
            with suppress(ValueError):
                found = b64decode(secret)
        if not compare_digest(found, user.encode()):
            raise RegistryError(401, 401, "Unauthorized")

    def _send(self, status: int, answer: Any) -> None:
        is_raw = isinstance(answer, Raw)
        text = str(answer) if is_raw else json.dumps(answer, separators=(",", ":"))
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if is_raw else CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="txn"')
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
