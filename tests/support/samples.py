"""The part of a long proof that `make test` plays; `make proofs` plays all of it."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

EVERY: Final = int(os.environ.get("EVERY", "24"))
"""One of so many points is played; 1 plays all, and the cases that `make test` leaves out."""

LEFT_OUT: Final = "a long proof: make proofs plays it"

left_out = pytest.mark.skipif(EVERY > 1, reason=LEFT_OUT)
"""Marks a case that costs a minute of two cores, and has a shorter relative in `make test`."""

T = TypeVar("T")


def sampled(points: Sequence[T], first: int = 0) -> Sequence[T]:
    """One point in `EVERY`, from the `first` on; proofs of the same points begin elsewhere."""
    return points[first % EVERY :: EVERY]
