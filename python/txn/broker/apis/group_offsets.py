"""OffsetCommit, TxnOffsetCommit, OffsetDelete: the changes of groups' offsets on the wire.

Errors that not every version carries: TxnOffsetCommit answers a fenced producer with
INVALID_PRODUCER_EPOCH, the only such code that librdkafka knows, and a failed write with
COORDINATOR_NOT_AVAILABLE. Before 4 it sends INVALID_TXN_STATE for TRANSACTION_ABORTABLE. Before 2
it sends COORDINATOR_NOT_AVAILABLE for COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).

Sources: the message schemas of these requests; KIP-447, KIP-848 and KIP-1319 (topic ids).
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.groups import fits, is_group_id
from txn.broker.apis.guards import GROUP_FAILED, ID_FAILED, READ_GROUP, TOPIC_FAILED, WRITE_ID
from txn.broker.audit import audit
from txn.broker.committed_offsets import Committer
from txn.broker.group_coordinator import GroupCoordinator, group_error
from txn.broker.host import Context
from txn.broker.turns import Turns
from txn.coordinator.group.classic.group import Group, GroupState
from txn.coordinator.group.classic.requests import GROUP_NOT_FOUND_FROM
from txn.coordinator.group.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.records import NEVER, OffsetKey, OffsetValue
from txn.coordinator.group.store import AnyGroup
from txn.coordinator.transaction.connections import ConnectionUse
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    CommittedPartition,
    CommittedTopic,
    DeletedOffset,
    DeletedOffsets,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

STALE_EPOCH_FROM: Final = 6
"""Version of TxnOffsetCommit from which clients know STALE_MEMBER_EPOCH."""

TV2_FROM: Final = 5
"""Version of TxnOffsetCommit from which clients are of transaction version 2."""

GROUP_NOT_FOUND_IN_TRANSACTION_FROM: Final = 6
"""The first version of TxnOffsetCommit whose clients know GROUP_ID_NOT_FOUND (KIP-1319)."""


async def offset_commit(
    groups: GroupCoordinator, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Store offsets; each partition tells if its own was stored."""
    retention_ms = request.retention_time_ms
    checked = await _check_offsets(groups, request.group_id, request.topics, retention_ms)
    if not fits(request.group_id):
        fault = ErrorCode.INVALID_GROUP_ID
    elif checked.has_partitions:
        fault = await groups.offsets.commit(
            _committer(request),
            checked.offsets,
            knows_group_not_found=context.api_version >= GROUP_NOT_FOUND_FROM,
        )
        if fault is ErrorCode.NONE:
            fault = await groups.offsets.sync(request.group_id)
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
        await groups.offsets.transactions.hang_up_if_late(
            request.transactional_id, owner, context.session.client, ConnectionUse.OFFSETS
        )
    checked = await _check_offsets(groups, request.group_id, request.topics)
    if not is_group_id(request.group_id):
        fault = ErrorCode.INVALID_GROUP_ID
    elif checked.has_partitions:
        fault = await groups.offsets.commit_in_transaction(
            _committer(request),
            checked.offsets,
            transactional_id=request.transactional_id,
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            transaction_version=2 if has_own_epoch else 1,
            knows_group_not_found=context.api_version >= GROUP_NOT_FOUND_IN_TRANSACTION_FROM,
        )
        if fault is ErrorCode.NONE:
            fault = await groups.offsets.sync(
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
    if code is ErrorCode.STALE_MEMBER_EPOCH and api_version < STALE_EPOCH_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < 4:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < 2:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _committer(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )


CommitTopic = OffsetCommitTopic | TxnOffsetCommitTopic
CommitRequest = TypeVar("CommitRequest", OffsetCommitRequest, TxnOffsetCommitRequest)

Entry = tuple[int, int]
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

    unknown: dict[Entry, ErrorCode]
    oversized: set[Entry]
    offsets: dict[OffsetKey, OffsetValue]

    @property
    def has_partitions(self) -> bool:
        """Say whether any of the partitions is there, so that the group is asked."""
        return bool(self.offsets or self.oversized)

    def code(self, entry: Entry, fault: ErrorCode) -> ErrorCode:
        """The code of a partition of a commit that the group or the producer is refused for."""
        code = self.unknown.get(entry) or fault
        is_oversized = code is ErrorCode.NONE and entry in self.oversized
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_oversized else code


async def _check_offsets(
    groups: GroupCoordinator, group_id: str, topics: Sequence[CommitTopic], retention_ms: int = -1
) -> _Checked:
    checked = _Checked({}, set(), {})
    turns = Turns()
    most = groups.host.setting("offset.metadata.max.bytes")
    now_ms = groups.host.now_ms()
    expires_ms = NEVER if retention_ms < 0 else min(now_ms + retention_ms, LATEST_MS)
    for topic_position, topic in enumerate(topics):
        await turns.next()
        name, topic_id = resolved(groups, topic.name, topic.topic_id)
        for position, partition in enumerate(topic.partitions):
            await turns.next()
            metadata = partition.committed_metadata or ""
            entry = topic_position, position
            if name is None:
                checked.unknown[entry] = ErrorCode.UNKNOWN_TOPIC_ID
            elif not groups.host.has_partition(name, partition.partition_index):
                checked.unknown[entry] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif _java_length(metadata) > most or not fits(metadata):
                checked.oversized.add(entry)
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
    topics: Sequence[CommitTopic], checked: _Checked, fault: ErrorCode
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
        committed.append(CommittedTopic(topic.name or "", topic.topic_id, partitions))
    return OffsetCommitResponse(committed)


async def offset_delete(
    groups: GroupCoordinator, request: OffsetDeleteRequest, context: Context
) -> OffsetDeleteResponse:
    """Delete offsets of topics that the group's members do not consume."""
    if not is_group_id(request.group_id):
        return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
    if groups.refusal(request.group_id) is not ErrorCode.NONE:
        return OffsetDeleteResponse(ErrorCode.NOT_COORDINATOR)
    fault = _delete_fault(groups.any_group(request.group_id))
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
    group = groups.any_group(request.group_id)
    fault = _delete_fault(group)
    if group is None or fault is not ErrorCode.NONE:
        return OffsetDeleteResponse(fault)
    consumes = group.consumes if isinstance(group, ConsumerGroup) else _consumes(group)
    keys = []
    for key, code in codes.items():
        if code is ErrorCode.NONE and consumes(key.topic):
            codes[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif code is ErrorCode.NONE:
            keys.append(key)
    try:
        await groups.offsets.delete(request.group_id, keys)
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


def _consumes(group: Group) -> Callable[[str], bool]:
    """A function that says whether members of a classic group read a topic."""
    consumed = subscribed_topics(group)
    return lambda topic: consumed is None or topic in consumed


def _delete_fault(group: AnyGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
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


def _java_length(text: str) -> int:
    """The length of a text as Java counts it, in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


# ---------------------------------------------------------------- access


async def _guard_offset_commit(
    call: Call[GroupCoordinator, OffsetCommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """READ on the group and on the topics."""
    request = call.request
    if not READ_GROUP.is_met(call):
        return _not_committed(request, GROUP_FAILED)
    return await _guarded_commit(call)


async def _guard_txn_offset_commit(
    call: Call[GroupCoordinator, TxnOffsetCommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """WRITE on the transactional id, READ on the group and on the topics."""
    if not WRITE_ID.is_met(call):
        return _not_committed(call.request, ID_FAILED)
    if not READ_GROUP.is_met(call):
        return _not_committed(call.request, GROUP_FAILED)
    return await _guarded_commit(call)


async def _guard_offset_delete(
    call: Call[GroupCoordinator, OffsetDeleteRequest, OffsetDeleteResponse],
) -> OffsetDeleteResponse:
    """DELETE on the group, READ on the topics."""
    request = call.request
    if not call.access.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(GROUP_FAILED)
    names = [topic.name for topic in request.topics]
    allowed = await call.access.among(Operation.READ, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await call.proceed_with(changed(request, topics=kept))
    if response.error_code is not ErrorCode.NONE:
        return response
    refused = [
        DeletedOffsets(
            topic.name,
            [DeletedOffset(one.partition_index, TOPIC_FAILED) for one in topic.partitions],
        )
        for topic in request.topics
        if topic.name not in allowed
    ]
    return response._replace(topics=[*response.topics, *refused])


async def _guarded_commit(
    call: Call[GroupCoordinator, CommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """Commit offsets of the topics that may be read; an unknown id is the handler's to refuse."""
    access, groups, request = call.access, call.service, call.request
    turns = Turns()
    is_kept = []
    for topic in request.topics:
        await turns.next()
        name, _ = resolved(groups, topic.name, topic.topic_id)
        is_kept.append(name is None or access.may(Operation.READ, ResourceType.TOPIC, name))
    kept = tuple(topic for topic, is_one in zip(request.topics, is_kept, strict=True) if is_one)
    committed = iter((await call.proceed_with(changed(request, topics=kept))).topics)
    return OffsetCommitResponse(
        [
            next(committed) if is_one else _refused_topic(topic, TOPIC_FAILED)
            for topic, is_one in zip(request.topics, is_kept, strict=True)
        ]
    )


def _refused_topic(topic: CommitTopic, code: ErrorCode) -> CommittedTopic:
    partitions = [CommittedPartition(one.partition_index, code) for one in topic.partitions]
    return CommittedTopic(topic.name or "", topic.topic_id, partitions)


def _not_committed(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, code: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse([_refused_topic(topic, code) for topic in request.topics])


APIS: Final = Area(
    lambda node: node.groups,
    Api(
        ApiKey.OFFSET_COMMIT,
        (2, 10),
        OffsetCommitRequest,
        OffsetCommitResponse,
        _guard_offset_commit,
        offset_commit,
    ),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        (0, 6),
        TxnOffsetCommitRequest,
        OffsetCommitResponse,
        _guard_txn_offset_commit,
        txn_offset_commit,
    ),
    Api(
        ApiKey.OFFSET_DELETE,
        (0, 0),
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        _guard_offset_delete,
        offset_delete,
    ),
)
