"""The one place where a rule of txn is broken on purpose, to see that a checker notices.

    with Seam() as seam:

        @seam.instead_of(has_deadline)  # a pure rule
        def never(txn: Txn) -> bool:
            return False

        @seam.instead_of(LocalMarkerSender)  # a part of the broker: a subclass of it
        class Forgetful(LocalMarkerSender): ...

A rule is given as an object, not by its name. So a rule that is renamed fails at the import, and
mypy compares the signatures. It has to be public: a function or a class of its module. Every
module that uses it gets the broken one instead, but for the module of the broken one, which may
call the rule that it breaks. The product knows nothing of this.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Final, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

BROKER: Final = ("txn", "sim", "model")
"""The packages with a broker: the product, the simulation, the models."""


class Seam:
    """Rules that are broken until the end of a `with` block."""

    def __init__(self) -> None:
        self._replaced: list[tuple[ModuleType, str, object]] = []

    def instead_of(self, rule: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator that has the broker use its function in a rule's place, or its class.

        Modules that are imported later get it, too. A part of the broker that exists already
        stays as it was made.
        """
        return partial(self._put, rule)

    def _put(self, rule: Callable[P, R], broken: Callable[P, R]) -> Callable[P, R]:
        name = rule.__qualname__
        is_public = name.isidentifier() and not name.startswith("_")
        assert is_public, f"{name} is not public"
        is_part = not isinstance(rule, type) or (
            isinstance(broken, type) and issubclass(broken, rule)
        )
        assert is_part, f"{broken} is no {name}"
        places = list(_places_of(rule, broken.__module__))
        assert places, f"nothing uses {name}, or it is broken already"
        for module, held_as in places:
            self._replaced.append((module, held_as, rule))
            setattr(module, held_as, broken)
        return broken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._replaced:
            setattr(*self._replaced.pop())


def _places_of(rule: object, broken_in: str) -> Iterator[tuple[ModuleType, str]]:
    """Every module of the broker that holds a rule, and the name that the rule has there."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in BROKER and name != broken_in:
            for held_as, value in list(vars(module).items()):
                if value is rule:
                    yield module, held_as
