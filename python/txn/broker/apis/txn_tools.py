"""An operator's requests: list transactions, describe them, end hanging ones.

Where this differs from Kafka: an id, or a partition, that is to be described several times is
described once. An operator's marker in the midst of a transaction that is
open here aborts all of it (`broker.transactions`). No marker goes into `__transaction_state`. A
marker for no producer is INVALID_REQUEST, not UNKNOWN_SERVER_ERROR. A pattern is RE2's own, of
which Kafka's RE2/J is a copy. txn accepts `\\C` and a repeated group name, and Kafka refuses them.
Kafka accepts repetitions of repetitions above 1,000, and txn refuses them.

Sources: Kafka's message schemas; KIP-664, KIP-994 (duration), KIP-1152 (pattern), KIP-1228
(the transaction's version in WriteTxnMarkers).
"""

from collections.abc import Sequence
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    CLUSTER_FAILED,
    ID_FAILED,
    MESSAGES,
    TOPIC_FAILED,
)
from txn.broker.apis.txn import (
    by_topic,
)
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.turns import OPENING_ITEMS, Turns
from txn.coordinator.patterns import compile_pattern
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.listing import PATTERN_BYTES_MAX, STATES_BY_LABEL, Filter
from txn.coordinator.transaction.states import Txn
from txn.errors import StorageError
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.security.acls import Operation, ResourceType
from txn.storage.base import Marker
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.txn_tools import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerEntry,
    ProducersOfPartition,
    ProducersOfTopic,
    TransactionTopic,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenMarker,
    WrittenMarkers,
    WrittenMarkersOfTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response
from txn.wire.requests import changed
from txn.wire.transaction_descriptions import TOOL_CLIENT_IDS, Extra, with_extras

NOT_HOSTED: Final = "This server does not host this topic-partition."


async def describe_transactions(
    coordinator: TransactionCoordinator, request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse | bytes:
    """Describe transactional ids; to `txn explain` also their last clients."""
    asked = dict.fromkeys(request.transactional_ids)
    described = await described_transactions(coordinator, list(asked))
    return with_last_clients(coordinator, context, described)


async def described_transactions(
    coordinator: TransactionCoordinator, transactional_ids: Sequence[str]
) -> list[DescribedTransaction]:
    """The descriptions of transactional ids, in their order."""
    turns = Turns()
    described = []
    for transactional_id in transactional_ids:
        txn = coordinator.transactions.get(transactional_id)
        await turns.next(1 if txn is None else 1 + len(txn.partitions))
        described.append(_description(coordinator, transactional_id))
    return described


def with_last_clients(
    coordinator: TransactionCoordinator,
    context: Context,
    described: Sequence[DescribedTransaction],
) -> DescribeTransactionsResponse | bytes:
    """The answer with these descriptions; `txn explain` gets the last clients beside them."""
    answer = DescribeTransactionsResponse(described)
    if context.client_id not in TOOL_CLIENT_IDS:
        return answer
    extras = {
        one.transactional_id: _extras(coordinator, one.transactional_id, txn)
        for one in described
        if one.error_code is ErrorCode.NONE
        and (txn := coordinator.transactions.get(one.transactional_id)) is not None
    }
    return with_extras(encode_response(context.api_key, context.api_version, answer), extras)


def _extras(coordinator: TransactionCoordinator, transactional_id: str, txn: Txn) -> Extra:
    client = coordinator.clients.get(transactional_id)
    return {"updated_ms": txn.updated_ms} | ({} if client is None else client._asdict())


def _description(
    coordinator: TransactionCoordinator, transactional_id: str
) -> DescribedTransaction:
    txn = coordinator.transactions.get(transactional_id)
    if txn is None:
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if not transactional_id:
            unknown = ErrorCode.INVALID_REQUEST
        elif (refusal := coordinator.refusal(transactional_id)) is not ErrorCode.NONE:
            unknown = refusal
        return _described(unknown, transactional_id, "", 0, 0, NO_PRODUCER, [])
    return _described(
        ErrorCode.NONE,
        transactional_id,
        txn.state.label,
        txn.timeout_ms,
        txn.start_ms,
        txn.producer,
        sorted(txn.partitions),
    )


def _described(
    code: ErrorCode,
    transactional_id: str,
    label: str,
    timeout_ms: int,
    start_ms: int,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
) -> DescribedTransaction:
    return DescribedTransaction(
        code,
        transactional_id,
        label,
        timeout_ms,
        start_ms,
        producer.producer_id,
        producer.producer_epoch,
        [
            TransactionTopic(topic, [index for _, index in group])
            for topic, group in by_topic(partitions)
        ],
    )


async def list_transactions(
    coordinator: TransactionCoordinator, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    """List the transactional ids that pass the filters."""
    labels = dict.fromkeys(request.state_filters)
    states = frozenset(STATES_BY_LABEL[label] for label in labels if label in STATES_BY_LABEL)
    unknown = [label for label in labels if label not in STATES_BY_LABEL]
    try:
        pattern_text = request.transactional_id_pattern
        pattern = (
            compile_pattern(pattern_text, bytes_max=PATTERN_BYTES_MAX) if pattern_text else None
        )
    except ValueError:
        return _listing(ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])
    if labels and not states:
        return _listing(ErrorCode.NONE, unknown, [])
    criteria = Filter(
        states=states,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        pattern=pattern,
    )
    turns = Turns()
    passing = []
    for one in coordinator.find(criteria):
        await turns.next()
        if one is not None:
            passing.append(one)
    return _listing(ErrorCode.NONE, unknown, passing)


def _listing(
    code: ErrorCode, unknown: Sequence[str], transactions: Sequence[tuple[str, Txn]]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        code,
        unknown,
        [
            ListedTransaction(transactional_id, txn.producer_id, txn.state.label)
            for transactional_id, txn in transactions
        ],
    )


async def describe_producers(
    coordinator: TransactionCoordinator, request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    """Tell which producers partitions know, and where their open transactions begin."""
    turns = Turns()
    topics = []
    for name, indexes in each_partition_once(request).items():
        partitions = []
        for index in indexes:
            active = _active_producers(coordinator, name, index)
            await turns.next(OPENING_ITEMS + len(active.active_producers))
            partitions.append(active)
        topics.append(ProducersOfTopic(name, partitions))
    return DescribeProducersResponse(topics)


def each_partition_once(request: DescribeProducersRequest) -> dict[str, dict[int, None]]:
    """The topics of a request, and their partitions: each of them may have many producers."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return asked


def _active_producers(
    coordinator: TransactionCoordinator, topic: str, index: int
) -> ProducersOfPartition:
    is_there = coordinator.has_partition(topic, index)
    code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message = None if coordinator.has_topic(topic) else NOT_HOSTED
    known = []
    try:
        if is_there and not coordinator.is_untouched(topic, index):  # or it has none
            store = coordinator.partition(topic, index)
            known = [] if store is None else store.producers()
    except StorageError as error:
        code, message = ErrorCode.KAFKA_STORAGE_ERROR, error.message
    return ProducersOfPartition(
        index,
        code,
        message,
        [
            ProducerEntry(
                active.producer_id,
                active.producer_epoch,
                active.last_sequence,
                active.last_timestamp_ms,
                active.coordinator_epoch,
                active.current_txn_start_offset,
            )
            for active in known
        ],
    )


# -------------------------------------------------------------------- ending what hangs


async def write_txn_markers(
    coordinator: TransactionCoordinator, request: WriteTxnMarkersRequest, context: Context
) -> WriteTxnMarkersResponse:
    """Write an operator's markers, which end open transactions on partitions."""
    turns = Turns()
    codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for entry in request.markers:
        of_producer = codes.setdefault(entry.producer_id, {})
        for topic in entry.topics:
            for index in topic.partition_indexes:
                await turns.next(OPENING_ITEMS)
                partition = (topic.name, index)
                code = await _write_marker(coordinator, entry, partition)
                of_producer[partition] = code
                if code is ErrorCode.NONE:
                    audit.acted(
                        context,
                        "marker.written",
                        "TOPIC",
                        topic.name,
                        partition=index,
                        producer_id=entry.producer_id,
                        producer_epoch=entry.producer_epoch,
                        is_commit=entry.transaction_result,
                    )
    return WriteTxnMarkersResponse(
        [
            WrittenMarkers(producer_id, _marker_results(of_producer))
            for producer_id, of_producer in codes.items()
            if of_producer
        ]
    )


async def _write_marker(
    coordinator: TransactionCoordinator, entry: WritableTxnMarker, partition: TopicPartition
) -> ErrorCode:
    if not coordinator.has_partition(*partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition[0] == TRANSACTIONS_TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if entry.producer_id < 0 or entry.producer_epoch < 0:
        return ErrorCode.INVALID_REQUEST
    marker = Marker(
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.transaction_result,
        timestamp_ms=0,
    )
    must_bump = entry.transaction_version >= TV2
    return await coordinator.write_marker(partition, marker, must_bump=must_bump)


def _marker_results(codes: dict[TopicPartition, ErrorCode]) -> list[WrittenMarkersOfTopic]:
    return [
        WrittenMarkersOfTopic(
            topic, [WrittenMarker(index, codes[topic, index]) for _, index in group]
        )
        for topic, group in by_topic(codes)
    ]


# ---------------------------------------------------------------- access


async def _guard_write_markers(
    call: Call[TransactionCoordinator, WriteTxnMarkersRequest, WriteTxnMarkersResponse],
) -> WriteTxnMarkersResponse | bytes:
    """ALTER on the cluster, or CLUSTER_ACTION."""
    if call.access.may_in_cluster(Operation.ALTER, is_logged=False) or call.access.may_in_cluster(
        Operation.CLUSTER_ACTION
    ):
        return await call.proceed()
    return WriteTxnMarkersResponse(
        [
            WrittenMarkers(
                entry.producer_id,
                [
                    WrittenMarkersOfTopic(
                        topic.name,
                        [WrittenMarker(index, CLUSTER_FAILED) for index in topic.partition_indexes],
                    )
                    for topic in entry.topics
                ],
            )
            for entry in call.request.markers
        ]
    )


async def _guard_describe_producers(
    call: Call[TransactionCoordinator, DescribeProducersRequest, DescribeProducersResponse],
) -> DescribeProducersResponse:
    """READ on the topic."""
    request = call.request
    names = [topic.name for topic in request.topics]
    allowed = await call.access.among(Operation.READ, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    found = {
        one.name: one for one in (await call.proceed_with(changed(request, topics=kept))).topics
    }
    turns = Turns()
    topics = []
    for name, indexes in each_partition_once(request).items():
        await turns.next(1 + len(indexes))
        if name in allowed:
            topics.append(found[name])
            continue
        partitions = [
            ProducersOfPartition(index, TOPIC_FAILED, MESSAGES[TOPIC_FAILED], [])
            for index in indexes
        ]
        topics.append(ProducersOfTopic(name, partitions))
    return DescribeProducersResponse(topics)


async def _guard_describe_transactions(
    call: Call[TransactionCoordinator, DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> DescribeTransactionsResponse | bytes:
    """DESCRIBE on the transactional id; topics without DESCRIBE are left out."""
    ids = list(dict.fromkeys(call.request.transactional_ids))
    allowed = await call.access.among(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids)
    found = iter(await described_transactions(call.service, [one for one in ids if one in allowed]))
    described = []
    for transactional_id in ids:
        if transactional_id not in allowed:
            described.append(DescribedTransaction(ID_FAILED, transactional_id, "", 0, 0, 0, 0, []))
            continue
        one = next(found)
        names = [topic.topic for topic in one.topics]
        seen = await call.access.among(Operation.DESCRIBE, ResourceType.TOPIC, names)
        topics = [topic for topic in one.topics if topic.topic in seen]
        described.append(one._replace(topics=topics))
    return with_last_clients(call.service, call.context, described)


async def _guard_list_transactions(
    call: Call[TransactionCoordinator, ListTransactionsRequest, ListTransactionsResponse],
) -> ListTransactionsResponse:
    """Transactional ids without DESCRIBE are left out."""
    response = await call.proceed_with(call.request)
    ids = [one.transactional_id for one in response.transaction_states]
    seen = await call.access.among(
        Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids, is_logged=False
    )
    return response._replace(
        transaction_states=[
            one for one in response.transaction_states if one.transactional_id in seen
        ]
    )


APIS: Final = Area(
    lambda node: node.transactions,
    Api(
        ApiKey.WRITE_TXN_MARKERS,
        (1, 2),
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        _guard_write_markers,
        write_txn_markers,
    ),
    Api(
        ApiKey.DESCRIBE_PRODUCERS,
        (0, 0),
        DescribeProducersRequest,
        DescribeProducersResponse,
        _guard_describe_producers,
        describe_producers,
    ),
    Api(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        _guard_describe_transactions,
        describe_transactions,
    ),
    Api(
        ApiKey.LIST_TRANSACTIONS,
        (0, 2),
        ListTransactionsRequest,
        ListTransactionsResponse,
        _guard_list_transactions,
        list_transactions,
    ),
)
