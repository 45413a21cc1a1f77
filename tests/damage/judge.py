"""The promise about damage (P9): refused by name, or right; never silent.

A start is *right* if it shows the contents that the same directory shows undamaged. It is *refused
by name* if an error names the file or the partition. It also is if the partition answers with an
error and a log line names it. Only losses that nobody can prove may occur:

- After a kill, records that a cut took from the end of a log beyond its recovery point, as a write
  that was under way would look. A log line tells of it, but where the cut is between two batches.
- After a power failure, records beyond the recovery point, told by a log line, but where the cut is
  between two batches. Offsets are then given out in a new leader epoch. The same holds after a kill
  if the start proves that the storage has lost its cache (`storage.cache_lost`).

`txn log verify` has to find what a start refuses after a clean stop. Without one, the end of a log
may be torn, and it is a note at most.

A cleaner may leave a segment of a compacted topic without a batch: one that is gone is no proof.
After a refusal the advised losses are accepted. The start after that has to serve everything, and
the partitions that were not given up with all their records.

One file holds decisions of its own and, as in Apache Kafka, no checksum: the log starts. There a
log may begin at another offset, and nothing else may change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from damage.cases import DamageCase, damaged_checkpoint
from damage.left import RECOVERY_POINTS, batch_positions, checkpoint_of
from damage.worker import AcceptedStart, BrokerStart, Finding
from support.shown import CONTROL, Shown, ShownPartition

LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED_TO: Final = "cleaner-offset-checkpoint"
LOCK: Final = ".lock"
COORDINATORS: Final = ("__transaction_state", "__consumer_offsets")
METADATA: Final = "__cluster_metadata-0"
UNKNOWN_ID: Final = ["TRANSACTIONAL_ID_NOT_FOUND"]
"""The answer for an id whose records were given up."""


@dataclass
class CaseResult:
    """The result of a case.

    Attributes:
        kind: A word for statistics.
        faults: Broken promises; empty if there are none.
        notes: Observations worth knowing that are no fault.
    """

    kind: str
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(
    case: DamageCase,
    left: Path,
    sound: Sequence[Shown],
    starts: Sequence[BrokerStart],
    findings: Sequence[Finding] | None,
) -> CaseResult:
    """Compare the contents of a damaged directory with the same directory without damage.

    Args:
        case: The damage.
        left: The directory without it.
        sound: Its contents; one of these is right.
        starts: The contents of the damaged one.
        findings: Of `txn log verify`; None if it gave no answer.
    """
    verdicts = [_judge(case, left, each, starts, findings) for each in sound]
    return min(verdicts, key=lambda verdict: len(verdict.faults))


def _judge(
    case: DamageCase,
    left: Path,
    sound: Shown,
    starts: Sequence[BrokerStart],
    findings: Sequence[Finding] | None,
) -> CaseResult:
    verdict = CaseResult("right")
    for number, start in enumerate(starts):
        told = [line for each in starts[: number + 1] for line in each["lines"]]
        _Judgement(case, left, sound, start, told, verdict).pass_()
        if verdict.faults:
            break  # the second start has them too
    is_refused = verdict.kind in ("start refused", "partition refused")
    if findings is None or case.path.endswith(".deleted") or case.path == LOCK:
        return verdict
    if is_refused and not findings:
        what = "`txn log verify` finds nothing where the start refuses"
        (verdict.faults if case.state == "closed" else verdict.notes).append(what)
    if verdict.kind == "right" and any(path.endswith(".log") for path, _ in findings):
        verdict.notes.append(f"verify finds, the start is right: {findings[0]}")
    return verdict


def judge_accepted(sound: Shown, accepted: AcceptedStart, verdict: CaseResult) -> None:
    """Add the faults of the start after all that it advised was given up."""
    start, given_up = accepted["start"], accepted["accepted"]
    if not given_up:
        return  # a copy of the file is the only remedy
    shown = start["shown"]
    if shown is None or accepted["is_stuck"] or start["is_traceback"]:
        told = f"{start['refused']}, {start['lines']}"
        verdict.faults.append(f"given up were {given_up}, and the start says {told}")
        return
    for place, was in sound["partitions"].items():
        found = shown["partitions"].get(place)
        if found is None or found["error"]:
            verdict.faults.append(f"after {given_up} was given up, {place} is {found}")
        elif place not in given_up and not _goes_on(_first_epoch(was), found["batches"]):
            what = _difference(was, found)
            verdict.faults.append(f"after {given_up} was given up, {place} differs: {what}")
    for name, found_id in {**shown["transactions"], **shown["offsets"]}.items():
        is_given_up = found_id == UNKNOWN_ID and any(
            place.startswith("__transaction_state") for place in given_up
        )
        if _is_error(found_id) and not is_given_up:
            verdict.faults.append(f"after {given_up} was given up, {name} is {found_id}")


@dataclass
class _Judgement:
    """One start."""

    case: DamageCase
    left: Path
    sound: Shown
    start: BrokerStart
    told: list[str]
    verdict: CaseResult

    def pass_(self) -> None:
        if self.start["is_traceback"]:
            self._fault(f"a traceback was logged: {self.told}")
        if self.start["refused"] is not None:
            self._judge_refusal(self.start["refused"])
            return
        shown = self.start["shown"]
        assert shown is not None
        for place, sound in self.sound["partitions"].items():
            found = shown["partitions"].get(place)
            if found is None:
                self._fault(f"{place} is gone")
            elif not self._is_same(place, sound, found):
                self._judge_partition(place, sound, found)
        self._judge_state(shown)
        self._judge_open_transactions(shown)
        self._judge_appended(shown)

    @property
    def _has_failed(self) -> bool:
        """The machine, or so the start has to think; or the storage, as a start has proved."""
        return self.case.state == "power" or self.case.path == LOCK or has_lost_cache(self.told)

    def _fault(self, what: str) -> None:
        self.verdict.faults.append(what)

    def _came_to(self, kind: str) -> None:
        if self.verdict.kind == "right":
            self.verdict.kind = kind

    def _is_told(self, place: str) -> bool:
        """Some line names a partition or the damaged file."""
        topic, _, index = place.rpartition("-")
        return any(
            place in line
            or (place == self.case.place and self.case.path in line)
            or (f"topic={topic} " in line and f"partition={index}" in line)
            for line in self.told
        )

    def _judge_refusal(self, refused: str) -> None:
        self._came_to("start refused")
        if not self.start["is_on_purpose"]:
            self._fault(f"the start fails by accident: {refused}")
        if self.case.place not in refused and Path(self.case.path).name not in refused:
            self._fault(f"the refusal names neither file nor partition: {refused}")

    # ------------------------------------------------------------ partitions

    def _is_same(self, place: str, sound: ShownPartition, found: ShownPartition) -> bool:
        """Compare; after a power failure every start writes to the logs of coordinators."""
        if self._has_failed and place.startswith(COORDINATORS) and not found["error"]:
            return _first_epoch(sound) == _first_epoch(found)
        return sound == found

    def _judge_partition(self, place: str, sound: ShownPartition, found: ShownPartition) -> None:
        if found["error"]:
            self._judge_refused_partition(place, sound, found)
        elif self._is_of_log_starts(sound, found):
            self._came_to("another log start")
        elif self._is_gap_of_cleaning(place, sound, found):
            self._came_to("a gap as a cleaner leaves it")
        elif self._is_allowed_loss(place, sound, found) or self._is_of_a_decision(sound, found):
            self._came_to("cut")
        else:
            self._fault(f"{place} is another: {_difference(sound, found)}")

    def _judge_refused_partition(
        self, place: str, sound: ShownPartition, found: ShownPartition
    ) -> None:
        self._came_to("partition refused")
        if found["error"].startswith("DAMAGE"):
            self._fault(f"{place}: {found['error']}")
        if not self._is_told(place):
            self._fault(f"{place} answers {found['error']}, and no line names it")
        if place != self.case.place and not self._may_touch_others(place):
            self._fault(f"{place} is refused for damage in {self.case.path}")
        if found["batches"] != sound["batches"][: len(found["batches"])]:
            self._fault(f"{place} shows other batches: {_difference(sound, found)}")

    def _may_touch_others(self, place: str) -> bool:
        """Damage in the coordinators' logs may leave transactions of other partitions open.

        A recovery point that was damaged upward looks like a log that lost its end.
        """
        if self.case.path == RECOVERY_POINTS:
            noted = damaged_checkpoint(self.case, self.left)
            return noted.get(place, 0) > self.sound["partitions"][place]["end"]
        return self.case.place.startswith(("__transaction_state", METADATA))

    def _is_of_log_starts(self, sound: ShownPartition, found: ShownPartition) -> bool:
        """The log start is a decision that no checksum covers; nothing else may change."""
        if self.case.path != LOG_STARTS:
            return False
        start = max(sound["start"], found["start"])
        return (
            [each for each in sound["batches"] if each[1] >= start]
            == [each for each in found["batches"] if each[1] >= start]
        ) and (sound["end"], sound["stable"]) == (found["end"], found["stable"])

    def _is_allowed_loss(self, place: str, sound: ShownPartition, found: ShownPartition) -> bool:
        """The end of this log is gone, as no broker could prove."""
        if place != self.case.place or self.case.state == "closed":
            return False
        recovery_point = checkpoint_of(self.left, RECOVERY_POINTS).get(place, 0)
        if self._is_finished_again(sound, found):
            return True
        were, are = _first_epoch(sound), _first_epoch(found)
        if are != were[: len(are)] or _end(are, sound["start"]) < recovery_point:
            return False
        if self._has_failed:
            return self._is_told(place) or (self.case.is_cut and self._is_cut_between_batches())
        if found["batches"] != are or found["end"] >= sound["end"]:
            return False
        return self.case.is_cut and (self._is_told(place) or self._is_cut_between_batches())

    def _is_finished_again(self, sound: ShownPartition, found: ShownPartition) -> bool:
        """A kill tore the last record of a coordinator, and the start completed its decision."""
        if not self.case.place.startswith("__transaction_state") or self.case.state != "killed":
            return False
        same = sound["batches"][:-1]
        return self._is_told(self.case.place) and found["batches"][: len(same)] == same

    def _is_gap_of_cleaning(self, place: str, sound: ShownPartition, found: ShownPartition) -> bool:
        """A segment of a compacted topic that was cleaned, and may have lost all its batches."""
        if place != self.case.place or not self.case.is_cut or not place.startswith("compacted"):
            return False
        base = int(Path(self.case.path).stem)
        ends = sorted(int(each.stem) for each in (self.left / place).glob("*.log"))
        end = next((each for each in ends if each > base), 0)
        cleaned = checkpoint_of(self.left, CLEANED_TO).get(place, 0)
        kept = [each for each in sound["batches"] if not base <= each[0] < end]
        return end <= cleaned and found["batches"] == kept and found["end"] == sound["end"]

    def _is_of_a_decision(self, sound: ShownPartition, found: ShownPartition) -> bool:
        """A coordinator lost its end: here only new markers of the start differ."""
        if not self.case.place.startswith("__transaction_state"):
            return False
        if not self._is_told(self.case.place):
            return False
        if self.case.state == "power":
            return _first_epoch(sound) == _first_epoch(found)
        count = len(sound["batches"])
        return (
            self.case.state == "killed"
            and found["batches"][:count] == sound["batches"]
            and all(each[3] & CONTROL for each in found["batches"][count:])
        )

    def _is_cut_between_batches(self) -> bool:
        path = self.left / self.case.path
        stored = path.read_bytes()
        size = {
            "cut by a byte": len(stored) - 1,
            "cut to half": len(stored) // 2,
        }.get(self.case.damage, 0)
        return size in (0, *batch_positions(stored))

    # ------------------------------------------------------------ coordinators

    def _judge_state(self, shown: Shown) -> None:
        ended = {
            name: self.sound["transactions"][name] if self._ends_likewise(name, found) else found
            for name, found in shown["transactions"].items()
        }
        self._hold("__transaction_state", self.sound["transactions"], ended)
        self._hold("__consumer_offsets", self.sound["offsets"], shown["offsets"])

    def _ends_likewise(self, name: str, found: list[Any]) -> bool:
        """After a power failure every start ends open transactions, as far as partitions let it."""
        sound = self.sound["transactions"][name]
        if not self._has_failed or _is_error(found) or found[1] != sound[1]:
            return False
        if any(f"txn.id_not_served transactional_id={name} " in line for line in self.told):
            return True  # it stays as its records say until its partition is there
        is_held_back = found[0].startswith("Prepare") and bool(found[3])
        return found[2] >= sound[2] and (found[0] == sound[0] or is_held_back)

    def _hold(self, topic: str, sound: Mapping[str, object], found: Mapping[str, object]) -> None:
        if found == sound:
            return
        if any(_is_error(each) for each in found.values()):
            self._came_to("partition refused")
            if not any(topic in line for line in self.told):
                self._fault(f"{topic} answers {found}, and no line names it")
            return
        was_cut = self.case.place.startswith(topic) and self.verdict.kind == "cut"
        if not was_cut:
            self._fault(f"{topic} says {found}, not {sound}")

    def _judge_open_transactions(self, shown: Shown) -> None:
        """A transaction that a partition holds open is open with the coordinator; else readers wait
        for ever.
        """
        if any(_is_error(each) for each in shown["transactions"].values()):
            return
        known = {
            (each[1], each[2])
            for each in shown["transactions"].values()
            if each[0] not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
        }
        for place, partition in shown["partitions"].items():
            for producer_id, epoch, _, first in partition["producers"]:
                if first >= 0 and (producer_id, epoch) not in known and not partition["error"]:
                    self._fault(
                        f"{place} holds producer {producer_id}, epoch {epoch} open from {first}, "
                        f"the coordinator says {shown['transactions']}"
                    )

    # ------------------------------------------------------------ what is written next

    def _judge_appended(self, shown: Shown) -> None:
        """An offset of one leader epoch never has another batch."""
        for topic, (error, offset, epoch) in self.start["appended"].items():
            place = f"{topic}-0"
            sound, found = self.sound["partitions"][place], shown["partitions"].get(place)
            if error or found is None:
                continue
            given = _end(_first_epoch(sound), sound["start"])
            again = [offset] if offset < given and epoch <= FIRST_EPOCH else []
            again += [
                each[0]
                for each in _first_epoch(found)
                if each not in sound["batches"] and sound["start"] <= each[0] < given
            ]
            if not again:
                continue
            what = f"{place}: offset {again[0]} is given twice in a leader epoch"
            if self.case.state == "killed" and self._is_allowed_loss(place, sound, found):
                self.verdict.notes.append(what)
            else:
                self._fault(what)


def has_lost_cache(lines: Iterable[str]) -> bool:
    """Return True if a start has proved that the storage lost its cache."""
    return any("storage.cache_lost" in line for line in lines)


def _goes_on(before: list[list[int]], after: list[list[int]]) -> bool:
    """True if nothing but the end was added: the judge and the start itself have written there."""
    return after[: len(before)] == before


FIRST_EPOCH: Final = 0
"""All of a directory is written in it; a start after a power failure begins another."""


def _first_epoch(partition: ShownPartition) -> list[list[int]]:
    """The batches of the directory, without those that the start wrote."""
    return [each for each in partition["batches"] if each[2] <= FIRST_EPOCH]


def _end(batches: Sequence[Sequence[int]], start: int) -> int:
    return batches[-1][1] + 1 if batches else start


def _is_error(value: object) -> bool:
    if isinstance(value, Mapping):
        return "error" in value
    return isinstance(value, list) and len(value) == 1


def _difference(sound: ShownPartition, found: ShownPartition) -> str:
    words = [
        f"{name} {found[name]}, not {sound[name]}"
        for name in ("start", "end", "stable", "aborted", "epochs", "producers")
        if found[name] != sound[name]
    ]
    missing = [each[0] for each in sound["batches"] if each not in found["batches"]]
    added = [each[0] for each in found["batches"] if each not in sound["batches"]]
    if missing:
        words.append(f"{len(missing)} batches from {missing[0]} on are missing")
    if added:
        words.append(f"{len(added)} batches from {added[0]} on are new")
    return "; ".join(words)
