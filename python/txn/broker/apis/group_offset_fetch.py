"""OffsetFetch: the committed offsets of groups on the wire.

Sources: its message schema; KIP-447, KIP-709 (several groups), KIP-848 (topic ids).
"""

import uuid
from collections.abc import Sequence
from typing import Final

from txn.broker.apis.access import Access
from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.group_offsets import resolved
from txn.broker.apis.groups import ANSWER_BYTES_MAX
from txn.broker.apis.guards import (
    GROUP_FAILED,
    TOPIC_FAILED,
)
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.host import Context
from txn.broker.turns import ITEMS_PER_TURN, Turns
from txn.coordinator.group.offsets import GroupOffsets
from txn.identifiers import TopicPartition
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

OFFSET_FETCH_FAILS_WHOLE_FROM: Final = 2
"""The first version of OffsetFetch with an error code of its own."""

OFFSETS_BY_GROUP_FROM: Final = 8
"""The first version of OffsetFetch for several groups."""

FETCHED_BYTES: Final = 64
"""Cost of a fetched offset without its metadata."""


async def offset_fetch(
    groups: GroupCoordinator, request: OffsetFetchRequest, context: Context
) -> OffsetFetchResponse:
    """Answer with committed offsets, -1 where there is none.

    With `require_stable` a partition that a transaction holds has UNSTABLE_OFFSET_COMMIT; the
    client asks again. Without it, a group has no coordinator while the disk refuses the marker of
    one of its commits. A group that is named again is answered again, and a partition of it once
    in each answer. The offsets of a group are of one moment.
    """
    is_stable_only = request.require_stable
    turns = Turns()
    if context.api_version < OFFSETS_BY_GROUP_FROM:
        group = OffsetFetchGroup(group_id=request.group_id, topics=request.topics)
        fetched = await _fetched_of_group(groups, group, context, is_stable_only, turns, {})
        return OffsetFetchResponse(fetched.error_code, fetched.topics)
    fetched_groups = []
    left_bytes = ANSWER_BYTES_MAX
    moments = await _named_again(request.groups)
    for group in request.groups:
        await turns.next()
        if left_bytes < 0:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            fetched_groups.append(FetchedGroup(group.group_id, code, []))
            continue
        fetched = await _fetched_of_group(groups, group, context, is_stable_only, turns, moments)
        fetched_groups.append(fetched)
        left_bytes -= await _fetched_bytes(fetched, turns)
    return OffsetFetchResponse(groups=fetched_groups)


Moments = dict[str, GroupOffsets | None]
"""Groups that a request names several times, and their offsets of the moment that all of its
answers show; None before the first of them."""


async def _named_again(groups: Sequence[OffsetFetchGroup]) -> Moments:
    turns = Turns()
    named: set[str] = set()
    again: Moments = {}
    for group in groups:
        await turns.next()
        if group.group_id in named:
            again[group.group_id] = None
        named.add(group.group_id)
    return again


async def _fetched_bytes(fetched: FetchedGroup, turns: Turns) -> int:
    """About the size of a group's offsets in the answer."""
    size_bytes = 0
    for topic in fetched.topics:
        await turns.next(1 + len(topic.partitions))
        size_bytes += FETCHED_BYTES + len(topic.name)
        size_bytes += sum(FETCHED_BYTES + len(one.metadata) for one in topic.partitions)
    return size_bytes


async def _fetched_of_group(
    groups: GroupCoordinator,
    group: OffsetFetchGroup,
    context: Context,
    is_stable_only: bool,
    turns: Turns,
    moments: Moments,
) -> FetchedGroup:
    """The offsets of a group, all of one moment: a transaction shows whole or not at all (P3)."""
    asked = sum(1 + len(topic.partition_indexes) for topic in group.topics or ())
    await turns.next(asked)
    fault = groups.offsets.fetch_refusal(group.group_id, group.member_id, group.member_epoch)
    if fault is not ErrorCode.NONE:
        return FetchedGroup(group.group_id, fault, [])
    is_served = groups.refusal(group.group_id) is ErrorCode.NONE
    if is_served and (is_stable_only or not groups.offsets.lacks_a_marker(group.group_id)):
        offsets = groups.offsets.of_group(group.group_id)
        if group.group_id in moments:
            offsets = moments[group.group_id] = moments[group.group_id] or offsets.copied()
        elif group.topics is None or asked > ITEMS_PER_TURN:  # it gives way meanwhile
            offsets = offsets.copied()
        topics = await _fetched(groups, group, context, offsets, is_stable_only)
        return FetchedGroup(group.group_id, ErrorCode.NONE, topics)
    code = ErrorCode.NOT_COORDINATOR
    topics = []
    if context.api_version < OFFSET_FETCH_FAILS_WHOLE_FROM:
        for topic in group.topics or ():
            await turns.next(1 + len(topic.partition_indexes))
            partitions = [FetchedOffset(index, code) for index in topic.partition_indexes]
            topics.append(_fetched_topic(topic, partitions))
    return FetchedGroup(group.group_id, code, topics)


async def _fetched(
    groups: GroupCoordinator,
    group: OffsetFetchGroup,
    context: Context,
    offsets: GroupOffsets,
    is_stable_only: bool,
) -> list[FetchedTopic]:
    turns = Turns()
    if group.topics is None:
        return await _fetched_all(groups, context, offsets, is_stable_only, turns)
    answers = []
    answered: set[tuple[str | uuid.UUID | None, int]] = set()
    for topic in group.topics:
        name, _ = resolved(groups, topic.name, topic.topic_id)
        partitions = []
        await turns.next()
        for index in topic.partition_indexes:
            await turns.next()
            place = (topic.topic_id if name is None else name, index)
            if place in answered:
                continue
            answered.add(place)
            partitions.append(
                FetchedOffset(index, ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else _fetched_offset(groups, offsets, (name, index), is_stable_only)
            )
        answers.append(_fetched_topic(topic, partitions))
    return answers


def _fetched_topic(topic: OffsetFetchTopic, partitions: list[FetchedOffset]) -> FetchedTopic:
    """The topic as the request calls it, by its name or its id."""
    return FetchedTopic(topic.name or "", topic.topic_id, partitions)


async def _fetched_all(
    groups: GroupCoordinator,
    context: Context,
    offsets: GroupOffsets,
    is_stable_only: bool,
    turns: Turns,
) -> list[FetchedTopic]:
    by_topic: dict[str, list[FetchedOffset]] = {}
    for place, stored in offsets.committed.items():
        await turns.next()
        topic = place[0]
        if not groups.offsets.is_of_deleted_topic(topic, stored):
            fetched = _fetched_offset(groups, offsets, place, is_stable_only)
            by_topic.setdefault(topic, []).append(fetched)
    topics = [
        FetchedTopic(name, groups.host.topic_id(name), partitions)
        for name, partitions in by_topic.items()
    ]
    is_by_id = context.api_version >= 10
    return [topic for topic in topics if topic.topic_id is not None or not is_by_id]


def _fetched_offset(
    groups: GroupCoordinator, offsets: GroupOffsets, place: TopicPartition, is_stable_only: bool
) -> FetchedOffset:
    topic, partition = place
    if is_stable_only and place in offsets.pending:
        return FetchedOffset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stored = offsets.committed.get(place)
    if stored is None or groups.offsets.is_of_deleted_topic(topic, stored):
        return FetchedOffset(partition, ErrorCode.NONE)
    value = stored.value
    return FetchedOffset(
        partition, ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata
    )


async def _guard_offset_fetch(
    call: Call[GroupCoordinator, OffsetFetchRequest, OffsetFetchResponse],
) -> OffsetFetchResponse:
    """DESCRIBE on the group and on the topics; a list of all topics leaves out the others."""
    access, request = call.access, call.request
    if call.context.api_version >= OFFSETS_BY_GROUP_FROM:
        return await _guarded_of_groups(call)
    if not access.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        if call.context.api_version >= OFFSET_FETCH_FAILS_WHOLE_FROM:
            return OffsetFetchResponse(GROUP_FAILED)
        topics = [_refused_offsets(topic, GROUP_FAILED) for topic in request.topics or ()]
        return OffsetFetchResponse(topics=topics)
    is_kept = await _seen(access, call.service, request.topics)
    kept = _kept(request.topics, is_kept)
    response = await call.proceed_with(changed(request, topics=kept))
    if response.error_code is not ErrorCode.NONE:
        return response
    topics = await _visible(access, response.topics, request.topics, is_kept)
    return response._replace(topics=topics)


async def _guarded_of_groups(
    call: Call[GroupCoordinator, OffsetFetchRequest, OffsetFetchResponse],
) -> OffsetFetchResponse:
    access, groups, request = call.access, call.service, call.request
    turns = Turns()
    asked: list[tuple[OffsetFetchGroup, list[bool] | None]] = []
    for group in request.groups:
        await turns.next()
        is_allowed = access.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        asked.append((group, await _seen(access, groups, group.topics) if is_allowed else None))
    reduced = tuple(
        changed(group, topics=_kept(group.topics, is_kept))
        for group, is_kept in asked
        if is_kept is not None
    )
    found = iter((await call.proceed_with(changed(request, groups=reduced))).groups)
    fetched = []
    for group, is_kept in asked:
        if is_kept is None:
            fetched.append(FetchedGroup(group.group_id, GROUP_FAILED, []))
            continue
        answer = next(found)
        topics = answer.topics
        if answer.error_code is ErrorCode.NONE:
            topics = await _visible(access, answer.topics, group.topics, is_kept)
        fetched.append(answer._replace(topics=topics))
    return OffsetFetchResponse(groups=fetched)


async def _seen(
    access: Access, groups: GroupCoordinator, topics: tuple[OffsetFetchTopic, ...] | None
) -> list[bool]:
    """Say which of the named topics may be described; the handler refuses an unknown id."""
    turns = Turns()
    is_kept = []
    for topic in topics or ():
        await turns.next()
        name, _ = resolved(groups, topic.name, topic.topic_id)
        is_kept.append(name is None or access.may(Operation.DESCRIBE, ResourceType.TOPIC, name))
    return is_kept


def _kept(
    topics: tuple[OffsetFetchTopic, ...] | None, is_kept: list[bool]
) -> tuple[OffsetFetchTopic, ...] | None:
    if topics is None:
        return None
    return tuple(topic for topic, is_one in zip(topics, is_kept, strict=True) if is_one)


async def _visible(
    access: Access,
    fetched: Sequence[FetchedTopic],
    asked: tuple[OffsetFetchTopic, ...] | None,
    is_kept: list[bool],
) -> list[FetchedTopic]:
    """The topics of an answer: those that were asked for, or all that may be described."""
    if asked is None:
        names = [topic.name for topic in fetched]
        seen = await access.among(Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
        return [topic for topic in fetched if topic.name in seen]
    found = iter(fetched)
    return [
        next(found) if is_one else _refused_offsets(topic, TOPIC_FAILED)
        for topic, is_one in zip(asked, is_kept, strict=True)
    ]


def _refused_offsets(topic: OffsetFetchTopic, code: ErrorCode) -> FetchedTopic:
    partitions = [FetchedOffset(index, code) for index in topic.partition_indexes]
    return FetchedTopic(topic.name or "", topic.topic_id, partitions)


APIS: Final = Area(
    lambda node: node.groups,
    Api(
        ApiKey.OFFSET_FETCH,
        (1, 10),
        OffsetFetchRequest,
        OffsetFetchResponse,
        _guard_offset_fetch,
        offset_fetch,
    ),
)
