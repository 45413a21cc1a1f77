"""A query's distance from the ends of its topics: the metrics of Spark's Kafka source.

    spark.streams.addListener(txn.spark.ProgressListener(print))

Spark asks a source in Python for no metrics, so the query's own progress has none. Its offsets are
enough to compute them. Spark also asks for no description: each source in Python has the name of a
class of Spark's. The offsets name its topics, too.

Source: KafkaMicroBatchStream.metrics, Spark 4.2 (names and arithmetic).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from txn.spark.logs import log
from txn.spark.mark import Mark, topics_of

IN_PYTHON: Final = "org.apache.spark.sql.execution.datasources.v2.python."
"""Spark's description of a source in Python begins so, and a number follows."""


class ProgressListener(StreamingQueryListener):
    """Adds `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`.

    The description of a source of txn becomes `txn[topic, topic]`.

    Args:
        report: Is called with every progress of every query; `sources[n].metrics` of txn's sources
            has the three, as text, as that of Spark's Kafka source has. None: the logger
            `txn.spark` gets a line per source at INFO.
    """

    def __init__(self, report: Callable[[StreamingQueryProgress], object] | None = None) -> None:
        self._report = report if report is not None else _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to add."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add metrics and descriptions, and report."""
        for source, metrics in zip(
            event.progress.sources, offsets_behind(event.progress), strict=True
        ):
            source.metrics.update(metrics)
            source["description"] = _description(source)
        self._report(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to add."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to add."""


def offsets_behind(progress: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the metrics of each source of a progress, as `query.lastProgress` gives it.

    Returns:
        Per source the three metrics, as text. Empty for a source that is not of Kafka's kind or has
        not looked at its topics yet.
    """
    return [_behind(source["endOffset"], source["latestOffset"]) for source in progress["sources"]]


def _behind(end: Any, latest: Any) -> dict[str, str]:
    consumed, present = _mark(end), _mark(latest)
    if consumed is None or present is None or not present.at:
        return {}
    behind = [at - consumed.at.get(place, 0) for place, at in present.at.items()]
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _description(source: Mapping[str, Any]) -> str:
    """Which topics a source reads, if it is one in Python; else Spark's own description."""
    told: str = source["description"]
    end = _mark(source["endOffset"])
    if end is None or not told.startswith(IN_PYTHON):
        return told
    return f"txn[{', '.join(topics_of(end.at))}]"


def _mark(offsets: Any) -> Mark | None:
    """The offsets of a source; None if they are not of Kafka's form."""
    try:
        return Mark.from_json(json.loads(offsets) if isinstance(offsets, str) else offsets)
    except (ValueError, AttributeError, TypeError):
        return None


def _log(progress: StreamingQueryProgress) -> None:
    for source in progress.sources:
        if "maxOffsetsBehindLatest" in source.metrics:
            log.info(
                "query.progress query=%s batch=%d source=%s rows=%d %s",
                progress.name or progress.id,
                progress.batchId,
                source.description,
                source.numInputRows,
                " ".join(f"{name}={value}" for name, value in source.metrics.items()),
            )
