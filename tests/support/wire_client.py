"""A bare Kafka connection: requests as bytes, for requests that no real client would send."""

import io
import socket
import struct
from types import TracebackType
from typing import Any, Self

from kio.serial import entity_reader, entity_writer

from support.entities import entity_builder
from support.response_schemas import response_schema
from txn.wire.api_keys import ApiKey
from txn.wire.kio import load_request_schema
from txn.wire.messages import encode_request, is_flexible

WAIT_S = 10.0


class RawConnection:
    """One TCP connection to a broker, from some address of this machine if one is given."""

    def __init__(self, servers: str, source: str | None = None) -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.create_connection(
            (host, int(port)),
            timeout=WAIT_S,
            source_address=None if source is None else (source, 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        self.send_raw(struct.pack(">i", len(payload)) + payload)

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to close; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, request: Any) -> Any:
        """Send a kio request entity; return its response entity."""
        schema = type(request)
        key, version = schema.__api_key__, schema.__version__
        body = io.BytesIO()
        entity_writer(schema)(body, request)
        header = struct.pack(">hhih", key, version, 7, -1) + (
            b"\x00" if schema.__flexible__ else b""
        )
        self.send_frame(header + body.getvalue())
        answer = self.read_frame()
        assert answer[:4] == struct.pack(">i", 7), "the correlation id comes back"
        skip = 5 if schema.__flexible__ and key != 18 else 4
        response, size = entity_reader(response_schema(key, version))(answer[skip:], 0)
        assert size == len(answer) - skip, "nothing follows the response"
        return response

    def send_body(self, key: int, version: int, body: bytes) -> None:
        """Send a request of these bytes."""
        flexible = b"\0" if load_request_schema(key, version).__flexible__ else b""
        self.send_frame(struct.pack(">hhih", key, version, 7, -1) + flexible + body)

    def send(self, key: int, version: int, /, **fields: Any) -> None:
        """Send a request of these fields; those that the version does not have are left out."""
        self.send_body(key, version, encode_request(key, version, fields))

    def receive(self, key: int, version: int) -> Any:
        """The next answer, to such a request."""
        read = entity_reader(response_schema(key, version))
        return read(self.receive_body(key, version), 0)[0]

    def receive_body(self, key: int, version: int) -> bytes:
        """The bytes of the next answer, behind its header."""
        return self.read_frame()[5 if is_flexible(key, version) and key != 18 else 4 :]

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """Send a request and return its answer."""
        self.send(key, version, **fields)
        return self.receive(key, version)

    def ask_for_records(self, topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> Any:
        """Fetch from partition 0 without waiting; return the answer, of one topic or none."""
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": max_bytes,
        }
        return self.ask(
            ApiKey.FETCH,
            12,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [wanted]}],
            forgotten_topics_data=[],
            rack_id="",
        )

    def fetch_code(self, topic: str) -> int:
        """The error code that answers a fetch of partition 0, or 0.

        A client would fetch again until its time is up.
        """
        ((found,),) = (each.partitions for each in self.ask_for_records(topic).responses)
        return int(found.error_code)

    def has_nothing(self) -> bool:
        """Say whether no byte of an answer is there."""
        timeout = self.socket.gettimeout()
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(timeout)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionAbortedError("the broker closed the connection")
            data += more
        return data


def ask(servers: str, api_key: int, version: int, **values: Any) -> Any:
    """Send a request with these values on a connection of its own; return the answer."""
    with RawConnection(servers) as connection:
        return connection.call(entity_builder(request(api_key, version))(values))


def request(api_key: int, version: int) -> Any:
    """The kio schema of a request."""
    return load_request_schema(api_key, version)
