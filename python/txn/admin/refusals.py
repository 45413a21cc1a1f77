"""Turns the error code of an answer into the error to raise."""

from collections.abc import Mapping
from typing import Final

from txn.cluster.routing import MOVING
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.wire.error_codes import ErrorCode

NO_RIGHTS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)

PASSING: Final = MOVING | {
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""The retriable codes of Apache Kafka 4.4 that may pass while an administrator waits.

Left out are those of other requests (fetch and share sessions, damaged batches), and those that
stay: a topic that is not there, an election that is not needed.
"""

ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.REQUEST_TIMED_OUT: "It may have been done all the same: look, then try again",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Start more brokers, or give a smaller factor",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids it",
    ErrorCode.TOPIC_DELETION_DISABLED: "The brokers have delete.topic.enable=false",
    ErrorCode.NOT_CONTROLLER: "The cluster elects a controller. Try again in a moment",
    ErrorCode.KAFKA_STORAGE_ERROR: "Look at the broker's log and its disk, then try again",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota of mutations is used up. Try again in a moment",
    ErrorCode.NON_EMPTY_GROUP: "Stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "Stop its members first",
    ErrorCode.REBALANCE_IN_PROGRESS: "Stop its members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop its members first",
}


def require(code: int, message: str | None, refused: str, *, needs: str) -> None:
    """Check an error code.

    Args:
        code: The number of the error.
        message: The broker's own words, if there are any.
        refused: The refused thing, as a sentence begins: `topic 'orders' is not created`.
        needs: The right that its user needs: `Create on the topic`.

    Raises:
        RejectedError: it is refused, or its user may not.
        RetriableError: another broker will answer, or the same one in a moment. After
            REQUEST_TIMED_OUT the request may have been done.
    """
    if code == ErrorCode.NONE:
        return
    known = ErrorCode(code)
    told = (message or "").rstrip(". ")
    if known in NO_RIGHTS and told.lower().endswith("authorization failed"):
        told = ""  # the code says so
    advice = ADVICE.get(known, "")
    if known in NO_RIGHTS and not told:  # a broker's words are another reason than a right
        advice = f"Its user needs {needs}"
    said = ": ".join(part for part in (refused, known.name, told) if part)
    if known in PASSING:
        raise RetriableError(f"{said}. {advice or 'Try again in a moment'}", code=code)
    raise RejectedError(f"{said}. {advice}" if advice else said, code=code, name=known.name)


def unknown(kind: str, name: str, hint: str, command: str) -> ConfigError:
    """Return the error for a name that the cluster does not have.

    Args:
        kind: `topic`, `group`.
        name: The name.
        hint: The nearest name as `txn.hints.did_you_mean` puts it, or nothing.
        command: The command that lists all names.
    """
    rest = hint or f". `{command}` names them all"
    return ConfigError(f"there is no {kind} {name!r}{rest}")
