"""The shards of `__consumer_offsets`: groups and committed offsets, replayed from their logs.

Invariant: the state of a group belongs to its shard alone. It is the fold of the log, the timer of
the next deadline, and the bytes that members use. A shard that is out of service keeps no state,
and its timers are cancelled.

`GroupShards.load` makes the shards; the marker sender and the group coordinator use them.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Self

from typing_extensions import override

from txn.broker.host import Host, Timer
from txn.broker.shard import Shard
from txn.broker.shards import Shards
from txn.coordinator.group.classic.group import Group
from txn.coordinator.group.classic.membership import begin_round
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.records import ConsumerRecord, Kind
from txn.coordinator.group.offsets import StoredOffset
from txn.coordinator.group.records import (
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    decode_record,
    encode_record,
)
from txn.coordinator.group.store import AnyGroup, GroupLogRecord, GroupStore
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.delta import Delta
from txn.metadata.image import OFFSETS_TOPIC, Image
from txn.storage.base import BatchKind, StoredBatch
from txn.wire.error_codes import ErrorCode

BATCH_BYTES_MIN: Final = 1_048_588
"""Least limit of a group's batch: Kafka's default, also where clients' batches are smaller."""

TOMBSTONES_PER_BATCH: Final = 500


class LiveGroups(GroupStore):
    """The fold of a shard's log, and the state of its groups that is in memory alone."""

    __slots__ = ("held_bytes", "passed_over", "sizes", "timers", "unmarked")

    def __init__(self) -> None:
        super().__init__()
        self.timers: dict[str, tuple[int, Timer]] = {}
        """Group → (when its timer rings, on the monotonic clock; the timer)."""
        self.sizes: dict[str, int] = {}
        """Bytes of each group and its members, as far as they count for the limit."""
        self.held_bytes = 0
        """The same, of all groups together."""
        self.unmarked: set[int] = set()
        """Producer ids of commits that are decided, and whose marker the disk refuses."""
        self.passed_over = 0
        """Records of protocols that this broker does not speak: share and streams groups."""

    def note_size(self, group: AnyGroup) -> None:
        """Note the bytes that a group and its members take.

        One that is left with its committed offsets alone takes none: it is stored, as records are.
        """
        is_awaited = isinstance(group, Group) and group.pending
        is_live = group.members or is_awaited or not self.offsets.committed(group.group_id)
        self._set_size(group.group_id, group.size_bytes if is_live else 0)

    def arm(self, group_id: str, when_ms: int, timer: Timer) -> None:
        """Keep a group's timer in place of its former one."""
        self.disarm(group_id)
        self.timers[group_id] = (when_ms, timer)

    def disarm(self, group_id: str) -> None:
        """Cancel a group's timer, if it has one."""
        armed = self.timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()

    def forget(self, group_id: str) -> None:
        """Drop a deleted group's timer and its size."""
        self.disarm(group_id)
        self._set_size(group_id, 0)

    def close(self) -> None:
        """Cancel every timer."""
        for _, timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def _set_size(self, group_id: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self.sizes.pop(group_id, 0)
        if size_bytes > 0:
            self.sizes[group_id] = size_bytes


GroupShard = Shard[LiveGroups, GroupLogRecord]


class GroupShards(Shards[LiveGroups, GroupLogRecord]):
    """Every partition of `__consumer_offsets`, 0 first."""

    topic = OFFSETS_TOPIC
    not_served = "group.groups_not_served"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.on_round: Callable[[Group], object] = lambda group: None
        """Called with a classic group that begins a round for changed topics."""

    @classmethod
    def load(cls, host: Host) -> Self:
        """Replay `__consumer_offsets`.

        A partition that cannot be read is out of service, with all groups that it keeps. Their
        requests are answered with NOT_COORDINATOR.
        """
        loaded = cls(host)
        loaded.make()
        for shard in loaded.shards:
            if host.is_untouched(OFFSETS_TOPIC, shard.index) or loaded.load_shard(shard):
                shard.activate()
        passed_over = sum(shard.state.passed_over for shard in loaded.shards)
        if passed_over:
            log.warning(
                "group.records_passed_over",
                records=passed_over,
                reason="they are of the share or streams protocol of Apache Kafka",
            )
        return loaded

    def of(self, group_id: str) -> GroupShard:
        """The shard that keeps a group."""
        return self.shards[self.index_of(group_id)]

    def any_group(self, group_id: str) -> AnyGroup | None:
        """A group of any protocol as it is, or None."""
        return self.of(group_id).state.groups.get(group_id)

    def classic_group(self, group_id: str) -> Group | None:
        """A group of the classic protocol as it is, or None."""
        group = self.any_group(group_id)
        return group if isinstance(group, Group) else None

    def require_loaded(self, group_id: str) -> None:
        """Raises StorageError: the stored state of a group could not be read."""
        if self.of(group_id).refusal is not ErrorCode.NONE:
            index = self.index_of(group_id)
            raise StorageError(
                f"{OFFSETS_TOPIC}-{index}, which keeps group {group_id!r}, cannot be read",
                topic=OFFSETS_TOPIC,
                partition=index,
            )

    def committed(self) -> Iterator[tuple[str, Mapping[tuple[str, int], StoredOffset]]]:
        """The committed offsets of every group that has any."""
        return (each for shard in self.shards for each in shard.state.offsets.by_group())

    @override
    def append_limit(self) -> Callable[[], int]:
        return self.batch_bytes_max

    def batch_bytes_max(self) -> int:
        """The largest batch of `__consumer_offsets`: no generation and no commit is larger."""
        largest: int = self._host.setting("message.max.bytes")
        return max(largest, BATCH_BYTES_MIN)

    @override
    def load_shard(self, shard: GroupShard) -> bool:
        is_loaded = super().load_shard(shard)
        for group in shard.state.groups.values():
            shard.state.note_size(group)
        return is_loaded

    @override
    def on_unloaded(self, shard: GroupShard) -> None:
        shard.state.close()

    @override
    def on_metadata(self, image: Image, delta: Delta) -> None:
        for topic in delta.deleted:
            self.on_topic_deleted(topic)
        if delta.created or delta.deleted or delta.grown:
            self.on_topics(has_new=bool(delta.created))

    def on_topics(self, *, has_new: bool) -> None:
        """Let consumer groups look at the topics again, with the next heartbeat of a member.

        Members of a classic group that nobody leads join again.
        """
        now_ms = self._host.monotonic_ms()
        for shard in self.shards:
            for group in list(shard.state.groups.values()):
                if isinstance(group, ConsumerGroup):
                    group.is_outdated = True
                    group.has_new_topics = group.has_new_topics or has_new
                elif group.is_unled:
                    rebalancing = begin_round(group, now_ms=now_ms)
                    shard.state.put_live(rebalancing)
                    self.on_round(rebalancing)

    def on_topic_deleted(self, topic: str) -> None:
        """Forget the offsets of a topic that is gone."""
        for shard in self.shards:
            try:
                delete_offsets(shard, shard.state.offsets.keys_of_topic(topic))
            except StorageError as error:
                log.error(
                    "group.offsets_kept", topic=topic, partition=shard.index, reason=str(error)
                )

    def on_refusal(self, topic: str, index: int) -> None:
        """Serve the groups of a partition no longer that was taken out of service."""
        if topic == OFFSETS_TOPIC:
            self.fail(self.shards[index], f"{OFFSETS_TOPIC}-{index} is damaged")

    def on_offsets_marker(self, partition_index: int, producer_id: int, is_commit: bool) -> None:
        """A marker was appended to a partition: pending offsets count from now on, or never."""
        state = self.shards[partition_index].state
        state.offsets.end_transaction(producer_id, is_commit=is_commit)
        state.unmarked.discard(producer_id)

    def on_offsets_refusal(self, partition_index: int, producer_id: int) -> None:
        """The marker of a commit has to wait for the disk: its offsets are not answered before."""
        self.shards[partition_index].state.unmarked.add(producer_id)

    @override
    def empty(self, former: LiveGroups | None = None) -> LiveGroups:
        return LiveGroups()

    @override
    def encode(self, shard: GroupShard, record: GroupLogRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    @override
    def read(self, shard: GroupShard, batch: StoredBatch) -> None:
        if batch.kind in (BatchKind.COMMIT_MARKER, BatchKind.ABORT_MARKER):
            is_commit = batch.kind is BatchKind.COMMIT_MARKER
            shard.state.offsets.end_transaction(batch.producer_id, is_commit=is_commit)
            return
        producer_id = batch.producer_id if batch.kind is BatchKind.TRANSACTIONAL else None
        now_ms = self._host.monotonic_ms()
        for stored in batch.records:
            try:
                record = decode_record(stored.key or b"", stored.value, producer_id)
            except (ValueError, struct.error) as error:
                raise CorruptLogError(
                    f"{OFFSETS_TOPIC}-{shard.index} holds a damaged record at offset "
                    f"{stored.offset}: {error}",
                    partition=shard.index,
                    offset=stored.offset,
                ) from error
            if record is None:
                shard.state.passed_over += 1
            else:
                shard.state.replay(record, record_offset=stored.offset, now_ms=now_ms)

    @override
    def replay(self, shard: GroupShard, record: GroupLogRecord, offset: int) -> None:
        """Fold in a record that was appended."""
        now_ms = self._host.monotonic_ms()
        shard.state.replay(record, record_offset=offset, now_ms=now_ms)
        if record.value is None and (
            isinstance(record, GroupRecord)
            or (isinstance(record, ConsumerRecord) and record.key.kind is Kind.EPOCH)
        ):
            shard.state.forget(record.key.group_id)


def delete_offsets(shard: GroupShard, keys: Iterable[OffsetKey]) -> None:
    """Append tombstones, some hundred at a time. Raises StorageError: some are not deleted."""
    ordered = sorted(keys, key=lambda key: (key.group_id, key.topic, key.partition))
    for start in range(0, len(ordered), TOMBSTONES_PER_BATCH):
        chunk = ordered[start : start + TOMBSTONES_PER_BATCH]
        shard.append([OffsetRecord(key, None) for key in chunk])
