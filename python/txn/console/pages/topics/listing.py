"""The list of topics, and the partitions of one."""

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from txn.admin.cluster import RunningCluster
from txn.admin.configs import TOPIC, ConfigEntry, described_configs
from txn.cluster.facts import PartitionOffsets
from txn.console.lists import part_of
from txn.console.site import Context, Visit
from txn.console.sources import Source
from txn.errors import ConfigError, RejectedError
from txn.explain.questions import partitions_of
from txn.identifiers import TopicPartition
from txn.metadata.image import INTERNAL_TOPICS

OFFSETS_ASKED_MAX = 2_000
"""The most partitions of which the list of topics asks for offsets."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic; None: its offsets were not asked for, or the user may not know them."""

    name: str
    partitions: int
    offsets: int | None
    held_back: int | None


def overview(visit: Visit, source: Source) -> Context:
    """The topics whose names have a text in them."""
    text = visit.text("name")
    has_internal = visit.flag("internal")
    topics = source.topics()
    names = [
        name
        for name in topics
        if text.lower() in name.lower() and (has_internal or name not in INTERNAL_TOPICS)
    ]
    shown = part_of(names, visit.number("part", 1))
    places: list[TopicPartition] = []
    for name in shown.items:
        if len(places) + len(topics[name]) <= OFFSETS_ASKED_MAX:
            places += [(name, index) for index in topics[name]]
    ends = _ends(source, places)
    rows = []
    for name in shown.items:
        own = [ends[name, index] for index in topics[name] if (name, index) in ends]
        is_known = len(own) == len(topics[name])
        offsets = sum(each.end_offset - each.log_start_offset for each in own)
        held = sum(each.end_offset - each.last_stable_offset for each in own)
        rows.append(
            TopicRow(
                name,
                len(topics[name]),
                offsets if is_known else None,
                held if is_known else None,
            )
        )
    return {
        "title": "Topics",
        "is_live": source.is_running,
        "shown": shown,
        "rows": rows,
        "text": text,
        "has_internal": has_internal,
        "address": "/topics?" + urlencode({"name": text, "internal": "1" if has_internal else "0"}),
        "command": f"txn topics list {source.options}" if source.is_running else None,
    }


def topic(visit: Visit, source: Source) -> Context:
    """The partitions of a topic, and its settings that differ from the cluster's."""
    name = visit.path("topic")
    indexes = source.topics().get(name)
    if indexes is None:
        partitions_of(source, name, 0)  # it raises the error with the nearest name
        raise ConfigError(f"there is no topic {name!r}")
    shown = part_of(list(indexes), visit.number("part", 1))
    ends = source.ends([(name, index) for index in shown.items])
    configs: list[ConfigEntry] | None = None
    if isinstance(source, RunningCluster):
        with suppress(RejectedError):  # the user may not see its settings
            (entries,) = described_configs(source, [(TOPIC, name)])
            configs = [each for each in entries if each.is_override]
    return {
        "title": name,
        "is_live": source.is_running,
        "topic": name,
        "shown": shown,
        "ends": [(index, ends.get((name, index))) for index in shown.items],
        "configs": configs,
        "command": f"txn topics describe {name} {source.options}" if source.is_running else None,
    }


def _ends(source: Source, places: list[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
    if not places:
        return {}
    try:
        return dict(source.ends(places))
    except RejectedError:  # the user may not know them
        return {}
