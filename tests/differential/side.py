"""One of the two brokers: requests with names go out, answers with names come back."""

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.serial import entity_reader

from differential.batches import BatchSpec
from differential.names import PORT, Name, Names
from differential.plain import plain
from support.entities import entity_builder
from support.response_schemas import response_schema
from support.tagged import NO_TAGS, encode, encode_plainly
from support.wire_client import RawConnection
from txn.wire.kio import load_request_schema

CORRELATION_ID: Final = 7
PRODUCE, API_VERSIONS = 0, 18

CLOSED: Final = {"connection": "closed"}
SILENT: Final = {"connection": "open, no answer"}
UNANSWERED: Final = {"connection": "open, no answer in time"}


class Side:
    """A broker and one connection to it, opened again when the broker closes it.

    `tags` are the tagged fields of every structure and header sent.

    Args:
        servers: Bootstrap servers.
        connect: Opens a connection; without it, one that nobody logs in to.
        names: The names of the broker's values, for several connections to it.
    """

    def __init__(
        self,
        servers: str,
        connect: Callable[[str], RawConnection] = RawConnection,
        names: Names | None = None,
    ) -> None:
        self.servers = servers
        self.tags = NO_TAGS
        self.names = Names() if names is None else names
        self._connect = connect
        self.names.bind(PORT, int(servers.rpartition(":")[2]))
        self._connection: RawConnection | None = None

    def forget_names(self) -> None:
        """Begin another script: nothing was handed out yet, and nothing is tagged."""
        self.tags = NO_TAGS
        self.names = Names()
        self.names.bind(PORT, int(self.servers.rpartition(":")[2]))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request; return its plain answer, or that the connection was closed."""
        schema = load_request_schema(api_key, version)
        request = entity_builder(schema)(self._resolved(values))
        is_tagged = schema.__flexible__ and self.tags != NO_TAGS
        body = encode(request, self.tags) if is_tagged else encode_plainly(request)
        has_answer = not (api_key == PRODUCE and request.acks == 0)
        return self._exchange(api_key, version, body, has_answer=has_answer)

    def ask_bytes(self, api_key: int, version: int, body: bytes) -> dict[str, Any]:
        """Send a body that need not follow its schema."""
        return self._exchange(api_key, version, body, has_answer=True)

    def raw(self, data: bytes) -> dict[str, Any]:
        """Send bytes on a connection of their own; return the answer, undecoded."""
        with RawConnection(self.servers) as connection:
            try:
                connection.send_raw(data)
                return {"answer": connection.read_frame().hex()}
            except TimeoutError:
                return UNANSWERED
            except (AssertionError, ConnectionError):
                return CLOSED

    def _exchange(
        self, api_key: int, version: int, body: bytes, *, has_answer: bool
    ) -> dict[str, Any]:
        self._connection = self._connection or self._connect(self.servers)
        is_flexible = _is_flexible(api_key, version)
        header = struct.pack(">hhihs", api_key, version, CORRELATION_ID, 1, b"d")
        try:
            self._connection.send_frame(header + (self.tags if is_flexible else b"") + body)
            if not has_answer:  # an answer to the next request shows that there was none to this
                self._connection.send_frame(struct.pack(">hhih", API_VERSIONS, 0, 8, -1))
                frame = self._connection.read_frame()
                assert frame[:4] == struct.pack(">i", 8), f"acks=0 was answered: {frame.hex()}"
                return SILENT
            frame = self._connection.read_frame()
        except TimeoutError:
            self.close()
            return UNANSWERED
        except (AssertionError, ConnectionError):
            self.close()
            return CLOSED
        return self._decoded(api_key, version, frame)

    def _decoded(self, api_key: int, version: int, frame: bytes) -> dict[str, Any]:
        is_tagged = api_key != API_VERSIONS and _is_flexible(api_key, version)
        schema = response_schema(api_key, version)
        at = 5 if is_tagged else 4
        answer, size = entity_reader(schema)(frame[at:], 0)
        return plain(answer, self.names) | {
            "correlation id": int.from_bytes(frame[:4], "big"),
            "bytes behind": len(frame) - at - size,
        }

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Name):
            own = self.names.value(value)
            return uuid.UUID(own) if value.kind == "topic id" else own
        if isinstance(value, BatchSpec):
            return value.encode(self._resolved(value.producer_id))
        if isinstance(value, tuple) and value and isinstance(value[0], BatchSpec):
            return b"".join(map(self._resolved, value))
        if isinstance(value, Mapping):
            return {name: self._resolved(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in value]
        return value


def _is_flexible(api_key: int, version: int) -> bool:
    try:
        return bool(load_request_schema(api_key, version).__flexible__)
    except Exception:
        return False
