"""Results of a run of the benches, and one line of its table."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from benches.cases import Case, Figure
from benches.contestants import Txn


@dataclass(frozen=True)
class Line:
    """One figure: medians, the peer's beside them, the target."""

    figure: Figure
    txn: float | None
    kafka: float | None
    kafka_cold: float | None
    limit: float | None

    @property
    def ratio(self) -> float | None:
        """Factor by which txn is better than the warm peer."""
        if not self.txn or not self.kafka:
            return None
        return self.txn / self.kafka if self.figure.is_rate else self.kafka / self.txn

    @property
    def target(self) -> str:
        """The target in words."""
        if self.figure.target is None:
            return ""
        sign = "≥" if self.figure.is_rate else "≤"
        return f"{sign} {self.figure.target:g}{' × Kafka' if self.figure.of_peer else ''}"

    @property
    def is_met(self) -> bool | None:
        """True if the target is reached; None where that cannot be said."""
        return None if self.txn is None else self.figure.is_met(self.txn, self.kafka)


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
    rounds: int
    is_quick: bool
    txn: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    kafka: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    kafka_cold: dict[str, dict[str, float]] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    """Load average before each round: how much else was going on."""

    def note(self, broker: str, case: Case, figures: dict[str, float]) -> None:
        """Keep one round of one case."""
        into = self.txn if broker == Txn.name else self.kafka
        kept = into.setdefault(case.name, defaultdict(list))
        for key, value in figures.items():
            kept[key].append(value)

    def line(self, case: Case, figure: Figure) -> Line:
        """One figure of one case."""
        return Line(
            figure,
            _median(self.txn.get(case.name, {}).get(figure.key)),
            _median(self.kafka.get(case.name, {}).get(figure.key)),
            self.kafka_cold.get(case.name, {}).get(figure.key),
            _median(self.limits.get(figure.limit or "")),
        )


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None
