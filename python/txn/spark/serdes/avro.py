"""Avro by fastavro: a writer's bytes, read by the schema of the column.

Types are those of Spark's `from_avro`: a union of null and a type is that type, and a union of int
and long is a long. Times of day are numbers. Other unions are refused.
"""

import datetime
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from pyspark.sql import types as t

from txn.errors import ConfigError
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.registry import Text

Convert = Callable[[Any], Any]

PRIMITIVES: Final[dict[str, t.DataType]] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
LOGICAL: Final[dict[tuple[str, str], t.DataType]] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
    ("string", "uuid"): t.StringType(),
}
WIDER: Final = ((("int", "long"), "long"), (("float", "double"), "double"))
PRECISION_MAX: Final = 38


def same(value: Any) -> Any:
    """The value itself."""
    return value


def parsed(text: Text) -> Any:
    """The schema as fastavro reads it, its references inside."""
    return _parsed(text, {})


def bounded(text: Text) -> Any:
    """The schema of a writer as fastavro reads it, if its values are no larger than their bytes.

    fastavro believes the length of an array: with items that have no bytes, ten bytes of a record
    fill the memory. A schema that contains itself nests as deep as a record says, and the stack of
    the process overflows.

    Raises:
        BadRowError: the schema is one of these two.
    """
    names: dict[str, Any] = {}
    schema = _parsed(text, names)
    _Sizes(names).least(schema, ())
    return schema


def _parsed(text: Text, names: dict[str, Any]) -> Any:
    import fastavro

    for _, each in text.references:
        fastavro.parse_schema(json.loads(each), named_schemas=names)
    return fastavro.parse_schema(json.loads(text.text), named_schemas=names, expand=False)


class _Sizes:
    """The least number of bytes of values, by the named types of a schema."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._least: dict[str, int] = {}

    def least(self, schema: Any, around: tuple[str, ...]) -> int:
        """The least bytes of a value, none or some; `around` are the records that contain it."""
        if isinstance(schema, list):
            for each in schema:
                self.least(each, around)
            return 1  # the number of the branch
        if isinstance(schema, str):
            return self._of_name(schema, around)
        kind = schema["type"]
        if kind in ("record", "error"):
            within = (*around, schema["name"])
            return max((self.least(each["type"], within) for each in schema["fields"]), default=0)
        if kind == "array" and self.least(schema["items"], around) == 0:
            raise BadRowError("its schema has an array whose items have no bytes")
        if kind == "map":
            self.least(schema["values"], around)
        return min(schema["size"], 1) if kind == "fixed" else self._of_name(kind, around)

    def _of_name(self, name: Any, around: tuple[str, ...]) -> int:
        if isinstance(name, dict | list):  # a type in place of its name
            return self.least(name, around)
        if name in around:
            raise BadRowError(f"its schema contains itself: {name}")
        if name not in self._names:
            return 0 if name == "null" else 1
        if name not in self._least:
            self._least[name] = self.least(self._names[name], around)
        return self._least[name]


class Column:
    """The schema of a column.

    Args:
        text: The schema.
        message: None; a schema of Avro has one type.

    Attributes:
        type: Its Spark type.

    Raises:
        ConfigError: the schema contains itself, or has a decimal that Spark does not have.
    """

    def __init__(self, text: Text, message: str | None) -> None:
        if message is not None:
            raise ConfigError("only a schema of Protobuf has several messages")
        self._schema = parsed(text)
        self._names: dict[str, Any] = {}
        for _, each in text.references:
            self._note(json.loads(each), "")
        self.type, self._to_spark, self._to_avro = self._of(json.loads(text.text), "", ())

    def reader(self, writer: Text) -> Callable[[bytes], Any]:
        """Read values of a writer's schema. Raises BadRowError: it bounds them by no bytes."""
        import fastavro

        of_writer = bounded(writer)

        def read(content: bytes) -> Any:
            source = io.BytesIO(content)
            value = fastavro.schemaless_reader(source, of_writer, self._schema)
            if source.read(1):
                raise BadRowError("bytes are left behind the value")
            return self._to_spark(value)

        return read

    def write(self, value: Any) -> bytes:
        """The bytes of a value."""
        import fastavro

        target = io.BytesIO()
        fastavro.schemaless_writer(target, self._schema, self._to_avro(value), strict=False)
        return target.getvalue()

    # ------------------------------------------------------------ types

    def _note(self, schema: Any, namespace: str) -> None:
        """Note the named types of a reference."""
        if isinstance(schema, list):
            for each in schema:
                self._note(each, namespace)
        elif isinstance(schema, dict):
            space = namespace
            if schema.get("name") and schema.get("type") in ("record", "enum", "fixed"):
                name, space = _full_name(schema, namespace)
                self._names[name] = (schema, space)
            for each in [schema.get("items"), schema.get("values"), schema.get("type")]:
                if isinstance(each, dict | list):
                    self._note(each, space)
            for field in schema.get("fields") or ():
                self._note(field["type"], space)

    def _of(self, schema: Any, namespace: str, around: tuple[str, ...]) -> Any:
        if isinstance(schema, list):
            return self._union(schema, namespace, around)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema], same, same
            name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            name = name if name in self._names else schema
            if name in around:
                raise ConfigError(f"type {name} contains itself, and Spark has no such types")
            found, _ = self._names[name]
            return self._of(found, self._names[name][1], around)
        kind = schema["type"]
        if kind in ("record", "enum", "fixed"):
            name, namespace = _full_name(schema, namespace)
            if name in around:
                raise ConfigError(f"type {name} contains itself, and Spark has no such types")
            self._names[name] = (schema, namespace)
            around = (*around, name)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema)
        if (kind, logical) in LOGICAL:
            to_spark = str if logical == "uuid" else same
            to_avro = _to_uuid if logical == "uuid" else _to_local if "local" in logical else same
            return LOGICAL[kind, logical], _or_none(to_spark), _or_none(to_avro)
        if logical in ("time-millis", "time-micros"):
            return PRIMITIVES[kind], *_time(1_000 if logical == "time-millis" else 1)
        match kind:
            case "record":
                return self._record(schema, namespace, around)
            case "enum":
                return t.StringType(), same, same
            case "fixed":
                return t.BinaryType(), same, same
            case "array":
                item, to_spark, to_avro = self._of(schema["items"], namespace, around)
                return t.ArrayType(item), _each(to_spark), _each(to_avro)
            case "map":
                item, to_spark, to_avro = self._of(schema["values"], namespace, around)
                return (
                    t.MapType(t.StringType(), item),
                    _or_none(lambda found: [(key, to_spark(at)) for key, at in found.items()]),
                    _or_none(lambda found: {key: to_avro(at) for key, at in dict(found).items()}),
                )
        return self._of(kind, namespace, around)

    def _record(self, schema: Any, namespace: str, around: tuple[str, ...]) -> Any:
        parts = [
            (each["name"], *self._of(each["type"], namespace, around)) for each in schema["fields"]
        ]
        return (
            t.StructType([t.StructField(name, type) for name, type, _, _ in parts]),
            _or_none(lambda found: {name: to(found[name]) for name, _, to, _ in parts}),
            _or_none(lambda found: {name: to(found.get(name)) for name, _, _, to in parts}),
        )

    def _union(self, schema: list[Any], namespace: str, around: tuple[str, ...]) -> Any:
        branches = [each for each in schema if each != "null"]
        if not branches:
            return PRIMITIVES["null"], same, same
        if len(branches) == 1:
            return self._of(branches[0], namespace, around)
        for pair, wide in WIDER:
            if all(isinstance(each, str) for each in branches) and set(branches) == set(pair):
                return PRIMITIVES[wide], same, same
        names = [
            each if isinstance(each, str) else each.get("name") or each["type"] for each in branches
        ]
        raise ConfigError(f"a union of {', '.join(map(str, names))} has no type of Spark here")


def _full_name(schema: Any, namespace: str) -> tuple[str, str]:
    name = schema["name"]
    if "." not in name and schema.get("namespace", namespace):
        name = f"{schema.get('namespace', namespace)}.{name}"
    return name, name.rpartition(".")[0]


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _each(convert: Convert) -> Convert:
    return _or_none(lambda found: [convert(at) for at in found])


def _decimal(schema: Any) -> Any:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > PRECISION_MAX:
        raise ConfigError(f"a decimal has {precision} digits, and Spark's have {PRECISION_MAX}")
    return t.DecimalType(precision, scale), same, same


def _to_uuid(value: str) -> UUID:
    return UUID(value)


def _to_local(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=None)


def _time(micros: int) -> tuple[Convert, Convert]:
    """Times of day as numbers of `micros` microseconds each."""

    def to_spark(value: datetime.time) -> int:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // micros

    return _or_none(to_spark), same
