"""Histories of groups that change their protocol: txn and Kafka 4.4 answer and write alike.

One static member speaks the classic protocol, and three members the consumer protocol; one of these
may take the instance id of the first. So no request waits for another one. The assignor is range,
which orders members alike on both brokers.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from difflib import unified_diff
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import txn
from differential.test_generated_groups import EXAMPLES
from harnesses.peers.jars import NODE_4_4
from harnesses.peers.kafka import KafkaNode
from interop.test_group_migration_answers import (
    EAGER,
    Migrations,
    Played,
    labelled,
    records_of,
)
from support.clients import create_topic
from support.samples import EVERY
from support.wire_client import RawConnection
from txn.coordinator.group.consumer.embedded import decode_assignment
from txn.wire.error_codes import ErrorCode

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

FEW: Final = 40 if EVERY > 1 else 150
STEPS_MAX: Final = 16
SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "range",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
PARTITIONS: Final = 3
INSTANCE: Final = "i"
CONSUMERS: Final = ("b", "c", "s")
STATIC: Final = "s"
"""The consumer that has the instance id of the classic member."""


class Step(NamedTuple):
    """One act of one client."""

    what: str
    who: str
    step: int


class Player:
    """The clients on one broker."""

    def __init__(self, history: Migrations) -> None:
        self._history = history
        self._member = ""
        self._generation = -1
        self._parts: list[int] = []
        self._is_in_round = False
        self._epochs = dict.fromkeys(CONSUMERS, 0)
        self._owned: dict[str, Any] = {name: [] for name in CONSUMERS}

    def act(self, step: Step) -> None:
        what, who, number = step
        instance = {"instance_id": INSTANCE} if who == STATIC else {}
        match what:
            case "join":
                if who == STATIC and self._is_in_round:
                    self._classic_sync(0)  # else Kafka assigns nothing: see `migration.py`
                self._hear(who, self._history.join(self._history.group_id, who, **instance))
            case "beat":
                owned = self._owned[who]
                epoch = self._epochs[who] + number
                said = {**instance, "topic_partitions": owned}
                self._hear(who, self._history.beat(self._history.group_id, who, epoch, **said))
            case "leave":
                epoch = -2 if number and who == STATIC else -1
                self._history.beat(self._history.group_id, who, epoch, **instance)
                self._epochs[who], self._owned[who] = 0, []
            case "remove":
                self._history.classic_leave((who, instance.get("instance_id")))
            case "classic join":
                self._classic_join(forgets=number < 0)
            case "classic sync":
                self._classic_sync(number)
            case "classic heartbeat":
                self._history.classic_beat(self._member, self._generation + number, INSTANCE)
            case "classic leave":
                self._history.classic_leave(("", INSTANCE))
            case "all":
                self._everybody()

    def _everybody(self) -> None:
        for name in CONSUMERS:
            if self._epochs[name] > 0:
                self.act(Step("beat", name, 0))
        if self._member:
            self.act(Step("classic join", "", 0))
            self.act(Step("classic sync", "", 0))

    def _hear(self, who: str, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._epochs[who] = answer.member_epoch
            if answer.assignment is not None:
                self._owned[who] = [
                    {"topic_id": one.topic_id, "partitions": [*one.partitions]}
                    for one in answer.assignment.topic_partitions
                ]

    def _classic_join(self, *, forgets: bool) -> None:
        if forgets:
            self._member, self._parts = "", []
        answer = self._history.classic_join(
            "a", self._member, parts=self._parts, instance_id=INSTANCE, protocols=EAGER
        )
        if answer.error_code == ErrorCode.NONE:
            self._member, self._generation = answer.member_id, answer.generation_id
            self._is_in_round = True

    def _classic_sync(self, number: int) -> None:
        assigned = {self._member: [*range(PARTITIONS)]}
        answer = self._history.sync(
            self._member,
            self._generation + number,
            assigned,
            protocol=EAGER[0],
            instance_id=INSTANCE,
        )
        if answer.error_code == ErrorCode.NONE:
            found = decode_assignment(answer.assignment).partitions
            self._parts = [*found.get("orders", ())]
            self._is_in_round = False


def played(servers: str, group_id: str, steps: list[Step]) -> Played:
    with RawConnection(servers) as connection:
        history = Migrations(connection, group_id)
        player = Player(history)
        for step in steps:
            player.act(step)
        history.describe(group_id)
    # A static member has a new id each time it comes back: each has the same label.
    labels = dict.fromkeys(history.labels, "<a>")
    return Played(
        [labelled(each, labels) for each in history.answers],
        records_of(servers, labels, group_id, 0),
    )


@st.composite
def _step(draw: st.DrawFn) -> Step:
    often = ("join", "beat", "classic join", "classic sync", "classic heartbeat", "all", "all")
    rare = ("leave", "remove", "classic leave")
    return Step(
        draw(st.sampled_from([*often, *often, *rare])),
        draw(st.sampled_from(CONSUMERS)),
        draw(st.sampled_from([0, 0, 0, 0, -1, 1])),
    )


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        node = stack.enter_context(
            KafkaNode(tmp_path_factory.mktemp("kafka"), SETTINGS, jars=NODE_4_4)
        )
        broker = stack.enter_context(txn.Broker(properties=SETTINGS))
        found = broker.bootstrap_servers, node.bootstrap_servers
        for servers in found:
            create_topic(servers, "orders", PARTITIONS)
            with RawConnection(servers) as connection:
                Migrations(connection).await_coordinator()
        yield found


def test_both_brokers_migrate_a_group_alike_whatever_its_members_do(
    brokers: tuple[str, str],
) -> None:
    @settings(
        max_examples=EXAMPLES or FEW,
        derandomize=not EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_step(), min_size=4, max_size=STEPS_MAX))
    def plays(steps: list[Step]) -> None:
        group_id = f"g-{uuid.uuid4().hex}"
        ours, theirs = (played(servers, group_id, steps) for servers in brokers)
        for our, their in zip(ours.answers, theirs.answers, strict=True):
            assert our == their, (steps, ours.answers)
        lines = unified_diff(ours.records, theirs.records, "txn", "Kafka", lineterm="")
        assert ours.records == theirs.records, "\n".join([*map(str, steps), *lines])

    plays()
