"""Answers about transactions as text for people, and as data for programs."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any, Final

from txn.cluster.facts import FactSource, OpenTransaction, Owner
from txn.coordinator.transaction.states import TxnState
from txn.counts import counted
from txn.explain.questions import (
    DescribedTransaction,
    Explanation,
    HoldingTransaction,
    Timeline,
    WaitingRecords,
    is_open,
)
from txn.explain.verdict import Verdict
from txn.moments import distance, duration, moment, relative

LABEL_WIDTH: Final = 12
FREE_SHOWN_MAX: Final = 3

FROM_CLIENTS: Final = ("records",)
"""The kinds of events whose times clients chose."""


# ---------------------------------------------------------------- explain


def explanation_lines(explanations: Sequence[Explanation], source: FactSource) -> Iterator[str]:
    """Explain which transactions hold back the readers of partitions."""
    shown: dict[tuple[int, int, int | None], str] = {}
    for each in explanations:
        if each.held:
            first = each.held[0]
            transaction = (first.open.producer_id, first.open.producer_epoch, first.since_ms)
            yield from _held_partition(each, source, shown.get(transaction))
            shown.setdefault(transaction, _name(each.partition))
            yield ""
    free = [each for each in explanations if not each.held]
    if len(free) == 1:
        yield (
            f"{_name(free[0].partition)}: no transaction holds readers back; read_committed reads "
            f"to the end, offset {free[0].ends.end_offset}"
        )
    elif free:
        names = ", ".join(_name(each.partition) for each in free[:FREE_SHOWN_MAX])
        more = len(free) - FREE_SHOWN_MAX
        others = f" and {more} more" if more > 0 else ""
        yield f"{names}{others}: no transaction holds readers back"
    if free and not any(each.held for each in explanations):
        group = f": txn groups describe GROUP {source.options}" if source.is_running else ""
        yield (
            "A reader that is stuck all the same waits for something else: look at its group"
            f"{group or '.'}"
        )


def _held_partition(each: Explanation, source: FactSource, shown_at: str | None) -> Iterator[str]:
    """Explain one partition; `shown_at` names an earlier one that the same transaction holds."""
    first, *others = each.held
    begin = each.ends.first_of(first.open)
    yield (
        f"{_name(each.partition)}: read_committed readers wait at offset {begin} "
        f"(the log ends at {each.ends.end_offset})"
    )
    if begin > first.open.first_offset:
        deleted = f"records of it: it began at offset {first.open.first_offset}, the log at {begin}"
        yield _labelled("deleted", deleted)
    yield from _facts(first, source)
    if each.waiting is not None:
        yield _labelled("waiting", waiting_text(each.waiting))
    yield from _outlook(first.verdict, source)
    if others:
        then = ", ".join(
            f"{_owner_name(held)} since offset {held.open.first_offset}" for held in others
        )
        yield _labelled("after that", f"{len(others):,} more open here: {then}")
    if shown_at is not None:
        yield _labelled("timeline", f"the same transaction as at {shown_at}, above")
    elif each.timeline is not None:
        yield from timeline_lines(each.timeline)


def _facts(held: HoldingTransaction, source: FactSource) -> Iterator[str]:
    now_ms = source.now_ms()
    opened, owner = held.open, held.owner
    identity = f"producer {opened.producer_id}, epoch {opened.producer_epoch}"
    yield _labelled("held by", f"{_owner_name(held)} ({identity})" if owner else identity)
    if held.since_ms is not None:
        yield _labelled("since", f"{moment(held.since_ms)}, {relative(held.since_ms, now_ms)}")
    if opened.last_timestamp_ms is not None:
        wrote = f"{moment(opened.last_timestamp_ms)}, {relative(opened.last_timestamp_ms, now_ms)}"
        yield _labelled("last record", wrote)
    yield _labelled("client", client_text(owner, source))


def _outlook(verdict: Verdict, source: FactSource) -> Iterator[str]:
    now_ms = source.now_ms()
    yield _labelled("standing", verdict.standing.value)
    yield _labelled(
        "ended by", verdict.ended_by(lambda at_ms: f"{moment(at_ms)} ({relative(at_ms, now_ms)})")
    )
    yield _labelled("safe to do", verdict.advice)
    if verdict.command is not None:
        yield _labelled("", command_line(verdict.command, source))


def command_line(command: str, source: FactSource) -> str:
    """Return a command with the options that name the cluster it has to reach."""
    return f"{command} {source.options if source.is_running else '--bootstrap HOST:PORT'}"


def client_text(owner: Owner | None, source: FactSource, *, is_brief: bool = False) -> str:
    """Return the last client of a transaction's owner in words, or why it is not known.

    The brief words leave out its request and its connection, which matter while it is open.
    """
    if owner is not None and owner.client is not None:
        client = owner.client
        seen = relative(client.seen_ms, source.now_ms())
        if is_brief:
            return f"{client.client_id!r} from {client.client_host}, {seen}"
        left = "" if client.is_connected else "; the connection of this request is closed"
        return f"{client.client_id!r} from {client.client_host}, {client.request} {seen}{left}"
    if not source.is_running:
        return "not known: the files do not name it"
    if owner is None:
        return "not known: no coordinator has the transaction"
    if owner.tells_client:
        return "not known: it has asked nothing since the broker was started"
    return "not known: Apache Kafka does not tell"


def waiting_text(waiting: WaitingRecords) -> str:
    """Return the number of waiting records in words, by the kind of their transactions."""
    kinds = (
        (waiting.own, "of this transaction"),
        (waiting.others_open, "of others that are open"),
        (waiting.decided, "of transactions that have ended"),
        (waiting.plain, "outside of transactions"),
    )
    parts = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
    most = "" if waiting.is_whole else "at least "
    total = f"{most}{counted(waiting.records, 'record')}"
    return f"{total} in {counted(waiting.offsets, 'offset')}" + (f": {parts}" if parts else "")


def _owner_name(held: HoldingTransaction) -> str:
    if held.owner is None:
        return f"producer {held.open.producer_id}"
    return f"transactional id {held.owner.transactional_id!r}"


# ---------------------------------------------------------------- one id


def description_lines(found: DescribedTransaction, source: FactSource) -> Iterator[str]:
    """Describe one transactional id."""
    owner, held = found.owner, found.holds
    now_ms = source.now_ms()
    yield f"transactional id {owner.transactional_id!r}: {owner.state.label}"
    yield _labelled("producer", f"{owner.producer_id}, epoch {owner.producer_epoch}")
    if owner.updated_ms is not None:
        since = f"{moment(owner.updated_ms)}, {relative(owner.updated_ms, now_ms)}"
        yield _labelled("state since", since)
    if owner.start_ms is not None:
        began = f"{moment(owner.start_ms)}, {relative(owner.start_ms, now_ms)}"
        yield _labelled("begun" if is_open(owner) else "last begun", began)
    timeout = duration(owner.timeout_ms) if owner.has_timeout else "none (two-phase commit)"
    if owner.deadline_ms is not None:
        due = f"{moment(owner.deadline_ms)} ({relative(owner.deadline_ms, now_ms)})"
        timeout += f", aborted at {due}"
    yield _labelled("timeout", timeout)
    yield _labelled("client", client_text(owner, source))
    for topic, index in sorted(owner.partitions):
        here = [each for each in held if each.open.partition == (topic, index)]
        since = f", open since offset {here[0].open.first_offset}" if here else ""
        if (topic, index) in found.left_out:
            since = ", left out"
        yield _labelled("partition", f"{topic}-{index}{since}")
    for each in held[:1]:
        yield from _outlook(each.verdict, source)
    yield from timeline_lines(found.timeline)


def timeline_lines(timeline: Timeline) -> Iterator[str]:
    """List the events of a transaction, with the time since its coordinator first wrote."""
    yield "  timeline"
    by_coordinator = (event.at_ms for event in timeline.events if event.kind not in FROM_CLIENTS)
    start_ms = next(by_coordinator, timeline.events[0].at_ms if timeline.events else 0)
    for event in timeline.events:
        offsets = f"offset {event.first_offset}"
        if event.last_offset != event.first_offset:
            offsets = f"offsets {event.first_offset} to {event.last_offset}"
        what = event.what
        if event.until_ms is not None:
            what += f", until {moment(event.until_ms).split()[1]}"
        since = distance(event.at_ms - start_ms)
        yield f"    {moment(event.at_ms)} {since:>12}  {what}  [{event.log} {offsets}]"
    for note in timeline.notes:
        yield f"    ({note})"


# ---------------------------------------------------------------- many


def list_lines(owners: Sequence[Owner], now_ms: int) -> Iterator[str]:
    """A table of transactional ids."""
    rows = [
        (
            owner.transactional_id,
            owner.state.label,
            f"{owner.producer_id}/{owner.producer_epoch}",
            duration(now_ms - owner.start_ms)
            if is_open(owner) and owner.start_ms is not None
            else "-",
            duration(owner.timeout_ms) if owner.has_timeout else "none",
            str(len(owner.partitions)) if is_open(owner) else "-",
            f"{owner.client.client_id}@{owner.client.client_host}" if owner.client else "?",
        )
        for owner in owners
    ]
    header = (
        "TRANSACTIONAL ID",
        "STATE",
        "PRODUCER/EPOCH",
        "OPEN FOR",
        "TIMEOUT",
        "PARTITIONS",
        "CLIENT",
    )
    yield from table([header, *rows])


def hanging_lines(hanging: Sequence[HoldingTransaction], source: FactSource) -> Iterator[str]:
    """Transactions that hold readers back and will not end by themselves in time."""
    for held in hanging:
        name = _name(held.open.partition)
        yield f"{name} since offset {held.open.first_offset}: {held.verdict.standing.value}"
        yield from _facts(held, source)
        yield from list(_outlook(held.verdict, source))[1:]
        yield ""


def nothing_hangs_lines(
    partitions: int, opened: Sequence[HoldingTransaction], topic: str | None, source: FactSource
) -> Iterator[str]:
    """Say that nothing hangs, and which open transactions hold readers back all the same.

    Args:
        partitions: The number of partitions that were searched.
        opened: The open transactions there; none of them hangs.
        topic: The topic or partition that was asked for; None: every one.
        source: The source of these facts.
    """
    yield f"nothing hangs on {counted(partitions, 'partition')}"
    if opened:
        count = len({each.open.producer_id for each in opened})
        verb = "holds" if count == 1 else "hold"
        where = "" if topic is None else f" {shlex.quote(topic)}"
        yield (
            f"{counted(count, 'transaction')} within the timeout {verb} read_committed readers "
            f"back: txn explain{where} {source.options}"
        )


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns as wide as their contents; never cut off, for scripts read them too."""
    widths = [max(len(row[nth]) for row in rows) for nth in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}"


def _name(partition: tuple[str, int]) -> str:
    return f"{partition[0]}-{partition[1]}"


# ---------------------------------------------------------------- data


def explanation_data(each: Explanation, source: FactSource) -> dict[str, Any]:
    """An explanation as JSON has it."""
    first = each.held[0] if each.held else None
    return {
        "topic": each.partition[0],
        "partition": each.partition[1],
        **asdict(each.ends),
        "held_by": held_data(first, source) if first else None,
        "also_open": [held_data(held, source) for held in each.held[1:]],
        "waiting": asdict(each.waiting) | {"records": each.waiting.records}
        if each.waiting
        else None,
        "timeline": timeline_data(each.timeline) if each.timeline else None,
    }


def held_data(held: HoldingTransaction, source: FactSource) -> dict[str, Any]:
    """An open transaction and how it stands."""
    verdict = held.verdict
    return {
        **_open_data(held.open),
        "owner": owner_data(held.owner) if held.owner else None,
        "standing": verdict.standing.value,
        "since_ms": held.since_ms,
        "is_finding": verdict.standing.is_finding,
        "ended_by": verdict.ended_by(moment),
        "ends_ms": verdict.ends_ms,
        "advice": verdict.advice,
        "command": command_line(verdict.command, source) if verdict.command else None,
    }


def _open_data(opened: OpenTransaction) -> dict[str, Any]:
    topic, index = opened.partition
    return {"topic": topic, "partition": index} | {
        name: value for name, value in asdict(opened).items() if name != "partition"
    }


def owner_data(owner: Owner) -> dict[str, Any]:
    """A transactional id."""
    fields = {name: _plain(value) for name, value in asdict(owner).items()}
    return fields | {"deadline_ms": owner.deadline_ms}


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """A timeline."""
    return {
        "events": [asdict(event) for event in timeline.events],
        "notes": list(timeline.notes),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, TxnState):
        return value.label
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(f"{topic}-{index}" for topic, index in value)
    if isinstance(value, Mapping):
        return dict(value)
    return value
