"""Records as columns of Arrow, to and from the native engine."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn.arrow_buffers import (
    Buffers,
    HeaderBuffers,
    binary_array,
    buffers,
    fixed_array,
    header_array,
    header_buffers,
    number_buffer,
)
from txn.errors import RejectedError

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", HEADER, nullable=False)), nullable=False),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms"), nullable=False),
    ]
)
"""The columns of `poll_arrow`."""


def record_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a batch of `SCHEMA` over the buffers of `_core.MessageColumns`; nothing is copied."""
    rows = columns["rows"]
    topics = pa.array(columns["topics"], pa.string())
    return pa.RecordBatch.from_arrays(
        [
            binary_array(columns, "key", rows, pa.binary()),
            binary_array(columns, "value", rows, pa.binary()),
            header_array(columns, rows, SCHEMA.field("headers").type),
            pa.DictionaryArray.from_arrays(
                fixed_array(columns["topic_indices"], rows, pa.int32()), topics
            ),
            fixed_array(columns["partitions"], rows, pa.int32()),
            fixed_array(columns["offsets"], rows, pa.int64()),
            fixed_array(columns["timestamps_ms"], rows, pa.timestamp("ms")),
        ],
        schema=SCHEMA,
    )


BY_KEY: Final = -1
"""The partition of a row whose key decides, as the native engine knows it."""

WRITTEN: Final = ("key", "value", "headers", "partition", "timestamp")
"""Columns that `write_arrow` takes."""

SLICE_ROWS: Final = 131_072
"""The most rows whose buffers are copied at a time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The buffers of rows to be written, as `_core.NativeProducer.send_rows` takes them."""

    count: int
    key: Buffers | None
    value: Buffers
    headers: HeaderBuffers | None
    partition: bytes | None
    timestamp_ms: bytes | None


def rows_of(table: Any) -> Iterator[Rows]:
    """Return the rows of a record batch, a table, or a frame that offers Arrow's stream.

    Buffers are copied for `SLICE_ROWS` rows at a time. Every slice is checked before the first one
    is returned, so that a fault in a late row leaves nothing written.

    Raises:
        RejectedError: a column is missing, unknown, of a type that does not fit, or it has a value
            that no record can have. Nothing is written then.
        TypeError: it is none of these.
    """
    first, *others = _slices(table) or [None]
    if first is None:
        return iter(())
    converted = _rows(first)
    for each in others:
        _rows(each)
    return chain([converted], map(_rows, others))


def _slices(table: Any) -> list[Any]:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(
                "write_arrow(): a RecordBatch, a Table, or a frame of polars or pandas, not "
                f"{type(table).__name__}"
            )
        table = pa.table(table)
    return [batch for batch in table.to_batches(max_chunksize=SLICE_ROWS) if batch.num_rows]


def _rows(batch: Any) -> Rows:
    names = batch.schema.names
    if unknown := [name for name in names if name not in WRITTEN or names.count(name) > 1]:
        raise RejectedError(
            f"the batch has columns that cannot be written, or twice: {', '.join(unknown)}. A "
            f"record has {', '.join(WRITTEN)}; select those to write, or rename them"
        )
    if "value" not in names:
        raise RejectedError(
            f"the batch has no column value, only {', '.join(names) or 'none'}. Name the column "
            "with the content value; a null in it is a tombstone"
        )
    columns = {name: batch.column(name) for name in names}
    return Rows(
        count=batch.num_rows,
        key=_converted("key", buffers, columns["key"]) if "key" in columns else None,
        value=_converted("value", buffers, columns["value"]),
        headers=_converted("headers", header_buffers, columns["headers"])
        if "headers" in columns
        else None,
        partition=_converted("partition", _partitions, columns["partition"])
        if "partition" in columns
        else None,
        timestamp_ms=_converted("timestamp", _timestamps_ms, columns["timestamp"])
        if "timestamp" in columns
        else None,
    )


def _converted(name: str, convert: Any, column: Any) -> Any:
    try:
        return convert(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RejectedError(
            f"the column {name} is {column.type}, which does not fit: {error}"
        ) from error


def _partitions(column: Any) -> bytes:
    """Return int32 numbers; -1 where the partition is null, so that the key decides."""
    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise RejectedError(
            f"a row has partition {least}, and partitions are numbered from 0. Make it null where "
            "the key decides"
        )
    return number_buffer(pc.fill_null(column.cast(pa.int32()), BY_KEY), pa.int32())


def _timestamps_ms(column: Any) -> bytes:
    """Return int64 milliseconds since 1970; now where the time is null."""
    if pa.types.is_timestamp(column.type):
        # Finer times lose what a record cannot keep.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    times = pc.fill_null(column.cast(pa.int64()), int(time.time() * 1000))
    least = pc.min(times).as_py()
    if least is not None and least <= 0:
        raise RejectedError(
            f"a row has timestamp {least}; a timestamp is above 0 and counts milliseconds since "
            "1970. Make it null where the time of sending serves"
        )
    return number_buffer(times, pa.int64())
