"""KRaft metadata records: what `__cluster_metadata-0` holds.

A record's value is an unsigned varint frame version (1), the record type's key and its
version as unsigned varints, then the message, always in the flexible encoding. Only the
types a single node needs are here; others are skipped on reading.

Sources: KIP-500, KIP-631; Apache Kafka's metadata message schemas.
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

FRAME_VERSION = 1

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""Kinds of resources that have settings. Source: KIP-133."""

EVERY_BROKER = ""
"""The broker resource whose settings count for each broker of the cluster."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic exists."""

    name: str
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition exists, led by the one node there is."""

    partition: int
    topic_id: uuid.UUID
    node_id: int
    directory_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting of a topic, or of another kind of resource, has a value; None takes it away."""

    resource: str
    name: str
    value: str | None
    kind: int = TOPIC_RESOURCE


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic is gone, with its partitions and settings."""

    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A feature is finalized at a level."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` may have been handed out."""

    node_id: int
    next_producer_id: int


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
)

KEYS: dict[type, tuple[int, int]] = {
    TopicRecord: (2, 0),
    PartitionRecord: (3, 1),
    ConfigRecord: (4, 0),
    RemoveTopicRecord: (9, 0),
    FeatureLevelRecord: (12, 0),
    ProducerIdsRecord: (15, 0),
}
"""Record type → (key, the version written)."""


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def pack(self, layout: str, *values: object) -> None:
        self.data += struct.pack(">" + layout, *values)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def string(self, text: str | None) -> None:
        encoded = None if text is None else text.encode()
        self.varint(0 if encoded is None else len(encoded) + 1)
        self.data += encoded or b""

    def int32s(self, values: Sequence[int]) -> None:
        self.varint(len(values) + 1)
        self.pack(f"{len(values)}i", *values)

    def no_tags(self) -> None:
        self.varint(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return values

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def raw(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        if len(taken) < size:
            raise ValueError(f"{size} bytes wanted at {self.position}, {len(taken)} there")
        self.position += size
        return taken

    def string(self) -> str | None:
        size = self.varint()
        return None if size == 0 else self.raw(size - 1).decode()

    def text(self) -> str:
        found = self.string()
        if found is None:
            raise ValueError("a string is null where the schema has none")
        return found

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.raw(16))

    def int32s(self) -> list[int]:
        return [self.unpack("i")[0] for _ in range(self.varint() - 1)]


def encode(record: MetadataRecord) -> bytes:
    """The bytes of a record's value in the metadata log."""
    out = _Writer()
    key, version = KEYS[type(record)]
    for number in (FRAME_VERSION, key, version):
        out.varint(number)
    match record:
        case TopicRecord(name, topic_id):
            out.string(name)
            out.data += topic_id.bytes
        case PartitionRecord(partition, topic_id, node_id, directory_id):
            out.pack("i", partition)
            out.data += topic_id.bytes
            out.int32s([node_id])  # replicas
            out.int32s([node_id])  # in-sync replicas
            out.int32s([])  # removing
            out.int32s([])  # adding
            out.pack("iii", node_id, 0, 0)  # leader, leader epoch, partition epoch
            out.varint(2)
            out.data += directory_id.bytes
        case ConfigRecord(resource, name, value, kind):
            out.pack("b", kind)
            out.string(resource)
            out.string(name)
            out.string(value)
        case RemoveTopicRecord(topic_id):
            out.data += topic_id.bytes
        case FeatureLevelRecord(name, level):
            out.string(name)
            out.pack("h", level)
        case ProducerIdsRecord(node_id, next_producer_id):
            out.pack("iqq", node_id, 0, next_producer_id)
    out.no_tags()
    return bytes(out.data)


def decode(value: bytes) -> MetadataRecord | None:
    """Read a record's value; None for a type this node has no use for.

    Raises:
        ValueError: the bytes do not follow the schema.
    """
    try:
        return _decode(_Reader(value))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged metadata record {value[:32].hex()}: {error}") from error


def _decode(data: _Reader) -> MetadataRecord | None:
    frame, key, version = data.varint(), data.varint(), data.varint()
    if frame != FRAME_VERSION:
        raise ValueError(f"metadata record with frame version {frame}, known is {FRAME_VERSION}")
    match key:
        case 2:
            return TopicRecord(data.text(), data.uuid())
        case 3:
            (partition,) = data.unpack("i")
            topic_id = data.uuid()
            for _ in ("replicas", "in-sync", "removing", "adding"):
                data.int32s()
            leader, _, _ = data.unpack("iii")
            directories = []
            if version >= 1:
                directories = [data.uuid() for _ in range(data.varint() - 1)]
            directory_id = directories[0] if directories else uuid.UUID(int=0)
            return PartitionRecord(partition, topic_id, leader, directory_id)
        case 4:
            (kind,) = data.unpack("b")
            return ConfigRecord(data.text(), data.text(), data.string(), kind)
        case 9:
            return RemoveTopicRecord(data.uuid())
        case 12:
            return FeatureLevelRecord(data.text(), data.unpack("h")[0])
        case 15:
            node_id, _, next_producer_id = data.unpack("iqq")
            return ProducerIdsRecord(node_id, next_producer_id)
        case _:
            return None
