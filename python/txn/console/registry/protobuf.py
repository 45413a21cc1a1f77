"""Protobuf by the descriptors of a registry, without classes that a compiler made.

The registry compiles the text of a schema itself: `format=serialized` asks for the descriptor. The
record has an index that names its message among those of the file.

Sources: Confluent's wire format; the protobuf encoding; protobuf's JSON mapping.
"""

import base64
import json
import re
from importlib import import_module
from typing import Any, Final

from google.protobuf import json_format, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

SCHEMAS_MAX: Final = 100
"""The most schemas that one schema may import."""

INDEX_MAX: Final = 64
"""The deepest nesting of the message that an index names."""

VARINT_BYTES: Final = 10

KNOWN_FILES: Final = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")
"""Files that a compiler has: a schema imports them without a reference."""

CONFLUENT_FILES: Final = {
    "confluent/meta.proto": "confluent_kafka.schema_registry.confluent.meta_pb2",
    "confluent/type/decimal.proto": "confluent_kafka.schema_registry.confluent.type.decimal_pb2",
}


def json_of(payload: bytes, number: int, client: Any) -> tuple[str, str, str | None]:
    """The full name of the message, its JSON, and a note about bytes that are not in it.

    Args:
        payload: The bytes behind the number of the schema.
        number: The number of the schema.
        client: It fetches schemas in their serialized form.

    Raises:
        ValueError: the bytes are no such message, or the schema cannot be used.
    """
    indexes, content = index_in(payload)
    pool = DescriptorPool()
    name = f"schema-{number}.proto"
    _add(pool, name, client.get_schema(number, fmt="serialized"), client, {name})
    types = pool.FindFileByName(name).message_types_by_name.values()
    found: Any = None
    for index in indexes:
        if index >= len(types):
            raise ValueError(f"it is of message {indexes}, and the schema has no such message")
        found = list(types)[index]
        types = found.nested_types
    try:
        message = GetMessageClass(found).FromString(content)
    except DecodeError:
        raise ValueError(f"the bytes are no message {found.full_name}") from None
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    lost = message.ByteSize() - known.ByteSize()
    if lost and not known.ByteSize():
        raise ValueError(f"none of its fields is a field of {found.full_name}")
    note = f"{lost:,} bytes are of fields that the schema does not have" if lost else None
    try:
        text = json_format.MessageToJson(
            message,
            indent=None,
            preserving_proto_field_name=True,
            ensure_ascii=False,
            descriptor_pool=pool,
        )
    except (TypeError, ValueError, json_format.Error):  # as an Any of a type that it does not know
        text = json.dumps(text_format.MessageToString(message), ensure_ascii=False)
        note = "The message has no JSON, so it is shown in protobuf's own text form"
    return found.full_name, text, note


def index_in(payload: bytes) -> tuple[list[int], bytes]:
    """The index of the message in its file, and the bytes behind it. Raises ValueError."""
    count, place = _varint(payload, 0)
    if not 0 <= count <= INDEX_MAX:
        raise ValueError(f"its message index has {count} numbers")
    indexes = []
    for _ in range(count):
        index, place = _varint(payload, place)
        if index < 0:
            raise ValueError(f"its message index has the number {index}")
        indexes.append(index)
    return indexes or [0], payload[place:]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A signed number, and the place behind it."""
    number = 0
    for shift, byte in enumerate(content[place : place + VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place + shift + 1
    raise ValueError("its message index is cut off")


def _add(pool: DescriptorPool, name: str, schema: Any, client: Any, names: set[str]) -> None:
    """Add the file of a schema to a pool, behind the files that it imports."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.schema_str, validate=True))
    except (DecodeError, ValueError):
        raise ValueError("the registry does not answer format=serialized by a descriptor") from None
    file.name = name
    for each in schema.references or ():
        if each.name in names:
            continue
        names.add(each.name)
        if len(names) > SCHEMAS_MAX:
            raise ValueError(f"it imports more than {SCHEMAS_MAX} schemas")
        found = client.get_version(each.subject, each.version, True, "serialized").schema
        _add(pool, each.name, found, client, names)
    for each in file.dependency:
        if each not in names:
            _add_known(pool, each, names)
    pool.Add(file)


def _add_known(pool: DescriptorPool, name: str, names: set[str]) -> None:
    module = CONFLUENT_FILES.get(name)
    if KNOWN_FILES.fullmatch(name):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module is None or name in names:
        return  # the pool names a file that is missing
    names.add(name)
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ModuleNotFoundError:
        return
    for each in descriptor.dependencies:
        _add_known(pool, each.name, names)
    pool.AddSerializedFile(descriptor.serialized_pb)
