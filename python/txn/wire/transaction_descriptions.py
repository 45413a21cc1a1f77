"""The body of a DescribeTransactions answer (v0), read by hand, and txn's addition to it.

The protocol library cannot read a start time of -1, which every id at rest has. txn's broker adds
a tagged field at the end of the body: the last client of each id, for which Kafka has no field. It
goes to clients with a client id of `TOOL_CLIENT_IDS` alone. Readers are to pass over unknown tags
(KIP-482), but not all do.

    body      throttle_time_ms int32, states [state], tagged fields:
                  10000  JSON: transactional id → client_id, client_host, seen_ms, request,
                         is_connected, updated_ms
    state     error_code int16, transactional_id string, state string, timeout_ms int32,
              start_ms int64, producer_id int64, producer_epoch int16,
              topics [topic string, partitions [int32], no tagged fields], no tagged fields

Arrays and strings are compact: unsigned varint lengths, one up. Source: KIP-664.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from txn.wire.error_codes import ErrorCode
from txn.wire.kio import readers
from txn.wire.varint import unsigned_varint

T = TypeVar("T")

EXPLAIN_CLIENT_ID: Final = "txn-explain"
"""The client id of the commands that read."""
ABORT_CLIENT_ID: Final = "txn-transactions-abort"
"""The client id of an operator's abort: the coordinator names it as the last client of the id."""
CONSOLE_CLIENT_ID: Final = "txn-console"
TOOL_CLIENT_IDS: Final = frozenset({EXPLAIN_CLIENT_ID, ABORT_CLIENT_ID, CONSOLE_CLIENT_ID})
ACTING_CLIENTS_TAG: Final = 10_000


class TransactionDescription(NamedTuple):
    """A coordinator's entry of one transactional id; with an error code, the rest is empty."""

    code: ErrorCode
    transactional_id: str
    label: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]


Extra = Mapping[str, str | int]

Extras = Mapping[str, Extra]
"""Transactional id → the fields of tag 10000."""


def with_extras(body: bytes, extras: Extras) -> bytes:
    """Add the tagged field to an encoded body, which has no tagged fields yet."""
    assert body.endswith(b"\0"), "a flexible body ends with its tagged fields"
    content = json.dumps(extras).encode()
    tag = unsigned_varint(ACTING_CLIENTS_TAG)
    return body[:-1] + b"\x01" + tag + unsigned_varint(len(content)) + content


def decode_descriptions(body: bytes) -> tuple[list[TransactionDescription], Extras]:
    """Decode a body.

    Returns:
        The entry of each id, and the content of the tagged field; empty from Apache Kafka.

    Raises:
        ValueError: the bytes do not follow the schema.
    """
    reader = _Body(body)
    reader.take(readers.read_int32)
    descriptions = [_read_description(reader) for _ in range(reader.length())]
    extras = reader.tagged().get(ACTING_CLIENTS_TAG)
    return descriptions, {} if extras is None else json.loads(extras)


def _read_description(reader: "_Body") -> TransactionDescription:
    code = ErrorCode(reader.take(readers.read_int16))
    transactional_id = reader.take(readers.read_compact_string)
    label = reader.take(readers.read_compact_string)
    timeout_ms = reader.take(readers.read_int32)
    start_ms = reader.take(readers.read_int64)
    producer_id = reader.take(readers.read_int64)
    producer_epoch = reader.take(readers.read_int16)
    partitions = []
    for _ in range(reader.length()):
        topic = reader.take(readers.read_compact_string)
        partitions += [(topic, reader.take(readers.read_int32)) for _ in range(reader.length())]
        reader.tagged()
    reader.tagged()
    return TransactionDescription(
        code,
        transactional_id,
        label,
        timeout_ms,
        start_ms,
        producer_id,
        producer_epoch,
        frozenset(partitions),
    )


class _Body:
    """Takes values off the front of a body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, read: readers.Reader[T]) -> T:
        value, size = read(self._data, self._position)
        self._position += size
        return value

    def length(self) -> int:
        return int(self.take(readers.read_unsigned_varint)) - 1

    def tagged(self) -> dict[int, bytes]:
        fields: dict[int, bytes] = {}
        for _ in range(self.take(readers.read_unsigned_varint)):
            tag, size = (self.take(readers.read_unsigned_varint) for _ in range(2))
            end = self._position + size
            fields[tag] = self._data[self._position : end]
            self._position = end
        return fields
