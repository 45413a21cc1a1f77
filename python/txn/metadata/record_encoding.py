"""The bytes of a metadata record, written and read.

A record's value is an unsigned varint frame version (1), the record type's key and its version as
unsigned varints, then the message. The message is always in the flexible encoding: strings and
arrays with a varint of length + 1, tagged fields at the end. A type or a version that is not known
is refused, because its effect is unknown.
"""

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from txn.metadata.records import (
    KEYS,
    PASSED_OVER,
    VERSIONS_READ,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    pass


FRAME_VERSION = 1


_FRAMES: Final[Mapping[type, bytes]] = {
    kind: bytes((FRAME_VERSION, *numbers)) for kind, numbers in KEYS.items()
}
"""Record type → the begin of its values: three varints below 128."""


_QUOTA_VALUE = struct.Struct(">d?")
"""The value of a quota, and whether it is taken away."""


_LEADER_TAG, _REPLICAS_TAG, _DIRECTORIES_TAG = 1, 2, 8
"""Tags of fields in PartitionChangeRecord."""


class _Writer:
    def __init__(self, start: bytes = b"") -> None:
        self.data = bytearray(start)

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

    def blob(self, value: bytes) -> None:
        self.varint(len(value) + 1)
        self.data += value

    def int32s(self, values: Sequence[int]) -> None:
        self.varint(len(values) + 1)
        self.pack(f"{len(values)}i", *values)

    def uuids(self, values: Sequence[uuid.UUID]) -> None:
        self.varint(len(values) + 1)
        for value in values:
            self.data += value.bytes

    def no_tags(self) -> None:
        self.varint(0)

    def tag(self, number: int, value: bytes) -> None:
        """One tagged field and no other."""
        for head in (1, number, len(value)):
            self.varint(head)
        self.data += value


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

    def blob(self) -> bytes:
        size = self.varint()
        if size == 0:
            raise ValueError("bytes are null where the schema has some")
        return self.raw(size - 1)

    def text(self) -> str:
        text = self.string()
        if text is None:
            raise ValueError("a string is null where the schema has none")
        return text

    def uuids(self) -> tuple[uuid.UUID, ...]:
        return tuple(self.uuid() for _ in range(self.varint() - 1))

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.raw(16))

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.unpack("i")[0] for _ in range(self.varint() - 1))

    def tags(self) -> dict[int, "_Reader"]:
        return {self.varint(): _Reader(self.raw(self.varint())) for _ in range(self.varint())}


@lru_cache(maxsize=1)
def _place(
    topic_id: uuid.UUID,
    replicas: tuple[int, ...],
    directories: tuple[uuid.UUID, ...],
    leader_epoch: int,
) -> bytes:
    """The part after the number in a PartitionRecord: the same for all that a request makes."""
    out = _Writer()
    out.data += topic_id.bytes
    out.int32s(replicas)
    out.int32s(replicas)  # in-sync
    out.int32s(())  # removing
    out.int32s(())  # adding
    out.pack("iii", replicas[0], leader_epoch, 0)  # the last is the partition epoch
    out.uuids(directories)
    return bytes(out.data)


def encode(record: MetadataRecord) -> bytes:
    """The bytes of a record's value in the metadata log."""
    out = _Writer(_FRAMES[type(record)])
    match record:
        case TopicRecord(name, topic_id):
            out.string(name)
            out.data += topic_id.bytes
        case PartitionRecord(partition, topic_id, replicas, directories, leader_epoch):
            out.pack("i", partition)
            out.data += _place(topic_id, replicas, directories, leader_epoch)
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
        case UserScramCredentialRecord(name, mechanism, salt, stored_key, server_key, iterations):
            out.string(name)
            out.pack("b", mechanism)
            for secret in (salt, stored_key, server_key):
                out.blob(secret)
            out.pack("i", iterations)
        case RemoveUserScramCredentialRecord(name, mechanism):
            out.string(name)
            out.pack("b", mechanism)
        case AccessControlEntryRecord(acl_id, acl):
            out.data += acl_id.bytes
            out.pack("b", acl.resource_type)
            out.string(acl.resource_name)
            out.pack("b", acl.pattern_type)
            out.string(acl.principal)
            out.string(acl.host)
            out.pack("bb", acl.operation, acl.permission)
        case RemoveAccessControlEntryRecord(acl_id):
            out.data += acl_id.bytes
        case ClientQuotaRecord(entity, quota, limit):
            out.varint(len(entity) + 1)
            for part in entity:
                for text in part:
                    out.string(text)
                out.no_tags()
            out.string(quota)
            out.pack("d?", 0.0 if limit is None else limit, limit is None)
        case PartitionChangeRecord(partition, topic_id, leader=leader):
            assert leader is not None, "only a change of leader is written"
            out.pack("i", partition)
            out.data += topic_id.bytes
            out.tag(_LEADER_TAG, struct.pack(">i", leader))
            return bytes(out.data)
    out.no_tags()
    return bytes(out.data)


def decode(value: bytes) -> MetadataRecord | None:
    """Read a record's value; None for a type this node has no use for.

    Raises:
        ValueError: the bytes do not follow the schema, or are of a later type or version.
    """
    try:
        return _decode(_Reader(value))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged metadata record {value[:32].hex()}: {error}") from error


def name_passed_over(value: bytes) -> str:
    """The name of a type for which `decode` gave None."""
    data = _Reader(value)
    _, key = data.varint(), data.varint()
    return PASSED_OVER[key]


def _decode(data: _Reader) -> MetadataRecord | None:
    frame, key, version = data.varint(), data.varint(), data.varint()
    if frame != FRAME_VERSION:
        raise ValueError(f"metadata record with frame version {frame}, known is {FRAME_VERSION}")
    if key in PASSED_OVER:
        return None
    if key not in _READERS or version > VERSIONS_READ.get(key, 0):
        raise ValueError(
            f"metadata record of type {key}, version {version}: it is of an Apache Kafka later "
            "than 4.4, and what it changes is not known here"
        )
    return _READERS[key](data, version)


def _read_topic(data: _Reader, version: int) -> MetadataRecord:
    return TopicRecord(data.text(), data.uuid())


def _read_partition(data: _Reader, version: int) -> MetadataRecord:
    (partition,) = data.unpack("i")
    return PartitionRecord(partition, *_read_place(data.data[data.position :], version))


@lru_cache(maxsize=1)
def _read_place(
    rest: bytes, version: int
) -> tuple[uuid.UUID, tuple[int, ...], tuple[uuid.UUID, ...], int]:
    """The part after the number in a PartitionRecord: nearly always as in the record before."""
    data = _Reader(rest)
    topic_id = data.uuid()
    replicas = data.int32s()
    for _ in ("in-sync", "removing", "adding"):
        data.int32s()
    _, leader_epoch, _ = data.unpack("iii")
    directories = data.uuids() if version >= 1 else ()
    return topic_id, replicas, directories, leader_epoch


def _read_partition_change(data: _Reader, version: int) -> MetadataRecord:
    (partition,) = data.unpack("i")
    topic_id = data.uuid()
    tags = data.tags()
    return PartitionChangeRecord(
        partition,
        topic_id,
        replicas=tags[_REPLICAS_TAG].int32s() if _REPLICAS_TAG in tags else None,
        directories=tags[_DIRECTORIES_TAG].uuids() if _DIRECTORIES_TAG in tags else None,
        leader=tags[_LEADER_TAG].unpack("i")[0] if _LEADER_TAG in tags else None,
    )


def _read_config(data: _Reader, version: int) -> MetadataRecord:
    (kind,) = data.unpack("b")
    return ConfigRecord(data.text(), data.text(), data.string(), kind)


def _read_remove_topic(data: _Reader, version: int) -> MetadataRecord:
    return RemoveTopicRecord(data.uuid())


def _read_feature_level(data: _Reader, version: int) -> MetadataRecord:
    return FeatureLevelRecord(data.text(), data.unpack("h")[0])


def _read_producer_ids(data: _Reader, version: int) -> MetadataRecord:
    node_id, _, next_producer_id = data.unpack("iqq")
    return ProducerIdsRecord(node_id, next_producer_id)


def _read_scram_credential(data: _Reader, version: int) -> MetadataRecord:
    name, (mechanism,) = data.text(), data.unpack("b")
    salt, stored_key, server_key = data.blob(), data.blob(), data.blob()
    (iterations,) = data.unpack("i")
    return UserScramCredentialRecord(name, mechanism, salt, stored_key, server_key, iterations)


def _read_remove_scram_credential(data: _Reader, version: int) -> MetadataRecord:
    return RemoveUserScramCredentialRecord(data.text(), data.unpack("b")[0])


def _read_acl(data: _Reader, version: int) -> MetadataRecord:
    from txn.security.acls import Acl, Operation, PatternType, Permission, ResourceType

    acl_id = data.uuid()
    (kind,) = data.unpack("b")
    name = data.text()
    (pattern_type,) = data.unpack("b")
    principal, host = data.text(), data.text()
    operation, permission = data.unpack("bb")
    return AccessControlEntryRecord(
        acl_id,
        Acl(
            ResourceType(kind),
            name,
            PatternType(pattern_type),
            principal,
            host,
            Operation(operation),
            Permission(permission),
        ),
    )


def _read_remove_acl(data: _Reader, version: int) -> MetadataRecord:
    return RemoveAccessControlEntryRecord(data.uuid())


def _read_client_quota(data: _Reader, version: int) -> MetadataRecord:
    parts: dict[str, str | None] = {}
    for _ in range(data.varint() - 1):
        kind, name = data.text(), data.string()
        data.tags()
        parts[kind] = name
    key = data.text()
    value, is_removed = _QUOTA_VALUE.unpack(data.raw(_QUOTA_VALUE.size))
    return ClientQuotaRecord(tuple(sorted(parts.items())), key, None if is_removed else value)


def _read_register_broker(data: _Reader, version: int) -> MetadataRecord:
    (node_id,) = data.unpack("i")
    if version >= 2:
        data.raw(1)  # comes from ZooKeeper
    return RegisterBrokerRecord(node_id, data.uuid(), data.unpack("q")[0])


_READERS: Final[Mapping[int, Callable[[_Reader, int], MetadataRecord]]] = {
    0: _read_register_broker,
    2: _read_topic,
    3: _read_partition,
    4: _read_config,
    5: _read_partition_change,
    9: _read_remove_topic,
    11: _read_scram_credential,
    12: _read_feature_level,
    14: _read_client_quota,
    15: _read_producer_ids,
    18: _read_acl,
    19: _read_remove_acl,
    22: _read_remove_scram_credential,
    23: lambda data, version: BeginTransactionRecord(),
    24: lambda data, version: EndTransactionRecord(),
    25: lambda data, version: AbortTransactionRecord(),
}
