"""Groups and their lag in committed records, asked of a running cluster.

The lag of a group in a partition is the number of records that a read_committed reader still gets.
Markers and records of aborted transactions do not count. The records are counted by reading
them, which is exact on txn and on Apache Kafka and costs their transfer. Beyond a limit of offsets
nothing is read, and the number of offsets up to the last stable offset is an upper bound.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from txn.cluster.facts import OpenTransaction, Owner, PartitionOffsets
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.identifiers import TopicPartition
from txn.metadata.image import OFFSETS_TOPIC
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

OFFSETS_COUNTED: Final = 1_000_000
"""The most offsets of one partition that are read to count records."""

CONSUMERS: Final = "consumer"
"""The protocol type of groups of consumers."""

DEAD: Final = "Dead"
"""The state of a group that is not known."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group of a cluster."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str | None = None
    """`classic`, `consumer`, `share` or `streams`; None: the broker does not tell."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: Sequence[TopicPartition] = ()
    """The partitions that it owns, sorted; none while the group shares them out anew."""
    consumer: "ConsumerMember | None" = None
    """None: its group has the classic protocol."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """What the consumer protocol adds to a member.

    `target` are the partitions that the group means it to have, sorted. It is a classic member if
    it joined by the classic protocol.
    """

    member_epoch: int
    target: Sequence[TopicPartition]
    rack_id: str | None
    topics: Sequence[str]
    pattern: str | None
    is_classic: bool


@dataclass(frozen=True, slots=True)
class ConsumerProtocol:
    """What the consumer protocol adds to a group.

    The group is stable once `assignment_epoch` is `group_epoch` and every member has that epoch.
    """

    group_epoch: int
    assignment_epoch: int
    assignor: str


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The state and the members of a group, as its coordinator reports them."""

    state: str
    protocol_type: str
    members: Sequence[GroupMember]
    consumer: ConsumerProtocol | None = None
    """None: the group has the classic protocol."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's place in a partition."""

    partition: TopicPartition
    committed_offset: int | None
    """None: the group has no offset here, though in other partitions of the topic."""
    offsets: PartitionOffsets | None
    """None: the partition has no leader, or it was deleted."""
    records: int | None
    """Committed records that the group has yet to read; None: not counted."""

    @property
    def is_beyond_end(self) -> bool:
        """True if the committed offset was never written, as in a topic that was made anew."""
        return self.offsets is not None and (self.committed_offset or 0) > self.offsets.end_offset

    @property
    def offsets_left(self) -> int | None:
        """Offsets up to the last stable one: at least as many as records; None: not known."""
        if self.offsets is None or self.is_beyond_end:
            return None
        start = max(self.committed_offset or 0, self.offsets.log_start_offset)
        return max(self.offsets.last_stable_offset - start, 0)

    @property
    def is_held_back(self) -> bool:
        """True if an open transaction holds back records of the partition."""
        ends = self.offsets
        return ends is not None and ends.last_stable_offset < ends.end_offset


@dataclass(frozen=True, slots=True)
class PendingOffsets:
    """Offsets of a group in an open transaction: consumers wait for its end to get theirs."""

    partitions: Sequence[TopicPartition]
    kept_in: TopicPartition
    """The partition of `__consumer_offsets` that keeps the group's offsets."""
    transactional_ids: Sequence[str]
    """Owners of the transactions that are open there; empty if the user may not see them."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group with its lag."""

    group_id: str
    facts: GroupFacts
    lags: Sequence[PartitionLag]
    pending: PendingOffsets | None = None

    @property
    def owners(self) -> Mapping[TopicPartition, GroupMember]:
        """The member that owns each partition, of those that have an owner."""
        return {each: member for member in self.facts.members for each in member.partitions}

    @property
    def is_drained(self) -> bool | None:
        """True if every committed record of its topics was read; None: not known.

        Its topics are those in which it has an offset or owns a partition. A partition without
        offset and records tells nothing, and without any offset nothing is known.
        """
        told = [lag for lag in self.lags if lag.committed_offset is not None or lag.records != 0]
        records = [lag.records for lag in told]
        if any(records):
            return False
        return None if None in records or not records else True

    @property
    def held_back(self) -> list[TopicPartition]:
        """Partitions with records behind an open transaction, which no lag counts."""
        return [lag.partition for lag in self.lags if lag.is_held_back]


class GroupSource(Protocol):
    """A cluster that can be asked; a `txn.cluster.source.ClusterSource`."""

    def groups(self) -> list[ListedGroup]:
        """Every group."""
        ...

    def group(self, group_id: str) -> GroupFacts:
        """A group, as its coordinator reports it."""
        ...

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, int]:
        """The offsets that a group has committed."""
        ...

    def topics(self) -> Mapping[str, Sequence[int]]:
        """Topic → its partitions."""
        ...

    def ends(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Where logs begin and end; a partition without a leader is left out."""
        ...

    def count_committed(self, partition: TopicPartition, start: int, end: int) -> int:
        """The committed records of `[start, end)`, by reading them."""
        ...

    def call_leader(
        self, partition: TopicPartition, api_key: int, versions: range, request: dict[str, Any]
    ) -> Any:
        """The answer of a partition's leader to a request."""
        ...

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """The transactions that are open in partitions."""
        ...

    def owners(self, producer_ids: Collection[int] | None = None) -> list[Owner]:
        """The transactional ids that use some producer ids; None: all of them."""
        ...


def described(
    source: GroupSource, group_id: str, *, offsets_counted: int = OFFSETS_COUNTED
) -> DescribedGroup:
    """Show a group's state and its lag.

    Args:
        source: The cluster.
        group_id: The group.
        offsets_counted: The most offsets of a partition that are read to count records.

    Raises:
        ConfigError: there is no such group; the message has the nearest name.
    """
    facts = source.group(group_id)
    committed = source.committed_offsets(group_id)
    topics = source.topics()
    pending = _pending_offsets(source, group_id, topics)
    if facts.state == DEAD and not committed and pending is None:
        hint = did_you_mean(group_id, [each.group_id for each in source.groups()])
        rest = hint or ". `txn groups list` names them all"
        raise ConfigError(f"there is no group {group_id!r}{rest}")
    if facts.state == DEAD:  # to DescribeGroups; one of another protocol is listed
        listed = [each for each in source.groups() if each.group_id == group_id]
        for each in listed:
            facts = GroupFacts(each.state, each.protocol_type, facts.members, facts.consumer)
    known = [(topic, index) for topic, index in committed if index in topics.get(topic, ())]
    owned = {each for member in facts.members for each in member.partitions}
    unread = sorted(
        {
            *((topic, index) for topic in {topic for topic, _ in known} for index in topics[topic]),
            *((topic, index) for topic, index in owned if index in topics.get(topic, ())),
        }
        - committed.keys()
    )
    ends = source.ends([*known, *unread]) if known or unread else {}
    lags = []
    for partition, offset in sorted(committed.items()):
        place = PartitionLag(partition, offset, ends.get(partition), None)
        lags.append(counted(source, place, offsets_counted))
    for partition in unread:
        place = PartitionLag(partition, None, ends.get(partition), None)
        if place.offsets_left != 0:
            lags.append(place)
        elif partition in owned or place.is_held_back:
            lags.append(PartitionLag(partition, None, place.offsets, 0))
    lags.sort(key=lambda lag: lag.partition)
    return DescribedGroup(group_id, facts, lags, pending)


def counted(source: GroupSource, place: PartitionLag, offsets_counted: int) -> PartitionLag:
    """Count the records of a group's place, if at most so many offsets have to be read."""
    left = place.offsets_left
    if left is None or left > offsets_counted or place.committed_offset is None:
        return place
    records = 0
    if left and place.offsets is not None:
        end = place.offsets.last_stable_offset
        records = source.count_committed(place.partition, end - left, end)
    return replace(place, records=records)


def assigned_partitions(assignment: bytes) -> Sequence[TopicPartition]:
    """Read the assignment of a consumer, which its group's leader wrote; sorted.

    Later versions add fields behind the partitions. A client may write bytes of its own, and
    those that cannot be read name no partition. Source: ConsumerProtocolAssignment.
    """
    partitions = []
    try:
        (topics,) = struct.unpack_from(">i", assignment, 2)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">H", assignment, at)
            topic = assignment[at + 2 : at + 2 + length].decode()
            (count,) = struct.unpack_from(">i", assignment, at + 2 + length)
            at += 6 + length
            indexes = struct.unpack_from(f">{count}i", assignment, at)
            partitions += [(topic, index) for index in indexes]
            at += 4 * count
    except (struct.error, ValueError):
        return ()
    return sorted(partitions)


def _pending_offsets(
    source: GroupSource, group_id: str, topics: Mapping[str, Sequence[int]]
) -> PendingOffsets | None:
    """The group's offsets in open transactions; None: there are none, or no broker reports them.

    The group's coordinator leads the partition that keeps its offsets. Each partition is named to
    it: asked for all, it leaves out those without a committed offset. Source: KIP-447.
    """
    if OFFSETS_TOPIC not in topics:
        return None
    kept_in = OFFSETS_TOPIC, coordinator_partition(group_id, len(topics[OFFSETS_TOPIC]))
    request = {
        "group_id": group_id,
        "topics": [
            {"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()
        ],
        "require_stable": True,
    }
    try:
        answer = source.call_leader(kept_in, ApiKey.OFFSET_FETCH, range(7, 8), request)
    except RejectedError:  # Apache Kafka before 2.5
        return None
    partitions = [
        (topic.name, partition.partition_index)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    ]
    if not partitions:
        return None
    return PendingOffsets(sorted(partitions), kept_in, _owners_in(source, kept_in))


def _owners_in(source: GroupSource, partition: TopicPartition) -> list[str]:
    """The owners of a partition's open transactions; none if the user may not see them."""
    try:
        producer_ids = {each.producer_id for each in source.open_transactions([partition])}
        owners = source.owners(producer_ids) if producer_ids else []
    except RejectedError:
        return []
    return sorted(owner.transactional_id for owner in owners)
