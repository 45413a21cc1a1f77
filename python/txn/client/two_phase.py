"""Two-phase commit (KIP-939): a prepared transaction, which another system decides on.

    two_phase = {"engine": "native", "two_phase_commit": True}
    with txn.Producer(..., transactional_id="pay-3", **two_phase) as producer:
        producer.complete_transaction(decision_read_from_that_system)  # finishes the last run
        with producer.transaction() as t:
            t.produce("orders", b"7 apples")
            state = t.prepare()
            ...  # the other system stores `state`: from then on the transaction is committed

The rules, in the order of a transaction's life:

1. `prepare` returns when every record and offset is stored. The cluster then holds the transaction
   open without a time-out, over crashes of the producer and of itself.
2. An exception in the block still aborts: nothing is decided yet. A program that cannot know
   whether the other system has decided calls `leave_prepared`, which neither commits nor aborts.
3. The end of the block commits. From there on nothing aborts the transaction any more: if the
   commit fails, the producer is of no use, and the next one completes the transaction.
4. A producer that opens with two-phase commit leaves the transaction of the last run open.
   `complete_transaction` commits it if the other system has its state, else aborts it.

Two transactions never have one state: under version 2 of the protocol each end begins a new epoch.
So the engine refuses a cluster with version 1, and an empty transaction, whose epoch does not
change, has the empty state.

`txn.sql` is all of this for a database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self, runtime_checkable

from confluent_kafka import KafkaError, KafkaException

from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.failures import error_of
from txn.client.handle import Handle
from txn.errors import ConfigError, RejectedError, TxnError

PROPERTY: Final = "transaction.two.phase.commit.enable"
"""Kafka's property for `two_phase_commit`."""


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """The identity of a prepared transaction; `str` gives Kafka's text, `id:epoch`.

    Attributes:
        producer_id: The producer id; -1 if there is no transaction.
        producer_epoch: The producer epoch; -1 if there is no transaction.

    Source: `org.apache.kafka.clients.producer.PreparedTxnState` of KIP-939.
    """

    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def has_transaction(self) -> bool:
        """False if nothing was written, so that there is nothing to decide on."""
        return self.producer_id >= 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the state of this text; "" is the state without a transaction.

        Raises:
            ValueError: the text is neither empty nor `id:epoch`.
        """
        if text == "":
            return cls()
        producer_id, _, epoch = text.partition(":")
        if not (producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"{text!r} is no prepared transaction: it looks like '4711:3'")
        return cls(int(producer_id), int(epoch))

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}" if self.has_transaction else ""


@runtime_checkable
class TwoPhaseEngine(Protocol):
    """What two-phase commit needs of an engine beside `ProducerEngine`."""

    def prepare_transaction(self) -> tuple[int, int]:
        """Prepare the open transaction, whose records and offsets are stored. See `_core`."""

    def kept_transaction(self) -> tuple[int, int] | None:
        """The transaction that was kept for this producer, until it ends."""


def take_two_phase(
    settings: dict[str, object], *, is_wanted: bool, engine: str, whose: str
) -> bool:
    """Return whether a producer has two-phase commit, and set its property.

    Raises:
        ConfigError: its engine has no two-phase commit, or it has no transactional id.
    """
    given = str(settings.pop(PROPERTY, False)).lower()
    if given not in ("true", "false"):
        raise ConfigError(f"{PROPERTY}={given} is neither true nor false", property=PROPERTY)
    if not is_wanted and given == "false":
        return False
    if engine != "native":
        raise ConfigError(
            f"{whose} has two_phase_commit, which librdkafka does not know: give engine='native', "
            "or leave it out and use txn.sql.outbox",
            property=PROPERTY,
        )
    if settings.get("transactional.id") is None:
        raise ConfigError(
            "two_phase_commit is for transactions, and the producer has no transactional id: give "
            "transactional_id='a name that stays the same over restarts'",
            property=PROPERTY,
        )
    settings[PROPERTY] = True
    return True


def require_completed(whose: str, kept: PreparedTxnState | None) -> None:
    """Refuse to begin while a prepared transaction is kept. Raises RejectedError."""
    if kept is not None:
        raise RejectedError(
            f"{whose} found the prepared transaction {kept} of the producer before it. "
            "Call complete_transaction(state) first, with the last state that the other system "
            "has stored; txn.sql.recover does it for a database"
        )


def complete(
    handle: Handle, kept: PreparedTxnState, state: PreparedTxnState, deadline: Deadline
) -> bool:
    """End the transaction that was kept, as `Producer.complete_transaction` tells.

    Returns:
        Whether it was committed.
    """
    client = handle.client()
    is_commit = kept == state
    end = client.commit_transaction if is_commit else client.abort_transaction
    while True:
        try:
            end(deadline.slice() or PAUSE_SECONDS)
            return is_commit
        except KafkaException as raised:
            error = error_of(raised)
            if error.fatal() or not error.retriable() or deadline.has_passed:
                raise handle.failure(error, "completing a prepared transaction") from raised


def refused_two_phase(error: KafkaError, whose: str) -> TxnError | None:
    """Return the error for a cluster that refuses two-phase commit; None: it has another reason."""
    reasons: Mapping[int, str] = {
        KafkaError.UNSUPPORTED_VERSION: "the cluster has no two-phase commit that keeps prepared "
        f"transactions (InitProducerId 6, transaction.version=2): {error.str()}. Use a txn broker "
        f"with {PROPERTY}=true, or a Kafka release with KIP-939",
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the cluster does not allow it two-phase "
        f"commit: {error.str()}. Set {PROPERTY}=true on the broker and, if it has access control, "
        "allow the operations TwoPhaseCommit and Write on this transactional id",
    }
    reason = reasons.get(error.code())
    if reason is None:
        return None
    return RejectedError(
        f"{whose} cannot open with two_phase_commit: {reason}. Without it, txn.sql.outbox and "
        "txn.sql.Inbox give the same result",
        code=error.code(),
        name=error.name(),
    )
