"""The states that follow an InitProducerId, and the identity after an identity.

Pure. An identity that was given out is never given out again: the epoch grows, or the producer id
is a new one.
"""

from collections.abc import Callable

from txn.coordinator.transaction.states import (
    NO_TIME_MS,
    Txn,
    TxnState,
)
from txn.identifiers import (
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)

NewProducerId = Callable[[], int]
"""Returns an unused producer id; called only when one is needed."""


def following_identity(
    producer: ProducerIdAndEpoch, new_producer_id: NewProducerId
) -> ProducerIdAndEpoch:
    """The identity after this one."""
    if producer.is_exhausted:
        return ProducerIdAndEpoch(new_producer_id(), 0)
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)


def fresh(producer_id: int, timeout_ms: int, now_ms: int) -> Txn:
    """The state of a transactional id that had none."""
    return Txn(
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME_MS,
        updated_ms=now_ms,
    )


def emptied(
    txn: Txn, producer: ProducerIdAndEpoch, last_epoch: int, timeout_ms: int, now_ms: int
) -> Txn:
    """The id without a transaction, under an identity that may be the same."""
    is_new_id = producer.producer_id != txn.producer_id
    is_repeated = producer == txn.producer
    previous_producer_id = NO_PRODUCER_ID
    if is_new_id:
        previous_producer_id = txn.producer_id
    elif is_repeated:
        previous_producer_id = txn.previous_producer_id
    return txn._replace(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        start_ms=NO_TIME_MS,
        updated_ms=now_ms,
        previous_producer_id=previous_producer_id,
        last_producer_epoch=last_epoch,
    )


def kept_open(txn: Txn, timeout_ms: int, now_ms: int, new_producer_id: NewProducerId) -> Txn:
    """The open transaction under its own identity, its client under the next one.

    Its timeout is never shortened: a prepared transaction goes on waiting for its decision.
    """
    client = following_identity(txn.client, new_producer_id)
    return txn._replace(
        timeout_ms=max(txn.timeout_ms, timeout_ms),
        updated_ms=now_ms,
        next_producer_id=client.producer_id,
        next_producer_epoch=client.producer_epoch,
    )
