"""The life of a transaction: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

A fenced producer gets PRODUCER_FENCED in the versions that have it and INVALID_PRODUCER_EPOCH in
older ones; TRANSACTION_ABORTABLE is translated likewise. But a commit that the broker had to abort
has to be abortable in every version, so that no client needs a new producer.
EndTxn 2 and 3, which Java clients speak, answer UNKNOWN_PRODUCER_ID: Java's clients then abort and
start again with their epoch (KIP-360). EndTxn 0 and 1 answer TRANSACTION_ABORTABLE all the same.
librdkafka, which speaks no later version, aborts on any code that it has no rule for.
From version 4 on AddPartitionsToTxn accepts many transactions at once, by the rules of version 2,
and can merely verify (`verify_only`). Brokers use these versions; here every client may.

Where this differs from Kafka: InitProducerId 6 (KIP-939) is announced and served as soon as
two-phase commit is enabled; Kafka also wants its unstable versions enabled. An AddPartitionsToTxn
that names no transaction is answered; Kafka 4.2 never answers it. No client can add
`__transaction_state` to a transaction.

Sources: Kafka's message schemas; KIP-588 (PRODUCER_FENCED), KIP-890, KIP-939.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    CLUSTER_FAILED,
    GROUP_FAILED,
    ID_FAILED,
    READ_GROUP,
    WRITE_ID,
)
from txn.broker.host import Context
from txn.broker.members import NONE, TO_ABORT, TO_COMMIT, TRANSACTION
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.broker.turns import Turns
from txn.coordinator.transaction.decide import TV2
from txn.identifiers import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TopicPartition,
)
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_reserved
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.txn import (
    AddedPartition,
    AddedTopic,
    AddedToTransaction,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response

PRODUCER_FENCED_FROM: Final[Mapping[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
TRANSACTION_ABORTABLE_FROM: Final[Mapping[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
}
"""API key → the first version whose clients know the error code."""

END_TXN_ABORTS_UNKNOWN_FROM: Final = 2
"""The first version whose clients abort at UNKNOWN_PRODUCER_ID."""

INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

RESULTS_KEPT_MAX: Final = 32
"""The partitions of a request whose results are remembered, at most."""

END_TXN_BUMPS_FROM: Final = 5
ADD_PARTITIONS_BATCHED_FROM: Final = 4


def _known_to(context: Context, code: ErrorCode) -> ErrorCode:
    """Say an error with a code that clients of this version know."""
    if code is NONE:
        return code
    key, version = context.api_key, context.api_version
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < TRANSACTION_ABORTABLE_FROM[key]:
        if key == ApiKey.END_TXN:
            knows_abort = version >= END_TXN_ABORTS_UNKNOWN_FROM
            return ErrorCode.UNKNOWN_PRODUCER_ID if knows_abort else code
        code = ErrorCode.PRODUCER_FENCED
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM[key]:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return code


REQUEST_NAMES: Final[Mapping[int, str]] = {
    ApiKey.INIT_PRODUCER_ID: "InitProducerId",
    ApiKey.ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    ApiKey.ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    ApiKey.END_TXN: "EndTxn",
}


def _note(
    coordinator: TransactionCoordinator,
    transactional_id: str | None,
    context: Context,
    code: ErrorCode,
) -> None:
    """Remember who acted for a transactional id, unless it was refused."""
    if transactional_id and code is NONE:
        coordinator.clients.note(transactional_id, context, REQUEST_NAMES[context.api_key])


# -------------------------------------------------------------------- a transaction's life


async def init_producer_id(
    coordinator: TransactionCoordinator, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    """Give a producer its id and epoch."""
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    is_new = expected == NO_PRODUCER
    if not is_new and (expected.producer_id == NO_PRODUCER_ID or expected.producer_epoch < 0):
        return _initialized(context, InitProducerIdResult(NO_PRODUCER, ErrorCode.INVALID_REQUEST))
    identity = await coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if is_new else expected,
        is_two_phase=request.enable_two_phase_commit,
        keep_prepared=request.keep_prepared_txn,
    )
    _note(coordinator, request.transactional_id, context, identity.code)
    return _initialized(context, identity)


def _initialized(context: Context, identity: InitProducerIdResult) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        _known_to(context, identity.code),
        identity.producer.producer_id,
        identity.producer.producer_epoch,
        identity.ongoing.producer_id,
        identity.ongoing.producer_epoch,
    )


def add_partitions_to_txn(
    coordinator: TransactionCoordinator, request: AddPartitionsToTxnRequest, context: Context
) -> Coroutine[object, None, AddPartitionsToTxnResponse | bytes]:
    """Join partitions to transactions: all of one's, or none if one of them cannot."""
    if context.api_version >= ADD_PARTITIONS_BATCHED_FROM:
        return _add_batched(coordinator, request.transactions)
    return add_partitions_but(coordinator, request, context, INTERNAL)


async def add_partitions_but(
    coordinator: TransactionCoordinator,
    request: AddPartitionsToTxnRequest,
    context: Context,
    closed: Collection[str],
) -> AddPartitionsToTxnResponse | bytes:
    """Join partitions to one transaction, unless one of them is of a closed topic."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    transactional_id = request.transactional_id
    client = context.session.client
    await coordinator.hang_up_if_late(transactional_id, producer, client, TRANSACTION)
    partitions, errors = await _checked(coordinator, request.topics, closed, Turns())
    if errors:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors
        return AddPartitionsToTxnResponse(topic_results(codes))
    code = await coordinator.add_partitions(transactional_id, producer, partitions)
    _note(coordinator, transactional_id, context, code)
    code = _known_to(context, code)
    if len(partitions) > RESULTS_KEPT_MAX:
        return AddPartitionsToTxnResponse(await _many_alike(partitions, code))
    return _added_alike(context.api_version, tuple(partitions), code)


async def _checked(
    coordinator: TransactionCoordinator,
    topics: Sequence[AddPartitionsToTxnTopic],
    closed: Collection[str],
    turns: Turns,
) -> tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]:
    """The partitions of a request, each once, and the error codes of those that are kept out.

    Args:
        coordinator: Knows the partitions.
        topics: Those of the request.
        closed: Names of topics that the request may not add.
        turns: Those of the request.
    """
    partitions: dict[TopicPartition, None] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        name = topic.name
        is_closed = name in closed
        count = coordinator.partition_count(name)
        for index in topic.partitions:
            if turns.are_over(1):
                await turns.give_way()
            partition = (name, index)
            partitions[partition] = None
            if is_closed or not 0 <= index < count:
                errors[partition] = (
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    if is_closed or name in INTERNAL
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
    return list(partitions), errors


async def _add_batched(
    coordinator: TransactionCoordinator, transactions: Sequence[AddPartitionsToTxnTransaction]
) -> AddPartitionsToTxnResponse | bytes:
    turns = Turns()
    results = []
    for transaction in transactions:
        await turns.next()
        codes = await _add_one(coordinator, transaction, turns)
        results.append(AddedToTransaction(transaction.transactional_id, topic_results(codes)))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_one(
    coordinator: TransactionCoordinator, transaction: AddPartitionsToTxnTransaction, turns: Turns
) -> Mapping[TopicPartition, ErrorCode]:
    # The client itself joins groups' partitions here.
    closed = (TRANSACTIONS_TOPIC,)
    partitions, errors = await _checked(coordinator, transaction.topics, closed, turns)
    if errors:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return await coordinator.verify_partitions(
            transaction.transactional_id, producer, partitions
        )
    code = await coordinator.add_partitions(
        transaction.transactional_id, producer, partitions, client_version=TV2
    )
    return dict.fromkeys(partitions, code)


def topic_results(codes: Mapping[TopicPartition, ErrorCode]) -> list[AddedTopic]:
    """The results of AddPartitionsToTxn from the codes of partitions."""
    return [
        AddedTopic(topic, [AddedPartition(index, codes[topic, index]) for _, index in group])
        for topic, group in by_topic(codes)
    ]


async def _many_alike(partitions: Iterable[TopicPartition], code: ErrorCode) -> list[AddedTopic]:
    """As `topic_results`, of many partitions with the same result; gives way to others."""
    turns = Turns()
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        await turns.next()
        indexes.setdefault(topic, []).append(index)
    added = []
    for topic in sorted(indexes):
        results = []
        for index in sorted(indexes[topic]):
            await turns.next()
            results.append(AddedPartition(index, code))
        added.append(AddedTopic(topic, results))
    return added


@lru_cache(maxsize=256)
def _added_alike(
    api_version: int, partitions: tuple[TopicPartition, ...], code: ErrorCode
) -> bytes:
    """The answer where all results are the same: a producer adds the same partitions every time."""
    response = AddPartitionsToTxnResponse(topic_results(dict.fromkeys(partitions, code)))
    return encode_response(ApiKey.ADD_PARTITIONS_TO_TXN, api_version, response)


@lru_cache(maxsize=64)
def _offsets_added(api_version: int, code: ErrorCode) -> bytes:
    response = AddOffsetsToTxnResponse(code)
    return encode_response(ApiKey.ADD_OFFSETS_TO_TXN, api_version, response)


@lru_cache(maxsize=64)
def _ended(api_version: int, code: ErrorCode) -> bytes:
    """The answer to EndTxn where it tells no identity."""
    return encode_response(ApiKey.END_TXN, api_version, EndTxnResponse(code))


def by_topic(partitions: Iterable[TopicPartition]) -> "groupby[str, TopicPartition]":
    """Group partitions by their topic, both in order."""
    return groupby(sorted(partitions), key=lambda partition: partition[0])


async def add_offsets_to_txn(
    coordinator: TransactionCoordinator, request: AddOffsetsToTxnRequest, context: Context
) -> bytes:
    """Join a group's partition of `__consumer_offsets` to a transaction."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    await coordinator.hang_up_if_late(
        request.transactional_id, producer, context.session.client, TRANSACTION
    )
    code = await coordinator.add_partitions(
        request.transactional_id, producer, [coordinator.offsets_partition(request.group_id)]
    )
    if code is NONE:
        coordinator.announce_offsets(request.transactional_id)
    _note(coordinator, request.transactional_id, context, code)
    return _offsets_added(context.api_version, _known_to(context, code))


async def end_txn(
    coordinator: TransactionCoordinator, request: EndTxnRequest, context: Context
) -> EndTxnResponse | bytes:
    """Commit or abort."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    bumps_epoch = context.api_version >= END_TXN_BUMPS_FROM
    if not bumps_epoch:
        await coordinator.hang_up_if_late(
            request.transactional_id, producer, context.session.client, TRANSACTION
        )
    identity = await coordinator.end(
        request.transactional_id,
        producer,
        TO_COMMIT if request.committed else TO_ABORT,
        bumps_epoch=bumps_epoch,
    )
    _note(coordinator, request.transactional_id, context, identity.code)
    code = _known_to(context, identity.code)
    if not bumps_epoch:
        return _ended(context.api_version, code)
    return EndTxnResponse(
        code,
        identity.producer.producer_id,
        identity.producer.producer_epoch,
    )


# ---------------------------------------------------------------- access


async def _guard_init_producer_id(
    call: Call[TransactionCoordinator, InitProducerIdRequest, InitProducerIdResponse],
) -> InitProducerIdResponse | bytes:
    """WRITE on the transactional id, and TWO_PHASE_COMMIT if it is asked for.

    Without an id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679).
    """
    access = call.access
    transactional_id = call.request.transactional_id
    code = ErrorCode.NONE
    if transactional_id is None:
        if not access.may_in_cluster(
            Operation.IDEMPOTENT_WRITE, is_logged=False
        ) and not access.may_on_any(Operation.WRITE, ResourceType.TOPIC):
            code = CLUSTER_FAILED
    elif not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id) or (
        call.request.enable_two_phase_commit
        and not access.may(
            Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id
        )
    ):
        code = ID_FAILED
    if code is ErrorCode.NONE:
        return await call.proceed()
    return InitProducerIdResponse(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


async def _guard_add_partitions(
    call: Call[TransactionCoordinator, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> AddPartitionsToTxnResponse | bytes:
    """WRITE on the transactional id and on the topics.

    From version 4 on, which brokers speak: CLUSTER_ACTION on the cluster and nothing else.
    """
    access, request = call.access, call.request
    if call.context.api_version >= ADD_PARTITIONS_BATCHED_FROM:
        if access.may_in_cluster(Operation.CLUSTER_ACTION):
            return await call.proceed()
        return AddPartitionsToTxnResponse(error_code=CLUSTER_FAILED)
    if not WRITE_ID.is_met(call):
        codes = {
            (topic.name, index): ID_FAILED for topic in request.topics for index in topic.partitions
        }
        return AddPartitionsToTxnResponse(topic_results(codes))
    names = [topic.name for topic in request.topics if not is_reserved(topic.name)]
    allowed = await access.among(Operation.WRITE, ResourceType.TOPIC, names)
    refused = {topic.name for topic in request.topics} - allowed
    return await add_partitions_but(call.service, request, call.context, refused | INTERNAL)


async def _guard_add_offsets(
    call: Call[TransactionCoordinator, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse],
) -> AddOffsetsToTxnResponse | bytes:
    """WRITE on the transactional id, READ on the group."""
    if not WRITE_ID.is_met(call):
        return AddOffsetsToTxnResponse(ID_FAILED)
    if not READ_GROUP.is_met(call):
        return AddOffsetsToTxnResponse(GROUP_FAILED)
    return await call.proceed()


APIS: Final = Area(
    lambda node: node.transactions,
    Api(
        ApiKey.INIT_PRODUCER_ID,
        (0, 6),
        InitProducerIdRequest,
        InitProducerIdResponse,
        _guard_init_producer_id,
        init_producer_id,
    ),
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 5),
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        _guard_add_partitions,
        add_partitions_to_txn,
    ),
    Api(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        _guard_add_offsets,
        add_offsets_to_txn,
    ),
    Api(
        ApiKey.END_TXN,
        (0, 5),
        EndTxnRequest,
        EndTxnResponse,
        WRITE_ID.or_else(EndTxnResponse(ID_FAILED)),
        end_txn,
    ),
)
