"""`from_registry` and `to_registry`: columns of framed bytes to structs and back, in a query."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.functions import arrow_udf

from txn.errors import ConfigError, RejectedError, TxnError
from txn.spark.serdes import framing
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    Recent,
    Settings,
    Text,
    UnreadableIds,
    of_id,
    of_subject,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"
"""A bad row ends the query, or is null."""

MODULES: Final = {
    AVRO: "txn.spark.serdes.avro",
    JSON: "txn.spark.serdes.json_schema",
    PROTOBUF: "txn.spark.serdes.protobuf",
}
COLUMNS_MAX: Final = 64
READERS_MAX: Final = 256
"""The most schemas of writers that a worker keeps."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a column; workers find their caches by it."""

    settings: Settings
    text: Text
    message: str | None
    mode: str


_columns: Recent[Plan, Any] = Recent(COLUMNS_MAX)
_readers: Recent[tuple[Plan, int], Callable[[bytes], Any]] = Recent(READERS_MAX)
_unreadable: Recent[Plan, UnreadableIds] = Recent(COLUMNS_MAX)


def from_registry(
    column: "Column | str",
    registry: str | Mapping[str, Any],
    subject: str,
    *,
    version: int | None = None,
    message: str | None = None,
    mode: str = FAILFAST,
) -> "Column":
    """Decode a column of bytes in the framing of a schema registry.

    The schema of the subject, as it is now, gives the type of the column. Each value is read by the
    schema of its id, and resolved to that type. A null stays null.

    Args:
        column: The column of bytes, such as `value`.
        registry: The address of the registry, or the properties of confluent-kafka's
            `SchemaRegistryClient`.
        subject: The subject, such as `orders-value`.
        version: The version of the subject; None: the last one.
        message: The full name of a message of Protobuf; None: the first one of the file.
        mode: FAILFAST: a bad row ends the query. PERMISSIVE: it becomes null.

    Returns:
        The decoded column; a struct for a record, an object or a message.

    Raises:
        ConfigError: the schema has no type in Spark, or an argument does not fit.
        RejectedError: the registry has no such subject or version.
        RetriableError: the registry does not answer.
    """
    plan = _plan(registry, subject, version, message, mode)
    return _function(decode, plan, _column(plan).type)(column)


def to_registry(
    column: "Column | str",
    registry: str | Mapping[str, Any],
    subject: str,
    *,
    version: int | None = None,
    message: str | None = None,
    mode: str = FAILFAST,
) -> "Column":
    """Encode a column by a schema of a registry, in the registry's framing.

    The schema has to be registered. Fields are found by their names. A null stays null.

    Args:
        column: The column; a struct for a record, an object or a message.
        registry: As in `from_registry`.
        subject: The subject whose schema is used.
        version: The version of the subject; None: the last one.
        message: The full name of a message of Protobuf; None: the first one of the file.
        mode: FAILFAST: a row that does not fit the schema ends the query. PERMISSIVE: it is null.

    Returns:
        A column of bytes.

    Raises:
        ConfigError, RejectedError, RetriableError: as `from_registry`.
    """
    plan = _plan(registry, subject, version, message, mode)
    _column(plan)  # it refuses a schema without a type in Spark
    return _function(encode, plan, t.BinaryType())(column)


def _function(
    work: "Callable[[Plan, Any], Any]", plan: Plan, type: t.DataType
) -> "Callable[[Column | str], Column]":
    def serdes(values: pa.Array) -> pa.Array:  # Spark reads the kind of function off its types
        return work(plan, values)

    function: Any = arrow_udf  # its overloads have some types of columns alone
    made: Callable[[Column | str], Column] = function(serdes, returnType=type)
    return made


def _plan(
    registry: str | Mapping[str, Any],
    subject: str,
    version: int | None,
    message: str | None,
    mode: str,
) -> Plan:
    if mode.upper() not in (FAILFAST, PERMISSIVE):
        raise ConfigError(f"mode is {FAILFAST} or {PERMISSIVE}, not {mode!r}")
    settings = settings_of(registry)
    text = of_subject(settings, subject, version)
    if text.type not in MODULES:
        raise ConfigError(f"subject {subject!r} has a schema of type {text.type}")
    return Plan(settings, text, message, mode.upper())


# ---------------------------------------------------------------- on the workers


def decode(plan: Plan, values: Any) -> Any:
    """Decode an Arrow array of bytes."""
    column = _column(plan)
    unreadable = _unreadable.get_or_make(plan, UnreadableIds)

    def read(framed: bytes) -> Any:
        id, content = framing.unframed(framed)
        unreadable.check(id)
        try:
            reader = _readers.get_or_make((plan, id), lambda: _reader(plan, column, id))
        except BadRowError as error:
            unreadable.note(id, str(error))
            raise
        return reader(content)

    return pa.array(_each(plan, values, read), arrow_type(column.type))


def encode(plan: Plan, values: Any) -> Any:
    """Encode an Arrow array of structs."""
    column = _column(plan)
    header = framing.header(plan.text.id or 0)
    return pa.array(_each(plan, values, lambda value: header + column.write(value)), pa.binary())


def _each(plan: Plan, values: Any, convert: Callable[[Any], Any]) -> list[Any]:
    found: list[Any] = []
    for value in values.to_pylist():
        try:
            found.append(None if value is None else convert(value))
        except TxnError:
            raise  # the registry does not answer, which is no fault of the row
        except Exception as error:  # any of the decoders, for any bytes
            if plan.mode == FAILFAST:
                reason = str(error).split("\n")[0][:200] if isinstance(error, BadRowError) else ""
                raise RejectedError(
                    f"a row is no value of schema {plan.text.id}: "
                    f"{reason or type(error).__name__}. mode='PERMISSIVE' makes such rows null"
                ) from None  # the errors of decoders may have contents of the row
            found.append(None)
    return found


def _column(plan: Plan) -> Any:
    make = import_module(MODULES[plan.text.type]).Column
    return _columns.get_or_make(plan, lambda: make(plan.text, plan.message))


def _reader(plan: Plan, column: Any, id: int) -> Callable[[bytes], Any]:
    writer = of_id(plan.settings, id, plan.text.type)
    if writer.type != plan.text.type:
        raise BadRowError(f"schema {id} is {writer.type}, not {plan.text.type}")
    reader: Callable[[bytes], Any] = column.reader(writer)
    return reader


def arrow_type(type: t.DataType) -> Any:
    """The Arrow type of a column's Spark type."""
    match type:
        case t.StructType():
            return pa.struct([(each.name, arrow_type(each.dataType)) for each in type.fields])
        case t.ArrayType():
            return pa.list_(arrow_type(type.elementType))
        case t.MapType():
            return pa.map_(arrow_type(type.keyType), arrow_type(type.valueType))
        case t.DecimalType():
            return pa.decimal128(type.precision, type.scale)
        case t.TimestampType():
            return pa.timestamp("us", tz="UTC")
        case t.TimestampNTZType():
            return pa.timestamp("us")
    return _ARROW[type.typeName()]


_ARROW: Final = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
