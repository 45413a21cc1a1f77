"""Keys and values of `__transaction_state`.

    key    version int16 (0)  transactional_id string
    value  version int16 (0 or 1), then

           producer_id int64
           producer_epoch int16
           timeout_ms int32
           state int8
           partitions [topic string, [partition int32]], null in Empty
           updated_ms int64
           start_ms int64
           tagged fields (version 1):
               0      previous_producer_id int64
               1      next_producer_id int64
               2      client_version int16
               3      next_producer_epoch int16 (KIP-939)
               10000  last_producer_epoch int16, txn's own
               10001  last_offsets, txn's own: for each partition
                      topic_id uuid, partition int32, leader_epoch int32, offset int64
               10002  unsynced_markers, txn's own: for each marker
                      topic_id uuid, partition int32, offset int64, producer_id int64,
                      producer_epoch int16, is_commit int8

A later tag is passed over. Version 0 has lengths of int16 and int32; version 1 is flexible
(KIP-482): unsigned varints, lengths one up. A tagged field is left out where it has its
default. Kafka writes version 1 with `transaction.version` >= 1; both are read.

`last_offsets` and `unsynced_markers` let a commit wait for the disk once (`unsynced`).

Where this differs from Kafka: Kafka's coordinator keeps `last_producer_epoch` in memory
alone, so a producer whose answer was lost in a restart is fenced. With the field here the producer
continues, and state after recovery is state before it (P8). By the rules of tagged fields
Kafka's readers skip it. Kafka 4.2 also reads but never writes tags 0 and 1. Without
tag 1 a restart between a Prepare and its Complete would forget the new producer id. Tag 3 it
neither writes nor reads.

Sources: Kafka's schemas TransactionLogKey and TransactionLogValue; KIP-482, KIP-890.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from txn.coordinator.transaction.states import (
    AT_REST,
    EMPTY,
    LastOffset,
    Txn,
    TxnState,
    UnsyncedMarker,
)
from txn.identifiers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from txn.wire.varint import unsigned_varint

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
OLD_VALUE_VERSION: Final = 0

TRANSACTIONAL_ID_BYTES_MAX: Final = 32767
"""A key has an int16 length."""

_KEY: Final = struct.Struct(">hh")
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_STATE_AT: Final = _HEAD.size - 1
_PARTITIONS_AT: Final = _HEAD.size
_NO_PARTITIONS: Final = 1
"""The length of an empty list; 0 is null."""
_TIMES_AT: Final = _PARTITIONS_AT + 1
_TAGGED_AT: Final = _TIMES_AT + _TIMES.size

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
_NEXT_PRODUCER_EPOCH: Final = 3
_LAST_PRODUCER_EPOCH: Final = 10_000
_LAST_OFFSETS: Final = 10_001
_UNSYNCED_MARKERS: Final = 10_002

# The fields of `LastOffset` and of `UnsyncedMarker`, in their order.
_LAST_OFFSET: Final = struct.Struct(">16siiq")
_UNSYNCED_MARKER: Final = struct.Struct(">16siqqh?")

_USUAL_TAGGED_BYTES: Final = 64
"""Tagged fields of more bytes are of one id alone."""


TxnRecord = tuple[str, Txn | bytes | None]
"""A record of `__transaction_state`: an id and where it stands; None is a tombstone.

Bytes are the stored value of an id at rest, checked and not decoded.
"""


FEW_PARTITIONS: Final = 16
"""Partitions of a transaction whose encoding is remembered. A client chooses how many it has."""


def encode_key(transactional_id: str) -> bytes:
    """Encode the key of an id's records; at most `TRANSACTIONAL_ID_BYTES_MAX` bytes of it."""
    text = transactional_id.encode()
    return _KEY.pack(KEY_VERSION, len(text)) + text


def decode_key(data: bytes) -> str | None:
    """Decode a key; None for one of a later kind, whose record is to be passed over.

    Raises:
        ValueError: the bytes do not follow the schema.
    """
    if len(data) >= _KEY.size:
        version, size = _KEY.unpack_from(data)
        if version == KEY_VERSION and size == len(data) - _KEY.size:
            return data[_KEY.size :].decode()
    reader = _Reader(data)
    (version,) = reader.unpack("h")
    if version != KEY_VERSION:
        return None
    transactional_id = reader.text(reader.unpack("h")[0])
    reader.expect_end()
    return transactional_id


def encode_value(txn: Txn) -> bytes:
    """Encode the state of an id, in version 1."""
    (
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        start_ms,
        updated_ms,
        previous_producer_id,
        next_producer_id,
        last_producer_epoch,
        client_version,
        next_producer_epoch,
        last_offsets,
        unsynced_markers,
    ) = txn
    count, usual, tagged = _encode_usual_tagged(
        previous_producer_id,
        next_producer_id,
        client_version,
        next_producer_epoch,
        last_producer_epoch,
    )
    if last_offsets or unsynced_markers:
        tagged = _encode_tagged(count, usual, last_offsets, unsynced_markers)
    return b"".join(
        (
            _HEAD.pack(VALUE_VERSION, producer_id, producer_epoch, timeout_ms, state),
            b"\0" if state is EMPTY else _encode_partitions(partitions),
            _TIMES.pack(updated_ms, start_ms),
            tagged,
        )
    )


def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    is_few = len(partitions) <= FEW_PARTITIONS
    return _encode_few(partitions) if is_few else _encode_topics(partitions)


@lru_cache(maxsize=1024)
def _encode_few(partitions: frozenset[TopicPartition]) -> bytes:
    """Encode few partitions: a producer has the same ones again and again."""
    return _encode_topics(partitions)


def _encode_topics(partitions: frozenset[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, []).append(index)
    parts = [unsigned_varint(len(by_topic) + 1)]
    for name in sorted(by_topic):
        topic, indexes = name.encode(), sorted(by_topic[name])
        parts.append(unsigned_varint(len(topic) + 1) + topic)
        parts.append(unsigned_varint(len(indexes) + 1) + struct.pack(f">{len(indexes)}i", *indexes))
        parts.append(b"\0")  # no tagged fields
    return b"".join(parts)


def _encode_tagged(
    count: int,
    usual: bytes,
    last_offsets: tuple[LastOffset, ...],
    unsynced_markers: tuple[UnsyncedMarker, ...],
) -> bytes:
    """Encode all tagged fields, those of `_encode_usual_tagged` first."""
    parts = [usual]
    if last_offsets:
        packed = [_LAST_OFFSET.pack(*each) for each in last_offsets]
        parts.append(_encode_field(_LAST_OFFSETS, b"".join(packed)))
    if unsynced_markers:
        packed = [_UNSYNCED_MARKER.pack(*each) for each in unsynced_markers]
        parts.append(_encode_field(_UNSYNCED_MARKERS, b"".join(packed)))
    return unsigned_varint(count + len(parts) - 1) + b"".join(parts)


def _encode_field(tag: int, data: bytes) -> bytes:
    return unsigned_varint(tag) + unsigned_varint(len(data)) + data


@lru_cache(maxsize=256)
def _encode_usual_tagged(
    previous_producer_id: int,
    next_producer_id: int,
    client_version: int,
    next_producer_epoch: int,
    last_producer_epoch: int,
) -> tuple[int, bytes, bytes]:
    """Encode the tagged fields of one number each; most ids have the same.

    Returns:
        Their count, their bytes, and the bytes of all tagged fields where there are no others.
    """
    fields = (
        (_PREVIOUS_PRODUCER_ID, "q", previous_producer_id, NO_PRODUCER_ID),
        (_NEXT_PRODUCER_ID, "q", next_producer_id, NO_PRODUCER_ID),
        (_CLIENT_VERSION, "h", client_version, 0),
        (_NEXT_PRODUCER_EPOCH, "h", next_producer_epoch, NO_PRODUCER_EPOCH),
        (_LAST_PRODUCER_EPOCH, "h", last_producer_epoch, NO_PRODUCER_EPOCH),
    )
    present = [
        _encode_field(tag, struct.pack(">" + layout, value))
        for tag, layout, value, default in fields
        if value != default
    ]
    usual = b"".join(present)
    return len(present), usual, unsigned_varint(len(present)) + usual


def at_rest_since_ms(data: bytes) -> int | None:
    """Return since when the id of a value is at rest; None if it is not, or of another version.

    Cheap, and looks at nothing else: `check_value` does.
    """
    is_usual = len(data) > _TAGGED_AT and data[1] == VALUE_VERSION and data[0] == 0
    if not is_usual or data[_STATE_AT] not in AT_REST or data[_PARTITIONS_AT] > _NO_PARTITIONS:
        return None
    since_ms: int = _TIMES.unpack_from(data, _TIMES_AT)[0]
    return since_ms


def decode_record(key: bytes, value: bytes | None) -> TxnRecord | None:
    """Decode a stored record; None if its key is of another kind.

    Raises:
        ValueError: the bytes do not follow the schema.
    """
    transactional_id = decode_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return transactional_id, None
    if at_rest_since_ms(value) is None:
        return transactional_id, decode_value(value)
    check_value(value)
    return transactional_id, value


def is_completed_commit(value: Txn | bytes | None) -> bool:
    """Return True if a record is the end of a commit, also one of an id at rest."""
    if isinstance(value, bytes):
        return value[_STATE_AT] == TxnState.COMPLETE_COMMIT
    return value is not None and value.state is TxnState.COMPLETE_COMMIT


def check_value(data: bytes) -> None:
    """Check the value of an id at rest. Raises ValueError: it does not follow the schema."""
    _tagged_of(data[_TAGGED_AT:])


def decode_value(data: bytes) -> Txn:
    """Decode the state of an id, from version 0 or 1.

    Raises:
        ValueError: the bytes do not follow the schema, or are of a later version.
    """
    reader = _Reader(data)
    (version,) = reader.unpack("h")
    if version not in (OLD_VALUE_VERSION, VALUE_VERSION):
        raise ValueError(f"version {version} of a transaction's value is not known")
    is_flexible = version == VALUE_VERSION
    producer_id, producer_epoch, timeout_ms, state = reader.unpack("qhib")
    partitions = _read_partitions(reader) if is_flexible else _read_old_partitions(reader)
    updated_ms, start_ms = reader.unpack("qq")
    tagged = _tagged_of(reader.rest()) if is_flexible else _tagged_of(b"\0")
    reader.expect_end()
    return Txn(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=TxnState(state),
        partitions=frozenset(partitions),
        start_ms=start_ms,
        updated_ms=updated_ms,
        previous_producer_id=tagged.previous_producer_id,
        next_producer_id=tagged.next_producer_id,
        client_version=tagged.client_version,
        next_producer_epoch=tagged.next_producer_epoch,
        last_producer_epoch=tagged.last_producer_epoch,
        last_offsets=tuple(
            LastOffset(*fields) for fields in _LAST_OFFSET.iter_unpack(tagged.last_offsets)
        ),
        unsynced_markers=tuple(
            UnsyncedMarker(*fields)
            for fields in _UNSYNCED_MARKER.iter_unpack(tagged.unsynced_markers)
        ),
    )


class _Tagged(NamedTuple):
    """The tagged fields of a value; lists are as they are stored, in whole entries."""

    previous_producer_id: int
    next_producer_id: int
    client_version: int
    next_producer_epoch: int
    last_producer_epoch: int
    last_offsets: bytes
    unsynced_markers: bytes


def _tagged_of(data: bytes) -> _Tagged:
    """Decode the tagged fields, which end the value."""
    return _usual_tagged(data) if len(data) <= _USUAL_TAGGED_BYTES else _decode_tagged(data)


@lru_cache(maxsize=256)
def _usual_tagged(data: bytes) -> _Tagged:
    """Decode tagged fields that most ids have alike."""
    return _decode_tagged(data)


def _decode_tagged(data: bytes) -> _Tagged:
    reader = _Reader(data)
    tagged = _read_tagged(reader)
    reader.expect_end()
    return _Tagged(
        _tag(tagged, _PREVIOUS_PRODUCER_ID, "q", NO_PRODUCER_ID),
        _tag(tagged, _NEXT_PRODUCER_ID, "q", NO_PRODUCER_ID),
        _tag(tagged, _CLIENT_VERSION, "h", 0),
        _tag(tagged, _NEXT_PRODUCER_EPOCH, "h", NO_PRODUCER_EPOCH),
        _tag(tagged, _LAST_PRODUCER_EPOCH, "h", NO_PRODUCER_EPOCH),
        _tagged_list(tagged, _LAST_OFFSETS, _LAST_OFFSET),
        _tagged_list(tagged, _UNSYNCED_MARKERS, _UNSYNCED_MARKER),
    )


def _read_partitions(reader: "_Reader") -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.varint() - 1):  # 0 is null
        topic = reader.text(reader.varint() - 1)
        count = reader.varint() - 1
        partitions += [(topic, index) for index in reader.int32s(count)]
        _read_tagged(reader)
    return partitions


def _read_old_partitions(reader: "_Reader") -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.unpack("i")[0]):  # -1 is null
        topic = reader.text(reader.unpack("h")[0])
        count = reader.unpack("i")[0]
        partitions += [(topic, index) for index in reader.int32s(count)]
    return partitions


def _read_tagged(reader: "_Reader") -> dict[int, bytes]:
    return {reader.varint(): reader.raw(reader.varint()) for _ in range(reader.varint())}


def _tag(tagged: dict[int, bytes], tag: int, layout: str, default: int) -> int:
    if tag not in tagged:
        return default
    if len(tagged[tag]) != struct.calcsize(layout):
        raise ValueError(f"tagged field {tag} has {len(tagged[tag])} bytes")
    value: int = struct.unpack(">" + layout, tagged[tag])[0]
    return value


def _tagged_list(tagged: dict[int, bytes], tag: int, layout: struct.Struct) -> bytes:
    entries = tagged.get(tag, b"")
    if len(entries) % layout.size:
        raise ValueError(f"tagged field {tag} has {len(entries)} bytes")
    return entries


class _Reader:
    """Takes values off the front of bytes; every length is checked against the rest."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def raw(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(
                f"{size} bytes wanted at {self.position} of a record of {len(self.data)}"
            )
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def rest(self) -> bytes:
        return self.raw(len(self.data) - self.position)

    def expect_end(self) -> None:
        if self.position != len(self.data):
            raise ValueError(f"{len(self.data) - self.position} bytes follow the record's end")

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(">" + layout, self.raw(struct.calcsize(">" + layout)))

    def int32s(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}i", self.raw(4 * count)) if count > 0 else ()

    def text(self, size: int) -> str:
        return self.raw(size).decode()

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self.raw(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a varint ending at {self.position} has more than five bytes")
