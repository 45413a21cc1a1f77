"""Results of a run of the benches, and one line of its table."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from benches.cases import Case, Figure
from benches.contestants import KAFKA, TXN


@dataclass(frozen=True)
class Line:
    """One figure: medians, the peer's beside them, the target."""

    figure: Figure
    txn: float | None
    peer: float | None
    peer_cold: float | None
    limit: float | None
    is_held_to_target: bool

    @property
    def ratio(self) -> float | None:
        """Factor by which txn is better than the warm peer."""
        if not self.txn or not self.peer:
            return None
        return self.txn / self.peer if self.figure.is_rate else self.peer / self.txn

    @property
    def target(self) -> str:
        """The target in words."""
        if self.figure.target is None or not self.is_held_to_target:
            return ""
        sign = "≥" if self.figure.is_rate else "≤"
        return f"{sign} {self.figure.target:g}{' × Kafka' if self.figure.of_peer else ''}"

    @property
    def is_met(self) -> bool | None:
        """True if the target is reached; None where that cannot be said."""
        if self.txn is None or not self.is_held_to_target:
            return None
        return self.figure.is_met(self.txn, self.peer)


def shown(value: float | None) -> str:
    """A number with as many digits as one reads."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass
class Results:
    """The results; lists hold one value per round."""

    machine: str
    commit: str
    peer_name: str
    rounds: int
    is_quick: bool
    txn: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    peer: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    peer_cold: dict[str, dict[str, float]] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    """Load average before each round: how much else was going on."""

    @property
    def is_beside_kafka(self) -> bool:
        """Whether the peer is Apache Kafka, which the targets speak of."""
        return self.peer_name == KAFKA

    def note(self, broker: str, case: Case, figures: dict[str, float]) -> None:
        """Keep one round of one case."""
        into = self.txn if broker == TXN else self.peer
        kept = into.setdefault(case.name, defaultdict(list))
        for key, value in figures.items():
            kept[key].append(value)

    def line(self, case: Case, figure: Figure) -> Line:
        """One figure of one case."""
        return Line(
            figure,
            _median(self.txn.get(case.name, {}).get(figure.key)),
            _median(self.peer.get(case.name, {}).get(figure.key)),
            self.peer_cold.get(case.name, {}).get(figure.key),
            _median(self.limits.get(figure.limit or "")),
            self.is_beside_kafka or not figure.of_peer,
        )


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None
