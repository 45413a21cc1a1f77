"""The lag of groups in committed records, for a scrape.

The lag of a group in a partition is the number of committed records from its offset up to the last
stable offset. If the offset is below the log start, counting begins at the log start. Markers and
records of aborted transactions do not count. So a group that has read all committed records has lag
0, though its offset is below the log end. It is drained if the lag is 0 in each partition where it
has an offset, and no other partition of these topics has records. An offset beyond the log end was
never written, as in a topic that was made anew: its lag is not known.

Cost. A scrape counts for `TIME_SHARE` of the time since the scrape before, and continues where that
one stopped. So a long log is counted over several scrapes. Each partition may use half of the time
left. Partitions that the scrape before did not finish come last, so a long log delays no other.

Bounds. At most `metrics.group.partitions.max` committed offsets are measured, of whole groups:
first groups with members, then groups of the scrape before. So a client that invents groups
displaces no other group, unless it also joins them. If there are more offsets, choosing checks
every group. So choosing, too, may use `TIME_SHARE` of the time, and the choice is kept until then.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from txn import _core
from txn.broker.node import Node
from txn.broker.partitions import TopicPartitions
from txn.identifiers import TopicPartition
from txn.storage.base import PartitionLog
from txn.storage.native_log import NativeLog

TIME_SHARE: Final = 0.01
FIRST_S: Final = 0.05
"""The time of the first scrape."""
LONGEST_S: Final = 0.15

GROUP_ID_MAX: Final = 255
"""The most characters of a group's name; a client's may have 32,767."""


class GroupLag(NamedTuple):
    """A group and its lag in each partition with a committed offset of it."""

    group_id: str
    records: Mapping[TopicPartition, int | None]
    """None: it is not counted yet, the log cannot be read, or the offset is beyond its end."""
    has_unread_partitions: bool
    """Another partition of its topics has records, and no offset of it."""

    @property
    def is_drained(self) -> bool:
        """True if the group has read every committed record of its topics."""
        return not self.has_unread_partitions and all(
            records == 0 for records in self.records.values()
        )


class Lags(NamedTuple):
    """The lag of groups at one moment."""

    groups: list[GroupLag]
    left_out: int
    """Number of groups beyond the bound."""
    uncounted: int
    """Number of offsets whose lag is not known yet."""


class _Choice(NamedTuple):
    """The groups whose lag is reported."""

    group_ids: list[str]
    left_out: int
    made_at: float
    cost_s: float
    """CPU time that choosing took; 0 if there was room for all."""


class _Counter(NamedTuple):
    """The counter of a log, while the partition has this log."""

    store: PartitionLog
    records: _core.RecordCounter


class GroupLags:
    """Counts the lag of groups, scrape by scrape. Used from one thread.

    Args:
        node: The broker.
        offsets_max: The most committed offsets of one scrape.
        clock: Seconds on a clock that never steps.
        cpu_clock: Seconds of CPU that the calling thread has used.
    """

    def __init__(
        self,
        node: Node,
        offsets_max: int,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._node = node
        self._offsets_max = offsets_max
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._counters: dict[TopicPartition, _Counter] = {}
        self._undone: set[TopicPartition] = set()
        """Partitions whose count was not done at the last scrape."""
        self._choice: _Choice | None = None
        self._last: float | None = None

    def read(self) -> Lags:
        """The lag of the groups within the bound."""
        self._choice = choice = self._chosen()
        groups = {
            group_id: {
                place: stored.value.offset
                for place, stored in self._node.groups.offsets.committed(group_id).items()
            }
            for group_id in choice.group_ids
        }
        offsets: dict[TopicPartition, set[int]] = {}
        for committed in groups.values():
            for place, offset in committed.items():
                offsets.setdefault(place, set()).add(offset)
        counted = self._counted(offsets)
        filled = {topic: self._filled(topic) for topic in {topic for topic, _ in counted}}
        lags = [
            GroupLag(
                group_id,
                {
                    place: counted[place].get(offset)
                    for place, offset in committed.items()
                    if place in counted
                },
                _leaves_out(committed, filled),
            )
            for group_id, committed in groups.items()
            if not counted.keys().isdisjoint(committed)  # else all its topics were deleted
        ]
        uncounted = sum(each is None for lag in lags for each in lag.records.values())
        return Lags(lags, choice.left_out, uncounted)

    def _chosen(self) -> _Choice:
        """The groups within the bound: the last choice while another would cost too much."""
        now, last = self._clock(), self._choice
        if last is not None and (now - last.made_at) * TIME_SHARE < last.cost_s:
            return last
        began_s = self._cpu_clock()
        found = self._node.groups.offsets.groups_with_offsets()
        fitting = [(name, count) for name, count in found if len(name) <= GROUP_ID_MAX]
        if sum(count for _, count in fitting) <= self._offsets_max:
            every = [name for name, _ in fitting]
            return _Choice(every, len(found) - len(every), now, 0.0)
        chosen = []
        left = self._offsets_max
        for name, count in self._in_order(fitting):
            if count <= left:
                chosen.append(name)
                left -= count
            if not left:
                break
        cost_s = self._cpu_clock() - began_s
        return _Choice(chosen, len(found) - len(chosen), now, cost_s)

    def _in_order(self, groups: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Groups with members first, by name; then those of the last choice, in its order."""
        counts = dict(groups)
        active = sorted(
            group.group_id
            for group in self._node.groups.groups()
            if group.members and group.group_id in counts
        )
        named = self._choice.group_ids if self._choice is not None else ()
        first = dict.fromkeys((*active, *(name for name in named if name in counts)))
        others = sorted(name for name in counts if name not in first)
        return [(name, counts[name]) for name in (*first, *others)]

    def _counted(
        self, wanted: Mapping[TopicPartition, Iterable[int]]
    ) -> dict[TopicPartition, dict[int, int | None]]:
        """Records behind offsets, by partition and offset; no deleted topics."""
        deadline = self._deadline()
        counters: dict[TopicPartition, _Counter] = {}
        counted: dict[TopicPartition, dict[int, int | None]] = {}
        undone: set[TopicPartition] = set()
        for place in sorted(wanted, key=self._undone.__contains__):
            topic, index = place
            partitions = self._node.partitions.get(topic)
            if partitions is None or not partitions.has(index):
                continue  # it was deleted
            offsets = [*wanted[place]]
            records: list[int | None] = [0 if partitions.is_untouched(index) else None]
            records *= len(offsets)
            counter = self._counter(partitions, place)
            if counter is not None:
                counters[place] = counter
                records = _records_behind(counter, offsets, (deadline - self._clock()) / 2)
            counted[place] = dict(zip(offsets, records, strict=True))
            if None in records:
                undone.add(place)
            end = 0 if counter is None else counter.store.log_end_offset
            if counter is not None or partitions.is_untouched(index):
                counted[place] |= dict.fromkeys((each for each in offsets if each > end), None)
        self._counters, self._undone = counters, undone
        return counted

    def _filled(self, topic: str) -> frozenset[int]:
        """The partitions of a topic that may have records."""
        partitions = self._node.partitions.get(topic)
        if partitions is None:
            return frozenset()
        return frozenset(
            index
            for index, store in enumerate(partitions.stores)
            if not partitions.is_untouched(index)
            and (store is None or store.log_end_offset > store.log_start_offset)
        )

    def _counter(self, partitions: TopicPartitions, place: TopicPartition) -> _Counter | None:
        """The counter of a partition's log; None if that is not open."""
        store = partitions.stores[place[1]]
        if store is None:
            return None
        known = self._counters.get(place)
        if known is not None and known.store is store:
            return known
        assert isinstance(store, NativeLog), f"{place} is not on disk"
        return _Counter(store, _core.RecordCounter(store.log))

    def _deadline(self) -> float:
        now, last = self._clock(), self._last
        self._last = now
        return now + (FIRST_S if last is None else min((now - last) * TIME_SHARE, LONGEST_S))


def _leaves_out(committed: Iterable[TopicPartition], filled: Mapping[str, frozenset[int]]) -> bool:
    """Return True if a topic of these partitions has filled ones beside them."""
    left = {topic: len(filled.get(topic, ())) for topic, _ in committed}
    for topic, index in committed:
        left[topic] -= index in filled.get(topic, ())
    return any(left.values())


def _records_behind(counter: _Counter, offsets: list[int], seconds: float) -> list[int | None]:
    try:
        return counter.records.count(offsets, seconds)[1]
    except (_core.CorruptLogError, _core.LogRefusedError, OSError):  # readers get the error
        return [None] * len(offsets)
