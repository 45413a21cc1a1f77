"""The kills: a plan made from a seed, before anything runs."""

import random
from dataclasses import dataclass
from enum import Enum

EARLIEST, LATEST = 0.02, 0.95
"""No kill before this share of the flights is through, and none after."""

JITTER_S = 3.0
"""A kill comes up to this long after its share is reached: in the middle of any work."""


class Victim(Enum):
    """Which process is killed."""

    DRIVER = "Spark driver and workers"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL, due when a share of the flights is through and some time has passed."""

    victim: Victim
    share: float
    delay_s: float


def plan(kills: int, seed: int) -> list[Kill]:
    """Plan `kills` kills in order of their shares; one of them, if there are any, is the broker."""
    dice = random.Random(seed)
    shares = sorted(dice.uniform(EARLIEST, LATEST) for _ in range(kills))
    broker = dice.randrange(kills) if kills else -1
    return [
        Kill(
            Victim.BROKER if number == broker else Victim.DRIVER,
            share,
            dice.uniform(0, JITTER_S),
        )
        for number, share in enumerate(shares)
    ]
