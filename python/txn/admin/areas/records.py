"""`cluster.records`: offsets of records by place or time, and deletion from the start."""

from collections.abc import Collection, Mapping, Sequence

from txn.admin.cluster import RunningCluster
from txn.admin.offset_specs import offsets_at, parse_offset_spec
from txn.admin.records import Deletion, delete_records, planned_deletions
from txn.cluster.facts import PartitionOffsets
from txn.identifiers import TopicPartition


class Records:
    """The records of a cluster. Every method may raise RetriableError: no broker answers."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def offsets(
        self, topics: Collection[str], at: str = "latest", *, is_committed: bool = True
    ) -> Mapping[TopicPartition, int]:
        """Return (topic, partition) → the offset of a place or a time.

        Args:
            topics: Topics, or partitions as `orders-3`.
            at: `earliest`, `latest`, an offset, `-10`, `2h-ago`, or a time as `2026-11-23T17:06`
                (UTC). A time stands for the first record at or after it, else for the end.
            is_committed: `latest` is the last stable offset; False: the high watermark.

        Returns:
            A partition without a leader is left out.

        Raises:
            ConfigError: a topic does not exist, or `at` cannot be read.
            RejectedError: the user may not see a topic.

        Source: KIP-79, KIP-98 (the last stable offset).
        """
        self._running.refresh()
        place = parse_offset_spec(at, now_ms=self._running.now_ms())
        partitions = self._partitions(topics)
        return offsets_at(self._running, partitions, place, is_committed=is_committed)

    def ends(self, topics: Collection[str]) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return (topic, partition) → where its log begins, is stable, and ends.

        A partition without a leader is left out.

        Raises:
            ConfigError: a topic does not exist.
        """
        self._running.refresh()
        return self._running.ends(self._partitions(topics))

    def count_committed(self, partition: TopicPartition, start: int, end: int) -> int:
        """Return the number of records of `[start, end)` that read_committed gets.

        Cost: the transfer of these records.
        """
        return self._running.count_committed(partition, start, end)

    def delete(
        self, offsets: Mapping[TopicPartition, int], *, preview: bool = False
    ) -> Sequence[Deletion]:
        """Delete the records below offsets; they cannot be brought back.

        Args:
            offsets: (topic, partition) → the first offset to keep; -1: the current end.
            preview: Return the plan, and delete nothing.

        Returns:
            One entry for each partition: its first offset before and after.

        Raises:
            ConfigError: a partition does not exist, or ends before its offset.
            RejectedError: a topic is compacted or internal, or the user may not. Partitions before
                it, by topic and number, are done.

        Source: KIP-107.
        """
        self._running.refresh()
        plan = planned_deletions(self._running, offsets)
        if not preview:
            for each in plan:
                delete_records(self._running, each)
        return plan

    def _partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        named = (self._running.partitions(name) for name in topics)
        return sorted({each for partitions in named for each in partitions})
