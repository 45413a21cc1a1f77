"""Why two schemas are not compatible, and the comparison of schemas that contain themselves."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """A difference that breaks compatibility.

    Attributes:
        kind: Its name; the original registry has the same.
        path: The place in the schema.
        text: The difference in words.
    """

    kind: str
    path: str
    text: str = ""

    def __str__(self) -> str:
        about = f", description:'{self.text}'" if self.text else ""
        return f"{{errorType:'{self.kind}', path:'{self.path or '/'}'{about}}}"


class Pairs:
    """Compares each pair of types once.

    A pair that comes again inside of itself is taken for compatible. If it turns out not to be,
    everything is compared again, and the pair then has its reasons from the beginning.
    """

    def __init__(self) -> None:
        self._refused: dict[tuple[int, int], list[Reason]] = {}
        self._begun: dict[tuple[int, int], list[Reason]] = {}

    def settle(self, compare: Callable[[], list[Reason]]) -> list[Reason]:
        """The reasons of a comparison, once every pair was taken rightly."""
        while True:
            self._begun = {}
            found = compare()
            refused = {key: reasons for key, reasons in self._begun.items() if reasons}
            if refused.keys() <= self._refused.keys():
                return found
            self._refused |= refused

    def of(self, one: object, other: object, compare: Callable[[], list[Reason]]) -> list[Reason]:
        """The reasons of a pair; its objects live as long as this one."""
        key = (id(one), id(other))
        if key not in self._begun:
            self._begun[key] = self._refused.get(key, [])
            self._begun[key] = compare()
        return self._begun[key]
