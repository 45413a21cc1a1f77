"""Records by the schemas of a registry, which is a small HTTP server here."""

import base64
import io
import json
from collections.abc import Iterator

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from console.conftest import Story
from console.registry import Answers, http_server, message, numbered, protobuf
from support.clients import create_topic, plain_producer
from support.command_line import run_txn
from support.console import ConsoleProcess
from txn.console.registry.decoding import answered

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "raw", "type": "bytes"}],
}
ITEM = {"title": "Item", "type": "object", "properties": {"item": {"type": "string"}}}
PRICED = {"type": "object", "properties": {"price": {"$ref": "price.json"}}}

SALE = protobuf(
    "shop",
    message("Item", ("name", 1, Field.TYPE_STRING)),
    message(
        "Sale",
        ("item", 1, ".shop.Sale.Line"),
        ("at", 2, ".google.protobuf.Timestamp"),
        ("price", 3, ".money.Price"),
        nested=[message("Line", ("name", 1, Field.TYPE_STRING), ("count", 2, Field.TYPE_INT64))],
    ),
    message("Wrapped", ("any", 1, ".google.protobuf.Any")),
    imports=(
        "google/protobuf/timestamp.proto",
        "google/protobuf/any.proto",
        "money/price.proto",
    ),
    references=({"name": "money/price.proto", "subject": "price", "version": 3},),
)
"""Message index 0 is Item, 1 is Sale, and 1, 0 is Sale.Line."""

PRICE = protobuf("money", message("Price", ("cents", 1, Field.TYPE_INT32)))

ANSWERS: Answers = {
    "/schemas/ids/1": {"schema": json.dumps(ORDER)},
    "/schemas/ids/2": {"schema": json.dumps(ITEM), "schemaType": "JSON"},
    "/schemas/ids/3": SALE,
    "/subjects/price/versions/3": {**PRICE, "subject": "price", "id": 33, "version": 3},
    "/schemas/ids/5": {"schema": '{"type": "array", "items": "int"}'},
    "/schemas/ids/6": {**SALE, "references": []},
    "/schemas/ids/7": {"schema": 'syntax = "proto3"; message A {}', "schemaType": "PROTOBUF"},
    "/schemas/ids/8": {
        "schema": json.dumps(PRICED),
        "schemaType": "JSON",
        "references": [{"name": "price.json", "subject": "price.json", "version": 1}],
    },
    "/subjects/price.json/versions/1": {
        "schema": '{"type": "integer"}',
        "schemaType": "JSON",
        "subject": "price.json",
        "id": 34,
        "version": 1,
    },
    "/schemas/ids/9": {"schema": "something", "schemaType": "XML"},
}

# Fields of Sale: a line (1) with a name and a count, a time (2) and a price (3).
LINE = b"\x0a\x07<b>fig\x3c\x10\x90\x4e"
SOLD = b"\x0a" + bytes([len(LINE)]) + LINE + b"\x12\x02\x08\x3c" + b"\x1a\x03\x08\xac\x02"
OF_SALE, OF_LINE = b"\x02\x02", b"\x04\x02\x00"
"""Message indexes: their length and their numbers, each a zigzag varint."""

AVRO = io.BytesIO()
fastavro.schemaless_writer(AVRO, ORDER, {"item": "<b>fig</b>", "raw": b"\xff"})

LARGE = numbered(2, b'{"item": "fig", "many": [1e999' + b", 1.50" * 5_000 + b"]}")

READ = (
    (numbered(1, AVRO.getvalue()), "AVRO", ('"item": "<b>fig</b>"', '"raw": "ff"')),
    (numbered(5, b"\x90\x4e" + b"\x02" * 5_000 + b"\x00"), "AVRO. These are the first 4,096", ()),
    (numbered(2, b'{"item": "plum"}'), "JSON", ('"item": "plum"',)),
    (LARGE, "JSON. These are the first 4,096 lines", ("1e999", "1.50")),
    (numbered(2, b'{"item": 7}'), "JSON. It does not fit the schema: 7 is not of", ('"item": 7',)),
    (numbered(2, b"{"), "JSON. It is no JSON, and its schema is JSON Schema", ("{",)),
    (numbered(8, b'{"price": "1"}'), "JSON. It does not fit the schema: '1' is not of", ()),
    (numbered(8, b'{"price": 1}'), "JSON", ('"price": 1',)),
    (
        numbered(3, OF_SALE + SOLD),
        "PROTOBUF shop.Sale",
        (
            '"name": "<b>fig<"',
            '"count": "10000"',
            '"at": "1970-01-01T00:01:00Z"',
            '"cents": 300',
        ),
    ),
    (numbered(3, OF_LINE + LINE), "PROTOBUF shop.Sale.Line", ('"count": "10000"',)),
    (numbered(3, b"\x00\x0a\x03fig"), "PROTOBUF shop.Item", ('"name": "fig"',)),
    (numbered(3, b"\x00"), "PROTOBUF shop.Item", ("{}",)),
    (
        numbered(3, b"\x00\x0a\x03fig\x28\x01"),
        "PROTOBUF shop.Item. 2 bytes are of fields that the schema does not have",
        ('"name": "fig"',),
    ),
    (
        numbered(3, b"\x02\x04" + b"\x0a\x09\x0a\x07x/no.No"),
        "PROTOBUF shop.Wrapped. The message has no JSON",
        ("x/no.No",),
    ),
)
"""A value, the note behind the number of its schema, and parts of its lines."""

NOT_READ = (
    (numbered(4, b"of no schema"), "Schema not found"),
    (numbered(1, b"\x7f"), ""),
    (numbered(9, b"<x/>"), "it is XML, and the console decodes AVRO, JSON and PROTOBUF"),
    (numbered(3, b"\x00\x28\x01"), "none of its fields is a field of shop.Item"),
    (numbered(3, b"\x00\xff\xff"), "the bytes are no message shop.Item"),
    (numbered(3, b"\x02\x12"), "it is of message [9], and the schema has no such message"),
    (numbered(3, b"\x02\x01"), "its message index has the number -1"),
    (numbered(3, b"\xff\xff"), "its message index is cut off"),
    (numbered(3, b"\xd0\x0f"), "its message index has 1000 numbers"),
    (numbered(6, b"\x00"), "money/price.proto"),
    (numbered(7, b"\x00"), "does not answer format=serialized by a descriptor"),
)
"""A value that its schema does not read, and the reason."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server(ANSWERS) as (found, _):
        yield found


def found_in(url: str, value: bytes) -> tuple[list[str] | None, str]:
    """The lines and the note of a value."""
    request = {"url": url, "topic": "t", "parts": {"value": base64.b64encode(value).decode()}}
    lines, note = answered(request)["value"]
    assert note is not None
    return lines, note


@pytest.mark.parametrize(("value", "note", "words"), READ)
def test_a_record_is_read_by_its_schema(
    url: str, value: bytes, note: str, words: tuple[str, ...]
) -> None:
    lines, told = found_in(url, value)
    assert lines is not None
    assert told.partition("of the registry, ")[2].startswith(note), told
    if "." not in note.removeprefix("PROTOBUF shop.").removeprefix("Sale."):
        assert told.endswith(note)
    for each in words:
        assert each in "\n".join(lines), each


@pytest.mark.parametrize(("value", "reason"), NOT_READ)
def test_a_record_that_its_schema_does_not_read_has_the_reason(
    url: str, value: bytes, reason: str
) -> None:
    lines, told = found_in(url, value)
    assert lines is None
    assert "does not read it: " in told
    assert reason in told


def test_the_page_of_a_record_shows_key_and_value_by_their_schemas_or_why_not(
    story: Story, url: str
) -> None:
    create_topic(story.servers, "typed")
    producer = plain_producer(story.servers)
    for value in (
        numbered(3, OF_SALE + SOLD),
        numbered(3, b"\x00\xff\xff"),
        b"plain",
        b"plain" * 50_000,
    ):
        producer.produce("typed", value, key=numbered(2, b'"a key"'), partition=0)
    producer.flush()
    console = ConsoleProcess("--bootstrap", story.servers, "--registry", url)
    browser = console.browser()
    for offset, words in enumerate(
        (
            ("&lt;b&gt;fig&lt;", "shop.Sale", "&#39;a key&#39; is not of type"),
            (r"\xff\xff", "the bytes are no message shop.Item", "&#34;a key&#34;"),
            ("plain", "It begins with no number of a schema"),
            ("no number of a schema. These are the first 65,536 of 250,000 bytes",),
        )
    ):
        answer = browser.get(f"/topics/typed/0/{offset}")
        assert answer.status == 200
        for each in words:
            assert each in answer.text, each
    assert console.stop() == 0


def test_a_registry_that_does_not_answer_keeps_no_page_away(story: Story) -> None:
    create_topic(story.servers, "unread")
    producer = plain_producer(story.servers)
    producer.produce("unread", numbered(1, b"\x00"), partition=0)
    producer.flush()
    console = ConsoleProcess("--bootstrap", story.servers, "--registry", "http://127.0.0.1:1")
    answer = console.browser().get("/topics/unread/0/0")
    assert (answer.status, "does not read it" in answer.text) == (200, True)
    assert console.stop() == 0
    assert run_txn("console", "--registry", "nowhere", "--listen", "127.0.0.1:0")[0] == 2
