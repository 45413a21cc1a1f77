"""Any history of a group and of its offsets, against invariants of every one of them.

`GroupMachine` lets members join, sync, leave, fall silent and come back in any order, with
restarts in between. The invariants: one leader to a generation, generations that grow, assignments
exactly as the leader handed them in, no request that waits for ever, and the last record equals the
group.

`OffsetMachine` commits and deletes offsets, in transactions and without, and crashes between any
two writes. Its oracle computes every answer from the list of all that was ever written.
"""

import itertools
import uuid
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from support.group_host import PARTITIONS_PER_TOPIC, GroupNode
from support.group_rounds import Rounds
from txn.coordinator.group.classic.draft import NEW_MEMBER_JOIN_TIMEOUT_MS
from txn.coordinator.group.classic.group import GroupState, Limits, group_value
from txn.coordinator.group.classic.requests import Leaver
from txn.coordinator.group.records import OffsetKey, encode_offset_key, encode_offset_value
from txn.identifiers import ProducerIdAndEpoch
from txn.storage.base import Marker
from txn.wire.error_codes import ErrorCode

S = GroupState

PROTOCOLS = (
    (("range", b"r"),),
    (("range", b"r"), ("sticky", b"s")),
    (("sticky", b"s"), ("range", b"r")),
    (("range", b"changed"),),
)
INSTANCES = (None, "i", "i", "j")
REBALANCES_MS = (0, 4_000, 60_000, 60_000)
DAY_MS = 86_400_000


class GroupMachine(RuleBasedStateMachine):
    """Members in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = Rounds()
        self.ids: list[str] = []
        self.instance_of: dict[str, str | None] = {}
        self.assigners: dict[int, set[str]] = {}
        self.handed_in: dict[int, dict[str, bytes]] = {}
        self.syncs: dict[int, tuple[str, int]] = {}
        self.replaced: dict[str, str] = {}
        self.generation_before = 0
        self.checked: set[int] = set()

    @initialize(
        delay_ms=st.sampled_from((0, 500, 3_000)),
        size=st.sampled_from((2, 3, 100)),
        instances=st.lists(st.sampled_from(INSTANCES), max_size=3, unique=True),
    )
    def some_members_are_there(self, delay_ms: int, size: int, instances: list[str | None]) -> None:
        self.rounds.limits = Limits(delay_ms, size)
        for instance_id in instances:
            self.rounds.join(instance_id=instance_id, version=3, protocols=PROTOCOLS[1])
            self._learn(instance_id)
        self.rounds.pass_time(6_000)
        for member_id in self.known():
            self._sync(member_id, self.rounds.group.generation)

    # ---- actions of clients

    @rule(
        instance_id=st.sampled_from(INSTANCES),
        version=st.sampled_from((3, 8, 9)),
        protocols=st.sampled_from(PROTOCOLS),
        rebalance_ms=st.sampled_from(REBALANCES_MS),
        comes_back=st.sampled_from((True, True, False)),
    )
    def newcomer_joins(
        self,
        instance_id: str | None,
        version: int,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_ms: int,
        comes_back: bool,
    ) -> None:
        before = self._holder(instance_id)
        ticket = self.rounds.join(
            instance_id=instance_id,
            version=version,
            protocols=protocols,
            rebalance_ms=rebalance_ms,
        )
        after = self._holder(instance_id)
        if before is not None and after is not None and after != before:
            self.replaced[after] = before
        self._learn(instance_id)
        answer = self.rounds.joins.get(ticket)
        if comes_back and answer is not None and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._join_again(answer.member_id, protocols)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def member_joins_again(
        self, data: st.DataObject, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        self._join_again(data.draw(st.sampled_from(self.known())), protocols)

    @precondition(lambda self: self.rounds.found and self.rounds.group.members)
    @rule(protocols=st.sampled_from(PROTOCOLS))
    def leader_asks_for_a_round(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._join_again(self.rounds.group.leader or "", protocols)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), staleness=st.sampled_from((0, 0, 0, 1)), forgets=st.booleans())
    def member_syncs(self, data: st.DataObject, staleness: int, forgets: bool) -> None:
        member_id = data.draw(st.sampled_from(self.known()))
        self._sync(member_id, self.rounds.group.generation - staleness, forgets=forgets)

    @precondition(lambda self: self.rounds.found and self.rounds.group.members)
    @rule(data=st.data(), absent=st.sampled_from((0, 0, 0, 1)), silent=st.sampled_from((0, 0, 1)))
    def members_do_as_they_should(self, data: st.DataObject, absent: int, silent: int) -> None:
        """A whole round in some order; some may not join, and some not sync."""
        members = data.draw(st.permutations(sorted(self.rounds.group.members)))
        for member_id in members[absent:]:
            member = self.rounds.group.members.get(member_id)
            if member is not None and member.awaiting_join is None:
                self._join_again(member_id, member.protocols)
        self.rounds.pass_time(3_000)
        for member_id in members[silent:]:
            self._sync(member_id, self.rounds.group.generation)

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def member_sends_a_heartbeat(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(self.known()))
        code = self.rounds.heartbeat(member_id, instance_id=self.instance_of[member_id])
        is_member = member_id in self.rounds.group.members
        assert (code is ErrorCode.UNKNOWN_MEMBER_ID) <= (not is_member)
        assert (code is ErrorCode.NONE) <= is_member

    @precondition(lambda self: self.known())
    @rule(data=st.data(), count=st.integers(1, 2))
    def members_leave(self, data: st.DataObject, count: int) -> None:
        chosen = [data.draw(st.sampled_from(self.known())) for _ in range(count)]
        codes = self.rounds.leave(*(Leaver(name, self.instance_of[name]) for name in chosen))
        left = {name for name, code in zip(chosen, codes, strict=True) if not code}
        assert not left & self.rounds.group.members.keys()

    @rule(duration_ms=st.sampled_from((0, 0, 400, 400, 3_000, 3_000, 11_000, 61_000)))
    def time_passes(self, duration_ms: int) -> None:
        self.rounds.pass_time(duration_ms)

    @rule(odds=st.integers(0, 3))
    def broker_restarts(self, odds: int) -> None:
        if odds:
            return
        self.rounds.restart()
        self.generation_before = 0 if self.rounds.found is None else self.rounds.group.generation
        for story in (self.assigners, self.handed_in):
            for generation in [g for g in story if g > self.generation_before]:
                del story[generation]
        self.syncs = {
            ticket: asked
            for ticket, asked in self.syncs.items()
            if ticket not in self.checked and asked[1] <= self.generation_before
        }

    def known(self) -> list[str]:
        """Ids a request may name: members, ids that were given out, and some that are history."""
        if self.rounds.found is None:
            return []
        current = [*self.rounds.group.members, *self.rounds.group.pending]
        return current + [name for name in self.ids if name not in current][-2:]

    def _join_again(self, member_id: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
        instance_id = self.instance_of[member_id]
        self.rounds.join(member_id, instance_id=instance_id, protocols=protocols)
        self._learn(instance_id)

    def _sync(self, member_id: str, generation: int, *, forgets: bool = False) -> None:
        group = self.rounds.group
        assignments = {name: f"{name}@{generation}".encode() for name in group.members}
        if forgets and assignments:
            assignments.popitem()
        is_leader = group.leader == member_id and group.generation == generation
        if is_leader and group.state is S.COMPLETING_REBALANCE:
            self.handed_in[generation] = assignments
        ticket = self.rounds.sync(
            member_id,
            assignments,
            generation=generation,
            instance_id=self.instance_of[member_id],
        )
        self.syncs[ticket] = (member_id, generation)

    def _handed_in(self, generation: int, member_id: str) -> bytes:
        """The leader's assignment to a member, or to the one that it replaced."""
        assignments = self.handed_in[generation]
        while member_id not in assignments and member_id in self.replaced:
            member_id = self.replaced[member_id]
        return assignments.get(member_id, b"")

    def _holder(self, instance_id: str | None) -> str | None:
        if instance_id is None or self.rounds.found is None:
            return None
        member = self.rounds.group.static_member(instance_id)
        return None if member is None else member.member_id

    def _learn(self, instance_id: str | None) -> None:
        """Learn ids as clients do; a new member's id is known to the test before it is answered."""
        known = {} if self.rounds.found is None else {**self.rounds.group.members}
        pending = () if self.rounds.found is None else tuple(self.rounds.group.pending)
        for member_id in (*known, *pending):
            if member_id not in self.instance_of:
                self.ids.append(member_id)
                self.instance_of[member_id] = instance_id

    # ---- invariants

    @invariant()
    def there_is_one_leader_and_it_is_a_member(self) -> None:
        group = self.rounds.found
        assert group is None or (group.leader is None) == (not group.members)
        assert group is None or group.leader is None or group.leader in group.members

    @invariant()
    def one_member_computes_the_assignment_of_a_generation(self) -> None:
        for ticket, answer in self.rounds.joins.items():
            is_assigner = answer.leader == answer.member_id and not answer.skip_assignment
            if answer.error is ErrorCode.NONE and is_assigner and ticket not in self.checked:
                self.assigners.setdefault(answer.generation, set()).add(answer.member_id)
                self.checked.add(ticket)
        assert all(len(members) == 1 for members in self.assigners.values())

    @invariant()
    def generations_grow(self) -> None:
        generation = 0 if self.rounds.found is None else self.rounds.group.generation
        assert generation >= self.generation_before
        self.generation_before = generation

    @invariant()
    def assignments_are_what_the_leader_handed_in(self) -> None:
        for ticket, (member_id, generation) in self.syncs.items():
            answer = self.rounds.syncs.get(ticket)
            if answer is None or ticket in self.checked or answer.error is not ErrorCode.NONE:
                continue
            assert answer.assignment == self._handed_in(generation, member_id)
            self.checked.add(ticket)

    @invariant()
    def P8_last_record_is_the_group(self) -> None:
        group = self.rounds.found
        if group is not None and group.state in (S.STABLE, S.EMPTY):
            assert group_value(group) == self.rounds.records[-1]

    @invariant()
    def every_waiting_request_belongs_to_a_member(self) -> None:
        members = () if self.rounds.found is None else self.rounds.group.members.values()
        tickets = {m.awaiting_join for m in members} | {m.awaiting_sync for m in members}
        assert self.rounds.waiting == tickets - {None}

    @invariant()
    def deadlines_fit_the_state(self) -> None:
        group = self.rounds.found
        if group is not None:
            assert (group.join_deadline_ms is not None) == (group.state is S.PREPARING_REBALANCE)
            assert (group.sync_deadline_ms is not None) == bool(group.unsynced)
            assert group.unsynced <= group.members.keys()
            assert not group.unsynced or group.state in (S.COMPLETING_REBALANCE, S.STABLE)

    @invariant()
    def requests_wait_for_what_is_still_to_come(self) -> None:
        group = self.rounds.found
        if group is not None:
            for member in group.members.values():
                assert member.awaiting_join is None or group.state is S.PREPARING_REBALANCE
                assert member.awaiting_sync is None or group.state is S.COMPLETING_REBALANCE

    @invariant()
    def all_members_speak_the_chosen_protocol(self) -> None:
        group = self.rounds.found
        if group is not None and group.state in (S.COMPLETING_REBALANCE, S.STABLE):
            spoken = [{name for name, _ in m.protocols} for m in group.members.values()]
            assert all(group.protocol in names for names in spoken)

    def teardown(self) -> None:
        """When all clients fall silent every request is answered and the group ends up empty."""
        self.rounds.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS + DAY_MS)
        assert self.rounds.waiting == set()
        assert self.rounds.found is None or self.rounds.group.state is S.EMPTY


PRODUCERS = (7, 8)
GROUPS = ("g", "h", "k")
"""Two of them share a partition of `__consumer_offsets`."""


@dataclass(frozen=True)
class Put:
    """An offset was written."""

    key: OffsetKey
    offset: int
    topic_id: uuid.UUID
    producer_id: int | None


@dataclass(frozen=True)
class Tombstone:
    """An offset was deleted."""

    key: OffsetKey


@dataclass(frozen=True)
class Ended:
    """A marker was written."""

    partition: int
    producer_id: int
    is_commit: bool


class OffsetMachine(RuleBasedStateMachine):
    """Offsets in any order, and the list of all that was written."""

    groups = st.sampled_from(GROUPS)
    producers = st.sampled_from(PRODUCERS)
    places = st.tuples(st.sampled_from(("orders", "payments")), st.integers(0, 1))

    def __init__(self) -> None:
        super().__init__()
        self.node = GroupNode(offsets_topic_num_partitions=2)
        self.written: list[Put | Tombstone | Ended] = []
        self.numbers = itertools.count(1)

    # ---- events

    @rule(group=groups, place=places)
    def offset_is_committed(self, group: str, place: tuple[str, int]) -> None:
        put = self._put(group, place, None)
        code = self.node.commit(group, put.offset, topic=place[0], partition=place[1])
        assert code is ErrorCode.NONE

    @rule(group=groups, place=places, producer_id=producers)
    def offset_is_committed_in_a_transaction(
        self, group: str, place: tuple[str, int], producer_id: int
    ) -> None:
        put = self._put(group, place, producer_id)
        code = self.node.commit_in_transaction(
            group, put.offset, producer_id=producer_id, topic=place[0], partition=place[1]
        )
        assert code is ErrorCode.NONE

    @rule(group=groups, place=places, producer_id=st.none() | producers)
    def broker_crashes_after_an_append(
        self, group: str, place: tuple[str, int], producer_id: int | None
    ) -> None:
        put = self._put(group, place, producer_id)
        record = (
            encode_offset_key(put.key),
            encode_offset_value(self.node.value(put.offset, place[0])),
        )
        producer = None if producer_id is None else ProducerIdAndEpoch(producer_id, 0)
        self.node.log_of(group).append([record], timestamp_ms=0, producer=producer)
        self.node.restart()

    @rule(group=groups, producer_id=producers, is_commit=st.booleans(), crashes=st.booleans())
    def transaction_ends(
        self, group: str, producer_id: int, is_commit: bool, crashes: bool
    ) -> None:
        index = self.node.groups.group_partition(group)
        self.written.append(Ended(index, producer_id, is_commit))
        if crashes:
            marker = Marker(producer_id, 0, 0, is_commit, 0)
            self.node.host.offsets[index].append_marker(marker)
            self.node.restart()
        else:
            self.node.end_transaction(group, is_commit=is_commit, producer_id=producer_id)

    @rule(group=groups, place=places)
    def offset_is_deleted(self, group: str, place: tuple[str, int]) -> None:
        key = OffsetKey(group, *place)
        self.written.append(Tombstone(key))
        self.node.offsets.delete(group, [key])

    @rule(group=groups)
    def group_is_deleted(self, group: str) -> None:
        self.written += [Tombstone(key) for key in self._keys() if key.group_id == group]
        self.node.groups.delete_group(group)
        assert self.node.groups.group(group) is None

    @rule(topic=st.sampled_from(("orders", "payments")), crashes=st.booleans())
    def topic_is_deleted_and_made_anew(self, topic: str, crashes: bool) -> None:
        self.node.host.topic_ids[topic] = uuid.uuid4()
        if not crashes:
            self.written += [Tombstone(key) for key in self._keys() if key.topic == topic]
            self.node.shards.on_topic_deleted(topic)

    @rule()
    def broker_restarts(self) -> None:
        self.node.restart()

    def _put(self, group: str, place: tuple[str, int], producer_id: int | None) -> Put:
        topic_id = self.node.host.topic_ids[place[0]]
        put = Put(OffsetKey(group, *place), next(self.numbers), topic_id, producer_id)
        self.written.append(put)
        return put

    # ---- expectations, from the whole list

    @staticmethod
    def _keys() -> list[OffsetKey]:
        topics = ("orders", "payments")
        places = itertools.product(GROUPS, topics, range(PARTITIONS_PER_TOPIC))
        return [OffsetKey(*place) for place in places]

    def _puts(self, key: OffsetKey) -> list[tuple[int, Put]]:
        """Records written for a key since its last tombstone."""
        numbered = list(enumerate(self.written))
        deleted = [at for at, entry in numbered if entry == Tombstone(key)]
        start = max(deleted, default=-1)
        return [
            (at, entry)
            for at, entry in numbered
            if isinstance(entry, Put) and entry.key == key and at > start
        ]

    def _end(self, at: int, put: Put) -> Ended | None:
        """The marker that ended the transaction of a put."""
        partition = self.node.groups.group_partition(put.key.group_id)
        ends = (
            entry
            for entry in self.written[at:]
            if isinstance(entry, Ended)
            and (entry.partition, entry.producer_id) == (partition, put.producer_id)
        )
        return next(ends, None)

    def _counts(self, at: int, put: Put) -> bool:
        end = self._end(at, put)
        return put.producer_id is None or (end is not None and end.is_commit)

    @invariant()
    def P3_committed_offsets_are_those_whose_transaction_committed(self) -> None:
        for key in self._keys():
            visible = [put for at, put in self._puts(key) if self._counts(at, put)]
            last = visible[-1] if visible else None
            is_current = last is not None and last.topic_id == self.node.host.topic_ids[key.topic]
            expected = last.offset if last is not None and is_current else None
            shown = self.node.offset(key.group_id, topic=key.topic, partition=key.partition)
            assert shown == expected, f"{key}: {shown} is shown, {expected} is committed"

    @invariant()
    def offsets_are_pending_until_their_transaction_ends(self) -> None:
        for key in self._keys():
            is_open = any(
                put.producer_id is not None and self._end(at, put) is None
                for at, put in self._puts(key)
            )
            assert (
                (key.topic, key.partition) in self.node.offsets.of_group(key.group_id).pending
            ) == is_open


TestP8AnyHistoryOfAGroup = GroupMachine.TestCase
TestP8AnyHistoryOfAGroup.settings = settings(
    max_examples=300, stateful_step_count=50, deadline=None
)
TestP3AnyHistoryOfOffsets = OffsetMachine.TestCase
TestP3AnyHistoryOfOffsets.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
