"""Groups and committed offsets on the wire.

Every handler translates: request fields to the words of `txn.broker.group_coordinator`, and its
answers to response fields. Rules of a version live here, rules of a group do not.

Errors that not every version carries: LeaveGroup before 3 tells the one member's error at the top.
TxnOffsetCommit answers a fenced producer with INVALID_PRODUCER_EPOCH, the only such code that
librdkafka knows, and a failed write with COORDINATOR_NOT_AVAILABLE. Before 4 it sends
INVALID_TXN_STATE for TRANSACTION_ABORTABLE. Before 2 it sends COORDINATOR_NOT_AVAILABLE for
COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).

Sources: the message schemas of these requests; KIP-345, KIP-394, KIP-447, KIP-518 (states),
KIP-559, KIP-709 (several groups), KIP-848 (topic ids, types), KIP-1043 (GROUP_ID_NOT_FOUND).
"""

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.broker.apis.api import Api
from txn.broker.audit import audit
from txn.broker.group_coordinator import Committer, GroupCoordinator, group_error
from txn.broker.host import Context
from txn.broker.turns import ITEMS_PER_TURN, Turns
from txn.coordinator.group.classic import (
    CONSUMER_PROTOCOL_TYPE,
    GROUP_NOT_FOUND_FROM,
    Group,
    GroupState,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    subscribed_topics,
)
from txn.coordinator.group.members import Member
from txn.coordinator.group.offsets import GroupOffsets, TopicPartition
from txn.coordinator.group.records import NEVER, OffsetKey, OffsetValue
from txn.coordinator.transaction.connections import ConnectionUse
from txn.coordinator.transaction.states import ProducerIdAndEpoch
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC
from txn.security.acls import OPERATIONS_OF, ResourceType, operation_bits
from txn.storage.base import ProducerIdentity
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    CommittedPartition,
    CommittedTopic,
    DeletedGroup,
    DeletedOffset,
    DeletedOffsets,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from txn.wire.error_codes import ErrorCode

TV2_FROM: Final = 5
"""Version of TxnOffsetCommit from which clients are of transaction version 2."""

STRING_BYTES_MAX: Final = 32_000
"""Ids and names go into records whose strings are at most 32,767 bytes long; member ids get a
random part."""

PROTOCOLS_MAX: Final = 100
"""Assignors of one member; clients have up to five."""

GROUP_OPERATIONS: Final = operation_bits(OPERATIONS_OF[ResourceType.GROUP])
"""Told where nobody is refused."""

OFFSET_FETCH_FAILS_WHOLE_FROM: Final = 2
"""The first version of OffsetFetch with an error code of its own."""

WRITTEN_ITEMS: Final = 10
"""Cost of an entry for which a record is written, in the items of `Turns`."""

ANSWER_BYTES_MAX: Final = 32 << 20
"""Size of the groups, or of the offsets of groups, in one answer. The first group is always told.
Those behind the limit are refused with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again."""

FETCHED_BYTES: Final = 64
"""Cost of a fetched offset without its metadata."""

CLASSIC: Final = "classic"


# ---------------------------------------------------------------- members


async def join_group(
    groups: GroupCoordinator, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    """Answer when the member's next generation begins, or at once with an error."""
    fault = _join_fault(groups, request)
    if fault is not ErrorCode.NONE:
        return joined(JoinAnswer(fault, request.member_id), context)
    instance_id = request.group_instance_id
    has_rebalance_timeout = context.api_version >= 1
    wanted_ms = (
        request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
    )
    prefix = context.client_id if instance_id is None else instance_id
    join = Join(
        api_version=context.api_version,
        member_id=request.member_id,
        fresh_member_id=f"{_shortened(prefix)}-{groups.make_id()}",
        instance_id=instance_id,
        client_id=_shortened(context.client_id),
        client_host=_java_host(context.client_host),
        rebalance_timeout_ms=max(wanted_ms, 0),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    joining = groups.join(request.group_id, join)
    del request, join  # the wait may be long
    return joined(await joining, context)


def _join_fault(groups: GroupCoordinator, request: JoinGroupRequest) -> ErrorCode:
    if not _is_group_id(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    low = groups.host.setting("group.min.session.timeout.ms")
    high = groups.host.setting("group.max.session.timeout.ms")
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    instance_id = request.group_instance_id or ""
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INVALID_REQUEST
    sizes = (len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if sum(sizes) > groups.batch_bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE  # no generation with it could be written
    names = (protocol.name for protocol in request.protocols)
    if not all(map(_fits, (instance_id, request.protocol_type, *names))):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def joined(answer: JoinAnswer, context: Context) -> JoinGroupResponse:
    """The response to a member that joined, or was refused."""
    can_be_null = context.api_version >= 7
    return JoinGroupResponse(
        answer.error,
        answer.generation,
        answer.protocol_type,
        answer.protocol if can_be_null else answer.protocol or "",
        answer.leader,
        answer.skip_assignment,
        answer.member_id,
        [JoinGroupMember(*member) for member in answer.members],
    )


def lacks_protocol(request: SyncGroupRequest, context: Context) -> bool:
    """Say whether a request does not name the protocol that its version has to."""
    has_protocol = None not in (request.protocol_type, request.protocol_name)
    return context.api_version >= 5 and not has_protocol


async def sync_group(
    groups: GroupCoordinator, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    """Answer with the member's assignment, when the leader has sent it."""
    if lacks_protocol(request, context):
        return SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not _is_group_id(request.group_id):
        return SyncGroupResponse(ErrorCode.INVALID_GROUP_ID)
    assigned_bytes = sum(len(entry.assignment) for entry in request.assignments)
    if assigned_bytes > groups.batch_bytes_max:
        return SyncGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka answers
    sync = Sync(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={entry.member_id: entry.assignment for entry in request.assignments},
    )
    syncing = groups.sync(request.group_id, sync)
    del request, sync  # the wait may be long
    answer = await syncing
    return SyncGroupResponse(answer.error, answer.protocol_type, answer.protocol, answer.assignment)


async def heartbeat(
    groups: GroupCoordinator, request: HeartbeatRequest, context: Context
) -> HeartbeatResponse:
    """Prolong a member's session."""
    if not _is_group_id(request.group_id):
        return HeartbeatResponse(ErrorCode.INVALID_GROUP_ID)
    code = await groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(code)


async def leave_group(
    groups: GroupCoordinator, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse:
    """Remove one member (before version 3) or several."""
    if not _is_group_id(request.group_id):
        return LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)
    is_single = context.api_version < 3
    turns = Turns()
    leavers = [Leaver(request.member_id)] if is_single else []
    for member in () if is_single else request.members:
        await turns.next()
        leavers.append(Leaver(member.member_id, member.group_instance_id))
    try:
        codes = await groups.leave(request.group_id, leavers)
    except StorageError as error:
        return LeaveGroupResponse(group_error(error))
    if is_single:
        return LeaveGroupResponse(codes[0])
    left = []
    for leaver, code in zip(leavers, codes, strict=True):
        await turns.next()
        left.append(LeftMember(leaver.member_id, leaver.instance_id, code))
    return LeaveGroupResponse(ErrorCode.NONE, left)


# ---------------------------------------------------------------- offsets


async def offset_commit(
    groups: GroupCoordinator, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Store offsets; each partition tells if its own was stored."""
    retention_ms = request.retention_time_ms
    checked = await _check_offsets(groups, request.group_id, request.topics, retention_ms)
    if not _fits(request.group_id):
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
    if not _is_group_id(request.group_id):
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
            elif _java_length(metadata) > most or not _fits(metadata):
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
    if not _is_group_id(request.group_id):
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


# ---------------------------------------------------------------- groups


async def describe_groups(
    groups: GroupCoordinator, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    """Tell a group's state, its members and their assignments; each group once."""
    turns = Turns()
    described = []
    left_bytes = ANSWER_BYTES_MAX
    for group_id in dict.fromkeys(request.groups):
        group = groups.group(group_id)
        await turns.next(1 if group is None else 1 + len(group.members))
        if left_bytes < 0:
            described.append(_not_described(group_id))
            continue
        left_bytes -= 0 if group is None else group.size_bytes
        answer = _described(groups, group_id, context)
        if request.include_authorized_operations and answer.error_code is ErrorCode.NONE:
            answer = answer._replace(authorized_operations=GROUP_OPERATIONS)
        described.append(answer)
    return DescribeGroupsResponse(described)


def _not_described(group_id: str) -> DescribedGroup:
    message = "The answer is full. Ask for this group again, with fewer others."
    return DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message, group_id, "")


def _described(groups: GroupCoordinator, group_id: str, context: Context) -> DescribedGroup:
    group = groups.group(group_id)
    if groups.refusal(group_id) is not ErrorCode.NONE:
        partition = groups.group_partition(group_id)
        message = f"Partition {partition} of {OFFSETS_TOPIC}, which keeps it, cannot be read."
        return DescribedGroup(ErrorCode.NOT_COORDINATOR, message, group_id, "")
    if group is None:
        code = ErrorCode.GROUP_ID_NOT_FOUND if context.api_version >= 6 else ErrorCode.NONE
        message = f"Group {group_id} not found."
        return DescribedGroup(code, message, group_id, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group.state.value,
        group.protocol_type or "",
        group.protocol or "" if is_stable else "",
        [
            _described_member(member, group.protocol if is_stable else None)
            for member in group.members.values()
        ],
    )


def _described_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol),
        member.assignment,
    )


async def list_groups(
    groups: GroupCoordinator, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse:
    """List groups, in some states or of some types if the request says so."""
    states = {name.strip().lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}  # as they are; states are trimmed
    turns = Turns()
    listed = []
    for group in groups.groups():
        await turns.next()
        if states and group.state.value.lower() not in states:
            continue
        if types and CLASSIC not in types:
            continue
        protocol_type = group.protocol_type or ""
        listed.append(ListedGroup(group.group_id, protocol_type, group.state.value, CLASSIC))
    return ListGroupsResponse(ErrorCode.NONE, listed)


async def delete_groups(
    groups: GroupCoordinator, request: DeleteGroupsRequest, context: Context
) -> DeleteGroupsResponse:
    """Delete groups without members, each by itself."""
    turns = Turns()
    results = []
    for group_id in dict.fromkeys(request.group_ids):
        await turns.next(WRITTEN_ITEMS)
        code = await _deleted(groups, group_id)
        if code is ErrorCode.NONE:
            audit.acted(context, "group.deleted", "GROUP", group_id)
        results.append(DeletedGroup(group_id, code))
    return DeleteGroupsResponse(results)


async def _deleted(groups: GroupCoordinator, group_id: str) -> ErrorCode:
    try:
        return await groups.delete_group(group_id)
    except StorageError as error:
        return group_error(error)


# ---------------------------------------------------------------- words on the wire


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


def _is_group_id(group_id: str) -> bool:
    return bool(group_id) and _fits(group_id)


def _fits(text: str) -> bool:
    return len(text.encode()) <= STRING_BYTES_MAX


def _java_length(text: str) -> int:
    """The length of a text as Java counts it, in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _shortened(text: str) -> str:
    """The beginning of a name that only people read; as much as is stored."""
    return text[:255]


def _java_host(host: str) -> str:
    """An address as Java prints it, which is how Kafka stores a member's host."""
    return host if host.startswith("/") else f"/{host}"


APIS: Final[tuple[Api[GroupCoordinator], ...]] = (
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, offset_commit),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, offset_fetch),
    Api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, join_group),
    Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, heartbeat),
    Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, leave_group),
    Api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, sync_group),
    Api(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        describe_groups,
    ),
    Api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, list_groups),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        TxnOffsetCommitRequest,
        OffsetCommitResponse,
        txn_offset_commit,
    ),
    Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, delete_groups),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, offset_delete),
)
