"""Internal records made readable: coordinators' records, metadata records, control records.

An undecodable record is shown raw, with the reason: a tool that prints the contents of a file must
not fail at an unknown record.

Pure. Sources: Kafka's ControlRecordType, MetadataRecordType and CoordinatorRecordType; the
schemas named in the modules that decode.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any, Final
from uuid import UUID

from txn.coordinator.group import records as group_records
from txn.coordinator.transaction import records as transaction_records
from txn.inspect.layout import METADATA_TOPIC
from txn.metadata import records as metadata_records
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.metadata.record_encoding import decode
from txn.storage.ids import encode_id

Readable = dict[str, Any]
"""Names and values as JSON has them; bytes are left as they are."""

CONTROL_TYPES: Final = (
    "abort",
    "commit",
    "leader change",
    "snapshot header",
    "snapshot footer",
    "kraft version",
    "kraft voters",
)

GROUP_KEYS: Final[Mapping[int, str]] = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Keys of `__consumer_offsets` that belong to protocols this broker does not speak."""


def control_record(key: bytes | None, value: bytes | None) -> Readable:
    """Read a control record: which it is, and of a marker the coordinator epoch."""
    if key is None or len(key) < 4:
        return {"undecodable": "a control record without a type"}
    (number,) = struct.unpack_from(">h", key, 2)
    name = CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else f"unknown {number}"
    if name not in ("abort", "commit") or value is None or len(value) < 6:
        return {"control": name}
    (coordinator_epoch,) = struct.unpack_from(">i", value, 2)
    return {"control": name, "coordinator_epoch": coordinator_epoch}


def internal_record(topic: str, key: bytes | None, value: bytes | None) -> Readable | None:
    """Read a record of an internal topic; None if the topic is none."""
    decode = _DECODERS.get(topic)
    if decode is None:
        return None
    try:
        return decode(key, value)
    except (ValueError, struct.error, IndexError) as error:
        return {"undecodable": str(error)}


def _transaction(key: bytes | None, value: bytes | None) -> Readable:
    transactional_id = transaction_records.decode_key(key or b"")
    if transactional_id is None:
        return {"undecodable": "a key of a later version"}
    readable: Readable = {"transactional_id": transactional_id}
    if value is None:
        return readable | {"tombstone": True}
    txn = transaction_records.decode_value(value)
    partitions = [f"{topic}-{index}" for topic, index in sorted(txn.partitions)]
    return readable | _plain(txn) | {"state": txn.state.label, "partitions": partitions}


def _group(key: bytes | None, value: bytes | None) -> Readable:
    data = key or b""
    decoded = group_records.decode_key(data)
    if decoded is None:
        (version,) = struct.unpack_from(">h", data)
        return {"type": GROUP_KEYS.get(version, f"key of version {version}")}
    readable = _plain(decoded)
    if value is None:
        return readable | {"tombstone": True}
    if isinstance(decoded, group_records.OffsetKey):
        committed = _plain(group_records.decode_offset_value(value))
        # A record has an offset of its own.
        return readable | {"committed_offset": committed.pop("offset")} | committed
    return readable | _plain(group_records.decode_group_value(value))


def _metadata(_key: bytes | None, value: bytes | None) -> Readable:
    data = value or b""
    record = decode(data)
    if record is not None:
        name = {"type": type(record).__name__.removesuffix("Record")}
        if isinstance(record, metadata_records.UserScramCredentialRecord):
            # The rest of it would let its reader try passwords.
            return name | {"name": record.name, "mechanism": record.mechanism}
        return name | _plain(record)
    _, number = data[:2]  # of a record that decodes: frame version and type, a byte each
    return {"type": metadata_records.PASSED_OVER.get(number, f"unknown {number}")}


_DECODERS: Final[Mapping[str, Callable[[bytes | None, bytes | None], Readable]]] = {
    TRANSACTIONS_TOPIC: _transaction,
    OFFSETS_TOPIC: _group,
    METADATA_TOPIC: _metadata,
}


def _plain(record: Any) -> Readable:
    """Turn a decoded record into names and values as JSON has them; bytes stay."""
    fields = record._asdict() if hasattr(record, "_asdict") else asdict(record)
    return {name: _plain_value(field) for name, field in fields.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, UUID):
        return encode_id(value)
    if hasattr(value, "_asdict"):
        return _plain(value)
    if isinstance(value, dict):
        return {str(name): _plain_value(field) for name, field in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_value(each) for each in value]
    return value
