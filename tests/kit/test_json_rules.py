"""JSON Schema, as a table: does everything that an old schema accepts pass the new one?

Each verdict follows from the words of the specification: a keyword that narrows its instances
is not compatible. A change whose effect is not known is none either.
"""

import json
from typing import Any

import pytest

from txn.testing.registry import json_rules, json_schema
from txn.testing.registry.errors import SchemaError

STRING, NUMBER, INTEGER = ({"type": each} for each in ("string", "number", "integer"))
LIST = {"definitions": {"n": {"properties": {"next": {"$ref": "#/definitions/n"}, "v": INTEGER}}}}
WIDE_LIST = json.loads(json.dumps(LIST).replace("integer", "number"))
HERE = {"$ref": "#/definitions/n"}


def closed(**more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": more}


def opened(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": more}


COMPATIBLE = [
    (STRING, STRING),
    (STRING, {}),
    (STRING, True),
    (False, STRING),
    (INTEGER, NUMBER),
    (STRING, {"title": "a", "description": "b", "$id": "c", **STRING, "default": "d"}),
    ({**STRING, "maxLength": 3}, {**STRING, "maxLength": 4}),
    ({**STRING, "minLength": 3}, {**STRING, "minLength": 2}),
    ({**STRING, "pattern": "a"}, STRING),
    ({**NUMBER, "maximum": 3}, {**NUMBER, "maximum": 3.5}),
    ({**NUMBER, "exclusiveMinimum": 3}, {**NUMBER, "exclusiveMinimum": 2}),
    ({**NUMBER, "multipleOf": 0.6}, {**NUMBER, "multipleOf": 0.2}),
    ({"enum": [1, 2]}, {"enum": [2, 1, 3]}),
    ({"const": {"a": 1}}, {"const": {"a": 1}}),
    ({**STRING, "enum": ["a"]}, STRING),
    ({"not": NUMBER}, {"not": INTEGER}),
    (STRING, {"type": ["string", "null"]}),
    (STRING, {"oneOf": [NUMBER, STRING]}),
    ({"allOf": [STRING, {"minLength": 2}]}, STRING),
    ({"anyOf": [INTEGER, STRING]}, {"anyOf": [STRING, NUMBER, {"type": "null"}]}),
    ({"oneOf": [STRING]}, {"allOf": [STRING]}),
    (opened(a=STRING), opened()),
    (opened(), opened(a={})),
    (closed(), closed(a=STRING)),
    (closed(a=STRING), opened(a=STRING)),
    ({**opened(a=STRING), "required": ["a"]}, opened(a=STRING)),
    (opened(a=STRING), {**opened(a={**STRING, "default": "x"}), "required": ["a"]}),
    (closed(), {**closed(a={**STRING, "default": ""}), "required": ["a"]}),
    ({**opened(), "additionalProperties": STRING}, opened()),
    ({**opened(), "additionalProperties": INTEGER}, {**opened(a=NUMBER)}),
    ({**opened(), "dependencies": {"a": ["b", "c"]}}, {**opened(), "dependencies": {"a": ["b"]}}),
    ({**opened(), "dependentRequired": {"a": ["b"]}}, opened()),
    ({**opened(), "maxProperties": 2}, {**opened(), "maxProperties": 3}),
    ({**closed(), "patternProperties": {"^a": STRING}}, opened()),
    (closed(ab=INTEGER), {**closed(), "patternProperties": {"^a": NUMBER}}),
    ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}),
    ({"type": "array", "items": INTEGER}, {"type": "array"}),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}),
    ({"items": [STRING], "additionalItems": False}, {"items": [STRING, STRING]}),
    ({"prefixItems": [STRING], "items": False}, {"prefixItems": [STRING, STRING]}),
    ({"if": STRING, "then": {"maxLength": 2}}, {"if": STRING, "then": {"maxLength": 2}}),
    ({**LIST, **HERE}, {**WIDE_LIST, **HERE}),
    ({**LIST, "items": HERE}, {**LIST, "items": HERE}),
]
NOT_COMPATIBLE = [
    (STRING, NUMBER),
    ({}, STRING),
    (True, STRING),
    (STRING, False),
    (NUMBER, INTEGER),
    ({**STRING, "maxLength": 4}, {**STRING, "maxLength": 3}),
    (STRING, {**STRING, "minLength": 1}),
    (STRING, {**STRING, "pattern": "a"}),
    ({**STRING, "pattern": "b"}, {**STRING, "pattern": "a"}),
    ({**NUMBER, "minimum": 3}, {**NUMBER, "minimum": 4}),
    (NUMBER, {**NUMBER, "exclusiveMaximum": 4}),
    ({**NUMBER, "maximum": 3}, {**NUMBER, "maximum": 3, "exclusiveMaximum": True}),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}),
    (NUMBER, {**NUMBER, "multipleOf": 3}),
    ({"enum": [1, 2]}, {"enum": [2]}),
    ({"enum": [1]}, {"enum": [True]}),
    ({"const": 1}, {"const": 2}),
    ({"not": INTEGER}, {"not": NUMBER}),
    ({"type": ["string", "null"]}, STRING),
    ({"oneOf": [NUMBER, STRING]}, {"oneOf": [STRING]}),
    (STRING, {"allOf": [STRING, {"minLength": 2}]}),
    ({"anyOf": [NUMBER, STRING]}, {"anyOf": [{"type": "null"}, {"type": "boolean"}]}),
    ({"anyOf": [STRING, NUMBER]}, {"oneOf": [STRING, NUMBER]}),
    (closed(a=STRING), closed()),
    (opened(), opened(a=STRING)),
    (opened(), {**opened(a={}), "required": ["a"]}),
    (opened(a=STRING), {**opened(a=STRING), "required": ["a"]}),
    (opened(), {**opened(), "required": ["a"]}),
    (closed(), {**closed(a=STRING), "required": ["a"]}),
    (opened(a=STRING), closed(a=STRING)),
    (opened(), {**opened(), "additionalProperties": STRING}),
    ({**opened(), "additionalProperties": STRING}, {**opened(a=NUMBER)}),
    (opened(), {**opened(), "dependencies": {"a": ["b"]}}),
    ({**opened(), "dependencies": {"a": ["b"]}}, {**opened(), "dependencies": {"a": ["c"]}}),
    (opened(), {**opened(), "dependencies": {"a": STRING}}),
    (opened(), {**opened(), "dependentSchemas": {"a": STRING}}),
    (opened(), {**opened(), "unevaluatedProperties": False}),
    (opened(), {**opened(), "propertyNames": {"maxLength": 2}}),
    (opened(), {**opened(), "patternProperties": {"^a": STRING}}),
    (closed(ab=STRING), {**closed(), "patternProperties": {"^a": NUMBER}}),
    ({"type": "array"}, {"type": "array", "items": INTEGER}),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}),
    ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2}),
    ({"type": "array"}, {"type": "array", "contains": STRING}),
    ({"items": [STRING]}, {"items": [STRING, STRING]}),
    ({"prefixItems": [STRING, STRING]}, {"prefixItems": [STRING], "items": False}),
    ({"prefixItems": [STRING]}, {"prefixItems": [STRING], "unevaluatedItems": False}),
    ({"if": STRING}, {"if": STRING, "then": {"maxLength": 2}}),
    ({**WIDE_LIST, **HERE}, {**LIST, **HERE}),
]


def shown(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize(("old", "new"), COMPATIBLE, ids=shown)
def test_a_schema_accepts_all_of_the_old_one(old: Any, new: Any) -> None:
    schemas = [json_schema.Schema(shown(each)) for each in (new, old)]
    assert json_rules.differences(*schemas) == []


@pytest.mark.parametrize(("old", "new"), NOT_COMPATIBLE, ids=shown)
def test_a_schema_does_not_accept_all_of_the_old_one(old: Any, new: Any) -> None:
    schemas = [json_schema.Schema(shown(each)) for each in (new, old)]
    assert json_rules.differences(*schemas)


@pytest.mark.parametrize(
    "schema",
    [
        *("", "7", "[]", "nothing", '{"type":"text"}', '{"type":["string","string"]}'),
        *('{"properties":[]}', '{"properties":{"a":1}}', '{"required":"a"}', '{"enum":1}'),
        *('{"allOf":{}}', '{"items":7}', '{"minLength":-1}', '{"maximum":"a"}'),
        *('{"multipleOf":0}', '{"pattern":1}', '{"$ref":"#/a"}', '{"$ref":"other.json"}'),
        *('{"$ref":"#"}', '{"$ref":1}', '{"$dynamicRef":"#a"}', '{"maximum":1e999}'),
        *("[" * 5000, '{"not":' * 200 + "{}" + "}" * 200, '{"const":NaN}'),
    ],
)
def test_a_text_that_breaks_the_specification_is_no_schema(schema: str) -> None:
    with pytest.raises(SchemaError):
        json_schema.Schema(schema)


def test_a_reference_is_found_by_its_name_its_id_and_its_anchor() -> None:
    inner = shown({"$id": "http://x/inner.json", "definitions": {"a": {"$anchor": "b", **STRING}}})
    for ref in ("inner", "inner#/definitions/a", "http://x/inner.json#b", "inner#b"):
        json_schema.Schema(shown({"$ref": ref}), [("inner", inner)])
    joined = shown({"$id": "http://x/outer.json", "items": {"$ref": "inner.json"}})
    json_schema.Schema(joined, [("http://x/inner.json", inner)])
    changed = inner.replace("string", "number")
    old, new = (
        json_schema.Schema('{"items":{"$ref":"inner#b"}}', [("inner", each)])
        for each in (inner, changed)
    )
    assert [each.kind for each in json_rules.differences(new, old)] == ["TYPE_CHANGED"]


def test_a_schema_is_written_without_white_space() -> None:
    schema = json_schema.Schema('{ "type": "string",\n "title": "ä" }')
    assert schema.canonical == '{"type":"string","title":"ä"}'
    assert schema.normalized == '{"title":"ä","type":"string"}'
