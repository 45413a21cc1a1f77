"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what there is to list.

A fenced producer is told PRODUCER_FENCED by the versions that know it and
INVALID_PRODUCER_EPOCH by the older ones; likewise TRANSACTION_ABORTABLE. Versions 4 and 5
of AddPartitionsToTxn are between brokers and are not announced.

Sources: Kafka's message schemas; KIP-588 (PRODUCER_FENCED), KIP-664, KIP-890, KIP-994.
"""

import datetime
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from txn.broker.host import Answer, Context
from txn.broker.transactions import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Identity,
    TransactionCoordinator,
)
from txn.coordinator.transaction.connections import Role
from txn.coordinator.transaction.listing import STATES_BY_LABEL, Filter
from txn.coordinator.transaction.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Outcome,
    Producer,
    TopicPartition,
    Txn,
)
from txn.wire.messages import encode_response
from txn.wire.transaction_descriptions import EXPLAIN_CLIENT_ID, with_extras

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66

PRODUCER_FENCED_FROM: Final = {
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS_TO_TXN: 2,
    ADD_OFFSETS_TO_TXN: 2,
    END_TXN: 2,
}
TRANSACTION_ABORTABLE_FROM: Final = {
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS_TO_TXN: 5,
    ADD_OFFSETS_TO_TXN: 4,
    END_TXN: 4,
}
"""API key → the first version whose clients know the error code."""

END_TXN_BUMPS_FROM: Final = 5
NOBODY: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

R = TypeVar("R")
Later = Answer | Awaitable[Answer]


def _then(result: R | Awaitable[R], answer: Callable[[R], Answer]) -> Later:
    """Make the answer of a result: now, or when it is there."""
    if isinstance(result, Awaitable):
        return _answer_later(result, answer)
    return answer(result)


async def _answer_later(result: Awaitable[R], answer: Callable[[R], Answer]) -> Answer:
    return answer(await result)


def _known_to(context: Context, code: ErrorCode) -> ErrorCode:
    """Say an error with a code that clients of this version know."""
    key, version = context.api_key, context.api_version
    if code is ErrorCode.transaction_abortable and version < TRANSACTION_ABORTABLE_FROM[key]:
        code = ErrorCode.producer_fenced
    if code is ErrorCode.producer_fenced and version < PRODUCER_FENCED_FROM[key]:
        code = ErrorCode.invalid_producer_epoch
    return code


def _identity_answer(context: Context, identity: Identity) -> dict[str, Any]:
    """The fields that InitProducerId and EndTxn v5 answer."""
    return {
        "error_code": _known_to(context, identity.code),
        "producer_id": identity.producer.producer_id,
        "producer_epoch": identity.producer.producer_epoch,
    }


REQUEST_NAMES: Final = {
    INIT_PRODUCER_ID: "InitProducerId",
    ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    END_TXN: "EndTxn",
}


def _note(
    coordinator: TransactionCoordinator, request: Any, context: Context, code: ErrorCode
) -> None:
    """Remember who acted for a transactional id, unless it was refused."""
    transactional_id = getattr(
        request, "transactional_id", getattr(request, "v3_and_below_transactional_id", None)
    )
    if transactional_id and code is ErrorCode.none:
        name = REQUEST_NAMES[context.api_key]
        coordinator.clients.note(transactional_id, context, name)


# -------------------------------------------------------------------- a transaction's life


def init_producer_id(coordinator: TransactionCoordinator, request: Any, context: Context) -> Later:
    """Give a producer its id and epoch."""
    shown = Producer(
        getattr(request, "producer_id", NO_PRODUCER_ID),
        getattr(request, "producer_epoch", NO_PRODUCER_EPOCH),
    )
    is_new = shown == NOBODY
    if not is_new and (shown.producer_id == NO_PRODUCER_ID or shown.producer_epoch < 0):
        return _identity_answer(context, Identity(NOBODY, ErrorCode.invalid_request))

    def answer(identity: Identity) -> Answer:
        _note(coordinator, request, context, identity.code)
        return _identity_answer(context, identity)

    return _then(
        coordinator.init_producer_id(
            request.transactional_id,
            _milliseconds(request.transaction_timeout),
            None if is_new else shown,
        ),
        answer,
    )


def add_partitions_to_txn(
    coordinator: TransactionCoordinator, request: Any, context: Context
) -> Later:
    """Join partitions to a transaction: all of them, or none if one cannot."""
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    transactional_id = request.v3_and_below_transactional_id
    coordinator.hang_up_if_late(transactional_id, producer, context.connection, Role.TRANSACTION)
    partitions = [
        (str(topic.name), int(index))
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    errors = {p: code for p in partitions if (code := _refusal_of_partition(coordinator, p))}
    if errors:
        codes = dict.fromkeys(partitions, ErrorCode.operation_not_attempted) | errors
        return _results_by_topic(codes)

    def answer(code: ErrorCode) -> Answer:
        _note(coordinator, request, context, code)
        return _results_by_topic(dict.fromkeys(partitions, _known_to(context, code)))

    return _then(
        coordinator.add_partitions(transactional_id, producer, partitions),
        answer,
    )


def _refusal_of_partition(
    coordinator: TransactionCoordinator, partition: TopicPartition
) -> ErrorCode | None:
    if partition[0] in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        return ErrorCode.topic_authorization_failed
    if coordinator.partition(*partition) is None:
        return ErrorCode.unknown_topic_or_partition
    return None


def _results_by_topic(codes: Mapping[TopicPartition, ErrorCode]) -> dict[str, Any]:
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": codes[topic, index]}
                    for _, index in group
                ],
            }
            for topic, group in _by_topic(list(codes))
        ]
    }


def _by_topic(partitions: Sequence[TopicPartition]) -> "groupby[str, TopicPartition]":
    return groupby(sorted(partitions), key=lambda partition: partition[0])


def add_offsets_to_txn(
    coordinator: TransactionCoordinator, request: Any, context: Context
) -> Later:
    """Join a group's partition of `__consumer_offsets` to a transaction."""
    producer = Producer(request.producer_id, request.producer_epoch)
    coordinator.hang_up_if_late(
        request.transactional_id, producer, context.connection, Role.TRANSACTION
    )

    def answer(code: ErrorCode) -> Answer:
        _note(coordinator, request, context, code)
        return {"error_code": _known_to(context, code)}

    return _then(
        coordinator.add_partitions(
            request.transactional_id,
            producer,
            [coordinator.offsets_partition(request.group_id)],
        ),
        answer,
    )


def end_txn(coordinator: TransactionCoordinator, request: Any, context: Context) -> Later:
    """Commit or abort."""
    producer = Producer(request.producer_id, request.producer_epoch)
    bumps_epoch = context.api_version >= END_TXN_BUMPS_FROM
    if not bumps_epoch:
        coordinator.hang_up_if_late(
            request.transactional_id, producer, context.connection, Role.TRANSACTION
        )

    def answer(identity: Identity) -> Answer:
        _note(coordinator, request, context, identity.code)
        return _identity_answer(context, identity)

    return _then(
        coordinator.end(
            request.transactional_id,
            producer,
            Outcome.COMMIT if request.committed else Outcome.ABORT,
            bumps_epoch=bumps_epoch,
        ),
        answer,
    )


# -------------------------------------------------------------------- what there is


def describe_transactions(
    coordinator: TransactionCoordinator, request: Any, context: Context
) -> Answer:
    """Tell where transactional ids stand; to `txn explain` also who acts for them."""
    answer = {
        "transaction_states": [
            _description(transactional_id, coordinator.transactions.get(transactional_id))
            for transactional_id in request.transactional_ids
        ]
    }
    if context.client_id != EXPLAIN_CLIENT_ID:
        return answer
    extras = {
        transactional_id: _extras(coordinator, transactional_id, txn)
        for transactional_id in request.transactional_ids
        if (txn := coordinator.transactions.get(transactional_id)) is not None
    }
    return with_extras(encode_response(context.api_key, context.api_version, answer), extras)


def _extras(coordinator: TransactionCoordinator, transactional_id: str, txn: Txn) -> dict[str, Any]:
    client = coordinator.clients.get(transactional_id)
    return {"updated_ms": txn.updated_ms} | ({} if client is None else client._asdict())


def _description(transactional_id: str, txn: Txn | None) -> dict[str, Any]:
    if txn is None:
        unknown = (
            ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        )
        return _state_fields(unknown, transactional_id, "", 0, 0, NOBODY, [])
    return _state_fields(
        ErrorCode.none,
        transactional_id,
        txn.state.label,
        txn.timeout_ms,
        txn.start_ms,
        txn.producer,
        sorted(txn.partitions),
    )


def _state_fields(
    code: ErrorCode,
    transactional_id: str,
    label: str,
    timeout_ms: int,
    start_ms: int,
    producer: Producer,
    partitions: Sequence[TopicPartition],
) -> dict[str, Any]:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": label,
        "transaction_timeout": timeout_ms,
        "transaction_start_time": EPOCH + datetime.timedelta(milliseconds=start_ms),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [index for _, index in group]}
            for topic, group in _by_topic(partitions)
        ],
    }


def list_transactions(
    coordinator: TransactionCoordinator, request: Any, context: Context
) -> Answer:
    """List the transactional ids that pass the filters."""
    labels = request.state_filters
    states = [STATES_BY_LABEL[label] for label in labels if label in STATES_BY_LABEL]
    unknown = [label for label in labels if label not in STATES_BY_LABEL]
    try:
        pattern_text = getattr(request, "transactional_id_pattern", None)
        pattern = re.compile(pattern_text) if pattern_text else None
    except re.error:
        return _listing(ErrorCode.invalid_regular_expression, [], [])
    if labels and not states:
        return _listing(ErrorCode.none, unknown, [])
    wanted = Filter(
        states=states,
        producer_ids=request.producer_id_filters,
        longer_than_ms=getattr(request, "duration_filter", -1),
        pattern=pattern,
    )
    return _listing(ErrorCode.none, unknown, coordinator.find(wanted))


def _listing(
    code: ErrorCode, unknown: Sequence[str], found: Sequence[tuple[str, Txn]]
) -> dict[str, Any]:
    return {
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": transactional_id,
                "producer_id": txn.producer_id,
                "transaction_state": txn.state.label,
            }
            for transactional_id, txn in found
        ],
    }


def describe_producers(
    coordinator: TransactionCoordinator, request: Any, context: Context
) -> Answer:
    """Tell which producers partitions know, and where their open transactions begin."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _active_producers(coordinator, topic.name, index)
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _active_producers(
    coordinator: TransactionCoordinator, topic: str, index: int
) -> dict[str, Any]:
    store = coordinator.partition(topic, index)
    known = [] if store is None else store.gate.describe()
    return {
        "partition_index": index,
        "error_code": (ErrorCode.unknown_topic_or_partition if store is None else ErrorCode.none),
        "error_message": None,
        "active_producers": [
            {
                "producer_id": active.producer_id,
                "producer_epoch": active.producer_epoch,
                "last_sequence": active.last_sequence,
                "last_timestamp": active.last_timestamp_ms,
                "coordinator_epoch": active.coordinator_epoch,
                "current_txn_start_offset": active.current_txn_start_offset,
            }
            for active in known
        ],
    }


def _milliseconds(duration: datetime.timedelta) -> int:
    return duration // datetime.timedelta(milliseconds=1)


Handler = Callable[[TransactionCoordinator, Any, Context], Later]

HANDLERS: Final[dict[int, Handler]] = {
    INIT_PRODUCER_ID: init_producer_id,
    ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    END_TXN: end_txn,
    DESCRIBE_PRODUCERS: describe_producers,
    DESCRIBE_TRANSACTIONS: describe_transactions,
    LIST_TRANSACTIONS: list_transactions,
}

VERSIONS: Final[dict[int, tuple[int, int]]] = {
    INIT_PRODUCER_ID: (0, 5),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 5),
    DESCRIBE_PRODUCERS: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
}
