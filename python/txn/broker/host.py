"""The services that the coordinators need from their broker.

`txn.broker.local_host.LocalHost` is the one in production; tests carry the coordinators on a host
with a clock of their own and logs in memory.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from enum import Enum
from time import thread_time
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, TypeVarTuple

from txn.errors import StorageError
from txn.security.sessions import Session
from txn.storage.base import PartitionLog

RETRY_MS: Final = 1_000
"""Pause before a write that a disk refused is tried again."""


class Durability(Enum):
    """The acknowledged writes that survive a power failure; a process crash loses none."""

    PROCESS = "process"
    COMMIT = "commit"
    ALWAYS = "always"


class Timer(Protocol):
    """A call that is due at some time."""

    def cancel(self) -> None:
        """Do not make the call; harmless when it was made."""
        ...


class CoordinatorPartitions(Protocol):
    """The partitions of a coordinator's topic, 0 first; the first access opens a log."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> PartitionLog:
        """A partition. Raises StorageError."""
        ...

    def __iter__(self) -> Iterator[PartitionLog]: ...


class Host(Protocol):
    """The broker, as its coordinators see it. All calls come from one thread."""

    @property
    def durability(self) -> Durability:
        """The durability that a commit promises."""
        ...

    def setting(self, name: str) -> Any:
        """The value of a broker property by Kafka's name, already parsed (int, str, bool)."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for stored and displayed times: this clock may step."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never steps, for durations; no other process knows it."""
        ...

    def group_setting(self, group_id: str, name: str) -> Any:
        """The value of a group's setting that is in force, parsed, such as
        `consumer.session.timeout.ms`.
        """
        ...

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`; at once (but later than now) when it has passed."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request; a failure is logged and harms nothing else."""
        ...

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when the topic or the index is unknown.

        Raises StorageError: it cannot be opened now.
        """
        ...

    def touched(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when it holds nothing: it is unknown or `is_untouched`.

        For work that an empty partition needs not: thousands of them have no log.
        Raises StorageError: it cannot be opened now.
        """
        ...

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if there is such a partition; it is not opened."""
        ...

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is unknown."""
        ...

    def is_untouched(self, topic: str, index: int) -> bool:
        """Return True if a partition is there, holds nothing and is not open."""
        ...

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        """Stop serving a damaged partition until the next start.

        Args:
            topic: Its topic, which must exist.
            index: Its number.
            reason: The damage, in words; advice for the operator is added.
        """
        ...

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator accepted the loss of a partition for this start."""
        ...

    def coordinator_partitions(self, topic: str) -> CoordinatorPartitions:
        """All partitions of `__transaction_state` or `__consumer_offsets`, which must exist."""
        ...

    def create_coordinator_topic(self, topic: str) -> Awaitable[None]:
        """Make `__transaction_state` or `__consumer_offsets`, unless it is there.

        The topic is on the disk before anything is written to it. Without it a start finds nothing
        of its partitions' records (P2). Raises StorageError.
        """
        ...

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if unknown."""
        ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id, None if unknown."""
        ...

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""
        ...

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        ...

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        """Run a call whose cost a client chooses on a thread for which a stop does not wait.

        The call is given a function that returns True once it shall give up. Owners take turns.
        """
        ...

    def allocate_producer_ids(self, done: Callable[[range | StorageError], object]) -> None:
        """Begin to allocate producer ids; give `done` the block once it is durable.

        The block is never allocated again. `done` may be called at once. It is not called if the
        broker stops before.
        """
        ...

    def allocate_producer_ids_now(self) -> range:
        """Allocate a block of producer ids; blocks, for a start. Raises StorageError."""
        ...

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        ...

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        """Force partitions to the disk, sharing the pass with others; raises StorageError."""
        ...

    def sync_now(self, stores: Iterable[PartitionLog]) -> StorageError | None:
        """Force partitions to the disk; blocks, for a start. Return a failure."""
        ...


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Toll:
    """The cost of a request, where quotas may bind its client.

    `spent_s`: seconds of a thread so far. `throttle_ms`: the time that its client has to wait for
    the partitions that it makes or deletes.
    """

    __slots__ = ("spent_s", "throttle_ms")

    def __init__(self) -> None:
        self.spent_s = 0.0
        self.throttle_ms = 0


def counted_in(
    toll: Toll | None, work: Callable[[*Arguments], Result], *arguments: *Arguments
) -> Result:
    """The result of work, whose CPU time on this thread is counted in a toll."""
    if toll is None:
        return work(*arguments)
    began = thread_time()
    try:
        return work(*arguments)
    finally:
        toll.spent_s += thread_time() - began


class Context(NamedTuple):
    """Where a request came from. `toll`: None while there are no such quotas."""

    api_key: int
    api_version: int
    client_id: str
    session: Session
    toll: Toll | None = None

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.session.client.host


class HangUpError(Exception):
    """Instead of an answer: close the connection. The text says why, for the log."""

    event: ClassVar = "request.late"
    """The name of the log's line."""


class UnknownNumberError(HangUpError):
    """A request has a number that stands for nothing, where Kafka closes the connection."""

    event: ClassVar = "request.malformed"
