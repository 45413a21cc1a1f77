"""The state of a transaction's block, and the one block that a producer may have open.

Invariant: a producer holds at most one `OpenBlock`, from before its transaction begins until its
end is settled or given up. It is held by the producer, not by the block, so it outlives a block
that Python dropped without calling `__exit__`.
"""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import confluent_kafka

from txn.client.positions import Offsets

if TYPE_CHECKING:
    from txn.client.consumer import Consumer
    from txn.client.transaction import Transaction


class BlockPhase(Enum):
    """Stages of a block."""

    NEW = "new"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ENDED = "ended"


class BlockResult(Enum):
    """Results of a block, as far as its producer knows them."""

    COMMITTED = "commit"
    ABORTED = "abort"
    """It was aborted, or nothing had begun."""
    FENCED = "fenced"
    """Its producer lost its place or could not abort. The cluster aborts it."""
    IN_DOUBT = "unknown"
    """A commit was sent and had no answer; see `txn.errors.InDoubtError`."""


@dataclass(eq=False)
class OpenBlock:
    """The place of an entered block in its producer, which outlives the block.

    Python knows no `with` statement before `__enter__` has returned to it, nor after it has called
    `__exit__`. A signal there leaves a transaction open that nothing will end. Only the `with`
    statement keeps a block, so its producer sees that it is gone.
    """

    block: "weakref.ref[Transaction]"
    others: "list[Consumer]" = field(default_factory=list)
    """Its consumers beside its own, until they are committed or rewound."""
    has_asked_commit: bool = False
    is_prepared: bool = False
    at_end: "list[Callable[[BlockResult], object]]" = field(default_factory=list)
    """Called once with the result, when the block has ended."""

    def is_open(self) -> bool:
        """Return True if the block is there and has not ended."""
        block = self.block()
        return block is not None and block._is_open


@dataclass(eq=False, slots=True)
class BlockState:
    """The state of one block, shared by its parts.

    Attributes:
        place: Its place in the producer.
        timeout: Seconds that each part of its end may take.
        phase: Its stage.
        result: Its result; None before its end.
        produced: Records that it has added.
        begun_at: `time.monotonic` of its begin.
    """

    place: OpenBlock
    timeout: float
    phase: BlockPhase = BlockPhase.NEW
    result: BlockResult | None = None
    produced: int = 0
    begun_at: float | None = None

    @property
    def open_ms(self) -> int:
        """Milliseconds since it began; 0 before that."""
        return 0 if self.begun_at is None else int((time.monotonic() - self.begun_at) * 1000)


class Blocks:
    """The blocks of one producer: the open one, and the offsets that the last one committed."""

    def __init__(self) -> None:
        self._open: dict[str, OpenBlock] = {}  # at most one
        self.last_sent: tuple[confluent_kafka.Consumer, Offsets] | None = None
        """The consumer of the last block and its committed offsets; None: send them again."""

    def claim(self, place: OpenBlock) -> bool:
        """Make this block the open one; return False if another one is."""
        # One step for all threads, and no lock that a signal could leave locked.
        return self._open.setdefault("transaction", place) is place

    def holds(self, place: OpenBlock) -> bool:
        """Return True if this block is the open one."""
        return self._open.get("transaction") is place

    def release(self, place: OpenBlock) -> None:
        """Let another block be the open one."""
        if self.holds(place):
            del self._open["transaction"]

    @property
    def is_open(self) -> bool:
        """True while a block is open, also one that Python has dropped."""
        return bool(self._open)

    def transaction(self) -> "Transaction | None":
        """Return the open transaction."""
        place = self._open.get("transaction")
        return None if place is None else place.block()

    def lost(self) -> OpenBlock | None:
        """Return the place of the open block if Python has dropped the block."""
        place = self._open.get("transaction")
        return place if place is not None and place.block() is None else None

    @property
    def open_ms(self) -> int:
        """Milliseconds since the open transaction began; 0 if there is none."""
        transaction = self.transaction()
        return 0 if transaction is None else transaction.open_ms
