"""The errors of txn, arranged by the caller's next step.

TxnError
├── RetriableError   send it again after a pause
│   └── UnreachableError   no broker at the given addresses; check them
├── AbortableError   abort this transaction, begin another
├── FencedError      close this producer: another instance has its place, or its state is lost
├── InDoubtError     the outcome of the commit is unknown; reopen the producer, rewind, look
├── RejectedError    it can never succeed as it is
├── ConfigError      a setting is unknown or does not fit; raised before any I/O
├── AddressError     the broker cannot listen at the given address
├── DirectoryError   the data directory is in use, not ours, or unreadable
├── ForkedError      it belongs to the parent of this process; open another here
├── StorageError     the disk or the log refused; nothing was appended
├── CorruptLogError  stored bytes are damaged
└── BrokerFailedError   a bug, or the loss of its directory, ended the broker's service

A message states the event, the values, and what to do. The values are attributes too, declared on
the classes. The attributes of `TxnError` are None if an error has no such value.

Each public error has a page, which `txn docs PAGE` opens. A note carries its address: a traceback
and a command at a terminal show it below the message. `str` stays as scripts know it.
"""

from collections.abc import Mapping
from enum import Enum


class Action(Enum):
    """The next step for the caller of a failed operation."""

    RETRY = "retry"
    ABORT_AND_REWIND = "abort-and-rewind"
    REOPEN = "reopen"
    GIVE_UP = "give-up"


class TxnError(Exception):
    """The root of every error that txn raises on purpose.

    Attributes:
        message: The text that `str` gives.
        action: What to do next.
        page: The page about the error, as `txn docs` takes it.
        code: The number of the error, if Kafka (above 0) or librdkafka (below) reported one.
        name: The error's name, such as `PRODUCER_FENCED`.
        topic: The topic that the error is about.
        partition: The topic's partition.
        address: The broker that reported the error, HOST:PORT.
    """

    action: Action = Action.GIVE_UP
    page: str = "errors/txn"
    message: str
    code: int | None = None
    name: str | None = None
    topic: str | None = None
    partition: int | None = None
    address: str | None = None

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        for name, value in facts.items():
            setattr(self, name, value)
        self.add_note(self.see)

    @property
    def see(self) -> str:
        """The note that leads to the page."""
        return f"See: txn docs {self.page}"


class RetriableError(TxnError):
    """Nothing changed; send it again after a pause.

    Attributes:
        waiting: Number of records still on their way, if they are the reason for the time-out.
        count: How many records were not stored, if some were not.
        size: Number of producers of a pool, if all were in use.
    """

    page = "errors/retriable"
    action = Action.RETRY
    waiting: int | None = None
    count: int | None = None
    size: int | None = None


class UnreachableError(RetriableError):
    """No broker was ever reached at the bootstrap servers.

    Attributes:
        reasons: Address → the fault there.
    """

    page = "errors/unreachable"
    reasons: Mapping[str, str]


class AbortableError(TxnError):
    """The open transaction cannot commit; abort it, rewind, begin another.

    Attributes:
        waiting: How many records the cluster did not acknowledge in time, if that is why.
        count: How many records were not stored, if that is why.
        open_ms: How long the transaction had been open, if it outlived its timeout.
        timeout_ms: The transaction.timeout.ms that it outlived.
    """

    page = "errors/abortable"
    action = Action.ABORT_AND_REWIND
    waiting: int | None = None
    count: int | None = None
    open_ms: int | None = None
    timeout_ms: int | None = None


class FencedError(TxnError):
    """This producer is finished: another instance took its place, or its state is lost.

    Attributes:
        action: GIVE_UP where another instance took its place, and has its work: one opened anew
            would fence that in turn. GIVE_UP also where an operator aborted the transaction, which
            looks the same. REOPEN after a time-out and where the state is lost.
        transactional_id: Whose place it was, where the message is about another producer.
        open_ms: How long the transaction had been open, if it outlived its timeout.
        timeout_ms: The transaction.timeout.ms that it outlived.
    """

    page = "errors/fenced"
    action = Action.GIVE_UP
    transactional_id: str | None = None
    open_ms: int | None = None
    timeout_ms: int | None = None


class InDoubtError(TxnError):
    """A commit was sent and its answer did not come: it may be committed, or may become so.

    Neither repeat the transaction nor count it as done. Opening a producer with the same
    transactional id settles the outcome; the committed offsets then show it.
    """

    page = "errors/in-doubt"
    action = Action.REOPEN


class RejectedError(TxnError):
    """The request can never succeed as it is.

    Attributes:
        count: How many records were not stored, if some were not.
        reason: The broker's words or the client's, where a client is refused as such.
    """

    page = "errors/rejected"
    count: int | None = None
    reason: str | None = None


class ConfigError(TxnError):
    """A setting is unknown or its value does not fit; raised before any I/O.

    Attributes:
        property: The property of a broker, a topic or a client, by Kafka's name.
        option: The option of a Spark source or sink.
        value: The value that does not fit.
        python: The Python that Spark's workers run, if it does not fit this one.
    """

    page = "errors/config"
    property: str | None = None
    option: str | None = None
    value: object = None
    python: str | None = None


class AddressError(TxnError):
    """The broker cannot listen at the given address: at `port` of `host`."""

    page = "errors/address"
    host: str
    port: int


class BrokerFailedError(TxnError):
    """A bug broke the broker's service off, or its data directory is no longer at its path."""

    page = "errors/broker-failed"
    reason: str


class DirectoryError(TxnError):
    """The data directory `path` is in use, not txn's, or unreadable."""

    page = "errors/directory"
    path: str


class ForkedError(TxnError):
    """It runs in the process that this one was forked from, `pid`; open another here."""

    page = "errors/forked"
    action = Action.REOPEN
    pid: int


class StorageError(TxnError):
    """The disk or the log refused to store or sync; `code` is Kafka's error code for it."""

    page = "errors/storage"
    code: int = 56  # KAFKA_STORAGE_ERROR


class CorruptLogError(TxnError):
    """Stored bytes are damaged; the message names file and position.

    Attributes:
        path: The file or directory.
        position: Where in it, in bytes, if that is known.
        offset: Of the record that cannot be read, if that is known.
    """

    page = "errors/corrupt-log"
    path: str | None = None
    position: int | None = None
    offset: int | None = None
