"""The demo's plan is made from its seed, and its judge finds faults."""

import pytest

from txn.demo.flights import FLIGHT_COUNT, FLIGHTS, TABLES, Row, key_of, read, value_of
from txn.demo.judge import ComparedRows, compare, compare_updates
from txn.demo.kills import Victim, plan

EXPECTED: dict[object, Row] = {0: {"id": 0, "a": "x"}, 1: {"id": 1, "a": "y"}}
GROUPS: dict[object, Row] = {
    ("UA", "h"): {"carrier": "UA", "hour": "h", "flights": 2, "departed": 2}
}


def test_the_same_seed_plans_the_same_kills() -> None:
    assert plan(5, 1) == plan(5, 1)
    assert plan(5, 1) != plan(5, 2)


@pytest.mark.parametrize("kills", [1, 5, 20])
def test_one_of_the_kills_is_the_broker(kills: int) -> None:
    assert [kill.victim for kill in plan(kills, 1)].count(Victim.BROKER) == 1


def test_no_kills_can_be_planned() -> None:
    assert plan(0, 1) == []


def test_every_flight_is_in_the_package() -> None:
    assert sum(1 for _ in read(FLIGHTS)) == FLIGHT_COUNT


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_row_becomes_a_keyed_record(table: object) -> None:
    from txn.demo.flights import Table

    assert isinstance(table, Table)
    row = next(read(table))
    assert key_of(table, row)
    assert b"null" not in value_of(row)


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ([{"id": 0, "a": "x"}, {"id": 1, "a": "y"}], ComparedRows("rows", 2, 2, 0, 0, 0)),
        ([{"id": 0, "a": "x"}], ComparedRows("rows", 2, 1, 1, 0, 0)),
        ([{"id": 0, "a": "x"}] * 2 + [{"id": 1, "a": "y"}], ComparedRows("rows", 2, 3, 0, 1, 0)),
        ([{"id": 0, "a": "x"}, {"id": 1, "a": "z"}], ComparedRows("rows", 2, 2, 0, 0, 1)),
        ([{"id": 0, "a": "x"}, {"id": 9}], ComparedRows("rows", 2, 2, 1, 0, 1)),
    ],
)
def test_the_judge_counts_what_is_missing_repeated_and_wrong(
    rows: list[Row], finding: ComparedRows
) -> None:
    assert compare("rows", EXPECTED, rows) == finding
    assert finding.holds == (finding == ComparedRows("rows", 2, 2, 0, 0, 0))


def _update(flights: int) -> Row:
    return {"carrier": "UA", "hour": "h", "flights": flights, "departed": flights}


@pytest.mark.parametrize(
    ("updates", "finding"),
    [
        ([1, 2], ComparedRows("updates", 1, 1, 0, 0, 0)),
        ([1, 1, 2], ComparedRows("updates", 1, 1, 0, 1, 0)),
        ([2, 1, 2], ComparedRows("updates", 1, 1, 0, 1, 0)),
        ([1, 3], ComparedRows("updates", 1, 1, 0, 0, 1)),
        ([], ComparedRows("updates", 1, 0, 1, 0, 0)),
    ],
)
def test_the_judge_sees_an_update_that_came_twice_or_counts_wrong(
    updates: list[int], finding: ComparedRows
) -> None:
    assert compare_updates("updates", GROUPS, [_update(count) for count in updates]) == finding
