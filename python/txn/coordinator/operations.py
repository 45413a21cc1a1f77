"""The operations of a coordinator's request: a generator that yields them to its runtime.

A request decides by pure rules, appends to its shard, and yields where it has to wait or answers
before its end. Each operation is done before the generator goes on, or StorageError is raised at
the yield.

    COMMITTED              wait until the shard's log is as durable as promised
    Committed(partitions)  the same for it and partitions that clients write to, together
    Synced(partitions)     the same for those partitions alone
    Reply(value)           answer now and go on behind the answer

`txn.broker.runtime` carries them out. Pure.
"""

from collections.abc import Collection, Generator
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")


class Committed(NamedTuple):
    """Wait until the records of this shard are as durable as promised: today, fdatasync.

    Raises StorageError: they are in the log and may be lost with the machine.
    """

    partitions: Collection[tuple[str, int]] = ()
    """Partitions that are waited for beside it, as `Synced` does."""


COMMITTED: Final = Committed()


class Synced(NamedTuple):
    """Wait until partitions are as durable as promised. Deleted ones are passed over.

    Raises StorageError: one cannot be opened or forced to the disk. Where nothing is promised of a
    power failure (`durability=process`), neither this nor `Committed` waits or looks.
    """

    partitions: Collection[tuple[str, int]]


class Reply(NamedTuple):
    """Answer now; the request goes on behind it. Only the first answer counts.

    With a ticket it answers another request, one that returned `Later(ticket)`.
    """

    value: Any
    ticket: int | None = None


Operation = Committed | Synced | Reply

Request = Generator[Operation, None, T]
"""A request in progress; its return value is its answer, unless it replied before."""


class Later(NamedTuple):
    """Returned instead of an answer: another request gives it, by the ticket."""

    ticket: int
