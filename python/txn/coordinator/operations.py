"""The operations of a coordinator's request: a generator that yields them to its runtime.

A request decides by pure rules, appends to its shard, and yields where it has to wait or answers
before its end. Each operation is done before the generator goes on, or StorageError is raised at
the yield.

    COMMITTED              wait until the shard's log is as durable as promised
    Committed(partitions)  the same for it and partitions that clients write to, together
    Synced(partitions)     the same for those partitions alone
    GIVE_WAY               let other requests, timers and reactors have their turn
    Until(begin)           wait for an event: a producer id that arrives, a pause that is over
    Reply(value)           answer now and go on behind the answer
    a `Performed`          done by the coordinator of the shard; the yield's value is the result

`txn.broker.runtime` carries them out. Pure.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from txn.errors import StorageError

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


class GiveWay(NamedTuple):
    """Let other requests run, between two of very many partitions.

    The key stays held, so nothing is decided on it meanwhile. A start waits for nobody.
    """


GIVE_WAY: Final = GiveWay()


class Reply(NamedTuple):
    """Answer now; the request goes on behind it. Only the first answer counts.

    With a ticket it answers another request, one that returned `Later(ticket)`.
    """

    value: Any
    ticket: int | None = None


class Until(NamedTuple):
    """Wait for an event outside of the shard.

    `begin` gets a call to make once, at the event. A StorageError in this call is raised at the
    yield.
    """

    begin: Callable[[Callable[[StorageError | None], object]], object]


class Performed:
    """An operation that the coordinator of the shard carries out, by a request of its own."""

    __slots__ = ()


Operation = Committed | Synced | GiveWay | Until | Reply | Performed

Request = Generator[Operation, Any, T]
"""A request in progress; its return value is its answer, unless it replied before."""


def in_parts(
    call: Callable[[Sequence[T]], object], items: Sequence[T], part_max: int
) -> Request[None]:
    """Make a call with each part of the items, and let others have their turn between two."""
    if len(items) <= part_max:
        call(items)
        return
    for start in range(0, len(items), part_max):
        if start:
            yield GIVE_WAY
        call(items[start : start + part_max])


class Later(NamedTuple):
    """Returned instead of an answer: another request gives it, by the ticket."""

    ticket: int
