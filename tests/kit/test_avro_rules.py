"""Schema resolution of Avro, as a table: does a reader's schema read a writer's data?

The cases follow the specification of Avro 1.12, "Schema Resolution", sentence by sentence.
"""

import json
from typing import Any

import pytest

from txn.testing.registry import avro, avro_rules
from txn.testing.registry.errors import SchemaError


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


LIST = record(field("next", ["null", "R"]), field("value", "int"))
LONG_LIST = record(field("next", ["null", "R"]), field("value", "long"))

READABLE = [
    *((kind, kind) for kind in avro.PRIMITIVES),
    *(("long", "int"), ("float", "int"), ("double", "int"), ("float", "long")),
    *(("double", "long"), ("double", "float"), ("string", "bytes"), ("bytes", "string")),
    (array("long"), array("int")),
    (mapping("double"), mapping("float")),
    (enum("A", "B"), enum("B")),
    (enum("A", default="A"), enum("A", "B")),
    (fixed(4), fixed(4)),
    (fixed(4, name="G", aliases=["F"]), fixed(4)),
    (fixed(4, namespace="x"), fixed(4, namespace="y")),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int"))),
    (record(field("a", "int"), field("b", "int", default=1)), record(field("a", "int"))),
    (record(field("b", "int"), field("a", "int")), record(field("a", "int"), field("b", "int"))),
    (record(field("c", "int", aliases=["a"])), record(field("a", "int"))),
    (record(name="S", aliases=["R"]), record()),
    (["int", "string"], "string"),
    (["null", "long"], "int"),
    ("long", ["int", "long"]),
    (["long", "null"], ["null", "int"]),
    (["int", "string", "null"], ["null", "int"]),
    (LONG_LIST, LIST),
    (record(), record(name="R", namespace="x")),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "bytes"),
]
UNREADABLE = [
    *((("int", "long")), ("int", "float"), ("long", "double"), ("float", "double")),
    *(("null", "int"), ("boolean", "int"), ("int", "string"), ("string", "int")),
    (array("int"), array("long")),
    (array("int"), "int"),
    (mapping("int"), mapping("string")),
    (mapping("int"), array("int")),
    (enum("A"), enum("A", "B")),
    (enum("A"), "string"),
    (fixed(4), fixed(8)),
    (fixed(4, name="G"), fixed(4)),
    (fixed(4), "bytes"),
    (record(field("a", "int"), field("b", "int")), record(field("a", "int"))),
    (record(field("a", "int")), record(field("a", "string"))),
    (record(field("c", "int")), record(field("a", "int"))),
    (record(name="S"), record()),
    (["int", "null"], "string"),
    ("int", ["int", "string"]),
    ("int", ["null", "int"]),
    (["int", "null"], ["null", "int", "string"]),
    (LIST, LONG_LIST),
]


def shown(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize(("reader", "writer"), READABLE, ids=shown)
def test_a_reader_reads(reader: Any, writer: Any) -> None:
    found = avro_rules.differences(avro.Schema(shown(reader)), avro.Schema(shown(writer)))
    assert found == []


@pytest.mark.parametrize(("reader", "writer"), UNREADABLE, ids=shown)
def test_a_reader_does_not_read(reader: Any, writer: Any) -> None:
    found = avro_rules.differences(avro.Schema(shown(reader)), avro.Schema(shown(writer)))
    assert found


def test_a_pair_that_depends_on_an_unreadable_one_is_not_taken_for_readable() -> None:
    """A union tries its branches; the first try must not vouch for what it found inside."""

    def tree(value: str) -> dict[str, Any]:
        leaf = record(field("up", ["null", "R"]), name="Leaf")
        return record(field("left", leaf), field("value", value))

    reader = record(field("u", [tree("int"), tree("int")["fields"][0]["type"]]), name="Top")
    reader["fields"][0]["type"] = [tree("int"), "Leaf"]
    writer = record(field("u", [tree("string"), "Leaf"]), name="Top")
    found = avro_rules.differences(avro.Schema(shown(reader)), avro.Schema(shown(writer)))
    assert {each.path for each in found} >= {"/fields/0/type/0", "/fields/0/type/1"}


@pytest.mark.parametrize(
    "schema",
    [
        "nothing",
        "[[]]",
        '["int","int"]',
        '["int",["null"]]',
        '{"type":"record","name":"R"}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"1R","fields":[]}',
        '{"type":"record","name":"int","fields":[]}',
        shown(record(field("a", "int"), field("a", "int"))),
        shown(record(field("a", "int", default="x"))),
        shown(record(field("a", "int", default=None))),
        shown(record(field("a", "int", order="random"))),
        shown(record(field("a", "int", doc=1))),
        shown(record(field("a", "S"))),
        shown(record(field("a", enum("A")), field("b", enum("A")))),
        shown(enum("A", "A")),
        shown(enum("A", default="B")),
        shown(enum("A-")),
        shown(fixed(-1)),
        '{"type":"fixed","name":"F"}',
        '{"type":"array"}',
        '{"type":"map"}',
        '{"type":"array","items":1}',
        "{}",
        "7",
        "[" * 5000,
        '{"type":"array","items":' * 200 + '"int"' + "}" * 200,
    ],
)
def test_a_text_that_breaks_the_specification_is_no_schema(schema: str) -> None:
    with pytest.raises(SchemaError):
        avro.Schema(schema)


def test_a_schema_is_written_as_java_writes_it() -> None:
    text = """{"namespace": "shop", "fields": [
        {"default": null, "type": ["null", {"type": "string"}], "name": "item", "x": 1},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"], "doc": "d"}},
        {"name": "other", "type": "shop.Kind"},
        {"name": "price", "type": {"logicalType": "decimal", "precision": 4, "type": "bytes"}},
        {"name": "far", "type": {"type": "fixed", "name": "other.F", "size": 2}, "order": "ignore"}
    ], "name": "Order", "type": "record", "aliases": ["Old", "z.Old"]}"""
    written = (
        '{"type":"record","name":"Order","namespace":"shop","fields":['
        '{"name":"item","type":["null","string"],"default":null,"x":1},'
        '{"name":"kind","type":{"type":"enum","name":"Kind","doc":"d","symbols":["A"]}},'
        '{"name":"other","type":"Kind"},'
        '{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":4}},'
        '{"name":"far","type":{"type":"fixed","name":"F","namespace":"other","size":2},'
        '"order":"ignore"}],"aliases":["Old","z.Old"]}'
    )
    assert avro.Schema(text).canonical == written
    assert avro.Schema(written).canonical == written


def test_a_schema_uses_the_names_of_its_references() -> None:
    first = shown(record(field("n", "int"), name="a.Inner"))
    text = shown(record(field("i", "a.Inner"), name="b.Outer"))
    schema = avro.Schema(text, [first])
    assert schema.canonical == (
        '{"type":"record","name":"Outer","namespace":"b","fields":[{"name":"i","type":"a.Inner"}]}'
    )
    with pytest.raises(SchemaError, match=r"undefined name: a\.Inner"):
        avro.Schema(text)
