"""Protobuf: does one schema read everything that another one's messages may have?

Fields are compared by their numbers. The rules are those of the original, in its names. Two more
changes are refused here, at which the original does not look. A single number becomes repeated or
the reverse without a label in the text, and a field becomes required.
"""

from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor

from txn.testing.registry.protobuf import Schema
from txn.testing.registry.reasons import Pairs, Reason

SCALAR_KINDS: Final = {
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_BOOL),
            *(FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_ENUM),
        ),
        "general number",
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64), "signed number"),
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), "fixed64"),
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}
"""Types of one kind have the same bytes."""

TEXT: Final = "string or bytes"


def differences(reader: Schema, writer: Schema) -> list[Reason]:
    """The reasons for which a reader does not read a writer's messages."""
    comparison = _Comparison()
    return comparison.pairs.settle(lambda: comparison.files(writer.file, reader.file))


class _Comparison:
    def __init__(self) -> None:
        self.pairs = Pairs()

    def files(self, old: Any, new: Any) -> list[Reason]:
        found = []
        if old.package != new.package:
            found.append(Reason("PACKAGE_CHANGED", "#/"))
        return found + self._types(old.message_types_by_name, new.message_types_by_name, "#")

    def _types(self, old: Any, new: Any, path: str) -> list[Reason]:
        found: list[Reason] = []
        for name, message in old.items():
            if message.GetOptions().map_entry:
                continue
            if name not in new:
                found.append(Reason("MESSAGE_REMOVED", f"{path}/{name}"))
            else:
                found += self._messages(message, new[name], f"{path}/{name}")
        return found

    def _messages(self, old: Any, new: Any, path: str) -> list[Reason]:
        return self.pairs.of(old, new, lambda: self._compare(old, new, path))

    def _compare(self, old: Any, new: Any, path: str) -> list[Reason]:
        found = self._oneofs(old, new, path)
        before, after = ({each.number: each for each in of.fields} for of in (old, new))
        vanished = _vanished_oneofs(old, new)
        for number in sorted(before.keys() | after.keys()):
            place = f"{path}/{number}"
            if number not in after:
                field = before[number]
                oneof = _oneof(field)
                if oneof is not None and oneof.name not in vanished:
                    kind = "ONEOF_FIELD_REMOVED"
                    found.append(Reason(kind, f"{path}/{oneof.name}/{number}"))
                elif field.is_required:
                    found.append(Reason("REQUIRED_FIELD_REMOVED", place))
            elif number not in before:
                if after[number].is_required:
                    found.append(Reason("REQUIRED_FIELD_ADDED", place))
            else:
                found += self._fields(before[number], after[number], place)
        return found + self._types(old.nested_types_by_name, new.nested_types_by_name, path)

    def _oneofs(self, old: Any, new: Any, path: str) -> list[Reason]:
        """Fields that were apart must not come into one oneof: messages may have both."""
        before = {each.number: each for each in old.fields}
        found = []
        for oneof in _real_oneofs(new):
            known = [before[each.number] for each in oneof.fields if each.number in before]
            origins = {
                f"field {each.number}" if (of := _oneof(each)) is None else of.name
                for each in known
            }
            if len(origins) > 1:
                alone = sum(_oneof(each) is None for each in known)
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
                kind = kind if alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                found.append(Reason(kind, f"{path}/{oneof.name}"))
        return found

    def _fields(self, old: Any, new: Any, path: str) -> list[Reason]:
        found = self._values(old, new, path)
        if not found and _kind(old) == "scalar" and SCALAR_KINDS[old.type] != TEXT:
            is_other = old.is_repeated != new.is_repeated or old.is_required != new.is_required
            if is_other:
                return [Reason("FIELD_NUMERIC_LABEL_CHANGED", path)]
        if new.is_required and not old.is_required:
            found.append(Reason("REQUIRED_FIELD_ADDED", path))
        return found

    def _values(self, old: Any, new: Any, path: str) -> list[Reason]:
        kind = _kind(old)
        if kind != _kind(new):
            return [Reason("FIELD_KIND_CHANGED", path, f"{kind} to {_kind(new)}")]
        if kind == "scalar":
            kinds = [SCALAR_KINDS[each.type] for each in (old, new)]
            if kinds[0] != kinds[1]:
                return [Reason("FIELD_SCALAR_KIND_CHANGED", path, " to ".join(kinds))]
            return []
        if kind == "map":
            return [
                reason
                for name in ("key", "value")
                for reason in self._values(
                    old.message_type.fields_by_name[name],
                    new.message_type.fields_by_name[name],
                    path,
                )
            ]
        if _local_name(old.message_type) != _local_name(new.message_type):
            return [Reason("FIELD_NAMED_TYPE_CHANGED", path)]
        inner = self._messages(old.message_type, new.message_type, path)
        return [Reason("FIELD_NAMED_TYPE_CHANGED", path), *inner] if inner else []


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    if field.is_repeated and field.message_type.GetOptions().map_entry:
        return "map"
    return "group" if field.type == FieldDescriptor.TYPE_GROUP else "message"


def _local_name(message: Any) -> str:
    package = f"{message.file.package}." if message.file.package else ""
    return str(message.full_name.removeprefix(package))


@lru_cache(maxsize=1_000)
def _real_oneofs(message: Any) -> tuple[Any, ...]:
    """The oneofs of the text; an `optional` field of proto3 has one of its own."""
    copied = descriptor_pb2.DescriptorProto()
    message.CopyToProto(copied)
    optional = {each.oneof_index for each in copied.field if each.proto3_optional}
    return tuple(each for each in message.oneofs if each.index not in optional)


def _oneof(field: Any) -> Any:
    oneof = field.containing_oneof
    return None if oneof is None or oneof not in _real_oneofs(oneof.containing_type) else oneof


def _vanished_oneofs(old: Any, new: Any) -> set[str]:
    """The oneofs that are gone with all of their fields."""
    kept = {each.name for each in _real_oneofs(new)}
    numbers = {each.number for each in new.fields}
    return {
        each.name
        for each in _real_oneofs(old)
        if each.name not in kept and not any(at.number in numbers for at in each.fields)
    }
