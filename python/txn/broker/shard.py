"""A shard: one partition of `__transaction_state` or `__consumer_offsets`, and its requests.

    LOADING ──► ACTIVE ──► UNLOADED ──► LOADING …
       └──────► FAILED

Active: its log was replayed. Failed: it cannot be read, until the next start. Unloaded: another
broker leads its partition. Requests that wait or stand in line are answered with NOT_COORDINATOR,
nothing is appended any more, and state and timers are dropped; the log has all of it.

Invariant: state changes only when a record that is in the log is replayed, at a start and live
alike.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from txn.broker.host import CoordinatorPartitions, Host
from txn.broker.members import PROCESS
from txn.broker.runtime import Requests
from txn.coordinator.operations import Committed, Performed, Request, Synced
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.storage.base import PartitionLog
from txn.wire.error_codes import ErrorCode

R = TypeVar("R")
S = TypeVar("S")


class ShardPhase(Enum):
    """Where a shard stands."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    UNLOADED = "unloaded"


_UNLOADED: Final = ShardPhase.UNLOADED  # a name of its own as in `broker.members`

LOADS_MAX: Final = 2
"""Number of times that a start reads a shard's log, while a disk keeps it from being read."""


class Shard(Requests, Generic[S, R]):
    """One partition of a coordinator's topic."""

    def __init__(
        self,
        host: Host,
        logs: CoordinatorPartitions,
        index: int,
        state: S,
        *,
        encode: Callable[["Shard[S, R]", R], tuple[bytes, bytes | None]],
        replay: Callable[["Shard[S, R]", R, int], None],
        batch_bytes_max: Callable[[], int] | None = None,
        perform: Callable[["Shard[S, R]", Performed], Request[Any]] | None = None,
    ) -> None:
        """Make a shard that is loading.

        Args:
            host: The broker.
            logs: All partitions of its topic.
            index: The number of its own.
            state: The fold of no record.
            encode: A record's key and value; None is a tombstone.
            replay: Fold a record that was just appended into the state; gets its offset too.
            batch_bytes_max: The largest keys and values of one batch together; None: any.
            perform: Carries out the operations of its coordinator.
        """
        super().__init__(host, None if perform is None else partial(perform, self))
        self.index = index
        self.state = state
        self.phase = ShardPhase.LOADING
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The answer to a request for this shard; NONE: it is served."""
        self.fault = ""
        """Why it failed."""
        self._logs = logs
        self._encode = encode
        self._replay = replay
        self._batch_bytes_max = batch_bytes_max

    @property
    def log(self) -> PartitionLog:
        """Its partition, opened when it is first used. Raises StorageError."""
        return self._logs[self.index]

    @property
    def waits_for_disk(self) -> bool:
        """True if its requests wait for the disk; else each wait is over at once."""
        return self._host.durability is not PROCESS

    def load(self, replay: Callable[[], object], empty: Callable[[], S]) -> Exception | None:
        """Replay the log into the state; return the error if that fails, None if it does not.

        An error of the disk may pass, and nothing reads the log again before the next start: so a
        failed replay is repeated at once.

        Args:
            replay: Folds the whole log into the state. Raises CorruptLogError, StorageError,
                OSError.
            empty: Makes the state of no record.
        """
        failure: Exception | None = None
        for _ in range(LOADS_MAX):
            try:
                replay()
            except CorruptLogError as error:
                return error
            except (StorageError, OSError) as error:
                failure, self.state = error, empty()
            else:
                return None
        return failure

    @staticmethod
    def advice_on(failure: Exception) -> str:
        """The failure of a load, with the next step of an operator."""
        if isinstance(failure, CorruptLogError):  # it has its own
            return str(failure)
        return (
            f"{failure}. Restart the broker once the disk can be read: nothing is lost until then"
        )

    def activate(self) -> None:
        """Serve requests: the log was replayed."""
        self.phase, self.refusal = ShardPhase.ACTIVE, ErrorCode.NONE

    def fail(self, fault: str, state: S) -> None:
        """Serve nothing of this shard until the next start."""
        self.phase, self.refusal = ShardPhase.FAILED, ErrorCode.NOT_COORDINATOR
        self.fault, self.state = fault, state

    def unload(self, state: S) -> None:
        """Resign: another broker coordinates this shard from now on.

        The caller cancels the timers of the state. The result of a request that waited for the
        disk is left to the next coordinator, which finds its records or does not.

        Args:
            state: The fold of no record.
        """
        self.phase, self.refusal = ShardPhase.UNLOADED, ErrorCode.NOT_COORDINATOR
        self.state = state
        self.abandon(self.refusal)

    def begin_load(self) -> None:
        """Load an unloaded shard: this broker coordinates it again."""
        assert self.phase is ShardPhase.UNLOADED, f"shard {self.index} is {self.phase.value}"
        self.phase, self.refusal = ShardPhase.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def append(self, records: Sequence[R], producer: ProducerIdAndEpoch | None = None) -> int:
        """Append records as one batch and replay them; return the first one's offset.

        Raises StorageError: nothing changed.
        """
        if self.phase is _UNLOADED:
            raise self._unloaded()
        encode, replay = self._encode, self._replay
        encoded = []
        for record in records:  # mostly one; a comprehension would be a call
            encoded.append(encode(self, record))
        if self._batch_bytes_max is not None:
            self._require_size(encoded, self._batch_bytes_max())
        log = self._logs[self.index]
        offset = log.append(encoded, timestamp_ms=self._host.now_ms(), producer=producer)
        for at, record in enumerate(records, offset):
            replay(self, record, at)
        return offset

    def _require_size(self, records: Sequence[tuple[bytes, bytes | None]], largest: int) -> None:
        size = sum(len(key) + len(value or b"") for key, value in records)
        if size > largest:
            log = self.log
            raise StorageError(
                f"{log.topic}-{self.index} takes no batch of {size} bytes: message.max.bytes is "
                f"{largest}",
                topic=log.topic,
                partition=self.index,
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )

    def _unloaded(self) -> StorageError:
        log = self.log
        return StorageError(
            f"{log.topic}-{self.index} is coordinated by another broker",
            topic=log.topic,
            partition=self.index,
            code=ErrorCode.NOT_COORDINATOR,
        )

    # ------------------------------------------------------------ requests

    def start(self, key: str | None, request: Request[Any]) -> None:
        """Run a request without a waiter; none of an unloaded shard."""
        if self.phase is _UNLOADED:
            request.close()
        else:
            super().start(key, request)

    def logs_of(self, step: Committed | Synced) -> Sequence[PartitionLog]:
        """The logs that have to be forced to the disk before a request goes on, its own too."""
        logs = super().logs_of(step)
        return [*logs, self.log] if isinstance(step, Committed) else logs
