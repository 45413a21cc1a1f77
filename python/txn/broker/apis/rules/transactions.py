"""Rules of the APIs for transactions, of clients and of operators."""

from typing import Final

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.rules.cluster import MESSAGES
from txn.broker.apis.txn import (
    ADD_PARTITIONS_BATCHED_FROM,
    INTERNAL,
    add_partitions_but,
    topic_results,
)
from txn.broker.apis.txn_tools import (
    described_transactions,
    each_partition_once,
    with_last_clients,
)
from txn.broker.host import Context
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.turns import Turns
from txn.coordinator.transaction.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
)
from txn.metadata.image import is_reserved
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from txn.wire.bodies.txn_tools import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducersOfPartition,
    ProducersOfTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenMarker,
    WrittenMarkers,
    WrittenMarkersOfTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _init_producer_id(
    access: Access,
    coordinator: TransactionCoordinator,
    request: InitProducerIdRequest,
    context: Context,
    proceed: Proceed[InitProducerIdRequest, InitProducerIdResponse],
) -> InitProducerIdResponse | bytes:
    """WRITE on the transactional id, and TWO_PHASE_COMMIT if it is asked for.

    Without an id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679).
    """
    transactional_id = request.transactional_id
    code = ErrorCode.NONE
    if transactional_id is None:
        if not access.may_in_cluster(
            Operation.IDEMPOTENT_WRITE, is_told=False
        ) and not access.may_on_any(Operation.WRITE, ResourceType.TOPIC):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not access.may(Operation.WRITE, TRANSACTIONAL_ID, transactional_id) or (
        request.enable_two_phase_commit
        and not access.may(Operation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    ):
        code = ID_FAILED
    if code is ErrorCode.NONE:
        return await proceed.reply(request)
    return InitProducerIdResponse(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


async def _add_partitions(
    access: Access,
    coordinator: TransactionCoordinator,
    request: AddPartitionsToTxnRequest,
    context: Context,
    proceed: Proceed[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> AddPartitionsToTxnResponse | bytes:
    """WRITE on the transactional id and on the topics.

    From version 4 on, which brokers speak: CLUSTER_ACTION on the cluster and nothing else.
    """
    if context.api_version >= ADD_PARTITIONS_BATCHED_FROM:
        if access.may_in_cluster(Operation.CLUSTER_ACTION):
            return await proceed.reply(request)
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not access.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        codes = {
            (topic.name, index): ID_FAILED for topic in request.topics for index in topic.partitions
        }
        return AddPartitionsToTxnResponse(topic_results(codes))
    names = [topic.name for topic in request.topics if not is_reserved(topic.name)]
    allowed = await access.among(Operation.WRITE, ResourceType.TOPIC, names)
    refused = {topic.name for topic in request.topics} - allowed
    return await add_partitions_but(coordinator, request, context, refused | INTERNAL)


async def _add_offsets(
    access: Access,
    coordinator: TransactionCoordinator,
    request: AddOffsetsToTxnRequest,
    context: Context,
    proceed: Proceed[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse],
) -> AddOffsetsToTxnResponse | bytes:
    """WRITE on the transactional id, READ on the group."""
    if not access.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(ID_FAILED)
    if not access.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return await proceed.reply(request)


async def _end_txn(
    access: Access,
    coordinator: TransactionCoordinator,
    request: EndTxnRequest,
    context: Context,
    proceed: Proceed[EndTxnRequest, EndTxnResponse],
) -> EndTxnResponse | bytes:
    """WRITE on the transactional id."""
    if access.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return await proceed.reply(request)
    return EndTxnResponse(ID_FAILED)


async def _write_markers(
    access: Access,
    coordinator: TransactionCoordinator,
    request: WriteTxnMarkersRequest,
    context: Context,
    proceed: Proceed[WriteTxnMarkersRequest, WriteTxnMarkersResponse],
) -> WriteTxnMarkersResponse:
    """ALTER on the cluster, or CLUSTER_ACTION."""
    if access.may_in_cluster(Operation.ALTER, is_told=False) or access.may_in_cluster(
        Operation.CLUSTER_ACTION
    ):
        return await proceed(request)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return WriteTxnMarkersResponse(
        [
            WrittenMarkers(
                entry.producer_id,
                [
                    WrittenMarkersOfTopic(
                        topic.name,
                        [WrittenMarker(index, code) for index in topic.partition_indexes],
                    )
                    for topic in entry.topics
                ],
            )
            for entry in request.markers
        ]
    )


async def _describe_transactions(
    access: Access,
    coordinator: TransactionCoordinator,
    request: DescribeTransactionsRequest,
    context: Context,
    proceed: Proceed[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> DescribeTransactionsResponse | bytes:
    """DESCRIBE on the transactional id; topics without DESCRIBE are left out."""
    ids = list(dict.fromkeys(request.transactional_ids))
    allowed = await access.among(Operation.DESCRIBE, TRANSACTIONAL_ID, ids)
    found = iter(await described_transactions(coordinator, [one for one in ids if one in allowed]))
    described = []
    for transactional_id in ids:
        if transactional_id not in allowed:
            described.append(DescribedTransaction(ID_FAILED, transactional_id, "", 0, 0, 0, 0, []))
            continue
        one = next(found)
        names = [topic.topic for topic in one.topics]
        seen = await access.among(Operation.DESCRIBE, ResourceType.TOPIC, names)
        topics = [topic for topic in one.topics if topic.topic in seen]
        described.append(one._replace(topics=topics))
    return with_last_clients(coordinator, context, described)


async def _list_transactions(
    access: Access,
    coordinator: TransactionCoordinator,
    request: ListTransactionsRequest,
    context: Context,
    proceed: Proceed[ListTransactionsRequest, ListTransactionsResponse],
) -> ListTransactionsResponse:
    """Transactional ids without DESCRIBE are left out."""
    response = await proceed(request)
    ids = [one.transactional_id for one in response.transaction_states]
    seen = await access.among(Operation.DESCRIBE, TRANSACTIONAL_ID, ids, is_told=False)
    return response._replace(
        transaction_states=[
            one for one in response.transaction_states if one.transactional_id in seen
        ]
    )


async def _describe_producers(
    access: Access,
    coordinator: TransactionCoordinator,
    request: DescribeProducersRequest,
    context: Context,
    proceed: Proceed[DescribeProducersRequest, DescribeProducersResponse],
) -> DescribeProducersResponse:
    """READ on the topic."""
    names = [topic.name for topic in request.topics]
    allowed = await access.among(Operation.READ, ResourceType.TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    found = {one.name: one for one in (await proceed(changed(request, topics=kept))).topics}
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


RULES: Final[tuple[Rule[TransactionCoordinator], ...]] = (
    Rule(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdRequest,
        InitProducerIdResponse,
        _init_producer_id,
    ),
    Rule(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        _add_partitions,
    ),
    Rule(
        ApiKey.ADD_OFFSETS_TO_TXN,
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        _add_offsets,
    ),
    Rule(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse, _end_txn),
    Rule(
        ApiKey.WRITE_TXN_MARKERS,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        _write_markers,
    ),
    Rule(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        _describe_transactions,
    ),
    Rule(
        ApiKey.LIST_TRANSACTIONS,
        ListTransactionsRequest,
        ListTransactionsResponse,
        _list_transactions,
    ),
    Rule(
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest,
        DescribeProducersResponse,
        _describe_producers,
    ),
)
