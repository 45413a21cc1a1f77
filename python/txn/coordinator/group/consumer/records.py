"""The records of consumer groups in `__consumer_offsets`, byte for byte as Apache Kafka has them.

A key begins with its kind as int16. All values have version 0, which is flexible:

     3  EPOCH           group            → EpochValue
     4  PARTITIONS      group            → Kafka 4.0 and older; read and passed over
     5  MEMBER          group, member    → MemberValue
     6  TARGET          group            → TargetValue
     7  TARGET_MEMBER   group, member    → TargetMemberValue
     8  CURRENT         group, member    → CurrentValue
    16  PATTERN         group, pattern   → PatternValue

A null value is a tombstone. Tagged fields that are unknown here are kept: in `tags`, in
`topic_tags` those of topics, and in `protocol_tags` those of a classic member's protocols. A
changed value is written with them, as far as its topics and protocols are still the same.

Sources: the ConsumerGroup* message schemas of Apache Kafka 4.4; KIP-848, KIP-1101 (metadata hash),
KIP-1251 (assignment epochs), KIP-1263 (assignment timestamp).
"""

import struct
import uuid
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from txn.coordinator.group.members import Protocols
from txn.coordinator.group.record_bytes import RecordReader, RecordWriter

VALUE_VERSION: Final = 0
HASH_TAG: Final = 0
CLASSIC_TAG: Final = 0
"""The data of a member that speaks the classic protocol."""
TIMESTAMP_TAG: Final = 0
EPOCHS_TAG: Final = 0
PRESENT: Final = 1
NULL: Final = b"\0"
"""Begin a structure that could be null, or stand for null."""

Tags = Mapping[int, bytes]
NO_TAGS: Final[Tags] = MappingProxyType({})

NO_TOPIC_TAGS: Final[Mapping[uuid.UUID, Tags]] = MappingProxyType({})
NO_PROTOCOL_TAGS: Final[Mapping[str, Tags]] = MappingProxyType({})

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Topic id → partitions; a topic without partitions is left out."""

Owned = Mapping[uuid.UUID, Mapping[int, int]]
"""Topic id → partition → epoch in which the member got it."""


class Kind(IntEnum):
    """The kinds of records, by the version of their keys."""

    EPOCH = 3
    PARTITIONS = 4
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT = 8
    PATTERN = 16


KINDS: Final = frozenset(Kind)
NAMED: Final = frozenset({Kind.MEMBER, Kind.TARGET_MEMBER, Kind.CURRENT, Kind.PATTERN})
"""Kinds whose key has a second part: a member id or a pattern."""


class MemberState(IntEnum):
    """The state of a member on its way to the target assignment, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerKey(NamedTuple):
    """A record's kind, its group, and the member id or pattern, where the kind has one."""

    kind: Kind
    group_id: str
    name: str = ""


class EpochValue(NamedTuple):
    """A group's epoch, and the hash of the topics it consumes."""

    epoch: int
    metadata_hash: int = 0
    tags: Tags = NO_TAGS


class ClassicMember(NamedTuple):
    """The data of a member that speaks the classic protocol: name and metadata of its protocols."""

    session_timeout_ms: int
    protocols: Protocols
    tags: Tags = NO_TAGS
    protocol_tags: Mapping[str, Tags] = NO_PROTOCOL_TAGS

    def with_tags_of(self, before: Self | None) -> Self:
        """The same data with the tagged fields that were stored before it."""
        if before is None:
            return self
        names = {name for name, _ in self.protocols}
        kept = {name: tags for name, tags in before.protocol_tags.items() if name in names}
        return self._replace(tags=before.tags, protocol_tags=kept)


class MemberValue(NamedTuple):
    """A member's subscription. A pattern that is empty stands for none."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    tags: Tags = NO_TAGS
    classic: ClassicMember | None = None


class TargetValue(NamedTuple):
    """The epoch of the target assignment, and the time of day at which it was computed."""

    epoch: int
    timestamp_ms: int = 0
    tags: Tags = NO_TAGS


class TargetMemberValue(NamedTuple):
    """A member's part of the target assignment."""

    partitions: Assignment
    tags: Tags = NO_TAGS
    topic_tags: Mapping[uuid.UUID, Tags] = NO_TOPIC_TAGS

    def changed(self, partitions: Assignment) -> Self:
        """Another part of the same member, with the tagged fields that still apply."""
        kept = {each: tags for each, tags in self.topic_tags.items() if each in partitions}
        return self._replace(partitions=partitions, topic_tags=kept)


class CurrentValue(NamedTuple):
    """The partitions that a member owns, and those that it has to give back."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Owned
    revoking: Owned
    tags: Tags = NO_TAGS
    topic_tags: Mapping[uuid.UUID, Tags] = NO_TOPIC_TAGS
    """The tagged fields of a topic's partitions that are unknown here."""

    def without_left_tags(self) -> Self:
        """The same value without the tagged fields of topics of which it has no partition."""
        if not self.topic_tags:
            return self
        here = self.assigned.keys() | self.revoking.keys()
        kept = {each: tags for each, tags in self.topic_tags.items() if each in here}
        return self._replace(topic_tags=kept)


class PatternValue(NamedTuple):
    """The topics that a pattern matches, in a version of the metadata, at a time of day."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
    tags: Tags = NO_TAGS


ConsumerValue = (
    EpochValue | MemberValue | TargetValue | TargetMemberValue | CurrentValue | PatternValue
)


class ConsumerRecord(NamedTuple):
    """A record of a consumer group; without a value it is a tombstone."""

    key: ConsumerKey
    value: ConsumerValue | None


Records = tuple[ConsumerRecord, ...]


def record(
    kind: Kind, group_id: str, value: ConsumerValue | None, name: str = ""
) -> ConsumerRecord:
    """A record of a group; without a value it is a tombstone."""
    return ConsumerRecord(ConsumerKey(kind, group_id, name), value)


# ---------------------------------------------------------------- keys


def encode_key(key: ConsumerKey) -> bytes:
    """Encode a record's key."""
    writer = RecordWriter(key.kind, is_flexible=False)
    writer.string(key.group_id)
    if key.kind in NAMED:
        writer.string(key.name)
    return writer.done()


def decode_key(data: bytes) -> ConsumerKey | None:
    """Decode a key; None if its kind is not one of a consumer group.

    Raises:
        ValueError, struct.error: the bytes do not follow the schema.
    """
    reader = RecordReader(data, is_flexible=False)
    if reader.version not in KINDS:
        return None
    kind = Kind(reader.version)
    return ConsumerKey(kind, reader.string(), reader.string() if kind in NAMED else "")


# ---------------------------------------------------------------- values


def encode_value(value: ConsumerValue) -> bytes:
    """Encode a record's value."""
    writer = RecordWriter(VALUE_VERSION, is_flexible=True)
    tags = dict(value.tags)
    match value:
        case EpochValue(epoch, metadata_hash):
            writer.int32(epoch)
            _put_number(tags, HASH_TAG, metadata_hash)
        case MemberValue():
            writer.nullable_string(value.instance_id)
            writer.nullable_string(value.rack_id)
            writer.string(value.client_id)
            writer.string(value.client_host)
            _write_names(writer, value.topics)
            writer.nullable_string(value.pattern)
            writer.int32(value.rebalance_timeout_ms)
            writer.nullable_string(value.assignor)
            # Without this field Kafka takes the member for a classic one.
            tags[CLASSIC_TAG] = NULL if value.classic is None else _classic_bytes(value.classic)
        case TargetValue(epoch, timestamp_ms):
            writer.int32(epoch)
            _put_number(tags, TIMESTAMP_TAG, timestamp_ms)
        case TargetMemberValue():
            writer.count(len(value.partitions))
            for topic_id, numbers in _by_id(value.partitions):
                writer.identifier(topic_id)
                writer.int32s(sorted(numbers))
                writer.tags(value.topic_tags.get(topic_id, NO_TAGS))
        case CurrentValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.int8(value.state)
            _write_owned(writer, value.assigned, value.topic_tags)
            _write_owned(writer, value.revoking, value.topic_tags)
        case PatternValue():
            _write_names(writer, tuple(sorted(value.topics)))
            writer.int64(value.version)
            writer.int64(value.timestamp_ms)
    writer.tags(tags)
    return writer.done()


def decode_value(kind: Kind, data: bytes) -> ConsumerValue | None:
    """Decode a record's value; None for a kind that is passed over.

    Raises:
        ValueError, struct.error: the version is unknown, or the bytes do not follow its schema.
    """
    reader = RecordReader(data, is_flexible=True)
    if reader.version != VALUE_VERSION:
        raise ValueError(f"a record of a consumer group has version {reader.version}; 0 is known")
    value: ConsumerValue
    match kind:
        case Kind.EPOCH:
            epoch, tags = reader.int32(), reader.tags()
            value = EpochValue(epoch, _take_number(tags, HASH_TAG), tags)
        case Kind.MEMBER:
            member = MemberValue(
                instance_id=reader.nullable_string(),
                rack_id=reader.nullable_string(),
                client_id=reader.string(),
                client_host=reader.string(),
                topics=_read_names(reader),
                pattern=reader.nullable_string(),
                rebalance_timeout_ms=reader.int32(),
                assignor=reader.nullable_string(),
            )
            tags = reader.tags()
            classic = _take_classic(tags)
            value = member._replace(tags=tags, classic=classic)
        case Kind.TARGET:
            epoch, tags = reader.int32(), reader.tags()
            value = TargetValue(epoch, _take_number(tags, TIMESTAMP_TAG), tags)
        case Kind.TARGET_MEMBER:
            partitions: dict[uuid.UUID, frozenset[int]] = {}
            topic_tags: dict[uuid.UUID, Tags] = {}
            for _ in range(reader.count()):
                topic_id = reader.identifier()
                partitions[topic_id] = frozenset(reader.int32s())
                if tags := reader.tags():
                    topic_tags[topic_id] = tags
            value = TargetMemberValue(partitions, reader.tags(), topic_tags)
        case Kind.CURRENT:
            epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
            topic_tags = {}
            value = CurrentValue(
                epoch,
                previous_epoch,
                MemberState(state) if state in STATES else MemberState.UNKNOWN,
                _read_owned(reader, epoch, topic_tags),
                _read_owned(reader, epoch, topic_tags),
                reader.tags(),
                topic_tags,
            )
        case Kind.PATTERN:
            value = PatternValue(
                frozenset(_read_names(reader)), reader.int64(), reader.int64(), reader.tags()
            )
        case Kind.PARTITIONS:
            return None
    return value


STATES: Final = frozenset(MemberState)


def _put_number(tags: dict[int, bytes], tag: int, number: int) -> None:
    """Write a tagged int64, unless it has its default."""
    if number:
        tags[tag] = struct.pack(">q", number)


def _take_number(tags: dict[int, bytes], tag: int) -> int:
    data = tags.pop(tag, None)
    if data is None:
        return 0
    number: int = struct.unpack(">q", data)[0]
    return number


def _classic_bytes(classic: ClassicMember) -> bytes:
    writer = RecordWriter(VALUE_VERSION, is_flexible=True)
    writer.int8(PRESENT)
    writer.int32(classic.session_timeout_ms)
    writer.count(len(classic.protocols))
    for name, metadata in classic.protocols:
        writer.string(name)
        writer.blob(metadata)
        writer.tags(classic.protocol_tags.get(name, NO_TAGS))
    writer.tags(classic.tags)
    return writer.done()[2:]


def _take_classic(tags: dict[int, bytes]) -> ClassicMember | None:
    data = tags.pop(CLASSIC_TAG, None)
    if data is None:
        return None
    reader = RecordReader(b"\0\0" + data, is_flexible=True)
    if reader.int8() != PRESENT:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    protocol_tags: dict[str, Tags] = {}
    for _ in range(reader.count()):
        name = reader.string()
        protocols.append((name, reader.blob()))
        if of_protocol := reader.tags():
            protocol_tags[name] = of_protocol
    return ClassicMember(session_timeout_ms, tuple(protocols), reader.tags(), protocol_tags)


def _write_names(writer: RecordWriter, names: tuple[str, ...]) -> None:
    writer.count(len(names))
    for name in names:
        writer.string(name)


def _read_names(reader: RecordReader) -> tuple[str, ...]:
    return tuple(reader.string() for _ in range(reader.count()))


def _write_owned(writer: RecordWriter, owned: Owned, topic_tags: Mapping[uuid.UUID, Tags]) -> None:
    writer.count(len(owned))
    for topic_id, epochs in sorted(owned.items(), key=lambda item: item[0].int):
        numbers = sorted(epochs)
        writer.identifier(topic_id)
        writer.int32s(numbers)
        tagged = RecordWriter(VALUE_VERSION, is_flexible=True)
        tagged.int32s([epochs[number] for number in numbers])
        writer.tags({**topic_tags.get(topic_id, NO_TAGS), EPOCHS_TAG: tagged.done()[2:]})


def _read_owned(
    reader: RecordReader, member_epoch: int, topic_tags: dict[uuid.UUID, Tags]
) -> dict[uuid.UUID, dict[int, int]]:
    """Partitions with their epochs; without one for each, all have the member's, as in Kafka.

    Kafka 4.2 and older wrote none.
    """
    owned: dict[uuid.UUID, dict[int, int]] = {}
    for _ in range(reader.count()):
        topic_id, numbers = reader.identifier(), reader.int32s()
        epochs = (member_epoch,) * len(numbers)
        tags = reader.tags()
        data = tags.pop(EPOCHS_TAG, None)
        if tags:
            topic_tags[topic_id] = tags
        if data is not None:
            tagged = RecordReader(b"\0\0" + data, is_flexible=True)
            stored = tagged.int32s()
            epochs = stored if len(stored) == len(numbers) else epochs
        owned[topic_id] = dict(zip(numbers, epochs, strict=True))
    return owned


def _by_id(partitions: Assignment) -> list[tuple[uuid.UUID, frozenset[int]]]:
    return sorted(partitions.items(), key=lambda item: item[0].int)
