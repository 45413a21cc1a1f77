"""Samples topics, groups and open transactions for `txn top`, and computes rates of two samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from txn.admin.cluster import RunningCluster
from txn.cluster.facts import PartitionOffsets
from txn.coordinator.transaction.states import TxnState
from txn.errors import RejectedError
from txn.identifiers import TopicPartition
from txn.metadata.image import INTERNAL_TOPICS

OPEN: Final = frozenset({TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class TopicActivity:
    """A topic; offsets are sums over its partitions."""

    name: str
    partitions: int
    start_offsets: int
    stable_offsets: int
    end_offsets: int

    @property
    def held_back(self) -> int:
        """Offsets that read_committed does not read yet."""
        return self.end_offsets - self.stable_offsets


@dataclass(frozen=True, slots=True)
class GroupActivity:
    """A group; offsets are sums over its partitions. None: its user may not know them."""

    group_id: str
    state: str
    committed_offsets: int | None
    lag: int | None
    """Offsets up to the last stable ones: at least as many as records."""


@dataclass(frozen=True, slots=True)
class TransactionActivity:
    """An open transaction."""

    transactional_id: str
    state: TxnState
    start_ms: int | None
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at one time; None: its user may not list groups, or transactions."""

    at_ms: int
    topics: Mapping[str, TopicActivity]
    groups: Mapping[str, GroupActivity] | None
    transactions: Sequence[TransactionActivity] | None


def sampled(cluster: RunningCluster) -> Sample:
    """Ask a cluster.

    Raises:
        RetriableError: a broker does not answer.
        RejectedError: its user may not see topics.
    """
    cluster.refresh()
    known = cluster.topics()
    indexes = {name: own for name, own in known.items() if name not in INTERNAL_TOPICS}
    topics, stable = topic_activity(cluster, indexes)
    groups = group_activity(cluster, stable)
    return Sample(cluster.now_ms(), topics, groups, open_transactions(cluster))


def topic_activity(
    cluster: RunningCluster, indexes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, TopicActivity], dict[TopicPartition, int]]:
    """Sample partitions of topics; return the topics, and the last stable offset of each partition.

    Args:
        cluster: The cluster.
        indexes: Topic → its partitions to sample.
    """
    partitions = {name: [(name, index) for index in own] for name, own in indexes.items()}
    ends = cluster.ends([each for own in partitions.values() for each in own])
    topics = {
        name: _topic(name, len(own), [ends[each] for each in own if each in ends])
        for name, own in partitions.items()
    }
    return topics, {each: end.last_stable_offset for each, end in ends.items()}


def group_activity(
    cluster: RunningCluster, stable: Mapping[TopicPartition, int], groups_max: int | None = None
) -> dict[str, GroupActivity] | None:
    """Sample groups by name; None: the user may not list them.

    Args:
        cluster: The cluster.
        stable: Partition → its last stable offset; the lag counts these partitions alone.
        groups_max: The most groups to sample, the first by name; None: all.
    """
    return _result_or_none(partial(_groups, cluster, stable, groups_max))


def open_transactions(cluster: RunningCluster) -> list[TransactionActivity] | None:
    """The open transactions, oldest first; None: the user may not list them."""
    return _result_or_none(partial(_transactions, cluster))


def rate(before: int | None, now: int | None, elapsed_ms: int) -> float | None:
    """Return the growth a second; None where it is not known."""
    if before is None or now is None or elapsed_ms <= 0:
        return None
    return max(now - before, 0) * 1000 / elapsed_ms


def _topic(name: str, partitions: int, ends: Sequence[PartitionOffsets]) -> TopicActivity:
    return TopicActivity(
        name,
        partitions,
        sum(each.log_start_offset for each in ends),
        sum(each.last_stable_offset for each in ends),
        sum(each.end_offset for each in ends),
    )


def _groups(
    cluster: RunningCluster, stable: Mapping[TopicPartition, int], groups_max: int | None
) -> dict[str, GroupActivity]:
    found = {}
    for group in cluster.groups()[:groups_max]:
        committed = _result_or_none(partial(cluster.committed_offsets, group.group_id))
        lag = total = None
        if committed is not None:
            total = sum(committed.values())
            lag = sum(
                max(stable[each] - offset, 0)
                for each, offset in committed.items()
                if each in stable
            )
        found[group.group_id] = GroupActivity(group.group_id, group.state, total, lag)
    return found


def _transactions(cluster: RunningCluster) -> list[TransactionActivity]:
    return [
        TransactionActivity(
            owner.transactional_id, owner.state, owner.start_ms, sorted(owner.partitions)
        )
        for owner in sorted(cluster.owners(), key=lambda owner: owner.start_ms or 0)
        if owner.state in OPEN
    ]


def _result_or_none(ask: Callable[[], Found]) -> Found | None:
    try:
        return ask()
    except RejectedError:
        return None
