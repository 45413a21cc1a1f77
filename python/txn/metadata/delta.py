"""The difference that records make to an image: the parts its subscribers have to follow. Pure.

Source: KIP-631 (metadata delta).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from txn.metadata.image import Image, Topic
from txn.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from txn.security.acls import Acl


@dataclass(slots=True)
class Delta:
    """Changed topics by name, each in one of the groups, and whether a broker's settings changed.

    Attributes:
        created: Topics that are new.
        deleted: Topics that are gone.
        grown: Topics with more partitions than before.
        configured: Topics with other settings than before.
        has_broker_settings: Settings of this broker, or of every broker, changed.
        has_client_quotas: Quotas of clients or addresses changed.
        acls_before: Access control entries that were changed or removed, as they were.
        acls_after: Access control entries that were changed or added, as they are now.
    """

    created: dict[str, Topic] = field(default_factory=dict)
    deleted: dict[str, Topic] = field(default_factory=dict)
    grown: dict[str, Topic] = field(default_factory=dict)
    configured: dict[str, Topic] = field(default_factory=dict)
    has_broker_settings: bool = False
    has_client_quotas: bool = False
    acls_before: "dict[UUID, Acl]" = field(default_factory=dict)
    acls_after: "dict[UUID, Acl]" = field(default_factory=dict)


def apply_all(image: Image, records: Iterable[MetadataRecord]) -> Delta:
    """Apply records that belong together, and return the difference they made."""
    delta = Delta()
    for record in records:
        match record:
            case RemoveTopicRecord(topic_id) if topic_id in image.names:
                name = image.names[topic_id]
                delta.grown.pop(name, None)
                delta.configured.pop(name, None)
                if delta.created.pop(name, None) is None:
                    delta.deleted[name] = image.topics[name]
            case AccessControlEntryRecord(acl_id) | RemoveAccessControlEntryRecord(acl_id):
                if delta.acls_after.pop(acl_id, None) is None and acl_id in image.acls:
                    delta.acls_before[acl_id] = image.acls[acl_id]
        image.apply(record)
        match record:
            case TopicRecord(name):
                delta.created[name] = image.topics[name]
            case PartitionRecord(_, topic_id):
                grown = image.names.get(topic_id)
                if grown is not None and grown not in delta.created:
                    delta.grown[grown] = image.topics[grown]
            case ConfigRecord(name, _, _, kind):
                if kind == TOPIC_RESOURCE and name in image.topics:
                    if name not in delta.created:
                        delta.configured[name] = image.topics[name]
                elif kind == BROKER_RESOURCE:
                    delta.has_broker_settings = True
            case ClientQuotaRecord():
                delta.has_client_quotas = True
            case AccessControlEntryRecord(acl_id, acl):
                delta.acls_after[acl_id] = acl
    return delta
