"""Schemas of messages as descriptions, beside the classes of kio that they describe."""

from dataclasses import Field, fields
from types import NoneType, SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

import pytest

from support.served import APIS, versions_of
from txn.wire import schemas
from txn.wire.api_keys import ApiKey
from txn.wire.kio import load_request_schema, load_response_schema

SERVED = [(key, version) for key in APIS for version in versions_of(key)]
OF_SCHEMA = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


def described(schema: Any) -> Any:
    """All that is told of a structure, with structures in place of their classes."""
    hints = get_type_hints(schema)
    return (
        schema.__qualname__,
        [getattr(schema, name) for name in OF_SCHEMA],
        [(field.name, told_of(field), type_of(hints[field.name])) for field in fields(schema)],
    )


def told_of(field: "Field[Any]") -> Any:
    default = field.default
    return dict(field.metadata), described_value(default), field.default_factory


def described_value(value: Any) -> Any:
    """A default; of a structure only its class is compared."""
    return type(value).__qualname__ if hasattr(value, "__type__") else value


def type_of(hint: Any) -> Any:
    if isinstance(hint, type) and hasattr(hint, "__type__"):
        return described(hint)
    if get_origin(hint) is tuple or NoneType in get_args(hint):
        return get_origin(hint), [type_of(each) for each in get_args(hint)]
    return hint


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_description_tells_all_that_kio_does(key: int, version: int) -> None:
    assert described(schemas.request_schema(key, version)) == described(
        load_request_schema(key, version)
    )
    assert described(schemas.response_schema(key, version)) == described(
        load_response_schema(key, version)
    )


def test_a_description_has_no_methods_and_kios_own_classes_keep_theirs() -> None:
    request = schemas.request_schema(ApiKey.METADATA, 12)
    own = load_request_schema(ApiKey.METADATA, 12)
    assert request is not own
    assert not {"__init__", "__eq__", "__repr__"} & vars(request).keys()
    assert {"__init__", "__eq__", "__repr__"} <= vars(own).keys()


def test_schemas_that_are_no_files_are_those_of_kio() -> None:
    nowhere = SimpleNamespace(__path__=["/nowhere"])
    schemas.request_schema.cache_clear()
    try:
        with patch.object(schemas, "sys", SimpleNamespace(modules={"kio": nowhere})):
            found = schemas.request_schema(ApiKey.METADATA, 12)
    finally:
        schemas.request_schema.cache_clear()
    assert found is load_request_schema(ApiKey.METADATA, 12)
