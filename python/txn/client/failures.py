"""librdkafka's errors as the errors of `txn.errors`: the event and what to do.

librdkafka marks an error *fatal* (this producer is finished), *requires abort* (this
transaction is) or *retriable*. Where it sets no mark, the error's code decides, by the tables
below. For a code that none of them has, no remedy is known here.

Sources: librdkafka's transactional producer API (its handling of marks), KIP-98, KIP-360
and KIP-447 (which answers fence, and which only end the transaction).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from txn.errors import (
    AbortableError,
    Action,
    ConfigError,
    FencedError,
    ForkedError,
    RejectedError,
    RetriableError,
    TxnError,
)

if TYPE_CHECKING:
    from txn.client.delivery import Delivery

FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
"""Another producer took this transactional id, or the cluster ended its transaction.

Where librdkafka marks it as requiring an abort, the abort tells the two apart: it fails for a
producer whose place was taken (KIP-360)."""

ENDED: Final = FENCED | {KafkaError.INVALID_TXN_STATE}
"""Answers about a transaction that the cluster has aborted for its age."""

MISCONFIGURED: Final = frozenset(
    {KafkaError._INVALID_ARG, KafkaError._NOT_CONFIGURED, KafkaError.INVALID_TRANSACTION_TIMEOUT}
)

HOPELESS: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""The same request fails again, in this transaction and in every other."""

MISSING_TOPIC: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

REFUSALS: Final = frozenset({KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION})
"""The cluster does not let the client in."""

PASSING: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._QUEUE_FULL,
        KafkaError._CONFLICT,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)

MEMBERSHIP_LOST: Final = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
"""The consumer is no longer the member of its group that it says it is."""

StateLostError: Final = partial(FencedError, action=Action.REOPEN)
"""Makes the error for a client that was not fenced: another one may be opened."""

PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""A record dropped because its transaction failed or was aborted: a consequence, no cause."""


BATCH_TOO_LARGE: Final = (
    "Its batch is larger than max.message.bytes of the topic, or message.max.bytes of the broker "
    "where the topic sets none. Raise that, or put less into a record; for small records lower "
    "the producer's batch.size."
)


TIMESTAMP_REFUSED: Final = (
    "Its timestamp is further from the time of the broker than message.timestamp.before.max.ms or "
    "message.timestamp.after.max.ms of the topic. A timestamp counts milliseconds since 1970, no "
    "seconds or microseconds."
)

SESSION_REFUSED: Final = (
    "Set session.timeout.ms to between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the broker, 6000 and 1800000 unless they are set."
)


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """A record the cluster did not store."""

    topic: str
    partition: int
    error: KafkaError
    record_bytes: int = 0
    """Size of its key and its value."""
    delivery: "Delivery | None" = None
    """Its delivery, if it was sent with one."""

    @property
    def is_told(self) -> bool:
        """True if the program has asked its delivery for the result."""
        return self.delivery is not None and self.delivery.is_told


def error_of(raised: KafkaException) -> KafkaError:
    """Return the `KafkaError` that a `KafkaException` carries."""
    error = raised.args[0] if raised.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def reported_by(raised: BaseException) -> KafkaError | None:
    """Return the librdkafka error of this exception; None if it is none of its.

    confluent-kafka raises a fatal error out of any call that serves callbacks. If another callback
    runs in the same call, the interpreter wraps it into a SystemError ("returned a result with an
    exception set"), whose cause is then the report.
    """
    if isinstance(raised, SystemError) and isinstance(raised.__cause__, KafkaException):
        return error_of(raised.__cause__)
    return error_of(raised) if isinstance(raised, KafkaException) else None


def is_refusal(error: KafkaError) -> bool:
    """Return whether a report means that the same log-in or certificate will be refused again.

    A failure to obtain a token does not: its issuer may be back soon.
    """
    text = error.str()
    if error.code() == KafkaError._SSL:
        return "verify failed" in text
    return error.code() in REFUSALS and "Failed to acquire" not in text


def translate(error: KafkaError, *, whose: str, doing: str) -> TxnError:
    """Return the error to raise for librdkafka's report.

    Args:
        error: The report, with its marks.
        whose: The failed party, as a message begins: `producer 'pay-3'`.
        doing: The failed operation: `committing`.

    Returns:
        An error whose `action` says what to do next, with the attributes `code` (Kafka's or
        librdkafka's number) and `name`.
    """
    kind, advice = _kind(error)
    text = error.str().replace("((null))", "")  # a topic's id that librdkafka does not know
    return kind(
        f"{whose} failed while {doing}: {text} ({error.name()}). {advice}",
        code=error.code(),
        name=error.name(),
    )


def timed_out(error: KafkaError, *, whose: str, open_ms: int, timeout_ms: int) -> TxnError:
    """Return the error for a transaction that the cluster aborted since it was open for too long.

    Args:
        error: The report, one of `ENDED`.
        whose: Whose transaction, as a message begins.
        open_ms: How long it was open.
        timeout_ms: Its transaction.timeout.ms, which is less.
    """
    kind: Callable[..., TxnError]
    kind, advice = (
        (AbortableError, "Begin another")
        if error.txn_requires_abort()
        else (StateLostError, "Close this producer and open another")
    )
    return kind(
        f"{whose} had its transaction open for {open_ms / 1000:.1f} s, longer than "
        f"transaction.timeout.ms={timeout_ms}, so the cluster aborted it ({error.name()}). "
        f"{advice}; put less into a transaction, or raise transaction.timeout.ms, at most to the "
        "broker's transaction.max.timeout.ms. (If another instance with this transactional id was "
        "started meanwhile, that one took over.)",
        code=error.code(),
        name=error.name(),
        open_ms=open_ms,
        timeout_ms=timeout_ms,
    )


def timeout_refused(error: KafkaError, *, whose: str, timeout_ms: int) -> ConfigError:
    """Return the error for a transaction.timeout.ms that the cluster refuses."""
    return ConfigError(
        f"{whose} has transaction.timeout.ms={timeout_ms}, more than the broker takes "
        f"({error.name()}): its transaction.max.timeout.ms is 900000, 15 minutes, unless it is "
        "set. Lower the first, or raise the second at the broker",
        property="transaction.timeout.ms",
        value=timeout_ms,
        code=error.code(),
        name=error.name(),
    )


def opened_elsewhere(whose: str, parent: int) -> ForkedError:
    """Return the error for the use of a client in a fork of the process that opened it."""
    return ForkedError(
        f"{whose} was opened in process {parent}, and process {os.getpid()} is a fork of that one, "
        "without its threads. Open another one here; a producer with a transactional id "
        "of its own",
        pid=parent,
    )


def not_copied(kind: str) -> TypeError:
    """Return the error for a copy of a client, by `copy`, `pickle` or `multiprocessing`."""
    return TypeError(
        f"a {kind} cannot be copied or pickled: its connections and threads belong to one object "
        "of one process. Open another where one is needed, from the same settings; a producer with "
        "a transactional id of its own"
    )


def undelivered(
    failures: Sequence[DeliveryFailure], *, whose: str, in_transaction: bool
) -> TxnError:
    """Return the error for records that were not stored; the first one that says why leads.

    Args:
        failures: At least one.
        whose: Their producer, as a message begins.
        in_transaction: Whether they were part of a transaction, which then cannot commit.
    """
    cause = next((f for f in failures if f.error.code() not in PURGED), failures[0])
    code = cause.error.code()
    kind: type[TxnError]
    record = "a record"
    is_missing = code in MISSING_TOPIC
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        record = f"a record of {cause.record_bytes} bytes"
        kind, advice = RejectedError, BATCH_TOO_LARGE
    elif code == KafkaError.INVALID_TIMESTAMP:
        kind, advice = RejectedError, TIMESTAMP_REFUSED
    elif code in HOPELESS:
        kind, advice = RejectedError, "It will fail again as it is; change the record or the topic."
    elif in_transaction:
        kind, advice = AbortableError, "The transaction cannot commit; begin another."
    else:
        kind, advice = (
            RetriableError,
            "Produce it again; if it was stored after all it is then stored twice, which only "
            "a transaction can prevent.",
        )
    if is_missing:
        advice = (
            "There is no such topic, and the cluster makes none by itself "
            "(auto.create.topics.enable=false): create it, or correct its name. " + advice
        )
    others = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    place = f"{cause.topic!r} partition {cause.partition}"
    if cause.partition < 0:  # none was chosen yet
        place = f"{cause.topic!r}"
    return kind(
        f"{whose} could not store {record} in {place}{others}: {cause.error.str()} "
        f"({cause.error.name()}). {advice}",
        topic=cause.topic,
        partition=cause.partition,
        code=code,
        name=cause.error.name(),
        count=len(failures),
    )


def _is_fenced_member(error: KafkaError) -> bool:
    """Return True if another consumer has taken this one's place in the group.

    librdkafka hands it out as a fatal error, whose cause is in the text alone.
    """
    if error.code() == KafkaError._FATAL:
        return KafkaError(KafkaError.FENCED_INSTANCE_ID).str() in error.str()
    return error.code() == KafkaError.FENCED_INSTANCE_ID and error.fatal()


def _kind(error: KafkaError) -> tuple[Callable[..., TxnError], str]:
    code = error.code()
    if code in FENCED and not error.txn_requires_abort():
        return FencedError, (
            "Another instance started with this transactional id, or an operator aborted its "
            "transaction; close this producer."
        )
    if _is_fenced_member(error):
        return FencedError, "Another instance joined with this group.instance.id; close this one."
    if code == KafkaError.INVALID_SESSION_TIMEOUT:
        return ConfigError, SESSION_REFUSED
    if code in MISCONFIGURED:
        return ConfigError, "Correct the setting."
    if code in HOPELESS:
        return RejectedError, "It will fail again as it is."
    if code == KafkaError._AUTO_OFFSET_RESET:
        return RejectedError, (
            "Assign the partition or seek to an offset, or set auto.offset.reset to earliest or "
            "latest."
        )
    if error.fatal() or code == KafkaError._FATAL:
        return StateLostError, "Its state at the cluster is lost; close it and open another."
    if code in MEMBERSHIP_LOST:
        return AbortableError, "The consumer lost its partitions; begin another transaction."
    if error.txn_requires_abort():
        return AbortableError, "The transaction cannot commit; begin another."
    if error.retriable() or code in PASSING:
        return RetriableError, "Try again after a pause."
    return RejectedError, "Nothing here knows how to recover from it."


def may_retry(error: KafkaError) -> bool:
    """Return True if the call that failed may be repeated as it is."""
    return error.retriable() and not error.fatal() and not error.txn_requires_abort()


def is_state_error(error: KafkaError) -> bool:
    """Return True if librdkafka refused a call because no transaction is in a state for it."""
    is_marked = error.fatal() or error.txn_requires_abort() or error.retriable()
    return error.code() == KafkaError._STATE and not is_marked
