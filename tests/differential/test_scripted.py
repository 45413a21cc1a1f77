"""Known histories, good and hostile: both brokers answer alike, or the difference is known."""

from collections.abc import Callable

import pytest

from differential.accepted import KNOWN
from differential.pair import Pair
from differential.script import Talk
from differential.scripts import SCRIPTS

pytestmark = pytest.mark.peer

played: set[str] = set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_brokers_answer_alike(talk: Talk, script: Callable[[Talk], None]) -> None:
    script(talk)
    played.add(script.__name__)
    assert not talk.pair.differences, talk.pair.report()


def test_every_accepted_difference_still_occurs(pair: Pair) -> None:
    """One that occurs no more is to be taken off the list, so that it cannot hide another."""
    if played != {script.__name__ for script in SCRIPTS}:
        pytest.skip("asks for all scripts in one run")
    stale = [entry.name for entry in KNOWN if entry.name not in pair.accepted]
    assert not stale, f"accepted differences that no script sees any more: {stale}"
