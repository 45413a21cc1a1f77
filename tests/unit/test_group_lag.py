"""The choice of groups whose lag is told, where a client has made up too many."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from txn.broker.node import Node
from txn.server.metrics.group_lag import TIME_SHARE, GroupLags

MADE_UP = 10_000
ROOM = 100
COST_S = 0.02
"""CPU time of each look at every group."""


class Groups:
    """Groups with one offset each in a topic that is there, and the looks at them."""

    def __init__(self, names: Iterable[str], active: Iterable[str] = ()) -> None:
        self.names = list(names)
        self.active = list(active)
        self.looks = 0
        self.asked: list[str] = []
        self.cpu_s = 0.0

    def groups_with_offsets(self) -> list[tuple[str, int]]:
        self.looks += 1
        self.cpu_s += COST_S
        return [(name, 1) for name in self.names]

    def groups(self) -> list[Any]:
        return [SimpleNamespace(group_id=name, members=name in self.active) for name in self.names]

    def committed(self, group_id: str) -> dict[tuple[str, int], Any]:
        self.asked.append(group_id)
        return {("orders", 0): SimpleNamespace(value=SimpleNamespace(offset=0))}


class Partitions:
    """A topic with one partition that was never written."""

    stores = (None,)

    def has(self, index: int) -> bool:
        return index == 0

    def is_untouched(self, index: int) -> bool:
        return True


class Clock:
    now_s = 0.0


def lags_of(groups: Groups, clock: Clock) -> GroupLags:
    both = SimpleNamespace(groups=groups.groups, offsets=groups)
    node = SimpleNamespace(groups=both, partitions={"orders": Partitions()})
    return GroupLags(cast(Node, node), ROOM, lambda: clock.now_s, lambda: groups.cpu_s)


def made_up() -> list[str]:
    return [f"a{number}" for number in range(MADE_UP)]


def test_choosing_among_too_many_groups_has_a_share_of_the_time_and_no_more() -> None:
    """The story: each scrape with 10,000 made-up groups took 60 to 180 ms of CPU."""
    groups, clock = Groups(made_up()), Clock()
    lags = lags_of(groups, clock)
    for _ in range(1000):
        lags.read()
        clock.now_s += 0.1
    assert 0 < groups.cpu_s <= clock.now_s * TIME_SHARE + COST_S
    assert len(groups.asked) == 1000 * ROOM


def test_the_offsets_of_chosen_groups_are_new_at_each_scrape() -> None:
    groups, clock = Groups(made_up()), Clock()
    lags = lags_of(groups, clock)
    found = [lags.read() for _ in range(2)]
    assert groups.looks == 1
    assert groups.asked[:ROOM] == groups.asked[ROOM:]
    assert [each.left_out for each in found] == [MADE_UP - ROOM] * 2


def test_groups_with_members_come_first_and_named_ones_stay() -> None:
    groups, clock = Groups(["shop", "till"]), Clock()
    lags = lags_of(groups, clock)
    assert [lag.group_id for lag in lags.read().groups] == ["shop", "till"]
    groups.names = [*made_up(), "shop", "till", "zoo"]
    groups.active = ["zoo"]
    assert [lag.group_id for lag in lags.read().groups][:3] == ["zoo", "shop", "till"]
    clock.now_s += COST_S / TIME_SHARE
    groups.names.append("alone")
    groups.active.append("alone")
    named = [lag.group_id for lag in lags.read().groups]
    assert named[:4] == ["alone", "zoo", "shop", "till"]
    assert len(named) == ROOM


def test_where_there_is_room_for_all_a_new_group_is_in_the_next_scrape() -> None:
    groups, clock = Groups(["shop"]), Clock()
    lags = lags_of(groups, clock)
    lags.read()
    groups.names.append("till")
    assert [lag.group_id for lag in lags.read().groups] == ["shop", "till"]
