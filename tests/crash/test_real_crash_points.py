"""The real broker, stopped between any two of its system calls in the life of transactions.

The boundaries are those of a watched run (`stops`). It has an aborted transaction and two committed
ones, over two partitions and with a group's offset. Logs are new, or begin a segment.
Then each is a run of its own: stopped there, started again, judged, stopped once more, and started
again. So is a start after a crash: it may be stopped at each of its own.

`make test` plays one boundary in 24, `make proofs` each of them, `python -m harnesses.stops`
each with every loss.
"""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from harnesses.stops.life import PLAIN
from harnesses.stops.run import SOME, PreparedDirectory, Setting, Stop
from harnesses.stops.tracer import Boundary, why_not
from support.samples import EVERY, left_out, sampled
from txn.metadata.image import TRANSACTIONS_TOPIC

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True, scope="module")
def _tracing() -> None:
    if reason := why_not():
        pytest.skip(reason)


def test_P1_to_P9_hold_wherever_the_process_is_killed_in_a_transaction(tmp_path: Path) -> None:
    """A write has its first half: a stop before it equals the boundary behind the last call."""
    stage = PreparedDirectory(tmp_path, Setting(2, "process"))
    boundaries = stage.boundaries(signal.SIGUSR1)
    assert {"open", "pwrite", "mkdir", "rename"} <= {each.operation for each in boundaries}
    stops = [Stop(boundary, half=boundary.is_write) for boundary in boundaries]
    check_each(stage, sampled(stops))


def test_P1_to_P9_hold_wherever_the_power_fails_in_a_transaction(tmp_path: Path) -> None:
    """Lost is all that POSIX lets a disk lose. Some boundaries are those of a stop in order."""
    stage = PreparedDirectory(tmp_path, Setting(2, "commit"))
    boundaries = stage.boundaries(signal.SIGUSR1)
    of_a_stop = [boundary for boundary in stage.boundaries() if boundary not in boundaries]
    assert {"pwrite", "rename", "sync"} <= {each.operation for each in boundaries}
    assert {"write", "rename", "sync"} <= {each.operation for each in of_a_stop}
    stops = [Stop(each, loss="all") for each in (*boundaries, *of_a_stop[::4])]
    check_each(stage, sampled(stops, first=1))


def test_P1_to_P9_hold_whichever_logs_lose_what_is_being_synced(tmp_path: Path) -> None:
    stage = PreparedDirectory(tmp_path, Setting(2, "commit"))
    check_each(stage, losses_at_syncs(stage, draws=1 if EVERY > 1 else 2))


@pytest.mark.parametrize("version", [1, pytest.param(2, marks=left_out)])
def test_a_broker_that_syncs_no_commits_goes_on_wherever_the_power_fails(
    version: int, tmp_path: Path
) -> None:
    """Earlier transactions have no promise, all later ones do."""
    stage = PreparedDirectory(tmp_path, Setting(version, "process"))
    stops = [Stop(each, loss=SOME) for each in stage.boundaries()[::2]]
    check_each(stage, sampled(stops, first=version))


@pytest.mark.parametrize("loss", [pytest.param(None, marks=left_out), SOME])
def test_P8_and_the_others_hold_wherever_the_start_after_a_crash_is_stopped(
    loss: str | None, tmp_path: Path
) -> None:
    """Another crash, or a power failure before the first broker's files are on the disk."""
    stage = PreparedDirectory(tmp_path, Setting(2, "commit"))
    check_each(stage, sampled(stops_in_starts(stage, loss, draws=1), first=2))


def check_each(stage: PreparedDirectory, stops: Sequence[Stop]) -> None:
    broken, unmet = stage.stop_at_each(stops)
    assert not broken, f"{len(broken)} of {len(stops)} stops; the first: {broken[0]}"
    # Not every run does the work of once a minute, or of a second after something else.
    assert len(unmet) <= max(2, len(stops) / 20), [str(stop) for stop in unmet]


def test_a_start_that_does_not_sync_what_it_goes_on_with_is_found_out(tmp_path: Path) -> None:
    stage = PreparedDirectory(
        tmp_path, Setting(2, "commit", ("harnesses.black_box.broken", "unsynced-recovery"))
    )
    check_that_one_is_found(stage, stops_in_starts(stage, SOME, draws=6))


@pytest.mark.parametrize(
    "rule", ["unsynced-partition", "believed-prepare", "marker-before-prepare"]
)
def test_a_broker_that_does_not_sync_what_it_has_to_is_found_out(rule: str, tmp_path: Path) -> None:
    """The negative controls: one log has lost a transaction that another shows."""
    stage = PreparedDirectory(tmp_path, Setting(2, "commit", ("harnesses.black_box.broken", rule)))
    check_that_one_is_found(stage, losses_at_syncs(stage, draws=6))


def check_that_one_is_found(stage: PreparedDirectory, stops: Sequence[Stop]) -> None:
    for stop in reversed(stops):  # the last ones are those of the last commit
        broken, _ = stage.stop_at_each([stop])
        if any("P3" in each for each in broken):
            return
    pytest.fail(f"none of {len(stops)} stops found it")


def losses_at_syncs(stage: PreparedDirectory, draws: int) -> list[Stop]:
    """Failures before a log is synced; the kept part of the unsynced data is drawn."""
    syncs = [each for each in stage.boundaries(signal.SIGUSR1) if _syncs_a_log(each)]
    return [Stop(each, loss=SOME, draw=draw) for draw in range(draws) for each in syncs]


def stops_in_starts(stage: PreparedDirectory, loss: str | None, draws: int) -> list[Stop]:
    """Stops of the start after a crash in the last commit, which is decided and not yet synced."""
    boundaries = stage.boundaries(signal.SIGUSR1)
    while not _writes_to(boundaries[-1], PLAIN):  # the marker, which comes behind the decision
        boundaries.pop()
    syncs = [each for each in boundaries if _syncs_a_log(each)]
    decided = [each for each in syncs if each.path.startswith(TRANSACTIONS_TOPIC)][-1]
    starts = stage.boundaries_after(Stop(decided))
    thens = [Stop(each, loss=loss, draw=draw) for draw in range(draws) for each in starts]
    return [Stop(decided, then=then) for then in thens]


def _syncs_a_log(boundary: Boundary) -> bool:
    return boundary.operation == "sync" and boundary.path.endswith(".log")


def _writes_to(boundary: Boundary, topic: str) -> bool:
    return boundary.is_write and boundary.path.startswith(topic)
