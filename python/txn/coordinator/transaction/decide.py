"""The decisions on requests for a transactional id. Functions here change nothing.

A request carries a producer id and epoch. The epoch is the fence: the producer with the latest
epoch has taken over the id, and requests with an earlier one are refused (P7). The epoch changes
with:

    InitProducerId      +1; twice if it had to abort an open transaction; +1 of the client alone
                        if it keeps that open (KIP-939)
    EndTxn v5 (TV2)     +1 at every end, so that a late request of one transaction cannot
                        touch the next one
    time-out            +1, with the abort
    power failure       +1; a new producer id if epochs may have been lost

A client that lost the answer asks again with the epoch it had. That must give the answer
it missed and do nothing else: `END_AND_BUMP` is the table of EndTxn v5.

EndTxn v0-4 (TV1) leaves the epoch alone, so *again* and *now* are the same there and any
other epoch is fenced. Either version may end a transaction that the other began, as in Kafka.

Epochs end at 32766; the one above is for fencing. Then a Prepare names the producer id that
its Complete changes to, with epoch 0, or InitProducerId changes it itself.

Where this differs from Kafka:

* InitProducerId that meets an open transaction aborts it and answers at once. Kafka answers
  CONCURRENT_TRANSACTIONS and lets the client come again.
* InitProducerId that shows an epoch (KIP-360) aborts an open transaction only if the epoch
  is the current one. Kafka would let a fenced producer abort its successor's transaction.
* InitProducerId keeps a prepared transaction as KIP-939 says. Kafka 4.2 answers
  UNSUPPORTED_VERSION. Until its client has ended it nothing may join it: INVALID_TXN_STATE.
* A commit that finds its transaction aborted by the coordinator is PRODUCER_FENCED, as in
  Kafka after 4.2 (KAFKA-20785); 4.2 answers INVALID_TXN_STATE, which is fatal to clients.
* EndTxn v5 treats an earlier epoch as a repetition only after an end that bumped it. Kafka does
  so after any end, and could answer a fenced producer that its commit succeeded.

Sources: KIP-98, KIP-360, KIP-447, KIP-890, KIP-939, KAFKA-18464, KAFKA-19367, KAFKA-20090,
KAFKA-20785; Kafka 4.2's transaction coordinator, for the error codes.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from txn.coordinator.transaction.states import (
    COMPLETE,
    COMPLETED,
    COMPLETION,
    ONGOING,
    PREPARE,
    PREPARED,
    Txn,
    TxnResult,
    TxnState,
)
from txn.coordinator.transaction.successors import (
    NewProducerId,
    emptied,
    following_identity,
    fresh,
    kept_open,
)
from txn.identifiers import (
    LAST_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TopicPartition,
)
from txn.wire.error_codes import ErrorCode

TV1: Final = 0
"""The number that Kafka stores for clients of transaction version 0 and 1 alike."""
TV2: Final = 2

_ENDED: Final = PREPARED | COMPLETED


class Refuse(NamedTuple):
    """Answer with an error and leave everything as it is."""

    code: ErrorCode


class Done(NamedTuple):
    """Nothing is left to do: it was done before."""

    txn: Txn


class Write(NamedTuple):
    """Append this to `__transaction_state`; act on it only once it is there."""

    txn: Txn


class End(NamedTuple):
    """The plan of a transaction's end, made once; no later step asks the rules again.

    Attributes:
        prepare: The decision: append it to `__transaction_state` first.
        complete: What to append once every partition has its marker.
        following: The identity of its client from then on.
    """

    prepare: Txn
    complete: Txn
    following: ProducerIdAndEpoch


class AbortFirst(NamedTuple):
    """Abort the transaction that is open, by this plan; then decide the request again."""

    end: End


# -------------------------------------------------------------------- InitProducerId


def decide_init(
    txn: Txn | None,
    expected: ProducerIdAndEpoch | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: NewProducerId,
    keep_prepared: bool = False,
) -> Refuse | Write | AbortFirst:
    """Decide on the producer id and epoch of a starting producer: `client` of the written state.

    Args:
        txn: The state of the transactional id; None if it is unknown.
        expected: The identity that the producer goes on from (KIP-360); None for a new one.
        timeout_ms: Of its transactions; already checked.
        now_ms: The time.
        new_producer_id: For an unknown id, or when the epochs are used up.
        keep_prepared: Leave an open transaction as it is, for the producer to end (KIP-939).
    """
    if txn is None:
        return Write(fresh(new_producer_id(), timeout_ms, now_ms))
    if expected is not None and not _holds_identity(txn, expected):
        return Refuse(ErrorCode.PRODUCER_FENCED)
    if txn.state in PREPARED:
        return Refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn.state is ONGOING:
        if expected is not None and expected != txn.client:
            return Refuse(ErrorCode.PRODUCER_FENCED)
        if keep_prepared:
            return Write(kept_open(txn, timeout_ms, now_ms, new_producer_id))
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        return AbortFirst(plan(prepare_fence(txn, now_ms, new_producer_id, last_epoch)))
    if expected is not None and expected != txn.producer:  # its answer was lost
        return Write(emptied(txn, txn.producer, expected.producer_epoch, timeout_ms, now_ms))
    last_epoch = NO_PRODUCER_EPOCH if expected is None else txn.producer_epoch
    following = following_identity(txn.producer, new_producer_id)
    return Write(emptied(txn, following, last_epoch, timeout_ms, now_ms))


def _holds_identity(txn: Txn, expected: ProducerIdAndEpoch) -> bool:
    """Return True if a producer holds the current identity, or the one whose answer was lost.

    The answer to EndTxn v5 is among those, and so is the end by a time-out: nobody else was
    given the identity that followed.
    """
    if expected == txn.client or ended_as(txn, expected):
        return True
    is_same_id = expected.producer_id == txn.producer_id and txn.previous_producer_id < 0
    is_previous = expected.producer_id == txn.previous_producer_id
    return (is_same_id or is_previous) and expected.producer_epoch == txn.last_producer_epoch


# -------------------------------------------------------------------- joining


def decide_add(
    txn: Txn | None,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Refuse | Done | Write:
    """Decide whether partitions join a transaction, which begins if none is open.

    Args:
        txn: The state of the transactional id; None if it is unknown.
        producer: The identity in the request.
        partitions: Those to join; they exist.
        client_version: TV1 for AddPartitionsToTxn, TV2 for a Produce or TxnOffsetCommit.
        now_ms: The time.
    """
    refused = _refusal_to_join(txn, producer)
    if refused is not None:
        return refused
    assert txn is not None, "an unknown id was refused"
    is_open = txn.state is ONGOING
    if is_open and txn.partitions.issuperset(partitions):
        return Done(txn)
    return Write(
        Txn(  # all fields in order: `_replace` takes CPython three times as long
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
            ONGOING,
            txn.partitions.union(partitions),
            txn.start_ms if is_open else now_ms,
            now_ms,
            NO_PRODUCER_ID,
            txn.next_producer_id,
            NO_PRODUCER_EPOCH,
            client_version,
            txn.next_producer_epoch,
            txn.last_offsets,
            txn.unsynced_markers,
        )
    )


def decide_verify(
    txn: Txn | None, producer: ProducerIdAndEpoch, partition: TopicPartition
) -> Refuse | Done:
    """Decide whether a TV1 client's batch belongs to a transaction that it declared."""
    refused = _refusal_to_join(txn, producer)
    if refused is not None:
        return refused
    assert txn is not None, "an unknown id was refused"
    if partition not in txn.partitions:
        return Refuse(ErrorCode.TRANSACTION_ABORTABLE)
    return Done(txn)


def _refusal_to_join(txn: Txn | None, producer: ProducerIdAndEpoch) -> Refuse | None:
    refused = _refusal_of_stranger(txn, producer)
    if refused is not None:
        return refused
    assert txn is not None, "an unknown id was refused"
    if txn.state in PREPARED:
        return Refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn.is_prepared:
        return Refuse(ErrorCode.INVALID_TXN_STATE)
    return None


def _refusal_of_stranger(txn: Txn | None, producer: ProducerIdAndEpoch) -> Refuse | None:
    if txn is None:
        return Refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.is_of(producer):
        return None
    is_fenced = txn.client.producer_id == producer.producer_id
    return Refuse(ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.INVALID_PRODUCER_ID_MAPPING)


# -------------------------------------------------------------------- EndTxn


def decide_end(
    txn: Txn | None, producer: ProducerIdAndEpoch, outcome: TxnResult, *, now_ms: int
) -> Refuse | Done | End:
    """Decide how EndTxn v0-4 (TV1) ends a transaction; the epoch stays."""
    refused = _refusal_of_stranger(txn, producer)
    if refused is not None:
        return refused
    assert txn is not None, "an unknown id was refused"
    if txn.state is ONGOING:
        prepare = Txn(  # as in `decide_add`
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
            PREPARE[outcome],
            txn.partitions,
            txn.start_ms,
            now_ms,
            txn.previous_producer_id,
            txn.next_producer_id,
            txn.last_producer_epoch,
            TV1,
            txn.next_producer_epoch,
            txn.last_offsets,
            txn.unsynced_markers,
        )
        return plan(prepare)
    if txn.state is COMPLETE[outcome]:
        return Done(txn)
    if txn.state is PREPARE[outcome]:
        return Refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Refuse(ErrorCode.INVALID_TXN_STATE)


class ShownIdentity(Enum):
    """The identity that an EndTxn v5 shows, compared with the id's."""

    AGAIN = "the one under which the transaction ended: a repetition"
    NOW = "the current one"


class EndDecision(Enum):
    """The decision on an EndTxn v5; a refusal's value is its error code."""

    END = "end the transaction"
    ABORT_NOTHING = "write an abort of no partition, which bumps the epoch"
    DONE = "give the answer that was given before"
    FENCED = ErrorCode.PRODUCER_FENCED
    CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
    INVALID = ErrorCode.INVALID_TXN_STATE


_AGAIN, _NOW, _END = ShownIdentity.AGAIN, ShownIdentity.NOW, EndDecision.END
_FENCED, _CONCURRENT, _INVALID = EndDecision.FENCED, EndDecision.CONCURRENT, EndDecision.INVALID

END_AND_BUMP: Final[Mapping[TxnState, Mapping[tuple[ShownIdentity, TxnResult], EndDecision]]] = {
    state: {
        (ShownIdentity.AGAIN, TxnResult.ABORT): abort_again,
        (ShownIdentity.NOW, TxnResult.ABORT): abort_now,
        (ShownIdentity.AGAIN, TxnResult.COMMIT): commit_again,
        (ShownIdentity.NOW, TxnResult.COMMIT): commit_now,
    }
    for state, abort_again, abort_now, commit_again, commit_now in (
        (TxnState.EMPTY, _FENCED, EndDecision.ABORT_NOTHING, _FENCED, _INVALID),
        (TxnState.ONGOING, _FENCED, EndDecision.END, _FENCED, EndDecision.END),
        (TxnState.PREPARE_ABORT, _CONCURRENT, _FENCED, _FENCED, _FENCED),
        (TxnState.PREPARE_COMMIT, _INVALID, _FENCED, _CONCURRENT, _FENCED),
        (TxnState.COMPLETE_ABORT, EndDecision.DONE, EndDecision.ABORT_NOTHING, _FENCED, _INVALID),
        (TxnState.COMPLETE_COMMIT, _INVALID, EndDecision.ABORT_NOTHING, EndDecision.DONE, _INVALID),
    )
}
"""EndTxn v5, by the state: abort again, abort now, commit again, commit now."""


def decide_end_and_bump(
    txn: Txn | None,
    producer: ProducerIdAndEpoch,
    outcome: TxnResult,
    *,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Refuse | Done | End:
    """Decide how EndTxn v5 (TV2) ends a transaction, by `END_AND_BUMP`."""
    if txn is None:
        return Refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    shown = _AGAIN if ended_as(txn, producer) else _NOW
    if shown is _NOW:
        refused = _refusal_of_stranger(txn, producer)
        if refused is not None:
            return refused
    decision = END_AND_BUMP[txn.state][shown, outcome]
    if decision is not _END:
        if decision is EndDecision.DONE:
            return Done(txn)
        if decision is not EndDecision.ABORT_NOTHING:
            return Refuse(decision.value)
        txn = txn._replace(start_ms=now_ms)
    return plan(_prepare_and_bump(txn, outcome, now_ms, new_producer_id))


def plan(prepare: Txn) -> End:
    """Plan the end of the transaction that a Prepare decides."""
    completed = complete(prepare, now_ms=prepare.updated_ms)
    return End(prepare, completed, completed.producer)


def ended_as(txn: Txn, producer: ProducerIdAndEpoch) -> bool:
    """Return True if a producer shows the identity under which this transaction was ended."""
    if txn.client_version < TV2 or txn.state not in _ENDED:
        return False
    return producer == identity_before_end(txn)


def identity_before_end(txn: Txn) -> ProducerIdAndEpoch:
    """The identity of the client whose request ended the last transaction."""
    last_epoch = txn.last_producer_epoch
    if txn.previous_producer_id >= 0:
        epoch = LAST_PRODUCER_EPOCH if last_epoch < 0 else last_epoch
        return ProducerIdAndEpoch(txn.previous_producer_id, epoch)
    producer_id = txn.next_producer_id if txn.is_prepared else txn.producer_id
    return ProducerIdAndEpoch(producer_id, txn.producer_epoch - 1 if last_epoch < 0 else last_epoch)


def _prepare_and_bump(
    txn: Txn, outcome: TxnResult, now_ms: int, new_producer_id: NewProducerId
) -> Txn:
    prepared = Txn(  # as in `decide_add`
        txn.producer_id,
        txn.producer_epoch + 1,
        txn.timeout_ms,
        PREPARE[outcome],
        txn.partitions,
        txn.start_ms,
        now_ms,
        NO_PRODUCER_ID,
        txn.next_producer_id,
        NO_PRODUCER_EPOCH,
        TV2,
        txn.next_producer_epoch,
        txn.last_offsets,
        txn.unsynced_markers,
    )
    client = txn.client
    following = following_identity(client, new_producer_id)
    is_new_id = following.producer_id != client.producer_id
    if not txn.is_prepared:
        return prepared._replace(next_producer_id=following.producer_id) if is_new_id else prepared
    return prepared._replace(
        previous_producer_id=client.producer_id if is_new_id else NO_PRODUCER_ID,
        last_producer_epoch=client.producer_epoch,
        next_producer_id=following.producer_id,
        next_producer_epoch=following.producer_epoch,
    )


def complete(txn: Txn, *, now_ms: int) -> Txn:
    """The Complete that follows a Prepare once every partition has its marker."""
    completed = Txn(  # as in `decide_add`
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        COMPLETION[txn.state],
        frozenset(),
        txn.start_ms,
        now_ms,
        txn.previous_producer_id,
        txn.next_producer_id,
        txn.last_producer_epoch,
        txn.client_version,
        txn.next_producer_epoch,
        (),
        txn.unsynced_markers,
    )
    if txn.next_producer_id < 0:
        return completed
    return completed._replace(
        producer_id=txn.client.producer_id,
        producer_epoch=txn.client.producer_epoch,
        previous_producer_id=txn.previous_producer_id if txn.is_prepared else txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
    )


# -------------------------------------------------------------------- fencing


def decide_fence(txn: Txn, *, now_ms: int, new_producer_id: NewProducerId) -> End:
    """The plan to abort an open transaction and fence its producer."""
    return plan(prepare_fence(txn, now_ms, new_producer_id, NO_PRODUCER_EPOCH))


def prepare_fence(txn: Txn, now_ms: int, new_producer_id: NewProducerId, last_epoch: int) -> Txn:
    """The Prepare that aborts an open transaction and fences its producer."""
    assert txn.state is ONGOING, f"{txn.state.name} has nothing to abort"
    prepared = _prepare_and_bump(txn, TxnResult.ABORT, now_ms, new_producer_id)
    return prepared if txn.is_prepared else prepared._replace(last_producer_epoch=last_epoch)
