"""The shards of one coordinator's topic, and their life cycle: one for transactions and groups.

    make ──► load_shard ──► on_loaded ──► replay … ──► on_unloaded ──► elect: load_shard …
                   └──► out of service, until the next start

A coordinator derives from `Shards` and gives what differs: the state, its records, and the effects
of the events. So leadership that moves, and another kind of group, need no life cycle of their own.

Invariant: a shard that is elected is served only once its log was replayed and is as durable as
promised. A shard that failed is left to the next start, which looks for losses.
"""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from txn.broker.host import Host
from txn.broker.shard import Shard, ShardPhase
from txn.coordinator.operations import COMMITTED, Performed, Request
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.delta import Delta
from txn.metadata.image import Image
from txn.storage.base import StoredBatch
from txn.wire.hashing import coordinator_partition

R = TypeVar("R")
S = TypeVar("S")


class Shards(Generic[S, R]):
    """Every partition of a coordinator's topic, 0 first.

    Attributes:
        shards: The shards; none until `make`.
        on_loaded: Called with each shard that is elected, once it is served.
    """

    topic: ClassVar[str]
    not_served: ClassVar[str]
    """The log event of a shard that cannot be read."""

    def __init__(self, host: Host) -> None:
        self.shards: list[Shard[S, R]] = []
        self.on_loaded: Callable[[Shard[S, R]], object] = lambda shard: None
        self._host = host

    # ------------------------------------------------------------ given by a coordinator

    def empty(self, former: S | None = None) -> S:
        """The state of no record. That of an unloaded shard may keep facts that no log has."""
        raise NotImplementedError

    def encode(self, shard: Shard[S, R], record: R) -> tuple[bytes, bytes | None]:
        """A record's key and value; None is a tombstone."""
        raise NotImplementedError

    def replay(self, shard: Shard[S, R], record: R, offset: int) -> None:
        """Fold in a record that was just appended."""
        raise NotImplementedError

    def read(self, shard: Shard[S, R], batch: StoredBatch) -> None:
        """Fold in a batch of the log. Raises CorruptLogError."""
        raise NotImplementedError

    def perform(self, shard: Shard[S, R], operation: Performed) -> Request[object]:
        """The request that carries out an operation of this coordinator."""
        raise NotImplementedError

    def append_limit(self) -> Callable[[], int] | None:
        """A function that gives the largest keys and values of one batch together; None: any."""
        return None

    def on_unloaded(self, shard: Shard[S, R]) -> None:
        """Cancel the timers of a state that is dropped next."""

    def on_metadata(self, image: Image, delta: Delta) -> None:
        """Follow a change of the metadata."""

    # ------------------------------------------------------------ the life cycle

    def index_of(self, key: str) -> int:
        """The number of the shard that keeps a key."""
        return coordinator_partition(key, len(self.shards))

    def unread(self) -> list[str]:
        """The partitions that could not be read."""
        failed = (shard for shard in self.shards if shard.phase is ShardPhase.FAILED)
        return [f"{self.topic}-{shard.index}" for shard in failed]

    def make(self) -> None:
        """Make the shards of the topic, which exists. They are loading."""
        logs = self._host.coordinator_partitions(self.topic)
        self.shards += [
            Shard(
                self._host,
                logs,
                index,
                self.empty(),
                encode=self.encode,
                replay=self.replay,
                batch_bytes_max=self.append_limit(),
                perform=self.perform,
            )
            for index in range(len(logs))
        ]

    def load_shard(self, shard: Shard[S, R]) -> bool:
        """Replay a partition into its shard; False: it cannot be read and is out of service."""
        error = shard.load(lambda: self._read_log(shard), lambda: self.empty(shard.state))
        if error is not None:
            self._stop_serving(shard, error)
        return error is None

    def fail(self, shard: Shard[S, R], fault: str) -> None:
        """Serve nothing of a partition any longer, until the next start."""
        self.on_unloaded(shard)
        shard.fail(fault, self.empty())

    def resign(self, index: int) -> None:
        """Leave a partition to another broker; requests that wait get NOT_COORDINATOR."""
        shard = self.shards[index]
        if shard.phase is not ShardPhase.FAILED:
            self.on_unloaded(shard)
            shard.unload(self.empty(shard.state))

    async def elect(self, index: int) -> None:
        """Coordinate a partition again. Requests get COORDINATOR_LOAD_IN_PROGRESS meanwhile."""
        shard = self.shards[index]
        if shard.phase is not ShardPhase.FAILED:
            shard.begin_load()
            await shard.run(None, self._load_and_serve(shard), lambda _: None)

    def _load_and_serve(self, shard: Shard[S, R]) -> Request[None]:
        if not self.load_shard(shard):
            return
        try:
            yield COMMITTED  # requests before the unloading may have been waiting for that
        except StorageError as error:
            self._stop_serving(shard, error)
            return
        shard.activate()
        self.on_loaded(shard)

    def _read_log(self, shard: Shard[S, R]) -> None:
        for batch in shard.log.batches():
            self.read(shard, batch)

    def _stop_serving(self, shard: Shard[S, R], error: Exception) -> None:
        if isinstance(error, CorruptLogError):
            self._host.refuse_partition(self.topic, shard.index, error.message)
        self.fail(shard, shard.advice_on(error))
        partition = f"{self.topic}-{shard.index}"
        log.error(self.not_served, partition=partition, reason=shard.fault)
