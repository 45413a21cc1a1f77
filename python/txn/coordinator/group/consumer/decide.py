"""The decision on a heartbeat of the consumer group protocol (KIP-848).

Pure: no clock, no log, no socket. Invariant: a heartbeat never changes the group. Its outcome has
the records to write first, and the answer. The group changes when the records are replayed.

A heartbeat is everything in one: it joins, reports, and fetches the assignment. Three numbers lead:

    group epoch        grows when members, subscriptions or topics change
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch up to which a member has given its partitions back

All of a heartbeat's changes are one batch, so a crash leaves a whole step or none. Only a target
assignment that is larger than a batch is written before it (`broker/consumer_groups.py`).

Until the assignment interval is over, members go on with the target that there is (`target.py`).
So they do while a large assignment is computed, which is a task for the caller.

Deviation from Kafka: a group in the last epoch, 2³¹-1, refuses changes that need another one. Kafka
goes on with -2³¹, and the group's members get no partitions from then on.

Sources: KIP-848, KIP-1263; Apache Kafka's behaviour where they are silent.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from txn.coordinator.group.consumer.beat import (
    JOINS,
    NOT_SAID,
    Beat,
    BeatAnswer,
    Outcome,
    Refusal,
    fenced,
    require_holder,
    unknown_member,
)
from txn.coordinator.group.consumer.departures import tombstones
from txn.coordinator.group.consumer.group import (
    EPOCH_MAX,
    LEFT_FOR_A_WHILE,
    NO_PARTITIONS,
    NO_SUBSCRIPTION,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    next_epoch,
)
from txn.coordinator.group.consumer.patterns import PATTERNS_MAX
from txn.coordinator.group.consumer.reconcile import Aim, reconciled
from txn.coordinator.group.consumer.records import (
    Assignment,
    ConsumerRecord,
    ConsumerValue,
    CurrentValue,
    Kind,
    MemberValue,
    Owned,
    record,
)
from txn.coordinator.group.consumer.target import (
    Limits,
    Task,
    is_assignment_due,
    preferred_assignor,
    target_records,
    task,
)
from txn.coordinator.group.consumer.topics import Topics, metadata_hash
from txn.wire.error_codes import ErrorCode


def heartbeat(
    group: ConsumerGroup, beat: Beat, *, now_ms: int, topics: Topics, limits: Limits
) -> Outcome:
    """Let a member join or go on, and tell it the partitions that it may read now.

    Args:
        group: The group; a new one for its first member.
        beat: The request, whose epoch is not negative.
        now_ms: The time of day, which is stored with an assignment.
        topics: The published topics.
        limits: The settings for the group.
    """
    full = join_refusal(group, beat, limits)
    if full is not None:
        return Outcome(full)
    try:
        return _Heartbeat(group, beat, now_ms, topics, limits).outcome()
    except Refusal as refusal:
        return Outcome(refusal.answer)


def join_refusal(group: ConsumerGroup, beat: Beat, limits: Limits) -> BeatAnswer | None:
    """Say why the group has no room for a member; None if it has."""
    is_replacing = (
        beat.instance_id is not None and group.static_member(beat.instance_id) is not None
    )
    is_full = (
        len(group.members) >= limits.max_size
        and beat.member_id not in group.members
        and not is_replacing
    )
    added = added_bytes(group, beat)
    if is_full or (added > 0 and group.members_bytes + added > limits.group_bytes_max):
        return BeatAnswer(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limits.max_size} members.",
        )
    return None


class _Heartbeat:
    """One heartbeat on its way to its outcome. The group itself is never changed."""

    def __init__(
        self, group: ConsumerGroup, beat: Beat, now_ms: int, topics: Topics, limits: Limits
    ) -> None:
        self._group = group
        self._beat = beat
        self._now_ms = now_ms
        self._topics = topics
        self._limits = limits
        self._records: list[ConsumerRecord] = []
        self._task: Task | None = None

    def outcome(self) -> Outcome:
        group, beat = self._group, self._beat
        before, replaced = self._member()
        subscription = _updated(before.subscription, beat)
        self._require_few_patterns(before, subscription)
        has_changed = subscription != before.subscription or beat.member_id not in group.members
        if has_changed and replaced is None:
            self._write(Kind.MEMBER, subscription, beat.member_id)
        elif has_changed:
            self._replace_last_subscription(subscription)
        has_new_topics = subscription.topics != before.subscription.topics
        has_new_pattern = (subscription.pattern or "") != before.pattern
        self._forget_pattern(before, subscription)
        is_resolved = not subscription.pattern or subscription.pattern in group.patterns
        counted = {before.member_id} if replaced is None else {replaced.member_id, beat.member_id}
        gone = [group.members[each].subscription for each in counted if each in group.members]
        needs_assignment = (
            has_new_topics
            or (has_new_pattern and is_resolved)
            or self._changes_assignor(before, subscription, replaced)
        )
        is_checked = needs_assignment or group.is_outdated
        epoch = self._epoch(needs_assignment, is_checked, gone, subscription)
        target_epoch, target = self._target(epoch, subscription, replaced)
        aim = Aim(target_epoch, target, self._subscribes(subscription), self._is_free)
        current = reconciled(
            before.current,
            aim,
            beat.owned,
            has_new_subscription=has_new_topics or has_new_pattern,
        )
        if current is None:
            raise fenced("The member is in a state that is unknown here.")
        if current != before.current:
            self._write(Kind.CURRENT, current, beat.member_id)
        sends_assignment = beat.epoch == JOINS or beat.is_full
        if not sends_assignment:
            sends_assignment = _partitions(current.assigned) != _partitions(before.current.assigned)
        answer = BeatAnswer(
            ErrorCode.NONE,
            None,
            beat.member_id,
            current.epoch,
            current.assigned if sends_assignment else None,
        )
        replaced_id = None if replaced is None else replaced.member_id
        records = tuple(self._records)
        return Outcome(answer, records, beat.member_id, is_checked, replaced_id, task=self._task)

    # ---- the member

    def _require_few_patterns(self, before: ConsumerMember, subscription: MemberValue) -> None:
        """Refuse one pattern more in a group that has enough."""
        group, pattern = self._group, subscription.pattern
        if not pattern or group.members_of_pattern(pattern):
            return
        is_instead = bool(before.pattern) and group.members_of_pattern(before.pattern) == 1
        if len(group.subscribed_patterns) - is_instead >= PATTERNS_MAX:
            raise Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the consumer group have {PATTERNS_MAX} different patterns "
                "already. It takes no other one.",
            )

    def _member(self) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member as it was, and the static member whose place it takes."""
        group, beat = self._group, self._beat
        joins = beat.epoch == JOINS and not (beat.knows_its_id and beat.instance_id is not None)
        if beat.instance_id is None:
            known = group.members.get(beat.member_id)
            if known is None and not joins:
                raise unknown_member(beat.member_id, group.group_id)
            if known is None:
                return _new_member(beat), None
            _require_epoch(known, beat)
            return known, None
        holder = group.static_member(beat.instance_id)
        if not joins:
            if holder is None:
                raise Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown."
                )
            require_holder(holder, beat.member_id, beat.instance_id)
            _require_epoch(holder, beat)
            return holder, None
        if holder is None:
            known = group.members.get(beat.member_id)
            return (_new_member(beat) if known is None else known), None
        speaks_classic = holder.is_classic or beat.classic is not None
        if holder.epoch != LEFT_FOR_A_WHILE and not speaks_classic:
            raise Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join "
                f"the group because the instance id is owned by {holder.member_id} member.",
            )
        return self._replacement(holder), holder

    def _replacement(self, holder: ConsumerMember) -> ConsumerMember:
        """The place of a static member that left, under the id of the one that came back."""
        group, member_id = self._group, self._beat.member_id
        current = holder.current._replace(epoch=0, previous_epoch=0)
        self._records += tombstones(group.group_id, holder.member_id)
        self._write(Kind.MEMBER, holder.subscription, member_id)
        target = group.target.get(holder.member_id, NOTHING)
        part = group.target_part(holder.member_id, target)
        self._write(Kind.TARGET_MEMBER, part, member_id)
        self._write(Kind.CURRENT, current, member_id)
        return ConsumerMember(member_id, holder.subscription, current)

    def _replace_last_subscription(self, subscription: MemberValue) -> None:
        """Write the subscription of a member that replaces another one again, if it changed."""
        written = next(one for one in self._records if one.key.kind is Kind.MEMBER and one.value)
        if written.value != subscription:
            self._write(Kind.MEMBER, subscription, self._beat.member_id)

    # ---- the group

    def _forget_pattern(self, before: ConsumerMember, subscription: MemberValue) -> None:
        """Drop the topics of a pattern whose last member left it."""
        pattern = before.pattern
        is_last = self._group.members_of_pattern(pattern) == 1
        is_left = is_last and pattern != (subscription.pattern or "")
        if is_left and pattern in self._group.patterns:
            self._write(Kind.PATTERN, None, pattern)

    def _changes_assignor(
        self,
        before: ConsumerMember,
        subscription: MemberValue,
        replaced: ConsumerMember | None,
    ) -> bool:
        if before.subscription.assignor == subscription.assignor:
            return False
        group, default = self._group, self._limits.default_assignor
        now = {name: each.subscription for name, each in group.members.items()}
        then = {**now, self._beat.member_id: subscription}
        if replaced is not None and replaced.member_id != self._beat.member_id:
            del then[replaced.member_id]
        return preferred_assignor(now.values(), default) != preferred_assignor(
            then.values(), default
        )

    def _epoch(
        self,
        needs_assignment: bool,
        is_checked: bool,
        gone: list[MemberValue],
        subscription: MemberValue,
    ) -> int:
        """The epoch of the group behind this heartbeat."""
        group = self._group
        if not is_checked:
            return group.epoch
        names = group.subscribed_topics(gone, subscription)
        hashed = metadata_hash(names, self._topics)
        if not needs_assignment and hashed == group.metadata_hash:
            return group.epoch
        if group.epoch == EPOCH_MAX:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Group {group.group_id} has reached the last epoch, {EPOCH_MAX}. Stop its members "
                "and delete the group, or use another group id.",
            )
        value = group.epoch_value._replace(epoch=next_epoch(group), metadata_hash=hashed)
        self._write(Kind.EPOCH, value)
        return value.epoch

    def _target(
        self, epoch: int, subscription: MemberValue, replaced: ConsumerMember | None
    ) -> tuple[int, Assignment]:
        """The target assignment's epoch, and this member's part of it."""
        group, member_id = self._group, self._beat.member_id
        target: Mapping[str, Assignment] = group.target
        if not is_assignment_due(group, epoch, self._now_ms, self._limits):
            holder_id = member_id if replaced is None else replaced.member_id
            return group.target_value.epoch, target.get(holder_id, NOTHING)
        subscriptions = {name: each.subscription for name, each in group.members.items()}
        if replaced is not None:
            del subscriptions[replaced.member_id]
            part = target.get(replaced.member_id, NOTHING)
            target = {name: each for name, each in target.items() if name != replaced.member_id}
            target[member_id] = part
        else:
            target = dict(target)
        subscriptions[member_id] = subscription
        names = group.subscribed_topics(new=subscription)
        needed = task(group, epoch, subscriptions, target, names, self._topics, self._limits)
        if needed.is_large:
            self._task = needed
            return group.target_value.epoch, target.get(member_id, NOTHING)
        assigned = needed.assigned()
        self._records += target_records(group, assigned, target, epoch, self._now_ms)
        return epoch, assigned[member_id]

    def _subscribes(self, subscription: MemberValue) -> Callable[[UUID], bool]:
        """Say of a topic whether a subscription names it; most heartbeats never ask."""
        names: set[str] | None = None

        def is_subscribed(topic_id: UUID) -> bool:
            nonlocal names
            if names is None:
                names = self._group.topics_of(subscription)
            return self._topics.topic_name(topic_id) in names

        return is_subscribed

    def _is_free(self, topic_id: UUID, partition: int) -> bool:
        owner = self._group.owner(topic_id, partition)
        return owner is None or owner == self._beat.member_id

    def _write(self, kind: Kind, value: ConsumerValue | None, name: str = "") -> None:
        self._records.append(record(kind, self._group.group_id, value, name))


def _updated(before: MemberValue, beat: Beat) -> MemberValue:
    """A member's subscription with the data that a heartbeat brings."""
    return MemberValue(
        instance_id=before.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=before.topics if beat.topics is None else tuple(sorted({*beat.topics})),
        pattern=(before.pattern or "") if beat.pattern is None else beat.pattern,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == NOT_SAID
            else beat.rebalance_timeout_ms
        ),
        assignor=before.assignor if beat.assignor is None else beat.assignor,
        tags=before.tags,
        classic=None if beat.classic is None else beat.classic.with_tags_of(before.classic),
    )


def _new_member(beat: Beat) -> ConsumerMember:
    return ConsumerMember(beat.member_id, NO_SUBSCRIPTION, NO_PARTITIONS)


def added_bytes(group: ConsumerGroup, beat: Beat) -> int:
    """The bytes by which a heartbeat lets its group grow; 0 if it brings nothing new."""
    says = (beat.topics, beat.pattern, beat.rack_id)
    if beat.epoch != JOINS and all(each is None for each in says):
        return 0
    before = group.members.get(beat.member_id)
    if before is None and beat.instance_id is not None:
        before = group.static_member(beat.instance_id)
    subscription = _updated(NO_SUBSCRIPTION if before is None else before.subscription, beat)
    after = ConsumerMember(beat.member_id, subscription, NO_PARTITIONS)
    return after.size_bytes - (0 if before is None else before.size_bytes)


def _require_epoch(member: ConsumerMember, beat: Beat) -> None:
    """Refuse a member of another epoch; the answer with its last epoch may have been lost."""
    current = member.current
    if beat.epoch in (JOINS, current.epoch):
        return
    is_greater = beat.epoch > current.epoch
    if is_greater or beat.epoch != current.previous_epoch or not _is_part(beat.owned, current):
        raise fenced(
            f"The consumer group member has a {'greater' if is_greater else 'smaller'} member "
            f"epoch ({beat.epoch}) than the one known by the group coordinator ({current.epoch})."
        )


def _is_part(owned: Assignment | None, current: CurrentValue) -> bool:
    return owned is not None and all(
        numbers <= current.assigned.get(topic_id, {}).keys() for topic_id, numbers in owned.items()
    )


def _partitions(owned: Owned) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(epochs) for topic_id, epochs in owned.items()}
