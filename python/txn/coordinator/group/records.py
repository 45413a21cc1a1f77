"""The records of `__consumer_offsets`, byte for byte as Apache Kafka stores them. Pure.

A key or value begins with its version as int16. Two kinds of key are here:

    0, 1  OffsetKey  group, topic, partition          → OffsetValue
    2     GroupKey   group                            → GroupValue

A null value is a tombstone. The kinds of consumer groups are in `consumer/records.py`. Others
belong to protocols this broker does not speak: share and streams groups. `decode_record` returns
None for them, so that a directory written by Apache Kafka can be opened.

Written versions: OffsetKey 1, OffsetValue 4 (1 if the commit set its own expiry), GroupKey 2,
GroupValue 3; the same choices as Apache Kafka 4.2. Everything from version 0 on is read. Up to
OffsetValue 3 and GroupValue 3 strings are an int16 length and bytes. From version 4 on they are an
unsigned varint of length + 1 and bytes, and structures end with tagged fields.

Sources: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue message
schemas of Apache Kafka 4.2; KIP-211 (expiry), KIP-345 (static members), KIP-915 (tagged
fields), KIP-848 (topic id of an offset).
"""

import uuid
from typing import Final, NamedTuple

from txn.coordinator.group.consumer.records import (
    ConsumerRecord,
    decode_value,
    encode_value,
)
from txn.coordinator.group.consumer.records import decode_key as decode_consumer_key
from txn.coordinator.group.consumer.records import encode_key as encode_consumer_key
from txn.coordinator.group.record_bytes import (
    FIRST_FLEXIBLE_VERSION,
    RecordReader,
    RecordWriter,
)

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
TOPIC_ID_TAG: Final = 0

NEVER: Final = -1
"""A timestamp that is not set."""

NO_LEADER_EPOCH: Final = -1


class OffsetKey(NamedTuple):
    """Whose offset a record holds."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Whose generation a record holds."""

    group_id: str


class OffsetValue(NamedTuple):
    """One committed offset.

    `expire_timestamp_ms` is set only by OffsetCommit v2-4 with a retention time.
    `topic_id` is None in records older than Kafka 4.1.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER
    topic_id: uuid.UUID | None = None


class MemberValue(NamedTuple):
    """One member of a generation. `assignment` is opaque: a client computed it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """One generation of a group; without members the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


class OffsetRecord(NamedTuple):
    """A record of a committed offset; None is a tombstone.

    With a producer id it counts when that producer's transaction commits.
    """

    key: OffsetKey
    value: OffsetValue | None
    producer_id: int | None = None


class GroupRecord(NamedTuple):
    """A record of a group's generation; None is a tombstone."""

    key: GroupKey
    value: GroupValue | None


def encode_record(
    record: OffsetRecord | GroupRecord | ConsumerRecord,
) -> tuple[bytes, bytes | None]:
    """Encode a record's key and value."""
    if isinstance(record, ConsumerRecord):
        value = None if record.value is None else encode_value(record.value)
        return encode_consumer_key(record.key), value
    if isinstance(record, OffsetRecord):
        offset = None if record.value is None else encode_offset_value(record.value)
        return encode_offset_key(record.key), offset
    group = None if record.value is None else encode_group_value(record.value)
    return encode_group_key(record.key), group


def decode_record(
    key: bytes, value: bytes | None, producer_id: int | None
) -> OffsetRecord | GroupRecord | ConsumerRecord | None:
    """Decode a stored record; None if it belongs to a protocol this broker does not speak.

    Raises:
        ValueError, struct.error: the bytes do not follow the schema.
    """
    decoded = decode_key(key)
    if isinstance(decoded, OffsetKey):
        offset = None if value is None else decode_offset_value(value)
        return OffsetRecord(decoded, offset, producer_id)
    if isinstance(decoded, GroupKey):
        return GroupRecord(decoded, None if value is None else decode_group_value(value))
    of_consumers = decode_consumer_key(key)
    if of_consumers is None:
        return None
    return ConsumerRecord(
        of_consumers, None if value is None else decode_value(of_consumers.kind, value)
    )


# ---------------------------------------------------------------- keys


def encode_offset_key(key: OffsetKey) -> bytes:
    """Encode the key of a committed offset."""
    writer = RecordWriter(OFFSET_KEY_VERSION)
    writer.string(key.group_id)
    writer.string(key.topic)
    writer.int32(key.partition)
    return writer.done()


def encode_group_key(key: GroupKey) -> bytes:
    """Encode the key of a group's generation."""
    writer = RecordWriter(GROUP_KEY_VERSION)
    writer.string(key.group_id)
    return writer.done()


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key; None if it is not one of an offset or of a classic group.

    Raises:
        ValueError: the bytes do not follow the schema.
    """
    reader = RecordReader(data)
    if reader.version <= OFFSET_KEY_VERSION:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if reader.version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None


# ---------------------------------------------------------------- values


def encode_offset_value(value: OffsetValue) -> bytes:
    """Encode a committed offset; in version 1, without leader epoch, if it has its own expiry."""
    if value.expire_timestamp_ms != NEVER:
        writer = RecordWriter(OFFSET_VALUE_VERSION_WITH_EXPIRY)
        writer.int64(value.offset)
        writer.string(value.metadata)
        writer.int64(value.commit_timestamp_ms)
        writer.int64(value.expire_timestamp_ms)
        return writer.done()
    writer = RecordWriter(OFFSET_VALUE_VERSION)
    writer.int64(value.offset)
    writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    writer.tags({} if value.topic_id is None else {TOPIC_ID_TAG: value.topic_id.bytes})
    return writer.done()


def decode_offset_value(data: bytes) -> OffsetValue:
    """Decode a committed offset, versions 0-4.

    Raises:
        ValueError: the version is unknown or the bytes do not follow its schema.
    """
    reader = RecordReader(data)
    if reader.version > OFFSET_VALUE_VERSION:
        raise ValueError(f"a committed offset has version {reader.version}; 0 to 4 are known")
    offset = reader.int64()
    leader_epoch = reader.int32() if reader.version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if reader.version == 1 else NEVER
    tags = reader.tags()
    topic_id = uuid.UUID(bytes=tags[TOPIC_ID_TAG]) if TOPIC_ID_TAG in tags else None
    return OffsetValue(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def encode_group_value(value: GroupValue) -> bytes:
    """Encode one generation of a group."""
    writer = RecordWriter(GROUP_VALUE_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.nullable_string(value.protocol)
    writer.nullable_string(value.leader)
    writer.int64(value.state_timestamp_ms)
    writer.int32(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.nullable_string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.blob(member.subscription)
        writer.blob(member.assignment)
    return writer.done()


def decode_group_value(data: bytes) -> GroupValue:
    """Decode one generation of a group, versions 0-4.

    Version 0 has no rebalance timeout: the session timeout stands in for it.

    Raises:
        ValueError: the version is unknown or the bytes do not follow its schema.
    """
    reader = RecordReader(data)
    if reader.version > FIRST_FLEXIBLE_VERSION:
        raise ValueError(f"a group's generation has version {reader.version}; 0 to 4 are known")
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_timestamp_ms = reader.int64() if reader.version >= 2 else NEVER
    members = tuple(_decode_member(reader) for _ in range(reader.count()))
    reader.tags()
    return GroupValue(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _decode_member(reader: RecordReader) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if reader.version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if reader.version >= 1 else NEVER
    session_timeout_ms = reader.int32()
    subscription = reader.blob()
    assignment = reader.blob()
    reader.tags()
    if rebalance_timeout_ms == NEVER:
        rebalance_timeout_ms = session_timeout_ms
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
