"""Flights through two queries with state, killed on the way: each row once (P3).

The short version: some seconds of flights, one query, one kill. `make long-spark` plays an hour.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from spark.long.harness import Kill, LongRun, Victim, plan
from spark.long.judge import Reading, compare
from spark.long.memory import Sample, lives
from spark.long.rows import CLOSING, NOBODY, PARTITIONS, Totals, Years, lines_of
from support.samples import left_out

ROWS, TOTALS = "rows", "totals"


@pytest.fixture(scope="module")
def years() -> Years:
    return Years()


@left_out
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_P3_flights_through_state_are_in_the_outputs_once(tmp_path: Path, years: Years) -> None:
    kills = [Kill(2, Victim.BROKER, at_work=True)]
    result = LongRun(tmp_path, years, seconds=5, rate=20, kills=kills, totals=False).run()
    assert result.verdict.holds, result.verdict
    assert result.verdict.rows == result.verdict.rows_expected > 5_000
    assert result.kills == {"broker": 1}


class SmallOracle:
    """Three rows, of one day."""

    def line(self, number: int) -> bytes:
        return f"{number}|86400|JFK|AA|0".encode()


DAY: Totals = {(86400, "JFK", "AA"): (3, 0)}


def _reading(*numbers: int, total: bytes = b"86400|JFK|AA|3|0") -> Reading:
    oracle = SmallOracle()
    reading = Reading(oracle)
    for offset, number in enumerate(numbers):
        reading.note(ROWS, 0, offset, oracle.line(number), is_row=True)
    reading.note(TOTALS, 0, 0, total, is_row=False)
    return reading


def test_judge_is_content_with_each_row_once() -> None:
    assert compare(_reading(0, 1, 2), _reading(0, 1, 2), 3, held_back=0, totals=DAY).holds


def test_judge_finds_a_lost_and_a_repeated_row() -> None:
    lost = compare(_reading(0, 2), _reading(0, 2), 3, held_back=0, totals=DAY)
    assert (lost.missing, lost.repeated, lost.holds) == (1, 0, False)
    repeated = compare(_reading(0, 1, 1, 2), _reading(0, 1, 1, 2), 3, held_back=0, totals=DAY)
    assert (repeated.missing, repeated.repeated, repeated.holds) == (0, 1, False)


def test_judge_finds_a_row_and_a_total_of_another_content() -> None:
    wrong = _reading(0, 1, 2, total=b"86400|JFK|AA|4|0")
    verdict = compare(wrong, wrong, 3, held_back=0, totals=DAY)
    assert (verdict.missing, verdict.wrong) == (1, 1)
    beyond = _reading(0, 1, 2, 3)
    assert compare(beyond, beyond, 3, held_back=0, totals=DAY).wrong == 1


def test_judge_finds_a_total_that_came_twice() -> None:
    reading = _reading(0, 1, 2)
    reading.note(TOTALS, 0, 1, b"86400|JFK|AA|3|0", is_row=False)
    assert compare(reading, reading, 3, held_back=0, totals=DAY).repeated == 1


def test_judge_finds_an_uncommitted_row_that_a_reader_was_given() -> None:
    verdict = compare(_reading(0, 1, 1, 2), _reading(0, 1, 2), 3, held_back=0, totals=DAY)
    assert verdict.uncommitted_read == 1
    assert not verdict.holds


def test_judge_finds_an_open_transaction() -> None:
    assert not compare(_reading(0, 1, 2), _reading(0, 1, 2), 3, held_back=5, totals=DAY).holds


def test_rows_that_move_the_watermark_are_not_judged() -> None:
    reading = _reading(0, 1, 2)
    closing = f"{CLOSING}|99|{NOBODY}|{NOBODY}|0".encode()
    reading.note(ROWS, 0, 3, closing, is_row=True)
    reading.note(TOTALS, 0, 1, f"0|{NOBODY}|{NOBODY}|1|0".encode(), is_row=False)
    assert compare(reading, reading, 3, held_back=0, totals=DAY).holds


def test_years_follow_each_other_in_order_of_time(years: Years) -> None:
    around = range(336_770, 336_790)  # the last flights of one year and the first of the next
    times = [int(years.line(number).split(b"|")[1]) for number in around]
    assert times == sorted(times)
    assert len(list(lines_of(years.totals(1_000)))) > 10
    sent = [record.value for record in years.send(0, 2_000)]
    assert len(sent) - len(set(sent)) == len(range(0, 1_500, 7))
    assert {record.partition for record in years.closing(5, step=1)} == set(range(PARTITIONS))


def test_growing_memory_is_found() -> None:
    flat = [Sample(at, "broker", 1, 70 + at % 3, 1) for at in range(0, 1200, 5)]
    growing = [replace(sample, life=2, mib=70 + sample.at_s / 10) for sample in flat]
    assert [life.is_flat for life in lives(flat + growing)] == [True, False]


def test_plan_lets_driver_and_broker_live_for_a_third() -> None:
    kills = plan(3600, 60, seed=7)
    assert len(kills) == 60
    assert not [k for k in kills if 1200 <= k.at_s < 2400 and k.victim is Victim.DRIVER]
    assert not [k for k in kills if k.at_s >= 2400 and k.victim is Victim.BROKER]
    assert {kill.victim for kill in kills if kill.at_s < 1200} == set(Victim)
