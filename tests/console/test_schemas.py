"""Records by the schemas of a registry, which is a small HTTP server here."""

import io
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro
import pytest

from console.conftest import Story
from support.clients import create_topic, plain_producer
from support.command_line import run_txn
from support.console import Browser, ConsoleProcess

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "raw", "type": "bytes"}],
}
ITEM = {"title": "Item", "type": "object", "properties": {"item": {"type": "string"}}}
SCHEMAS = {
    1: {"schema": json.dumps(ORDER)},
    2: {"schema": json.dumps(ITEM), "schemaType": "JSON"},
    3: {"schema": 'syntax = "proto3"; message A {}', "schemaType": "PROTOBUF"},
    5: {"schema": '{"type": "array", "items": "int"}'},
}


class Registry(BaseHTTPRequestHandler):
    """Answers with a schema by its number."""

    def do_GET(self) -> None:
        number = self.path.partition("?")[0].rpartition("/")[2]
        found = SCHEMAS.get(int(number)) if number.isdigit() else None
        body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def numbered(number: int, content: bytes) -> bytes:
    return struct.pack(">bi", 0, number) + content


@pytest.fixture(scope="module")
def browser(story: Story) -> Iterator[Browser]:
    """A console with a registry, beside a topic with a record of each kind."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, ORDER, {"item": "<b>fig</b>", "raw": b"\xff"})
    create_topic(story.servers, "typed")
    producer = plain_producer(story.servers)
    for value in (
        numbered(1, written.getvalue()),
        numbered(2, b'{"item": "plum"}'),
        numbered(3, b"\x00"),
        numbered(4, b"of no schema"),
        numbered(1, b"\x7f"),
        b"plain",
        numbered(2, b'{"item": "fig", "many": [1e999' + b", 1.50" * 5_000 + b"]}"),
        numbered(5, b"\x90\x4e" + b"\x02" * 5_000 + b"\x00"),
        b"plain" * 50_000,
    ):
        producer.produce("typed", value, partition=0)
    producer.flush()
    with registry() as url:
        console = ConsoleProcess("--bootstrap", story.servers, "--registry", url)
        yield console.browser()
        assert console.stop() == 0


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (0, ("&lt;b&gt;fig&lt;/b&gt;", "ff", "Read by schema 1 of the registry, AVRO")),
        (1, ("plum", "Read by schema 2 of the registry, JSON")),
        (2, ("it is PROTOBUF",)),
        (3, ("Schema 4 does not read it",)),
        (4, ("Schema 1 does not read it",)),
        (6, ("1e999", "1.50", "JSON. These are the first 4,096 lines")),
        (7, ("AVRO. These are the first 4,096 lines",)),
        (8, ("no number of a schema. These are the first 65,536 of 250,000 bytes",)),
        (5, ("plain", "It begins with no number of a schema")),
    ],
)
def test_a_record_is_read_by_its_schema_or_the_page_says_why_not(
    browser: Browser, offset: int, words: tuple[str, ...]
) -> None:
    answer = browser.get(f"/topics/typed/0/{offset}")
    assert answer.status == 200
    for each in words:
        assert each in answer.text


def test_a_registry_that_does_not_answer_keeps_no_page_away(story: Story, browser: Browser) -> None:
    console = ConsoleProcess("--bootstrap", story.servers, "--registry", "http://127.0.0.1:1")
    answer = console.browser().get("/topics/typed/0/0")
    assert (answer.status, "does not read it" in answer.text) == (200, True)
    assert console.stop() == 0
    assert run_txn("console", "--registry", "nowhere", "--listen", "127.0.0.1:0")[0] == 2
