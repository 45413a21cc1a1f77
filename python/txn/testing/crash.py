"""Runs a program again and again, stopped at each step of its protocol: `crash_everywhere`.

1. Input is written, and a snapshot is made.
2. The program runs once on a branch of the snapshot, undisturbed. Its requests are the *steps*:
   the third Produce, the second EndTxn. Its output is the expected one, unless the caller gives
   another.
3. For each step and each kind of stop the program runs on another branch, and is stopped there.
   If it does not continue by itself, it is started again, until its input is consumed.
4. Open transactions expire by the broker's clock. Then each expected record has to be in the output
   exactly once for read_committed readers, and nothing else.

`stops.py` has the kinds of stops. A stop whose step is not reached in its run is counted. If most
stops are not reached, the runs test nothing, and this is an error too.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from txn.counts import counted
from txn.errors import RejectedError
from txn.hints import did_you_mean
from txn.testing.broker import Snapshot, TestBroker
from txn.testing.client import Record
from txn.testing.faults import Fault
from txn.testing.program import Program, Run, program_of
from txn.testing.stage import STARTS_MAX, TRANSACTION_TIMEOUT_MS, Stage
from txn.testing.stops import HAPPENS, STOPS, Point
from txn.testing.story import Step, Story
from txn.testing.wire import api_key

LOST: Final = "lost: "
INPUT: Final = {"in": [f"record {number}" for number in range(6)]}
TIMEOUT_S: Final = 30.0
SECOND_S: Final = 20.0
"""Limit for a second instance."""
PROGRESS_S: Final = 5.0
NOT_REACHED_MAX: Final = 0.5
"""Share of stops that may come to nothing."""

Inputs = Mapping[str, Sequence["bytes | str | tuple[bytes | str | None, bytes | str | None]"]]
Identity = Callable[[Record], object]
Contents = dict[str, list[object]]
"""Identities of records by topic, lines by file."""


@dataclass(frozen=True)
class Finding:
    """A run whose output is wrong: the faults, and the story that led there."""

    point: Point
    faults: tuple[str, ...]
    lines: tuple[str, ...]

    def text(self) -> str:
        """The story, with its end."""
        return "\n".join((*self.lines, *(f"  ⇒ {fault}" for fault in self.faults)))


@dataclass(frozen=True)
class CrashReport:
    """The result of `crash_everywhere`.

    Attributes:
        steps: The steps of the run that was watched.
        runs: Number of runs that were stopped.
        not_reached: The stops whose step did not come again.
        findings: The runs with a wrong output, the shortest story first.
        seconds: Time that it took.
    """

    steps: tuple[str, ...]
    runs: int
    not_reached: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float

    def text(self) -> str:
        """Counts, and the shortest story."""
        wrong = len(self.findings)
        head = (
            f"crash_everywhere: {len(self.steps)} steps, {self.runs} runs, each stopped at one of "
            f"them; {len(self.not_reached)} not reached; {wrong} wrong ({self.seconds:.1f} s)"
        )
        if not wrong:
            return head
        by_stop = Counter(finding.point.stop for finding in self.findings)
        counts = ", ".join(f"{count} by {stop}" for stop, count in by_stop.items())
        first = self.findings[0]
        again = f"stops=[{first.point.stop!r}], steps=[{str(first.point.step)!r}]"
        return (
            f"{head}\nwrong: {counts}\nThe shortest story, {first.point}:\n{first.text()}\n"
            f"Play it alone: crash_everywhere(…, {again})"
        )


def crash_everywhere(
    app: Callable[..., object] | Sequence[str] | str,
    *,
    input: Inputs | Callable[[TestBroker], object] = INPUT,
    output: str | Sequence[str] = "out",
    files: str | Sequence[str] = (),
    expected: Mapping[str, Sequence[object]] | None = None,
    identity: Identity | None = None,
    stops: Sequence[str] = tuple(STOPS),
    steps: Sequence[str] | None = None,
    quick: int | None = None,
    jobs: int | None = None,
    timeout: float = TIMEOUT_S,
    partitions: int = 1,
    properties: Mapping[str, object] | None = None,
) -> CrashReport:
    """Stop a consume-transform-produce program at every step, and check its output exactly once.

    The program consumes its input in a consumer group. It may end when no more records arrive, or
    run for ever: it is stopped once its input is consumed.

    Args:
        app: A function at the top level of a module, called with the bootstrap servers in a
            process of its own, and with a directory for its files if it has two parameters. Or a
            command: `{servers}` and `{directory}` in its words are replaced, and it finds them in
            the variables BOOTSTRAP_SERVERS and RUN_DIRECTORY too.
        input: Records by topic, values or (key, value) pairs; or a function that prepares a
            broker. A program without an input topic is done when it ends with code 0.
        output: The topics that it writes. The topics of input and output are created.
        files: Names of files in its directory, whose lines are output too: side effects.
        expected: The output by topic and file, as `identity` returns it. None means the output of
            the undisturbed run.
        identity: Returns the part of a record that is compared; by default key and value.
        stops: The kinds of stops; `txn.testing.STOPS` lists all.
        steps: The steps at which to stop: "EndTxn" for each, "EndTxn 2" for one. None means all.
        quick: The largest number of runs, spread over all steps. None means every run.
        jobs: Number of runs at a time, by default the number of processors.
        timeout: Seconds that a run may take before it is ended and started again.
        partitions: Number of partitions of the topics.
        properties: Properties of the broker.

    Returns:
        The counts. They are printed on standard error, too.

    Raises:
        AssertionError: an output is wrong; the message has the shortest story.
        RejectedError: the program cannot be run in this way, or fails even undisturbed.
    """
    began_s = time.monotonic()
    for stop in stops:
        if stop not in STOPS:
            hint = did_you_mean(stop, STOPS) or f"; they are {', '.join(STOPS)}"
            raise RejectedError(f"there is no stop {stop!r}{hint}")
    topics = [output] if isinstance(output, str) else list(output)
    names = [files] if isinstance(files, str) else list(files)
    with program_of(app) as program, TestBroker(properties=properties) as broker:
        sources = _prepare(broker, input, topics, partitions)
        with broker.snapshot() as snapshot:
            player = _Player(
                program, snapshot, sources, topics, names, identity or _key_and_value, timeout
            )
            clean = player.watch_undisturbed()
            player.expect(clean.contents if expected is None else _listed(expected))
            watched = clean.story.steps()
            points = _spread(_points(_chosen(watched, steps), stops), quick)
            results = _play_all(player, points, jobs or os.cpu_count() or 1)
    not_reached = tuple(str(each.point) for each in results if not each.was_reached)
    found = [each.finding() for each in results if each.faults]
    found.sort(key=lambda finding: (len(finding.lines), points.index(finding.point)))
    report = CrashReport(
        tuple(map(str, watched)), len(points), not_reached, tuple(found), time.monotonic() - began_s
    )
    _print_progress(report.text().splitlines()[0])
    if found:
        raise AssertionError(report.text())
    if len(not_reached) > NOT_REACHED_MAX * len(points):
        raise RejectedError(
            f"{len(not_reached)} of {len(points)} stops did not happen, since the program takes "
            f"other steps in each run: {', '.join(not_reached[:5])}. Give it batches of a fixed "
            "size, so that its runs are alike"
        )
    return report


def _prepare(
    broker: TestBroker,
    given: Inputs | Callable[[TestBroker], object],
    outputs: Sequence[str],
    partitions: int,
) -> list[str]:
    """Write the input; return its topics."""
    if callable(given):
        given(broker)
    elif not given:
        raise RejectedError("there is no input: give records by topic, or a function that writes")
    else:
        for topic, records in given.items():
            broker.create_topic(topic, partitions)
            broker.produce(topic, *records)
    sources = [topic for topic in broker.topics() if topic not in outputs]
    for topic in outputs:
        if topic not in broker.topics():
            broker.create_topic(topic, partitions)
    return sources


def _chosen(watched: Sequence[Step], steps: Sequence[str] | None) -> Sequence[Step]:
    """The steps of a run that the caller names. Raises RejectedError: it has no such step."""
    if steps is None:
        return watched
    for name in steps:
        api_key(name.partition(" ")[0])
    chosen = [step for step in watched if {str(step), str(step).partition(" ")[0]} & set(steps)]
    if not chosen:
        raise RejectedError(
            f"the program takes no step {' or '.join(steps)}. It takes "
            f"{', '.join(map(str, watched))}"
        )
    return chosen


def _points(steps: Sequence[Step], stops: Sequence[str]) -> list[Point]:
    points = [Point(stop, step) for step in steps for stop in stops if step.key in STOPS[stop][1]]
    if not points:
        raise RejectedError(
            f"the program took no step at which to {' or '.join(stops)}. It took "
            f"{', '.join(map(str, steps))}"
        )
    return points


def _spread(points: list[Point], count: int | None) -> list[Point]:
    """At most `count` of the points, evenly spread over each stop and over the steps."""
    if count is None or count >= len(points):
        return points
    if count < 1:
        raise RejectedError(f"quick is the number of runs, 1 or more, not {count}")
    ordered = sorted(points, key=lambda point: list(STOPS).index(point.stop))
    chosen = {ordered[at * len(ordered) // count] for at in range(count)}
    return [point for point in points if point in chosen]


def _play_all(player: "_Player", points: Sequence[Point], jobs: int) -> "list[_Result]":
    results: list[_Result] = []
    began_s = reported_s = time.monotonic()
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="txn-crash")
    try:
        for future in as_completed([pool.submit(player.play, point) for point in points]):
            results.append(future.result())
            now_s = time.monotonic()
            if now_s - reported_s >= PROGRESS_S:
                reported_s = now_s
                wrong = sum(bool(result.faults) for result in results)
                _print_progress(
                    f"crash_everywhere: {len(results)} of {len(points)} runs, {wrong} wrong, "
                    f"{now_s - began_s:.0f} s"
                )
    finally:
        player.give_up.set()
        pool.shutdown(cancel_futures=True)
        player.give_up.clear()
    return results


@dataclass(frozen=True)
class _Clean:
    story: Story
    contents: Contents


@dataclass(frozen=True)
class _Result:
    point: Point
    was_reached: bool
    faults: tuple[str, ...]
    story: Story

    def finding(self) -> Finding:
        return Finding(self.point, self.faults, tuple(self.story.lines()))


class _Player:
    """Plays the runs of one program."""

    def __init__(
        self,
        program: Program,
        snapshot: Snapshot,
        sources: Sequence[str],
        topics: Sequence[str],
        files: Sequence[str],
        identity: Identity,
        timeout_s: float,
    ) -> None:
        self._program = program
        self._snapshot = snapshot
        self._sources = sources
        self._topics = topics
        self._files = files
        self._identity = identity
        self._timeout_s = timeout_s
        self._expected: Contents = {}
        self.give_up = threading.Event()
        """Set when the others' runs are of no use any more."""

    def expect(self, contents: Contents) -> None:
        """Set the expected output. Raises RejectedError: it is empty, or names another."""
        places = [*self._topics, *self._files]
        for place in contents:
            if place not in places:
                raise RejectedError(
                    f"expected names {place!r}, and outputs are {', '.join(places)}"
                )
        if not any(contents.values()):
            raise RejectedError(
                f"the program wrote nothing into {', '.join(places)} when nothing stopped it. "
                "Name its topics in output="
            )
        self._expected = contents

    def watch_undisturbed(self) -> _Clean:
        """Run the program without any stop. Raises RejectedError: it does not do its work."""
        failure = ""
        for start in range(STARTS_MAX):  # on a busy machine it may end before a record comes
            with self._stage() as stage:
                run = stage.start("the program starts")
                stage.await_done(run, self._timeout_s)
                code = run.code()
                if stage.is_consumed():
                    stage.end(run)
                    return _Clean(stage.story, self._contents(stage))
                ended = (
                    f"it did not end within {self._timeout_s:g} s"
                    if code is None
                    else f"it ended with code {code} in {counted(start + 1, 'start')}"
                )
                failure = f"{ended}, and {stage.left()}{stage.last_words()}"
            if code != 0:
                break
        advice = (
            "" if code else "its group has to commit the input, as transaction(consumer) does; "
        )
        if code is None:
            advice += "a busy machine needs a longer timeout, crash_everywhere(…, timeout=120); "
        raise RejectedError(
            f"undisturbed, the program did not consume its input: {advice}{failure}"
        )

    def play(self, point: Point) -> _Result:
        """Run the program with a stop."""
        with self._stage() as stage:
            fault = stage.arm(point)
            run = stage.start("the program starts")
            stage.await_fault(fault, run, self._timeout_s)
            if fault.happened:
                stage.story.remark(fault.request, HAPPENS[point.stop])
                self._stop(point, fault, stage, run)
            fault.release()
            for start in range(STARTS_MAX):
                stage.await_done(run, self._timeout_s)
                stage.end(run)
                if stage.is_consumed() or self.give_up.is_set():
                    break
                if start > 0:  # it may wait for the offsets of a transaction that a stop left open
                    stage.expire_transactions()
                run = stage.start_again()
            stage.end(run)
            stage.expire_transactions()
            faults = [] if self.give_up.is_set() else self._faults(stage)
            return _Result(point, fault.happened, tuple(faults), stage.story)

    def _stage(self) -> Stage:
        return Stage(self._program, self._snapshot, self._sources, self.give_up)

    def _stop(self, point: Point, fault: Fault, stage: Stage, run: Run) -> None:
        """Do the rest of a stop, while the proxy holds the request."""
        broker, story = stage.broker, stage.story
        request = fault.request
        if point.stop in ("kill", "kill after"):
            run.kill()
            fault.release(deliver=False)
        elif point.stop == "fence":
            transactional_id = story.named("transactional_id", request)
            if transactional_id is not None:
                broker.fence(transactional_id)
        elif point.stop == "time out":
            broker.clock.advance(story.timeout_ms(TRANSACTION_TIMEOUT_MS) / 1000 + 1)
        elif point.stop == "rebalance":
            stage.rebalance()
        elif point.stop == "pause":
            run.pause()
            stage.rebalance()
            stage.play_second(min(self._timeout_s, SECOND_S))
            story.add_line("the first instance goes on")
            run.resume()
        elif point.stop == "aborted input":
            stage.write_aborted()

    def _contents(self, stage: Stage) -> Contents:
        contents: Contents = {
            topic: [self._identity(record) for record in stage.broker.records(topic)]
            for topic in self._topics
        }
        return contents | {name: list(stage.lines_of(name)) for name in self._files}

    def _faults(self, stage: Stage) -> list[str]:
        found = self._contents(stage)
        faults = []
        is_consumed = stage.is_consumed()
        if not is_consumed:
            faults.append(
                f"the program did not consume its input in {STARTS_MAX} more starts: "
                f"{stage.left()}.{stage.last_words()}"
            )
        for place, right in self._expected.items():
            faults += compare(place, right, found[place])
        if not is_consumed:  # records that it did not consume are not lost yet
            faults = [fault for fault in faults if not fault.startswith(LOST)]
        return faults


def compare(place: str, expected: Sequence[object], found: Sequence[object]) -> list[str]:
    """Name the contents that are not there exactly as often as expected."""
    right, there = Counter(expected), Counter(found)
    faults = []
    for each in right | there:
        if there[each] < right[each]:
            faults.append(f"{LOST}{place} lacks {_shown(each)}")
        elif there[each] > right[each] > 0:
            times = there[each] // right[each]
            faults.append(f"doubled: {place} has {_shown(each)} {times} times")
        elif there[each] > right[each]:
            faults.append(f"unexpected: {place} has {_shown(each)}")
    return faults


def _key_and_value(record: Record) -> object:
    return record.value if record.key is None else (record.key, record.value)


def _listed(expected: Mapping[str, Sequence[object]]) -> Contents:
    return {place: list(each) for place, each in expected.items()}


def _shown(each: object) -> str:
    return repr(each.decode("utf-8", "replace")) if isinstance(each, bytes) else repr(each)


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
