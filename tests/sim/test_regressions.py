"""Histories in which the simulation found a promise broken, kept as plans."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from sim.broker import FetchData
from sim.clients import Script, ScriptedTransaction
from sim.history import History
from sim.network import NetworkFault
from sim.plan import (
    FROM_THE_START,
    PlannedFault,
    SimPlan,
    make_cleaned_lost_cache_plan,
    make_cleaner_power_plan,
    make_plan,
)
from sim.readers import Follower, ReaderEnds
from sim.world import World, run_plan, text_of
from txn.broker.host import Durability

COMMIT = ScriptedTransaction(((("sink", 0), 1),), "commit")


def test_P2_the_first_commit_of_a_broker_survives_a_power_failure() -> None:
    """`__transaction_state` is made when the first transactional id comes.

    Its topic was written to the metadata log and not forced to the disk, while PREPARE was. A power
    failure then left a PREPARE in a topic that nobody knew of. The committed transaction was
    aborted as an orphan, and the next transactional id met a directory of another topic.
    """
    plan = SimPlan(
        seed=1,
        durability=Durability.COMMIT,
        scripts=(
            Script("before", "tv1", "pay", start_us=0, transactions=(COMMIT,)),
            Script("after", "tv1", "pay", start_us=1_000_000, transactions=(COMMIT,)),
        ),
        faults=(PlannedFault("power", at_us=500_000, bias="all"),),
        network=(),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)
    assert result.committed == 2


def test_P5_the_stable_offset_goes_back_only_before_a_marker_that_a_full_disk_refuses() -> None:
    """Power took a marker that readers had passed, and its log was full at the start.

    The commit stands, and until there is room for its marker the last stable offset is where the
    transaction begins. Nothing is shown out of turn meanwhile, so this alone is let pass.
    """
    writer = Script("writer", "tv1", "pay", start_us=0, transactions=(COMMIT,))
    plan = SimPlan(1, Durability.COMMIT, (writer,), (), ())
    watched = World(plan)
    watched.records_operations = True
    watched.run()
    assert watched.broker is not None
    assert watched.broker.trace is not None
    boundaries = watched.broker.trace
    marked = max(n for n, each in enumerate(boundaries, 1) if each == ("written", ("sink", 0)))
    passed = marked + 1  # readers look in between
    failed = replace(
        plan,
        faults=(
            PlannedFault("power", FROM_THE_START, passed, down_us=100_000, bias="all"),
            PlannedFault("full", at_us=90_000, down_us=1_000_000, place=("sink", 0)),
        ),
    )
    with patch.object(Follower, "marker_is_refused", lambda *args: None):
        assert run_plan(failed).names == {"lso-regress"}
    result = run_plan(failed)
    assert not result.anomalies, text_of(result)
    assert result.committed == 0  # under version 1 its client is fenced, and not told


def test_what_a_start_writes_where_power_took_records_is_no_step_back() -> None:
    """A reader had passed an offset that was not on the disk, and a transaction began there anew.

    The simulator measured by the log end of the reader's next look, which that transaction had
    moved up (seed 5049457). The log end at the start of the broker counts.
    """
    place = ("sink", 0)
    history = History()
    follower = Follower(history, (place,))
    follower._ends[place] = ReaderEnds(high_watermark=13, last_stable_offset=13)
    follower.power_failed()
    follower.starts_at(place, 12)
    follower.poll(_broker_at(place, high_watermark=15, last_stable_offset=12))
    assert history.anomalies == []
    follower.poll(_broker_at(place, high_watermark=15, last_stable_offset=11))
    assert [anomaly.name for anomaly in history.anomalies] == ["lso-regress"]


def test_P3_a_disk_that_refuses_a_batch_makes_no_retry_of_a_sequence_used_again() -> None:
    """The rules were brought to the log again, and transactions allowed there were forgotten.

    So a batch with the sequence of one that its client had given up in an abort was acknowledged as
    a retry of that. It was missing in the commit (seed 8057685).
    """
    source, sink = ("source", 1), ("sink", 0)
    other = (
        ScriptedTransaction(((("source", 0), 3),), "commit", pause_us=400_000),
        ScriptedTransaction(((source, 1),), "restart", pause_us=0),
    )
    purging = (
        ScriptedTransaction(((("sink", 1), 2), (("source", 0), 1)), "commit", pause_us=0),
        ScriptedTransaction(((source, 1),), "purge", pause_us=0),
        ScriptedTransaction(((sink, 1), (source, 1)), "commit", pause_us=0),
    )
    lost = [NetworkFault("purger", request, "unanswered", 100_000) for request in (8, 10, 11, 14)]
    plan = SimPlan(
        seed=8057685,
        durability=Durability.PROCESS,
        scripts=(
            Script("other", "tv2", "pay", start_us=0, transactions=other),
            Script("purger", "tv1", "purge", 5_000, transactions=purging, comes_back=True),
        ),
        faults=(PlannedFault("full", at_us=201_018, down_us=1_000_000, place=source),),
        network=tuple(lost),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_P5_an_orphan_outlives_no_crash_of_the_start_that_could_not_end_it() -> None:
    """Power took the beginning of a transaction and left its records, on a partition that was full.

    The start after it wanted to end them again and again and died before there was room. The next
    one, which no power failure preceded, looked for nothing (seed 9107055).
    """
    copying = Script(
        "copy1-1",
        "copy1",
        "copy-1",
        start_us=1_000_000,
        transactions=(ScriptedTransaction((), "commit", pause_us=0),),
        timeout_ms=5_000,
    )
    writing = (
        ScriptedTransaction(((("source", 0), 1),), "commit", pause_us=400_000),
        ScriptedTransaction(((("source", 1), 3),), "sleep", pause_us=3_000_000),
    )
    plan = SimPlan(
        seed=9107055,
        durability=Durability.COMMIT,
        scripts=(Script("tv2-0", "tv2", "pay", 0, writing, comes_back=True), copying),
        faults=(
            PlannedFault("full", at_us=1_461_008, down_us=1_000_000, place=("source", 1)),
            PlannedFault("power", at_us=2_060_412, down_us=100, bias="any"),
            PlannedFault("crash", at_us=2_580_774, operations=2, down_us=50_000),
        ),
        network=(),
        settings=(
            ("transactional.id.expiration.ms", 600),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", 200),
        ),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_the_simulated_disk_shows_nothing_of_a_transaction_whose_marker_it_refused() -> None:
    """A log start that moved asked a producer state that was a marker ahead of the log."""
    place = ("source", 0)
    left = ScriptedTransaction(((place, 3), (place, 1)), "commit", pause_us=400_000)
    takes_over = ScriptedTransaction(((place, 1),), "restart", pause_us=400_000)
    deletes = ScriptedTransaction(((place, 1),), "delete", pause_us=1_000)
    plan = SimPlan(
        seed=10_048_181,
        durability=Durability.PROCESS,
        scripts=(
            Script("tv1-0", "tv1", "pay", 0, (left,), 700, comes_back=True),
            Script("tv2-1", "tv2", "pay", 5_000, (takes_over,), 700),
            Script("deleter", "delete", "", 5_000, (deletes,)),
        ),
        faults=(PlannedFault("full", at_us=2_636, down_us=5_000, place=place),),
        network=(),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_a_start_takes_no_segment_that_power_has_shortened_for_a_cleaned_one() -> None:
    """Power took a sealed segment of a cleaned log and left the next one (seed 9002898).

    The start took the gap for the cleaner's. It served the log with a hole, where a log loses only
    its end.
    """
    place = ("source", 1)
    plain = (
        ScriptedTransaction(
            ((("sink", 1), 1), (("sink", 1), 2), (place, 1), (("sink", 0), 2)), "commit", 1_000
        ),
        ScriptedTransaction(((place, 2), (place, 1), (place, 2)), "commit", pause_us=400_000),
        ScriptedTransaction(((("sink", 0), 1),), "commit", 1_000),
        ScriptedTransaction(((place, 3),), "commit", pause_us=0),
        ScriptedTransaction(((place, 2), (("sink", 0), 1)), "abort", 1_000),
    )
    paid = ScriptedTransaction(((("sink", 0), 1), (place, 1)), "commit", pause_us=400_000)
    plan = SimPlan(
        seed=9002898,
        durability=Durability.COMMIT,
        scripts=(
            Script("tv1-0", "tv1", "pay", 0, (paid,), comes_back=True),
            Script("plain-1", "plain", "ship", 0, plain, comes_back=True),
        ),
        faults=(
            PlannedFault("compact", at_us=419_306, down_us=50_000, batch=2, place=place),
            PlannedFault("power", at_us=481_242, down_us=1_000_000, bias="any"),
        ),
        network=(),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_a_start_may_forget_an_aborted_transaction_of_which_only_the_marker_is_left() -> None:
    """The cleaner took the records and left the entry, which goes with the next cleaning.

    No replay finds it, and it names nothing that a reader could meet. The simulator expected it
    after a crash (seeds 9002622 and 9010429).
    """
    place = ("sink", 0)
    left = (
        ScriptedTransaction(((("source", 1), 1), (place, 2)), "restart", 1_000),
        ScriptedTransaction(((place, 2), (("source", 0), 1), (place, 2)), "abort", 1_000),
    )
    upgraded = (
        ScriptedTransaction(((("source", 0), 1), (place, 2)), "abort"),
        ScriptedTransaction(((("sink", 1), 2), (("source", 0), 1)), "abort"),
        ScriptedTransaction(((place, 1), (("sink", 1), 2)), "commit", 200_000),
    )
    plan = SimPlan(
        seed=9002622,
        durability=Durability.PROCESS,
        scripts=(
            Script("tv2-0", "tv2", "ship", 5_000, left),
            Script("up2", "up2", "upgrade", 300_000, upgraded, 700, comes_back=True),
        ),
        faults=(
            PlannedFault("compact", at_us=382_411, down_us=0, batch=1, place=place),
            PlannedFault("crash", at_us=1_189_609, down_us=1_000_000),
        ),
        network=(),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_damage_in_the_last_segment_with_batches_is_not_read_at_a_start_that_believes_it() -> None:
    """The active segment was empty, so the one before lay below the recovery point.

    Its damage is found when somebody reads the batch, and the simulator took it for read at the
    start (seed 9002740).
    """
    place = ("source", 1)
    plain = (
        ScriptedTransaction(((("source", 0), 3),), "commit"),
        ScriptedTransaction(((place, 1),), "commit"),
    )
    restarted = ScriptedTransaction(((("source", 0), 3), (place, 1)), "restart")
    hanging = ScriptedTransaction(((place, 1),), "hanging")
    plan = SimPlan(
        seed=9002740,
        durability=Durability.PROCESS,
        scripts=(
            Script("plain-1", "plain", "ship", 5_000, plain),
            Script("db-0", "db", "db", 0, (restarted,), 700, comes_back=True),
            Script("operator", "abort", "", 20_000, (hanging,)),
        ),
        faults=(
            PlannedFault(
                "flip", at_us=1_986_104, down_us=100, bias="scanned", batch=29, place=place
            ),
        ),
        network=(NetworkFault("plain-1", 3, "unanswered", 600_000),),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_P8_a_snapshot_may_know_an_outdated_batch_that_the_cleaner_took() -> None:
    """The cleaner kept the newest five of a producer, and power took the newest.

    So a start put the batch of its snapshot among the five, and a replay did not know it. Its
    client waits for none of its answers: five newer requests were under way.
    """
    for seed in (17, 84, 281):
        result = run_plan(make_cleaner_power_plan(seed))
        assert not result.anomalies, text_of(result)


def test_P8_a_snapshot_may_know_a_producer_of_which_the_log_has_nothing() -> None:
    """The cleaner kept a producer's newest batches alone, and power took each of them."""
    plan = make_plan(50_001_005)
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_P8_a_snapshot_may_know_an_older_batch_than_the_newest_that_was_written() -> None:
    """The cleaner took a producer's older batches, since there were five newer ones. Power took
    those, and the snapshot of before the older ones was left."""
    result = run_plan(make_plan(4_086_200))
    assert not result.anomalies, text_of(result)


def test_P9_a_second_power_failure_makes_no_damage_of_what_the_first_took() -> None:
    """The simulator put a recovery point above a batch that power had torn, since whole ones stood
    behind it. A start took that for damage, which no operator could repair."""
    result = run_plan(make_plan(4_088_368))
    assert not result.anomalies, text_of(result)


def test_P2_the_cleaner_takes_no_record_for_a_later_one_that_is_not_on_the_disk() -> None:
    """The later record of its key was in another segment. The cleaner had put the first segment's
    output in place when power took the second: neither was left."""
    result = run_plan(make_plan(4_154_981))
    assert not result.anomalies, text_of(result)


def test_P4_an_aborted_transaction_whose_batches_were_deleted_may_be_forgotten() -> None:
    """A segment began with its marker. The batches went with the segment before, so a start after a
    power failure found a marker that ends nothing. No reader can ask for those batches."""
    result = run_plan(make_plan(4_095_135))
    assert not result.anomalies, text_of(result)


def test_P2_a_group_passes_no_operators_marker_that_is_not_on_the_disk() -> None:
    """An operator ended a hanging transaction, and a group committed the offset behind the marker.
    Power took marker and records, and other records got their offsets: the group missed them."""
    result = run_plan(make_plan(4_079_188))
    assert not result.anomalies, text_of(result)


def test_P2_a_second_power_failure_brings_back_no_batch_that_a_start_had_cut() -> None:
    """Power took the first of two batches, and the start cut both.

    The cut was not forced to the disk. A batch of the first one's length was written, power failed
    again and took the cut alone: the old second batch stood behind the new first one.
    """
    plan = make_plan(70_000_259)
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_P2_a_producer_stays_known_when_its_batches_are_deleted_after_a_power_failure() -> None:
    """Power took the snapshot that was written where a segment ended.

    The start read the producers from the batches and wrote no other snapshot. DeleteRecords then
    removed the segment. The next start knew nothing of its producers, and would have stored a batch
    again that one of them sent again.
    """
    plan = make_plan(3_027_794)
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)


def test_P2_a_group_is_told_nothing_older_than_a_commit_whose_marker_a_full_disk_refuses() -> None:
    """Power took the marker of committed offsets, and the start could not write it again."""
    result = run_plan(make_plan(3_100_481))
    assert not result.anomalies, text_of(result)


def test_P5_an_operator_comes_back_to_a_partition_that_could_not_list_its_transactions() -> None:
    """A full disk answered with an error. The operator of the simulation took it for an empty list,
    and left a transaction that hung."""
    result = run_plan(make_plan(3_090_493))
    assert not result.anomalies, text_of(result)


def test_the_stable_offset_goes_back_before_a_marker_of_which_the_cut_cannot_be_synced() -> None:
    """The start cuts what power tore, and syncs the cut before it writes the marker again."""
    result = run_plan(make_plan(3_159_526))
    assert not result.anomalies, text_of(result)


def test_a_last_stable_offset_that_power_took_out_of_the_transaction_index_is_too_low() -> None:
    """The other fields of the entry fitted the log, so the start took it as it was."""
    result = run_plan(make_plan(3_132_944))
    assert not result.anomalies, text_of(result)


def test_P9_a_damaged_marker_is_told_of_by_the_start_that_replays_it() -> None:
    """Power had taken the snapshot, so a trusted segment was replayed. The marker could not be read
    and ended nothing; a later one ended its transaction."""
    result = run_plan(make_plan(9_019_285))
    assert not result.anomalies, text_of(result)


def test_damage_is_done_to_no_batch_behind_one_that_power_tore() -> None:
    """The simulated damage vouched for the torn batch, and the start refused it again and again."""
    result = run_plan(make_plan(9_048_211))
    assert not result.anomalies, text_of(result)


def test_P2_an_end_that_waits_for_a_full_disk_behind_a_power_failure_answers_no_later_one() -> None:
    """Power took all of the next transaction. The client's EndTxn was taken for a repetition."""
    result = run_plan(make_plan(10_188_251))
    assert not result.anomalies, text_of(result)


def test_P5_a_transaction_behind_one_whose_end_waits_for_a_full_disk_is_ended_at_a_start() -> None:
    """Power took its record and left its batches. The waiting Prepare, which has the same producer
    and partitions, was taken for theirs, and they stayed open.
    """
    result = run_plan(make_plan(14_089_211))
    assert not result.anomalies, text_of(result)


def test_P7_nothing_comes_into_a_decided_transaction_whose_marker_a_full_disk_refuses() -> None:
    """A prepared transaction was committed and answered, and one partition's marker had to wait. A
    late Produce of the former epoch came in before it, and was committed with the others.
    """
    result = run_plan(make_plan(40_045_200))
    assert not result.anomalies, text_of(result)


def test_P2_a_start_that_cannot_prove_a_lost_cache_keeps_the_traces_of_it() -> None:
    """The cleaner had removed the Prepare of a marker that the storage lost, so nothing proved the
    loss. The start finished other Prepares before it refused the partition. Their markers got the
    lost one's offset, and the record of the id forgot it. So the start that knew of the lost cache
    aborted a committed transaction.
    """
    result = run_plan(make_plan(51_059_517))
    assert not result.anomalies, text_of(result)


@pytest.mark.parametrize("seed", [144, 155, 161])
def test_P2_a_committed_transaction_whose_marker_was_lost_belongs_to_no_later_one(
    seed: int,
) -> None:
    """Its records lay before those of the id's next transaction, of the same producer epoch. The
    start after a lost cache took both for one open transaction.
    """
    result = run_plan(make_cleaned_lost_cache_plan(seed))
    assert not result.anomalies, text_of(result)


def test_the_simulated_disk_vouches_for_no_batch_that_power_tore_behind_a_damaged_one() -> None:
    """Its recovery point was behind the torn batch, so each start refused the partition."""
    result = run_plan(make_plan(40_016_899))
    assert not result.anomalies, text_of(result)


def _broker_at(place: tuple[str, int], *, high_watermark: int, last_stable_offset: int) -> Any:
    """A broker whose one partition stands here and gives no records."""
    log = SimpleNamespace(
        log_start_offset=0, log_end_offset=high_watermark, last_stable_offset=last_stable_offset
    )
    fetched = FetchData(high_watermark=high_watermark, last_stable_offset=last_stable_offset)
    return SimpleNamespace(
        storage=SimpleNamespace(logs={place: log}), fetch=lambda *_, is_committed: fetched
    )


def test_P7_a_start_that_a_restart_cuts_short_fences_whoever_waits_for_a_disk() -> None:
    """The storage lost its cache, and a disk refused the marker of a transaction.

    Its Complete was to fence the client, whose next transaction was gone. The start counted as
    recovered before. So the next one took the loss for mended: it wrote a Complete that fences
    nobody, and the client committed a transaction without its records.
    """
    result = run_plan(make_plan(63_026_721))
    assert not result.anomalies, text_of(result)
