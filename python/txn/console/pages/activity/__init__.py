"""Activity: the samples of `txn top`, with charts. It samples while somebody looks, and no more.

A session keeps the newest samples of its newest filters, so that a chart has a past. They are sums,
and a few numbers for each topic on the page, so the memory of a session does not grow.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from txn.admin.activity import (
    GroupActivity,
    TopicActivity,
    TransactionActivity,
    group_activity,
    open_transactions,
    rate,
    topic_activity,
)
from txn.admin.cluster import RunningCluster
from txn.console.pages.activity.charts import Chart, chart_of
from txn.console.site import Context, Page, View, Visit
from txn.console.sources import Source, Sources
from txn.metadata.image import INTERNAL_TOPICS

SAMPLES_MAX: Final = 150
PARTITIONS_MAX: Final = 2_000
"""The most partitions that one look asks; beyond it the names have to be narrowed."""

GROUPS_MAX: Final = 100
"""The most groups that one look asks, the first by name: each takes two requests."""

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
    groups: Mapping[str, GroupActivity]
    transactions: Sequence[TransactionActivity] | None

    @property
    def oldest_s(self) -> float | None:
        """The seconds for which a transaction is open, at most."""
        if self.transactions is None:
            return None
        begun = [each.start_ms for each in self.transactions if each.start_ms is not None]
        return max(self.at_ms - min(begun), 0) / 1000 if begun else 0

    @property
    def lag(self) -> int | None:
        """The offsets that groups have yet to read."""
        known = [each.lag for each in self.groups.values() if each.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of each chart; None: not known."""

    at_ms: int
    written_per_s: float | None
    read_per_s: float | None
    lag: int | None
    held_back: int
    open_transactions: int | None
    oldest_s: float | None


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
    text = visit.text("name")
    fitting = {
        name: own
        for name, own in source.topics().items()
        if name not in INTERNAL_TOPICS and text.lower() in name.lower()
    }
    sampled = sampled_of(fitting)
    topics, stable = topic_activity(source, sampled)
    groups = group_activity(source, stable, GROUPS_MAX) or {}
    look = Look(source.now_ms(), topics, groups, open_transactions(source))
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
    read = {name: _read_rate(before, look, name) for name in groups}
    by_lag = sorted(groups.values(), key=lambda each: (-(each.lag or 0), each.group_id))
    rows = sorted(topics.values(), key=lambda each: (-(rates[each.name] or 0.0), each.name))
    return {
        "title": "Activity",
        "is_live": True,
        "text": text,
        "rows": rows[:ROWS],
        "rates": rates,
        "count": len(rows),
        "groups": by_lag[:ROWS],
        "read": read,
        "is_all_groups": len(groups) < GROUPS_MAX,
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
    return Point(
        now.at_ms,
        _sum(_rate(before, now, name) for name in now.topics),
        _sum(_read_rate(before, now, name) for name in now.groups),
        now.lag,
        sum(each.held_back for each in now.topics.values()),
        None if now.transactions is None else len(now.transactions),
        now.oldest_s,
    )


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [each for each in rates if each is not None]
    return sum(known) if known else None


def _rate(before: Look | None, now: Look, name: str) -> float | None:
    if before is None or name not in before.topics:
        return None
    ends = before.topics[name].end_offsets, now.topics[name].end_offsets
    return rate(*ends, now.at_ms - before.at_ms)


def _read_rate(before: Look | None, now: Look, name: str) -> float | None:
    if before is None or name not in before.groups:
        return None
    offsets = before.groups[name].committed_offsets, now.groups[name].committed_offsets
    return rate(*offsets, now.at_ms - before.at_ms)


def _charts(points: Sequence[Point]) -> list[Chart]:
    times = [each.at_ms for each in points]
    return [
        chart_of("Offsets written a second", times, [each.written_per_s for each in points]),
        chart_of("Offsets that groups commit a second", times, [e.read_per_s for e in points]),
        chart_of("Offsets that groups have yet to read", times, [e.lag for e in points]),
        chart_of("Offsets not yet readable", times, [each.held_back for each in points]),
        chart_of("Open transactions", times, [each.open_transactions for each in points]),
        chart_of("Oldest open transaction, seconds", times, [each.oldest_s for each in points]),
    ]


PAGE: Final = Page(
    "Activity",
    "/activity",
    (("/activity", View("pages/activity/overview.html", overview)),),
    needs_brokers=True,
)
