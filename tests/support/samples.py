"""The part of a long proof that `make test` plays; `make crash-points` plays all of it."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

EVERY: Final = int(os.environ.get("EVERY", "3"))
"""One of so many points is played; 1 plays all."""

T = TypeVar("T")


def sampled(points: Sequence[T], first: int = 0) -> Sequence[T]:
    """One point in `EVERY`, from the `first` on; proofs of the same points begin elsewhere."""
    return points[first % EVERY :: EVERY]
