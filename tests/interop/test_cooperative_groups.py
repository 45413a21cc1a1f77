"""Real consumers that come and go by cooperative rebalances: no partition has two owners."""

import random
from collections.abc import Callable
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import create_topic
from support.samples import left_out

PARTITIONS: Final = 12
MEMBERS_MAX: Final = 5
CHANGES: Final = 8

Unique = Callable[[str], str]


class Ledger:
    """The owner of each partition, as the consumers' callbacks tell it."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.moved = 0

    def subscribe(self, consumer: Consumer, name: str, topic: str) -> None:
        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                before = self.owners.setdefault(each.partition, name)
                assert before == name, f"{each.partition} belongs to {before} and {name}"
            self.moved += len(partitions)
            consumer.incremental_assign(partitions)

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                assert self.owners.pop(each.partition) == name
            consumer.incremental_unassign(partitions)

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=left_out) for seed in (2, 3, 4))])
def test_no_partition_has_two_owners_while_members_come_and_go(
    bootstrap: str, unique: Unique, seed: int
) -> None:
    chance = random.Random(seed)
    topic, group = unique(f"shared-{seed}"), unique(f"shop-{seed}")
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    ledger = Ledger()
    members: dict[str, Consumer] = {}

    def join(name: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        members[name] = Consumer(settings)
        ledger.subscribe(members[name], name, topic)

    def is_shared() -> bool:
        counts = [list(ledger.owners.values()).count(name) for name in members]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

    try:
        for number in range(CHANGES):
            if len(members) > 1 and (len(members) == MEMBERS_MAX or chance.random() < 0.4):
                members.pop(chance.choice(sorted(members))).close()
            else:
                join(f"member-{number}")
            while not is_shared():
                for member in members.values():
                    member.poll(0.02)
    finally:
        for member in members.values():
            member.close()
    assert ledger.owners == {}
    # A round that took everything from everybody would move all partitions at each change.
    assert ledger.moved < CHANGES * PARTITIONS
