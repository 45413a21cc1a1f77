"""The records of a snapshot of the metadata log: the records that still have an effect. Pure.

The snapshot gives its reader the same metadata as the whole log below it, also in Apache Kafka. So
stored values stay unchanged, even those of types that txn does not use. They keep their order. Only
features come first, because the metadata version decides how to read the rest.

The snapshot leaves out records of removed topics, credentials, entries and quotas, and values that
have a later one. It contains no transactions of the metadata log: the records of an ended one are
stored without it, and the records of an aborted one are left out.

Source: KIP-630 (snapshots), KIP-868 (transactions).
"""

import uuid
from collections.abc import Hashable
from typing import Final

from txn.metadata.record_encoding import decode, name_passed_over
from txn.metadata.records import (
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

NEEDLESS: Final = "NoOp"
"""Type of the records that only move the end of the log."""


class SnapshotRecords:
    """Folds stored values, in the order of the log, into the values of a snapshot."""

    def __init__(self) -> None:
        self._features: dict[str, bytes] = {}
        self._kept: dict[Hashable, bytes] = {}
        self._topics: dict[uuid.UUID, tuple[str, list[Hashable]]] = {}
        """By id: the name, and the keys of the records that go with the topic."""
        self._settings: dict[str, set[str]] = {}
        """Names of the settings that a topic has had, by its name."""
        self._held: list[bytes] | None = None
        self._count = 0
        self._next_producer_id = 0

    @property
    def is_open(self) -> bool:
        """True while a transaction of the metadata log has neither ended nor been aborted."""
        return self._held is not None

    def values(self) -> list[bytes]:
        """The values of the snapshot, in order."""
        return [*self._features.values(), *self._kept.values()]

    def read(self, value: bytes) -> None:
        """Read the next record's value.

        Raises:
            ValueError: it cannot be read, see `records.decode`.
        """
        match decode(value):
            case BeginTransactionRecord():
                self._held = []
            case EndTransactionRecord():
                held, self._held = self._held or [], None
                for each in held:
                    self._fold(each)
            case AbortTransactionRecord():
                self._held = None
            case _ if self._held is not None:
                self._held.append(value)
            case _:
                self._fold(value)

    def _fold(self, value: bytes) -> None:
        match decode(value):
            case None:
                if name_passed_over(value) != NEEDLESS:
                    self._keep(self._next(), value)
            case FeatureLevelRecord(name):
                self._features[name] = value
            case TopicRecord(name, topic_id):
                self._remove_topic(topic_id)
                key = self._next()
                self._topics[topic_id] = name, [key]
                self._keep(key, value)
            case PartitionRecord(_, topic_id) | PartitionChangeRecord(_, topic_id):
                if topic_id in self._topics:
                    key = self._next()
                    self._topics[topic_id][1].append(key)
                    self._keep(key, value)
            case RemoveTopicRecord(topic_id):
                self._remove_topic(topic_id)
            case ConfigRecord(resource, name, setting, kind):
                if kind == TOPIC_RESOURCE:
                    self._settings.setdefault(resource, set()).add(name)
                self._keep(("config", kind, resource, name), value, is_gone=setting is None)
            case UserScramCredentialRecord(name, mechanism):
                self._keep(("scram", name, mechanism), value)
            case RemoveUserScramCredentialRecord(name, mechanism):
                self._keep(("scram", name, mechanism), value, is_gone=True)
            case AccessControlEntryRecord(acl_id):
                self._keep(("acl", acl_id), value)
            case RemoveAccessControlEntryRecord(acl_id):
                self._keep(("acl", acl_id), value, is_gone=True)
            case ClientQuotaRecord(entity, quota, limit):
                self._keep(("quota", entity, quota), value, is_gone=limit is None)
            case ProducerIdsRecord(_, next_producer_id):
                if next_producer_id >= self._next_producer_id:
                    self._next_producer_id = next_producer_id
                    self._keep("producer ids", value)
            case _:
                self._keep(self._next(), value)

    def _next(self) -> int:
        """A key of its own, for a record that no later one replaces."""
        self._count += 1
        return self._count

    def _keep(self, key: Hashable, value: bytes, *, is_gone: bool = False) -> None:
        self._kept.pop(key, None)  # the later one stands where it was written
        if not is_gone:
            self._kept[key] = value

    def _remove_topic(self, topic_id: uuid.UUID) -> None:
        if topic_id not in self._topics:
            return
        name, keys = self._topics.pop(topic_id)
        for key in keys:
            self._kept.pop(key, None)
        for setting in self._settings.pop(name, ()):
            self._kept.pop(("config", TOPIC_RESOURCE, name, setting), None)
