"""Any history of a group whose members speak both protocols, against invariants of every one.

Members of the consumer protocol and of the classic one join, go on, leave, and fall silent, in one
group. It changes its protocol as they come and go, in the midst of rounds and reconciliations, and
the broker restarts between any two steps. An assignment is computed at once, or while other steps
go on. The invariants: no partition has two owners. A member
whose epoch is valid reads only its own partitions, and its commits are taken. The log tells the
group (P8). The group settles once all is quiet.
"""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model.classic_client import TOPICS, ClassicClient
from model.test_consumer_group_model import (
    INLINE_SIZES,
    INTERVAL_MS,
    SESSION_MS,
    Client,
    Cluster,
    Place,
    SideThread,
    require_single_owners,
)
from txn.coordinator.group.classic import membership
from txn.coordinator.group.classic.group import Group, GroupState, group_value
from txn.coordinator.group.classic.group import Limits as ClassicLimits
from txn.coordinator.group.classic.joining import join
from txn.coordinator.group.classic.requests import (
    Answer,
    GroupTransition,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from txn.coordinator.group.consumer import classic_members, target
from txn.coordinator.group.consumer.beat import Refusal
from txn.coordinator.group.consumer.decide import heartbeat
from txn.coordinator.group.consumer.departures import dissolve, leave, overdue
from txn.coordinator.group.consumer.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from txn.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from txn.coordinator.group.consumer.migration import (
    DOWNGRADES,
    Moment,
    Removal,
    Rules,
    join_classic,
    remove,
)
from txn.coordinator.group.consumer.offsets import commit_refusal
from txn.coordinator.group.consumer.target import Limits
from txn.coordinator.group.records import GroupKey, GroupRecord, decode_record, encode_record
from txn.coordinator.group.store import GroupLogRecord, GroupStore
from txn.wire.error_codes import ErrorCode

POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
SUBSCRIPTIONS = (("a",), ("a", "b"), ("b",))
TIMEOUT_MS = 60_000
CLASSIC_SESSION_MS = 30_000
ROUNDS_MAX = 14

FATAL = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""The client gives up."""


class MigrationMachine(RuleBasedStateMachine):
    """Members of both protocols in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.log: list[GroupLogRecord] = []
        self.store = GroupStore()
        self.now_ms = 1_000_000
        self.consumers: dict[str, Client] = {}
        self.classics: list[ClassicClient] = []
        self.ids = itertools.count(1)
        self.tickets: dict[int, ClassicClient] = {}
        self.limits = Limits(100, 1 << 30, INTERVAL_MS)
        self.side = SideThread()
        self.patch = pytest.MonkeyPatch()

    @initialize(
        partitions=st.tuples(st.integers(1, 5), st.integers(1, 3)),
        policy=st.sampled_from(POLICIES),
        inline_size_max=st.sampled_from(INLINE_SIZES),
    )
    def begin(self, partitions: tuple[int, int], policy: str, inline_size_max: int) -> None:
        self.patch.setattr(target, "INLINE_SIZE_MAX", inline_size_max)
        for name, count in zip(TOPICS, partitions, strict=True):
            self.cluster.create(name, count)
        self.changes = Rules(policy, 100, 100, 1 << 20)

    # ---- the coordinator

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    @property
    def group(self) -> ConsumerGroup | Group | None:
        return self.store.groups.get("g")

    def write(self, records: Sequence[GroupLogRecord]) -> None:
        for record in records:
            stored = decode_record(*encode_record(record), None)
            assert stored == record
            self.log.append(record)
            self.store.replay(record, record_offset=len(self.log), now_ms=self.now_ms)

    def carry_out_removal(self, removal: Removal) -> None:
        self.write(removal.records)
        if removal.classic is not None:
            self.store.put_live(removal.classic)

    def carry_out(self, transition: GroupTransition) -> None:
        if transition.record is not None:
            group = self.group
            ended: Sequence[GroupLogRecord] = ()
            if isinstance(group, ConsumerGroup):
                ended = classic_end(group)
            self.write([*ended, GroupRecord(GroupKey("g"), transition.record)])
        if transition.group is not None:
            self.store.put_live(transition.group)
        self.deliver(transition.answers)

    def deliver(self, answers: Sequence[Answer]) -> None:
        for ticket, answer in answers:
            client = self.tickets.pop(ticket, None)
            if client is None:
                continue
            client.waits = False
            if isinstance(answer, JoinAnswer):
                self.hear_join(client, answer)
            else:
                self.hear_sync(client, answer)

    # ---- members of the classic protocol

    def hear_join(self, client: ClassicClient, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error in FATAL:
            self.drop_classic(client)
        elif answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.forget()
        elif answer.error is ErrorCode.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation
            client.protocol = answer.protocol
            client.leads = answer.members if answer.leader == answer.member_id else ()
            client.skips_assignment = answer.skip_assignment
            client.needs_join, client.needs_sync = False, True

    def hear_sync(self, client: ClassicClient, answer: SyncAnswer) -> None:
        client.needs_sync = False
        if answer.error is ErrorCode.NONE:
            parts = decode_assignment(answer.assignment).partitions
            told = {(topic, number) for topic, numbers in parts.items() for number in numbers}
            client.needs_join = not client.is_eager and bool(client.reads - told)
            client.reads = told
        elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            client.forget()
        elif answer.error in FATAL:
            self.drop_classic(client)
        else:
            client.needs_join = True

    def drop_classic(self, client: ClassicClient) -> None:
        client.reads.clear()
        if client in self.classics:
            self.classics.remove(client)

    def step(self, client: ClassicClient) -> None:
        """Let a client send its next request."""
        if client.waits:
            return
        if client.needs_join:
            self.join(client)
        elif client.needs_sync:
            self.sync(client)
        else:
            self.classic_heartbeat(client)

    def join(self, client: ClassicClient) -> None:
        group = self.group
        if client.is_eager:
            client.reads.clear()
        ticket = next(self.ids)
        request = Join(
            9,
            client.member_id,
            f"m{ticket}",
            client.instance_id,
            "client",
            "/127.0.0.1",
            TIMEOUT_MS,
            CLASSIC_SESSION_MS,
            "consumer",
            (("range", client.subscription()),),
            ticket,
        )
        if isinstance(group, ConsumerGroup) and group.members:
            joined = classic_members.join(
                group,
                request,
                at=self.at,
                topics=self.cluster,
                limits=self.limits,
                rules=self.changes,
                room_bytes=1 << 30,
            )
            if joined.downgrade is not None:
                self.carry_out_removal(joined.downgrade)
            elif joined.outcome is not None:
                self.write(joined.outcome.records)
                group.hear(joined.answer.member_id, self.now_ms)
                group.step_deadlines[joined.answer.member_id] = self.now_ms + TIMEOUT_MS
                if joined.outcome.checked_topics:
                    group.is_outdated = False
                self.side.begin(group, joined.outcome)
            self.hear_join(client, joined.answer)
            return
        client.waits = True
        self.tickets[ticket] = client
        known = group if isinstance(group, Group) else None
        limits = ClassicLimits(0)
        self.carry_out(join(known, request, group_id="g", now_ms=self.now_ms, limits=limits))

    def sync(self, client: ClassicClient) -> None:
        group = self.group
        ticket = next(self.ids)
        request = Sync(
            client.generation,
            client.member_id,
            client.instance_id,
            "consumer",
            client.protocol,
            self.assigned_by(client),
            ticket,
        )
        if isinstance(group, ConsumerGroup):
            answer = classic_members.sync(
                group, request, now_ms=self.now_ms, topics=self.cluster, limits=self.limits
            )
            if answer.error is ErrorCode.NONE:
                group.step_deadlines.pop(client.member_id, None)
                group.hear(client.member_id, self.now_ms)
            self.hear_sync(client, answer)
            return
        client.waits = True
        self.tickets[ticket] = client
        self.carry_out(membership.sync(group, request, now_ms=self.now_ms))

    def assigned_by(self, leader: ClassicClient) -> dict[str, bytes]:
        """Deal out each topic to the members that subscribe to it.

        A partition that another member still reads is dealt to nobody: that member gives it back
        and joins again.
        """
        if leader.skips_assignment:  # it took the leader's place: it looks at the topics later
            return {}
        leader.dealt = self.counts()
        dealt: dict[str, dict[str, list[int]]] = {name: {} for name, _, _ in leader.leads}
        said = {name: decode_subscription(data) for name, _, data in leader.leads}
        read = {
            (topic, number): name
            for name, subscription in said.items()
            for topic, numbers in subscription.owned.items()
            for number in numbers
        }
        for topic, count in leader.dealt.items():
            readers = [name for name, each in said.items() if topic in each.topics]
            for number in range(count if readers else 0):
                reader = readers[number % len(readers)]
                if read.get((topic, number), reader) == reader:
                    dealt[reader].setdefault(topic, []).append(number)
        return {name: encode_assignment(parts, b"\0\1") for name, parts in dealt.items()}

    def counts(self) -> dict[str, int]:
        return {topic: count for topic, (_, count) in self.cluster.topics.items()}

    def classic_heartbeat(self, client: ClassicClient) -> None:
        if client.leads and client.dealt != self.counts():
            self.join(client)
            return
        group = self.group
        named = (client.member_id, client.instance_id, client.generation)
        if isinstance(group, ConsumerGroup):
            code = classic_members.heartbeat_code(
                group, *named, now_ms=self.now_ms, topics=self.cluster, limits=self.limits
            )
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                group.hear(client.member_id, self.now_ms)
            if code is ErrorCode.NONE and classic_members.lacks_consumers(group):
                group.is_outdated = False
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                group.step_deadlines.setdefault(client.member_id, self.now_ms + TIMEOUT_MS)
        else:
            prolonged, code = membership.heartbeat(group, *named, now_ms=self.now_ms)
            if prolonged is not None:
                self.store.put_live(prolonged)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            client.needs_join = True
        elif code in FATAL:
            self.drop_classic(client)
        elif code is not ErrorCode.NONE:
            client.forget()

    @rule(
        instance_id=st.sampled_from((None, None, "i", "j")),
        topics=st.sampled_from(SUBSCRIPTIONS),
        is_eager=st.booleans(),
        steps=st.integers(1, 4),
    )
    def classic_client_comes(
        self, instance_id: str | None, topics: tuple[str, ...], is_eager: bool, steps: int
    ) -> None:
        client = ClassicClient(instance_id, topics, is_eager)
        self.classics.append(client)
        for _ in range(steps):
            if client in self.classics:
                self.step(client)

    @precondition(lambda self: any(one.instance_id for one in self.consumers.values()))
    @rule(data=st.data(), is_eager=st.booleans(), steps=st.integers(1, 4))
    def static_consumer_changes_its_protocol(
        self, data: st.DataObject, is_eager: bool, steps: int
    ) -> None:
        static = sorted(name for name, one in self.consumers.items() if one.instance_id)
        former = self.consumers[data.draw(st.sampled_from(static))]
        self.drop_consumer(former)
        self.classic_client_comes(former.instance_id, former.topics, is_eager, steps)

    @precondition(lambda self: self.classics)
    @rule(data=st.data())
    def classic_client_goes_on(self, data: st.DataObject) -> None:
        self.step(data.draw(st.sampled_from(self.classics)))

    @precondition(lambda self: self.classics)
    @rule(data=st.data(), topics=st.sampled_from(SUBSCRIPTIONS))
    def classic_client_changes_its_topics(
        self, data: st.DataObject, topics: tuple[str, ...]
    ) -> None:
        client = data.draw(st.sampled_from(self.classics))
        if not client.waits:
            client.topics, client.needs_join = topics, True

    @precondition(lambda self: self.classics)
    @rule(data=st.data(), says_so=st.booleans())
    def classic_client_goes(self, data: st.DataObject, says_so: bool) -> None:
        client = data.draw(st.sampled_from(self.classics))
        self.drop_classic(client)
        if says_so and client.member_id:
            self.remove_named(Leaver(client.member_id, client.instance_id))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def administrator_removes_a_consumer(self, data: st.DataObject) -> None:
        if not isinstance(self.group, ConsumerGroup):
            return
        client = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]
        self.remove_named(Leaver(client.member_id, client.instance_id))
        client.reads.clear()  # it learns of it with its next heartbeat

    def remove_named(self, leaver: Leaver) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            gone, _ = classic_members.leavers(group, [leaver])
            self.carry_out_removal(
                remove(group, gone, topics=self.cluster, rules=self.changes, at=self.at)
            )
        else:
            transition, _ = membership.leave(group, (leaver,), now_ms=self.now_ms)
            self.carry_out(transition)

    # ---- members of the consumer protocol

    def beat(self, client: Client) -> None:
        group, request = self.group, client.beat()
        before: Sequence[GroupLogRecord] = ()
        if request.epoch != 0 and not isinstance(group, ConsumerGroup):
            self.drop_consumer(client)
            return
        if isinstance(group, Group):
            try:
                before, outcome = join_classic(
                    group,
                    request,
                    at=self.at,
                    topics=self.cluster,
                    limits=self.limits,
                    rules=self.changes,
                )
            except Refusal:
                self.drop_consumer(client)
                return
        else:
            known = ConsumerGroup("g") if group is None else group
            outcome = heartbeat(
                known, request, now_ms=self.now_ms, topics=self.cluster, limits=self.limits
            )
        if outcome.answer.error in FATAL:
            self.drop_consumer(client)
            return
        self.write([*before, *outcome.records] if outcome.records else [])
        if before and isinstance(group, Group):
            self.deliver(membership.dismissed(group, ErrorCode.REBALANCE_IN_PROGRESS))
        live = self.group
        if outcome.heard is not None and isinstance(live, ConsumerGroup):
            live.hear(outcome.heard, self.now_ms)
            if outcome.checked_topics:
                live.is_outdated = False
            self.side.begin(live, outcome)
        client.hear(outcome)

    def drop_consumer(self, client: Client) -> None:
        client.reads.clear()
        self.consumers.pop(client.member_id, None)

    @rule(
        instance_id=st.sampled_from((None, None, "i", "j")),
        topics=st.sampled_from(SUBSCRIPTIONS),
    )
    def consumer_comes(self, instance_id: str | None, topics: tuple[str, ...]) -> None:
        client = Client(f"c{next(self.ids)}", instance_id, topics, None, None)
        group = self.group
        holder = None
        if isinstance(group, ConsumerGroup):
            holder = group.static_member(instance_id or "")
        self.consumers[client.member_id] = client
        self.beat(client)
        if holder is not None and client.member_id in self.consumers:
            former = self.consumers.pop(holder.member_id, None)
            if former is not None:
                former.reads.clear()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), gives_back=st.booleans())
    def consumer_goes_on(self, data: st.DataObject, gives_back: bool) -> None:
        client = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]
        if gives_back:
            client.give_back()
        self.beat(client)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), says_so=st.booleans())
    def consumer_goes(self, data: st.DataObject, says_so: bool) -> None:
        client = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]
        self.drop_consumer(client)
        group = self.group
        if says_so and isinstance(group, ConsumerGroup):
            gone = leave(group, client.beat()._replace(epoch=-1)).gone
            self.carry_out_removal(
                remove(group, gone, topics=self.cluster, rules=self.changes, at=self.at)
            )

    # ---- time, topics, restarts

    @rule()
    def everybody_goes_on(self) -> None:
        for consumer in [*self.consumers.values()]:
            self.beat(consumer)
            consumer.give_back()
        for client in [*self.classics]:
            for _ in range(3):
                if client in self.classics:
                    self.step(client)

    @rule(by_ms=st.sampled_from((100, 1_000, 5_000, 31_000, 46_000, 61_000)))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms
        while self._is_late():
            self._expire()
        for client in self.classics:
            if client.reads and not self._is_member(client.member_id):
                client.reads.clear()  # it learns of it with its next heartbeat
        for member_id, consumer in self.consumers.items():
            if not self._is_member(member_id):
                consumer.reads.clear()

    def _is_member(self, member_id: str) -> bool:
        return self.group is not None and member_id in self.group.members

    def _is_late(self) -> bool:
        group = self.group
        if isinstance(group, ConsumerGroup):
            return bool(group.overdue(self.now_ms, SESSION_MS))
        due_ms = None if group is None else membership.next_deadline(group)
        return due_ms is not None and due_ms <= self.now_ms

    def _expire(self) -> None:
        group = self.group
        if isinstance(group, Group):
            self.carry_out(membership.expire(group, now_ms=self.now_ms))
        elif group is not None:
            late = overdue(
                group, now_ms=self.now_ms, session_timeout_ms=SESSION_MS, bytes_max=1 << 20
            )
            self.carry_out_removal(
                remove(group, late, topics=self.cluster, rules=self.changes, at=self.at)
            )

    @rule(name=st.sampled_from(TOPICS))
    def topic_grows(self, name: str) -> None:
        self.cluster.grow(name)
        group = self.group
        if isinstance(group, ConsumerGroup):
            group.is_outdated = True
        elif group is not None and group.is_unled:
            self.store.put_live(membership.begin_round(group, now_ms=self.now_ms))

    @precondition(lambda self: self.side.task)
    @rule()
    def assignment_is_computed(self) -> None:
        self.write(self.side.end(self.group, self.now_ms))

    @rule()
    def broker_restarts(self) -> None:
        self.store = self._replayed()
        self.tickets.clear()
        for client in self.classics:
            if client.waits:  # the connection is gone
                client.waits, client.needs_join, client.needs_sync = False, True, False
        if isinstance(self.group, ConsumerGroup):
            self.group.begin_sessions(self.now_ms)

    def _replayed(self) -> GroupStore:
        store = GroupStore()
        for offset, record in enumerate(self.log):
            store.replay(record, record_offset=offset, now_ms=self.now_ms)
        return store

    # ---- invariants

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if isinstance(self.group, ConsumerGroup):
            require_single_owners(self.group)

    @invariant()
    def members_of_a_valid_epoch_read_what_the_coordinator_believes(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        for member_id, epoch, reads in self._readers():
            member = group.members.get(member_id)
            if member is None or member.epoch != epoch:
                continue
            for place in reads:
                assert group.owner(*place) == member_id, (member_id, place)
            code = commit_refusal(
                group, member_id, None, epoch, is_transactional=False, partitions=reads
            )
            assert code is ErrorCode.NONE

    def _readers(self) -> list[tuple[str, int, set[Place]]]:
        found = [(one.member_id, one.epoch, one.reads) for one in self.consumers.values()]
        for client in self.classics:
            places = {
                (topic_id, number)
                for topic, number in client.reads
                if (topic_id := self.cluster.topic_id(topic)) is not None
            }
            found.append((client.member_id, client.generation, places))
        return found

    @invariant()
    def the_log_tells_the_group(self) -> None:
        group, stored = self.group, self._replayed().groups.get("g")
        if isinstance(group, ConsumerGroup):
            assert isinstance(stored, ConsumerGroup)
            assert stored.facts() == group.facts()
        elif group is not None and group.state in (GroupState.STABLE, GroupState.EMPTY):
            assert isinstance(stored, Group)
            assert group_value(stored) == group_value(group)

    def teardown(self) -> None:
        """Once all is quiet, the group settles and every partition has its reader."""
        if hasattr(self, "changes"):
            self._settle()
        self.patch.undo()

    def _settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.assignment_is_computed()
            self.everybody_goes_on()
            self.time_passes(SESSION_MS // 4)
        group = self.group
        readers = self._readers()
        if not readers:
            self.time_passes(SESSION_MS + TIMEOUT_MS)
            assert self.group is None or not self.group.members
            return
        assert group is not None
        assert group.state in (ConsumerGroupState.STABLE, GroupState.STABLE), group
        if not self.consumers and self.changes.policy in DOWNGRADES:
            assert isinstance(group, Group)
        assert isinstance(group, ConsumerGroup) or not self.consumers
        read = [place for _, _, reads in readers for place in reads]
        subscriptions = [one.topics for one in self.consumers.values()]
        subscriptions += [one.topics for one in self.classics]
        wanted = {topic for topics in subscriptions for topic in topics}
        assert sorted(read) == sorted(
            (topic_id, partition)
            for name, (topic_id, partitions) in self.cluster.topics.items()
            if name in wanted
            for partition in range(partitions)
        )


def classic_end(group: ConsumerGroup) -> Sequence[GroupLogRecord]:
    """The tombstones of a consumer group without members."""
    return dissolve(group.group_id, group.members, group.patterns)


TestMigrations = MigrationMachine.TestCase
TestMigrations.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
