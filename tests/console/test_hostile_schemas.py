"""Schemas, records and registries that cost much: each costs one page view, within limits."""

import json
import threading
from http.server import BaseHTTPRequestHandler
from itertools import repeat
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto

from console.conftest import Story
from console.registry import (
    Answering,
    Answers,
    answer_json,
    http_server,
    message,
    numbered,
    protobuf,
)
from support.clients import WAIT_S, create_topic, plain_producer
from support.console import Answer, ConsoleProcess
from txn.console.registry.reading import Limits, Schemas

LIMITS = Limits(computing_s=2, wait_s=60)
"""The limits on a busy machine: a process that waits for a processor does not compute."""

DEEP = 50_000
NUMBER_1 = "/schemas/ids/1"


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Answer with more than any memory has."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    for piece in repeat(b" " * (1 << 20)):
        handler.wfile.write(piece)


def nested_messages() -> dict[str, Any]:
    """A descriptor whose messages stand in each other."""
    inner = DescriptorProto(name="M")
    for _ in range(90):
        inner = DescriptorProto(name="M", nested_type=[inner])
    return protobuf("deep", inner)


def deep_message() -> bytes:
    content = b""
    for _ in range(2_000):
        size, length = len(content), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        content = b"\x0a" + length + bytes([size]) + content
    return b"\x00" + content


def text_schema(kind: str, schema: object, **more: object) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"schema": text, "schemaType": kind, **more}


ITSELF = [{"name": "a", "subject": "itself", "version": 1}]
TREE = {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}
BACKTRACKING = {"type": "string", "pattern": "^(a+)+$"}

HOSTILE: dict[str, tuple[dict[str, Any] | Answering, bytes]] = {
    "an Avro array of nothing, 2^40 times": (
        text_schema("AVRO", {"type": "array", "items": "null"}),
        b"\x80\x80\x80\x80\x80\x80\x01",
    ),
    "an Avro schema that is nested deeply": (
        text_schema("AVRO", '{"type":"array","items":' * DEEP + '"int"' + "}" * DEEP),
        b"\x00",
    ),
    "an Avro record in itself": (text_schema("AVRO", TREE), b"\x02" * DEEP + b"\x00"),
    "an Avro default that is nested deeply": (
        text_schema(
            "AVRO",
            '{"type":"record","name":"D","fields":[{"name":"d","type":"int","default":'
            + "[" * DEEP
            + "]" * DEEP
            + "}]}",
        ),
        b"\x00",
    ),
    "a pattern that backtracks": (text_schema("JSON", BACKTRACKING), b'"' + b"a" * 64 + b'b"'),
    "JSON that is nested deeply": (text_schema("JSON", {}), b"[" * DEEP + b"]" * DEEP),
    "a JSON Schema that refers to itself": (text_schema("JSON", {"$ref": "#"}), b"1"),
    "Protobuf that is nested deeply": (
        protobuf("m", message("M", ("m", 1, ".m.M"))),
        deep_message(),
    ),
    "Protobuf schemas that import each other": (
        protobuf("m", message("M"), imports=["a"], references=ITSELF),
        b"\x00",
    ),
    "a descriptor with deep messages": (nested_messages(), b"\xb6\x01" + b"\x00" * 91),
    "an answer without end": (endless, b"\x00"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_costs_bounded_time_and_memory_and_the_bytes_are_shown(name: str) -> None:
    answer, payload = HOSTILE[name]
    with http_server({NUMBER_1: answer, "/subjects/itself/versions/1": answer}) as (url, _):
        (_, no_key), (lines, note) = Schemas(url, LIMITS).lines("t", None, numbered(1, payload))
    assert no_key is None
    assert lines
    assert note is not None
    assert "does not read it: " in note or "was not decoded: " in note or "AVRO" in note, note
    assert "code 1" not in note, "Python ends with 1 after a traceback"


def test_the_limits_of_computing_of_memory_and_of_waiting_are_told() -> None:
    gate = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        """Send a byte now and then, so that no wait for the next one is long."""
        handler.send_response(200)
        handler.end_headers()
        while not gate.wait(0.1):
            handler.wfile.write(b" ")

    backtracking, payload = HOSTILE["a pattern that backtracks"]
    for answer, limits, told in (
        (silent, Limits(wait_s=1), "the registry and the decoder take more than 1 s"),
        (endless, LIMITS, "it takes too much memory"),
        (backtracking, LIMITS, "it takes more than 2 s of computing"),
    ):
        with http_server({NUMBER_1: answer}) as (url, _):
            _, (lines, note) = Schemas(url, limits).lines("t", None, numbered(1, payload))
        assert payload.decode() in "".join(lines)
        assert note is not None
        assert told in note
    gate.set()


def test_no_schema_makes_the_console_ask_another_server() -> None:
    with http_server({}) as (foreign, asked):

        def elsewhere(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", f"{foreign}/schemas/ids/1")
            handler.end_headers()

        for answer in (
            elsewhere,
            text_schema("JSON", {"$ref": f"{foreign}/a.json"}),
            text_schema("JSON", {"$schema": f"{foreign}/s.json", "$ref": "file:///etc/passwd"}),
            text_schema("AVRO", {"type": "record", "name": "R", "fields": [], "$ref": foreign}),
        ):
            with http_server({NUMBER_1: answer}) as (url, _):
                _, (_, note) = Schemas(url, LIMITS).lines("t", None, numbered(1, b"1"))
            assert note is not None
        assert asked == []


def test_a_registry_that_keeps_one_page_waiting_keeps_no_other(story: Story) -> None:
    """All decoders shared one lock and the interpreter, so one record stopped every page."""
    came, gate = threading.Event(), threading.Event()

    def waiting(handler: BaseHTTPRequestHandler) -> None:
        came.set()
        gate.wait(WAIT_S)
        answer_json(handler, {"schema": '"string"'})

    answers: Answers = {NUMBER_1: waiting, "/schemas/ids/2": {"schema": '"string"'}}
    create_topic(story.servers, "waits-for-schemas")
    producer = plain_producer(story.servers)
    for number in (1, 2):
        producer.produce("waits-for-schemas", numbered(number, b"\x06fig"), partition=0)
    producer.flush()
    with http_server(answers) as (url, _):
        console = ConsoleProcess("--bootstrap", story.servers, "--registry", url)
        browser = console.browser()
        found: list[Answer] = []
        thread = threading.Thread(
            target=lambda: found.append(browser.get("/topics/waits-for-schemas/0/0"))
        )
        thread.start()
        assert came.wait(WAIT_S)
        assert "fig" in browser.get("/topics/waits-for-schemas/0/1").text
        assert found == []
        gate.set()
        thread.join()
        assert found[0].status == 200
        assert console.stop() == 0
