"""A described group, as `txn groups describe` prints it: JSON, or lines of text.

Nothing is asked here: the facts are there when the output is made.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from txn.cli.output import table
from txn.counts import counted

if TYPE_CHECKING:
    from txn.cluster.groups import (
        ConsumerMember,
        ConsumerProtocol,
        DescribedGroup,
        GroupMember,
        PartitionLag,
        PendingOffsets,
    )
    from txn.identifiers import TopicPartition


NAMED_MAX: Final = 5
"""The most partitions with pending offsets that a text names."""


CLASSIC: Final = "classic"
"""The type of a group that needs no mention."""


OWNER: Final = ("client", "host", "member")
"""The columns about the owner of a partition, of a group with members."""


def group_data(group: "DescribedGroup") -> dict[str, Any]:
    """The JSON object of a group; its lag is None if one partition has none."""
    lags = [lag.records for lag in group.lags]
    owners = group.owners
    return {
        "group": group.group_id,
        "state": group.facts.state,
        "protocol_type": group.facts.protocol_type,
        "consumer_protocol": _consumer_data(group.facts.consumer),
        "drained": group.is_drained,
        "lag": None if None in lags else sum(lag or 0 for lag in lags),
        "members": [
            {
                **_member_data(member),
                "partitions": _places_data(member.partitions),
                "consumer_protocol": _consumer_member_data(member.consumer),
            }
            for member in group.facts.members
        ],
        "partitions": [_partition_data(lag, owners.get(lag.partition)) for lag in group.lags],
        "pending_offsets": None if group.pending is None else _pending_data(group.pending),
    }


def _consumer_data(consumer: "ConsumerProtocol | None") -> dict[str, Any] | None:
    if consumer is None:
        return None
    return {
        "group_epoch": consumer.group_epoch,
        "assignment_epoch": consumer.assignment_epoch,
        "assignor": consumer.assignor,
    }


def _consumer_member_data(consumer: "ConsumerMember | None") -> dict[str, Any] | None:
    if consumer is None:
        return None
    return {
        "member_epoch": consumer.member_epoch,
        "target_partitions": _places_data(consumer.target),
        "rack": consumer.rack_id,
        "topics": list(consumer.topics),
        "pattern": consumer.pattern,
        "is_classic": consumer.is_classic,
    }


def _pending_data(pending: "PendingOffsets") -> dict[str, Any]:
    return {
        "partitions": _places_data(pending.partitions),
        "kept_in": {"topic": pending.kept_in[0], "partition": pending.kept_in[1]},
        "transactional_ids": list(pending.transactional_ids),
    }


def _places_data(partitions: Iterable["TopicPartition"]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _member_data(member: "GroupMember") -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
    }


def _partition_data(lag: "PartitionLag", owner: "GroupMember | None") -> dict[str, Any]:
    topic, index = lag.partition
    ends = lag.offsets
    return {
        "topic": topic,
        "partition": index,
        "committed_offset": lag.committed_offset,
        "log_start_offset": None if ends is None else ends.log_start_offset,
        "last_stable_offset": None if ends is None else ends.last_stable_offset,
        "log_end_offset": None if ends is None else ends.end_offset,
        "lag": lag.records,
        "offsets_left": lag.offsets_left,
        "owner": None if owner is None else _member_data(owner),
    }


def group_lines(group: "DescribedGroup", options: str) -> Iterator[str]:
    """The lines of a group: its state, the partitions with their lag, the pending offsets."""
    facts = group.facts
    drained = {True: "drained", False: "not drained", None: "not known to be drained"}
    yield f"{group.group_id}: {facts.state}, {drained[group.is_drained]}"
    if facts.consumer is not None:
        yield (
            f"  consumer protocol, epoch {facts.consumer.group_epoch}, assigned by "
            f"{facts.consumer.assignor!r} at epoch {facts.consumer.assignment_epoch}"
        )
    for member in facts.members:
        instance = f" (instance {member.instance_id})" if member.instance_id else ""
        owned = f", {counted(len(member.partitions), 'partition')}"
        if member.consumer is not None:
            owned += _consumer_member(member.consumer, member.partitions)
        yield f"  member {member.client_id!r} from {member.client_host}{instance}{owned}"
    if group.pending is not None:
        yield from (f"  {line}" for line in _pending_lines(group.pending, options))
    if not group.lags:
        yield "  no committed offset"
        if group.pending is None:
            what = "if consumers get no records, look for an open transaction"
            yield f"  {what}: txn explain {options}"
        return
    header: tuple[str, ...] = ("partition", "committed", "last stable", "log end", "lag in records")
    rows = [_row(lag) for lag in group.lags]
    if facts.members:
        header += OWNER
        rows = [
            (*row, *_owner_cells(group.owners.get(lag.partition)))
            for row, lag in zip(rows, group.lags, strict=True)
        ]
    texts = len(OWNER) if facts.members else 0
    yield from (f"  {line}" for line in table(header, rows, texts=texts))
    yield from _held_lines(group.held_back, options)


def _held_lines(held: Sequence["TopicPartition"], options: str) -> Iterator[str]:
    """Say which partitions have records behind an open transaction: they are not in the lag."""
    if held:
        topics = sorted({topic for topic, _ in held})
        topic = f" {shlex.quote(topics[0])}" if len(topics) == 1 else ""
        yield (
            f"  an open transaction holds back the records of {_first_of(held)} from the last "
            "stable offset on. The lag does not count them"
        )
        yield f"  see it with txn explain{topic} {options}"


def _consumer_member(consumer: "ConsumerMember", partitions: Sequence["TopicPartition"]) -> str:
    told = f", epoch {consumer.member_epoch}"
    if list(consumer.target) != list(partitions):
        told += f", to have {counted(len(consumer.target), 'partition')}"
    if consumer.pattern is not None:
        told += f", pattern {consumer.pattern!r}"
    return told + (", by the classic protocol" if consumer.is_classic else "")


def _owner_cells(owner: "GroupMember | None") -> tuple[str, ...]:
    if owner is None:
        return ("-",) * len(OWNER)
    return owner.client_id, owner.client_host, owner.member_id


def _pending_lines(pending: "PendingOffsets", options: str) -> Iterator[str]:
    kept_in = "-".join(map(str, pending.kept_in))
    names = ", ".join(map(repr, pending.transactional_ids))
    yield (
        f"an open transaction has its next offsets of {_first_of(pending.partitions)}: consumers "
        "wait there for the end"
    )
    yield f"open in {kept_in}: {names or 'not for this user'}"
    yield f"see it with txn explain {kept_in} {options}"


def _first_of(partitions: Sequence["TopicPartition"]) -> str:
    names = [f"{topic}-{index}" for topic, index in partitions[:NAMED_MAX]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _row(lag: "PartitionLag") -> tuple[str, ...]:
    topic, index = lag.partition
    name = f"{topic}-{index}"
    committed = "none" if lag.committed_offset is None else str(lag.committed_offset)
    if lag.offsets is None:
        return name, committed, "?", "?", "no leader"
    left = f"<= {lag.offsets_left}" if lag.records is None else str(lag.records)
    records = "beyond the end" if lag.is_beyond_end else left
    ends = lag.offsets
    return name, committed, str(ends.last_stable_offset), str(ends.end_offset), records
