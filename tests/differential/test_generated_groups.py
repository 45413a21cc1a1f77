"""Histories of the classic group protocol that nobody thought of: both brokers answer alike."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from differential.group_rounds import (
    CLIENTS,
    DifferenceError,
    DifferentChoiceError,
    Rounds,
    rounds_beside,
)
from harnesses.peers.jars import CONTROL
from support.samples import EVERY

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

EXAMPLES: Final = int(os.environ.get("TXN_DIFFERENTIAL_EXAMPLES", "0"))
"""Number of new histories to play. 0 plays the same few each time."""
FEW: Final = 60 if EVERY > 1 else 250
STEPS_MAX: Final = 20
REPETITIONS: Final = 3
"""A difference is one if it comes back: a broker may have got on between two looks."""

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "offsets.topic.num.partitions": "1",
}
PROTOCOLS: Final = (
    ("range",),
    ("range", "sticky"),
    ("sticky", "range"),
    ("cooperative-sticky",),
)


class GroupStep(NamedTuple):
    """One act of one client."""

    what: str
    who: int
    version: int
    protocols: tuple[str, ...]
    step: int
    other: int


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    directory = tmp_path_factory.mktemp("groups")
    with rounds_beside(directory, CONTROL, SETTINGS, "t") as rounds:
        yield rounds


def act(rounds: Rounds, step: GroupStep) -> None:
    what, who, version, protocols, number, other = step
    match what:
        case "join":
            rounds.join(who, version, protocols)
        case "arrive":
            arrive(rounds, who, version, protocols)
        case "sync":
            rounds.sync(who, min(version, 5), number)
        case "heartbeat":
            rounds.heartbeat(who, min(version, 4), number)
        case "heartbeat as another":
            rounds.heartbeat(who, min(version, 4), number, rounds.clients[other].member)
        case "leave":
            rounds.leave(who, min(version, 5), by_instance=number != 0)
        case "commit":
            rounds.commit(who, version, number)
        case "restart":
            rounds.restart(who)
        case "delete":
            rounds.delete()
        case "delete offsets":
            rounds.delete_offsets()
        case "round":
            everybody_joins(rounds, version, protocols, ends=number == 0)


def two_members(
    rounds: Rounds, first: int, second: int, *, session_ms: int = 30_000, rebalance_ms: int = 60_000
) -> None:
    """A group of two with an assignment; the first client leads it, the second has the session."""
    rounds.begin(f"g-{uuid.uuid4().hex}", "t")
    for who, session in ((first, 30_000), (second, session_ms)):
        for _ in range(2 if rounds.clients[who].instance_id is None else 1):
            rounds.join(who, 9, ("range",), session_ms=session, rebalance_ms=rebalance_ms)
    rounds.join(first, 9, ("range",), rebalance_ms=rebalance_ms)
    for who in (first, second):
        rounds.sync(who, 5)
    if not rounds.clients[first].is_leader:
        raise DifferenceError("the round did not end")


def repeatedly(script: Callable[[], None]) -> None:
    """Run a script; a difference is one if it comes back."""
    for repetition in range(REPETITIONS):
        try:
            script()
        except DifferenceError:
            if repetition == REPETITIONS - 1:
                raise
        else:
            return


def arrive(rounds: Rounds, who: int, version: int, protocols: tuple[str, ...]) -> None:
    """A client joins, and once more if it has only been given its id."""
    was_known = bool(rounds.clients[who].member)
    rounds.join(who, version, protocols)
    if not was_known and rounds.clients[who].member and rounds.clients[who].generation < 0:
        rounds.join(who, version, protocols)


def everybody_joins(
    rounds: Rounds, version: int, protocols: tuple[str, ...], *, ends: bool = True
) -> None:
    """The members do as they should: all join again. If the round ends, all ask for assignments."""
    members = [who for who, client in enumerate(rounds.clients) if client.member]
    for who in members:
        rounds.join(who, version, protocols)
    for who in members if ends else ():
        rounds.sync(who, min(version, 5))


def play(rounds: Rounds, steps: list[GroupStep]) -> bool:
    """Say whether the history came to its end; raise DifferenceError if a difference stays."""

    def script() -> None:
        rounds.begin(f"g-{uuid.uuid4().hex}", "t")
        for step in steps:
            act(rounds, step)

    try:
        repeatedly(script)
    except DifferentChoiceError:
        return False
    return True


@st.composite
def _step(draw: st.DrawFn, usual: tuple[str, ...], what: str = "") -> GroupStep:
    often = ("arrive", "arrive", "join", "sync", "sync", "round", "round", "round", "heartbeat")
    rare = ("heartbeat as another", "leave", "commit", "restart", "delete", "delete offsets")
    return GroupStep(
        what or draw(st.sampled_from([*often, *often, *rare])),
        draw(st.integers(0, CLIENTS - 1)),
        draw(st.sampled_from([9, 9, 8, 5, 4, 3])),
        draw(st.sampled_from([usual] * 5 + list(PROTOCOLS))),
        draw(st.sampled_from([0, 0, 0, 0, -1, 1])),
        draw(st.integers(0, CLIENTS - 1)),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[GroupStep]:
    """Clients arrive and have a round; then anything happens."""
    usual = draw(st.sampled_from(PROTOCOLS))
    arrivals = draw(st.lists(_step(usual, "arrive"), min_size=1, max_size=4))
    steps = draw(st.lists(_step(usual), min_size=3, max_size=STEPS_MAX))
    return [*arrivals, draw(_step(usual, "round")), *steps]


def test_both_brokers_lead_a_group_alike_whatever_its_members_do(rounds: Rounds) -> None:
    ended: list[bool] = []

    @settings(
        max_examples=EXAMPLES or FEW,
        derandomize=not EXAMPLES,
        deadline=None,
        # A smaller history of a difference would take minutes: each look waits for the brokers.
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(histories())
    def plays(steps: list[GroupStep]) -> None:
        ended.append(play(rounds, steps))

    plays()
    print(f"\n{len(ended)} histories, {ended.count(False)} ended at a choice of Kafka's")


@pytest.mark.parametrize("version", [9, 4])
@pytest.mark.parametrize("asker", [0, 2], ids=["dynamic", "static"])
@pytest.mark.parametrize(
    "state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
)
def test_both_brokers_answer_each_request_alike_in_each_state(
    rounds: Rounds, state: str, asker: int, version: int
) -> None:
    def script() -> None:
        two_members(rounds, 1, asker)
        match state:
            case "Empty" | "Dead":
                rounds.leave(1, 5)
                rounds.leave(asker, 5)
            case "PreparingRebalance":
                rounds.join(1, 9, ("range", "sticky"))
            case "CompletingRebalance":
                for who in (1, asker):
                    rounds.join(who, 9, ("range", "sticky"))
        if state == "Dead":
            rounds.delete()
        for step in (0, -1, 1):
            rounds.heartbeat(asker, min(version, 4), step)
            rounds.commit(asker, version, step)
            if step or state != "CompletingRebalance":
                rounds.sync(asker, min(version, 5), step)
        for other in ("", "nobody", rounds.clients[1].member):
            rounds.heartbeat(asker, min(version, 4), 0, other)
        rounds.delete_offsets()
        rounds.delete()
        rounds.join(asker, version, ("other",))
        rounds.join(3, version, ("range",))
        rounds.leave(asker, min(version, 5), by_instance=True)
        rounds.leave(asker, min(version, 5))

    with suppress(DifferentChoiceError):
        repeatedly(script)


@pytest.mark.parametrize("silent", [1, 2], ids=["dynamic", "static"])
def test_both_brokers_remove_a_member_that_falls_silent(rounds: Rounds, silent: int) -> None:
    def script() -> None:
        two_members(rounds, 0, silent, session_ms=1_500)
        rounds.until(lambda group: len(group["members"]) == 1)
        rounds.heartbeat(0, 4)
        rounds.heartbeat(silent, 4)
        rounds.commit(silent, 8)
        rounds.join(0, 9, ("range",))
        rounds.sync(0, 5)

    repeatedly(script)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (2, 0), (2, 3)])
def test_both_brokers_end_a_round_that_a_member_does_not_join(
    rounds: Rounds, first: int, second: int
) -> None:
    def script() -> None:
        two_members(rounds, first, second, rebalance_ms=1_000)
        rounds.join(first, 9, ("range", "sticky"), rebalance_ms=1_000)
        rounds.until(lambda group: group["group_state"] != "PreparingRebalance")
        rounds.sync(first, 5)
        rounds.heartbeat(second, 4)
        rounds.sync(second, 5)

    repeatedly(script)


@pytest.mark.parametrize("first", [0, 2], ids=["dynamic", "static"])
def test_both_brokers_end_a_round_whose_leader_hands_nothing_in(rounds: Rounds, first: int) -> None:
    def script() -> None:
        two_members(rounds, first, 1, rebalance_ms=1_000)
        for who in (first, 1):
            rounds.join(who, 9, ("range", "sticky"), rebalance_ms=1_000)
        rounds.sync(1, 5)
        rounds.until(lambda group: group["group_state"] != "CompletingRebalance")
        rounds.heartbeat(first, 4)
        rounds.heartbeat(1, 4)

    repeatedly(script)
