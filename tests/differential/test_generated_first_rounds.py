"""Histories of groups whose first round waits for more members: both brokers answer alike.

`group.initial.rebalance.delay.ms` is above 0 on both. Acts fall into the wait and behind it.
"""

import uuid
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from differential.group_rounds import (
    CLIENTS,
    PREPARING,
    DifferentChoiceError,
    Rounds,
    rounds_beside,
)
from differential.test_generated_groups import (
    EXAMPLES,
    PROTOCOLS,
    GroupStep,
    act,
    everybody_joins,
    repeatedly,
)
from harnesses.peers.jars import NODE_4_4
from support.samples import EVERY

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

FEW: Final = 20 if EVERY > 1 else 80
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "1500",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "offsets.topic.num.partitions": "1",
}
ACTS: Final = ("arrive", "arrive", "arrive", "heartbeat", "sync", "leave", "commit", "restart")


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    directory = tmp_path_factory.mktemp("groups")
    with rounds_beside(directory, NODE_4_4, SETTINGS, "t") as rounds:
        yield rounds


@st.composite
def _step(draw: st.DrawFn, usual: tuple[str, ...], what: str = "") -> GroupStep:
    return GroupStep(
        what or draw(st.sampled_from(ACTS)),
        draw(st.integers(0, CLIENTS - 1)),
        draw(st.sampled_from([9, 8, 5, 3])),
        draw(st.sampled_from([usual] * 5 + list(PROTOCOLS))),
        draw(st.sampled_from([0, 0, 0, -1])),
        0,
    )


@st.composite
def histories(draw: st.DrawFn) -> list[GroupStep]:
    usual = draw(st.sampled_from(PROTOCOLS))
    steps = draw(st.lists(_step(usual), min_size=1, max_size=5))
    return [draw(_step(usual, "arrive")), *steps]


def test_both_brokers_wait_for_the_first_members_of_a_group_alike(rounds: Rounds) -> None:
    ended: list[bool] = []

    def play(steps: list[GroupStep]) -> bool:
        def script() -> None:
            rounds.begin(f"g-{uuid.uuid4().hex}", "t")
            for step in steps:
                act(rounds, step)
            rounds.until(lambda group: group["group_state"] != PREPARING)
            everybody_joins(rounds, 9, steps[0].protocols)

        try:
            repeatedly(script)
        except DifferentChoiceError:
            return False
        return True

    @settings(
        max_examples=EXAMPLES or FEW,
        derandomize=not EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(histories())
    def plays(steps: list[GroupStep]) -> None:
        ended.append(play(steps))

    plays()
    print(f"\n{len(ended)} histories, {ended.count(False)} ended at a choice of Kafka's")
