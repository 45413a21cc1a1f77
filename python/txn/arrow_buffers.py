"""Arrow arrays over buffers that Rust has filled: nothing is copied, and no row is touched.

The buffers of a column of bytes are `NAME_offsets` (int32), `NAME_data` and `NAME_validity` (a
bitmap, or None where no row is null). Headers are lists of pairs: `header_list_offsets`, and the
columns `header_key` and `header_value`.

Source: Arrow Columnar Format 1.5, variable-size binary and variable-size list layouts.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def binary_array(columns: Mapping[str, Any], name: str, rows: int, type_: Any) -> Any:
    """Return the array of a column of bytes or text, of so many rows."""
    return _array_of_bytes(columns, name, rows, type_, columns[f"{name}_validity"])


def fixed_array(data: bytes, rows: int, type_: Any) -> Any:
    """Return an array of numbers without nulls."""
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(data)])


def header_array(columns: Mapping[str, Any], rows: int, type_: Any) -> Any:
    """Return the array of headers, of a type that is a list of structs of key and value."""
    pair = type_.value_type
    count = len(columns["header_key_offsets"]) // 4 - 1
    keys = _array_of_bytes(columns, "header_key", count, pair[0].type, None)
    values = binary_array(columns, "header_value", count, pair[1].type)
    pairs = pa.Array.from_buffers(pair, count, [None], children=[keys, values])
    offsets = pa.py_buffer(columns["header_list_offsets"])
    buffers = [_buffer_or_none(columns.get("header_list_validity")), offsets]
    return pa.Array.from_buffers(type_, rows, buffers, children=[pairs])


def _array_of_bytes(
    columns: Mapping[str, Any], name: str, rows: int, type_: Any, validity: bytes | None
) -> Any:
    offsets, data = (pa.py_buffer(columns[f"{name}_{part}"]) for part in ("offsets", "data"))
    return pa.Array.from_buffers(type_, rows, [_buffer_or_none(validity), offsets, data])


def _buffer_or_none(data: bytes | None) -> Any:
    return None if data is None else pa.py_buffer(data)
