"""Topics, settings, users, quotas and producer ids of the node: the fold of the metadata log.

Pure. `apply` is the only way the image changes; a restart is `apply` over the log.
Source: KIP-631 (metadata image).
"""

import re
import uuid
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from txn.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    Entity,
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
    from txn.security.acls import Acl

Value = TypeVar("Value")

PRODUCER_ID_BLOCK = 1000
"""Producer ids that one durable record reserves, as in Apache Kafka."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
COORDINATOR_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
INTERNAL_TOPICS = COORDINATOR_TOPICS | {"__share_group_state"}
"""A Kafka's share groups leave a topic that nothing writes here."""

RESERVED_TOPICS = frozenset({"__cluster_metadata"})
TOPIC_NAME_MAX = 249


RESERVED_DIRECTORIES = range(100)
"""Ids of no directory: Kafka's words for unassigned, lost, moving. Source: KIP-858."""


class Placement(NamedTuple):
    """Where a partition is, and the epoch it is led in."""

    replicas: tuple[int, ...]
    directories: tuple[uuid.UUID, ...]
    leader_epoch: int

    def fault(self, node_id: int, directory_id: uuid.UUID) -> str | None:
        """Return why a node cannot serve the partition from one directory; None if it can."""
        if self.replicas != (node_id,):
            nodes = ", ".join(str(replica) for replica in self.replicas)
            return f"it is kept on node {nodes}, and this is node {node_id}"
        elsewhere = [
            directory
            for directory in self.directories
            if directory != directory_id and directory.int not in RESERVED_DIRECTORIES
        ]
        if elsewhere:
            return f"it is kept in another directory of the node, with the id {elsewhere[0]}"
        return None


@dataclass(slots=True)
class Topic:
    """One topic: its id, its partitions by number, its own settings as text."""

    name: str
    topic_id: uuid.UUID
    partition_count: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    placements: dict[int, Placement] = field(default_factory=dict)

    def leader_epoch(self, partition: int) -> int:
        """The epoch a partition is led in."""
        placement = self.placements.get(partition)
        return 0 if placement is None else placement.leader_epoch

    @property
    def is_internal(self) -> bool:
        """Written by coordinators alone, of this broker or of an Apache Kafka."""
        return self.name in INTERNAL_TOPICS


class Image:
    """Topics, features, access control entries and the next free producer id."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[uuid.UUID, str] = {}
        self._flat_names: dict[str, str] = {}
        self.broker_settings: dict[str, dict[str, str]] = {}
        """Values altered for a broker, by its number, or for every broker, by ""."""
        self.group_settings: dict[str, dict[str, str]] = {}
        """Settings of groups by name; no group is without one."""
        self.client_metrics: dict[str, dict[str, str]] = {}
        """Settings of subscriptions to clients' metrics by name; none is without one."""
        self.scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        """Credentials of SCRAM, by the user's name and the number of the mechanism."""
        self.client_quotas: dict[Entity, dict[str, float]] = {}
        """Quotas of clients and addresses by their names; no entity is without one."""
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.broker_epochs: dict[int, int] = {}
        """Broker epoch of the newest registration of an Apache Kafka broker, by node."""
        self.acls: dict[uuid.UUID, Acl] = {}
        """Access control entries by their ids."""
        self._shares_acls = False
        """The dict of entries is another image's too; it is copied before it changes."""
        self.partition_count = 0
        """Number of partitions of all topics."""
        self.version = 0
        """Grows with every change, so that answers made from the image can be kept."""
        self._owned: set[str] | None = None
        """Names of topics that a fork does not share with its origin; None if it shares none."""

    def fork(self) -> "Image":
        """A copy that may change; neither sees the changes of the other.

        Cost: one step for each topic. The partitions of a topic are copied when it changes.
        """
        self._shares_acls = True
        fork = copy(self)
        fork.topics, fork.names = self.topics.copy(), self.names.copy()
        fork._flat_names = self._flat_names.copy()
        fork.broker_settings, fork.features = self.broker_settings.copy(), self.features.copy()
        fork.group_settings = self.group_settings.copy()
        fork.client_metrics = self.client_metrics.copy()
        fork.broker_epochs = self.broker_epochs.copy()
        fork.scram_credentials = self.scram_credentials.copy()
        fork.client_quotas = self.client_quotas.copy()
        fork._owned = set()
        return fork

    def _writable(self, name: str) -> Topic:
        """A topic that is there, to be changed in place."""
        topic = self.topics[name]
        if self._owned is not None and name not in self._owned:
            topic = replace(topic, placements=topic.placements.copy())
            self.topics[name] = topic
            self._owned.add(name)
        return topic

    def _own_acls(self) -> "dict[uuid.UUID, Acl]":
        """The access control entries, to be changed in place."""
        if self._shares_acls:
            self.acls, self._shares_acls = self.acls.copy(), False
        return self.acls

    def alike(self, name: str) -> str | None:
        """Another topic whose name differs only in `.` and `_`, or None."""
        known = self._flat_names.get(_flat(name))
        return None if known == name else known

    def apply(self, record: MetadataRecord) -> None:
        """Fold in one written record. Records about topics that are gone change nothing."""
        self.version += 1
        match record:
            case TopicRecord(name, topic_id):
                self.topics[name] = Topic(name, topic_id)
                if self._owned is not None:
                    self._owned.add(name)
                self.names[topic_id] = name
                self._flat_names[_flat(name)] = name
            case PartitionRecord(partition, topic_id, replicas, directories, leader_epoch):
                topic_name = self.names.get(topic_id)  # once: the hash of an id is Python's
                if topic_name is not None:
                    topic = self._writable(topic_name)
                    grown = max(topic.partition_count, partition + 1)
                    self.partition_count += grown - topic.partition_count
                    topic.partition_count = grown
                    placement = Placement(replicas, directories, leader_epoch)
                    before = topic.placements.get(partition - 1)
                    # Nearly always the same for all: one object for a topic, not one for each.
                    topic.placements[partition] = before if before == placement else placement
            case PartitionChangeRecord(partition, topic_id) if topic_id in self.names:
                placements = self._writable(self.names[topic_id]).placements
                if partition in placements:
                    placements[partition] = _moved(placements[partition], record)
            case ConfigRecord(name, setting, value, kind):
                if kind == TOPIC_RESOURCE and name in self.topics:
                    topic = self._writable(name)
                    topic.settings = _altered(topic.settings, setting, value)
                elif kind == BROKER_RESOURCE:
                    altered = _altered(self.broker_settings.get(name, {}), setting, value)
                    self.broker_settings[name] = altered
                elif kind in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
                    is_group = kind == GROUP_RESOURCE
                    settings = self.group_settings if is_group else self.client_metrics
                    altered = _altered(settings.pop(name, {}), setting, value)
                    if altered:
                        settings[name] = altered
            case RemoveTopicRecord(topic_id):
                if topic_id in self.names:
                    gone = self.names.pop(topic_id)
                    self.partition_count -= self.topics.pop(gone).partition_count
                    if self._flat_names.get(_flat(gone)) == gone:
                        del self._flat_names[_flat(gone)]
            case UserScramCredentialRecord(name, mechanism):
                self.scram_credentials[name, mechanism] = record
            case RemoveUserScramCredentialRecord(name, mechanism):
                self.scram_credentials.pop((name, mechanism), None)
            case FeatureLevelRecord(name, level):
                self.features[name] = level
            case ProducerIdsRecord(_, next_producer_id):
                self.next_producer_id = max(self.next_producer_id, next_producer_id)
            case AccessControlEntryRecord(acl_id, acl):
                self._own_acls()[acl_id] = acl
            case RemoveAccessControlEntryRecord(acl_id):
                self._own_acls().pop(acl_id, None)
            case ClientQuotaRecord(entity, key, quota):
                left = _without(self.client_quotas.pop(entity, {}), key)
                if quota is not None:
                    left[key] = quota
                if left:
                    self.client_quotas[entity] = left
            case RegisterBrokerRecord(node_id, _, broker_epoch):
                self.broker_epochs[node_id] = broker_epoch


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _moved(placement: Placement, change: PartitionChangeRecord) -> Placement:
    return Placement(
        placement.replicas if change.replicas is None else change.replicas,
        placement.directories if change.directories is None else change.directories,
        placement.leader_epoch + (change.leader is not None),
    )


def _altered(settings: dict[str, str], name: str, value: str | None) -> dict[str, str]:
    """The settings after a change, as a dict of their own: threads read the one before."""
    kept = _without(settings, name)
    return kept if value is None else {**kept, name: value}


def _without(entries: dict[str, Value], name: str) -> dict[str, Value]:
    return {other: value for other, value in entries.items() if other != name}


INVALID_NAME = "Topic name is invalid:"


def name_fault(name: str, alike: str | None = None) -> str | None:
    """Return the fault in a new topic's name, None if it is valid.

    Args:
        name: The name.
        alike: The topic that `Image.alike` finds.

    Source: Apache Kafka's topic naming rules; names that differ only in `.` and `_` collide
    in metric names there, and are refused here as well. The texts are those that scripts know
    from there.
    """
    if name == "":
        return f"{INVALID_NAME} the empty string is not allowed"
    if name in (".", ".."):
        return f"{INVALID_NAME} '{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return (
            f"{INVALID_NAME} the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_MAX}"
        )
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        return (
            f"{INVALID_NAME} '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    if name in RESERVED_TOPICS:
        return f"the topic name {name!r} is reserved"
    if alike is not None:
        return f"Topic '{name}' collides with existing topic: {alike}"
    return None


def is_reserved(topic: str) -> bool:
    """Return True if only coordinators and the controller may write a topic."""
    return topic in INTERNAL_TOPICS or topic in RESERVED_TOPICS


def creation_records(
    name: str,
    topic_id: uuid.UUID,
    partition_count: int,
    settings: dict[str, str],
    *,
    node_id: int,
    directory_id: uuid.UUID,
) -> list[MetadataRecord]:
    """The records that make a topic; to be appended as one batch."""
    return [
        TopicRecord(name, topic_id),
        *partition_records(topic_id, range(partition_count), node_id, directory_id),
        *(ConfigRecord(name, setting, value) for setting, value in settings.items()),
    ]


def partition_records(
    topic_id: uuid.UUID, partitions: range, node_id: int, directory_id: uuid.UUID
) -> list[MetadataRecord]:
    """The records that make partitions of a topic."""
    replicas, directories = (node_id,), (directory_id,)
    return [PartitionRecord(n, topic_id, replicas, directories) for n in partitions]
