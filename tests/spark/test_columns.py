"""Arrow arrays of every layout become the buffers that Rust reads, and the reverse."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txn.arrow_buffers import HEADERS_TYPE, buffers, header_buffers
from txn.errors import ConfigError, RejectedError
from txn.spark.columns import (
    Layout,
    layout_of,
    record_batch,
    write_batch,
)

values = st.lists(st.none() | st.binary(max_size=5), max_size=20)
headers = st.lists(
    st.none()
    | st.lists(
        st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary()}),
        max_size=3,
    ),
    max_size=12,
)


class Recorder:
    """A writer that turns its input back into rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Any, Any, Any, Any]] = []

    def write(
        self,
        topic: str,
        rows: int,
        key: tuple[bytes, bytes, bytes | None] | None,
        value: tuple[bytes, bytes, bytes | None],
        headers: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None] | None = None,
        partition: bytes | None = None,
        timestamp_ms: bytes | None = None,
    ) -> None:
        keys = [None] * rows if key is None else read_back(key, rows)
        listed = [None] * rows if headers is None else read_headers_back(headers, rows)
        numbers = [None] * rows
        if partition is not None:
            array = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(partition)])
            numbers = array.to_pylist()
        self.rows += list(
            zip([topic] * rows, keys, read_back(value, rows), listed, numbers, strict=True)
        )

    def flush(self) -> int:
        return len(self.rows)


def read_back(found: tuple[bytes, bytes, bytes | None], rows: int) -> list[bytes | None]:
    columns = dict(zip(("c_offsets", "c_data", "c_validity"), found, strict=True))
    validity = found[2]
    array = pa.Array.from_buffers(
        pa.binary(),
        rows,
        [
            None if validity is None else pa.py_buffer(validity),
            pa.py_buffer(columns["c_offsets"]),
            pa.py_buffer(columns["c_data"]),
        ],
    )
    array.validate(full=True)
    found_values: list[bytes | None] = array.to_pylist()
    return found_values


def read_headers_back(
    found: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None], rows: int
) -> list[Any]:
    names = (
        *("header_list_offsets", "header_list_validity", "header_key_offsets", "header_key_data"),
        *("header_value_offsets", "header_value_data", "header_value_validity"),
    )
    columns = {"rows": rows, **dict(zip(names, found, strict=True))}
    batch = record_batch(columns, pa.schema([("headers", HEADERS_TYPE)]))
    batch.validate(full=True)
    listed: list[Any] = batch.column(0).to_pylist()
    return listed


LAYOUTS = {
    "binary": lambda array: array,
    "large": lambda array: array.cast(pa.large_binary()),
    "view": lambda array: array.cast(pa.binary_view()),
    "dictionary": lambda array: array.dictionary_encode(),
    "chunked": lambda array: pa.chunked_array([array.slice(0, 3), array.slice(3)]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None)
@given(values=values, start=st.integers(0, 5), end=st.integers(0, 5))
def test_any_layout_and_any_slice_gives_the_same_rows(
    layout: str, values: list[bytes | None], start: int, end: int
) -> None:
    part = slice(start, max(start, len(values) - end))
    array = LAYOUTS[layout](pa.array(values, pa.binary()))[part.start : part.stop]
    assert read_back(buffers(array), len(values[part])) == values[part]


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=5), max_size=20))
def test_text_is_its_bytes(texts: list[str | None]) -> None:
    expected = [None if text is None else text.encode() for text in texts]
    assert read_back(buffers(pa.array(texts, pa.string())), len(texts)) == expected
    assert read_back(buffers(pa.array(texts, pa.large_string())), len(texts)) == expected


@settings(deadline=None)
@given(headers=headers, start=st.integers(0, 4))
def test_headers_come_back_from_any_slice(headers: list[Any], start: int) -> None:
    array = pa.array(headers, HEADERS_TYPE).slice(start)
    assert read_headers_back(header_buffers(array), len(array)) == headers[start:]


def test_every_column_of_the_source_is_built_from_its_buffers() -> None:
    key = buffers(pa.array([b"a", None]))
    value = buffers(pa.array([b"", b"xyz"]))
    columns = {
        "rows": 2,
        "topic": "t",
        "partition": 3,
        "offsets": pa.array([7, 9], pa.int64()).buffers()[1].to_pybytes(),
        "timestamps_ms": pa.array([1, -1], pa.int64()).buffers()[1].to_pybytes(),
        "timestamp_types": pa.array([0, 1], pa.int32()).buffers()[1].to_pybytes(),
        **dict(zip(("key_offsets", "key_data", "key_validity"), key, strict=True)),
        **dict(zip(("value_offsets", "value_data", "value_validity"), value, strict=True)),
    }
    schema = pa.schema(
        [
            ("value", pa.binary()),
            ("key", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
        ]
    )
    batch = record_batch(columns, schema)
    batch.validate(full=True)
    rows = [[column[row].as_py() for column in batch.columns] for row in range(2)]
    assert [row[:5] + row[6:] for row in rows] == [
        [b"", b"a", "t", 3, 7, 0],
        [b"xyz", None, "t", 3, 9, 1],
    ]
    assert batch.column(5).cast(pa.int64()).to_pylist() == [1_000, -1_000]


FARTHEST_MS = (2**63 - 1) // 1_000


@pytest.mark.parametrize(
    "time_ms", [FARTHEST_MS + 1, -FARTHEST_MS - 1, 2**63 - 1, -(2**63), 2**63 // 1_000 * 500]
)
def test_time_that_does_not_fit_into_microseconds_is_an_error_that_names_its_record(
    time_ms: int,
) -> None:
    """It was shown as the year 294247. A watermark went there, and all later rows were late."""
    times = [0, FARTHEST_MS, -FARTHEST_MS, time_ms]
    columns = {
        "rows": 4,
        "topic": "t",
        "partition": 3,
        "offsets": pa.array([5, 6, 7, 9], pa.int64()).buffers()[1].to_pybytes(),
        "timestamps_ms": pa.array(times, pa.int64()).buffers()[1].to_pybytes(),
    }
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    with pytest.raises(
        RejectedError, match=rf"record at offset 9 of t-3 has the time {time_ms} ms"
    ):
        record_batch(columns, schema)
    fitting = record_batch({**columns, "rows": 3}, schema).column(0)
    assert fitting.cast(pa.int64()).to_pylist() == [time * 1_000 for time in times[:3]]
    unasked = record_batch(columns, pa.schema([("offset", pa.int64())]))
    assert unasked.num_rows == 4


def written(columns: dict[str, Any], layout: Layout) -> list[tuple[str, Any, Any, Any, Any]]:
    recorder = Recorder()
    write_batch(recorder, pa.RecordBatch.from_pydict(columns), layout)
    return recorder.rows


def test_rows_go_to_the_topic_in_their_column_in_order() -> None:
    layout = layout_of([("value", "string"), ("topic", "string")], None)
    rows = written({"value": ["1", "2", "3"], "topic": ["a", "b", "a"]}, layout)
    assert [(row[0], row[2]) for row in rows] == [("a", b"1"), ("a", b"3"), ("b", b"2")]


def test_option_topic_overrules_the_column() -> None:
    layout = layout_of([("value", "string"), ("topic", "string")], "c")
    rows = written({"value": ["1"], "topic": [None]}, layout)
    assert [(row[0], row[2]) for row in rows] == [("c", b"1")]


def test_row_without_topic_is_refused() -> None:
    layout = layout_of([("value", "string"), ("topic", "string")], None)
    with pytest.raises(RejectedError, match="1 rows have no topic"):
        written({"value": ["1", "2"], "topic": ["a", None]}, layout)


def test_rows_with_and_without_a_partition_keep_their_order() -> None:
    """Those without were written first, so rows 1 2 3 4 could lie as 2 4 1 3 in one partition.

    -1 leaves the choice to the key.
    """
    layout = layout_of([("key", "binary"), ("value", "binary"), ("partition", "int")], "t")
    columns = {
        "key": pa.array([b"k1", b"k2", b"k3", None]),
        "value": pa.array([b"1", b"2", b"3", b"4"]),
        "partition": pa.array([2, None, 0, None], pa.int32()),
    }
    assert written(columns, layout) == [
        ("t", b"k1", b"1", None, 2),
        ("t", b"k2", b"2", None, -1),
        ("t", b"k3", b"3", None, 0),
        ("t", None, b"4", None, -1),
    ]


@pytest.mark.parametrize("partition", [-1, -7])
def test_negative_partition_is_refused(partition: int) -> None:
    columns = {"value": ["1", "2"], "partition": pa.array([None, partition], pa.int32())}
    with pytest.raises(RejectedError, match=f"a row has partition {partition}"):
        written(columns, layout_of([("value", "string"), ("partition", "int")], "t"))


@pytest.mark.parametrize("listed", [[{"key": None, "value": b"1"}], [None]])
def test_header_without_a_key_is_refused(listed: list[Any]) -> None:
    """It was written with the key "". Spark's sink fails there, too."""
    columns = {"value": ["1", "2"], "headers": pa.array([None, listed], HEADERS_TYPE)}
    fields = [("value", "string"), ("headers", "array<struct<key:string,value:binary>>")]
    with pytest.raises(RejectedError, match="1 headers have no key"):
        written(columns, layout_of(fields, "t"))


def test_headers_that_no_row_has_are_not_looked_at() -> None:
    """Arrow allows entries before and behind a slice, and behind a list that is null."""
    pairs = pa.array([None, {"key": "a", "value": None}, None], HEADERS_TYPE.value_type)
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    column = pa.ListArray.from_arrays(offsets, pairs, HEADERS_TYPE)
    hidden = pa.ListArray.from_arrays(
        offsets, pairs, HEADERS_TYPE, mask=pa.array([True, False, True])
    )
    expected = [[{"key": "a", "value": None}]]
    assert read_headers_back(header_buffers(column.slice(1, 1)), 1) == expected
    assert read_headers_back(header_buffers(hidden), 3) == [None, *expected, None]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("key", "string")], "there is no column value"),
        ([("value", "int")], "the column value is int, and has to be string or binary"),
        ([("Value", "string")], "there is no column value; the columns are Value"),
        ([("value", "string"), ("value", "string")], "there are two columns value"),
        ([("value", "string"), ("partition", "bigint")], "partition is bigint, and has to be int"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    fields: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        layout_of(fields, "t")


def test_columns_that_no_record_has_are_left_out() -> None:
    """A row of the source is written as it is."""
    fields = [("value", "string"), ("offset", "bigint"), ("timestamp", "timestamp"), ("Key", "int")]
    assert layout_of(fields, "t") == layout_of(fields[:1], "t")
    columns = {"value": ["1"], "offset": [7], "timestamp": [0], "Key": [1]}
    assert written(columns, layout_of(fields, "t")) == [("t", None, b"1", None, None)]


def test_column_topic_may_be_anything_when_the_option_overrules_it() -> None:
    layout = layout_of([("value", "string"), ("topic", "int")], "t")
    assert written({"value": ["1"], "topic": [3]}, layout) == [("t", None, b"1", None, None)]


def test_rows_without_any_topic_are_refused_before_they_are_written() -> None:
    with pytest.raises(ConfigError, match="no topic: set the option topic"):
        layout_of([("value", "string")], None)
