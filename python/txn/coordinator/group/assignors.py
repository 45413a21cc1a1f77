"""The assignors of the broker: which member of a consumer group reads which partition.

Pure. An assignor gets the members with their current target assignments and returns new ones. A
partition of a topic with subscribers has exactly one owner, and only a subscriber owns it. Topics
that do not exist have no partitions, so no assignment names them.

`uniform` balances first and keeps second. If all members subscribe to the same topics, their sizes
differ by at most one, and no partition moves without need. Otherwise no single move between two
subscribers of a topic improves the balance, unless `PASSES_MAX` ended the search.

`range` divides each topic into ranges, in the order of its members: static members by instance id,
then the others by member id. Topics with as many partitions and the same subscribers are
co-partitioned: a member gets the same numbers of each. The order alone makes it sticky.

Racks are accepted and do not matter, as in Apache Kafka since 4.0. One deviation: members that own
more than others keep the partitions that cannot be divided evenly. Kafka gives them to the first
members in the order of a hash table, so it moves partitions that could have stayed.

Cost: linear in partitions and subscriptions, times the logarithm of the number of members.

Sources: KIP-848; UniformAssignor and RangeAssignor of Apache Kafka 4.4.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Final, NamedTuple

Assignment = dict[uuid.UUID, frozenset[int]]
"""The partitions of one member, by topic id; no set is empty."""

PASSES_MAX: Final = 16
"""Passes over the topics in search of a better balance, as many as in Apache Kafka.

Equal subscriptions need one. Chains of overlapping subscriptions may need more than this.
"""


class Subscriber(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        topics: Ids of the topics of its subscription, patterns included.
        owned: Its current target assignment.
        rack_id: Its rack, which no assignor uses.
        instance_id: Its name across restarts, if it is a static member.
    """

    topics: frozenset[uuid.UUID]
    owned: Mapping[uuid.UUID, frozenset[int]]
    rack_id: str | None = None
    instance_id: str | None = None


Assignor = Callable[
    [Mapping[str, Subscriber], Mapping[uuid.UUID, int]],
    dict[str, Assignment],
]
"""Members by id, and partition counts by topic id, to an assignment for every member."""


class _Audience(NamedTuple):
    """The topics that have the same subscribers, which are balanced as if they were one topic.

    Members are positions in the order of the assignor.
    """

    topics: list[uuid.UUID]
    members: list[int]


def _audiences(
    subscribers: Iterable[Subscriber], partitions: Mapping[uuid.UUID, int]
) -> list[_Audience]:
    # Most members of a group have the same subscription, so it is read once for all of them.
    members_of: dict[frozenset[uuid.UUID], list[int]] = defaultdict(list)
    for member, subscriber in enumerate(subscribers):
        members_of[subscriber.topics].append(member)
    subscriptions_to: dict[uuid.UUID, list[int]] = defaultdict(list)
    for number, topics in enumerate(members_of):
        for topic in topics:
            subscriptions_to[topic].append(number)
    topics_of: dict[tuple[int, ...], list[uuid.UUID]] = defaultdict(list)
    for topic, numbers in subscriptions_to.items():
        if partitions.get(topic, 0) > 0:
            topics_of[tuple(numbers)].append(topic)
    groups = list(members_of.values())
    return [
        _Audience(sorted(topics), sorted(member for number in key for member in groups[number]))
        for key, topics in topics_of.items()
    ]


class _Balance:
    """The partitions of each member while the uniform assignor works.

    Attributes:
        sizes: How many partitions each member has, of any topic.
        held: For each audience, the partitions of each member that has some of its topics.
    """

    def __init__(
        self,
        subscribers: list[Subscriber],
        partitions: Mapping[uuid.UUID, int],
        audiences: list[_Audience],
    ) -> None:
        self.sizes = [0] * len(subscribers)
        self.held: list[dict[int, list[tuple[uuid.UUID, int]]]] = [{} for _ in audiences]
        self._audiences = audiences
        number_of = {
            topic: number for number, each in enumerate(audiences) for topic in each.topics
        }
        free = {topic: set(range(partitions[topic])) for topic in number_of}
        for member, subscriber in enumerate(subscribers):
            for topic in sorted(subscriber.owned):
                if topic not in free or topic not in subscriber.topics:
                    continue
                # A partition that two members claim stays with the first of them.
                kept = free[topic] & subscriber.owned[topic]
                if kept:
                    free[topic] -= kept
                    self.sizes[member] += len(kept)
                    mine = self.held[number_of[topic]].setdefault(member, [])
                    mine.extend((topic, partition) for partition in sorted(kept))
        self._free = [
            [(topic, partition) for topic in each.topics for partition in sorted(free[topic])]
            for each in audiences
        ]

    def hand_out(self, number: int) -> None:
        """Give each partition without an owner to the subscriber with the fewest."""
        if not self._free[number]:
            return
        fewest = [(self.sizes[member], member) for member in self._audiences[number].members]
        heapify(fewest)
        held = self.held[number]
        for each in self._free[number]:
            size, member = fewest[0]
            heapreplace(fewest, (size + 1, member))
            held.setdefault(member, []).append(each)
            self.sizes[member] = size + 1

    def level(self, number: int) -> bool:
        """Move partitions of an audience until no move between two members is an improvement.

        Returns:
            Whether any partition moved.
        """
        held, sizes = self.held[number], self.sizes
        members = self._audiences[number].members
        size_of = sizes.__getitem__
        if max(map(size_of, held), default=0) < min(map(size_of, members)) + 2:
            return False
        most = [(-sizes[member], member) for member in held]
        fewest = [(sizes[member], member) for member in members]
        heapify(most)
        heapify(fewest)
        # A giver never becomes a receiver here, nor the other way round: the largest size only
        # falls and the smallest only rises. So each heap may keep old sizes of the other's members.
        while most[0][0] + 2 <= -fewest[0][0]:
            _, giver = most[0]
            size, receiver = fewest[0]
            held.setdefault(receiver, []).append(held[giver].pop())
            sizes[giver] -= 1
            sizes[receiver] = size + 1
            heapreplace(fewest, (size + 1, receiver))
            # A member without a partition to give goes behind all others.
            heapreplace(most, (-sizes[giver] if held[giver] else 0, giver))
        for member in [member for member, mine in held.items() if not mine]:
            del held[member]
        return True


def _uniform(
    members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    names = sorted(members)
    subscribers = [members[name] for name in names]
    audiences = _audiences(subscribers, partitions)
    # Members with little choice come first, so that the others can even them out.
    audiences.sort(
        key=lambda each: (
            -sum(partitions[topic] for topic in each.topics) / len(each.members),
            len(each.members),
            each.topics[0],
        )
    )
    balance = _Balance(subscribers, partitions, audiences)
    numbers = range(len(audiences))
    for number in numbers:
        balance.hand_out(number)
    contested = [number for number in numbers if len(audiences[number].members) > 1]
    for _ in range(PASSES_MAX):
        if not sum(balance.level(number) for number in contested):
            break
    found: list[dict[uuid.UUID, list[int]]] = [defaultdict(list) for _ in names]
    for held in balance.held:
        for member, mine in held.items():
            for topic, partition in mine:
                found[member][topic].append(partition)
    return {
        name: {topic: frozenset(numbers) for topic, numbers in mine.items()}
        for name, mine in zip(names, found, strict=True)
    }


def _range(
    members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    def place(name: str) -> tuple[bool, str, str]:
        instance_id = members[name].instance_id
        return instance_id is None, instance_id or "", name

    names = sorted(members, key=place)
    found: dict[str, Assignment] = {name: {} for name in names}
    for topics, positions in _audiences((members[name] for name in names), partitions):
        for topic in topics:
            quota, extra = divmod(partitions[topic], len(positions))
            start = 0
            # Without a quota, only the first members get one partition each.
            for number, position in enumerate(positions if quota else positions[:extra]):
                end = start + quota + (number < extra)
                found[names[position]][topic] = frozenset(range(start, end))
                start = end
    return found


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": _uniform, "range": _range}
"""The assignors by the names that clients and settings give them, the default one first."""
