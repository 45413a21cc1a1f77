"""Protobuf schemas: a `.proto` text, or a FileDescriptorProto in base64.

Python's client sends the second. Either is stored as text, written anew from the descriptor. A
schema with parts that this writer does not know is stored as it was given. Such parts are services
and options of one's own.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from txn.testing.registry.errors import SchemaError
from txn.testing.registry.proto_text import ENUM_MAX, LABELS, NUMBER_MAX, SCALARS, parse

KNOWN_FILE: Final = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
FILE: Final = "default"
SERIALIZED: Final = "serialized"
INDENT: Final = "  "

_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES: Final = {number: name for name, number in LABELS.items()}


class Schema:
    """A Protobuf schema.

    Args:
        text: The schema.
        references: The name and text of each file that it imports; each may import those before.

    Attributes:
        file: Its FileDescriptor.

    Raises:
        SchemaError: one of them is no schema, or an import is missing.
    """

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = ()) -> None:
        pool = descriptor_pool.DescriptorPool()
        self._names: set[str] = set()
        for name, each in references:
            self._add(pool, name, _read(each)[0])
        made, is_whole = _read(text)
        self.file: Any = self._add(pool, FILE, made)
        self._proto = descriptor_pb2.FileDescriptorProto()
        self.file.CopyToProto(self._proto)
        self._proto.ClearField("name")
        self._text = text.strip()
        self._is_plain = is_whole and _is_plain(self._proto)

    @property
    def canonical(self) -> str:
        """The text."""
        return _Writer().file(self._proto) if self._is_plain else self._text

    def formatted(self, name: str) -> str | None:
        """The descriptor in base64 for "serialized"; None for another format."""
        if name != SERIALIZED:
            return None
        whole = descriptor_pb2.FileDescriptorProto()
        whole.CopyFrom(self._proto)
        whole.name = FILE
        return b64encode(whole.SerializeToString(deterministic=True)).decode()

    def _add(self, pool: Any, name: str, made: Any) -> Any:
        made.name = name
        for each in made.dependency:
            if each not in self._names:
                self._add_known(pool, each)
        try:
            pool.Add(made)
            self._names.add(name)
            return pool.FindFileByName(name)
        except (TypeError, KeyError, ValueError) as error:
            raise SchemaError(str(error).strip("'\"") or "no file") from None

    def _add_known(self, pool: Any, name: str) -> None:
        found = _known_file(name)
        if found is None:
            raise SchemaError(f"import {name!r} is no reference")
        made = descriptor_pb2.FileDescriptorProto()
        found.CopyToProto(made)
        self._add(pool, name, made)


def _read(text: str) -> tuple[Any, bool]:
    """The descriptor of a text, and whether it has everything that the text has."""
    compact = "".join(text.split())
    if re.fullmatch(r"[A-Za-z0-9+/]+=*", compact) and " " not in text.strip():
        made = descriptor_pb2.FileDescriptorProto()
        try:
            made.ParseFromString(b64decode(compact, validate=True))
        except (ValueError, DecodeError):
            raise SchemaError("it is no .proto file and no descriptor in base64") from None
        if made.syntax not in ("", "proto2", "proto3"):
            raise SchemaError(f"syntax {made.syntax[:40]!r} is not read here")
        return made, True
    parsed = parse(text)
    return parsed.file, parsed.is_whole


def _known_file(name: str) -> Any:
    """A file that the original knows without a reference; None for others."""
    if KNOWN_FILE.fullmatch(name):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    elif name in ("confluent/meta.proto", "confluent/type/decimal.proto"):
        module = f"confluent_kafka.schema_registry.{name.removesuffix('.proto').replace('/', '.')}"
        module += "_pb2"
    else:
        return None
    try:
        return import_module(module).DESCRIPTOR
    except ModuleNotFoundError:
        return None


def _is_plain(file: Any) -> bool:
    """Say whether the writer writes everything that a descriptor has."""
    if file.service or file.extension or file.options.uninterpreted_option:
        return False
    return _has_known_options(file) and all(_is_plain_message(each) for each in file.message_type)


def _is_plain_message(message: Any) -> bool:
    if message.extension or message.extension_range:
        return False
    if any(field.type == _Field.TYPE_GROUP for field in message.field):
        return False
    return all(_is_plain_message(each) for each in message.nested_type)


def _has_known_options(message: Any) -> bool:
    """Say whether nothing below is an extension or a field of a later version."""
    copied = type(message)()
    copied.CopyFrom(message)
    copied.DiscardUnknownFields()
    if copied.ByteSize() != message.ByteSize():
        return False
    return all(
        not field.is_extension
        and (not _is_options(field) or _is_flat(value))
        and all(_has_known_options(each) for each in _messages(field, value))
        for field, value in message.ListFields()
    )


def _is_options(field: Any) -> bool:
    """Say whether a field of a descriptor has options."""
    return bool(field.name == "options")


def _is_flat(options: Any) -> bool:
    return all(
        field.message_type is None and not field.is_repeated and not field.is_extension
        for field, _ in options.ListFields()
    )


def _messages(field: Any, value: Any) -> Iterator[Any]:
    if field.message_type is not None:
        if field.is_repeated:
            yield from value
        else:
            yield value


class _Writer:
    """Writes a descriptor as text, its types by their full names."""

    def file(self, file: Any) -> str:
        self._is_proto3 = file.syntax == "proto3"
        lines = [f'syntax = "{file.syntax or "proto2"}";']
        if file.package:
            lines.append(f"package {file.package};")
        lines.append("")
        for at, name in enumerate(file.dependency):
            kind = "public " if at in file.public_dependency else ""
            kind = "weak " if at in file.weak_dependency else kind
            lines.append(f'import {kind}"{_escaped(name)}";')
        lines += [f"option {each};" for each in _options(file.options)]
        for each in file.message_type:
            lines += ["", *self._message(each)]
        for each in file.enum_type:
            lines += ["", *self._enum(each)]
        return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"

    def _message(self, message: Any) -> list[str]:
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        inner = [f"option {each};" for each in _options(message.options)]
        inner += _reserved(message, end_is_inside=False)
        begun: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                inner.append(self._field(field, entries))
            elif field.oneof_index not in begun:
                begun.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                members = [
                    self._field(each, entries)
                    for each in message.field
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                ]
                options = [f"option {each};" for each in _options(oneof.options)]
                inner += _block(f"oneof {oneof.name}", options + members)
        for each in message.nested_type:
            if each.name not in entries:
                inner += self._message(each)
        for each in message.enum_type:
            inner += self._enum(each)
        return _block(f"message {message.name}", inner)

    def _field(self, field: Any, entries: Mapping[str, Any]) -> str:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None and field.label == _Field.LABEL_REPEATED:
            key, value = entry.field
            type = f"map<{_type_name(key)}, {_type_name(value)}>"
        else:
            type = self._label(field) + _type_name(field)
        options = [*_default(field), *_json_name(field), *_options(field.options)]
        shown = f" [{', '.join(options)}]" if options else ""
        return f"{type} {field.name} = {field.number}{shown};"

    def _label(self, field: Any) -> str:
        if field.HasField("oneof_index") and not field.proto3_optional:
            return ""
        if self._is_proto3 and field.label == _Field.LABEL_OPTIONAL and not field.proto3_optional:
            return ""
        return f"{_LABEL_NAMES[field.label]} "

    def _enum(self, enum: Any) -> list[str]:
        inner = [f"option {each};" for each in _options(enum.options)]
        inner += _reserved(enum, end_is_inside=True)
        for value in enum.value:
            options = _options(value.options)
            shown = f" [{', '.join(options)}]" if options else ""
            inner.append(f"{value.name} = {value.number}{shown};")
        return _block(f"enum {enum.name}", inner)


def _block(head: str, lines: list[str]) -> list[str]:
    return [f"{head} {{", *(f"{INDENT}{each}" for each in lines), "}"]


def _type_name(field: Any) -> str:
    return _SCALAR_NAMES.get(field.type) or field.type_name


def _reserved(owner: Any, *, end_is_inside: bool) -> list[str]:
    lines = []
    for each in owner.reserved_range:
        end = each.end if end_is_inside else each.end - 1
        most = ENUM_MAX if end_is_inside else NUMBER_MAX
        shown = "max" if end == most else str(end)
        lines.append(f"reserved {each.start}{'' if end == each.start else f' to {shown}'};")
    lines += [f'reserved "{_escaped(each)}";' for each in owner.reserved_name]
    return lines


def _default(field: Any) -> Iterator[str]:
    if field.HasField("default_value"):
        is_text = field.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
        value = field.default_value
        yield f'default = "{_escaped(value)}"' if is_text else f"default = {value}"


def _json_name(field: Any) -> Iterator[str]:
    parts = field.name.split("_")
    usual = parts[0] + "".join(each[:1].upper() + each[1:] for each in parts[1:])
    if field.HasField("json_name") and field.json_name != usual:
        yield f'json_name = "{_escaped(field.json_name)}"'


def _options(options: Any) -> list[str]:
    found = []
    for field, value in options.ListFields():
        if field.name == "map_entry":
            continue
        if field.enum_type is not None:
            shown = field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            shown = str(value).lower()
        else:
            shown = f'"{_escaped(value)}"'
        found.append(f"{field.name} = {shown}")
    return found


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", plain)
