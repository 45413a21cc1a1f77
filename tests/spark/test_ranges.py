"""Which records a batch gets, and how they are shared out to tasks."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from txn.spark.mark import Mark
from txn.spark.ranges import BatchDelay, Range, limited, split

places = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(sorted),
    min_size=1,
)


def test_offsets_are_kept_as_sparks_kafka_source_keeps_them() -> None:
    mark = Mark({("b", 0): 1, ("a", 10): 2, ("a", 9): 3}, {})
    assert mark.to_json() == {"a": {"9": 3, "10": 2}, "b": {"0": 1}}
    assert Mark.from_json(mark.to_json()) == mark


def test_ids_of_topics_are_kept_beside_the_offsets() -> None:
    mark = Mark({("a", 0): 2}, {"a": "AAAAAAAAAAAAAAAAAAAABw"})
    note = '{"topic ids": {"a": "AAAAAAAAAAAAAAAAAAAABw"}}'
    assert mark.to_json() == {"a": {"0": 2}, note: {}}
    assert Mark.from_json(mark.to_json()) == mark


def test_program_that_goes_through_the_offsets_meets_nothing_else() -> None:
    """A program that committed `endOffset` to a group took the ids for offsets, and failed."""
    mark = Mark({("a", 0): 2, ("b", 1): 3}, {"a": "AAAAAAAAAAAAAAAAAAAABw"}, {("c", 0): 7})
    end = json.loads(json.dumps(mark.to_json()))
    met = [(topic, int(n), at) for topic, places in end.items() for n, at in places.items()]
    assert met == [("a", 0, 2), ("b", 1, 3)]


def test_marks_of_earlier_versions_are_read() -> None:
    kept: dict[str, dict[str, Any]] = {
        "a": {"0": 2},
        "topic ids": {"a": "AA"},
        "left out": {"a": {"1": 5}},
    }
    assert Mark.from_json(kept) == Mark({("a", 0): 2}, {"a": "AA"}, {("a", 1): 5})


def test_places_that_are_left_out_are_kept_beside_the_others_until_they_are_chosen() -> None:
    mark = Mark({("a", 0): 2}, {}, {("a", 1): 5, ("b", 0): 7})
    note = '{"left out": {"a": {"1": 5}, "b": {"0": 7}}}'
    assert mark.to_json() == {"a": {"0": 2}, note: {}}
    assert Mark.from_json(mark.to_json()) == mark
    assert mark.choosing([("a", 1), ("c", 0)]) == Mark(
        {("a", 0): 2, ("a", 1): 5}, {}, {("b", 0): 7}
    )


def test_limit_is_shared_out_by_what_is_waiting() -> None:
    start = {("t", 0): 100, ("t", 1): 0, ("t", 2): 5}
    latest = {("t", 0): 400, ("t", 1): 100, ("t", 2): 5}
    assert limited(start, latest, 40) == {("t", 0): 130, ("t", 1): 10, ("t", 2): 5}


def test_partition_with_little_is_not_starved() -> None:
    ends = limited({("t", 0): 0, ("t", 1): 0}, {("t", 0): 10**6, ("t", 1): 1}, 10)
    assert ends[("t", 1)] == 1


@settings(deadline=None)
@given(spans=places, rows_max=st.integers(1, 10**6))
def test_limit_moves_forward_and_never_past_the_end(
    spans: dict[tuple[str, int], list[int]], rows_max: int
) -> None:
    start = {place: span[0] for place, span in spans.items()}
    latest = {place: span[1] for place, span in spans.items()}
    ends = limited(start, latest, rows_max)
    moved = sum(ends[place] - start[place] for place in spans)
    waiting = sum(latest[place] - start[place] for place in spans)
    assert all(start[place] <= ends[place] <= latest[place] for place in spans)
    assert min(1, waiting) <= moved <= rows_max + len(spans)


@settings(deadline=None)
@given(
    spans=places,
    count=st.none() | st.integers(1, 50),
    most=st.none() | st.integers(10**4, 10**6),
)
def test_split_ranges_cover_the_same_records_once(
    spans: dict[tuple[str, int], list[int]], count: int | None, most: int | None
) -> None:
    ranges = [Range(place, start, end) for place, (start, end) in spans.items()]
    parts = split(ranges, count, most)
    assert all(part.size <= most for part in parts if most is not None)
    assert all(part.size > 0 for part in parts)
    for span in ranges:
        mine = [part for part in parts if part.place == span.place]
        bounds = [mine[0].start, *(part.end for part in mine)] if mine else [span.start] * 2
        assert (bounds[0], bounds[-1]) == (span.start, span.end)
        assert [part.start for part in mine] == bounds[:-1] or not mine


def test_larger_range_gets_more_tasks() -> None:
    parts = split([Range(("t", 0), 0, 900), Range(("t", 1), 0, 100)], 10)
    assert [part.place[1] for part in parts] == [0] * 9 + [1]


T: dict[str, dict[tuple[str, int], int]] = {
    str(waiting): {("t", 0): 5 + waiting, ("t", 1): 7} for waiting in (0, 9, 10)
}


def test_batch_waits_for_records_or_time() -> None:
    """The first one after a start does not, as in Spark's Kafka source."""
    delay, start = BatchDelay(10, 1_000), T["0"]
    asked = [(T["0"], 0), (T["9"], 999), (T["10"], 999), (T["9"], 1_998), (T["9"], 1_999)]
    due = [delay.is_due(start, latest, now_ms) for latest, now_ms in asked]
    assert due == [True, False, True, False, True]
