"""JSON Schema: the values of an object's properties as the fields of a struct.

A schema that says nothing of its type, or several, becomes a string with the JSON text. Values have
to fit the types of the column. Other keywords, such as `pattern`, are not checked.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import types as t

from txn.errors import ConfigError
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.registry import Text

Convert = Callable[[Any], Any]

DEPTH_MAX: Final = 100
LONG: Final = range(-(1 << 63), 1 << 63)


class Column:
    """The schema of a column.

    Args:
        text: The schema.
        message: None; a JSON Schema has one type.

    Attributes:
        type: Its Spark type.

    Raises:
        ConfigError: the schema contains itself, or a `$ref` leads nowhere.
    """

    def __init__(self, text: Text, message: str | None) -> None:
        if message is not None:
            raise ConfigError("only a schema of Protobuf has several messages")
        self._documents = {name: json.loads(each) for name, each in text.references}
        root = json.loads(text.text)
        self.type, self._to_spark, self._to_json = self._of(root, root, ())

    def reader(self, writer: Text) -> Callable[[bytes], Any]:
        """Read values; the text of a value does not depend on its writer's schema."""

        def read(content: bytes) -> Any:
            return self._to_spark(json.loads(content))

        return read

    def write(self, value: Any) -> bytes:
        """The bytes of a value; fields that are null are left out."""
        return json.dumps(self._to_json(value), separators=(",", ":")).encode()

    def _of(self, schema: Any, root: Any, around: tuple[int, ...]) -> Any:
        if id(schema) in around or len(around) > DEPTH_MAX:
            raise ConfigError("the JSON Schema contains itself, and Spark has no such types")
        if not isinstance(schema, dict):
            return _any()
        around = (*around, id(schema))
        if "$ref" in schema:
            return self._of(*self._target(schema["$ref"], root), around)
        for word in ("oneOf", "anyOf", "allOf"):
            if word in schema and "type" not in schema:
                left = [each for each in schema[word] if each != {"type": "null"}]
                return self._of(left[0], root, around) if len(left) == 1 else _any()
        kinds = schema.get("type", "object" if "properties" in schema else [])
        left = [each for each in ([kinds] if isinstance(kinds, str) else kinds) if each != "null"]
        if set(left) == {"integer", "number"}:
            left = ["number"]
        if len(left) != 1:
            return _any()
        match left[0]:
            case "string":
                return _plain(t.StringType(), str)
            case "boolean":
                return _plain(t.BooleanType(), bool)
            case "integer":
                return t.LongType(), _integer, lambda value: value
            case "number":
                return t.DoubleType(), _number, lambda value: value
            case "array":
                item, to_spark, to_json = self._of(schema.get("items"), root, around)
                return t.ArrayType(item), _each(to_spark), _each(to_json)
            case "object":
                return self._object(schema, root, around)
        return _any()

    def _object(self, schema: Any, root: Any, around: tuple[int, ...]) -> Any:
        properties = schema.get("properties")
        if properties:
            parts = [(name, *self._of(each, root, around)) for name, each in properties.items()]
            return t.StructType(
                [t.StructField(name, type) for name, type, _, _ in parts]
            ), *_struct(
                {name: to_spark for name, _, to_spark, _ in parts},
                {name: to_json for name, _, _, to_json in parts},
                frozenset(schema.get("required", ())),
            )
        if not isinstance(schema.get("additionalProperties"), dict):
            return _any()
        item, to_spark, to_json = self._of(schema["additionalProperties"], root, around)

        def read(value: Any) -> Any:
            found = _typed(value, dict)
            return None if found is None else [(key, to_spark(at)) for key, at in found.items()]

        def write(value: Any) -> Any:
            return None if value is None else {key: to_json(at) for key, at in dict(value).items()}

        return t.MapType(t.StringType(), item), read, write

    def _target(self, ref: str, root: Any) -> tuple[Any, Any]:
        name, _, pointer = ref.partition("#")
        known = next(
            (each for key, each in self._documents.items() if name in (key, each.get("$id"))), None
        )
        document = root if not name else known
        found = document
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise ConfigError(f"the JSON Schema has a $ref that leads nowhere: {ref}")
        return found, document


def _any() -> tuple[t.DataType, Convert, Convert]:
    """A value of any type, as its JSON text."""

    def read(value: Any) -> Any:
        return None if value is None else json.dumps(value, ensure_ascii=False)

    def write(value: Any) -> Any:
        return None if value is None else json.loads(value)

    return t.StringType(), read, write


def _plain(type: t.DataType, kind: type) -> tuple[t.DataType, Convert, Convert]:
    return type, lambda value: _typed(value, kind), lambda value: value


def _typed(value: Any, kind: type) -> Any:
    if value is not None and not isinstance(value, kind):
        raise BadRowError(f"a {type(value).__name__} stands where the schema has a {kind.__name__}")
    return value


def _integer(value: Any) -> Any:
    if value is None:
        return None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    if not is_whole or int(value) not in LONG:
        raise BadRowError("a value is no integer of 64 bits")
    return int(value)


def _number(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRowError(f"a {type(value).__name__} stands where the schema has a number")
    return float(value)


def _each(convert: Convert) -> Convert:
    def each(value: Any) -> Any:
        found = _typed(value, list)
        return None if found is None else [convert(at) for at in found]

    return each


def _struct(
    to_spark: Mapping[str, Convert], to_json: Mapping[str, Convert], required: frozenset[str]
) -> tuple[Convert, Convert]:
    def read(value: Any) -> Any:
        found = _typed(value, dict)
        if found is None:
            return None
        if not required <= found.keys():
            raise BadRowError(f"required: {', '.join(sorted(required - found.keys()))}")
        return {name: convert(found.get(name)) for name, convert in to_spark.items()}

    def write(value: Any) -> Any:
        if value is None:
            return None
        written = {name: to_json[name](at) for name, at in value.items() if name in to_json}
        return {name: at for name, at in written.items() if at is not None or name in required}

    return read, write
