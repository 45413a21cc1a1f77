"""Judges the records that readers saw under read_committed while the run went on."""

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from harnesses.black_box.facts import EXAMPLES_MAX, Anomaly, HistoryFacts, describe_late
from harnesses.black_box.history import Fate, Partition, ReadRecord, Row


def judge_reads(facts: HistoryFacts) -> Iterator[Anomaly]:
    """A record shown under read_committed was decided by then, and stays."""
    told: set[tuple[str, str]] = set()
    for read in facts.history.reads:
        anomaly = _fault_of(facts, read)
        if anomaly is not None and (anomaly.name, read.value) not in told:
            told.add((anomaly.name, read.value))
            yield anomaly


def _fault_of(facts: HistoryFacts, read: ReadRecord) -> Anomaly | None:
    evidence: dict[str, Any] = {
        "reader": read.reader,
        "partition": read.partition,
        "offset": read.offset,
        "value": read.value,
    }
    if read.value not in facts.writes:
        return Anomaly("phantom", "a reader was shown a record that nobody wrote", evidence)
    is_there = read.value in facts.shown.get(read.partition, {})
    attempt = facts.attempt_of.get(read.value)
    if attempt is None:
        if is_there:
            return None
        return Anomaly("lost-write", "a record that a reader was shown is missing", evidence)
    evidence["transaction"] = attempt.name
    asked_s = attempt.commit_asked_s
    if facts.late(attempt) and (asked_s is None or read.at_s < asked_s):
        evidence["late"] = [describe_late(end) for end in facts.late(attempt)]
        return Anomaly("late-end", "a record was shown before its commit was asked for", evidence)
    if asked_s is not None and read.at_s < asked_s:
        evidence["early_s"] = round(asked_s - read.at_s, 3)
        story = "a record was shown before its commit was asked for"
        return Anomaly("precommitted-read", story, evidence)
    if is_there:  # `_judge_attempts` names its fault
        return None
    names = {
        Fate.KEPT: ("lost-write", "a committed record that a reader was shown is missing"),
        Fate.GONE: ("aborted-read", "a reader was shown a record of an aborted transaction"),
        Fate.UNKNOWN: (
            "precommitted-read",
            "a reader was shown a record of a transaction that then was undone",
        ),
    }
    name, story = names[facts.fate(attempt)]
    return Anomaly(name, story, evidence)


def judge_followers(facts: HistoryFacts) -> Iterator[Anomaly]:
    """No record that a follower should have seen lies between two that it saw."""
    last: dict[tuple[str, Partition], int] = {}
    for read in facts.history.reads:
        if not read.is_following:
            continue
        before = last.get((read.reader, read.partition), -1)
        last[read.reader, read.partition] = read.offset
        if read.offset <= before:  # it began anew
            continue
        between = [
            (offset, value)
            for offset, _, value in _rows_between(facts, read.partition, before, read.offset)
        ]
        if between:
            yield Anomaly(
                "skipped-read",
                f"{len(between)} committed records before it were not shown",
                {
                    "reader": read.reader,
                    "partition": read.partition,
                    "offset": read.offset,
                    "skipped": between[:EXAMPLES_MAX],
                },
            )


def _rows_between(facts: HistoryFacts, partition: Partition, after: int, before: int) -> list[Row]:
    rows = facts.history.committed.get(partition, [])
    low = bisect_left(rows, after + 1, key=itemgetter(0))
    return rows[low : bisect_left(rows, before, key=itemgetter(0))]
