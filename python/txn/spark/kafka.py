"""The Kafka client as the Spark side uses it, and one per process to share.

`TransactionalClient` names the parts of `txn._core.KafkaClient` that the protocol needs, so that
tests can put a cluster of their own in its place.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from txn import _core
from txn._core import KafkaError
from txn.access.connection import authentication_error, client_security
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.spark.errors import NoAnswerError
from txn.spark.options import ClusterAccess
from txn.wire.error_codes import ErrorCode

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Answers to an identity that is not the current one of its transactional id."""

GONE: Final = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
"""Answers to the commit of a transaction that is not open and was not committed."""

UNKNOWN: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
)
"""Those of them that a committed transaction gets, too, once its transactional id has expired."""


class Writer(Protocol):
    """The used part of `txn._core.Writer`."""

    def write(
        self,
        topic: str,
        rows: int,
        key: tuple[bytes, bytes, bytes | None] | None,
        value: tuple[bytes, bytes, bytes | None],
        headers: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None] | None = None,
        partition: bytes | None = None,
        timestamp_ms: bytes | None = None,
    ) -> None:
        """Add rows."""

    def flush(self) -> int:
        """Wait for every acknowledgement; return the records written."""


class TransactionalClient(Protocol):
    """The part of `txn._core.KafkaClient` that the exactly-once protocol uses."""

    @property
    def transaction_version(self) -> int:
        """2 when every EndTxn hands out the next identity."""

    def partition_count(self, topic: str) -> int:
        """Raises KafkaError 3 for an unknown topic."""

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> bool:
        """Make a topic if it is not there."""

    def list_offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        timestamp_ms: int,
        *,
        read_committed: bool = True,
    ) -> list[int]:
        """-1 latest, -2 earliest."""

    def fetch(
        self, topic: str, partition: int, start: int, end: int, *, read_committed: bool = True
    ) -> Any:
        """Iterate the records of [start, end) as columns."""

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        is_two_phase: bool = False,
    ) -> tuple[int, int]:
        """Fence earlier producers; with an identity: only if that is the current one.

        With `is_two_phase` its transactions never time out, and a power failure takes nothing that
        was answered (KIP-939).
        """

    def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
    ) -> tuple[int, int]:
        """End a transaction of any process; return the identity to use next."""

    def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> list[tuple[str, int, str, int, int, int, int]]:
        """(id, error, state, producer id, producer epoch, start ms, timeout ms)."""

    def list_transactions(self, states: Sequence[str], prefix: str) -> list[tuple[str, int, str]]:
        """(id, producer id, state)."""

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: Sequence[tuple[str, int, int]],
    ) -> None:
        """Commit offsets inside the transaction."""

    def writer(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        *,
        batch_bytes: int = 1 << 20,
        compression: str = "none",
        metadata_max_age_ms: int = 300_000,
    ) -> Writer:
        """Write in the open transaction of this identity."""

    def close(self) -> None:
        """Close its connections."""


class DescribedTransaction(NamedTuple):
    """A transaction as its coordinator describes it; `error_code` is 0, or nothing else counts."""

    transactional_id: str
    error_code: int
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int


def described_transactions(
    client: TransactionalClient, transactional_ids: Sequence[str]
) -> list[DescribedTransaction]:
    """Describe transactions, in any order. Raises KafkaError."""
    return [DescribedTransaction(*one) for one in client.describe_transactions(transactional_ids)]


def code_of(error: KafkaError) -> int:
    """Kafka's error code of a failed request."""
    code: int = error.args[1]
    return code


def is_retriable(error: KafkaError) -> bool:
    """Return True if the request may succeed later; it was repeated until its time was over."""
    return bool(error.args[2])


FINAL: Final[Mapping[int, str]] = {
    10: "Split the rows, or raise the topic's max.message.bytes",
    17: "Correct the topic's name",
    18: "Lower batch.bytes, or raise the topic's segment.bytes",
    29: "Give this user access to the topic",
    30: "Give this user access to the group",
    31: "Give this user the right to the cluster operation",
    35: "Upgrade the cluster: the request needs Kafka 3.0 or newer",
    43: "Rewrite the topic in message format 2",
    44: "Change the cluster's policy, or the request",
    53: "Give this user the right to transactional ids that begin with txn.id",
    65: "Give this user the right to this kind of token",
    76: "Set another compression",
    87: "Correct the rows: the topic refuses them",
}
"""Answers that stay the same until somebody changes something, and the remedy."""


@contextmanager
def translate_errors(what: str, connection: ClusterAccess) -> Iterator[None]:
    """Raise errors of the cluster that no repetition can heal as such.

    `txn.spark.run` starts a query again after a KafkaError, and ends with these.

    Raises:
        RejectedError: the cluster refuses for good, by its access rules or at the log-in.
        NoAnswerError: it did not answer in time.
    """
    try:
        yield
    except KafkaError as error:
        servers, code = connection.bootstrap_servers, code_of(error)
        closed = authentication_error(error)
        if isinstance(closed, RetriableError):  # no token now
            raise NoAnswerError(f"{servers}: {closed}", code=code) from error
        if closed is not None:
            raise RejectedError(f"cannot {what}: {closed}", code=code) from error
        if code in FINAL and not is_retriable(error):
            raise RejectedError(
                f"{servers} refuses to {what}: {error.args[0]}. {FINAL[code]}", code=code
            ) from error
        if is_retriable(error) and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoAnswerError(f"{servers}: {error.args[0]}", code=code) from error
        raise


def connect(connection: ClusterAccess) -> _core.KafkaClient:
    """Open a client of the caller's own.

    Raises:
        ConfigError: an address is none, or a file of the security settings cannot be used.
    """
    try:
        return _core.KafkaClient(
            connection.bootstrap_servers,
            client_id=connection.client_id,
            timeout_ms=connection.timeout_ms,
            security=client_security(connection.security),
        )
    except ValueError as error:
        raise ConfigError(str(error), option="kafka.bootstrap.servers") from error


_open = threading.local()


def shared_client(connection: ClusterAccess) -> _core.KafkaClient:
    """The client of this thread for these settings, opened at its first use.

    Planner processes and Python workers live for many batches; opening a client each time
    would cost a connection and a metadata request.
    """
    if getattr(_open, "process", None) != os.getpid():  # a fork must not share its parent's
        _open.process = os.getpid()
        _open.clients = {}
    clients: dict[ClusterAccess, _core.KafkaClient] = _open.clients
    client = clients.get(connection)
    if client is None:
        client = clients[connection] = connect(connection)
    return client


def forget_client(connection: ClusterAccess) -> None:
    """Close this thread's client after a failure, so that the next use starts afresh."""
    if getattr(_open, "process", None) == os.getpid():
        client = _open.clients.pop(connection, None)
        if client is not None:
            client.close()
