"""Columns of records, as the native engine hands them over, as an Arrow record batch."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from txn.arrow_buffers import binary_array, fixed_array, header_array

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
