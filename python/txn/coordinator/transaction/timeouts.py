"""When something about a transactional id is due.

An open transaction lives `timeout_ms` from its first partition on; then the coordinator
aborts it, so that it holds back no reader any longer (P5); one that another system decides
on waits for that (KIP-939). An id that nobody used for `transactional.id.expiration.ms` is
forgotten.

Sources: KIP-98; KIP-593 (expiration); KIP-939.
"""

from txn.coordinator.transaction.states import AT_REST, Txn, TxnState


def deadline_ms(txn: Txn) -> int | None:
    """When an open transaction has to be aborted; None if there is none to abort."""
    if txn.state is not TxnState.ONGOING or txn.is_two_phase:
        return None
    return txn.start_ms + txn.timeout_ms


def is_timed_out(txn: Txn, now_ms: int) -> bool:
    """Say whether an open transaction is past its time."""
    due_ms = deadline_ms(txn)
    return due_ms is not None and now_ms >= due_ms


def is_expired(txn: Txn, now_ms: int, expiration_ms: int) -> bool:
    """Say whether an id at rest was idle for so long that it may be forgotten."""
    return txn.state in AT_REST and txn.updated_ms <= now_ms - expiration_ms
