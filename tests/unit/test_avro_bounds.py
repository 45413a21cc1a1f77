"""Schemas of Avro with which a few bytes of a stranger would end a Spark worker.

fastavro 1.12 fills the memory for ten bytes of an array whose items have none, and overflows the
stack for 10,000 bytes of a record that contains itself.
"""

import json
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from txn.spark.serdes.avro import Column, bounded
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.registry import Text

EMPTY = {"type": "record", "name": "Empty", "fields": []}
LINKED = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def text(schema: Any, *references: Any) -> Text:
    used = tuple((each["name"], json.dumps(each)) for each in references)
    return Text(1, "AVRO", json.dumps(schema), used)


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": "Row", "fields": fields}


WITHOUT_BYTES = {
    "null": text({"type": "array", "items": "null"}),
    "a record without fields": text({"type": "array", "items": EMPTY}),
    "a record of nulls": text({"type": "array", "items": record("null", EMPTY)}),
    "a fixed of no bytes": text(
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
    ),
    "a named record": text(record(EMPTY, {"type": "array", "items": "Empty"})),
    "a record of a reference": text({"type": "array", "items": "Empty"}, EMPTY),
    "within a map": text({"type": "map", "values": {"type": "array", "items": "null"}}),
    "within a union": text(["int", {"type": "array", "items": "null"}]),
}


@pytest.mark.parametrize("case", WITHOUT_BYTES)
def test_an_array_of_items_without_bytes_is_refused(case: str) -> None:
    with pytest.raises(BadRowError, match="items have no bytes"):
        bounded(WITHOUT_BYTES[case])


@pytest.mark.parametrize(
    "schema",
    [text(LINKED), text(record("int", LINKED)), text(record("Node"), LINKED)],
    ids=["alone", "within a record", "by a reference"],
)
def test_a_schema_that_contains_itself_is_refused(schema: Text) -> None:
    with pytest.raises(BadRowError, match="contains itself: Node"):
        bounded(schema)


def test_a_column_reads_no_values_of_such_a_writer() -> None:
    column = Column(text(record("int")), None)
    with pytest.raises(BadRowError, match="contains itself"):
        column.reader(text(record("int", LINKED)))


def test_sound_schemas_are_read() -> None:
    """One record stands in two places, which is no circle."""
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    arrays = [{"type": "array", "items": each} for each in ("int", ["null"], "Point", "string")]
    schema = text(
        record(point, "Point", "null", EMPTY, {"type": "map", "values": "Empty"}, *arrays)
    )
    assert bounded(schema)["name"].endswith("Row")
    assert Column(text(record("int")), None).reader(text(record("int")))(b"\x06") == {"f0": 3}
