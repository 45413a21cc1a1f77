"""The ports of a node to the outside: log storage, time and waiting, and the sockets' catalog.

`txn.server` implements them for a real broker, and the simulation implements its own.
"""

import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from txn.broker.host import Timer
from txn.broker.partitions import TopicPartitions
from txn.broker.syncs import Failures
from txn.errors import CorruptLogError, StorageError
from txn.metadata.image import Image, Topic
from txn.storage.base import PartitionLog, Space
from txn.storage.strays import Stray

Opened = PartitionLog | CorruptLogError | StorageError | None
"""The log of one partition, the error of its opening, or None: it was never written."""


class LogStorage(Protocol):
    """Where partitions are kept."""

    def open(self, topic: Topic, index: int) -> PartitionLog:
        """Open and recover a partition. Raises CorruptLogError, StorageError."""
        ...

    def close_all(self, stores: Sequence[PartitionLog]) -> list[StorageError]:
        """Close partitions; return the failures."""
        ...

    def sync_all(self, stores: Sequence[PartitionLog]) -> StorageError | None:
        """Force partitions to the disk; blocks. Return a failure; the others are synced."""
        ...

    def open_all(self, wanted: Sequence[tuple[Topic, int]]) -> Sequence[Opened]:
        """Open partitions, in this order; one that fails keeps none from the others."""
        ...

    def advice_on(self, topic: str, index: int) -> str:
        """Return an operator's options for a damaged partition."""
        ...

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        ...

    def note_contradiction(self, topic: str, index: int, reason: str) -> None:
        """Note a refusal for the next start after a power failure, which cannot judge by itself."""
        ...

    def strays(self, image: Image, deleted: Collection[uuid.UUID]) -> Sequence[Stray]:
        """List the directories of topics that the metadata log does not know.

        Raises StorageError.
        """
        ...

    def discard(self, deleted: Collection[uuid.UUID], known: Mapping[str, Topic]) -> None:
        """Remove the rest of topics whose deletion was cut short; keep known topics.

        Raises StorageError.
        """
        ...

    @property
    def given_up(self) -> Collection[tuple[str, int]]:
        """The partitions of which this start gives something up, because an operator said so."""
        ...

    def begin(self, topic: str) -> None:
        """Forget an earlier topic of the name of one that is about to be made.

        Raises StorageError.
        """
        ...

    def require_room(self, topic: str, indexes: range) -> None:
        """Raise StorageError if something is stored where these partitions are to be."""
        ...

    def metadata_snapshot(self, log: PartitionLog) -> tuple[int, list[bytes]]:
        """The newest snapshot of the metadata log: where the log goes on, and its records' values.

        Raises CorruptLogError.
        """
        ...

    def store_metadata_snapshot(self, log: PartitionLog, now_ms: int) -> None:
        """Write a snapshot of the metadata log, if it says something that the newest one does not.

        Raises CorruptLogError, StorageError: there is no other snapshot than before.
        """
        ...

    def space(self) -> Space:
        """The directory, and the space of its disk. Raises StorageError."""
        ...


class Scheduler(Protocol):
    """Time, waiting and work beside the current request."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never steps."""
        ...

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request."""
        ...

    async def in_worker(self, call: Callable[[], None]) -> None:
        """Run a blocking call on a worker thread."""
        ...

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        """Run a call whose cost a client chooses on a thread for which a stop does not wait.

        The call is given a function that returns True once it shall give up. Owners take turns.
        """
        ...

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        """Begin to sync partitions, in parallel; report when all are synced or have failed.

        Records appended before this call are on the disk then. Waiters for one log share its syncs.
        """
        ...


class ClientQuota(NamedTuple):
    """A quota that the sockets count: of bytes a second, or per cent of a thread's time.

    `kind` is Produce, Fetch or Request. A part is None where there is none, and (None,) for the
    default.
    """

    kind: str
    user: tuple[str | None] | None
    client_id: tuple[str | None] | None
    limit: float


class Catalog(Protocol):
    """The sockets' view: the topics that Produce and Fetch find, and whose batches are forced."""

    def add_topic(self, topic: Topic, partitions: TopicPartitions) -> None:
        """Serve a topic's partitions, as many as there are now; replaces its former entry."""
        ...

    def remove_topic(self, name: str) -> None:
        """Serve a topic no longer."""
        ...

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        ...

    def publish_creation_rates(
        self, default: float | None, of_addresses: Mapping[str, float]
    ) -> None:
        """Limit connections per second by address; `default` is for all others."""
        ...

    def forget_verdicts(self) -> None:
        """Ask the authorizer again for every Produce and Fetch: its entries changed."""
        ...

    def publish_quotas(self, quotas: Sequence[ClientQuota], *, samples: int, length_s: int) -> None:
        """Replace the quotas of clients; rates are over so many samples of so many seconds."""
        ...
