"""Everything that is in a transaction: its records in each log, and the offsets of its groups."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from txn.cluster.facts import Owner
from txn.console.sources import Source
from txn.console.timelines import Axis, Bar
from txn.coordinator.group.records import OffsetKey, decode_key, decode_offset_value
from txn.errors import CorruptLogError, RejectedError
from txn.explain.questions import Timeline, is_open
from txn.explain.timeline import Event
from txn.identifiers import TopicPartition
from txn.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC

OFFSETS_SHOWN: Final = 200
"""The most offsets of groups that a page lists."""


@dataclass(frozen=True, slots=True)
class Place:
    """A log with events of a transaction; its bars have a common axis with other places."""

    partition: TopicPartition
    is_internal: bool
    records: str
    first_offset: int | None
    marker: str | None
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """An offset that a transaction commits for a group."""

    group_id: str
    partition: TopicPartition
    offset: int


def places_of(timeline: Timeline, owner: Owner, now_ms: int) -> tuple[Axis | None, list[Place]]:
    """The logs of a transaction and their common axis; the coordinator's log comes first."""
    if not timeline.events:
        return None, []
    newest_ms = max(each.until_ms or each.at_ms for each in timeline.events)
    end_ms = now_ms if is_open(owner) else newest_ms
    start_ms = min(each.at_ms for each in timeline.events)
    padding_ms = max((end_ms - start_ms) // 50, 1)
    axis = Axis(start_ms - padding_ms, end_ms + padding_ms)
    logs = sorted({each.log for each in timeline.events}, key=lambda log: (log[:2] != "__", log))
    return axis, [
        _place(log, [each for each in timeline.events if each.log == log], axis) for log in logs
    ]


def _place(log: str, events: Sequence[Event], axis: Axis) -> Place:
    topic, _, index = log.rpartition("-")
    written = [each for each in events if each.kind == "records"]
    markers = [each for each in events if each.kind == "marker"]
    bars = [
        axis.bar(each.at_ms, each.until_ms or each.at_ms, _kind(each), each.what) for each in events
    ]
    return Place(
        (topic, int(index)),
        topic in INTERNAL_TOPICS,
        ", ".join(each.what for each in written or events),
        written[0].first_offset if written else None,
        markers[0].what if markers else None,
        [bar for bar in bars if bar is not None],
    )


def _kind(event: Event) -> str:
    if event.kind == "marker":
        return "commit" if event.what.lower().startswith("commit") else "abort"
    return {"decision": "prepare", "records": "open"}.get(event.kind, "state")


def group_offsets(source: Source, timeline: Timeline, owner: Owner) -> list[GroupOffset]:
    """The offsets of groups in a transaction; none where the user may not read them."""
    found: dict[tuple[str, TopicPartition], GroupOffset] = {}
    for event in timeline.events:
        topic, _, index = event.log.rpartition("-")
        if event.kind != "records" or topic != OFFSETS_TOPIC:
            continue
        with suppress(RejectedError, CorruptLogError):
            for each in _offsets_in(source, (topic, int(index)), event, owner.producer_id):
                found[each.group_id, each.partition] = each
    return sorted(found.values(), key=lambda each: (each.group_id, each.partition))[:OFFSETS_SHOWN]


def _offsets_in(
    source: Source, log: TopicPartition, event: Event, producer_id: int
) -> Iterator[GroupOffset]:
    for logged, records in source.records(log, event.first_offset):
        if logged.batch.base_offset > event.last_offset:
            return
        if logged.batch.producer_id != producer_id or logged.batch.is_control:
            continue
        for record in records:
            with suppress(ValueError):
                key = decode_key(record.key or b"")
                if isinstance(key, OffsetKey) and record.value is not None:
                    value = decode_offset_value(record.value)
                    yield GroupOffset(key.group_id, (key.topic, key.partition), value.offset)
