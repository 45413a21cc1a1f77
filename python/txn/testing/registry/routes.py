"""The REST calls: a method and a path lead to a request of `Registry`, and its answer to JSON.

A call that is not here gets 404, and another method on a path that is here gets 405.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from txn.testing.registry import errors, formats
from txn.testing.registry.errors import RegistryError
from txn.testing.registry.records import AVRO, Reference, Version
from txn.testing.registry.registry import LATEST, Given, Registry

INT_MAX: Final = (1 << 31) - 1
QUERY_FIELDS_MAX: Final = 100
UNAPPLIED: Final = (
    *("compatibilityGroup", "compatibilityPolicy", "alias", "validateFields", "validateRules"),
    *("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
)
"""Parts of a configuration that this registry does not apply, and so refuses."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request as its route gets it."""

    registry: Registry
    parts: Sequence[str]
    query: Mapping[str, list[str]]
    body: bytes

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str) -> bool:
        """A parameter of the query as Java reads a boolean."""
        return self.text(name).lower() == "true"

    def page(self, found: Sequence[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` select; a negative limit is none."""
        start, count = (self._number(name, at) for name, at in (("offset", 0), ("limit", -1)))
        start = max(start, 0)
        return list(found[start:] if count < 0 else found[start : start + count])

    def _number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not re.fullmatch(r"-?\d{1,9}", text):
            raise RegistryError(404, 404, "HTTP 404 Not Found")  # as Jersey answers it
        return int(text)

    def json(self) -> dict[str, Any]:
        """The body. Raises RegistryError: it is no JSON object of text that can be stored."""
        try:
            found = json.loads(self.body, parse_constant=_no_constant)
            self_checked = json.dumps(found, ensure_ascii=False)
            self_checked.encode()  # a lone surrogate fits into no UTF-8
        except RecursionError:
            raise RegistryError(400, 400, "Unable to process JSON: too deep") from None
        except ValueError as error:
            raise RegistryError(400, 400, f"Unable to process JSON: {error}") from None
        if not isinstance(found, dict):
            raise RegistryError(400, 400, "Unable to process JSON: it is no object")
        return found

    def given(self) -> Given:
        """The schema in the body. Raises RegistryError."""
        found = self.json()
        schema, type = found.get("schema"), found.get("schemaType") or AVRO
        references = found.get("references") or []
        if not isinstance(schema, str) or not schema:
            raise errors.invalid_schema("Empty schema")
        if not isinstance(type, str) or not isinstance(references, list):
            raise errors.malformed("schemaType is a text, and references is a list")
        if len(references) > formats.REFERENCES_MAX:
            raise errors.too_large(f"it has more than {formats.REFERENCES_MAX} references")
        extras = {name: found[name] for name in ("metadata", "ruleSet") if found.get(name)}
        if not all(isinstance(each, dict) for each in extras.values()):
            raise errors.malformed("metadata and ruleSet are objects")
        return Given(
            type=type,
            schema=schema,
            references=tuple(_reference(each) for each in references),
            extras=extras,
            version=_positive(found, "version"),
            id=_positive(found, "id"),
        )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _reference(found: object) -> Reference:
    match found:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if (
            name and subject and (1 <= version <= INT_MAX or version == LATEST)
        ):
            return Reference(name, subject, version)
    raise errors.malformed("a reference has a name, a subject and a version")


def _positive(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value in (None, 0, -1):  # -1 and 0 stand for the next one
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= INT_MAX:
        raise errors.malformed(f"{name} is a number from 1")
    return value


def _version(text: str) -> int:
    if text.strip().lower() == "latest":
        return LATEST
    if not re.fullmatch(r"-?\d{1,10}", text.strip()):
        raise errors.invalid_version(text)
    number = int(text)
    if number != LATEST and not 1 <= number <= INT_MAX:
        raise errors.invalid_version(text)
    return number


def _id(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text):
        raise RegistryError(404, 404, "HTTP 404 Not Found")
    return int(text)


def shown(version: Version, *, is_whole: bool = True) -> dict[str, Any]:
    """A version in an answer; the type of Avro is left out of the answers for an id."""
    found: dict[str, Any] = {"subject": version.subject, "version": version.version}
    if is_whole:
        found["id"] = version.id
    found["guid"] = version.guid
    if is_whole or version.type != AVRO:
        found["schemaType"] = version.type
    if version.references:
        found["references"] = [each.to_json() for each in version.references]
    found |= version.extras
    found["schema"] = version.schema
    if version.is_deleted:
        found["deleted"] = True
    return found


# ---------------------------------------------------------------- calls


def _register(call: Call) -> object:
    normalize = call.flag("normalize")
    made = call.registry.register(call.parts[0], call.given(), normalize=normalize)
    # Without the text, which may have another form than the client's: a client that keeps it for
    # its deserializers would hand them a `.proto` text in place of its own descriptor.
    return {"id": made.id, "version": made.version, "guid": made.guid, "schemaType": made.type}


def _look_up(call: Call) -> object:
    subject, given = call.parts[0], call.given()
    flags = {"normalize": call.flag("normalize"), "deleted": call.flag("deleted")}
    found = call.registry.look_up(subject, given, **flags)
    return shown(call.registry.formatted(found, call.text("format")))


def _one_version(call: Call) -> Version:
    deleted = call.flag("deleted")
    found = call.registry.version(call.parts[0], _version(call.parts[1]), deleted=deleted)
    return call.registry.formatted(found, call.text("format"))


def _by_id(call: Call) -> Version:
    found = call.registry.by_id(_id(call.parts[0]), call.text("subject") or None)
    return call.registry.formatted(found, call.text("format"))


def _by_guid(call: Call) -> object:
    found = call.registry.by_guid(call.parts[0])
    return shown(call.registry.formatted(found, call.text("format")), is_whole=False)


def _with_id(call: Call) -> list[Version]:
    subject = call.text("subject") or None
    return call.registry.with_id(_id(call.parts[0]), subject, deleted=call.flag("deleted"))


def _subjects(call: Call) -> object:
    prefix = call.text("subjectPrefix").removeprefix(":*:")
    flags = {"deleted": call.flag("deleted"), "deleted_only": call.flag("deletedOnly")}
    return call.page(call.registry.subjects(prefix, **flags))


def _versions(call: Call) -> object:
    flags = {"deleted": call.flag("deleted"), "deleted_only": call.flag("deletedOnly")}
    return call.page([each.version for each in call.registry.versions(call.parts[0], **flags)])


def _latest_with(call: Call) -> object:
    wanted = dict(zip(call.query.get("key", []), call.query.get("value", []), strict=False))
    plain = {unquote(name): unquote(value) for name, value in wanted.items()}
    found = call.registry.latest_with(call.parts[0], plain, deleted=call.flag("deleted"))
    return shown(call.registry.formatted(found, call.text("format")))


def _referenced_by(call: Call) -> object:
    number, deleted = _version(call.parts[1]), call.flag("deleted")
    return call.page(call.registry.referenced_by(call.parts[0], number, deleted=deleted))


def _test(call: Call) -> object:
    subject, version = call.parts[0], _version(call.parts[1]) if len(call.parts) > 1 else None
    is_verbose = call.flag("verbose")
    try:
        reasons = call.registry.test(
            subject, call.given(), version, normalize=call.flag("normalize")
        )
    except RegistryError as error:
        if not is_verbose or error.code != errors.INVALID_SCHEMA:
            raise
        reasons = [error.message]
    answer: dict[str, object] = {"is_compatible": not reasons}
    if is_verbose:
        answer["messages"] = reasons
    return answer


def _delete_subject(call: Call) -> object:
    return call.registry.delete_subject(call.parts[0], permanent=call.flag("permanent"))


def _delete_version(call: Call) -> object:
    number = _version(call.parts[1])
    return call.registry.delete_version(call.parts[0], number, permanent=call.flag("permanent"))


def _scope(call: Call) -> str | None:
    return call.parts[0] if call.parts else None


def _config(call: Call) -> object:
    return call.registry.config(_scope(call), in_scope=call.flag("defaultToGlobal"))


def _set_config(call: Call) -> object:
    found = call.json()
    unapplied = [name for name in UNAPPLIED if found.get(name)]
    if unapplied:
        raise errors.malformed(f"this registry does not apply {', '.join(unapplied)}")
    level, normalize = found.get("compatibility"), found.get("normalize")
    if not isinstance(level, str | None):
        raise errors.invalid_level()
    if not isinstance(normalize, bool | None):
        raise errors.malformed("normalize is true or false")
    call.registry.set_config(_scope(call), level, normalize)
    answer = {"compatibility": level and level.upper(), "normalize": normalize}
    return {name: value for name, value in answer.items() if value is not None}


def _delete_config(call: Call) -> object:
    return call.registry.delete_config(_scope(call))


def _mode(call: Call) -> object:
    return {"mode": call.registry.mode(_scope(call), in_scope=call.flag("defaultToGlobal"))}


def _set_mode(call: Call) -> object:
    mode = call.json().get("mode")
    if not isinstance(mode, str):
        raise errors.invalid_mode()
    call.registry.set_mode(_scope(call), mode, force=call.flag("force"))
    return {"mode": mode.upper()}


def _delete_mode(call: Call) -> object:
    return {"mode": call.registry.delete_mode(_scope(call))}


Route = Callable[[Call], object]

ROUTES: Final[Sequence[tuple[str, Mapping[str, Route]]]] = (
    ("", {"GET": lambda call: {}}),
    ("schemas/types", {"GET": lambda call: list(formats.FORMATS)}),
    ("schemas/ids/*", {"GET": lambda call: shown(_by_id(call), is_whole=False)}),
    ("schemas/ids/*/schema", {"GET": lambda call: Raw(_by_id(call).schema)}),
    (
        "schemas/ids/*/subjects",
        {"GET": lambda call: call.page([each.subject for each in _with_id(call)])},
    ),
    (
        "schemas/ids/*/versions",
        {
            "GET": lambda call: call.page(
                [{"subject": each.subject, "version": each.version} for each in _with_id(call)]
            )
        },
    ),
    ("schemas/guids/*", {"GET": _by_guid}),
    ("subjects", {"GET": _subjects}),
    ("subjects/*", {"POST": _look_up, "DELETE": _delete_subject}),
    ("subjects/*/metadata", {"GET": _latest_with}),
    ("subjects/*/versions", {"GET": _versions, "POST": _register}),
    (
        "subjects/*/versions/*",
        {"GET": lambda call: shown(_one_version(call)), "DELETE": _delete_version},
    ),
    ("subjects/*/versions/*/schema", {"GET": lambda call: Raw(_one_version(call).schema)}),
    ("subjects/*/versions/*/referencedby", {"GET": _referenced_by}),
    ("compatibility/subjects/*/versions", {"POST": _test}),
    ("compatibility/subjects/*/versions/*", {"POST": _test}),
    ("config", {"GET": _config, "PUT": _set_config, "DELETE": _delete_config}),
    ("config/*", {"GET": _config, "PUT": _set_config, "DELETE": _delete_config}),
    ("mode", {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode}),
    ("mode/*", {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode}),
    ("contexts", {"GET": lambda call: call.page(["."])}),
)
"""Paths, with `*` for a part that the call names."""


class Raw(str):
    """An answer that is the text itself, and not a JSON text."""

    __slots__ = ()


def answer(registry: Registry, method: str, target: str, body: bytes) -> object:
    """The answer to a request, as JSON values or `Raw`. Raises RegistryError."""
    path, _, asked = target.partition("?")
    try:
        parts = [unquote(each, errors="strict") for each in path.strip("/").split("/")]
        query = parse_qs(asked, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise RegistryError(400, 400, "HTTP 400 Bad Request") from None
    for pattern, methods in ROUTES:
        wanted = pattern.split("/")
        if len(wanted) != len(parts) or any(
            at not in ("*", part) for at, part in zip(wanted, parts, strict=True)
        ):
            continue
        if method not in methods:
            raise RegistryError(405, 405, "HTTP 405 Method Not Allowed")
        named = [part for at, part in zip(wanted, parts, strict=True) if at == "*"]
        return methods[method](Call(registry, named, query, body))
    raise RegistryError(404, 404, "HTTP 404 Not Found")
