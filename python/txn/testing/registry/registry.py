"""The requests of the registry: subjects, versions, levels and modes.

Each method is one request. It reads `_schemas` to the end, decides, and appends the records of its
decision. The order of checks, the status codes and the texts are those of the original.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from txn.testing.registry import errors, formats
from txn.testing.registry.errors import RegistryError, SchemaError
from txn.testing.registry.records import (
    CONFIG,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    Key,
    Reference,
    Version,
    packed,
    record_of,
)
from txn.testing.registry.state import GLOBAL, State
from txn.testing.registry.topic import SchemasTopic

LATEST: Final = -1
LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
READ_ONLY: Final = ("READONLY", "READONLY_OVERRIDE")
IMPORT: Final = "IMPORT"
CONTEXT_PREFIX: Final = ":."


@dataclass(frozen=True, slots=True)
class Given:
    """A schema as a request has it; `version` and `id` are those of an import."""

    type: str
    schema: str
    references: tuple[Reference, ...]
    extras: Mapping[str, Any]
    version: int | None = None
    id: int | None = None


class Registry:
    """The requests; one at a time."""

    def __init__(self, topic: SchemasTopic) -> None:
        self._topic = topic
        self._read: dict[tuple[object, ...], Any] = {}

    # ------------------------------------------------------------ schemas

    def register(self, subject: str, given: Given, *, normalize: bool) -> Version:
        """Register a schema, or find it. Raises RegistryError."""
        state = self._state()
        _require_subject(subject)
        mode = self._mode(state, subject)
        if mode in READ_ONLY:
            raise _read_only(subject)
        is_import = mode == IMPORT
        if given.id is not None and not is_import:
            text = f"Subject {subject} in context . is not in import mode"
            raise errors.not_permitted(text)
        schema, found = self._prepared(state, subject, given, normalize)
        same = self._same(state, found, subject)
        if same is not None and not is_import:
            return same
        before = state.versions(subject)
        every = state.versions(subject, deleted=True)
        following = every[-1].version + 1 if every else 1
        number = given.version or following
        if number != following and not is_import:
            raise errors.invalid_schema("Version is not one more than previous version")
        if not is_import:
            reasons = self._incompatible(state, subject, found.type, schema, before)
            if reasons:
                raise errors.incompatible(subject, reasons)
        made = replace(found, version=number, id=self._id(state, found, given))
        # As the original does: a version that comes again replaces its deleted ones.
        stale = [each for each in every if each.is_deleted and each.id == made.id]
        gone = [
            (Key(SCHEMA, subject, each.version).to_bytes(), None)
            for each in stale
            if each.version < number and not state.referring(subject, each.version, deleted=True)
        ]
        self._topic.write(*gone, record_of(made))
        return made

    def look_up(self, subject: str, given: Given, *, normalize: bool, deleted: bool) -> Version:
        """The version of a subject that has a schema. Raises RegistryError."""
        state = self._state()
        if not state.versions(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        _, found = self._prepared(state, subject, given, normalize)
        for each in reversed(state.versions(subject, deleted=deleted)):
            if each.identity == found.identity:
                return each
        raise errors.schema_not_found()

    def test(
        self, subject: str, given: Given, version: int | None, *, normalize: bool
    ) -> list[str]:
        """Why a schema breaks the subject's level beside a version, or beside all of them."""
        state = self._state()
        before = state.versions(subject)
        if version is not None:
            before = [each for each in before if each.version == version or version == LATEST]
            if not before and version != LATEST:
                raise errors.version_not_found(version)
            before = before[-1:]
        schema, found = self._prepared(state, subject, given, normalize)
        return self._incompatible(state, subject, found.type, schema, before)

    def by_id(self, id: int, subject: str | None = None) -> Version:
        """A version with an id, of a subject if one has it. Raises RegistryError."""
        every = [each for each in self._state().every() if each.id == id]
        if not every:
            raise errors.schema_not_found(id)
        of_subject = [each for each in every if each.subject == subject]
        return (of_subject or every)[0]

    def by_guid(self, guid: str) -> Version:
        """A version with a GUID. Raises RegistryError."""
        for each in self._state().every():
            if each.guid == guid:
                return each
        raise errors.schema_not_found(guid)

    def with_id(self, id: int, subject: str | None, *, deleted: bool) -> list[Version]:
        """The versions with an id. Raises RegistryError: no schema has it."""
        every = [each for each in self._state().every() if each.id == id]
        if not every:
            raise errors.schema_not_found()
        return [
            each
            for each in every
            if (deleted or not each.is_deleted) and subject in (None, each.subject)
        ]

    def formatted(self, version: Version, name: str) -> Version:
        """The version with its text in another format, if its type has the format."""
        if not name:
            return version
        schema = self._schema_of(self._topic.state, version)
        text = formats.FORMATS[version.type].formatted(schema, name)
        if text is None:
            return version
        # The GUID stays that of the stored text.
        return replace(version, schema=text, md5=_md5_of(version))

    # ------------------------------------------------------------ subjects and versions

    def subjects(self, prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
        """The subjects whose name begins with a prefix."""
        state = self._state()
        found = state.subjects(deleted=deleted or deleted_only)
        live = set(state.subjects())
        return [
            each
            for each in found
            if each.startswith(prefix) and not (deleted_only and each in live)
        ]

    def versions(self, subject: str, *, deleted: bool, deleted_only: bool) -> list[Version]:
        """The versions of a subject. Raises RegistryError: there is none."""
        found = self._state().versions(subject, deleted=deleted or deleted_only)
        if not found:
            raise errors.subject_not_found(subject)
        return [each for each in found if each.is_deleted or not deleted_only]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version of a subject; LATEST is the last one. Raises RegistryError."""
        found = self._state().versions(subject, deleted=deleted)
        if not found:
            raise errors.subject_not_found(subject)
        if number == LATEST:
            return found[-1]
        for each in found:
            if each.version == number:
                return each
        raise errors.version_not_found(number)

    def latest_with(self, subject: str, wanted: Mapping[str, str], *, deleted: bool) -> Version:
        """The last version whose metadata has these properties. Raises RegistryError."""
        found = self._state().versions(subject, deleted=deleted)
        if not found:
            raise errors.subject_not_found(subject)
        for each in reversed(found):
            properties = (each.extras.get("metadata") or {}).get("properties") or {}
            if all(properties.get(name) == at for name, at in wanted.items()):
                return each
        raise errors.schema_not_found()

    def referenced_by(self, subject: str, number: int, *, deleted: bool) -> list[int]:
        """The ids of the schemas that use a version. Raises RegistryError."""
        found = self.version(subject, number, deleted=True)
        using = self._topic.state.referring(subject, found.version, deleted=deleted)
        return sorted({each.id for each in using})

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete a version, softly or for good, and return its number. Raises RegistryError."""
        state = self._state()
        live = state.versions(subject)
        every = state.versions(subject, deleted=True)
        if not every:
            raise errors.subject_not_found(subject)
        if number == LATEST:
            found = (live or every)[-1]
        else:
            named = state.version(subject, number)
            if named is None:
                raise errors.version_not_found(number)
            found = named
        if found.is_deleted and not permanent:
            raise errors.version_soft_deleted(subject, found.version)
        if self._mode(state, subject) in READ_ONLY:
            raise _read_only(subject)
        if state.referring(subject, found.version, deleted=permanent):
            raise errors.reference_exists(subject, found.version)
        if permanent and not found.is_deleted:
            raise errors.version_not_soft_deleted(subject, found.version)
        if not permanent:
            self._topic.write(record_of(found.deleted()))
            return found.version
        self._topic.write((Key(SCHEMA, subject, found.version).to_bytes(), None))
        self._clear_settings(subject)
        return found.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete the versions of a subject and return their numbers. Raises RegistryError."""
        state = self._state()
        every = state.versions(subject, deleted=True)
        live = state.versions(subject)
        if not every:
            raise errors.subject_not_found(subject)
        if not permanent and not live:
            raise errors.subject_soft_deleted(subject)
        if self._mode(state, subject) in READ_ONLY:
            raise _read_only(subject)
        for each in every if permanent else live:
            using = state.referring(subject, each.version, deleted=permanent)
            if any(other.subject != subject for other in using):
                raise errors.reference_exists(subject, each.version)
        if permanent and live:
            raise errors.subject_not_soft_deleted(subject)
        if permanent:
            keys = [Key(SCHEMA, subject, each.version).to_bytes() for each in every]
            self._topic.write(*[(key, None) for key in reversed(keys)])
            self._clear_settings(subject)
            return [each.version for each in every]
        value = packed({"subject": subject, "version": live[-1].version})
        self._topic.write((Key(DELETE_SUBJECT, subject).to_bytes(), value))
        return [each.version for each in live]

    def _clear_settings(self, subject: str) -> None:
        state = self._topic.state
        if state.versions(subject, deleted=True):
            return
        for type, settings in ((MODE, state.modes), (CONFIG, state.configs)):
            if subject in settings:
                self._topic.write((Key(type, subject).to_bytes(), None))

    # ------------------------------------------------------------ levels and modes

    def config(self, subject: str | None, *, in_scope: bool) -> Mapping[str, Any]:
        """The configuration of a subject, or of all. Raises RegistryError: it has none."""
        state = self._state()
        if subject is GLOBAL or in_scope or subject in state.configs:
            return self._config(state, subject)
        raise errors.compatibility_not_configured(subject)

    def set_config(self, subject: str | None, level: str | None, normalize: bool | None) -> None:
        """Set the level of compatibility and whether schemas are normalized."""
        state = self._state()
        if subject is not GLOBAL:
            _require_subject(subject)
        if level is not None and level.upper() not in LEVELS:
            raise errors.invalid_level()
        value: dict[str, Any] = {} if subject is GLOBAL else {"subject": subject}
        value |= state.configs.get(subject, {})
        if level is not None:
            value["compatibilityLevel"] = level.upper()
        if normalize is not None:
            value["normalize"] = normalize
        self._topic.write((Key(CONFIG, subject).to_bytes(), packed(value)))

    def delete_config(self, subject: str | None) -> Mapping[str, Any]:
        """Remove the configuration of a subject and return it. Raises RegistryError."""
        state = self._state()
        if subject is not GLOBAL and subject not in state.configs:
            raise errors.subject_not_found(subject)
        found = self._config(state, subject)
        self._topic.write((Key(CONFIG, subject).to_bytes(), None))
        return found

    def mode(self, subject: str | None, *, in_scope: bool) -> str:
        """The mode of a subject, or of all. Raises RegistryError: it has none."""
        state = self._state()
        if subject is GLOBAL or in_scope or subject in state.modes:
            return self._mode(state, subject)
        raise errors.mode_not_configured(subject)

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Set the mode. Raises RegistryError."""
        state = self._state()
        if subject is not GLOBAL:
            _require_subject(subject)
        if mode.upper() not in MODES:
            raise errors.invalid_mode()
        begins_import = mode.upper() == IMPORT and self._mode(state, subject) != IMPORT
        present = state.versions(subject) if subject is not GLOBAL else state.subjects()
        if begins_import and present and not force:
            raise errors.not_permitted("Cannot import since found existing subjects")
        value: dict[str, Any] = {} if subject is GLOBAL else {"subject": subject}
        value["mode"] = mode.upper()
        self._topic.write((Key(MODE, subject).to_bytes(), packed(value)))

    def delete_mode(self, subject: str | None) -> str:
        """Remove the mode of a subject and return it. Raises RegistryError: it has none."""
        state = self._state()
        if subject is not GLOBAL and subject not in state.modes:
            raise errors.subject_not_found(subject)
        found = self._mode(state, subject)
        self._topic.write((Key(MODE, subject).to_bytes(), None))
        return found

    # ------------------------------------------------------------ below

    def _state(self) -> State:
        return self._topic.catch_up()

    def _config(self, state: State, subject: str | None) -> Mapping[str, Any]:
        default = {"compatibilityLevel": LEVELS[0]}
        return {**default, **state.configs.get(GLOBAL, {}), **state.configs.get(subject, {})}

    def _mode(self, state: State, subject: str | None) -> str:
        everywhere = state.modes.get(GLOBAL, MODES[0])
        if everywhere == "READONLY_OVERRIDE":  # no subject's mode lifts it
            return everywhere
        return state.modes.get(subject, everywhere)

    def _prepared(
        self, state: State, subject: str, given: Given, normalize: bool
    ) -> tuple[Any, Version]:
        """The schema as read, and a version without a number that has the text to be stored."""
        if given.type not in formats.FORMATS:
            raise errors.invalid_schema(f"Invalid schema type {given.type}")
        if not given.schema.strip():
            raise errors.invalid_schema("Empty schema")
        if len(given.schema.encode()) > formats.SCHEMA_BYTES_MAX:
            raise errors.too_large(f"it has more than {formats.SCHEMA_BYTES_MAX} bytes")
        try:
            resolved = self._resolved(state, given.type, given.references)
            schema = formats.read(given.type, given.schema, resolved)
            is_normal = normalize or self._config(state, subject).get("normalize") is True
            text = formats.write(given.type, schema, normalize=is_normal)
        except SchemaError as error:
            raise errors.invalid_schema(str(error)) from None
        references = sorted(set(given.references), key=str) if is_normal else given.references
        version = Version(subject, 0, 0, given.type, text, tuple(references), extras=given.extras)
        return schema, version

    def _resolved(
        self, state: State, type: str, references: Sequence[Reference]
    ) -> list[tuple[str, str]]:
        """The names and texts of references; those that others use come first."""
        found: dict[str, str] = {}
        walked: set[tuple[str, int]] = set()

        def walk(listed: Sequence[Reference], depth: int) -> None:
            for each in listed:
                if (each.subject, each.version) in walked:
                    continue
                walked.add((each.subject, each.version))
                if len(walked) > formats.REFERENCES_MAX or depth > formats.REFERENCES_MAX:
                    raise SchemaError(f"it has more than {formats.REFERENCES_MAX} references")
                of_subject = state.versions(each.subject)
                version = (
                    (of_subject[-1] if of_subject else None)
                    if each.version == LATEST
                    else state.version(each.subject, each.version)
                )
                if version is None:
                    text = f"No schema reference found for subject {each.subject!r}"
                    raise SchemaError(f"{text} and version {each.version}")
                if version.type != type:
                    raise SchemaError(f"reference {each.name!r} is {version.type}, not {type}")
                walk(version.references, depth + 1)
                found.setdefault(each.name, version.schema)

        walk(references, 0)
        return list(found.items())

    def _schema_of(self, state: State, version: Version) -> Any:
        """The schema of a stored version. Raises SchemaError: another registry wrote it."""
        resolved = self._resolved(state, version.type, version.references)
        key = (version.type, version.schema, *resolved)
        if key not in self._read:
            if len(self._read) >= READ_MAX:
                self._read.clear()
            self._read[key] = formats.read(version.type, version.schema, resolved)
        return self._read[key]

    def _same(self, state: State, found: Version, subject: str) -> Version | None:
        for each in state.versions(subject):
            if each.identity == found.identity:
                return each
        return None

    def _id(self, state: State, found: Version, given: Given) -> int:
        if given.id is not None:
            for each in state.every():
                if each.id == given.id and each.identity != found.identity:
                    raise errors.id_does_not_match(given.id)
            return given.id
        for each in state.every():
            if each.identity == found.identity:
                return each.id
        return state.next_id

    def _incompatible(
        self, state: State, subject: str, type: str, schema: Any, before: Sequence[Version]
    ) -> list[str]:
        level = str(self._config(state, subject)["compatibilityLevel"])
        if level == LEVELS[-1] or not before:
            return []
        checked = before if level.endswith("_TRANSITIVE") else before[-1:]
        for each in reversed(checked):
            reasons = self._beside(state, level, type, schema, each)
            if reasons:
                about = [f"{{oldSchemaVersion: {each.version}}}", f"{{oldSchema: '{each.schema}'}}"]
                return [*reasons, *about, f"{{compatibility: '{level}'}}"]
        return []

    def _beside(
        self, state: State, level: str, type: str, schema: Any, earlier: Version
    ) -> list[str]:
        if earlier.type != type:
            return ["Incompatible because of different schema type"]
        try:
            other = self._schema_of(state, earlier)
            found = []
            if level.startswith(("BACKWARD", "FULL")):
                found += formats.differences(type, schema, other)
            if level.startswith(("FORWARD", "FULL")):
                found += formats.differences(type, other, schema)
        except SchemaError as error:  # not known to be compatible
            return [f"Compatibility is not known: {error}"]
        return [str(each) for each in dict.fromkeys(found)]


READ_MAX: Final = 1_000
"""The most schemas that are kept as read."""


def _read_only(subject: str) -> RegistryError:
    return errors.not_permitted(f"Subject {subject} in context . is in read-only mode")


def _require_subject(subject: str) -> None:
    is_control = any(ord(each) < 32 or ord(each) == 127 for each in subject)
    if not subject.strip() or is_control or subject.startswith(CONTEXT_PREFIX):
        raise errors.invalid_subject(subject)


def _md5_of(version: Version) -> str:
    return b64encode(UUID(version.guid).bytes).decode()
