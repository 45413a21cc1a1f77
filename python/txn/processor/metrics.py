"""The counts and times of a processor."""

import threading
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts since the processor was made, and its lag now.

    Attributes:
        handled: Records whose results are committed.
        failed: Failures of the handler, each attempt by itself.
        retried: Records that were written to a retry topic.
        dead_lettered: Records that were written to the topic of dead letters.
        transactions: Transactions that committed.
        aborted: Transactions that did not commit; their records were handled again.
        handler_seconds: Time in the handler, its back-off included.
        transaction_seconds: Time from the begin of transactions to their end.
        lag: Records of the assigned partitions that are not committed yet, as far as known.
            Markers of transactions count too until the end of a partition is reached.
    """

    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    transactions: int = 0
    aborted: int = 0
    handler_seconds: float = 0.0
    transaction_seconds: float = 0.0
    lag: int = 0


@dataclass(slots=True)
class Counters:
    """The counts of `Metrics` while they change; any thread may add."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _values: dict[str, float] = field(
        default_factory=lambda: {each.name: 0 for each in fields(Metrics)}
    )
    _lags: dict[int, int] = field(default_factory=dict)

    def add(self, **counts: float) -> None:
        """Add to counts, by their names in `Metrics`."""
        with self._lock:
            for name, count in counts.items():
                self._values[name] += count

    def set_lag(self, worker: int, lag: int) -> None:
        """Set the lag of one worker's partitions, in records."""
        with self._lock:
            self._lags[worker] = lag

    def metrics(self) -> Metrics:
        """Return the counts of one moment."""
        with self._lock:
            values = self._values | {"lag": sum(self._lags.values())}
        return Metrics(**values)  # type: ignore[arg-type] # counts are whole by what is added
