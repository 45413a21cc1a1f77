"""Actions and answers of clients, and records of readers: the whole knowledge of the checkers.

An *attempt* is one transaction as its client sees it: the values that it sent, the offsets that it
committed with them, and its fate. Times are those of the virtual clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Place = tuple[str, int]
Identity = tuple[int, int]
"""Producer id and epoch; a later one of the same transactional id is greater."""


class Fate(Enum):
    """The client's knowledge of the end of its attempt."""

    OPEN = "nobody asked to end it"
    ASKED = "a commit was asked for and not answered"
    UNCERTAIN = "a commit was asked for, an answer was lost, and nothing is known"
    COMMITTED = "a commit was answered"
    NEVER = "it must never be seen"


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction."""

    name: str
    client: str
    transactional_id: str
    identity: Identity
    """The identity under which it began."""
    initialized_us: int
    """When its instance was given the transactional id."""
    fate: Fate = Fate.OPEN
    values: dict[bytes, Place] = field(default_factory=dict)
    """Everything that was sent; a commit is asked for only when all of it was acknowledged."""
    offsets: dict[Place, int] = field(default_factory=dict)
    """The offsets that it commits for the group."""
    ended_us: int = -1
    """When its end was answered."""
    was_fenced: bool = False
    """A successor was initialized before a commit was asked for."""
    was_interrupted: bool = False
    """An answer to its end was lost, or said to try again."""
    is_two_phase: bool = False
    """Another system decides on it, or may come to (`two_phase.py`); operators let it alone."""
    is_decided: bool = False
    """It has noted that it is to be committed."""
    follows_lost_end: bool = False
    """An earlier request of its client to end a transaction may still be under way."""

    def ask_to_commit(self) -> None:
        self.fate = Fate.ASKED

    def refused(self) -> None:
        """The commit was refused for good."""
        if self.fate is Fate.ASKED:
            self.fate = Fate.UNCERTAIN if self.was_interrupted else Fate.NEVER

    def aborted_by_operator(self) -> None:
        """An operator was told that it is aborted; a request for its commit comes too late."""
        if self.fate is Fate.OPEN:
            self.was_fenced = True
            self.fate = Fate.NEVER

    def found_open(self) -> None:
        """Its next instance was told that it is open; a request to end it comes too late."""
        self.fate = Fate.OPEN

    def give_up(self) -> None:
        """No more requests will come for it."""
        if self.fate is Fate.OPEN:
            self.fate = Fate.NEVER
        elif self.fate is Fate.ASKED:
            self.fate = Fate.UNCERTAIN


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly by its name, and the observation."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(slots=True)
class PlainWrite:
    """A value of an idempotent producer outside transactions."""

    client: str
    place: Place
    is_acknowledged: bool = False


class History:
    """One run, as seen from outside the broker."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.owner: dict[bytes, Attempt] = {}
        """Value of a transaction → the attempt."""
        self.plain: dict[bytes, PlainWrite] = {}
        self.seen_committed: dict[bytes, Place] = {}
        """Every value any read_committed reader ever saw."""
        self.given: set[Identity] = set()
        """Every identity that a client was given."""
        self.log_starts: dict[Place, int] = {}
        """Partition → the offset below which its records were deleted."""
        self.anomalies: list[Anomaly] = []
        self.tell: Callable[[str], Any] | None = None
        """Takes the story, a line at a time, if somebody wants to hear it."""

    def found(self, name: str, text: str) -> None:
        """Note an anomaly while it happens."""
        self.anomalies.append(Anomaly(name, text))
        if self.tell is not None:
            self.tell(f"!! {name}: {text}")

    def say(self, who: str, what: str) -> None:
        """Add a line to the story."""
        if self.tell is not None:
            self.tell(f"{who:<10} {what}")

    def begin(self, attempt: Attempt) -> Attempt:
        """A client begins a transaction."""
        self.attempts.append(attempt)
        return attempt

    def initialized(
        self, client: str, transactional_id: str, identity: Identity, asked_us: int
    ) -> None:
        """An instance took a transactional id over; its former owner is fenced (P7).

        An instance is before another if it had its answer when the other asked. Of two that asked
        at the same time, the one with the lesser identity is before.
        """
        for attempt in self.attempts:
            if attempt.transactional_id != transactional_id or attempt.fate is not Fate.OPEN:
                continue
            if attempt.initialized_us < asked_us or attempt.identity < identity:
                attempt.was_fenced = attempt.client != client
                attempt.fate = Fate.NEVER

    def was_given(self, client: str, identity: Identity) -> None:
        """A client was given an identity, which nobody had before it (P7)."""
        if identity in self.given:
            text = f"{client} is {identity[0]}/{identity[1]}, which was given out before"
            self.found("id-reuse", text)
        self.given.add(identity)

    def deleted(self, place: Place, log_start_offset: int) -> None:
        """Records below an offset were deleted, and are never shown again."""
        self.log_starts[place] = max(log_start_offset, self.log_starts.get(place, 0))

    def told_offset(self, place: Place, offset: int, asked_us: int) -> None:
        """The group was told its committed offset of a partition, -1 for none.

        It must be one that a client asked to commit, and none below an earlier committed one
        the question: a copier goes on where the group is, so its offsets rise.
        """
        where = f"{place[0]}-{place[1]}"
        least = -1
        owners = []
        for attempt in self.attempts:
            committed = attempt.offsets.get(place)
            if committed is None:
                continue
            if committed == offset:
                owners.append(attempt)
            if attempt.fate is Fate.COMMITTED and attempt.ended_us < asked_us:
                least = max(least, committed)
        if offset < least:
            self.found("inconsistent-offset", f"{where} is at {offset}, {least} was committed")
        elif offset >= 0 and all(owner.fate in (Fate.OPEN, Fate.NEVER) for owner in owners):
            fates = ", ".join(f"{owner.name}: {owner.fate.value}" for owner in owners)
            self.found("inconsistent-offset", f"{where} is at {offset}; {fates or 'of nobody'}")
