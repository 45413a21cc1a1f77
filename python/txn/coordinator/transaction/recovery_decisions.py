"""Ends that no request asked for: after a power failure, a refused sync, or a damaged partition.

After a power failure every transaction that may have been open is aborted, and each of its
producers is fenced. Functions here change nothing.
"""

from txn.coordinator.transaction.decide import (
    TV2,
    ended_as,
    identity_before_end,
    prepare_fence,
)
from txn.coordinator.transaction.states import (
    NO_TIME_MS,
    ONGOING,
    PREPARED,
    Txn,
    TxnResult,
    TxnState,
)
from txn.coordinator.transaction.successors import NewProducerId
from txn.identifiers import (
    LAST_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)


def decide_undo(prepare: Txn, *, now_ms: int) -> Txn:
    """The Prepare that aborts a commit which was prepared and not synced.

    Nobody was answered and no marker was written. A disk refused, or a start after a power failure
    does not find all records that the Prepare names.
    """
    assert prepare.state is TxnState.PREPARE_COMMIT, f"{prepare.state.name} cannot be undone"
    return prepare._replace(state=TxnState.PREPARE_ABORT, updated_ms=now_ms, last_offsets=())


def decide_after_power_failure(
    txn: Txn, *, is_behind: bool, now_ms: int, new_producer_id: NewProducerId
) -> Txn:
    """Decide what to write for an id that is not in a Prepare, when the machine lost power.

    Records that were acknowledged but not yet synced are gone, of transactions that were
    open and even the record that one had begun. A client that lived through it could go
    on and commit the rest: a torn transaction (P3). So every transaction that may have been open is
    aborted, and every producer is fenced. How the last transaction ended is remembered if
    the epochs tell its repetition from the end of a lost one, which they do under TV2.

    Args:
        txn: The state of the transactional id.
        is_behind: True if later epochs may have been given out than the known ones. That may be
            with `durability=process`, and partitions may remember them. Then no producer goes on
            with a known producer id: its batches would be too old, or taken for repetitions.
        now_ms: The time.
        new_producer_id: For that, or when the epochs are used up.
    """
    if txn.state is ONGOING:
        ongoing = _used_up(txn) if is_behind else txn
        return prepare_fence(ongoing, now_ms, new_producer_id, NO_PRODUCER_EPOCH)
    assert txn.state not in PREPARED, "a Prepare is completed first"
    fenced = txn._replace(producer_epoch=txn.producer_epoch + 1, updated_ms=now_ms)
    if txn.producer.is_exhausted or is_behind:
        fenced = fenced._replace(
            producer_id=new_producer_id(), producer_epoch=0, previous_producer_id=txn.producer_id
        )
    if txn.state is TxnState.EMPTY:
        return fenced
    if txn.client_version >= TV2:
        return fenced._replace(last_producer_epoch=identity_before_end(txn).producer_epoch)
    return fenced._replace(
        state=TxnState.EMPTY,
        start_ms=NO_TIME_MS,
        previous_producer_id=NO_PRODUCER_ID,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _used_up(txn: Txn) -> Txn:
    """The same transaction with no epoch left for a later producer."""
    last = txn._replace(producer_epoch=LAST_PRODUCER_EPOCH)
    return last._replace(next_producer_epoch=LAST_PRODUCER_EPOCH) if txn.is_prepared else last


def result_of_hanging(txn: Txn | None, producer: ProducerIdAndEpoch) -> TxnResult:
    """Decide on a transaction that a partition holds open and `__transaction_state` does not.

    After a power failure either its beginning is lost, and it never committed, or its marker is.
    The latter needs `durability=process`. Under TV2 the epochs then say that it committed.
    """
    if txn is not None and txn.state is TxnState.COMPLETE_COMMIT and ended_as(txn, producer):
        return TxnResult.COMMIT
    return TxnResult.ABORT
