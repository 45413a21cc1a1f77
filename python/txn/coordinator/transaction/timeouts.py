"""When something about a transactional id is due.

An open transaction lives `timeout_ms` from its first partition on. Then the coordinator aborts it,
so that it holds back no reader any longer (P5). A transaction that another system decides waits for
that decision (KIP-939). An id that was not used for `transactional.id.expiration.ms` is forgotten.

The timeout runs on the monotonic clock. Setting the time of day back would prolong it, and setting
it forward would end it early. After a restart a transaction's age is known only from its stored
start and the time of day. Then it lives at most `timeout_ms` longer, even if its start lies in the
future.
(Kafka compares times of day throughout.) Expiration of ids spans restarts, so it goes by the time
of day, as in Kafka.

Sources: KIP-98; KIP-593 (expiration); KIP-939.
"""

from txn.coordinator.transaction.states import AT_REST, ONGOING, Txn


def has_deadline(txn: Txn) -> bool:
    """Return True if a transaction is open that the coordinator has to abort some time."""
    return txn.state is ONGOING and not txn.is_two_phase


def deadline_ms(txn: Txn, begun_ms: int) -> int:
    """When an open transaction has to be aborted, on the clock of `begun_ms`."""
    return begun_ms + txn.timeout_ms


def is_timed_out(txn: Txn, begun_ms: int, now_ms: int) -> bool:
    """Return True if an open transaction is past its time.

    Args:
        txn: The entry of the transactional id.
        begun_ms: When its transaction began, on the monotonic clock.
        now_ms: The time on that clock.
    """
    return has_deadline(txn) and now_ms >= deadline_ms(txn, begun_ms)


def age_at_start(txn: Txn, now_ms: int) -> int:
    """Age of a transaction that a start finds open; at most its timeout.

    Args:
        txn: An open transaction.
        now_ms: The time of day, like `start_ms`.
    """
    return min(max(now_ms - txn.start_ms, 0), txn.timeout_ms)


def is_expired(txn: Txn, now_ms: int, expiration_ms: int) -> bool:
    """Return True if an id at rest was idle for so long that it may be forgotten."""
    return txn.state in AT_REST and txn.updated_ms <= now_ms - expiration_ms
