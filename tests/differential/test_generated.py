"""Histories that nobody thought of: both brokers, asked in lockstep, answer alike."""

import os
import uuid
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings

from differential.histories import HistoryStep, Players, histories
from differential.pair import Pair
from differential.script import Talk
from differential.topics import make_topic

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

EXAMPLES: Final = int(os.environ.get("TXN_DIFFERENTIAL_EXAMPLES", "0"))
"""Number of new histories to play. 0 plays the same few each time, so that a red run says something
about the change."""
FEW: Final = 60


class Arena:
    """A topic that histories share until one leaves the brokers in different states."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.played = 0
        self.diverged = 0
        self._talk: Talk | None = None

    def play(self, steps: list[HistoryStep]) -> None:
        talk = self._talk or self._fresh()
        self._talk = None  # taken back below, if the brokers still agree
        self.pair.history.clear()
        self.played += 1
        players = Players(talk, self.played, self._ends(talk))
        players.play(steps)
        players.finish()
        assert not self.pair.differences, self.pair.report()
        if self.pair.has_diverged:
            self.diverged += 1
        else:
            self._talk = talk

    def _fresh(self) -> Talk:
        self.pair.begin(uuid.uuid4().hex[:8])
        return Talk(self.pair, make_topic(self.pair, self.pair.own("t")))

    def _ends(self, talk: Talk) -> tuple[int, int]:
        answer = talk.list_offsets({0: -1, 1: -1}, isolation=0)
        first, second = answer["topics"][0]["partitions"]
        return first["offset"], second["offset"]


def test_both_brokers_answer_alike_whatever_they_are_asked(pair: Pair) -> None:
    arena = Arena(pair)

    @settings(
        max_examples=EXAMPLES or FEW,
        derandomize=not EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(histories())
    def plays(steps: list[HistoryStep]) -> None:
        arena.play(steps)

    asked = pair.requests
    plays()
    print(
        f"\n{arena.played} histories, {pair.requests - asked} requests; "
        f"{arena.diverged} ended at a difference that is accepted; accepted: {pair.accepted}"
    )
