"""Activity: the samples of `txn top`, with charts. It samples while somebody looks, and no more.

A session keeps its newest samples, so that a chart has a past. They are sums, and a few numbers for
each topic on the page, so the memory of a session does not grow.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from txn.admin.activity import TopicActivity, open_transactions, rate, topic_activity
from txn.admin.cluster import RunningCluster
from txn.console.pages.activity.charts import Chart, chart_of
from txn.console.site import Context, Page, View, Visit
from txn.console.sources import Source, Sources
from txn.metadata.image import INTERNAL_TOPICS

SAMPLES_MAX: Final = 150
PARTITIONS_MAX: Final = 2_000
"""The most partitions that one look asks; beyond it the names have to be narrowed."""

STALE_MS: Final = 60_000
"""An older sample than this is of an earlier visit, and begins no rate."""

ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class Look:
    """One sample of the topics on the page."""

    at_ms: int
    name: str
    topics: dict[str, TopicActivity]
    open_transactions: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of each chart; None: not known."""

    at_ms: int
    written_per_s: float | None
    held_back: int
    open_transactions: int | None


class Past:
    """The newest look of a session, and its points."""

    def __init__(self) -> None:
        self.newest: Look | None = None
        self.points: deque[Point] = deque(maxlen=SAMPLES_MAX)


_PASTS: Final["WeakKeyDictionary[Sources, Past]"] = WeakKeyDictionary()
"""The past of each session; it ends with the session."""
_LOCK: Final = threading.Lock()


def overview(visit: Visit, source: Source) -> Context:
    """Topics by their rate, with charts of their sums."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    text = visit.query.get("name", "").strip()
    names, left_out = _names(source, text)
    topics, _ = topic_activity(source, names)
    transactions = open_transactions(source)
    count = None if transactions is None else len(transactions)
    look = Look(source.now_ms(), text, topics, count)
    with _LOCK:
        past = _PASTS.setdefault(visit.session.sources, Past())
        before = past.newest
        is_next = (
            before is not None and before.name == text and 0 <= look.at_ms - before.at_ms < STALE_MS
        )
        if not is_next:
            before = None
            past.points.clear()
        past.points.append(_point(before, look))
        past.newest = look
        points = list(past.points)
    rates = {name: _rate(before, look, name) for name in topics}
    rows = sorted(topics.values(), key=lambda each: (-(rates[each.name] or 0.0), each.name))
    return {
        "title": "Activity",
        "is_live": True,
        "text": text,
        "rows": rows[:ROWS],
        "rates": rates,
        "count": len(rows),
        "left_out": left_out,
        "charts": _charts(points),
        "command": f"txn top {source.options}",
    }


def _names(source: RunningCluster, text: str) -> tuple[list[str], int]:
    """The topics to sample, and the number of those that are left out."""
    known = source.topics()
    fitting = [
        name for name in known if name not in INTERNAL_TOPICS and text.lower() in name.lower()
    ]
    names: list[str] = []
    partitions = 0
    for name in fitting:
        partitions += len(known[name])
        if partitions > PARTITIONS_MAX:
            break
        names.append(name)
    return names, len(fitting) - len(names)


def _point(before: Look | None, now: Look) -> Point:
    rates = [_rate(before, now, name) for name in now.topics]
    known = [each for each in rates if each is not None]
    return Point(
        now.at_ms,
        sum(known) if known else None,
        sum(each.held_back for each in now.topics.values()),
        now.open_transactions,
    )


def _rate(before: Look | None, now: Look, name: str) -> float | None:
    if before is None or name not in before.topics:
        return None
    ends = before.topics[name].end_offsets, now.topics[name].end_offsets
    return rate(*ends, now.at_ms - before.at_ms)


def _charts(points: Sequence[Point]) -> list[Chart]:
    times = [each.at_ms for each in points]
    return [
        chart_of("Offsets written a second", times, [each.written_per_s for each in points]),
        chart_of("Offsets not yet readable", times, [each.held_back for each in points]),
        chart_of("Open transactions", times, [each.open_transactions for each in points]),
    ]


PAGE: Final = Page(
    "Activity",
    "/activity",
    (("/activity", View("pages/activity/overview.html", overview)),),
    needs_brokers=True,
)
