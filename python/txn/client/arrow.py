"""Columns of records, as the native engine hands them over, as an Arrow record batch."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

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
            _binary(columns, "key", rows, pa.binary()),
            _binary(columns, "value", rows, pa.binary()),
            _headers(columns, rows),
            pa.DictionaryArray.from_arrays(
                _fixed(columns["topic_indices"], rows, pa.int32()), topics
            ),
            _fixed(columns["partitions"], rows, pa.int32()),
            _fixed(columns["offsets"], rows, pa.int64()),
            _fixed(columns["timestamps_ms"], rows, pa.timestamp("ms")),
        ],
        schema=SCHEMA,
    )


def _headers(columns: Mapping[str, Any], rows: int) -> Any:
    count = len(columns["header_key_offsets"]) // 4 - 1
    keys = _binary(columns, "header_key", count, pa.string())
    values = _binary(columns, "header_value", count, pa.binary())
    pairs = pa.Array.from_buffers(HEADER, count, [None], children=[keys, values])
    return pa.Array.from_buffers(
        SCHEMA.field("headers").type,
        rows,
        [None, pa.py_buffer(columns["header_list_offsets"])],
        children=[pairs],
    )


def _binary(columns: Mapping[str, Any], name: str, rows: int, type_: Any) -> Any:
    validity = columns[f"{name}_validity"]
    return pa.Array.from_buffers(
        type_,
        rows,
        [
            pa.py_buffer(validity) if validity is not None else None,
            pa.py_buffer(columns[f"{name}_offsets"]),
            pa.py_buffer(columns[f"{name}_data"]),
        ],
    )


def _fixed(data: bytes, rows: int, type_: Any) -> Any:
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(data)])
