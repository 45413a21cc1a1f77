"""The cases of generated tests: the same in each run, or new ones with `EXPLORE=1`.

A red run then says something about the change, and about nothing else. `make soak` and
`make proofs` look for new cases. A failure that they find becomes a named regression test first.
"""

import os
import random
from typing import Final

EXPLORES: Final = bool(os.environ.get("EXPLORE"))


def seed_of_run(usual: int = 7) -> int:
    """The seed of a random test: `SEED` of the environment, a new one if it explores, or `usual`.

    A test prints it with its failure.
    """
    given = os.environ.get("SEED")
    if given is not None:
        return int(given)
    return random.SystemRandom().randrange(10**6) if EXPLORES else usual
