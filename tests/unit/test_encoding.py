"""`txn.wire.encoding` writes the bytes that kio writes: every version of every API."""

import datetime
import io
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from support.entities import entity_builder
from support.served import SERVED_IN_PYTHON
from txn.broker.apis.table import SERVED_BY_REACTORS
from txn.wire.bodies.metadata import CreatedTopic, CreatedTopicConfig, CreateTopicsResponse
from txn.wire.bodies.txn import EndTxnResponse
from txn.wire.encoding import encode, encode_body
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_request_schema, load_response_schema

OF_RAFT = {59, 80, 81, 82}
"""APIs that txn does not speak; kio has defaults of its own for their structures."""

PRIMITIVES = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "timedelta_i64": st.integers(0, 2**40),
    "datetime_i64": st.integers(0, 2**41),
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.uuids(),
}


def _schemas() -> Iterator[type]:
    """Every version of each API, requests and answers."""
    for load in (load_request_schema, load_response_schema):
        for api_key in set(range(96)) - OF_RAFT:
            for version in range(20):
                try:
                    yield load(api_key, version)
                except Exception:  # kio's index says in several ways that there is none
                    continue


SCHEMAS = list(_schemas())


@cache
def _mappings(schema: type) -> st.SearchStrategy[dict[str, Any]]:
    """Values of a schema's fields; some that have a default are left out."""
    hints = get_type_hints(schema)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields(schema):
        kind = required if field.default is MISSING else optional
        kind[field.name] = _values(hints[field.name], field.metadata.get("kafka_type"))
    return st.fixed_dictionaries(required, optional=optional)


def _values(hint: Any, kafka_type: str | None) -> st.SearchStrategy[Any]:
    options = get_args(hint)
    for candidate in (hint, *options):
        if get_origin(candidate) is tuple:
            item = get_args(candidate)[0]
            items = st.lists(_values(_without_none(item), kafka_type), max_size=3)
            return st.none() | items if NoneType in options else items
        if isinstance(candidate, type) and hasattr(candidate, "__type__"):
            values = _mappings(candidate)
            return st.none() | values if NoneType in options else values
    assert kafka_type is not None
    values = PRIMITIVES[kafka_type]
    return st.none() | values if NoneType in options and kafka_type != "uuid" else values


def _without_none(hint: Any) -> Any:
    kept = [option for option in get_args(hint) if option is not NoneType]
    return kept[0] if kept and NoneType in get_args(hint) else hint


def _as_kio_has_it(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with times as kio's entities have them; `entity_builder` does the rest."""
    hints = get_type_hints(schema)
    known = {field.name: field for field in fields(schema)}
    return {
        name: _converted(hints[name], known[name].metadata.get("kafka_type"), value)
        for name, value in values.items()
    }


def _converted(hint: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    for candidate in (hint, *get_args(hint)):
        if get_origin(candidate) is tuple:
            item = get_args(candidate)[0]
            return [_converted(item, kafka_type, one) for one in value]
        if isinstance(candidate, type) and hasattr(candidate, "__type__"):
            return _as_kio_has_it(candidate, value)
    if kafka_type == "datetime_i64":
        return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    if kafka_type == "timedelta_i64":
        return datetime.timedelta(milliseconds=value)
    return value


def _name(schema: type) -> str:
    return schema.__module__.removeprefix("kio.schema.")


@pytest.mark.parametrize("schema", SCHEMAS, ids=_name)
def test_the_bytes_are_those_of_the_protocol_library(schema: type) -> None:
    @settings(max_examples=3, deadline=None, database=None)
    @given(values=_mappings(schema))
    def check(values: dict[str, Any]) -> None:
        expected = io.BytesIO()
        entity = entity_builder(schema)(_as_kio_has_it(schema, values))
        entity_writer(schema)(expected, entity)
        assert encode(schema, values).hex() == expected.getvalue().hex()

    check()


def test_every_version_that_is_served_is_among_them() -> None:
    held = {(each.__api_key__, each.__version__) for each in SCHEMAS}  # type: ignore[attr-defined]
    served = SERVED_IN_PYTHON | SERVED_BY_REACTORS
    assert len(SCHEMAS) > 2 * 250
    for key, (low, high) in served.items():
        assert held >= {(key, version) for version in range(low, high + 1)}


def test_names_that_the_version_does_not_have_are_passed_over() -> None:
    schema = load_response_schema(26, 1)
    told = {"error_code": ErrorCode.NONE, "producer_id": 7, "producer_epoch": 3}
    assert encode(schema, told) == bytes(6)


def test_a_field_without_a_default_has_to_be_given() -> None:
    with pytest.raises(TypeError, match=r"EndTxnResponse\.error_code is not given"):
        encode(load_response_schema(26, 1), {})


@pytest.mark.parametrize("value", ["x", None, 2**15])
def test_a_value_that_the_field_cannot_have_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match="EndTxnResponse"):
        encode(load_response_schema(26, 1), {"error_code": value})


def test_null_where_there_can_be_none_is_an_error() -> None:
    schema = load_response_schema(10, 2)  # FindCoordinator: `host` is never null
    told = {"error_code": 0, "error_message": None, "node_id": 1, "host": None, "port": 1}
    with pytest.raises(TypeError, match="cannot be null"):
        encode(schema, told)


@pytest.mark.parametrize("version", [2, 4])
def test_no_array_where_there_has_to_be_one_is_an_error(version: int) -> None:
    """It was written as null, which no client can read: ListGroups always has its groups."""
    with pytest.raises(TypeError, match="no array: None"):
        encode(load_response_schema(16, version), {"error_code": 0, "groups": None})


def test_bytes_that_are_no_uuid_are_an_error() -> None:
    told = {"topics": [{"name": "orders", "topic_id": b"abc", "error_code": 0}]}
    with pytest.raises(TypeError, match="16 bytes"):
        encode(load_response_schema(19, 7), told)


@pytest.mark.parametrize("version", range(5, 8))
def test_structures_in_an_array_that_may_be_null_are_written(version: int) -> None:
    """The writer looked for their class behind arrays alone, and took them for mappings."""
    config = CreatedTopicConfig("cleanup.policy", "delete", False, 5, False)
    topic = CreatedTopic("orders", None, ErrorCode.NONE, None, 1, 1, [config])
    schema = load_response_schema(19, version)
    assert encode_body(schema, CreateTopicsResponse([topic])) == encode(
        schema, {"topics": [topic._asdict() | {"configs": [config._asdict()]}]}
    )


def test_neighbours_of_a_fixed_size_are_written_as_one_by_one() -> None:
    response = EndTxnResponse(ErrorCode.PRODUCER_FENCED, 7, 3)
    for version in range(6):
        schema = load_response_schema(26, version)
        assert encode_body(schema, response) == encode(schema, response._asdict())
