"""Any history of a consumer group (KIP-848), against invariants of every one of them.

Members join, report, lose answers, give partitions back late, fall silent, leave and come back.
Topics come, grow and go; the broker restarts between any two steps. An assignment is computed at
once, or while other steps go on. The invariants: no partition has two owners, a member reads only
what the coordinator believes it reads, nobody is asked to give back a partition that it keeps, its
commits are taken, the log tells the group (P8), and the group settles once all is quiet.
"""

import itertools
import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from txn.coordinator.group.consumer import target
from txn.coordinator.group.consumer.beat import Beat, Outcome
from txn.coordinator.group.consumer.decide import heartbeat
from txn.coordinator.group.consumer.departures import fence, leave, overdue
from txn.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from txn.coordinator.group.consumer.offsets import commit_refusal
from txn.coordinator.group.consumer.patterns import pattern_resolved, patterns_checked
from txn.coordinator.group.consumer.records import ConsumerRecord, PatternValue
from txn.coordinator.group.consumer.target import Limits, Task, computed
from txn.coordinator.group.records import decode_record, encode_record
from txn.wire.error_codes import ErrorCode

SESSION_MS = 45_000
INTERVAL_MS = 1_000
BATCH_BYTES = 200
"""So small that not more than a member is given up at a time."""
TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = (("a",), ("a", "b"), ("b", "c"), ("a", "b", "c"), ())
ASSIGNORS = (None, None, "range", "uniform")
PATTERNS = {None: frozenset[str](), "[ab]": frozenset({"a", "b"}), ".*": frozenset(TOPICS)}
TAKEN = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
"""Another member has the client's instance id: it gives up."""

INLINE_SIZES = (target.INLINE_SIZE_MAX, 4, 0)
"""The largest assignments that are computed at once: all of them, small ones, none."""

ROUNDS_MAX = 12
"""Rounds of heartbeats within which a quiet group settles."""

Place = tuple[uuid.UUID, int]


class SideThread:
    """Computes the large assignments of a group, one at a time, until a test lets it end."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self._group: ConsumerGroup | None = None

    def begin(self, group: ConsumerGroup, outcome: Outcome) -> None:
        if outcome.task is not None:
            assert not group.computes_assignment
            group.computed_epoch = outcome.task.epoch
            self._group, self.task = group, outcome.task

    def end(self, group: object, now_ms: int) -> tuple[ConsumerRecord, ...]:
        """The records to write, if it is still this group."""
        former, task = self._group, self.task
        self._group = self.task = None
        if former is None or task is None:
            return ()
        former.computed_epoch = None
        return computed(former, task, task.assigned(), now_ms) if former is group else ()


class Cluster:
    """Topics that a test makes, grows and deletes."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[uuid.UUID, int]] = {}
        self._ids = itertools.count(1)

    def create(self, name: str, partitions: int) -> None:
        self.topics[name] = (uuid.UUID(int=next(self._ids)), partitions)

    def grow(self, name: str) -> None:
        topic_id, partitions = self.topics[name]
        self.topics[name] = (topic_id, partitions + 1)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.topics[topic][0] if topic in self.topics else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, (known, _) in self.topics.items() if known == topic_id), None)

    def partition_count(self, topic: str) -> int:
        return self.topics.get(topic, (None, 0))[1]


@dataclass
class Client:
    """A consumer: the partitions that it reads, and those that it was told to read."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    pattern: str | None
    assignor: str | None
    epoch: int = 0
    reads: set[Place] = field(default_factory=set)
    told: set[Place] = field(default_factory=set)
    has_news: bool = True

    def beat(self, *, is_full: bool = False) -> Beat:
        says_all = self.epoch == 0 or is_full or self.has_news
        return Beat(
            self.member_id,
            self.epoch,
            "client",
            "/127.0.0.1",
            self.instance_id,
            None,
            60_000 if says_all else -1,
            self.topics if says_all else None,
            (self.pattern or "") if says_all else None,
            self.assignor,
            _assignment(self.reads),
        )

    def hear(self, outcome: Outcome) -> None:
        answer = outcome.answer
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.has_news = 0, True
            self.reads.clear()
            self.told.clear()
        elif answer.error is ErrorCode.NONE:
            self.epoch, self.has_news = answer.epoch, False
            if answer.assignment is not None:
                self.told = {
                    (topic_id, partition)
                    for topic_id, epochs in answer.assignment.items()
                    for partition in epochs
                }
                self.reads |= self.told

    def give_back(self) -> None:
        self.reads &= self.told


def _assignment(places: set[Place]) -> dict[uuid.UUID, frozenset[int]]:
    ids = {topic_id for topic_id, _ in places}
    return {each: frozenset(p for topic_id, p in places if topic_id == each) for each in ids}


def require_single_owners(group: ConsumerGroup) -> None:
    """No partition has two owners, and the group knows the one."""
    owners: dict[Place, str] = {}
    for member in group.members.values():
        for owned in (member.current.assigned, member.current.revoking):
            for topic_id, epochs in owned.items():
                for partition in epochs:
                    place = (topic_id, partition)
                    assert place not in owners, f"{place}: {owners[place]}, {member.member_id}"
                    owners[place] = member.member_id
                    assert group.owner(*place) == member.member_id


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.log: list[ConsumerRecord] = []
        self.group = ConsumerGroup("g")
        self.now_ms = 1_000_000
        self.clients: dict[str, Client] = {}
        self.ids = itertools.count(1)
        self.limits = Limits(100, 1 << 30, INTERVAL_MS)
        self.side = SideThread()
        self.patch = pytest.MonkeyPatch()

    @initialize(
        partitions=st.tuples(st.integers(1, 5), st.integers(0, 3)),
        inline_size_max=st.sampled_from(INLINE_SIZES),
    )
    def topics_are_there(self, partitions: tuple[int, int], inline_size_max: int) -> None:
        self.patch.setattr(target, "INLINE_SIZE_MAX", inline_size_max)
        for name, count in zip(TOPICS, partitions, strict=False):
            if count:
                self.cluster.create(name, count)

    # ---- the coordinator

    def write(self, records: tuple[ConsumerRecord, ...]) -> None:
        for record in records:
            key, value = encode_record(record)
            stored = decode_record(key, value, None)
            assert stored == record
            self.log.append(record)
            self.group.replay(record, self.now_ms)

    def beat(self, client: Client, *, is_lost: bool = False, is_full: bool = False) -> Outcome:
        beat = client.beat(is_full=is_full)
        outcome = heartbeat(
            self.group, beat, now_ms=self.now_ms, topics=self.cluster, limits=self.limits
        )
        self.write(outcome.records)
        if outcome.heard is not None:
            self.group.hear(outcome.heard, self.now_ms)
        if outcome.checked_topics:
            self.group.is_outdated = False
        self.side.begin(self.group, outcome)
        if outcome.answer.assignment is not None:
            self._expect_no_needless_loss(client, outcome)
        if outcome.answer.error in TAKEN:
            self.drop(client)
        elif is_lost:
            client.has_news = True  # after an error a client says everything again
        else:
            client.hear(outcome)
        return outcome

    def _expect_no_needless_loss(self, client: Client, outcome: Outcome) -> None:
        told = outcome.answer.assignment or {}
        part = self.group.target.get(client.member_id, {})
        member = self.group.members[client.member_id]
        names = self.group.topics_of(member.subscription)
        for topic_id, partition in client.reads:
            is_wanted = self.cluster.topic_name(topic_id) in names
            if partition in part.get(topic_id, ()) and is_wanted:
                owner = self.group.owner(topic_id, partition)
                is_asked_back = partition in member.current.revoking.get(topic_id, {})
                assert partition in told.get(topic_id, {}) or is_asked_back, owner

    def drop(self, client: Client) -> None:
        self.clients.pop(client.member_id, None)

    def known(self) -> list[str]:
        return sorted(self.clients)

    # ---- members

    @rule(
        instance_id=st.sampled_from((None, None, "i", "j")),
        topics=st.sampled_from(SUBSCRIPTIONS),
        pattern=st.sampled_from(tuple(PATTERNS)),
        assignor=st.sampled_from(ASSIGNORS),
        is_lost=st.booleans(),
    )
    def newcomer_joins(
        self,
        instance_id: str | None,
        topics: tuple[str, ...],
        pattern: str | None,
        assignor: str | None,
        is_lost: bool,
    ) -> None:
        client = Client(f"m{next(self.ids)}", instance_id, topics, pattern, assignor)
        holder = self.group.static_member(instance_id or "")
        outcome = self.beat(client, is_lost=is_lost)
        if holder is not None and holder.epoch != -2:
            assert outcome.answer.error is ErrorCode.UNRELEASED_INSTANCE_ID
            return
        assert outcome.answer.error is ErrorCode.NONE
        if holder is not None:
            self.clients.pop(holder.member_id, None)
        self.clients[client.member_id] = client

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_lost=st.sampled_from((False, False, True)), is_full=st.booleans())
    def member_reports(self, data: st.DataObject, is_lost: bool, is_full: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(self.known()))]
        self.beat(client, is_lost=is_lost, is_full=is_full)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def member_gives_back(self, data: st.DataObject) -> None:
        self.clients[data.draw(st.sampled_from(self.known()))].give_back()

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        topics=st.sampled_from(SUBSCRIPTIONS),
        pattern=st.sampled_from(tuple(PATTERNS)),
        assignor=st.sampled_from(ASSIGNORS),
    )
    def member_changes_its_subscription(
        self,
        data: st.DataObject,
        topics: tuple[str, ...],
        pattern: str | None,
        assignor: str | None,
    ) -> None:
        client = self.clients[data.draw(st.sampled_from(self.known()))]
        client.topics, client.pattern, client.assignor = topics, pattern, assignor
        client.has_news = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), comes_back=st.booleans())
    def member_leaves(self, data: st.DataObject, comes_back: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(self.known()))]
        epoch = -2 if comes_back and client.instance_id is not None else -1
        beat = client.beat()._replace(epoch=epoch)
        outcome = leave(self.group, beat)
        assert outcome.answer.error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, *TAKEN)
        self.write(outcome.records)
        self.write(fence(self.group, outcome.gone, topics=self.cluster))
        self.drop(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def member_dies(self, data: st.DataObject) -> None:
        self.drop(self.clients[data.draw(st.sampled_from(self.known()))])

    # ---- time, topics, patterns, restarts

    @rule(by_ms=st.sampled_from((100, 1_000, 5_000, 46_000, 61_000)))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms
        gone = set(self.group.overdue(self.now_ms, SESSION_MS))
        while self.group.overdue(self.now_ms, SESSION_MS):
            late = overdue(
                self.group,
                now_ms=self.now_ms,
                session_timeout_ms=SESSION_MS,
                bytes_max=BATCH_BYTES,
            )
            self.write(fence(self.group, late, topics=self.cluster))
        assert not gone & self.group.members.keys()
        for member_id in gone & self.clients.keys():  # it learns of it with its next heartbeat
            self.clients[member_id].reads.clear()

    @rule(name=st.sampled_from(TOPICS), change=st.sampled_from(("grow", "grow", "delete")))
    def topic_changes(self, name: str, change: str) -> None:
        if name not in self.cluster.topics:
            self.cluster.create(name, 2)
        elif change == "grow":
            self.cluster.grow(name)
        else:
            del self.cluster.topics[name]
        self.group.is_outdated = True

    @precondition(lambda self: self.group.subscribed_patterns)
    @rule()
    def patterns_are_resolved(self) -> None:
        for pattern in tuple(self.group.subscribed_patterns):
            found = PATTERNS[pattern] & self.cluster.topics.keys()
            resolved = PatternValue(found, 1, self.now_ms)
            self.write(pattern_resolved(self.group, pattern, resolved))
        self.write(patterns_checked(self.group, topics=self.cluster))

    @precondition(lambda self: self.side.task)
    @rule()
    def assignment_is_computed(self) -> None:
        self.write(self.side.end(self.group, self.now_ms))

    @rule()
    def broker_restarts(self) -> None:
        self.group = self._replayed()
        self.group.begin_sessions(self.now_ms)

    def _replayed(self) -> ConsumerGroup:
        group = ConsumerGroup("g")
        for record in self.log:
            group.replay(record, self.now_ms)
        return group

    # ---- invariants

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        require_single_owners(self.group)

    @invariant()
    def members_read_only_what_the_coordinator_believes(self) -> None:
        for client in self.clients.values():
            if client.reads:
                for place in client.reads:
                    assert self.group.owner(*place) == client.member_id

    @invariant()
    def commits_of_members_are_taken(self) -> None:
        for client in self.clients.values():
            if client.reads and client.epoch > 0:
                code = commit_refusal(
                    self.group,
                    client.member_id,
                    client.instance_id,
                    client.epoch,
                    is_transactional=False,
                    partitions=client.reads,
                )
                assert code is ErrorCode.NONE

    @invariant()
    def the_log_tells_the_group(self) -> None:
        assert self._replayed().facts() == self.group.facts()

    @invariant()
    def member_epochs_do_not_pass_the_assignment(self) -> None:
        for member in self.group.members.values():
            assert member.epoch <= self.group.target_value.epoch <= self.group.epoch

    def teardown(self) -> None:
        """Once all is quiet, the group settles and every partition has its reader."""
        self._settle()
        self.patch.undo()

    def _settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.patterns_are_resolved()
            self.assignment_is_computed()
            for client in [*self.clients.values()]:
                self.beat(client)
                client.give_back()
            self.time_passes(SESSION_MS // 4)
        if not self.clients:
            self.time_passes(SESSION_MS)
            assert self.group.state is ConsumerGroupState.EMPTY
            return
        assert self.group.state is ConsumerGroupState.STABLE, self.group.facts()
        read: set[Place] = set()
        wanted: set[str] = set()
        for client in self.clients.values():
            assert not read & client.reads
            read |= client.reads
            wanted |= {*client.topics, *PATTERNS[client.pattern]}
        assert read == {
            (topic_id, partition)
            for name, (topic_id, partitions) in self.cluster.topics.items()
            if name in wanted
            for partition in range(partitions)
        }


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
