"""Offsets with a lifetime of their own expire on both brokers alike, whatever their group does.

A commit of OffsetCommit 2 to 4 may name its lifetime. Both brokers look for expired offsets all the
time. So they agree once each has looked behind the last change.
"""

import datetime
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from differential.group_rounds import Half, Rounds, rounds_beside
from harnesses.peers.jars import NODE_4_4
from support.clients import POLL_S

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.retention.check.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
}
OFFSET_COMMIT, OFFSET_FETCH, LIST_GROUPS = 8, 9, 16
TOPICS: Final = ("t", "u")
AGREE_S: Final = 60.0
FOR_EVER_MS, AT_ONCE_MS = 10**9, 1


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    directory = tmp_path_factory.mktemp("groups")
    with rounds_beside(directory, NODE_4_4, SETTINGS, *TOPICS) as rounds:
        yield rounds


class Offsets:
    """The offsets of one group on both brokers. The first client subscribes to the first topic."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.group = f"g-{uuid.uuid4().hex}"
        rounds.begin(self.group, TOPICS[0])

    def commit(self, topic: str, lifetime_ms: int, *, by_member: bool = False) -> None:
        client = self.rounds.clients[0]
        partition = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_metadata": "",
        }
        self.rounds.beside(
            OFFSET_COMMIT,
            4,
            {
                "group_id": self.group,
                "generation_id_or_member_epoch": client.generation if by_member else -1,
                "member_id": client.member if by_member else "",
                "retention_time": datetime.timedelta(milliseconds=lifetime_ms),
                "topics": [{"name": topic, "partitions": [partition]}],
            },
        )

    def join(self) -> None:
        # A later version joins in two steps, and between them Kafka may remove the empty group.
        self.rounds.join(0, 3, ("range",))
        self.rounds.sync(0, 5)

    def expect(self, *topics: str, is_listed: bool = True) -> None:
        """Wait until these topics alone have an offset on both brokers."""
        deadline = time.monotonic() + AGREE_S
        wanted = ([*topics], is_listed)
        halves = (self.rounds.txn, self.rounds.kafka)
        found: Sequence[Any] = ()
        while found != [wanted, wanted]:
            assert time.monotonic() < deadline, f"txn and Kafka: {found}, wanted: {wanted}"
            time.sleep(POLL_S)
            found = [self._state(half) for half in halves]

    def _state(self, half: Half) -> tuple[list[str], bool]:
        asked = [{"name": topic, "partition_indexes": [0]} for topic in TOPICS]
        fetched = half.ask(OFFSET_FETCH, 5, {"group_id": self.group, "topics": asked})
        listed = half.ask(LIST_GROUPS, 4, {"states_filter": []})
        kept = [
            topic["name"]
            for topic in fetched["topics"]
            if topic["partitions"][0]["committed_offset"] >= 0
        ]
        return sorted(kept), self.group in {one["group_id"] for one in listed["groups"]}


@pytest.fixture
def offsets(rounds: Rounds) -> Offsets:
    return Offsets(rounds)


def test_offsets_of_a_group_without_members_expire_and_take_the_group_along(
    offsets: Offsets,
) -> None:
    offsets.commit("t", FOR_EVER_MS)
    offsets.commit("u", AT_ONCE_MS)
    offsets.expect("t")
    offsets.commit("t", AT_ONCE_MS)
    offsets.expect(is_listed=False)


def test_offsets_of_topics_that_members_read_stay_until_they_leave(offsets: Offsets) -> None:
    offsets.join()
    for topic in TOPICS:
        offsets.commit(topic, AT_ONCE_MS, by_member=True)
    offsets.expect("t")
    offsets.rounds.leave(0, 5)
    offsets.expect(is_listed=False)


def test_offsets_of_a_group_in_a_round_stay(offsets: Offsets) -> None:
    """Both the one whose topic is read, and the other."""
    offsets.join()
    offsets.commit("u", FOR_EVER_MS, by_member=True)
    offsets.rounds.join(1, 3, ("range",))
    offsets.commit("u", AT_ONCE_MS, by_member=True)
    other = Offsets(offsets.rounds)
    other.commit("t", AT_ONCE_MS)
    other.expect(is_listed=False)  # both brokers have looked meanwhile
    offsets.expect("u")


def test_a_group_whose_last_member_leaves_keeps_the_offsets_that_have_a_lifetime_left(
    offsets: Offsets,
) -> None:
    offsets.join()
    offsets.commit("t", FOR_EVER_MS, by_member=True)
    offsets.rounds.leave(0, 5)
    offsets.commit("u", AT_ONCE_MS)
    offsets.expect("t")
