"""Facts about open transactions, from any source.

Two sides know a transaction. The partition holds its records back since some offset; the
coordinator knows its owner and its time-out. A transaction that only one side has is the one that
hangs.

Offsets are inclusive unless they are called `end` or `next`; times are milliseconds since
the epoch, by the broker's clock; None is *not known*.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from txn.coordinator.transaction.records import decode_value
from txn.coordinator.transaction.states import NO_TIMEOUT_MS, Txn, TxnState
from txn.errors import CorruptLogError
from txn.identifiers import TopicPartition
from txn.inspect.segments import SegmentBatch, SegmentRecord
from txn.metadata.image import TRANSACTIONS_TOPIC


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition holds open, as the partition knows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int | None
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition's log begins, how far read_committed reads, and where it ends."""

    log_start_offset: int
    last_stable_offset: int
    end_offset: int

    def first_of(self, held: OpenTransaction) -> int:
        """First known offset of a transaction; its first records may have been deleted."""
        return max(held.first_offset, self.log_start_offset)


@dataclass(frozen=True, slots=True)
class LastClient:
    """The client that last asked the coordinator for a transactional id.

    `is_connected` is False once the connection of that request is closed. The client may have
    another one by then, and a client whose machine lost its power leaves its connection open.
    """

    client_id: str
    client_host: str
    seen_ms: int
    request: str
    is_connected: bool = True


@dataclass(frozen=True, slots=True)
class Owner:
    """A transactional id, as its coordinator knows it.

    Attributes:
        transactional_id: Whose transactions they are.
        state: Where it stands.
        producer_id: In use now.
        producer_epoch: In use now.
        timeout_ms: How long a transaction may stay open.
        start_ms: When the newest transaction began.
        partitions: Those of the open transaction; while it ends, those without a marker.
        updated_ms: When this state was reached.
        client: The last client since the start of the broker; None if there was none.
        tells_client: Whether its coordinator reports the client; Apache Kafka's does not.
    """

    transactional_id: str
    state: TxnState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]
    updated_ms: int | None = None
    client: LastClient | None = None
    tells_client: bool = False

    @property
    def has_timeout(self) -> bool:
        """True if its transactions time out; those of a two-phase commit do not (KIP-939)."""
        return self.timeout_ms != NO_TIMEOUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """When its time is up; None if nothing is open or it never is."""
        is_open = self.state is TxnState.ONGOING and self.start_ms is not None
        if not is_open or not self.has_timeout:
            return None
        assert self.start_ms is not None, "an open transaction has begun"
        return self.start_ms + self.timeout_ms


@dataclass(frozen=True, slots=True)
class Completion:
    """The end that the coordinator gave to a transaction of some producer id and epoch.

    `at_ms` is None where only the state shows it, and not when it began.
    """

    transactional_id: str
    is_commit: bool
    at_ms: int | None


class AtStart(Enum):
    """The action of a start after a power failure that removed a trace of a decided transaction."""

    ABORTED = "power took records of this commit, which was never answered: it is aborted"
    COMMITTED_AGAIN = "it is committed, and power took its marker, which is written again"
    ABORTED_AGAIN = "it is aborted, and power took its marker, which is written again"


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of `__transaction_state`; `txn` is None where the id was forgotten."""

    partition: int
    offset: int
    timestamp_ms: int
    txn: Txn | None


def state_record(partition: int, record: SegmentRecord) -> StateRecord:
    """Decode a record of `__transaction_state`. Raises CorruptLogError."""
    try:
        txn = None if record.value is None else decode_value(record.value)
    except ValueError as error:
        raise CorruptLogError(
            f"{TRANSACTIONS_TOPIC}-{partition} holds a record at offset {record.offset} that "
            f"cannot be read: {error}. Run `txn log verify` on the broker's directory",
            offset=record.offset,
        ) from error
    return StateRecord(partition, record.offset, record.timestamp_ms, txn)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch of a log, with its kind of marker, if it is one."""

    batch: SegmentBatch
    marker: str | None


class FactSource(Protocol):
    """Where facts come from: a running cluster or a stopped directory.

    Every method may raise `TxnError`, with what to do about it.
    """

    @property
    def is_running(self) -> bool:
        """True if brokers are at work, so that time passes for a transaction."""
        ...

    @property
    def options(self) -> str:
        """The options by which the command line names this source."""
        ...

    @property
    def left_out(self) -> Mapping[TopicPartition, str]:
        """Damaged partitions that were asked for and are not, or not all, in the answers: why."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def topics(self) -> Mapping[str, Sequence[int]]:
        """Topic → its partitions, internal topics too."""
        ...

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Where logs begin and end; a partition that cannot be asked is left out."""
        ...

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Open transactions of partitions, by partition and first offset."""
        ...

    def refused(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """The partitions whose open transactions the user may not see, and the reason of each."""
        ...

    def owners(self, producer_ids: Collection[int] | None = None) -> list[Owner]:
        """The transactional ids that use some producer ids; None: all of them."""
        ...

    def transactional_ids(self) -> list[str]:
        """All transactional ids, sorted."""
        ...

    def owner(self, transactional_id: str) -> Owner | None:
        """One transactional id, None if it is not known."""
        ...

    def history(self, transactional_id: str) -> list[StateRecord]:
        """Records of an id that `__transaction_state` still has, oldest first."""
        ...

    def batches(self, partition: TopicPartition, first_offset: int) -> Iterator[LoggedBatch]:
        """The batches of a log from the one with an offset on; control batches too."""
        ...

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset with a record at least as young as a time; None without one."""
        ...

    def at_start(self, held: OpenTransaction) -> AtStart | None:
        """Return how the next start ends a transaction if a power failure removed a trace of it."""
        ...

    def unread(self, transactional_id: str | None = None) -> list[str]:
        """The partitions of `__transaction_state` that cannot be read, so owners may be missing.

        With a transactional id: the one with its records, if it is among them.
        """
        ...
