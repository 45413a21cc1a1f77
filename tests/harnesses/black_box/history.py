"""A run's legacy for the judge.

Times are seconds of the machine's monotonic clock, the same in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Partition = tuple[str, int]

Row = tuple[int, str, str]
"""(offset, key, value); values occur once in a run."""

View = Mapping[Partition, list[Row]]
"""Records that a reader finds at the end, in the order in which they were read."""


class Fate(Enum):
    """A client's knowledge of its transaction."""

    KEPT = "committed"
    GONE = "aborted, or never asked to be committed"
    UNKNOWN = "whole or absent"


@dataclass
class SentRecord:
    """One record that was sent.

    Attributes:
        offset: Where it was acknowledged to be; None if it was not acknowledged.
    """

    partition: Partition
    key: str
    value: str
    offset: int | None = None


@dataclass
class Attempt:
    """One transaction as its client saw it.

    Attributes:
        name: Occurs once.
        transactional_id: Whose it is.
        instance: The producer instance that ran it.
        began_s: When the client began it.
        writes: In the order in which they were sent.
        commit_asked_s: When the client first asked to commit it; None if it never did.
        ended_s: When the client knew its end; None if it never did.
        fate: Its knowledge then.
    """

    name: str
    transactional_id: str
    instance: str
    began_s: float
    writes: list[SentRecord] = field(default_factory=list)
    commit_asked_s: float | None = None
    ended_s: float | None = None
    fate: Fate = Fate.GONE


@dataclass(frozen=True)
class Instance:
    """A producer that has taken a transactional id over.

    Attributes:
        asked_s: When it began to; the broker had no InitProducerId of it before.
        ready_s: When it knew the answer, perhaps long after the broker had given it.
    """

    name: str
    transactional_id: str
    asked_s: float
    ready_s: float


@dataclass(frozen=True)
class ReadRecord:
    """One record as a read_committed reader was shown it while the run went on.

    Attributes:
        is_following: The reader goes along with the partition and leaves nothing out.
    """

    reader: str
    at_s: float
    partition: Partition
    offset: int
    key: str
    value: str
    is_following: bool = False


@dataclass(frozen=True)
class ReaderEnd:
    """The end of a partition as a reader of one isolation level was told it."""

    reader: str
    at_s: float
    isolation: str
    partition: Partition
    offset: int


@dataclass(frozen=True)
class LateEndTxn:
    """An EndTxn that the proxy held back, and handed to the broker later.

    Attributes:
        received_s: When the client had sent it.
        forwarded_s: When the broker got it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    received_s: float
    forwarded_s: float


@dataclass(frozen=True)
class LateJoin:
    """A request that lets records or offsets into a transaction, held back by the proxy.

    Attributes:
        api: Its name.
        received_s: When the client had sent it.
        forwarded_s: When the broker got it.
    """

    api: str
    transactional_id: str
    received_s: float
    forwarded_s: float


@dataclass(frozen=True)
class CopyStage:
    """A group that copies one topic to another, partition by partition, offsets and all."""

    group: str
    source: str
    sink: str


@dataclass
class History:
    """Everybody's actions and answers, and the state at the end.

    Attributes:
        plain: Idempotent producer → its records outside of transactions.
        stages: Sources and outputs of copiers.
        group_offsets: (group, partition of its source) → committed offset at the end.
        stuck: Partition → (last stable offset, end) where they never met at the end.
        late_joins: Requests that came late and might have joined a later transaction.
        power_losses: Times at which unsynced data was forgotten.
        committed: Records that a read_committed reader finds at the end.
        uncommitted: Records that a read_uncommitted reader finds at the end.
    """

    plain: dict[str, list[SentRecord]] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    reads: list[ReadRecord] = field(default_factory=list)
    ends: list[ReaderEnd] = field(default_factory=list)
    late: list[LateEndTxn] = field(default_factory=list)
    late_joins: list[LateJoin] = field(default_factory=list)
    stages: list[CopyStage] = field(default_factory=list)
    group_offsets: dict[tuple[str, Partition], int] = field(default_factory=dict)
    stuck: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    power_losses: list[float] = field(default_factory=list)
    committed: View = field(default_factory=dict)
    uncommitted: View = field(default_factory=dict)


def copy_of(value: str, attempt: str) -> str:
    """A copier's copy of a record; another value in every attempt."""
    return f"{value}>{attempt}"


def original_of(copy: str) -> str:
    """The copied record."""
    return copy.rpartition(">")[0]
