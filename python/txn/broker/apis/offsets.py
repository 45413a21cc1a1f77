"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from collections.abc import Mapping
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    TOPIC_FAILED,
)
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import OPENING_ITEMS, Turns
from txn.config import topic_setting
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.image import is_reserved
from txn.security.acls import Operation, ResourceType
from txn.storage.base import PartitionLog
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.offsets import (
    NO_LEADER_EPOCH,
    DeletedRecords,
    DeletedRecordsOfTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    EpochEndOffset,
    EpochEndOffsets,
    ListedOffset,
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
"""Special timestamps. Source: KIP-79, KIP-734, KIP-405, KIP-1005, KIP-1023."""

KNOWN_FROM: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""Special timestamp → the first version of ListOffsets that has it."""

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for the high watermark. Source: KIP-107."""

READ_COMMITTED = 1
NOTHING = (-1, -1)


async def list_offsets(
    node: Node, request: ListOffsetsRequest, context: Context
) -> ListOffsetsResponse:
    """Answer with offsets at both ends, or by time; exact to the record.

    A partition that is named more than once is INVALID_REQUEST, once. A search by time opens
    batches, so it runs on a worker thread; see `Node.search`.
    """
    is_committed = request.isolation_level == READ_COMMITTED
    requested: dict[str, dict[int, ListOffsetsPartition]] = {}
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for entry in topic.partitions:
            of_topic = requested.setdefault(topic.name, {})
            if entry.partition_index in of_topic:
                twice.add((topic.name, entry.partition_index))
            of_topic[entry.partition_index] = entry
    turns = Turns()
    topics = []
    for name, of_topic in requested.items():
        partitions = []
        for index, entry in of_topic.items():
            await turns.next()
            if (name, index) in twice:
                partitions.append(ListedOffset(index, ErrorCode.INVALID_REQUEST))
            else:
                offset = await _offset(node, name, entry, is_committed, context.api_version)
                partitions.append(offset)
        topics.append(ListedOffsets(name, partitions))
    return ListOffsetsResponse(topics)


async def _offset(
    node: Node, topic: str, entry: ListOffsetsPartition, is_committed: bool, version: int
) -> ListedOffset:
    index, timestamp = entry.partition_index, entry.timestamp
    if timestamp < EARLIEST_PENDING or version < KNOWN_FROM.get(timestamp, 0):
        return ListedOffset(index, ErrorCode.UNSUPPORTED_VERSION)
    if node.replicas.is_untouched(topic, index):
        return _offset_of_nothing(node, topic, entry)
    store, code = _led(node, topic, index, entry.current_leader_epoch)
    if store is None:
        return ListedOffset(index, code)
    end = store.last_stable_offset if is_committed else store.high_watermark
    try:
        offset, found_ms = await _lookup(node, store, timestamp, end)
    except CorruptLogError:  # the log tells of it, once and not whenever a client asks
        return ListedOffset(index, ErrorCode.CORRUPT_MESSAGE)
    except StorageError as error:
        if node.replicas.get(topic, index) is not store:  # deleted meanwhile
            return ListedOffset(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log.error("partition.not_read", reason=error.message)
        return ListedOffset(index, ErrorCode(error.code))
    if timestamp == LATEST:  # the leader's, whichever epoch an open transaction began in
        leader_epoch = store.leader_epoch
    else:
        leader_epoch = store.epoch_of(offset) if offset >= 0 else NO_LEADER_EPOCH
    return ListedOffset(index, ErrorCode.NONE, found_ms, offset, leader_epoch)


def _offset_of_nothing(node: Node, topic: str, entry: ListOffsetsPartition) -> ListedOffset:
    """The offset of a partition that nothing has opened: it holds nothing, and stays closed."""
    index = entry.partition_index
    leader_epoch = node.partitions[topic].leader_epoch(index)
    code = _epoch_fault(leader_epoch, entry.current_leader_epoch)
    if code is not ErrorCode.NONE:
        return ListedOffset(index, code)
    if entry.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        return ListedOffset(index, code, offset=0, leader_epoch=leader_epoch)
    return ListedOffset(index, code)


async def _lookup(node: Node, store: PartitionLog, timestamp: int, end: int) -> tuple[int, int]:
    """(offset, timestamp in ms) for one of Kafka's timestamps, below `end`."""
    match timestamp:
        case -1:
            return end, -1
        case -2 | -4:
            return store.log_start_offset, -1
        case -5 | -6:
            return NOTHING
        case _ if end <= store.log_start_offset:
            return NOTHING
        case -3:
            return await node.search(lambda: store.offset_of_max_timestamp(end)) or NOTHING
        case _:
            position = await node.search(lambda: store.offset_for_timestamp(timestamp, end))
            return position or NOTHING


def _opened(node: Node, topic: str, index: int) -> tuple[PartitionLog | None, ErrorCode]:
    """A partition, or why it cannot be used."""
    try:
        store = node.replicas.get(topic, index)
    except StorageError as error:
        return None, ErrorCode(error.code)
    is_known = store is not None
    return store, ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _led(
    node: Node, topic: str, index: int, current_leader_epoch: int
) -> tuple[PartitionLog | None, ErrorCode]:
    """A partition that is led in the epoch a client knows, or why it cannot be used."""
    store, code = _opened(node, topic, index)
    if store is not None:
        code = _epoch_fault(store.leader_epoch, current_leader_epoch)
    return (store if code is ErrorCode.NONE else None), code


def _epoch_fault(leader_epoch: int, current_leader_epoch: int) -> ErrorCode:
    if current_leader_epoch > leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if NO_LEADER_EPOCH != current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


async def offset_for_leader_epoch(
    node: Node, request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    """Answer where epochs end: the leader's ends at the log's end."""
    turns = Turns()
    topics = []
    for topic in request.topics:
        partitions = []
        for entry in topic.partitions:
            await turns.next(OPENING_ITEMS)
            partitions.append(_epoch_end(node, topic.topic, entry))
        topics.append(EpochEndOffsets(topic.topic, partitions))
    return OffsetForLeaderEpochResponse(topics)


def _epoch_end(node: Node, topic: str, entry: OffsetForLeaderPartition) -> EpochEndOffset:
    store, code = _led(node, topic, entry.partition, entry.current_leader_epoch)
    if store is None:
        return EpochEndOffset(entry.partition, code)
    leader_epoch, end_offset = store.end_of_epoch(entry.leader_epoch) or NOTHING
    return EpochEndOffset(entry.partition, ErrorCode.NONE, leader_epoch, end_offset)


async def delete_records(
    node: Node, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    """Move log starts up; records below them are gone for readers, also after a crash.

    Of a partition that is named several times the last offset counts, as in Kafka.
    """
    turns = Turns()
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        await turns.next()
        offsets = {entry.partition_index: entry.offset for entry in topic.partitions}
        if offsets:
            asked.setdefault(topic.name, {}).update(offsets)
    topics = []
    for name, offsets in asked.items():
        results = []
        for place in offsets.items():
            await turns.next(OPENING_ITEMS)
            result = await _deleted(node, name, *place)
            if result.error_code is ErrorCode.NONE:
                facts = {"partition": result.partition_index, "log_start": result.low_watermark}
                audit.acted(context, "records.deleted", "TOPIC", name, **facts)
            results.append(result)
        topics.append(DeletedRecordsOfTopic(name, results))
    return DeleteRecordsResponse(topics)


async def _deleted(node: Node, topic: str, index: int, offset: int) -> DeletedRecords:
    store, code = _opened(node, topic, index)
    if store is None:
        return DeletedRecords(index, code)
    code = _deletion_fault(node, store, offset)
    if code is not ErrorCode.NONE:
        return DeletedRecords(index, code)
    start = store.high_watermark if offset == HIGH_WATERMARK else offset
    try:
        low_watermark = await node.delete_records(store, start)
    except StorageError as error:
        if node.replicas.get(topic, index) is not store:  # its topic was deleted meanwhile
            return DeletedRecords(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log.error("partition.records_not_deleted", reason=error.message)
        return DeletedRecords(index, ErrorCode(error.code))
    return DeletedRecords(index, ErrorCode.NONE, low_watermark)


def _deletion_fault(node: Node, store: PartitionLog, offset: int) -> ErrorCode:
    if is_reserved(store.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    settings = node.image.topics[store.topic].settings
    if topic_setting("cleanup.policy", settings, node.settings) == "compact":
        return ErrorCode.POLICY_VIOLATION
    if offset != HIGH_WATERMARK and not 0 <= offset <= store.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


# ---------------------------------------------------------------- access


async def _guard_list_offsets(
    call: Call[Node, ListOffsetsRequest, ListOffsetsResponse],
) -> ListOffsetsResponse:
    """DESCRIBE on the topic."""
    request = call.request
    names = (topic.name for topic in request.topics)
    allowed = await call.access.among(Operation.DESCRIBE, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await call.proceed_with(changed(request, topics=kept))
    refused = [
        ListedOffsets(
            topic.name,
            [ListedOffset(entry.partition_index, TOPIC_FAILED) for entry in topic.partitions],
        )
        for topic in request.topics
        if topic.name not in allowed
    ]
    return ListOffsetsResponse([*response.topics, *refused])


async def _guard_delete_records(
    call: Call[Node, DeleteRecordsRequest, DeleteRecordsResponse],
) -> DeleteRecordsResponse:
    """DELETE on the topic."""
    request = call.request
    names = (topic.name for topic in request.topics)
    allowed = await call.access.among(Operation.DELETE, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await call.proceed_with(changed(request, topics=kept))
    refused: Mapping[str, dict[int, DeletedRecords]] = {
        topic.name: {} for topic in request.topics if topic.name not in allowed
    }
    for topic in request.topics:
        if topic.name not in allowed:
            for entry in topic.partitions:
                index = entry.partition_index
                refused[topic.name][index] = DeletedRecords(index, TOPIC_FAILED)
    results = [DeletedRecordsOfTopic(name, [*of.values()]) for name, of in refused.items()]
    return DeleteRecordsResponse([*response.topics, *results])


async def _guard_offset_for_leader_epoch(
    call: Call[Node, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse],
) -> OffsetForLeaderEpochResponse | bytes:
    """DESCRIBE on the topic, or CLUSTER_ACTION on the cluster."""
    request = call.request
    if call.access.may_in_cluster(Operation.CLUSTER_ACTION, is_logged=False):
        return await call.proceed()
    names = (topic.topic for topic in request.topics)
    allowed = await call.access.among(Operation.DESCRIBE, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.topic in allowed)
    response = await call.proceed_with(changed(request, topics=kept))
    refused = [
        EpochEndOffsets(
            topic.topic,
            [EpochEndOffset(entry.partition, TOPIC_FAILED) for entry in topic.partitions],
        )
        for topic in request.topics
        if topic.topic not in allowed
    ]
    return OffsetForLeaderEpochResponse([*response.topics, *refused])


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.LIST_OFFSETS,
        (1, 11),
        ListOffsetsRequest,
        ListOffsetsResponse,
        _guard_list_offsets,
        list_offsets,
    ),
    Api(
        ApiKey.DELETE_RECORDS,
        (0, 2),
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        _guard_delete_records,
        delete_records,
    ),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (2, 4),
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        _guard_offset_for_leader_epoch,
        offset_for_leader_epoch,
    ),
)
