"""Names every promise that a history breaks.

Pure: a `History` goes in, anomalies come out, each with its evidence.

    aborted-read          a record is shown though its transaction was aborted, or nobody asked
                          to commit it
    lost-write            a record that was acknowledged, or committed, or shown to a reader is
                          missing at the end
    duplicate             a value is stored twice
    torn-transaction      a transaction whose fate is unknown is shown in part
    offset-split          a group's offsets and the output written with them disagree
    zombie-commit         a commit succeeded that was asked for after another instance had taken
                          the transactional id over
    late-end              an EndTxn that arrived late decided a later transaction of its id
    inconsistent-offset   readers, or a reader and a producer, know other records at one offset
    precommitted-read     a record was shown before its commit was asked for, or of a transaction
                          that then never was
    lso-regress           the last stable offset or the end of a partition moved back
    lso-stuck             the last stable offset did not reach the end after every timeout
    group-stuck           a group did not come to the end of its topic though nothing disturbed it
    reordered             records of one sender lie in another order than they were sent
    skipped-read          a reader that followed the log was not shown what lies between
    phantom               a record that nobody wrote; a transaction's marker, for instance

The known end of an attempt: its client's report, unless another instance had taken its id over
before it asked to commit. Then it is gone, under any answer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harnesses.black_box.facts import EXAMPLES_MAX, Anomaly, HistoryFacts, describe_late
from harnesses.black_box.history import (
    Attempt,
    CopyStage,
    Fate,
    History,
    Partition,
    Row,
    SentRecord,
    original_of,
)
from harnesses.black_box.judge_reads import judge_followers, judge_reads

NAMES: Final = (
    "aborted-read",
    "lost-write",
    "duplicate",
    "torn-transaction",
    "offset-split",
    "zombie-commit",
    "late-end",
    "inconsistent-offset",
    "precommitted-read",
    "lso-regress",
    "lso-stuck",
    "group-stuck",
    "reordered",
    "skipped-read",
    "phantom",
)


def judge(history: History) -> list[Anomaly]:
    """Name every anomaly; none when all promises were kept."""
    facts = HistoryFacts(history)
    return [
        *_judge_stored(facts),
        *_judge_plain(facts),
        *_judge_attempts(facts),
        *_judge_zombies(facts),
        *judge_reads(facts),
        *judge_followers(facts),
        *_judge_offsets(facts),
        *_judge_ends(facts),
        *_judge_stages(facts),
    ]


def _judge_stored(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Everything once, by somebody, and the same for both readers."""
    history = facts.history
    for partition, rows in history.uncommitted.items():
        places: defaultdict[str, list[int]] = defaultdict(list)
        for offset, key, value in rows:
            places[value].append(offset)
            write = facts.writes.get(value)
            if write is None or (write.partition, write.key) != (partition, key):
                yield Anomaly(
                    "phantom",
                    "a record that nobody wrote",
                    {"partition": partition, "offset": offset, "key": key, "value": value},
                )
        for value, offsets in places.items():
            if len(offsets) > 1:
                yield Anomaly(
                    "duplicate",
                    f"a value is stored {len(offsets)} times",
                    {"partition": partition, "value": value, "offsets": offsets},
                )
    for partition, rows in history.committed.items():
        for offset, _, value in sorted(set(rows) - set(history.uncommitted.get(partition, ()))):
            yield Anomaly(
                "phantom",
                "a record is there only under read_committed",
                {"partition": partition, "offset": offset, "value": value},
            )


def _judge_plain(facts: HistoryFacts) -> Iterator[Anomaly]:
    for producer, writes in facts.history.plain.items():
        for write in writes:
            if write.offset is not None and write.value not in facts.stored.get(
                write.partition, {}
            ):
                yield Anomaly(
                    "lost-write",
                    "an acknowledged record is missing",
                    {
                        "producer": producer,
                        "partition": write.partition,
                        "value": write.value,
                        "offset": write.offset,
                    },
                )
        yield from _judge_order(producer, writes, facts.stored)


def _judge_attempts(facts: HistoryFacts) -> Iterator[Anomaly]:
    for attempt in facts.history.attempts:
        shown = [write for write in attempt.writes if facts.is_shown(write)]
        fate, late = facts.fate(attempt), facts.late(attempt)
        about = f"{len(shown)} of {len(attempt.writes)} records are shown"
        evidence = _evidence(facts, attempt, shown)
        is_torn = 0 < len(shown) < len(attempt.writes)
        if late and (is_torn or (fate is Fate.GONE and shown)):
            yield Anomaly(
                "late-end",
                f"{about} of a transaction that is {fate.value}, "
                "during which an earlier one's EndTxn arrived",
                evidence | {"late": [describe_late(end) for end in late]},
            )
        elif fate is Fate.KEPT and len(shown) < len(attempt.writes):
            name = "late-end" if late else "lost-write"
            arrived = {"late": [describe_late(end) for end in late]} if late else {}
            yield Anomaly(name, f"{about} of a committed transaction", evidence | arrived)
        elif fate is Fate.GONE and shown:
            why = "aborted" if attempt.commit_asked_s is None else "given up or superseded"
            yield Anomaly("aborted-read", f"{about} of a transaction that was {why}", evidence)
        elif fate is Fate.UNKNOWN and is_torn:
            yield Anomaly("torn-transaction", f"{about}: neither all nor none", evidence)
        yield from _judge_order(attempt.name, attempt.writes, facts.shown)


def _evidence(facts: HistoryFacts, attempt: Attempt, shown: list[SentRecord]) -> dict[str, Any]:
    found = {write.value for write in shown}
    return {
        "transaction": attempt.name,
        "shown": [
            (*write.partition, facts.shown[write.partition][write.value], write.value)
            for write in shown[:EXAMPLES_MAX]
        ],
        "missing": [
            (*write.partition, write.offset, write.value)
            for write in attempt.writes
            if write.value not in found
        ][:EXAMPLES_MAX],
    }


def _judge_order(
    sender: str, writes: list[SentRecord], found: Mapping[Partition, Mapping[str, int]]
) -> Iterator[Anomaly]:
    last: dict[Partition, tuple[int, str]] = {}
    for write in writes:
        offset = found.get(write.partition, {}).get(write.value)
        if offset is None:
            continue
        before = last.get(write.partition, (-1, ""))
        if offset < before[0]:
            yield Anomaly(
                "reordered",
                "a record lies before one that was sent before it",
                {
                    "sender": sender,
                    "partition": write.partition,
                    "rows": [before, (offset, write.value)],
                },
            )
        last[write.partition] = (offset, write.value)


def _judge_zombies(facts: HistoryFacts) -> Iterator[Anomaly]:
    for attempt in facts.history.attempts:
        successor = facts.successor(attempt)
        # A transaction without records may be committed without asking the broker.
        if attempt.writes and attempt.fate is Fate.KEPT and successor is not None:
            yield Anomaly(
                "zombie-commit",
                "a commit succeeded after another instance had taken over",
                {
                    "transaction": attempt.name,
                    "instance": attempt.instance,
                    "successor": successor,
                    "values": [write.value for write in attempt.writes][:EXAMPLES_MAX],
                },
            )


def _judge_offsets(facts: HistoryFacts) -> Iterator[Anomaly]:
    """One offset, one record, in every source.

    An acknowledgement of records that were never committed promises nothing for ever: a power
    failure may take it back.
    """
    known: dict[tuple[Partition, int], tuple[str, str]] = {}
    told: list[tuple[str, Partition, int, str]] = [
        (reader, partition, offset, value)
        for reader, view in (
            ("final read_uncommitted", facts.history.uncommitted),
            ("final read_committed", facts.history.committed),
        )
        for partition, rows in view.items()
        for offset, _, value in rows
    ]
    told += [(read.reader, read.partition, read.offset, read.value) for read in facts.history.reads]
    told += [
        ("producer", write.partition, write.offset, write.value)
        for write in facts.writes.values()
        if write.offset is not None and _is_to_stay(facts, write)
    ]
    for teller, partition, offset, value in told:
        first, expected = known.setdefault((partition, offset), (teller, value))
        if value != expected:
            yield Anomaly(
                "inconsistent-offset",
                "one offset, two records",
                {
                    "partition": partition,
                    "offset": offset,
                    "values": {first: expected, teller: value},
                },
            )


def _is_to_stay(facts: HistoryFacts, write: SentRecord) -> bool:
    if not facts.history.power_losses:
        return True
    attempt = facts.attempt_of.get(write.value)
    return attempt is not None and facts.fate(attempt) is Fate.KEPT


def _judge_ends(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Ends never move back, but that of a machine that lost power may."""
    highest: dict[tuple[str, str, Partition], tuple[int, float]] = {}
    for end in sorted(facts.history.ends, key=lambda end: end.at_s):
        place = (end.reader, end.isolation, end.partition)
        before, at_s = highest.get(place, (-1, 0.0))
        if any(at_s <= loss_s <= end.at_s for loss_s in facts.history.power_losses):
            before = -1
        if end.offset < before:
            yield Anomaly(
                "lso-regress",
                f"the end of a partition under {end.isolation} moved back",
                {"partition": end.partition, "from": before, "to": end.offset},
            )
        highest[place] = (max(before, end.offset), end.at_s)
    for partition, (stable, log_end) in facts.history.stuck.items():
        yield Anomaly(
            "lso-stuck",
            "the last stable offset does not reach the end though every transaction is over",
            {"partition": partition, "last_stable_offset": stable, "end": log_end},
        )


def _judge_stages(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Outputs hold their input up to the group's offset: all of it, once, in order."""
    for stage in facts.history.stages:
        for partition, rows in facts.history.committed.items():
            if partition[0] == stage.source:
                yield from _judge_stage(facts, stage, partition, rows)


def _judge_stage(
    facts: HistoryFacts, stage: CopyStage, partition: Partition, rows: list[Row]
) -> Iterator[Anomaly]:
    position = facts.history.group_offsets.get((stage.group, partition), 0)
    if rows and position <= rows[-1][0]:
        yield Anomaly(
            "group-stuck",
            "a group did not come to the end of its topic",
            {"group": stage.group, "partition": partition, "at": position, "last": rows[-1][0]},
        )
    wanted = [value for offset, _, value in rows if offset < position]
    copies = facts.history.committed.get((stage.sink, partition[1]), [])
    got = [original_of(value) for _, _, value in copies]
    if got == wanted:
        return
    missing, extra = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    yield Anomaly(
        "offset-split",
        f"{len(wanted)} records lie before the group's offset and {len(got)} copies were made"
        + ("" if missing or extra else ", in another order"),
        {
            "group": stage.group,
            "partition": partition,
            "position": position,
            "not_copied": sorted(missing)[:EXAMPLES_MAX],
            "copied_too_often": sorted(extra)[:EXAMPLES_MAX],
        },
    )
