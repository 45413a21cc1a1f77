"""The committed offsets of one partition of `__consumer_offsets`, and those still in a transaction.

Pure. `put`, `delete` and `end_transaction` are the only ways the table changes. Live requests call
them with records just appended, recovery with the records it reads, in the order of the log. So the
table after a restart is the table before it (P8).

An offset written inside a transaction is *pending* under its producer id until the transaction's
marker arrives in this partition. Then all pending offsets of that producer count at once, or none
(P3). Two commits of one key may overlap. The one later in the log wins, whichever became visible
first, because compaction leaves that one.

A tombstone takes the committed offset away and every pending one with it.

Sources: KIP-98 (offsets in transactions), KIP-447 (pending offsets hold a fetch back), KIP-211
(expiry); Apache Kafka's behaviour for overlapping commits.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from txn.coordinator.group.classic.group import Group, GroupState
from txn.coordinator.group.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.records import NEVER, OffsetKey, OffsetValue
from txn.identifiers import TopicPartition


class StoredOffset(NamedTuple):
    """A committed offset and where in the log it is."""

    value: OffsetValue
    record_offset: int


class GroupOffsets(NamedTuple):
    """The offsets of a group.

    Attributes:
        committed: The offsets that count.
        pending: The partitions for which an open transaction holds an offset.
    """

    committed: Mapping[TopicPartition, StoredOffset]
    pending: Collection[TopicPartition]

    def copied(self) -> "GroupOffsets":
        """The offsets as they are at this moment."""
        return GroupOffsets(dict(self.committed), set(self.pending))


class OffsetTable:
    """Committed and pending offsets, by group and by producer id."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._pending: dict[int, dict[OffsetKey, StoredOffset]] = {}
        self._holders: dict[str, dict[TopicPartition, set[int]]] = {}
        """Group → which producer ids hold a pending offset for a partition."""

    # ---------------------------------------------------------------- changes

    def put(
        self,
        key: OffsetKey,
        value: OffsetValue,
        *,
        record_offset: int,
        producer_id: int | None = None,
    ) -> None:
        """Take in a stored offset; with a producer id it waits for that transaction's end."""
        stored = StoredOffset(value, record_offset)
        if producer_id is None:
            self._commit(key, stored)
        else:
            self._pending.setdefault(producer_id, {})[key] = stored
            holders = self._holders.setdefault(key.group_id, {})
            holders.setdefault((key.topic, key.partition), set()).add(producer_id)

    def delete(self, key: OffsetKey) -> None:
        """Take in a tombstone."""
        offsets = self._committed.get(key.group_id, {})
        if offsets.pop((key.topic, key.partition), None) is not None and not offsets:
            del self._committed[key.group_id]
        for producer_id in tuple(self._holders_of(key)):
            self._release(producer_id, key)
            offsets_left = self._pending[producer_id]
            del offsets_left[key]
            if not offsets_left:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Take in a marker: the producer's pending offsets count from now on, or never."""
        for key, stored in self._pending.pop(producer_id, {}).items():
            self._release(producer_id, key)
            if is_commit:
                self._commit(key, stored)

    def _commit(self, key: OffsetKey, stored: StoredOffset) -> None:
        offsets = self._committed.setdefault(key.group_id, {})
        present = offsets.get((key.topic, key.partition))
        if present is None or present.record_offset < stored.record_offset:
            offsets[key.topic, key.partition] = stored

    def _release(self, producer_id: int, key: OffsetKey) -> None:
        of_group = self._holders[key.group_id]
        holders = of_group[key.topic, key.partition]
        holders.discard(producer_id)
        if not holders:
            del of_group[key.topic, key.partition]
        if not of_group:
            del self._holders[key.group_id]

    def _holders_of(self, key: OffsetKey) -> Collection[int]:
        return self._holders.get(key.group_id, {}).get((key.topic, key.partition), ())

    # ---------------------------------------------------------------- questions

    def committed(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        """The offsets that count for a group."""
        return self._committed.get(group_id, {})

    def of_group(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, as they change."""
        return GroupOffsets(self.committed(group_id), self._holders.get(group_id, {}).keys())

    def by_group(self) -> list[tuple[str, Mapping[TopicPartition, StoredOffset]]]:
        """The offsets that count, of every group that has any, as they are at this moment."""
        return list(self._committed.items())

    def is_pending(self, key: OffsetKey) -> bool:
        """Say whether an open transaction holds an offset for this key."""
        return bool(self._holders_of(key))

    def has_pending(self, group_id: str, producer_id: int) -> bool:
        """Say whether a producer's open transaction holds an offset of a group."""
        return any(producer_id in holders for holders in self._holders.get(group_id, {}).values())

    def keys_of_group(self, group_id: str) -> set[OffsetKey]:
        """Every key of a group, committed or pending."""
        pairs = self.committed(group_id).keys() | self._holders.get(group_id, {}).keys()
        return {OffsetKey(group_id, *pair) for pair in pairs}

    def keys_of_topic(self, topic: str) -> set[OffsetKey]:
        """Every key of a topic, committed or pending. Cost: all offsets of this partition."""
        return {key for key in self._keys() if key.topic == topic}

    def _keys(self) -> Iterator[OffsetKey]:
        for table in (self._committed, self._holders):
            for group_id, offsets in table.items():
                for pair in offsets:
                    yield OffsetKey(group_id, *pair)


def expired_offsets(
    group: Group | ConsumerGroup, table: OffsetTable, *, now_ms: int, retention_ms: int
) -> set[OffsetKey]:
    """List the offsets of a group that nobody has needed for the retention time.

    The time runs from the commit, but not before a classic group became empty. A consumer group,
    and a Stable classic group of consumers, lose only offsets of topics that no member reads. While
    members of a classic group come and go nothing expires. An offset with an expiry of its own
    follows that. One that a transaction holds stays.

    Kafka lets the time run from the moment the classic group became empty even for a later commit,
    which can then expire at once.
    """
    if isinstance(group, ConsumerGroup):
        over = _over(group.group_id, table, NEVER, now_ms, retention_ms)
        return {key for key in over if not group.consumes(key.topic)}
    is_without_members = group.protocol_type is None
    is_deserted = not is_without_members and group.state is GroupState.EMPTY
    is_consuming = (
        group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is GroupState.STABLE
    )
    if not (is_without_members or is_deserted or is_consuming):
        return set()
    since_ms = group.state_timestamp_ms if is_deserted else NEVER
    over = _over(group.group_id, table, since_ms, now_ms, retention_ms)
    topics = subscribed_topics(group) if over else frozenset()
    return set() if topics is None else {key for key in over if key.topic not in topics}


def _over(
    group_id: str, table: OffsetTable, since_ms: int, now_ms: int, retention_ms: int
) -> set[OffsetKey]:
    return {
        key
        for key, stored in _stored(table, group_id)
        if _is_over(stored.value, since_ms, now_ms, retention_ms) and not table.is_pending(key)
    }


def _stored(table: OffsetTable, group_id: str) -> Iterator[tuple[OffsetKey, StoredOffset]]:
    for (topic, partition), stored in table.committed(group_id).items():
        yield OffsetKey(group_id, topic, partition), stored


def _is_over(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp_ms != NEVER:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - max(value.commit_timestamp_ms, since_ms) >= retention_ms
