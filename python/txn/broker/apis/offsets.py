"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from typing import Any, Final

from txn.broker.host import Answer, Context
from txn.broker.node import Node, is_reserved
from txn.broker.turns import OPENING_ITEMS, Turns
from txn.config import topic_setting
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.storage.base import PartitionLog
from txn.wire.error_codes import ErrorCode

LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 2, 21, 23

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
"""Special timestamps. Source: KIP-79, KIP-734, KIP-405, KIP-1005, KIP-1023."""

KNOWN_FROM: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""Special timestamp → the first version of ListOffsets that has it."""

HIGH_WATERMARK = -1
"""In DeleteRecords: everything there is. Source: KIP-107."""

NO_LEADER_EPOCH = -1
READ_COMMITTED = 1
NOTHING = (-1, -1)


async def list_offsets(node: Node, request: Any, context: Context) -> Answer:
    """Answer with offsets at both ends, or by time; exact to the record.

    A partition that is named more than once is INVALID_REQUEST, once. A search by time opens
    batches, so it runs on a worker thread; see `Node.search`.
    """
    is_committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    wanted: dict[str, dict[int, Any]] = {}
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            of_topic = wanted.setdefault(topic.name, {})
            if asked.partition_index in of_topic:
                twice.add((topic.name, asked.partition_index))
            of_topic[asked.partition_index] = asked
    turns = Turns()
    topics = []
    for name, of_topic in wanted.items():
        partitions = []
        for index, asked in of_topic.items():
            await turns.next()
            if (name, index) in twice:
                fault = {"partition_index": index, "error_code": ErrorCode.invalid_request}
                partitions.append(fault)
            else:
                offset = await _offset(node, name, asked, is_committed, context.api_version)
                partitions.append(offset)
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def _offset(
    node: Node, topic: str, wanted: Any, is_committed: bool, version: int
) -> dict[str, Any]:
    answer = {"partition_index": wanted.partition_index}
    timestamp = int(wanted.timestamp)
    if timestamp < EARLIEST_PENDING or version < KNOWN_FROM.get(timestamp, 0):
        return answer | {"error_code": ErrorCode.unsupported_version}
    if node.is_untouched(topic, wanted.partition_index):
        return answer | _offset_of_nothing(node, topic, wanted)
    store, code = _led(node, topic, wanted.partition_index, wanted)
    if store is None:
        return answer | {"error_code": code}
    end = store.last_stable_offset if is_committed else store.high_watermark
    try:
        offset, found_ms = await _lookup(node, store, timestamp, end)
    except CorruptLogError:  # the log tells of it, once and not whenever a client asks
        return answer | {"error_code": ErrorCode.corrupt_message}
    except StorageError as error:
        if node.partition(topic, wanted.partition_index) is not store:  # deleted meanwhile
            return answer | {"error_code": ErrorCode.unknown_topic_or_partition}
        log.error("partition.not_read", reason=error.message)
        return answer | {"error_code": ErrorCode(error.code)}
    return answer | {
        "error_code": ErrorCode.none,
        "offset": offset,
        "timestamp": found_ms,
        "leader_epoch": store.epoch_of(offset) if offset >= 0 else -1,
    }


def _offset_of_nothing(node: Node, topic: str, wanted: Any) -> dict[str, Any]:
    """What to tell of a partition that nothing has opened: it holds nothing, and stays closed."""
    leader_epoch = node.partitions[topic].leader_epoch(wanted.partition_index)
    code = _epoch_fault(leader_epoch, getattr(wanted, "current_leader_epoch", NO_LEADER_EPOCH))
    if code is not ErrorCode.none:
        return {"error_code": code}
    is_an_end = wanted.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
    return {
        "error_code": ErrorCode.none,
        "offset": 0 if is_an_end else -1,
        "timestamp": -1,
        "leader_epoch": leader_epoch if is_an_end else -1,
    }


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
            found = await node.search(lambda: store.offset_for_timestamp(timestamp, end))
            return found or NOTHING


def _opened(node: Node, topic: str, index: int) -> tuple[PartitionLog | None, ErrorCode]:
    """A partition, or why it cannot be used."""
    try:
        store = node.partition(topic, index)
    except StorageError as error:
        return None, ErrorCode(error.code)
    is_known = store is not None
    return store, ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition


def _led(node: Node, topic: str, index: int, asked: Any) -> tuple[PartitionLog | None, ErrorCode]:
    """A partition that is led in the epoch a client knows, or why it cannot be used."""
    store, code = _opened(node, topic, index)
    if store is not None:
        current_leader_epoch = getattr(asked, "current_leader_epoch", NO_LEADER_EPOCH)
        code = _epoch_fault(store.leader_epoch, current_leader_epoch)
    return (store if code is ErrorCode.none else None), code


def _epoch_fault(leader_epoch: int, current_leader_epoch: int) -> ErrorCode:
    if current_leader_epoch > leader_epoch:
        return ErrorCode.unknown_leader_epoch
    if NO_LEADER_EPOCH != current_leader_epoch < leader_epoch:
        return ErrorCode.fenced_leader_epoch
    return ErrorCode.none


async def offset_for_leader_epoch(node: Node, request: Any, context: Context) -> Answer:
    """Answer where epochs end: the leader's ends at the log's end."""
    turns = Turns()
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            await turns.next(OPENING_ITEMS)
            partitions.append(_epoch_end(node, topic.topic, asked))
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _epoch_end(node: Node, topic: str, asked: Any) -> dict[str, Any]:
    store, code = _led(node, topic, asked.partition, asked)
    answer = {"partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    if store is None:
        return answer | {"error_code": code}
    leader_epoch, end_offset = store.end_of_epoch(asked.leader_epoch) or NOTHING
    return answer | {
        "error_code": ErrorCode.none,
        "leader_epoch": leader_epoch,
        "end_offset": end_offset,
    }


async def delete_records(node: Node, request: Any, context: Context) -> Answer:
    """Move the starts of logs up; what lies below is gone for readers, also after a crash."""
    turns = Turns()
    topics = []
    for topic in request.topics:
        wanted = {entry.partition_index: entry.offset for entry in topic.partitions}
        results = []
        for place in wanted.items():
            await turns.next(OPENING_ITEMS)
            results.append(await _deleted(node, topic.name, *place))
        topics.append({"name": topic.name, "partitions": results})
    return {"topics": topics}


async def _deleted(node: Node, topic: str, index: int, offset: int) -> dict[str, Any]:
    store, code = _opened(node, topic, index)
    answer = {"partition_index": index, "low_watermark": -1}
    if store is None:
        return answer | {"error_code": code}
    code = _deletion_fault(node, store, offset)
    if code is not ErrorCode.none:
        return answer | {"error_code": code}
    start = store.high_watermark if offset == HIGH_WATERMARK else offset
    try:
        low_watermark = await node.delete_records(store, start)
    except StorageError as error:
        if node.partition(topic, index) is not store:  # its topic was deleted meanwhile
            return answer | {"error_code": ErrorCode.unknown_topic_or_partition}
        log.error("partition.records_not_deleted", reason=error.message)
        return answer | {"error_code": error.code}
    return answer | {"error_code": ErrorCode.none, "low_watermark": low_watermark}


def _deletion_fault(node: Node, store: PartitionLog, offset: int) -> ErrorCode:
    if is_reserved(store.topic):
        return ErrorCode.invalid_topic_exception
    settings = node.image.topics[store.topic].settings
    if topic_setting("cleanup.policy", settings, node.settings) == "compact":
        return ErrorCode.policy_violation
    if offset != HIGH_WATERMARK and not 0 <= offset <= store.high_watermark:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


VERSIONS = {LIST_OFFSETS: (1, 11), DELETE_RECORDS: (0, 2), OFFSET_FOR_LEADER_EPOCH: (2, 4)}
HANDLERS = {
    LIST_OFFSETS: list_offsets,
    DELETE_RECORDS: delete_records,
    OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
