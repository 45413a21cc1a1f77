"""What can go wrong, arranged by what the caller does next.

TxnError
├── RetriableError   send it again after a pause
├── AbortableError   abort this transaction, begin another
├── FencedError      close this producer; another instance took its place
├── InDoubtError     nobody knows yet whether it committed; reopen the producer, rewind, look
├── RejectedError    it can never succeed as it is
├── ConfigError      a setting is unknown or does not fit; raised before any I/O
├── DirectoryError   the data directory is in use, not ours, or unreadable
├── ForkedError      it runs in the parent of this process; open another here
├── StorageError     the disk or the log refused; nothing was appended
└── CorruptLogError  stored bytes are damaged

A message says what happened, the values, and what to do; the values are attributes too.
"""

from enum import Enum


class Action(Enum):
    """What the caller of a failed operation should do next."""

    RETRY = "retry"
    ABORT_AND_REWIND = "abort-and-rewind"
    REOPEN = "reopen"
    GIVE_UP = "give-up"


class TxnError(Exception):
    """The root of every error txn raises on purpose."""

    action: Action = Action.GIVE_UP

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        for name, value in facts.items():
            setattr(self, name, value)


class RetriableError(TxnError):
    """Nothing changed; send it again after a pause."""

    action = Action.RETRY


class AbortableError(TxnError):
    """The open transaction cannot commit; abort it, rewind, begin another."""

    action = Action.ABORT_AND_REWIND


class FencedError(TxnError):
    """Another instance took this producer's place, or its state is lost; open a new one."""

    action = Action.REOPEN


class InDoubtError(TxnError):
    """A commit was sent and its answer did not come: it may be committed, or may become so.

    Neither repeat the transaction nor count it as done. Opening a producer with the same
    transactional id settles it one way or the other; the committed offsets then tell which.
    """

    action = Action.REOPEN


class RejectedError(TxnError):
    """The request can never succeed as it is."""


class ConfigError(TxnError):
    """A setting is unknown or its value does not fit; raised before any I/O."""


class BrokerFailedError(TxnError):
    """A bug broke the broker's service off. What it acknowledged is stored; start it again."""


class DirectoryError(TxnError):
    """The data directory is in use, not txn's, or unreadable."""


class ForkedError(TxnError):
    """It runs in the process that this one was forked from, `pid`; open another here."""

    action = Action.REOPEN
    pid: int


class StorageError(TxnError):
    """The disk or the log refused to store or sync; `code` is Kafka's error code for it."""

    code: int = 56  # KAFKA_STORAGE_ERROR


class CorruptLogError(TxnError):
    """Stored bytes are damaged; the message names file and position."""
