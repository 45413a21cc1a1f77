"""Groups and committed offsets on the wire.

Every handler translates: request fields to the words of `txn.broker.group_coordinator`, and its
answers to response fields. Rules of a version live here, rules of a group do not.

Errors that not every version carries: LeaveGroup before 3 tells the one member's error at the top.
TxnOffsetCommit tells a fenced producer INVALID_PRODUCER_EPOCH (librdkafka knows only that), a
failed write COORDINATOR_NOT_AVAILABLE, before 4 INVALID_TXN_STATE instead of TRANSACTION_ABORTABLE,
and before 2 COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).

Nobody is authorized here: DescribeGroups shows every operation a group has.

Sources: the message schemas of these requests; KIP-345, KIP-394, KIP-447, KIP-518 (states),
KIP-559, KIP-709 (several groups), KIP-848 (topic ids, types), KIP-1043 (GROUP_ID_NOT_FOUND).
"""

import datetime
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from txn.broker.group_coordinator import Committer, GroupCoordinator, group_error
from txn.broker.host import Answer, Context
from txn.broker.turns import Turns
from txn.coordinator.group.classic import (
    CONSUMER_PROTOCOL_TYPE,
    GROUP_NOT_FOUND_FROM,
    Group,
    GroupState,
    Join,
    JoinAnswer,
    Leaver,
    Member,
    Sync,
    SyncAnswer,
)
from txn.coordinator.group.records import NEVER, NO_LEADER_EPOCH, OffsetKey, OffsetValue
from txn.coordinator.transaction.connections import Role
from txn.coordinator.transaction.states import Producer
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC
from txn.storage.base import ProducerIdentity
from txn.wire.error_codes import ErrorCode

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
TXN_OFFSET_COMMIT, OFFSET_DELETE = 28, 47

TV2_FROM: Final = 5
"""Version of TxnOffsetCommit from which clients are of transaction version 2."""

NO_OFFSET: Final = -1

STRING_BYTES_MAX: Final = 32_000
"""Ids and names go into records whose strings are at most 32,767 bytes long; member ids get a
random part."""

PROTOCOLS_MAX: Final = 100
"""Assignors of one member; clients have up to five."""

GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""

OFFSET_FETCH_FAILS_WHOLE_FROM: Final = 2
"""The first version of OffsetFetch with an error code of its own."""

WRITTEN_ITEMS: Final = 10
"""What a thing counts for which a record is written, see `Turns`."""

OPERATIONS_NOT_ASKED: Final = -(2**31)

CLASSIC: Final = "classic"


# ---------------------------------------------------------------- members


async def join_group(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Answer when the member's next generation begins, or at once with what is wrong."""
    fault = _join_fault(groups, request)
    if fault is not ErrorCode.none:
        return _join_answer(JoinAnswer(fault, request.member_id), context)
    instance_id = getattr(request, "group_instance_id", None)
    session_timeout_ms = _ms(request.session_timeout)
    wanted_ms = _ms(request.rebalance_timeout) if context.api_version >= 1 else session_timeout_ms
    prefix = context.client_id if instance_id is None else instance_id
    join = Join(
        api_version=context.api_version,
        member_id=request.member_id,
        fresh_member_id=f"{_shortened(prefix)}-{groups.make_id()}",
        instance_id=instance_id,
        client_id=_shortened(context.client_id),
        client_host=_java_host(context.client_host),
        rebalance_timeout_ms=max(wanted_ms, 0),
        session_timeout_ms=session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    joining = groups.join(request.group_id, join)
    del request, join  # the wait may be long
    return _join_answer(await joining, context)


def _join_fault(groups: GroupCoordinator, request: Any) -> ErrorCode:
    if not _is_group_id(request.group_id):
        return ErrorCode.invalid_group_id
    low = groups.host.setting("group.min.session.timeout.ms")
    high = groups.host.setting("group.max.session.timeout.ms")
    if not low <= _ms(request.session_timeout) <= high:
        return ErrorCode.invalid_session_timeout
    instance_id = getattr(request, "group_instance_id", None) or ""
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.invalid_request
    sizes = (len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if sum(sizes) > groups.batch_bytes_max:
        return ErrorCode.message_too_large  # no generation with it could be written
    names = (protocol.name for protocol in request.protocols)
    if not all(map(_fits, (instance_id, request.protocol_type, *names))):
        return ErrorCode.invalid_request
    return ErrorCode.none


def _join_answer(answer: JoinAnswer, context: Context) -> Answer:
    can_be_null = context.api_version >= 7
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol if can_be_null else answer.protocol or "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in answer.members
        ],
    }


async def sync_group(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Answer with the member's assignment, when the leader has sent it."""
    protocol_type = getattr(request, "protocol_type", None)
    protocol = getattr(request, "protocol_name", None)
    if not _is_group_id(request.group_id):
        return _sync_answer(SyncAnswer(ErrorCode.invalid_group_id))
    if context.api_version >= 5 and None in (protocol_type, protocol):
        return _sync_answer(SyncAnswer(ErrorCode.inconsistent_group_protocol))
    assigned_bytes = sum(len(entry.assignment) for entry in request.assignments)
    if assigned_bytes > groups.batch_bytes_max:
        return _sync_answer(SyncAnswer(ErrorCode.unknown_server_error))  # as Kafka answers
    sync = Sync(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=protocol_type,
        protocol=protocol,
        assignments={entry.member_id: entry.assignment for entry in request.assignments},
    )
    syncing = groups.sync(request.group_id, sync)
    del request, sync  # the wait may be long
    return _sync_answer(await syncing)


def _sync_answer(answer: SyncAnswer) -> Answer:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


async def heartbeat(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Prolong a member's session."""
    if not _is_group_id(request.group_id):
        return {"error_code": ErrorCode.invalid_group_id}
    instance_id = getattr(request, "group_instance_id", None)
    code = await groups.heartbeat(
        request.group_id, request.member_id, instance_id, request.generation_id
    )
    return {"error_code": code}


async def leave_group(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Remove one member (before version 3) or several."""
    if not _is_group_id(request.group_id):
        return {"error_code": ErrorCode.invalid_group_id, "members": []}
    is_single = context.api_version < 3
    leavers = (
        (Leaver(request.member_id),)
        if is_single
        else tuple(Leaver(member.member_id, member.group_instance_id) for member in request.members)
    )
    try:
        codes = await groups.leave(request.group_id, leavers)
    except StorageError as error:
        return {"error_code": group_error(error), "members": []}
    if is_single:
        return {"error_code": codes[0]}
    return {
        "error_code": ErrorCode.none,
        "members": [
            {
                "member_id": leaver.member_id,
                "group_instance_id": leaver.instance_id,
                "error_code": code,
            }
            for leaver, code in zip(leavers, codes, strict=True)
        ],
    }


# ---------------------------------------------------------------- offsets


async def offset_commit(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Store offsets; each partition tells if its own was stored."""
    codes, offsets = await _check_offsets(groups, request, context)
    if not _fits(request.group_id):
        fault = ErrorCode.invalid_group_id
    elif offsets:
        fault = await groups.commit(
            _committer(request),
            offsets,
            knows_group_not_found=context.api_version >= GROUP_NOT_FOUND_FROM,
        )
        if fault is ErrorCode.none:
            fault = await groups.sync_offsets(request.group_id)
    else:
        fault = ErrorCode.none
    return await _commit_answer(request, codes, fault)


async def txn_offset_commit(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Store offsets that count when the transaction commits."""
    has_own_epoch = context.api_version >= TV2_FROM
    if not has_own_epoch:
        owner = Producer(request.producer_id, request.producer_epoch)
        groups.transactions.hang_up_if_late(
            request.transactional_id, owner, context.connection, Role.OFFSETS
        )
    codes, offsets = await _check_offsets(groups, request, context)
    if not _is_group_id(request.group_id):
        fault = ErrorCode.invalid_group_id
    elif offsets:
        fault = await groups.commit_in_transaction(
            _committer(request),
            offsets,
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(request.producer_id, request.producer_epoch),
            transaction_version=2 if has_own_epoch else 1,
        )
        if fault is ErrorCode.none:
            fault = await groups.sync_offsets(
                request.group_id, transactional_id=request.transactional_id
            )
    else:
        fault = ErrorCode.none
    return await _commit_answer(request, codes, _known_to(context.api_version, fault))


def _known_to(api_version: int, code: ErrorCode) -> ErrorCode:
    """The code a TxnOffsetCommit client of a version understands; see the top."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.kafka_storage_error:
        return ErrorCode.coordinator_not_available
    if code is ErrorCode.transaction_abortable and api_version < 4:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.coordinator_load_in_progress and api_version < 2:
        return ErrorCode.coordinator_not_available
    return code


def _committer(request: Any) -> Committer:
    generation = getattr(request, "generation_id_or_member_epoch", None)
    return Committer(
        request.group_id,
        getattr(request, "generation_id", -1) if generation is None else generation,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
    )


Place = tuple[int, int]
"""Position of a topic in a request, and of a partition in it: names may come twice."""


async def _check_offsets(
    groups: GroupCoordinator, request: Any, context: Context
) -> tuple[dict[Place, ErrorCode], dict[OffsetKey, OffsetValue]]:
    """Sort out what cannot be committed whoever asks; return a code for each, and the others."""
    codes: dict[Place, ErrorCode] = {}
    offsets: dict[OffsetKey, OffsetValue] = {}
    turns = Turns()
    now_ms = groups.host.now_ms()
    retention_ms = _ms(getattr(request, "retention_time", datetime.timedelta(milliseconds=-1)))
    expires_ms = NEVER if retention_ms < 0 else now_ms + retention_ms
    for topic_position, topic in enumerate(request.topics):
        name, topic_id = _resolve(groups, topic)
        for position, partition in enumerate(topic.partitions):
            await turns.next()
            metadata = partition.committed_metadata or ""
            code = ErrorCode.none
            if name is None:
                code = ErrorCode.unknown_topic_id
            elif not groups.host.has_partition(name, partition.partition_index):
                code = ErrorCode.unknown_topic_or_partition
            elif len(metadata) > groups.host.setting("offset.metadata.max.bytes") or not _fits(
                metadata
            ):
                code = ErrorCode.offset_metadata_too_large
            else:
                key = OffsetKey(request.group_id, name, partition.partition_index)
                offsets[key] = OffsetValue(
                    partition.committed_offset,
                    getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
                    metadata,
                    now_ms,
                    expires_ms,
                    topic_id,
                )
            codes[topic_position, position] = code
    return codes, offsets


async def _commit_answer(
    request: Any, codes: Mapping[Place, ErrorCode], fault: ErrorCode
) -> Answer:
    """Each partition's own code, or else the group's."""
    turns = Turns()
    topics = []
    for topic_position, topic in enumerate(request.topics):
        partitions = []
        await turns.next()
        for position, partition in enumerate(topic.partitions):
            await turns.next()
            code = codes[topic_position, position] or fault
            answer = {"partition_index": partition.partition_index, "error_code": code}
            partitions.append(answer)
        topics.append(_named(topic) | {"partitions": partitions})
    return {"topics": topics}


async def offset_fetch(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Answer with committed offsets, -1 where there is none.

    With `require_stable` a partition that a transaction holds has UNSTABLE_OFFSET_COMMIT; the
    client asks again.
    """
    is_stable_only = getattr(request, "require_stable", False)
    turns = Turns()
    if context.api_version < 8:
        return await _fetched_of_group(groups, request, context, is_stable_only, turns)
    found = []
    for asked in request.groups:
        await turns.next()
        fetched = await _fetched_of_group(groups, asked, context, is_stable_only, turns)
        found.append({"group_id": asked.group_id} | fetched)
    return {"groups": found}


async def _fetched_of_group(
    groups: GroupCoordinator, asked: Any, context: Context, is_stable_only: bool, turns: Turns
) -> dict[str, Any]:
    if groups.is_loaded(asked.group_id):
        topics = await _fetched(groups, asked, context, is_stable_only, turns)
        return {"error_code": ErrorCode.none, "topics": topics}
    code = ErrorCode.not_coordinator
    if context.api_version >= OFFSET_FETCH_FAILS_WHOLE_FROM:
        return {"error_code": code, "topics": []}
    topics = []
    for topic in asked.topics:
        await turns.next(1 + len(topic.partition_indexes))
        partitions = [_no_offset(index, code) for index in topic.partition_indexes]
        topics.append(_named(topic) | {"partitions": partitions})
    return {"error_code": code, "topics": topics}


async def _fetched(
    groups: GroupCoordinator, asked: Any, context: Context, is_stable_only: bool, turns: Turns
) -> list[dict[str, Any]]:
    if asked.topics is None:
        return await _fetched_all(groups, asked.group_id, context, is_stable_only, turns)
    answers = []
    for topic in asked.topics:
        name, _ = _resolve(groups, topic)
        partitions = []
        await turns.next()
        for index in topic.partition_indexes:
            await turns.next()
            partitions.append(
                _no_offset(index, ErrorCode.unknown_topic_id)
                if name is None
                else _fetched_offset(groups, OffsetKey(asked.group_id, name, index), is_stable_only)
            )
        answers.append(_named(topic) | {"partitions": partitions})
    return answers


async def _fetched_all(
    groups: GroupCoordinator, group_id: str, context: Context, is_stable_only: bool, turns: Turns
) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for topic, index in groups.committed(group_id):
        await turns.next()
        key = OffsetKey(group_id, topic, index)
        by_topic.setdefault(topic, []).append(_fetched_offset(groups, key, is_stable_only))
    topics = [
        {"name": name, "topic_id": groups.host.topic_id(name), "partitions": partitions}
        for name, partitions in by_topic.items()
    ]
    is_by_id = context.api_version >= 10
    return [topic for topic in topics if topic["topic_id"] is not None or not is_by_id]


def _fetched_offset(
    groups: GroupCoordinator, key: OffsetKey, is_stable_only: bool
) -> dict[str, Any]:
    if is_stable_only and groups.is_pending(key):
        return _no_offset(key.partition, ErrorCode.unstable_offset_commit)
    stored = groups.committed_offset(key)
    if stored is None:
        return _no_offset(key.partition, ErrorCode.none)
    return {
        "partition_index": key.partition,
        "committed_offset": stored.value.offset,
        "committed_leader_epoch": stored.value.leader_epoch,
        "metadata": stored.value.metadata,
        "error_code": ErrorCode.none,
    }


def _no_offset(partition: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": code,
    }


async def offset_delete(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Delete offsets of topics that the group's members do not consume."""
    if not groups.is_loaded(request.group_id):
        return {"error_code": ErrorCode.not_coordinator, "topics": []}
    group = groups.group(request.group_id)
    fault = _delete_fault(group)
    if fault is not ErrorCode.none:
        return {"error_code": fault, "topics": []}
    turns = Turns()
    codes = {}
    for topic in request.topics:
        is_subscribed = groups.is_subscribed(request.group_id, topic.name)
        for partition in topic.partitions:
            await turns.next()
            key = OffsetKey(request.group_id, topic.name, partition.partition_index)
            codes[key] = _delete_code(groups, key, is_subscribed=is_subscribed)
    wanted = [key for key, code in codes.items() if code is ErrorCode.none]
    try:
        await groups.delete_offsets(request.group_id, wanted)
    except StorageError as error:
        return {"error_code": group_error(error), "topics": []}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": codes[
                            OffsetKey(request.group_id, topic.name, partition.partition_index)
                        ],
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _delete_fault(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.group_id_not_found
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.non_empty_group
    return ErrorCode.none


def _delete_code(groups: GroupCoordinator, key: OffsetKey, *, is_subscribed: bool) -> ErrorCode:
    if not groups.host.has_partition(key.topic, key.partition):
        return ErrorCode.unknown_topic_or_partition
    if is_subscribed:
        return ErrorCode.group_subscribed_to_topic
    return ErrorCode.none


# ---------------------------------------------------------------- groups


async def describe_groups(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Tell a group's state, its members and their assignments."""
    is_asked = getattr(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED
    turns = Turns()
    described = []
    for group_id in request.groups:
        group = groups.group(group_id)
        await turns.next(1 if group is None else 1 + len(group.members))
        answer = _described(groups, group_id, context)
        described.append(answer | {"authorized_operations": operations})
    return {"groups": described}


def _described(groups: GroupCoordinator, group_id: str, context: Context) -> dict[str, Any]:
    group = groups.group(group_id)
    if not groups.is_loaded(group_id):
        partition = groups.group_partition(group_id)
        message = f"Partition {partition} of {OFFSETS_TOPIC}, which keeps it, cannot be read."
        return _not_described(group_id, ErrorCode.not_coordinator, message, "")
    if group is None:
        code = ErrorCode.group_id_not_found if context.api_version >= 6 else ErrorCode.none
        message = f"Group {group_id} not found."
        return _not_described(group_id, code, message, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol or "" if is_stable else "",
        "members": [
            _described_member(member, group.protocol if is_stable else None)
            for member in group.members.values()
        ],
    }


def _not_described(group_id: str, code: ErrorCode, message: str, state: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _described_member(member: Member, protocol: str | None) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(protocol),
        "member_assignment": member.assignment,
    }


async def list_groups(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """List groups, in some states or of some types if the request says so."""
    states = _lowered(getattr(request, "states_filter", ()))
    types = _lowered(getattr(request, "types_filter", ()))
    turns = Turns()
    listed = []
    for group in groups.groups():
        await turns.next()
        if states and group.state.value.lower() not in states:
            continue
        if types and CLASSIC not in types:
            continue
        listed.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": CLASSIC,
            }
        )
    return {"error_code": ErrorCode.none, "groups": listed}


async def delete_groups(groups: GroupCoordinator, request: Any, context: Context) -> Answer:
    """Delete groups without members, each by itself."""
    turns = Turns()
    results = []
    for group_id in request.groups_names:
        await turns.next(WRITTEN_ITEMS)
        results.append({"group_id": group_id, "error_code": await _deleted(groups, group_id)})
    return {"results": results}


async def _deleted(groups: GroupCoordinator, group_id: str) -> ErrorCode:
    try:
        return await groups.delete_group(group_id)
    except StorageError as error:
        return group_error(error)


# ---------------------------------------------------------------- words on the wire


def _resolve(groups: GroupCoordinator, topic: Any) -> tuple[str | None, uuid.UUID | None]:
    """(name, id) of a requested topic; no name: the id is unknown; no id: the name is."""
    if hasattr(topic, "name"):
        return topic.name, groups.host.topic_id(topic.name)
    return groups.host.topic_name(topic.topic_id or uuid.UUID(int=0)), topic.topic_id


def _named(topic: Any) -> dict[str, Any]:
    """How a topic is called in the answer: as in the request."""
    return {"name": getattr(topic, "name", ""), "topic_id": getattr(topic, "topic_id", None)}


def _is_group_id(group_id: str) -> bool:
    return bool(group_id) and _fits(group_id)


def _fits(text: str) -> bool:
    return len(text.encode()) <= STRING_BYTES_MAX


def _shortened(text: str) -> str:
    """What is kept of a name that is only there to be read by people."""
    return text[:255]


def _java_host(host: str) -> str:
    """An address as Java prints it, which is how Kafka stores a member's host."""
    return host if host.startswith("/") else f"/{host}"


def _ms(delta: datetime.timedelta) -> int:
    return delta // datetime.timedelta(milliseconds=1)


def _lowered(words: Iterable[str]) -> set[str]:
    return {word.strip().lower() for word in words}


HANDLERS: dict[int, Callable[[GroupCoordinator, Any, Context], Awaitable[Answer]]] = {
    OFFSET_COMMIT: offset_commit,
    OFFSET_FETCH: offset_fetch,
    JOIN_GROUP: join_group,
    HEARTBEAT: heartbeat,
    LEAVE_GROUP: leave_group,
    SYNC_GROUP: sync_group,
    DESCRIBE_GROUPS: describe_groups,
    LIST_GROUPS: list_groups,
    TXN_OFFSET_COMMIT: txn_offset_commit,
    DELETE_GROUPS: delete_groups,
    OFFSET_DELETE: offset_delete,
}

VERSIONS: dict[int, tuple[int, int]] = {
    OFFSET_COMMIT: (2, 10),
    OFFSET_FETCH: (1, 10),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    TXN_OFFSET_COMMIT: (0, 5),
    DELETE_GROUPS: (0, 2),
    OFFSET_DELETE: (0, 0),
}
