"""Activity: the samples of `txn top`, with charts. It samples while somebody looks, and no more.

A session keeps the newest samples of its newest filters, so that a chart has a past. They are sums,
and a few numbers for each topic on the page, so the memory of a session does not grow.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
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

FILTERS_MAX: Final = 8
"""The filters of a session that have a past."""


@dataclass(frozen=True, slots=True)
class Look:
    """One sample of the topics on the page."""

    at_ms: int
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
    """The newest look of a session at the topics of a filter, and its points."""

    def __init__(self) -> None:
        self.newest: Look | None = None
        self.points: deque[Point] = deque(maxlen=SAMPLES_MAX)


_PASTS: Final["WeakKeyDictionary[Sources, dict[str, Past]]"] = WeakKeyDictionary()
"""The past of each session by filter, the newest last; it ends with the session."""
_LOCK: Final = threading.Lock()


def overview(visit: Visit, source: Source) -> Context:
    """Topics by their rate, with charts of their sums."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    text = visit.query.get("name", "").strip()
    fitting = {
        name: own
        for name, own in source.topics().items()
        if name not in INTERNAL_TOPICS and text.lower() in name.lower()
    }
    sampled = sampled_of(fitting)
    topics, _ = topic_activity(source, sampled)
    transactions = open_transactions(source)
    count = None if transactions is None else len(transactions)
    look = Look(source.now_ms(), topics, count)
    with _LOCK:
        past = _past_of(visit.session.sources, text)
        before = past.newest
        if before is None or not 0 <= look.at_ms - before.at_ms < STALE_MS:
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
        "left_out": len(fitting) - len(sampled),
        "cut": [name for name, own in sampled.items() if len(own) < len(fitting[name])],
        "charts": _charts(points),
        "command": f"txn top {source.options}",
    }


def sampled_of(fitting: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """The topics to sample, and the partitions of each: as many topics as one look may ask.

    A topic that is too large leaves the others in. If there is no other, its first partitions are
    sampled.
    """
    sampled: dict[str, Sequence[int]] = {}
    left = PARTITIONS_MAX
    for name, own in fitting.items():
        if len(own) <= left:
            sampled[name] = own
            left -= len(own)
    if not sampled:
        sampled = {name: own[:PARTITIONS_MAX] for name, own in [*fitting.items()][:1]}
    return sampled


def _past_of(sources: Sources, text: str) -> Past:
    """The past of a filter in a session; two tabs may have two filters."""
    pasts = _PASTS.setdefault(sources, {})
    pasts[text] = past = pasts.pop(text, None) or Past()
    while len(pasts) > FILTERS_MAX:
        del pasts[next(iter(pasts))]
    return past


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
