"""Moves committed offsets of groups of a running cluster, and deletes groups."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from txn.admin.cluster import RunningCluster, no_partition
from txn.admin.offset_specs import OffsetSpec, offsets_at
from txn.admin.refusals import require, unknown
from txn.cluster.groups import DEAD, PartitionLag
from txn.cluster.source import EARLIEST, LATEST
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean, nearest
from txn.identifiers import TopicPartition
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

EMPTY = "Empty"


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A committed offset and the one to commit; `before` is None where there was none."""

    partition: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group that is not there, and the name of one that is and resembles it, if any does."""

    group_id: str
    nearest: str | None

    def note(self) -> str:
        """Return a sentence that a plan creates the group: its name may be misspelled."""
        hint = "" if self.nearest is None else f"; did you mean {self.nearest}?"
        return f"there is no group {self.group_id!r} yet: this makes it{hint}"


def moved_to(
    cluster: RunningCluster,
    group_id: str,
    partitions: Collection[TopicPartition],
    place: OffsetSpec,
) -> list[OffsetChange]:
    """Plan to put a group to a place in partitions.

    Raises:
        ConfigError: a partition has no leader that could say where the place is.
    """
    return _changes(cluster, group_id, partitions, offsets_at(cluster, partitions, place))


def shifted_by(
    cluster: RunningCluster, group_id: str, partitions: Collection[TopicPartition], distance: int
) -> list[OffsetChange]:
    """Plan to move a group by so many offsets, backwards below 0, within each log.

    Raises:
        ConfigError: the group has no offset in a partition, or has no leader.
    """
    committed = cluster.committed_offsets(group_id)
    for topic, index in partitions:
        if (topic, index) not in committed:
            raise ConfigError(
                f"group {group_id!r} has no offset in {topic}-{index} to shift. Give --to"
            )
    wanted = {each: committed[each] + distance for each in partitions}
    return _changes(cluster, group_id, partitions, _within(cluster, wanted))


def restored(
    cluster: RunningCluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> list[OffsetChange]:
    """Plan to commit given offsets, within each log.

    Raises ConfigError: a partition is not there, or has no leader.
    """
    for topic, index in offsets:
        cluster.require_topics([topic])
        if index not in cluster.topics()[topic]:
            raise ConfigError(no_partition(topic, index, len(cluster.topics()[topic])))
    return _changes(cluster, group_id, offsets.keys(), _within(cluster, offsets))


def require_no_members(cluster: RunningCluster, group_id: str) -> None:
    """Check that a group has no members, or does not exist. Raises RejectedError."""
    facts = cluster.group(group_id)
    if facts.state not in (EMPTY, DEAD):
        clients = ", ".join(sorted({repr(member.client_id) for member in facts.members}))
        raise RejectedError(
            f"group {group_id!r} is at work ({facts.state}), and its members would commit over "
            f"the change. Stop them first: {clients or 'it has none at the moment'}"
        )


def new_group(cluster: RunningCluster, group_id: str) -> NewGroup | None:
    """Return the group that a plan would make; None: it is there."""
    known = [group.group_id for group in cluster.groups()]
    if group_id in known:
        return None
    return NewGroup(group_id, nearest(group_id, known))


def commit(cluster: RunningCluster, group_id: str, changes: Collection[OffsetChange]) -> None:
    """Commit the offsets of a plan.

    Raises:
        RejectedError: the group has members, or its user may not. Other partitions may be done.
    """
    codes = cluster.commit_offsets(group_id, {each.partition: each.after for each in changes})
    for (topic, index), code in codes.items():
        refused = f"the offset of group {group_id!r} in {topic}-{index} is not changed"
        require(code, None, refused, needs="Read on the group and the topic")


def require_groups(cluster: RunningCluster, group_ids: Iterable[str]) -> None:
    """Check that groups of these names exist.

    Raises:
        ConfigError: there is no such group; the message has the nearest name.
        RejectedError: its user may not see one.
    """
    for group_id in group_ids:
        if cluster.group(group_id).state == DEAD:
            raise unknown_group(cluster, group_id)


def delete_group(cluster: RunningCluster, group_id: str) -> None:
    """Delete a group without members, with its offsets.

    Raises:
        ConfigError: there is no such group; the message has the nearest name.
        RejectedError: it has members, or its user may not.
    """
    coordinator = cluster.group_coordinator(group_id)
    request = {"groups_names": [group_id]}
    answer = coordinator.call(ApiKey.DELETE_GROUPS, range(3), request)
    (result,) = answer.results
    if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise unknown_group(cluster, group_id)
    refused = f"group {group_id!r} is not deleted"
    require(result.error_code, None, refused, needs="Delete on the group")


def delete_offsets(
    cluster: RunningCluster, group_id: str, partitions: Collection[TopicPartition]
) -> None:
    """Delete committed offsets of a group.

    Raises:
        ConfigError: there is no such group; the message has the nearest name.
        RejectedError: a member reads the topic, or its user may not. Other partitions may be done.

    Source: KIP-496.
    """
    by_topic: dict[str, list[dict[str, int]]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append({"partition_index": index})
    request = {
        "group_id": group_id,
        "topics": [{"name": name, "partitions": entries} for name, entries in by_topic.items()],
    }
    coordinator = cluster.group_coordinator(group_id)
    answer = coordinator.call(ApiKey.OFFSET_DELETE, range(1), request)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise unknown_group(cluster, group_id)
    refused = f"offsets of group {group_id!r} are not deleted"
    require(answer.error_code, None, refused, needs="Delete on the group")
    for topic in answer.topics:
        for each in topic.partitions:
            refused = f"the offset of {group_id!r} in {topic.name}-{each.partition_index} is kept"
            require(each.error_code, None, refused, needs="Read on the topic")


def is_drained(cluster: RunningCluster, group_id: str, topics: Collection[str]) -> bool | None:
    """Return True if a group has read every committed record of topics; None: not known.

    A partition in which it has no offset counts as unread from its start.

    Raises:
        ConfigError: a topic is not there.
        RejectedError: its user may not see the group or a topic.
    """
    cluster.require_topics(topics)
    committed = cluster.committed_offsets(group_id)
    places = [(topic, index) for topic in topics for index in cluster.topics()[topic]]
    ends = cluster.ends(places)
    left = [PartitionLag(each, committed.get(each), ends.get(each), None) for each in places]
    for lag in left:
        if lag.offsets is None or not lag.offsets_left:
            continue
        end = lag.offsets.last_stable_offset
        if cluster.has_committed(lag.partition, end - lag.offsets_left, end):
            return False
    return None if any(lag.offsets_left is None for lag in left) else True


def unknown_group(cluster: RunningCluster, group_id: str) -> ConfigError:
    """Return the error for a group that is not there, or has no offsets."""
    known = [group.group_id for group in cluster.groups()]
    if group_id in known:
        return ConfigError(
            f"group {group_id!r} has no committed offset. Name its topics with --topic"
        )
    return unknown("group", group_id, did_you_mean(group_id, known), "txn groups list")


def _within(
    cluster: RunningCluster, offsets: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    starts = cluster.offsets(offsets.keys(), EARLIEST)
    ends = cluster.offsets(offsets.keys(), LATEST, is_committed=False)
    return {
        each: min(max(offset, starts[each]), ends[each])
        for each, offset in offsets.items()
        if each in starts and each in ends
    }


def _changes(
    cluster: RunningCluster,
    group_id: str,
    partitions: Collection[TopicPartition],
    offsets: Mapping[TopicPartition, int],
) -> list[OffsetChange]:
    for topic, index in sorted(set(partitions) - offsets.keys()):
        raise ConfigError(
            f"no broker leads {topic}-{index} at the moment. Bring one of its replicas back"
        )
    committed = cluster.committed_offsets(group_id)
    return [
        OffsetChange(each, committed.get(each), offset) for each, offset in sorted(offsets.items())
    ]
