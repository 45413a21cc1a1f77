"""Arrow arrays over buffers that Rust has filled, and the buffers of arrays that Rust encodes.

No row is touched in Python, and reading copies nothing.

The buffers of a column of bytes are `NAME_offsets` (int32), `NAME_data` and `NAME_validity` (a
bitmap, or None where no row is null). Headers are lists of pairs: `header_list_offsets`, and the
columns `header_key` and `header_value`.

Source: Arrow Columnar Format 1.5, variable-size binary and variable-size list layouts.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn.errors import RejectedError

Buffers = tuple[bytes, bytes, bytes | None]
"""(int32 offsets, data, validity bitmap or None), all starting at their first row."""

HeaderBuffers = tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None]
"""List offsets and validity, key offsets and data, value offsets, data and validity."""

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


# ---------------------------------------------------------------- reading


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


# ---------------------------------------------------------------- writing


def buffers(column: pa.Array) -> Buffers:
    """The buffers of a string or binary column, starting at its first row.

    Large, view, fixed-size and dictionary-encoded columns become plain ones first.
    """
    flat = plain(column, pa.binary())
    validity, offsets, data = flat.buffers()
    return (
        _bytes(offsets, (len(flat) + 1) * 4) or bytes(4),
        _bytes(data),
        _validity(flat, validity),
    )


def header_buffers(column: pa.Array) -> HeaderBuffers:
    """The buffers of a headers column, starting at its first row.

    Raises:
        RejectedError: a header has no key, which Kafka does not allow.
    """
    flat = plain(column, HEADERS_TYPE)
    keyless = _child(flat.flatten(), 0).null_count  # without entries that no row has
    if keyless:
        raise RejectedError(
            f"{keyless} headers have no key: it is null there, or the whole entry is. Leave them "
            "out, in Spark for example with filter(headers, header -> header.key IS NOT NULL)"
        )
    validity, offsets = flat.buffers()[:2]
    # The pairs of the rows, without those outside of the slice, before and after.
    first, end = (flat.offsets[0].as_py(), flat.offsets[-1].as_py()) if len(flat) else (0, 0)
    pairs = flat.values.slice(first, end - first)
    key_offsets, key_data, _ = buffers(_child(pairs, 0))
    value_offsets, value_data, value_validity = buffers(_child(pairs, 1))
    list_offsets = _bytes(offsets, (len(flat) + 1) * 4) or bytes(4)
    if first:
        list_offsets = number_buffer(pc.subtract(flat.offsets, first), pa.int32())
    return (
        list_offsets,
        _validity(flat, validity),
        key_offsets,
        key_data,
        value_offsets,
        value_data,
        value_validity,
    )


def _child(pairs: pa.StructArray, number: int) -> pa.Array:
    # `flatten` and not `field`: it applies the slice and the pairs' own nulls.
    return pairs.flatten()[number]


def plain(column: Any, type_: pa.DataType) -> Any:
    """Return the column as this type, with its first row at the start of its buffers."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # Text is bytes already; a cast would only check Spark's own data.
    if column.type != type_ and not (pa.types.is_string(column.type) and type_ == pa.binary()):
        column = column.cast(type_)
    if column.offset or _starts_late(column):
        # Two arrays, since a single one would come back as it is.
        column = pa.concat_arrays([column, column.slice(0, 0)])
    return column


def _starts_late(column: Any) -> bool:
    if len(column) == 0 or not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        return False
    (first,) = struct.unpack_from("<i", column.buffers()[1])
    return bool(first)


def _bytes(buffer: pa.Buffer | None, size: int | None = None) -> bytes:
    if buffer is None:
        return b""
    data: bytes = (buffer if size is None else buffer.slice(0, size)).to_pybytes()
    return data


def _validity(column: pa.Array, buffer: pa.Buffer | None) -> bytes | None:
    if column.null_count == 0 or buffer is None:
        return None
    return _bytes(buffer, (len(column) + 7) // 8)


def number_buffer(column: Any, type_: Any) -> bytes:
    """Return the values of a column of numbers without nulls."""
    flat = plain(column, type_)
    return _bytes(flat.buffers()[1], len(flat) * (type_.bit_width // 8))
