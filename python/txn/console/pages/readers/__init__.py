"""The transactions that hold readers back: `txn explain` as a page, for every topic or for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from txn.cli.transaction_texts import client_text, command_line, waiting_text
from txn.cluster.facts import PartitionOffsets
from txn.console.lists import part_of
from txn.console.site import Context, Page, View, Visit
from txn.console.sources import Source
from txn.explain.questions import (
    Explanation,
    HoldingTransaction,
    all_partitions,
    explain,
    held_open,
    held_where_allowed,
    partitions_of,
)
from txn.identifiers import TopicPartition

EXPLAINED_MAX: Final = 10
"""Partitions of a topic that one page explains: each takes a look at its log."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose readers wait, the transaction that holds them, and those behind it."""

    partition: TopicPartition
    ends: PartitionOffsets
    first: HoldingTransaction
    others: int
    client: str

    @property
    def waiting(self) -> int:
        """Offsets that read_committed does not read yet."""
        return self.ends.end_offset - self.ends.last_stable_offset


def overview(visit: Visit, source: Source) -> Context:
    """Every partition whose readers wait: findings first, then the oldest."""
    partitions = all_partitions(source)
    held, left_out = held_where_allowed(source, partitions)
    places = sorted({each.open.partition for each in held})
    ends = source.ends(places) if places else {}
    found = []
    for place, group in groupby(held, key=lambda each: each.open.partition):
        first, *others = group
        if place in ends:
            client = client_text(first.owner, source)
            found.append(HeldPartition(place, ends[place], first, len(others), client))
    found.sort(key=_urgency)
    findings = sum(each.first.verdict.standing.is_finding for each in found)
    shown = part_of(found, visit.number("part", 1))
    return {
        "title": "Who holds the readers back",
        "is_live": source.is_running,
        "shown": shown,
        "findings": findings,
        "asked": len(set(partitions) - left_out.keys()),
        "left_out": list(left_out.items()),
        "command": f"txn explain {source.options}",
    }


def of_topic(visit: Visit, source: Source) -> Context:
    """The explanation of a topic, or of one of its partitions."""
    topic = visit.path("topic")
    index = int(visit.path("index")) if "index" in visit.request.path_params else None
    partitions = partitions_of(source, topic, index if index is not None else _first(source, topic))
    if index is None:
        partitions = [(topic, each) for each in source.topics()[topic]]
    held = {each.open.partition for each in held_open(source, partitions)}
    places = [each for each in partitions if each in held or index is not None]
    shown = part_of(places, visit.number("part", 1), EXPLAINED_MAX)
    name = topic if index is None else f"{topic}-{index}"
    option = topic if index is None else f"{topic} --partition {index}"
    return {
        "title": name,
        "is_live": source.is_running,
        "topic": topic,
        "shown": shown,
        "explained": [_explained(each, source) for each in explain(source, shown.items)],
        "free": len(partitions) - len(held),
        "command": f"txn explain {option} {source.options}",
    }


def _explained(each: Explanation, source: Source) -> Context:
    first = each.held[0] if each.held else None
    command = None if first is None else first.verdict.command
    return {
        "explanation": each,
        "first": first,
        "others": each.held[1:],
        "client": None if first is None else client_text(first.owner, source),
        "waiting": None if each.waiting is None else waiting_text(each.waiting),
        "command": None if command is None else command_line(command, source),
    }


def _first(source: Source, topic: str) -> int | None:
    """A partition of a topic, so that its name cannot mean two things."""
    known: Sequence[int] = source.topics().get(topic, ())
    return known[0] if known else None


def _urgency(each: HeldPartition) -> tuple[bool, int]:
    return not each.first.verdict.standing.is_finding, each.first.since_ms or 0


PAGE: Final = Page(
    "Held readers",
    "/",
    (
        ("/", View("pages/readers/overview.html", overview)),
        ("/readers/{topic}", View("pages/readers/topic.html", of_topic)),
        ("/readers/{topic}/{index:int}", View("pages/readers/topic.html", of_topic)),
    ),
)
