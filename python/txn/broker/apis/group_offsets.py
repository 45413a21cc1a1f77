"""Committed offsets of groups on the wire.

Errors that not every version carries: TxnOffsetCommit answers a fenced producer with
INVALID_PRODUCER_EPOCH, the only such code that librdkafka knows, and a failed write with
COORDINATOR_NOT_AVAILABLE. Before 4 it sends INVALID_TXN_STATE for TRANSACTION_ABORTABLE. Before 2
it sends COORDINATOR_NOT_AVAILABLE for COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).

Sources: the message schemas of these requests; KIP-447, KIP-709 (several groups), KIP-848 (topic
ids).
"""

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.broker.apis.api import Api
from txn.broker.apis.groups import ANSWER_BYTES_MAX, fits, is_group_id
from txn.broker.audit import audit
from txn.broker.group_coordinator import Committer, GroupCoordinator, group_error
from txn.broker.host import Context
from txn.broker.turns import ITEMS_PER_TURN, Turns
from txn.coordinator.group.classic import (
    CONSUMER_PROTOCOL_TYPE,
    GROUP_NOT_FOUND_FROM,
    Group,
    GroupState,
    subscribed_topics,
)
from txn.coordinator.group.offsets import GroupOffsets, TopicPartition
from txn.coordinator.group.records import NEVER, OffsetKey, OffsetValue
from txn.coordinator.transaction.connections import ConnectionUse
from txn.coordinator.transaction.states import ProducerIdAndEpoch
from txn.errors import StorageError
from txn.storage.base import ProducerIdentity
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    CommittedPartition,
    CommittedTopic,
    DeletedOffset,
    DeletedOffsets,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from txn.wire.error_codes import ErrorCode

TV2_FROM: Final = 5
"""Version of TxnOffsetCommit from which clients are of transaction version 2."""

OFFSET_FETCH_FAILS_WHOLE_FROM: Final = 2
"""The first version of OffsetFetch with an error code of its own."""

FETCHED_BYTES: Final = 64
"""Cost of a fetched offset without its metadata."""


async def offset_commit(
    groups: GroupCoordinator, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Store offsets; each partition tells if its own was stored."""
    retention_ms = request.retention_time_ms
    checked = await _check_offsets(groups, request.group_id, request.topics, retention_ms)
    if not fits(request.group_id):
        fault = ErrorCode.INVALID_GROUP_ID
    elif checked.has_partitions:
        fault = await groups.commit(
            _committer(request),
            checked.offsets,
            knows_group_not_found=context.api_version >= GROUP_NOT_FOUND_FROM,
        )
        if fault is ErrorCode.NONE:
            fault = await groups.sync_offsets(request.group_id)
    else:
        fault = ErrorCode.NONE
    return await _committed(request.topics, checked, fault)


async def txn_offset_commit(
    groups: GroupCoordinator, request: TxnOffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Store offsets that count when the transaction commits."""
    has_own_epoch = context.api_version >= TV2_FROM
    if not has_own_epoch:
        owner = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        await groups.transactions.hang_up_if_late(
            request.transactional_id, owner, context.session.client, ConnectionUse.OFFSETS
        )
    checked = await _check_offsets(groups, request.group_id, request.topics)
    if not is_group_id(request.group_id):
        fault = ErrorCode.INVALID_GROUP_ID
    elif checked.has_partitions:
        fault = await groups.commit_in_transaction(
            _committer(request),
            checked.offsets,
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(request.producer_id, request.producer_epoch),
            transaction_version=2 if has_own_epoch else 1,
        )
        if fault is ErrorCode.NONE:
            fault = await groups.sync_offsets(
                request.group_id, transactional_id=request.transactional_id
            )
    else:
        fault = ErrorCode.NONE
    return await _committed(request.topics, checked, _known_to(context.api_version, fault))


def _known_to(api_version: int, code: ErrorCode) -> ErrorCode:
    """The code a TxnOffsetCommit client of a version understands; see the top."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < 4:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < 2:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _committer(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )


CommitTopics = Sequence[OffsetCommitTopic | TxnOffsetCommitTopic]

Place = tuple[int, int]
"""Position of a topic in a request, and of a partition in it: names may come twice."""


LATEST_MS: Final = (1 << 63) - 1
"""The latest time that a record holds."""


class _Checked(NamedTuple):
    """A commit, split into offsets that can be stored and the others.

    Attributes:
        unknown: Partitions that are not there, with a code each.
        oversized: Partitions whose metadata is too large. They are refused after everything that
            concerns the group or the producer, as in Kafka.
        offsets: The others.
    """

    unknown: dict[Place, ErrorCode]
    oversized: set[Place]
    offsets: dict[OffsetKey, OffsetValue]

    @property
    def has_partitions(self) -> bool:
        """Say whether any of the partitions is there, so that the group is asked."""
        return bool(self.offsets or self.oversized)

    def code(self, place: Place, fault: ErrorCode) -> ErrorCode:
        """The code of a partition of a commit that the group or the producer is refused for."""
        code = self.unknown.get(place) or fault
        is_oversized = code is ErrorCode.NONE and place in self.oversized
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_oversized else code


async def _check_offsets(
    groups: GroupCoordinator, group_id: str, topics: CommitTopics, retention_ms: int = -1
) -> _Checked:
    checked = _Checked({}, set(), {})
    turns = Turns()
    most = groups.host.setting("offset.metadata.max.bytes")
    now_ms = groups.host.now_ms()
    expires_ms = NEVER if retention_ms < 0 else min(now_ms + retention_ms, LATEST_MS)
    for topic_position, topic in enumerate(topics):
        await turns.next()
        name, topic_id = resolved(groups, topic.name, topic_id_of(topic))
        for position, partition in enumerate(topic.partitions):
            await turns.next()
            metadata = partition.committed_metadata or ""
            place = topic_position, position
            if name is None:
                checked.unknown[place] = ErrorCode.UNKNOWN_TOPIC_ID
            elif not groups.host.has_partition(name, partition.partition_index):
                checked.unknown[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif _java_length(metadata) > most or not fits(metadata):
                checked.oversized.add(place)
            else:
                key = OffsetKey(group_id, name, partition.partition_index)
                checked.offsets[key] = OffsetValue(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expires_ms,
                    topic_id,
                )
    return checked


async def _committed(
    topics: CommitTopics, checked: _Checked, fault: ErrorCode
) -> OffsetCommitResponse:
    """Each partition's own code, or else the group's."""
    turns = Turns()
    committed = []
    for topic_position, topic in enumerate(topics):
        partitions = []
        await turns.next()
        for position, partition in enumerate(topic.partitions):
            await turns.next()
            code = checked.code((topic_position, position), fault)
            partitions.append(CommittedPartition(partition.partition_index, code))
        committed.append(CommittedTopic(topic.name or "", topic_id_of(topic), partitions))
    return OffsetCommitResponse(committed)


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
    if context.api_version < 8:
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
    is_served = groups.refusal(group.group_id) is ErrorCode.NONE
    if is_served and (is_stable_only or not groups.lacks_a_marker(group.group_id)):
        offsets = groups.offsets(group.group_id)
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
    told: set[tuple[str | uuid.UUID | None, int]] = set()
    for topic in group.topics:
        name, _ = resolved(groups, topic.name, topic.topic_id)
        partitions = []
        await turns.next()
        for index in topic.partition_indexes:
            await turns.next()
            place = (topic.topic_id if name is None else name, index)
            if place in told:
                continue
            told.add(place)
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
        if not groups.is_of_deleted_topic(topic, stored):
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
    if stored is None or groups.is_of_deleted_topic(topic, stored):
        return FetchedOffset(partition, ErrorCode.NONE)
    value = stored.value
    return FetchedOffset(
        partition, ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata
    )


async def offset_delete(
    groups: GroupCoordinator, request: OffsetDeleteRequest, context: Context
) -> OffsetDeleteResponse:
    """Delete offsets of topics that the group's members do not consume."""
    if not is_group_id(request.group_id):
        return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
    if groups.refusal(request.group_id) is not ErrorCode.NONE:
        return OffsetDeleteResponse(ErrorCode.NOT_COORDINATOR)
    fault = _delete_fault(groups.group(request.group_id))
    if fault is not ErrorCode.NONE:
        return OffsetDeleteResponse(fault)
    turns = Turns()
    codes = {}
    for topic in request.topics:
        await turns.next()
        for partition in topic.partitions:
            await turns.next()
            key = OffsetKey(request.group_id, topic.name, partition.partition_index)
            is_there = groups.host.has_partition(key.topic, key.partition)
            codes[key] = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # From here to the deletion in one step: a member that joined meanwhile keeps its offsets.
    group = groups.group(request.group_id)
    fault = _delete_fault(group)
    if group is None or fault is not ErrorCode.NONE:
        return OffsetDeleteResponse(fault)
    consumed = subscribed_topics(group)
    keys = []
    for key, code in codes.items():
        if code is ErrorCode.NONE and (consumed is None or key.topic in consumed):
            codes[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif code is ErrorCode.NONE:
            keys.append(key)
    try:
        await groups.delete_offsets(request.group_id, keys)
    except StorageError as error:
        return OffsetDeleteResponse(group_error(error))
    if keys:
        audit.acted(context, "offsets.deleted", "GROUP", request.group_id, offsets=len(keys))
    deleted = []
    for topic in request.topics:
        await turns.next(1 + len(topic.partitions))
        indexes = [partition.partition_index for partition in topic.partitions]
        partitions = [
            DeletedOffset(index, codes[OffsetKey(request.group_id, topic.name, index)])
            for index in indexes
        ]
        deleted.append(DeletedOffsets(topic.name, partitions))
    return OffsetDeleteResponse(ErrorCode.NONE, deleted)


def _delete_fault(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def resolved(
    groups: GroupCoordinator, name: str | None, topic_id: uuid.UUID | None
) -> tuple[str | None, uuid.UUID | None]:
    """The (name, id) of a requested topic. No name: the id is unknown; no id: the name is."""
    if name is not None:
        return name, groups.host.topic_id(name)
    return groups.host.topic_name(topic_id or uuid.UUID(int=0)), topic_id


def topic_id_of(topic: OffsetCommitTopic | TxnOffsetCommitTopic) -> uuid.UUID | None:
    """The id by which a request names a topic, if it does."""
    return topic.topic_id if isinstance(topic, OffsetCommitTopic) else None


def _java_length(text: str) -> int:
    """The length of a text as Java counts it, in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


APIS: Final[tuple[Api[GroupCoordinator], ...]] = (
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, offset_commit),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, offset_fetch),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        TxnOffsetCommitRequest,
        OffsetCommitResponse,
        txn_offset_commit,
    ),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, offset_delete),
)
