"""The assignors over any group: subscriptions, owners, static members and topics are generated."""

import uuid
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.coordinator.group.assignors import ASSIGNORS, Assignment, Subscriber

TOPICS = [uuid.UUID(int=number) for number in range(1, 7)]
GONE = uuid.UUID(int=99)
NAMES = [f"member-{letter}" for letter in "abcdefgh"]

Members = dict[str, Subscriber]
Partitions = dict[uuid.UUID, int]

UNIFORM = ASSIGNORS["uniform"]
RANGE = ASSIGNORS["range"]
partitions_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
subscriptions = st.frozensets(st.sampled_from([*TOPICS, GONE]))
each_assignor = pytest.mark.parametrize("name", ASSIGNORS)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False) -> tuple[Members, Partitions]:
    """Members that own anything: too much, topics they left, and each other's partitions."""
    partitions = draw(partitions_of_topics)
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    shared = draw(subscriptions)
    owned = st.dictionaries(
        st.sampled_from([*TOPICS, GONE]), st.frozensets(st.integers(0, 10), min_size=1)
    )
    members = {
        name: Subscriber(
            shared if equal else draw(subscriptions),
            draw(owned),
            draw(st.sampled_from([None, "rack"])),
            draw(st.sampled_from([None, f"static-{name[::-1]}"])),
        )
        for name in names
    }
    return members, partitions


def after(members: Members, assigned: Mapping[str, Assignment]) -> Members:
    """The same members, once they own their assignments."""
    return {name: each._replace(owned=assigned[name]) for name, each in members.items()}


def size(assignment: Mapping[uuid.UUID, frozenset[int]]) -> int:
    return sum(map(len, assignment.values()))


def pairs(assignment: Mapping[uuid.UUID, frozenset[int]]) -> set[tuple[uuid.UUID, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def most_that_can_stay(members: Members, partitions: Partitions) -> int:
    """How many partitions a balance may leave in place; subscriptions are equal, owners agree."""
    topics = next(iter(members.values())).topics & partitions.keys()
    quota, extra = divmod(sum(partitions[topic] for topic in topics), len(members))
    sizes = sorted((size(each.owned) for each in members.values()), reverse=True)
    return sum(min(kept, quota + (place < extra)) for place, kept in enumerate(sizes))


@each_assignor
@given(groups())
def test_each_partition_of_a_subscribed_topic_has_one_owner_and_it_subscribes(
    name: str, group: tuple[Members, Partitions]
) -> None:
    members, partitions = group
    assigned = ASSIGNORS[name](members, partitions)
    assert assigned.keys() == members.keys()
    owners = [
        (topic, number)
        for each in assigned.values()
        for topic, numbers in each.items()
        for number in numbers
    ]
    subscribed = frozenset[uuid.UUID]().union(*(each.topics for each in members.values()))
    assert sorted(owners) == [
        (topic, number)
        for topic in sorted(partitions.keys() & subscribed)
        for number in range(partitions[topic])
    ]
    assert all(assigned[name].keys() <= each.topics for name, each in members.items())
    assert all(numbers for each in assigned.values() for numbers in each.values())


@each_assignor
@given(groups())
def test_an_assignment_that_is_owned_stays_as_it_is(
    name: str, group: tuple[Members, Partitions]
) -> None:
    members, partitions = group
    assigned = ASSIGNORS[name](members, partitions)
    again = dict(reversed(after(members, assigned).items()))
    assert ASSIGNORS[name](again, partitions) == assigned


@given(groups(equal=True))
def test_the_uniform_assignor_differs_by_one_for_equal_subscriptions(
    group: tuple[Members, Partitions],
) -> None:
    sizes = sorted(map(size, UNIFORM(*group).values()))
    assert sizes[-1] - sizes[0] <= 1


@given(groups())
def test_no_move_between_two_subscribers_improves_a_uniform_assignment(
    group: tuple[Members, Partitions],
) -> None:
    members, partitions = group
    assigned = UNIFORM(members, partitions)
    for giver in assigned.values():
        for receiver, mine in assigned.items():
            if giver.keys() & members[receiver].topics:
                assert size(giver) <= size(mine) + 1


@given(
    groups(equal=True), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.data()
)
def test_the_uniform_assignor_moves_no_partition_without_need(
    group: tuple[Members, Partitions], leave: set[str], join: set[str], data: st.DataObject
) -> None:
    members, partitions = group
    before = after(members, UNIFORM(members, partitions))
    topics = next(iter(members.values())).topics
    now = {name: each for name, each in before.items() if name not in leave}
    now |= {name: Subscriber(topics, {}) for name in join if name not in before}
    if not now:
        return
    grown = {
        topic: count + data.draw(st.integers(0, 3), "growth") for topic, count in partitions.items()
    }
    assigned = UNIFORM(now, grown)
    stayed = sum(len(pairs(each.owned) & pairs(assigned[name])) for name, each in now.items())
    assert stayed == most_that_can_stay(now, grown)


@given(groups(equal=True))
def test_only_a_member_that_joins_gains_partitions(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    before = UNIFORM(members, partitions)
    newcomer = Subscriber(next(iter(members.values())).topics, {})
    for name in ("a-first", "z-last"):
        assigned = UNIFORM({**after(members, before), name: newcomer}, partitions)
        assert all(pairs(assigned[each]) <= pairs(mine) for each, mine in before.items())


@given(groups(equal=True))
def test_only_partitions_of_a_member_that_leaves_move(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    before = UNIFORM(members, partitions)
    for gone in before if len(before) > 1 else ():
        rest = {name: each for name, each in after(members, before).items() if name != gone}
        assigned = UNIFORM(rest, partitions)
        assert all(pairs(assigned[name]) >= pairs(before[name]) for name in rest)


@given(groups())
def test_the_range_assignor_gives_ranges_whose_lengths_differ_by_one(
    group: tuple[Members, Partitions],
) -> None:
    members, partitions = group
    assigned = RANGE(members, partitions)
    for topic in partitions:
        lengths = []
        for name, each in members.items():
            numbers = sorted(assigned[name].get(topic, frozenset()))
            assert all(after == before + 1 for before, after in pairwise(numbers))
            if topic in each.topics:
                lengths.append(len(numbers))
        assert max(lengths, default=0) - min(lengths, default=0) <= 1


@given(groups(), st.integers(1, 9))
def test_the_range_assignor_partitions_topics_of_equal_subscribers_alike(
    group: tuple[Members, Partitions], count: int
) -> None:
    members, _ = group
    assigned = RANGE(members, dict.fromkeys(TOPICS, count))
    readers = {
        topic: frozenset(name for name, each in members.items() if topic in each.topics)
        for topic in TOPICS
    }
    for one in TOPICS:
        for other in TOPICS:
            if readers[one] == readers[other]:
                assert all(each.get(one) == each.get(other) for each in assigned.values())


@given(groups())
def test_the_range_assignor_keeps_the_ranges_of_static_members_that_come_back(
    group: tuple[Members, Partitions],
) -> None:
    members, partitions = group
    static = {name: each for name, each in members.items() if each.instance_id}
    back = {f"{uuid.uuid5(GONE, name)}": each for name, each in static.items()}
    others = {name: each for name, each in members.items() if not each.instance_id}
    before = RANGE(members, partitions)
    assigned = RANGE({**others, **back}, partitions)
    for (old, _), (new, _) in zip(static.items(), back.items(), strict=True):
        assert assigned[new] == before[old]


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    topic = TOPICS[0]
    members = {
        "a": Subscriber(frozenset({topic}), {}),
        "b": Subscriber(frozenset({topic}), {}, instance_id="two"),
        "c": Subscriber(frozenset({topic}), {}, instance_id="one"),
    }
    assert RANGE(members, {topic: 5}) == {
        "c": {topic: frozenset({0, 1})},
        "b": {topic: frozenset({2, 3})},
        "a": {topic: frozenset({4})},
    }


@each_assignor
def test_a_thousand_members_of_five_thousand_partitions_are_assigned(name: str) -> None:
    topics = [uuid.UUID(int=number + 1) for number in range(500)]
    partitions = dict.fromkeys(topics, 10)
    halves = (frozenset(topics[:300]), frozenset(topics[200:]))
    members = {f"{number:04}": Subscriber(halves[number % 2], {}) for number in range(1_000)}
    assigned = ASSIGNORS[name](members, partitions)
    assert sum(map(size, assigned.values())) == 5_000
    if name == "uniform":
        assert {size(each) for each in assigned.values()} == {5}
