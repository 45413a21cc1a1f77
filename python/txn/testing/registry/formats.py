"""The three types of schemas behind one face."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txn.testing.registry import avro, avro_rules, json_rules, json_schema
from txn.testing.registry.errors import SchemaError
from txn.testing.registry.reasons import Reason

SCHEMA_BYTES_MAX: Final = 1 << 20
REFERENCES_MAX: Final = 100
"""The most references of a schema, counted with those of its references."""

Resolved = Sequence[tuple[str, str]]
"""The name and text of each reference; each one may use those before it."""


@dataclass(frozen=True, slots=True)
class Format:
    """A type of schemas.

    Attributes:
        read: Reads a schema and its references. Raises SchemaError.
        write: The text that is stored, by the schema and whether it is normalized.
        differences: Why a reader's schema does not read a writer's data. Raises SchemaError if
            that is not known.
        formatted: The text in a format that a client asks for; None if there is no such format.
    """

    read: Callable[[str, Resolved], Any]
    write: Callable[[Any, bool], str]
    differences: Callable[[Any, Any], list[Reason]]
    formatted: Callable[[Any, str], str | None] = lambda schema, name: None


def _read_avro(text: str, references: Resolved) -> avro.Schema:
    return avro.Schema(text, [each for _, each in references])


def _read_protobuf(text: str, references: Resolved) -> Any:
    try:
        from txn.testing.registry import protobuf
    except ModuleNotFoundError as error:
        reason = f"Protobuf needs packages of the extra `registry` of txn ({error.name})"
        raise SchemaError(reason) from None
    return protobuf.Schema(text, references)


def _protobuf_differences(reader: Any, writer: Any) -> list[Reason]:
    from txn.testing.registry import proto_rules  # only Protobuf's schemas need its packages

    return proto_rules.differences(reader, writer)


FORMATS: Final[Mapping[str, Format]] = {
    "AVRO": Format(
        read=_read_avro,
        write=lambda schema, normalize: schema.normalized if normalize else schema.canonical,
        differences=avro_rules.differences,
    ),
    "JSON": Format(
        read=json_schema.Schema,
        write=lambda schema, normalize: schema.normalized if normalize else schema.canonical,
        differences=json_rules.differences,
    ),
    "PROTOBUF": Format(
        read=_read_protobuf,
        write=lambda schema, normalize: schema.canonical,
        differences=_protobuf_differences,
        formatted=lambda schema, name: schema.formatted(name),
    ),
}


def read(type: str, text: str, references: Resolved) -> Any:
    """Read a schema. Raises SchemaError: it is none, or it exceeds the bounds."""
    if len(text.encode()) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"it has more than {SCHEMA_BYTES_MAX} bytes")
    try:
        return FORMATS[type].read(text, references)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None


def write(type: str, schema: Any, *, normalize: bool) -> str:
    """The text that is stored. Raises SchemaError: it fits into no UTF-8."""
    text = FORMATS[type].write(schema, normalize)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaError("it has half of a surrogate pair") from None
    return text


def differences(type: str, reader: Any, writer: Any) -> list[Reason]:
    """Why a reader does not read a writer's data. Raises SchemaError: that is not known."""
    try:
        return FORMATS[type].differences(reader, writer)
    except RecursionError:
        raise SchemaError("it is nested too deeply to be compared") from None
