"""The parts of a recovery that wait for a disk, and the calls that wait for the last of them."""

from collections.abc import Callable, Hashable


class Unfinished:
    """The repairs of a start that a disk refuses; empty once the start is recovered."""

    def __init__(self) -> None:
        self._repairs: set[Hashable] = set()
        self._when_empty: list[Callable[[], object]] = []

    def __contains__(self, repair: Hashable) -> bool:
        return repair in self._repairs

    @property
    def is_empty(self) -> bool:
        """True if no disk refuses anything of the recovery."""
        return not self._repairs

    def add(self, repair: Hashable) -> None:
        """Note a repair that is tried again."""
        self._repairs.add(repair)

    def discard(self, repair: Hashable) -> None:
        """Note that a repair is done; after the last one, make the calls that wait."""
        self._repairs.discard(repair)
        while self.is_empty and self._when_empty:
            self._when_empty.pop()()

    def call_when_empty(self, call: Callable[[], object]) -> None:
        """Make a call once nothing is left: at once, if nothing is."""
        if self.is_empty:
            call()
        else:
            self._when_empty.append(call)
