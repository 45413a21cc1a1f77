"""Parts of long lists: a page shows some hundred lines, and says how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SHOWN: Final = 100

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Part(Generic[Item]):
    """A part of a list; `number` counts the parts from 1 on."""

    items: Sequence[Item]
    number: int
    first: int
    total: int

    @property
    def last(self) -> int:
        """The place of its last item in the whole list, from 1 on."""
        return self.first + len(self.items) - 1

    @property
    def has_more(self) -> bool:
        """True if there is a next part."""
        return self.last < self.total


def part_of(items: Sequence[Item], number: int, shown: int = SHOWN) -> Part[Item]:
    """A part of a list; one beyond its end is the last."""
    parts = max(1, -(-len(items) // shown))
    number = min(max(number, 1), parts)
    start = (number - 1) * shown
    return Part(items[start : start + shown], number, start + 1, len(items))
