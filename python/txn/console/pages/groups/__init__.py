"""Groups of both protocols: their lag in committed records, and the reset of their offsets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final
from urllib.parse import urlencode

from txn.admin.cluster import RunningCluster
from txn.admin.groups import (
    OffsetChange,
    commit,
    moved_to,
    new_group,
    require_no_members,
    restored,
    shifted_by,
)
from txn.admin.offset_specs import parse_offset_spec
from txn.cluster.groups import GroupSource, PartitionLag, counted, described
from txn.console.faults import NotUnderstoodError
from txn.console.lists import part_of
from txn.console.site import Action, Context, Page, View, Visit
from txn.console.sources import Source
from txn.errors import ConfigError, RejectedError

OFFSETS_COUNTED: Final = 100_000
"""The most offsets that a followed page reads to count records, over all of its partitions."""

OFFSETS_EXACT: Final = 10_000_000
"""The same for a page that counts once; `txn groups describe --exact` has no such limit."""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The offsets that a page showed, to be committed for a group."""

    group_id: str
    changes: list[OffsetChange]


def overview(visit: Visit, source: Source) -> Context:
    """The groups whose names have a text in them."""
    text = visit.text("name")
    groups = [each for each in running(source).groups() if text.lower() in each.group_id.lower()]
    return {
        "title": "Groups",
        "is_live": True,
        "shown": part_of(groups, visit.number("part", 1)),
        "text": text,
        "address": "/groups?" + urlencode({"name": text}),
        "command": f"txn groups list {source.options}",
    }


def one(visit: Visit, source: Source) -> Context:
    """A group: members, offsets and lag. `exact=1` counts longer distances, and is not followed."""
    group_id = id_of(visit)
    is_exact, number = visit.flag("exact"), visit.number("part", 1)
    cluster = running(source)
    group = described(cluster, group_id, offsets_counted=0)
    part = part_of(group.lags, number)
    places = counted_places(cluster, part.items, OFFSETS_EXACT if is_exact else OFFSETS_COUNTED)
    shown = replace(part, items=places)
    before, after = group.lags[: part.first - 1], group.lags[part.last :]
    group = replace(group, lags=[*before, *places, *after])
    lags = [each.records for each in group.lags]
    return {
        "title": group_id,
        "is_live": not is_exact,
        "is_exact": is_exact,
        "group": group,
        "held": group.held_back,
        "shown": shown,
        "owners": group.owners,
        "lag": sum(each or 0 for each in lags),
        "is_counted": None not in lags,
        "topics": sorted({each.partition[0] for each in group.lags}),
        "command": f"txn groups describe {quote(group_id)} {source.options}"
        + (" --exact" if is_exact else ""),
    }


def counted_places(
    source: GroupSource, places: Sequence[PartitionLag], offsets_max: int
) -> list[PartitionLag]:
    """Count the records of places, as long as the offsets to read are within a limit."""
    found = []
    for place in places:
        found.append(counted(source, place, offsets_max))
        if found[-1].records is not None:
            offsets_max -= place.offsets_left or 0
    return found


def plan(visit: Visit, source: Source) -> Context:
    """The offsets that a reset would commit."""
    cluster = running(source)
    now_ms = cluster.now_ms()
    group_id = id_of(visit)
    topic, to, shift = visit.text("topic"), visit.text("to"), visit.text("shift_by")
    if bool(to) == bool(shift):
        raise NotUnderstoodError(
            "give the offsets in one way: a place by parameter to, or a distance by shift_by"
        )
    place = visit.parsed("to", lambda text: parse_offset_spec(text, now_ms=now_ms), "latest")
    distance = visit.parsed("shift_by", _distance, "0")
    require_no_members(cluster, group_id)
    partitions = cluster.partitions(topic) if topic else list(cluster.committed_offsets(group_id))
    if to:
        changes = moved_to(cluster, group_id, partitions, place)
    else:
        changes = shifted_by(cluster, group_id, partitions, distance)
    new = new_group(cluster, group_id)
    way = f"--to {quote(to)}" if to else f"--shift-by {shift}"
    where = f"--topic {topic}" if topic else "--all-topics"
    return {
        "title": f"Move the offsets of {group_id}",
        "group_id": group_id,
        "changes": changes,
        "note": None if new is None else new.note(),
        "planned": visit.session.plans.keep(ResetPlan(group_id, changes))
        if visit.site.may_write and changes
        else None,
        "command": f"txn groups reset-offsets {quote(group_id)} {where} {way} {source.options}",
    }


def reset(visit: Visit) -> str:
    """Commit the offsets of the plan that the page showed, and no others."""
    found = visit.planned(ResetPlan)
    group_id, planned = found.group_id, found.changes
    with visit.session.sources.cluster() as cluster:
        require_no_members(cluster, group_id)
        wanted = {each.partition: each.after for each in planned}
        if restored(cluster, group_id, wanted) != planned:
            raise RejectedError(
                "the offsets of the group or the ends of its logs have changed since the page "
                "showed the plan. Nothing was done. Look at a new plan first"
            )
        commit(cluster, group_id, planned)
    return f"/groups/one?{urlencode({'id': group_id})}"


def running(source: Source) -> RunningCluster:
    """The cluster; the page is not offered for files."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    return source


def id_of(visit: Visit) -> str:
    """The group that the address names. Raises NotUnderstoodError."""
    found = visit.raw("id")
    if not found:
        raise NotUnderstoodError("parameter id: the address lacks it. Choose a group from the list")
    return found


def _distance(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise ConfigError(f"{text!r} is no distance. Give a number, below 0 to move backwards")
    return int(text)


PAGE: Final = Page(
    "Groups",
    "/groups",
    (
        ("/groups", View("pages/groups/overview.html", overview)),
        ("/groups/one", View("pages/groups/one.html", one)),
        ("/groups/reset", View("pages/groups/reset.html", plan)),
        ("/groups/do/reset", Action(reset)),
    ),
    needs_brokers=True,
)
