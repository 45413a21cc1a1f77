"""Transactions: a lane for each transactional id, and a page for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final
from urllib.parse import quote as quote_part
from urllib.parse import urlencode

from txn.admin.cluster import RunningCluster
from txn.cli.transaction_texts import client_text, command_line
from txn.cli.transactions import StateName
from txn.cluster.facts import Owner
from txn.console.faults import NotUnderstoodError
from txn.console.lists import part_of
from txn.console.pages.transactions.lanes import Lane, Span, lane_of
from txn.console.pages.transactions.places import group_offsets, places_of
from txn.console.site import Action, Context, Page, View, Visit
from txn.console.sources import Source
from txn.console.timelines import Axis, Bar
from txn.coordinator.transaction.listing import STATES_BY_LABEL
from txn.errors import ConfigError, RejectedError
from txn.explain.abort import AbortPlan, NothingOpen, carry_out, plan_by_id, plan_by_offset
from txn.explain.questions import described, is_open, listed, partitions_of
from txn.identifiers import TopicPartition
from txn.moments import parse_duration

LANES: Final = 25
OFFSETS_READ: Final = 1_000
"""The newest records of each partition of `__transaction_state` that a timeline reads."""

WINDOWS_MS: Final[Mapping[str, int]] = {
    "1m": 60_000,
    "15m": 900_000,
    "1h": 3_600_000,
    "1d": 86_400_000,
}
DEFAULT_WINDOW: Final = "15m"


@dataclass(frozen=True, slots=True)
class Row:
    """A transactional id with its bars."""

    owner: Owner
    client: str
    is_open: bool
    age_ms: int | None
    bars: Sequence[Bar]


def overview(visit: Visit, source: Source) -> Context:
    """The transactional ids, open ones first, each with its lane."""
    prefix, longer_than = visit.text("prefix"), visit.text("longer_than")
    state = "" if not visit.text("state") else visit.chosen("state", list(StateName))
    window = DEFAULT_WINDOW if not visit.text("window") else visit.chosen("window", [*WINDOWS_MS])
    longer_than_ms = visit.parsed("longer_than", parse_duration, "0s") if longer_than else None
    owners = listed(
        source,
        states=[STATES_BY_LABEL[state]] if state else (),
        longer_than_ms=longer_than_ms,
        prefix=prefix,
    )
    shown = part_of(owners, visit.number("part", 1), LANES)
    now_ms = source.now_ms()
    axis = Axis(now_ms - WINDOWS_MS[window], now_ms)
    options = [f"--state {state}"] if state else []
    options += [f"--longer-than {longer_than}"] if longer_than else []
    options += [f"--prefix {quote(prefix)}"] if prefix else []
    return {
        "title": "Transactions",
        "is_live": source.is_running,
        "shown": shown,
        "rows": _rows(source, shown.items, axis),
        "axis": axis,
        "states": [each.value for each in StateName],
        "windows": list(WINDOWS_MS),
        "window": window,
        "asked": {"state": state, "prefix": prefix, "longer_than": longer_than},
        "address": "/transactions?"
        + urlencode(
            {"state": state, "prefix": prefix, "longer_than": longer_than, "window": window}
        ),
        "command": " ".join(["txn transactions list", *options, source.options]),
    }


def _rows(source: Source, owners: Sequence[Owner], axis: Axis) -> list[Row]:
    try:
        histories = source.histories([each.transactional_id for each in owners], OFFSETS_READ)
    except RejectedError:  # the user may not read the coordinator's topic
        histories = {}
    rows = []
    for owner in owners:
        opened = is_open(owner) and owner.start_ms is not None
        lane = lane_of(histories.get(owner.transactional_id, ()))
        if not lane.spans and opened and owner.start_ms is not None:
            lane = Lane([Span(owner.start_ms, None, None, "open")], ())
        age_ms = axis.end_ms - owner.start_ms if opened and owner.start_ms is not None else None
        client = client_text(owner, source, is_brief=not is_open(owner))
        rows.append(Row(owner, client, is_open(owner), age_ms, _bars(lane, axis)))
    return rows


def _bars(lane: Lane, axis: Axis) -> list[Bar]:
    bars = []
    for span in lane.spans:
        end_ms = axis.end_ms if span.end_ms is None else span.end_ms
        decided_ms = end_ms if span.prepared_ms is None else span.prepared_ms
        bars.append(axis.bar(span.begin_ms, decided_ms, span.outcome, span.outcome))
        if span.prepared_ms is not None:
            bars.append(axis.bar(decided_ms, end_ms, "prepare", "decided, markers on their way"))
    bars += [axis.bar(at_ms, at_ms, "fence", "a new producer fenced it") for at_ms in lane.fences]
    return [bar for bar in bars if bar is not None]


def one(visit: Visit, source: Source) -> Context:
    """One transactional id: its newest transaction, with everything that is in it."""
    transactional_id = _id_of(visit)
    found = described(source, transactional_id)
    owner, timeline, held = found.owner, found.timeline, found.holds
    verdict = held[0].verdict if held else None
    command = None if verdict is None else verdict.command
    axis, logs = places_of(timeline, owner, source.now_ms())
    return {
        "title": transactional_id,
        "is_live": source.is_running,
        "owner": owner,
        "is_open": is_open(owner),
        "timeline": timeline,
        "held": held,
        "left_out": list(found.left_out.items()),
        "client": client_text(owner, source),
        "abort": None if command is None else command_line(command, source),
        "fenced": visit.number("fenced") if visit.text("fenced") else None,
        "topics": sorted({each.partition[0] for each in logs if not each.is_internal}),
        "places": (axis, logs),
        "offsets": group_offsets(source, timeline, owner),
        "command": f"txn transactions describe {quote(transactional_id)} {source.options}",
    }


def plan(visit: Visit, source: Source) -> Context:
    """The effect that an abort would have: of an id, or on a partition that holds it open."""
    if not isinstance(source, RunningCluster):
        raise ConfigError("a stopped broker aborts nothing. Start it first")
    if visit.text("topic"):
        (place,) = partitions_of(source, visit.text("topic"), visit.number("partition"))
        first_offset = visit.number("offset")
        planned: AbortPlan | NothingOpen = plan_by_offset(source, place, first_offset)
        name = f"{place[0]}-{place[1]}"
        title = f"Abort the transaction that hangs on {name}"
        options = f"--topic-partition {quote(name)} --start-offset {first_offset}"
    else:
        transactional_id = _id_of(visit)
        planned = plan_by_id(source, transactional_id)
        place = None
        title = f"Abort the transaction of {transactional_id}"
        options = f"--transactional-id {quote(transactional_id)}"
    is_open = isinstance(planned, AbortPlan)
    return {
        "title": title,
        "plan": planned if isinstance(planned, AbortPlan) else None,
        "why": planned.why if isinstance(planned, NothingOpen) else None,
        "back": _partition_address(place) if place else _address(transactional_id),
        "planned": visit.session.plans.keep(planned) if visit.site.may_write and is_open else None,
        "command": f"txn transactions abort {options} {source.options}",
    }


def abort(visit: Visit) -> str:
    """Abort the transaction of the plan that the page showed, and no other."""
    planned = visit.planned(AbortPlan)
    with visit.session.sources.cluster() as cluster:
        carry_out(cluster, planned)
    if planned.owner is not None:
        address = _address(planned.owner.transactional_id)
        return f"{address}&fenced={planned.owner.producer_epoch}"
    assert planned.held is not None, "a plan is by id or by offset"
    return _partition_address(planned.held.partition)


def _address(transactional_id: str) -> str:
    return f"/transactions/one?{urlencode({'id': transactional_id})}"


def _partition_address(place: TopicPartition) -> str:
    return f"/readers/{quote_part(place[0], safe='')}/{place[1]}"


def _id_of(visit: Visit) -> str:
    found = visit.raw("id")
    if not found:
        raise NotUnderstoodError(
            "parameter id: the address lacks it. Choose a transaction from the list"
        )
    return found


PAGE: Final = Page(
    "Transactions",
    "/transactions",
    (
        ("/transactions", View("pages/transactions/overview.html", overview)),
        ("/transactions/one", View("pages/transactions/one.html", one)),
        ("/transactions/abort", View("pages/transactions/abort.html", plan)),
        ("/transactions/do/abort", Action(abort)),
    ),
)
