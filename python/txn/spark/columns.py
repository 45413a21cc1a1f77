"""Arrow columns to and from the buffers that cross into Rust.

No row is touched in Python: a column is its buffers (validity bitmap, 32-bit offsets, data),
which `txn._core` fills when reading and encodes when writing. The layouts are those of
`txn._core.Columns` and `txn._core.Writer.write`.

Source: Arrow Columnar Format 1.5, variable-size binary and variable-size list layouts.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn.arrow_buffers import (
    binary_array,
    buffers,
    fixed_array,
    header_array,
    header_buffers,
    number_buffer,
    plain,
)
from txn.errors import ConfigError, RejectedError
from txn.spark.kafka import Writer

MS_MAX: Final = (2**63 - 1) // 1_000
"""The time farthest from 1970, in milliseconds, that fits into Spark's microseconds."""

PROGRESS_PARTITION: Final = struct.pack("<i", 0)

BY_KEY: Final = -1
"""The partition of a row that its key decides, as `txn._core.Writer` has it."""


# ---------------------------------------------------------------- reading


def record_batch(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Build a record batch from fetched buffers.

    Args:
        columns: As a `txn._core.Fetch` yields them.
        schema: Some of `txn.spark.options.COLUMNS`, with the types Spark expects.
    """
    rows: int = columns["rows"]
    arrays = [_read_column(columns, rows, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_column(columns: Mapping[str, Any], rows: int, field: Any) -> Any:
    match field.name:
        case "key" | "value" as name:
            return binary_array(columns, name, rows, field.type)
        case "topic":
            return pa.repeat(pa.scalar(columns["topic"], field.type), rows)
        case "partition":
            return pa.repeat(pa.scalar(columns["partition"], field.type), rows)
        case "offset":
            return fixed_array(columns["offsets"], rows, field.type)
        case "timestamp":
            return _times(columns, rows, field.type)
        case "timestampType":
            return fixed_array(columns["timestamp_types"], rows, field.type)
        case "headers":
            return header_array(columns, rows, field.type)
        case name:
            raise AssertionError(f"no column {name}")


def _times(columns: Mapping[str, Any], rows: int, type_: Any) -> Any:
    """The times in microseconds.

    Raises:
        RejectedError: one is too far from 1970 for them. Kafka keeps any number that it is sent.
    """
    times_ms = fixed_array(columns["timestamps_ms"], rows, pa.int64())
    try:
        return pc.multiply_checked(times_ms, 1_000).view(type_)
    except pa.ArrowInvalid:
        is_too_far = pc.or_(pc.greater(times_ms, MS_MAX), pc.less(times_ms, -MS_MAX))
        row = pc.index(is_too_far, True).as_py()
    offset = fixed_array(columns["offsets"], rows, pa.int64())[row].as_py()
    topic, partition = columns["topic"], columns["partition"]
    raise RejectedError(
        f"the record at offset {offset} of {topic}-{partition} has the time {times_ms[row]} ms, "
        f"too far from 1970 for Spark's microseconds. Start at offset {offset + 1}, delete the "
        "records up to it, or leave the column timestamp out of the option columns",
        topic=topic,
        partition=partition,
    )


def keys_and_values(columns: Mapping[str, Any]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the records of one chunk one by one; for the few of the progress topic."""
    rows: int = columns["rows"]
    keys = binary_array(columns, "key", rows, pa.binary()).to_pylist()
    values = binary_array(columns, "value", rows, pa.binary()).to_pylist()
    return zip(keys, values, strict=True)


# ---------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of the rows to write there are, and a topic for those without."""

    has_key: bool
    has_headers: bool
    has_partition: bool
    topic: str | None
    """The option, which overrules the column, as in Spark's Kafka sink; None: the column."""


def layout_of(fields: Sequence[tuple[str, str]], topic: str | None) -> Layout:
    """Check the columns that a sink is given; others than a record's are left out.

    Names count as they are written, as in Spark's Kafka sink, so that a row of the source can
    be written as it is.

    Args:
        fields: (name, Spark's simple type name) of each column.
        topic: The option `topic`; it overrules the column.

    Raises:
        ConfigError: a column is missing, of a wrong type, or there twice.
    """
    types: dict[str, str] = {}
    for name, type_ in fields:
        expected = _SINK_TYPES.get(name)
        if expected is None or (name == "topic" and topic is not None):
            continue
        if name in types:
            raise ConfigError(f"there are two columns {name}. Drop or rename one of them")
        if type_ not in expected:
            raise ConfigError(
                f"the column {name} is {type_}, and has to be {' or '.join(expected)}. Cast it"
            )
        types[name] = type_
    if "value" not in types:
        names = ", ".join(name for name, _ in fields) or "none"
        raise ConfigError(
            f"there is no column value; the columns are {names}. Name one of them value, or put "
            "several into it, for example with to_json(struct(*)) AS value"
        )
    if topic is None and "topic" not in types:
        raise ConfigError("no topic: set the option topic, or give the rows a column topic")
    return Layout(
        has_key="key" in types,
        has_headers="headers" in types,
        has_partition="partition" in types,
        topic=topic,
    )


_SINK_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


def write_batch(writer: Writer, batch: pa.RecordBatch, layout: Layout) -> None:
    """Hand the rows of one record batch to a writer.

    Raises:
        RejectedError: a row has no topic, a negative partition, or a header without a key.
        KafkaError: the cluster refused them.
    """
    columns = {
        name: batch.column(number)
        for number, name in enumerate(batch.schema.names)
        if name in _SINK_TYPES
    }
    if layout.topic is not None:
        _write_rows(writer, layout.topic, columns, layout)
        return
    topics = plain(columns["topic"], pa.string())
    if topics.null_count:
        raise RejectedError(
            f"{topics.null_count} rows have no topic: the column topic is null there, and the "
            "option topic is not set"
        )
    for topic in pc.unique(topics).to_pylist():
        _write_rows(writer, topic, _where(columns, pc.equal(topics, topic)), layout)


def _write_rows(writer: Writer, topic: str, columns: Mapping[str, Any], layout: Layout) -> None:
    if not layout.has_partition:
        _write_part(writer, topic, columns, layout, None)
        return
    chosen = plain(columns["partition"], pa.int32())
    least = pc.min(chosen).as_py()
    if least is not None and least < 0:
        raise RejectedError(
            f"a row has partition {least}, and partitions are numbered from 0. Make it null where "
            "the key decides"
        )
    # A row without a partition goes where its key belongs, as in Spark's Kafka sink. All rows go
    # along in one call, for those of one partition have to keep their order.
    _write_part(
        writer, topic, columns, layout, number_buffer(pc.fill_null(chosen, BY_KEY), pa.int32())
    )


def _write_part(
    writer: Writer,
    topic: str,
    columns: Mapping[str, Any],
    layout: Layout,
    partition: bytes | None,
) -> None:
    rows = len(columns["value"])
    if rows == 0:
        return
    writer.write(
        topic,
        rows,
        buffers(columns["key"]) if layout.has_key else None,
        buffers(columns["value"]),
        header_buffers(columns["headers"]) if layout.has_headers else None,
        partition,
    )


def _where(columns: Mapping[str, Any], mask: Any) -> dict[str, Any]:
    return {name: column.filter(mask) for name, column in columns.items()}


def one_record(writer: Writer, topic: str, key: bytes, value: bytes | None) -> None:
    """Write one record into partition 0."""
    writer.write(
        topic,
        1,
        (struct.pack("<2i", 0, len(key)), key, None),
        (
            struct.pack("<2i", 0, len(value or b"")),
            value or b"",
            None if value is not None else b"\0",
        ),
        None,
        PROGRESS_PARTITION,
    )
