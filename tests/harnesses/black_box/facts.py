"""A history with the facts that several judges need, and the form of their findings."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from harnesses.black_box.history import (
    Attempt,
    Fate,
    History,
    Instance,
    LateEndTxn,
    Partition,
    SentRecord,
    View,
)

EXAMPLES_MAX: Final = 5
"""Most values or offsets in one piece of evidence."""


@dataclass(frozen=True)
class Anomaly:
    """A broken promise.

    Attributes:
        name: One of `NAMES`.
        story: The events, in a sentence.
        evidence: The transaction, values and offsets; plain data.
    """

    name: str
    story: str
    evidence: dict[str, Any]

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in self.evidence.items())
        return f"{self.name}: {self.story} [{facts}]"


class HistoryFacts:
    """A history with the indexes that several judges need."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.attempt_of = {
            write.value: attempt for attempt in history.attempts for write in attempt.writes
        }
        plain = [write for writes in history.plain.values() for write in writes]
        transactional = [write for attempt in history.attempts for write in attempt.writes]
        self.writes = {write.value: write for write in plain + transactional}
        self.shown = _offsets(history.committed)
        self.stored = _offsets(history.uncommitted)
        self._instances = {instance.name: instance for instance in history.instances}
        self._of_id: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in sorted(history.instances, key=lambda instance: instance.asked_s):
            self._of_id[instance.transactional_id].append(instance)

    def is_shown(self, write: SentRecord) -> bool:
        """Say whether a read_committed reader finds it at the end."""
        return write.value in self.shown.get(write.partition, {})

    def successor(self, attempt: Attempt) -> str | None:
        """An instance that had certainly taken over before this attempt asked to commit."""
        own = self._instances.get(attempt.instance)
        if attempt.commit_asked_s is None or own is None:
            return None
        others = self._of_id[attempt.transactional_id]
        for other in others[bisect_right(others, own.ready_s, key=attrgetter("asked_s")) :]:
            if other.asked_s >= attempt.commit_asked_s:
                break
            if other.ready_s < attempt.commit_asked_s:
                return other.name
        return None

    def fate(self, attempt: Attempt) -> Fate:
        """Its end, as far as anybody can know."""
        return attempt.fate if self.successor(attempt) is None else Fate.GONE

    def late(self, attempt: Attempt) -> list[LateEndTxn]:
        """The ends of earlier transactions that arrived while this one was open."""
        until_s = float("inf") if attempt.ended_s is None else attempt.ended_s
        return [
            end
            for end in self.history.late
            if end.transactional_id == attempt.transactional_id
            and end.received_s < attempt.began_s <= end.forwarded_s <= until_s
        ]


def _offsets(view: View) -> dict[Partition, dict[str, int]]:
    return {
        partition: {value: offset for offset, _, value in rows} for partition, rows in view.items()
    }


def describe_late(end: LateEndTxn) -> dict[str, Any]:
    return {
        "transactional_id": end.transactional_id,
        "producer_id": end.producer_id,
        "producer_epoch": end.producer_epoch,
        "is_commit": end.is_commit,
        "held_s": round(end.forwarded_s - end.received_s, 3),
    }
