"""Typed requests and responses are true to Kafka's schemas, in every version that is answered."""

import datetime
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from support.served import APIS, versions_of
from txn.broker.apis.api import Api
from txn.wire.bodies.configs import ListConfigResourcesRequest
from txn.wire.encoding import own_name, structure_writer
from txn.wire.kio import load_request_schema, load_response_schema
from txn.wire.requests import KAFKA_NAME, view

EACH_API = [pytest.param(api, id=api.request.__name__) for api in APIS.values()]
EACH_VERSION = [
    pytest.param(api, version, id=f"{api.request.__name__}-{version}")
    for api in APIS.values()
    for version in versions_of(api.key)
]

IMPLIED_BY_VERSION_0 = (ListConfigResourcesRequest, "resource_types")
"""Version 0 asks for client metrics, by having no such field; no types ask for all of them."""


def schemas(api: Api[Any], load: Any) -> Iterator[type]:
    for version in versions_of(api.key):
        yield load(api.key, version)


def structures(hint: Any, is_ours: Any) -> Iterator[type]:
    """The class of structures in a hint, if there is one."""
    if isinstance(hint, type) and is_ours(hint):
        yield hint
    for inner in get_args(hint):
        yield from structures(inner, is_ours)


def is_schema(candidate: type) -> bool:
    return hasattr(candidate, "__type__")


def is_body(candidate: type) -> bool:
    return hasattr(candidate, "_fields")


def pairs(kind: type, schema: type, is_ours: Any) -> Iterator[tuple[type, type]]:
    """A class of ours and its schema, then the structures in them."""
    yield kind, schema
    hints, ours = get_type_hints(schema), get_type_hints(kind)
    names = {field.metadata.get(KAFKA_NAME, field.name): field.name for field in fields(schema)}
    if is_dataclass(kind):
        names = {field.metadata.get(KAFKA_NAME, field.name): field.name for field in fields(kind)}
    for field in fields(schema):
        for inner in structures(hints[field.name], is_schema):
            hint = ours.get(names.get(own_name(field), own_name(field)))
            for inner_kind in structures(hint, is_ours):
                yield from pairs(inner_kind, inner, is_ours)


def simple(hint: Any) -> tuple[frozenset[Any], bool]:
    """The Python types of a field, arrays as tuples of theirs, and if it may be null."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds: set[Any] = set()
    for part in parts:
        if part is NoneType:
            continue
        if get_origin(part) is tuple:
            inner = get_args(part)[0]
            is_structure = is_dataclass(inner)
            kinds.add(("array", None if is_structure else base(inner)))
        else:
            kinds.add(None if is_dataclass(part) else base(part))
    return frozenset(kinds), NoneType in parts


def base(kind: Any) -> Any:
    """The built-in type below kio's own: `TopicName` is a str, `i32` an int."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    if issubclass(kind, datetime.timedelta):
        return int
    return next(
        (known for known in (bool, int, float, str, bytes) if issubclass(kind, known)), kind
    )


def default_of(field: "Field[Any]") -> Any:
    if isinstance(field.default, datetime.timedelta):
        return field.default // datetime.timedelta(milliseconds=1)
    return field.default


@pytest.mark.parametrize(("api", "version"), EACH_VERSION)
def test_each_version_of_a_request_has_a_view(api: Api[Any], version: int) -> None:
    assert issubclass(view(api.request, load_request_schema(api.key, version)), api.request)


@pytest.mark.parametrize(("api", "version"), EACH_VERSION)
def test_each_version_of_a_response_can_be_written(api: Api[Any], version: int) -> None:
    assert callable(structure_writer(load_response_schema(api.key, version), api.response))


@pytest.mark.parametrize("api", EACH_API)
def test_a_request_class_has_the_types_and_defaults_of_the_schemas(api: Api[Any]) -> None:
    for schema in schemas(api, load_request_schema):
        for kind, inner in pairs(api.request, schema, is_dataclass):
            ours = {field.metadata.get(KAFKA_NAME, field.name): field for field in fields(kind)}
            hints, theirs = get_type_hints(kind), get_type_hints(inner)
            for field in fields(inner):
                mine = ours[own_name(field)]
                (kinds, is_nullable), (wanted, may_be_null) = (
                    simple(hints[mine.name]),
                    simple(theirs[field.name]),
                )
                assert kinds == wanted, f"{kind.__name__}.{mine.name}: {kinds}, not {wanted}"
                assert is_nullable or not may_be_null, f"{kind.__name__}.{mine.name} may be null"
                has_defaults = MISSING not in (mine.default, field.default)
                if has_defaults and (kind, mine.name) != IMPLIED_BY_VERSION_0:
                    assert mine.default == default_of(field), f"{kind.__name__}.{mine.name}"


def test_every_field_of_a_class_is_in_some_version() -> None:
    known: dict[type, set[str]] = {}
    for api in APIS.values():
        of_requests = (
            pair
            for schema in schemas(api, load_request_schema)
            for pair in pairs(api.request, schema, is_dataclass)
        )
        of_responses = (
            pair
            for schema in schemas(api, load_response_schema)
            for pair in pairs(api.response, schema, is_body)
        )
        for kind, inner in (*of_requests, *of_responses):
            known.setdefault(kind, set()).update(own_name(field) for field in fields(inner))
    for kind, names in known.items():
        ours = (
            {field.metadata.get(KAFKA_NAME, field.name) for field in fields(kind)}
            if is_dataclass(kind)
            else set(kind._fields)  # type: ignore[attr-defined]
        )
        assert ours <= names, kind
