"""The records of `_schemas`: their keys and values, as the original registry writes them.

| key type | value |
|---|---|
| SCHEMA | a version of a subject; a null value removes it |
| DELETE_SUBJECT | the last version of a subject that is softly deleted |
| CONFIG, MODE | the level or mode of a subject; without a subject the global one |
| CLEAR_SUBJECT | every version of a subject is removed |

Keys are compared by their bytes when the topic is compacted. So their fields have the original's
order, and no spaces between them. A key of another type is left alone.

Source: the classes `SchemaKey`, `SchemaValue`, `ConfigKey`, `ModeKey` and `DeleteSubjectKey` of
Confluent's Schema Registry.
"""

import hashlib
import json
import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
AVRO: Final = "AVRO"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """The form in bodies and records."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject.

    Attributes:
        subject: Its subject.
        version: Its number in the subject, from 1.
        id: The id of the schema; the same text has one id in every subject.
        type: AVRO, JSON or PROTOBUF.
        schema: The text.
        references: The schemas that it uses.
        extras: Its `metadata` and `ruleSet`, as the client gave them.
        is_deleted: It is softly deleted.
        md5: The hash that an original wrote beside it.
    """

    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: tuple[Reference, ...] = ()
    extras: Json = field(default_factory=dict)
    is_deleted: bool = False
    md5: str | None = None

    def deleted(self) -> "Version":
        """The same version, softly deleted."""
        return replace(self, is_deleted=True)

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for versions that have the same schema."""
        return self.type, self.schema, self.references, json.dumps(self.extras, sort_keys=True)

    @property
    def guid(self) -> str:
        """The GUID: a hash of the schema and its references, and of the extras."""
        if self.md5 is not None:
            return str(uuid.UUID(bytes=b64decode(self.md5)))
        hashed = hashlib.md5(self.schema.encode(), usedforsecurity=False)
        for each in self.references:
            hashed.update(f"{each.name}{each.subject}".encode())
            hashed.update(each.version.to_bytes(4, "big"))
        for name in sorted(self.extras):  # the original's hash of these differs
            hashed.update(b"\x01" + json.dumps(self.extras[name], sort_keys=True).encode())
        return str(uuid.UUID(bytes=hashed.digest()))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record; `version` belongs to the keys of type SCHEMA."""

    type: str
    subject: str | None
    version: int | None = None

    def to_bytes(self) -> bytes:
        """The bytes that the original writes for it."""
        found: dict[str, Any] = {"keytype": self.type}
        if self.subject is not None:
            found["subject"] = self.subject
        if self.version is not None:
            found["version"] = self.version
        found["magic"] = 1 if self.type == SCHEMA else 0
        return packed(found)


def packed(value: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def key_of(record: bytes | None) -> Key | None:
    """The key of a record; None for keys of other types and for bytes that are no key."""
    found = _json(record)
    if found is None:
        return None
    type, subject, version = found.get("keytype"), found.get("subject"), found.get("version")
    if type in (CONFIG, MODE) and (subject is None or isinstance(subject, str)):
        return Key(type, subject)
    if type in (DELETE_SUBJECT, CLEAR_SUBJECT) and isinstance(subject, str):
        return Key(type, subject)
    if type == SCHEMA and isinstance(subject, str) and isinstance(version, int):
        return Key(SCHEMA, subject, version)
    return None


def value_of(record: bytes | None) -> Json | None:
    """The value of a record; None for a null value and for bytes that are no JSON object."""
    return _json(record)


def version_of(value: Json) -> Version | None:
    """The version that the value of a SCHEMA record has; None if fields are missing."""
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in value.get("references") or ()
        )
        return Version(
            subject=str(value["subject"]),
            version=int(value["version"]),
            id=int(value["id"]),
            type=str(value.get("schemaType") or AVRO),
            schema=str(value["schema"]),
            references=references,
            extras={name: value[name] for name in ("metadata", "ruleSet") if value.get(name)},
            is_deleted=value.get("deleted") is True,
            md5=_md5(value.get("md5")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _md5(text: object) -> str | None:
    """A hash in base64; None if it is none."""
    try:
        is_hash = isinstance(text, str) and len(b64decode(text)) == 16
    except ValueError:
        is_hash = False
    return str(text) if is_hash else None


def record_of(version: Version) -> tuple[bytes, bytes]:
    """The key and value of the record that stores a version."""
    value: dict[str, Any] = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
    }
    if version.md5 is not None:
        value["md5"] = version.md5
    if version.type != AVRO:
        value["schemaType"] = version.type
    if version.references:
        value["references"] = [each.to_json() for each in version.references]
    value |= version.extras
    value |= {"schema": version.schema, "deleted": version.is_deleted}
    return Key(SCHEMA, version.subject, version.version).to_bytes(), packed(value)


def _json(record: bytes | None) -> Json | None:
    if record is None:
        return None
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
