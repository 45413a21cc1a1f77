"""`cluster.groups`: lists and describes groups, measures their lag, moves offsets, deletes them."""

from collections.abc import Collection, Mapping, Sequence

from txn.admin.cluster import RunningCluster
from txn.admin.groups import (
    OffsetChange,
    commit,
    delete_group,
    delete_offsets,
    is_drained,
    moved_to,
    require_no_members,
    restored,
    shifted_by,
    unknown_group,
)
from txn.admin.offset_specs import parse_offset_spec
from txn.cluster.groups import OFFSETS_COUNTED, DescribedGroup, ListedGroup, described
from txn.errors import ConfigError
from txn.identifiers import TopicPartition


class Groups:
    """The groups of a cluster. Every method may raise RetriableError: no broker answers."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def list(self) -> Sequence[ListedGroup]:
        """Return every group that the user may see, by name: state and type.

        Source: KIP-518, KIP-848.
        """
        return self._running.groups()

    def describe(self, group_id: str, *, offsets_counted: int = OFFSETS_COUNTED) -> DescribedGroup:
        """Return a group of either protocol: members, assignments, offsets and lag.

        The lag counts committed records: no markers, and no records of aborted transactions. It
        is counted by reading them.

        Args:
            group_id: The group.
            offsets_counted: The most offsets of a partition that are read. Beyond that `records`
                of its lag is None, and `offsets_left` is an upper bound.

        Raises:
            ConfigError: the group does not exist; the message has the nearest name.
            RejectedError: the user may not see the group or its topics.

        Cost: the transfer of the records that are counted. Source: KIP-848, KIP-447 (pending
        offsets).
        """
        self._running.refresh()
        return described(self._running, group_id, offsets_counted=offsets_counted)

    def is_drained(self, group_id: str, topics: Collection[str]) -> bool | None:
        """Return True if the group has read every committed record of topics.

        Records of open transactions do not count before they are committed. A partition in which
        the group has no offset counts as unread from its start.

        Returns:
            None if that is not known: a partition has no leader, or the group's offset lies behind
            the end of the log, as after the topic was created anew.

        Raises:
            ConfigError: a topic does not exist, or none is named.
            RejectedError: the user may not see the group or a topic.

        Cost: reads records up to the first that counts.
        """
        if isinstance(topics, str) or not topics:
            raise ConfigError("give the topics as a list, as in is_drained('shop', ['orders'])")
        self._running.refresh()
        return is_drained(self._running, group_id, topics)

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return (topic, partition) → the next offset that the group reads.

        Partitions without a committed offset are left out; a group that does not exist has none.
        """
        return self._running.committed_offsets(group_id)

    def reset_offsets(
        self,
        group_id: str,
        topics: Collection[str] | None = None,
        *,
        to: str | None = None,
        shift_by: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        preview: bool = False,
    ) -> Sequence[OffsetChange]:
        """Move committed offsets of a group without members, within each log.

        A group that does not exist is created.

        Args:
            group_id: The group.
            topics: Topics, or partitions as `orders-3`; None: all in which it has an offset.
            to: `earliest`, `latest`, an offset, `-10` for ten before the end, `2h-ago`, or a time
                as `2026-11-23T17:06` (UTC), the first record at or after it.
            shift_by: The distance in offsets; below 0 backwards.
            offsets: (topic, partition) → offset, in place of `topics`.
            preview: Return the changes, and commit nothing.

        Returns:
            One entry for each partition, by topic and partition: the offset before and after.

        Raises:
            ConfigError: not exactly one of `to`, `shift_by` and `offsets` is given, a topic does
                not exist, or the group has no offset to shift.
            RejectedError: the group has members, or the user may not.
        """
        given = [each for each in (to, shift_by, offsets) if each is not None]
        if len(given) != 1 or (offsets is not None and topics is not None):
            raise ConfigError("give the offsets in one way: to, shift_by, or offsets alone")
        running = self._running
        running.refresh()
        require_no_members(running, group_id)
        if offsets is not None:
            changes = restored(running, group_id, offsets)
        else:
            partitions = self._partitions(group_id, topics)
            if to is not None:
                place = parse_offset_spec(to, now_ms=running.now_ms())
                changes = moved_to(running, group_id, partitions, place)
            else:
                assert shift_by is not None, "one way was given"
                changes = shifted_by(running, group_id, partitions, shift_by)
        if not preview and changes:
            commit(running, group_id, changes)
        return changes

    def delete(self, *group_ids: str) -> None:
        """Delete groups without members, with their offsets, one after the other.

        Raises:
            ConfigError: a group does not exist, or none is named.
            RejectedError: a group has members (`name` of the error is `NON_EMPTY_GROUP`), or the
                user may not. The groups before it are deleted.

        Source: KIP-229.
        """
        if not group_ids:
            raise ConfigError("name the groups to delete: delete() deletes nothing by itself")
        for group_id in group_ids:
            delete_group(self._running, group_id)

    def delete_offsets(self, group_id: str, topics: Collection[str]) -> Sequence[TopicPartition]:
        """Delete committed offsets of a group in topics, or in partitions as `orders-3`.

        Returns:
            The partitions whose offset is deleted, sorted.

        Raises:
            ConfigError: the group or a topic does not exist, or the group has no offset there.
            RejectedError: a member is subscribed to a topic, or the user may not.

        Source: KIP-496.
        """
        self._running.refresh()
        committed = self._running.committed_offsets(group_id)
        partitions = [each for each in self._partitions(group_id, topics) if each in committed]
        if not partitions:
            raise unknown_group(self._running, group_id)
        delete_offsets(self._running, group_id, partitions)
        return sorted(partitions)

    def _partitions(
        self, group_id: str, topics: Collection[str] | None
    ) -> Sequence[TopicPartition]:
        if isinstance(topics, str):
            raise ConfigError(f"give the topics as a list: [{topics!r}]")
        if topics is not None:
            named = (self._running.partitions(name) for name in topics)
            return sorted({each for partitions in named for each in partitions})
        committed = self._running.committed_offsets(group_id)
        if not committed:
            raise unknown_group(self._running, group_id)
        return sorted(committed)
