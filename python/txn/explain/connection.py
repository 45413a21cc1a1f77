"""A bare connection to a broker, for the few requests that no client library sends.

librdkafka has neither ListTransactions nor DescribeTransactions, DescribeProducers or
WriteTxnMarkers (KIP-664), and hides markers from its consumers. So all that is asked of a cluster
goes this way; one connection, one request at a time. Listeners without TLS and SASL only. A
broker's answers are not trusted: any fault in one becomes one error that names it.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kio.index import load_response_schema

from txn.errors import RejectedError, RetriableError, TxnError
from txn.server.requests import decode_untrusted
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_request, is_flexible
from txn.wire.transaction_descriptions import EXPLAIN_CLIENT_ID

API_VERSIONS: Final = 18
ANSWER_BYTES_MAX: Final = 256 << 20

Fields = dict[str, Any]


class Connection:
    """One connection to one broker.

    Raises:
        RetriableError: nobody answers there, or the connection broke; it names the address.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._has_answered = False
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except (OSError, OverflowError, ValueError) as error:  # or it can be no address
            raise RetriableError(
                f"no broker answers at {self.address}: {_reason(error)}. Start it, or give the "
                "address of one that runs with --bootstrap; of a stopped broker, the data "
                "directory with --data",
                address=self.address,
            ) from error
        self._versions = self._ask_versions()

    def close(self) -> None:
        """Close it; harmless when it is closed."""
        self._socket.close()

    def call(self, api_key: int, versions: range, fields: Fields) -> Any:
        """Send a request; return the answer, decoded.

        Args:
            api_key: Which request.
            versions: Those the caller can do; the latest that the broker has is used.
            fields: By the names of the protocol library; those a version lacks are left out.

        Raises:
            RejectedError: the broker has none of the versions, or its answer is unreadable.
            RetriableError: the connection broke.
        """
        version, body = self.call_raw(api_key, versions, fields)
        with self.reading(api_key):
            return decode_untrusted(load_response_schema(api_key, version), body)

    @contextmanager
    def reading(self, api_key: int) -> Iterator[None]:
        """Context for reading an answer: turns any fault in it into RejectedError."""
        try:
            yield
        except TxnError:
            raise
        except Exception as error:
            raise RejectedError(
                f"the broker at {self.address} answers request {api_key} with what cannot be "
                f"read: {error!r}. If it is Apache Kafka or txn, report that with its version",
                address=self.address,
            ) from error

    def call_raw(self, api_key: int, versions: range, fields: Fields) -> tuple[int, bytes]:
        """Send a request; return its version, and the answer's body as bytes."""
        low, high = self._versions.get(api_key, (0, -1))
        shared = [version for version in versions if low <= version <= high]
        if not shared:
            raise RejectedError(
                f"the broker at {self.address} does not answer request {api_key} in versions "
                f"{versions.start} to {versions.stop - 1}. Apache Kafka does from 3.0 on",
                address=self.address,
            )
        version = shared[-1]
        body = encode_request(api_key, version, fields)
        answer = self._exchange(api_key, version, body, is_flexible(api_key, version))
        self._has_answered = True
        return version, answer

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        try:
            body = self._exchange(API_VERSIONS, 0, b"", False)
            with self.reading(API_VERSIONS):
                answer = decode_untrusted(load_response_schema(API_VERSIONS, 0), body)
                assert answer.error_code == ErrorCode.NONE, answer.error_code
        except TxnError as error:
            self.close()
            raise RetriableError(
                f"what listens at {self.address} is no Kafka broker, or wants TLS or SASL, which "
                "this tool does not speak. Give the address of a plain listener",
                address=self.address,
            ) from error
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _exchange(self, api_key: int, version: int, body: bytes, has_tags: bool) -> bytes:
        self._correlation_id += 1
        client_id = EXPLAIN_CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id))
        frame = header + client_id + (b"\0" if has_tags else b"") + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._take(4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise ConnectionError(f"an answer of {size} bytes")
            answer = self._take(size)
            (correlation_id,) = struct.unpack_from(">i", answer)
            if correlation_id != self._correlation_id:
                raise ConnectionError("it answers what was not asked")
        except OSError as error:
            self.close()
            raise RetriableError(
                f"the connection to {self.address} broke: {_reason(error)}. {self._advice()}",
                address=self.address,
            ) from error
        return answer[5 if has_tags else 4 :]

    def _advice(self) -> str:
        if self._has_answered:
            return "Try again"
        return (
            "If its listener wants SASL, which this tool does not speak, give the address of a "
            "plain one; else try again"
        )

    def _take(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the broker closed it")
            parts += part
        return bytes(parts)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


class Connections:
    """Connections to the brokers of a cluster, made when they are needed."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._open: dict[tuple[str, int], Connection] = {}

    def to(self, host: str, port: int) -> Connection:
        """The connection to a broker. Raises RetriableError."""
        found = self._open.get((host, port))
        if found is None:
            found = self._open[host, port] = Connection(host, port, timeout_s=self._timeout_s)
        return found

    def close(self) -> None:
        """Close them all."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
