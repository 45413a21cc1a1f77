"""The part of a log that may be compacted, and the log that comes first."""

from txn.partition.compaction import (
    Cleanable,
    Lag,
    LogToClean,
    SealedSegment,
    cleanable,
    dirtiest,
    first_dirty_offset,
    segment_ms,
)

NO_LAG = Lag(min_ms=0, max_ms=2**63 - 1)
NOW_MS = 1_000_000
SEGMENTS = [
    SealedSegment(0, 100, 1000, 10_000, 20_000),
    SealedSegment(100, 200, 500, 20_001, 500_000),
    SealedSegment(200, 300, 700, 500_001, 999_000),
]


def plan(
    *, first_dirty_offset: int = 100, last_stable_offset: int = 1000, lag: Lag = NO_LAG
) -> Cleanable:
    return cleanable(
        SEGMENTS,
        first_dirty_offset=first_dirty_offset,
        last_stable_offset=last_stable_offset,
        lag=lag,
        now_ms=NOW_MS,
    )


def test_all_sealed_segments_behind_the_clean_part_are_cleanable() -> None:
    assert plan() == Cleanable(100, 300, 1000, 1200, False)


def test_a_segment_that_was_cleaned_in_part_is_dirty() -> None:
    assert plan(first_dirty_offset=150) == Cleanable(150, 300, 1000, 1200, False)


def test_nothing_beyond_the_last_stable_offset_is_cleaned_and_only_whole_segments() -> None:
    assert plan(last_stable_offset=299) == Cleanable(100, 200, 1000, 500, False)
    assert plan(last_stable_offset=200) == Cleanable(100, 200, 1000, 500, False)
    assert plan(last_stable_offset=150) == Cleanable(100, 100, 1000, 0, False)


def test_young_records_keep_their_segment_and_what_follows_from_being_cleaned() -> None:
    lag = Lag(min_ms=500_001, max_ms=NO_LAG.max_ms)
    assert plan(lag=lag) == Cleanable(100, 100, 1000, 0, False)
    assert plan(lag=lag._replace(min_ms=500_000)) == Cleanable(100, 200, 1000, 500, False)


def test_a_log_is_overdue_when_a_dirty_segment_began_too_long_ago() -> None:
    age_ms = NOW_MS - SEGMENTS[1].first_timestamp_ms
    assert not plan(lag=NO_LAG._replace(max_ms=age_ms)).is_overdue
    assert plan(lag=NO_LAG._replace(max_ms=age_ms - 1)).is_overdue


def test_segments_without_timestamps_are_never_overdue() -> None:
    undated = [SealedSegment(0, 100, 1000, -1, -1)]
    found = cleanable(
        undated, first_dirty_offset=0, last_stable_offset=100, lag=Lag(0, 1), now_ms=NOW_MS
    )
    assert found == Cleanable(0, 100, 0, 1000, False)


def test_the_dirty_part_begins_where_the_last_cleaning_ended() -> None:
    assert first_dirty_offset(50, 0, 100) == 50
    assert first_dirty_offset(100, 0, 100) == 100


def test_a_checkpoint_outside_the_log_counts_for_nothing() -> None:
    assert first_dirty_offset(None, 7, 100) == 7
    assert first_dirty_offset(6, 7, 100) == 7
    assert first_dirty_offset(101, 7, 100) == 7


def test_a_log_is_due_above_the_ratio_or_when_overdue() -> None:
    half = Cleanable(100, 200, 500, 500, False)
    assert half.is_due(0.49)
    assert not half.is_due(0.5)
    assert half._replace(is_overdue=True).is_due(0.9)


def test_a_log_with_nothing_to_clean_is_never_due() -> None:
    nothing = Cleanable(100, 100, 500, 0, True)
    assert not nothing.is_due(0)
    assert Cleanable(0, 0, 0, 0, False).dirty_ratio == 0.0


def test_the_log_with_the_largest_dirty_ratio_goes_first() -> None:
    few = LogToClean("few", Cleanable(0, 1, 400, 600, False), 0.5)
    many = LogToClean("many", Cleanable(0, 1, 100, 900, False), 0.5)
    unwanted = LogToClean("unwanted", Cleanable(0, 1, 0, 900, False), 1.0)
    assert dirtiest([few, many, unwanted]) == many


def test_no_log_is_chosen_when_none_is_due() -> None:
    assert dirtiest([LogToClean("tidy", Cleanable(0, 1, 900, 100, False), 0.5)]) is None


def test_a_segment_of_a_compacted_log_is_sealed_within_the_largest_lag() -> None:
    assert segment_ms(["compact"], 1000, 70) == 70
    assert segment_ms(["delete", "compact"], 50, 70) == 50
    assert segment_ms(["delete"], 1000, 70) == 1000
