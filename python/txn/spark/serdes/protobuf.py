"""Protobuf: the fields of a message as the fields of a struct.

A field without a value is null if the message can tell, else it has its default. Timestamps of
`google.protobuf` are timestamps. Unsigned numbers have the next wider type. An enum is the name of
its value, or the number of a value without a name.
"""

import datetime
from base64 import b64decode
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as F
from pyspark.sql import types as t

from txn.errors import ConfigError
from txn.spark.serdes.errors import BadRowError
from txn.spark.serdes.framing import read_indexes, written_indexes
from txn.spark.serdes.registry import Text

Convert = Callable[[Any], Any]

FILE: Final = "default"
TIMESTAMP: Final = "google.protobuf.Timestamp"
UNSIGNED_64: Final = t.DecimalType(20, 0)
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

SCALARS: Final = {
    F.CPPTYPE_INT32: t.IntegerType(),
    F.CPPTYPE_INT64: t.LongType(),
    F.CPPTYPE_UINT32: t.LongType(),
    F.CPPTYPE_UINT64: UNSIGNED_64,
    F.CPPTYPE_DOUBLE: t.DoubleType(),
    F.CPPTYPE_FLOAT: t.FloatType(),
    F.CPPTYPE_BOOL: t.BooleanType(),
    F.CPPTYPE_ENUM: t.StringType(),
    F.CPPTYPE_STRING: t.StringType(),
}


class Column:
    """The schema of a column.

    Args:
        text: The schema.
        message: The full name of the message; None: the first one of the file.

    Attributes:
        type: Its Spark type.

    Raises:
        ConfigError: there is no such message, or it contains itself.
    """

    def __init__(self, text: Text, message: str | None) -> None:
        file, pool = _file(text)
        if message is None:
            if not file.message_types_by_name:
                raise ConfigError("the Protobuf schema has no message")
            message = _first(file)
        try:
            self._descriptor: Any = pool.FindMessageTypeByName(message)
        except KeyError:
            raise ConfigError(f"the Protobuf schema has no message {message!r}") from None
        self._class = message_factory.GetMessageClass(self._descriptor)
        self._indexes = written_indexes(_place(self._descriptor))
        self.type, self._to_spark, self._fill = _message(self._descriptor, ())

    def reader(self, writer: Text) -> Callable[[bytes], Any]:
        """Read messages of a writer's schema."""
        file, _ = _file(writer)
        wanted = self._descriptor.full_name

        def read(content: bytes) -> Any:
            indexes, rest = read_indexes(content)
            found = _message_at(file, indexes)
            if found != wanted:
                raise BadRowError(f"it is a message {found or indexes}, not {wanted}")
            made = self._class()
            made.ParseFromString(rest)
            return self._to_spark(made)

        return read

    def write(self, value: Any) -> bytes:
        """The bytes of a message, its indexes before them."""
        made = self._class()
        self._fill(made, value)
        return self._indexes + bytes(made.SerializeToString())


def _file(text: Text) -> tuple[Any, Any]:
    """The descriptor of a schema's file, and the pool that has it."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str, made: Any) -> None:
        made.name = name
        for each in made.dependency:
            if each not in added:  # a file that registries know without a reference
                known = descriptor_pb2.FileDescriptorProto()
                _known(each).CopyToProto(known)
                add(each, known)
        pool.Add(made)
        added.add(name)

    for name, each in (*text.references, (FILE, text.text)):
        made = descriptor_pb2.FileDescriptorProto()
        made.ParseFromString(b64decode(each))
        add(name, made)
    return pool.FindFileByName(FILE), pool


def _known(name: str) -> Any:
    path = name.removesuffix(".proto").replace("/", ".")
    prefix = "confluent_kafka.schema_registry." if path.startswith("confluent.") else ""
    if not prefix and not path.startswith(("google.protobuf.", "google.type.")):
        raise ConfigError(f"the Protobuf schema imports {name!r} without a reference")
    return import_module(f"{prefix}{path}_pb2").DESCRIPTOR


def _first(file: Any) -> str:
    copied = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copied)
    return str(file.message_types_by_name[copied.message_type[0].name].full_name)


def _place(descriptor: Any) -> list[int]:
    """The indexes of a message in its file and in the messages around it."""
    around = descriptor.containing_type
    owner = descriptor.file if around is None else around
    copied = (
        descriptor_pb2.FileDescriptorProto() if around is None else descriptor_pb2.DescriptorProto()
    )
    owner.CopyToProto(copied)
    listed = copied.message_type if around is None else copied.nested_type
    names = [each.name for each in listed]
    return [*(_place(around) if around is not None else ()), names.index(descriptor.name)]


def _message_at(file: Any, indexes: Sequence[int]) -> str | None:
    copied = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copied)
    names, listed = [file.package] if file.package else [], copied.message_type
    for index in indexes:
        if not 0 <= index < len(listed):
            return None
        names.append(listed[index].name)
        listed = listed[index].nested_type
    return ".".join(names)


# ---------------------------------------------------------------- types


def _message(descriptor: Any, around: tuple[str, ...]) -> tuple[t.DataType, Convert, Any]:
    """The type of a message, a function to Spark's value, and one that fills a message."""
    if descriptor.full_name in around:
        name = descriptor.full_name
        raise ConfigError(f"message {name} contains itself, and Spark has no such types")
    around = (*around, descriptor.full_name)
    parts = [(field, *_field(field, around)) for field in descriptor.fields]

    def read(message: Any) -> Any:
        return {field.name: get(message) for field, _, get, _ in parts}

    def fill(message: Any, value: Any) -> None:
        for field, _, _, put in parts:
            found = value.get(field.name)
            if found is not None:
                put(message, found)

    return t.StructType([t.StructField(each.name, type) for each, type, _, _ in parts]), read, fill


def _field(field: Any, around: tuple[str, ...]) -> tuple[t.DataType, Convert, Any]:
    name = field.name
    if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
        return _map(field, around)
    type, convert, put_one = _value(field, around)
    if field.is_repeated:

        def put_all(message: Any, values: Any) -> None:
            for value in values:
                if field.message_type is None:
                    getattr(message, name).append(put_one(value))
                else:
                    put_one(getattr(message, name).add(), value)

        return t.ArrayType(type), lambda of: [convert(at) for at in getattr(of, name)], put_all

    def get(message: Any) -> Any:
        if field.has_presence and not message.HasField(name):
            return None
        return convert(getattr(message, name))

    def put(message: Any, value: Any) -> None:
        if field.message_type is None:
            setattr(message, name, put_one(value))
        else:
            getattr(message, name).SetInParent()
            put_one(getattr(message, name), value)

    return type, get, put


def _map(field: Any, around: tuple[str, ...]) -> tuple[t.DataType, Convert, Any]:
    of_key, of_value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
    key_type, key, put_key = _value(of_key, around)
    value_type, convert, put_value = _value(of_value, around)

    def get(message: Any) -> Any:
        found = getattr(message, field.name)
        return [(key(each), convert(found[each])) for each in found]

    def put(message: Any, value: Any) -> None:
        target = getattr(message, field.name)
        for each, at in dict(value).items():
            if of_value.message_type is None:
                target[put_key(each)] = put_value(at)
            else:
                put_value(target[put_key(each)], at)

    return t.MapType(key_type, value_type), get, put


def _value(field: Any, around: tuple[str, ...]) -> tuple[t.DataType, Convert, Any]:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return t.TimestampType(), _to_timestamp, _fill_timestamp
        return _message(field.message_type, around)
    if field.enum_type is not None:
        return t.StringType(), _enum_name(field.enum_type), _enum_number(field.enum_type)
    if field.type == F.TYPE_BYTES:
        return t.BinaryType(), bytes, bytes
    if field.cpp_type == F.CPPTYPE_UINT64:
        return UNSIGNED_64, Decimal, int
    return SCALARS[field.cpp_type], lambda value: value, lambda value: value


def _enum_name(enum: Any) -> Convert:
    names = {number: each.name for number, each in enum.values_by_number.items()}
    return lambda number: names.get(number, str(number))


def _enum_number(enum: Any) -> Convert:
    numbers = {name: each.number for name, each in enum.values_by_name.items()}

    def number(name: str) -> int:
        if name in numbers:
            return int(numbers[name])
        try:
            return int(name)
        except ValueError:
            raise BadRowError(f"enum {enum.full_name} has no such value") from None

    return number


def _to_timestamp(message: Any) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)


def _fill_timestamp(message: Any, value: datetime.datetime) -> None:
    micros = (value - EPOCH) // datetime.timedelta(microseconds=1)
    message.seconds, rest = divmod(micros, 1_000_000)
    message.nanos = rest * 1_000
