"""Records as lines of JSON, and places as people write them: nothing ends in a traceback."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.admin.offset_specs import OffsetSpec, OffsetSpecKind, parse_offset_spec
from txn.cli.record_texts import Record, as_json_line, record_of
from txn.errors import ConfigError

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
RECORDS = st.builds(
    Record,
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
    st.none() | st.integers(1, 2**63 - 1),
    partition=st.none() | st.integers(0, 2**31 - 1),
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = ("key", "value", "headers", "timestamp", "partition", "base64")
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@given(RECORDS)
def test_a_line_of_json_is_read_back_as_the_same_record(record: Record) -> None:
    line = as_json_line(record).decode()
    assert line.count("\n") == 1
    assert record_of(line, "line 1") == record


def is_read(line: str) -> bool:
    """Say whether a line is a record; any error but ConfigError goes through."""
    try:
        record = record_of(line, "line 1")
    except ConfigError:
        return False
    as_json_line(record)
    return True


@given(st.text(max_size=30) | VALUES.map(json.dumps) | OBJECTS.map(json.dumps))
def test_a_line_is_a_record_or_a_mistake(line: str) -> None:
    assert is_read(line) in (True, False)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"timestamp": 9223372036854775808}',
        '{"partition": 2147483648}',
        '{"timestamp": true}',
        '{"timestamp": 0}',
        '{"timestamp": ' + "9" * 5_000 + "}",
        r'{"headers": [{"key": "\ud800", "value": null}]}',
        '{"key": {"base64": "ä"}}',
        '{"key": {"base64": 7}}',
    ],
)
def test_a_value_that_no_record_has_is_refused(line: str) -> None:
    assert not is_read(line)


NOW_MS = 1_763_744_767_145


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Earliest", OffsetSpec(OffsetSpecKind.EARLIEST)),
        (" latest ", OffsetSpec(OffsetSpecKind.LATEST)),
        ("0", OffsetSpec(OffsetSpecKind.OFFSET, 0)),
        ("-0", OffsetSpec(OffsetSpecKind.BEFORE_END, 0)),
        ("1500ms-ago", OffsetSpec(OffsetSpecKind.TIME, NOW_MS - 1_500)),
        ("2 h ago", OffsetSpec(OffsetSpecKind.TIME, NOW_MS - 7_200_000)),
        ("999999999d-ago", OffsetSpec(OffsetSpecKind.TIME, 0)),
        ("1970-01-01T01:00+01:00", OffsetSpec(OffsetSpecKind.TIME, 0)),
        ("1969-01-01", OffsetSpec(OffsetSpecKind.TIME, 0)),
    ],
)
def test_a_place_is_read(text: str, place: OffsetSpec) -> None:
    assert parse_offset_spec(text, now_ms=NOW_MS) == place


@pytest.mark.parametrize("text", ["", "2h", "-1h-ago", "9223372036854775808", "²", "tomorrow"])
def test_a_text_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no place in a topic"):
        parse_offset_spec(text, now_ms=NOW_MS)


@given(
    st.text(max_size=12)
    | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}([+-][0-9]{2}:[0-9]{2})?")
)
def test_a_text_is_a_place_or_a_mistake(text: str) -> None:
    try:
        place = parse_offset_spec(text, now_ms=NOW_MS)
    except ConfigError:
        return
    assert 0 <= place.value < 2**63
