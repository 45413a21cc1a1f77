"""KRaft metadata records: the contents of `__cluster_metadata-0`.

Only the types that a single node needs have a class. `PASSED_OVER` names the other types of Apache
Kafka 4.2, which have no meaning here and stay in the log. `record_encoding` has the bytes.

Sources: KIP-500, KIP-631, KIP-858 (directories), KIP-868 (metadata transactions), KIP-966;
Apache Kafka's metadata message schemas.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from txn.security.acls import Acl


TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 2, 4, 16, 32
"""Kinds of resources that have settings. Source: KIP-133."""

EVERY_BROKER = ""
"""The broker resource whose settings count for each broker of the cluster."""


class TopicRecord(NamedTuple):
    """A topic exists."""

    name: str
    topic_id: uuid.UUID


class PartitionRecord(NamedTuple):
    """A partition exists: on which nodes, in which of their directories, led in which epoch.

    `directories` go with `replicas` one by one; there are none in records older than KIP-858.
    """

    partition: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...]
    directories: tuple[uuid.UUID, ...]
    leader_epoch: int = 0


class PartitionChangeRecord(NamedTuple):
    """A partition moved; None where nothing changed. A change of leader is a leader epoch more."""

    partition: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...] | None = None
    directories: tuple[uuid.UUID, ...] | None = None
    leader: int | None = None


class ConfigRecord(NamedTuple):
    """A setting of a topic, or of another kind of resource, has a value; None takes it away."""

    resource: str
    name: str
    value: str | None
    kind: int = TOPIC_RESOURCE


class RemoveTopicRecord(NamedTuple):
    """A topic is gone, with its partitions and settings."""

    topic_id: uuid.UUID


class FeatureLevelRecord(NamedTuple):
    """A feature is finalized at a level."""

    name: str
    level: int


class ProducerIdsRecord(NamedTuple):
    """Producer ids below `next_producer_id` may have been handed out."""

    node_id: int
    next_producer_id: int


class UserScramCredentialRecord(NamedTuple):
    """A user has a credential of SCRAM, by the number of the mechanism. Source: KIP-554."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism})"


class RemoveUserScramCredentialRecord(NamedTuple):
    """A user has no credential of a mechanism any more."""

    name: str
    mechanism: int


class AccessControlEntryRecord(NamedTuple):
    """An access control entry exists."""

    acl_id: uuid.UUID
    acl: "Acl"


class RemoveAccessControlEntryRecord(NamedTuple):
    """An access control entry is gone."""

    acl_id: uuid.UUID


Entity = tuple[tuple[str, str | None], ...]
"""The clients of a quota: (type, name) in the order of the types; name None is the default."""


class ClientQuotaRecord(NamedTuple):
    """A quota of an entity has a value; None takes it away."""

    entity: Entity
    key: str
    value: float | None


class RegisterBrokerRecord(NamedTuple):
    """An Apache Kafka broker came up; the start of the record."""

    node_id: int
    incarnation_id: uuid.UUID
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """The records that follow count together, or not at all."""


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """The records since the beginning count."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """The records since the beginning count for nothing."""


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ClientQuotaRecord
    | RegisterBrokerRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)

KEYS: Final[Mapping[type, tuple[int, int]]] = {
    TopicRecord: (2, 0),
    PartitionRecord: (3, 1),
    ConfigRecord: (4, 0),
    PartitionChangeRecord: (5, 0),
    RemoveTopicRecord: (9, 0),
    UserScramCredentialRecord: (11, 0),
    FeatureLevelRecord: (12, 0),
    ClientQuotaRecord: (14, 0),
    ProducerIdsRecord: (15, 0),
    AccessControlEntryRecord: (18, 0),
    RemoveAccessControlEntryRecord: (19, 0),
    RemoveUserScramCredentialRecord: (22, 0),
    BeginTransactionRecord: (23, 0),
    EndTransactionRecord: (24, 0),
    AbortTransactionRecord: (25, 0),
}
"""Record type → (key, the version written), without the types that only Kafka writes."""


VERSIONS_READ: Final[Mapping[int, int]] = {0: 4, 3: 2, 5: 2}
"""Key → the newest version that is understood, where that is not 0."""

PASSED_OVER: Final[Mapping[int, str]] = {
    1: "UnregisterBroker",
    7: "FenceBroker",
    8: "UnfenceBroker",
    10: "DelegationToken",
    17: "BrokerRegistrationChange",
    20: "NoOp",
    21: "ZkMigrationState",
    26: "RemoveDelegationToken",
    27: "RegisterController",
    28: "ClearElr",
    29: "UnregisterController",
}
"""Key → name of the types that are read past."""

UNENFORCED: Final = frozenset({"DelegationToken"})
"""Types passed over that somebody may rely on: a start has to report them."""
