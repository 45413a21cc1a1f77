"""A schema registry, or a writer of records, that would cost a Spark worker its memory or its time.

confluent-kafka's client reads an answer of any length, and waits for one without end. Each id that
somebody invents in a record was looked up again in each batch.
"""

import gzip
import json
import struct
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa

from txn.errors import ConfigError, RejectedError, RetriableError
from txn.spark.serdes import bounded_client, registry
from txn.spark.serdes.bounded_client import ANSWER_BYTES_MAX
from txn.spark.serdes.columns import PERMISSIVE, Plan, decode
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.registry import (
    AVRO,
    Settings,
    Text,
    UnreadableIds,
    of_id,
    settings_of,
)

Answer = Callable[[BaseHTTPRequestHandler], None]
STRING = '"string"'


class HostileRegistry(ThreadingHTTPServer):
    """A registry that answers each request by a function."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.answer: Answer = schema(STRING)
        self.paths: list[str] = []
        self.headers: list[str | None] = []
        self.ends = Event()

    def handle_error(self, *_: object) -> None:
        """The client has left in the middle of an answer."""

    @property
    def settings(self) -> Settings:
        return settings_of({"url": f"http://127.0.0.1:{self.server_port}", "max.retries": 0})


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HostileRegistry

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.headers.append(self.headers["Accept-Encoding"])
        try:
            self.server.answer(self)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def body(content: bytes, status: int = 200, **headers: str) -> Answer:
    """An answer with a body."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def schema(text: str, **fields: object) -> Answer:
    return body(json.dumps({"schema": text, **fields}).encode())


UNKNOWN = body(json.dumps({"error_code": 40403, "message": "Schema not found"}).encode(), 404)


@pytest.fixture
def hostile() -> Iterator[HostileRegistry]:
    with HostileRegistry() as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.ends.set()
        server.shutdown()
        thread.join()


def test_an_answer_with_too_many_bytes_is_refused(hostile: HostileRegistry) -> None:
    padding = " " * (ANSWER_BYTES_MAX - 100)
    hostile.answer = schema(STRING, padding=padding)
    assert of_id(hostile.settings, 1, AVRO).text == STRING
    hostile.answer = schema(STRING, padding=padding + " " * 100)
    with pytest.raises(RejectedError, match=f"has more than {ANSWER_BYTES_MAX} bytes"):
        of_id(hostile.settings, 1, AVRO)


def test_an_answer_that_never_ends_is_refused(hostile: HostileRegistry) -> None:
    def pour(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        while not hostile.ends.is_set():
            request.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    hostile.answer = pour
    with pytest.raises(RejectedError, match=f"has more than {ANSWER_BYTES_MAX} bytes"):
        of_id(hostile.settings, 1, AVRO)


def test_a_compressed_answer_is_refused(hostile: HostileRegistry) -> None:
    """A few kilobytes of gzip become gigabytes."""
    content = gzip.compress(json.dumps({"schema": STRING}).encode())
    hostile.answer = body(content, Content_Encoding="gzip")
    with pytest.raises(RejectedError, match="a compressed answer, which was not asked for"):
        of_id(hostile.settings, 1, AVRO)
    assert hostile.headers == ["identity"]


def test_an_answer_that_comes_byte_by_byte_is_given_up(
    hostile: HostileRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(ANSWER_BYTES_MAX))
        request.end_headers()
        while not hostile.ends.wait(0.05):
            request.wfile.write(b" ")

    monkeypatch.setattr(bounded_client, "LOOK_UP_SECONDS", 0.5)
    hostile.answer = drip
    began = time.monotonic()
    with pytest.raises(RetriableError, match=r"schema 1: it takes more than 0\.5 s"):
        of_id(hostile.settings, 1, AVRO)
    assert time.monotonic() - began < 60
    hostile.answer = schema(STRING)
    monkeypatch.undo()
    assert of_id(hostile.settings, 1, AVRO).text == STRING  # with a client of its own


def _wait(hostile: HostileRegistry) -> None:
    hostile.ends.wait()


def test_a_registry_that_does_not_answer_is_given_up(
    hostile: HostileRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent-kafka's client has no time limit of its own."""
    monkeypatch.setattr(bounded_client, "ANSWER_SECONDS", 0.2)
    hostile.answer = lambda _: _wait(hostile)
    with pytest.raises(RetriableError, match="did not give schema 1: timed out"):
        of_id(hostile.settings, 1, AVRO)


def test_references_have_a_bound_of_bytes(
    hostile: HostileRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them has its own answer, and a thousand are allowed."""
    monkeypatch.setattr(registry, "SCHEMA_BYTES_MAX", 10_000)
    text = json.dumps("x" * 1_998)

    def refer(request: BaseHTTPRequestHandler) -> None:
        number = len(hostile.paths)
        references = [{"name": f"N{number}", "subject": f"s{number}", "version": 1}]
        version = {"subject": "s", "version": 1, "id": number}
        schema(text, references=references, **version)(request)

    hostile.answer = refer
    with pytest.raises(RejectedError, match="more than 10000 bytes with its references"):
        of_id(hostile.settings, 1, AVRO)
    assert len(hostile.paths) == 6


def test_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"do not fit: Unrecognized properties: color"):
        of_id(settings_of({"url": "http://127.0.0.1:1", "color": "red"}), 1, AVRO)


# ---------------------------------------------------------------- ids that somebody invents


def framed(id: int) -> bytes:
    return struct.pack(">bi", 0, id) + b"\x02x"


def plan_of(hostile: HostileRegistry) -> Plan:
    return Plan(hostile.settings, Text(1, AVRO, STRING, ()), None, PERMISSIVE)


def test_an_invented_id_is_looked_up_once_in_several_batches(hostile: HostileRegistry) -> None:
    hostile.answer = UNKNOWN
    for _ in range(3):
        batch = pa.array([framed(7), framed(8), framed(7)])
        assert decode(plan_of(hostile), batch).to_pylist() == [None] * 3
    assert hostile.paths == ["/schemas/ids/7", "/schemas/ids/8"]


def test_too_many_invented_ids_end_the_query(
    hostile: HostileRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make the rest null without a look-up would lose rows of a schema not seen so far."""
    monkeypatch.setattr(registry, "UNREADABLE_IDS_MAX", 5)
    hostile.answer = UNKNOWN
    batch = pa.array([framed(id) for id in range(100)])
    with pytest.raises(RejectedError, match=r"more than 5 ids of schemas within 60 s.*filter the"):
        decode(plan_of(hostile), batch)
    assert len(hostile.paths) == 6


def test_an_id_is_looked_up_again_after_a_while() -> None:
    now = [0.0]
    ids = UnreadableIds(lambda: now[0])
    ids.note(7, "the registry has no schema 7")
    with pytest.raises(BadRowError, match="no schema 7"):
        ids.check(7)
    now[0] = registry.UNREADABLE_SECONDS
    ids.check(7)
