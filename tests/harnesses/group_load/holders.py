"""The holders of partitions, as members know them."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

Place = Hashable
"""A partition of a group's topics."""


@dataclass
class Holders:
    """The member that holds each partition of each group, and the wrong assignments."""

    problems: list[str] = field(default_factory=list)
    taken: int = 0
    """How often a partition was given to a member."""
    _held: dict[tuple[str, Place], object] = field(default_factory=dict)

    def take(self, group: str, member: object, places: Iterable[Place]) -> None:
        """A member was given partitions."""
        for place in places:
            holder = self._held.setdefault((group, place), member)
            self.taken += 1
            if holder is not member:
                self.problems.append(f"{group}: {place} was given to two members at once")
                self._held[group, place] = member

    def drop(self, group: str, member: object, places: Iterable[Place]) -> None:
        """A member has given up partitions."""
        for place in places:
            if self._held.get((group, place)) is member:
                del self._held[group, place]
