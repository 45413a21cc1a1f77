"""The steps by which one member gets from the partitions it owns to its target assignment.

Pure. A partition is given to a member only when nobody else owns it. So a member first hands over
the partitions that it loses, and says so by naming the others as its own. Only then it moves to the
epoch of the target. Partitions that others still own follow when they are free.

    STABLE ──target changed──► UNREVOKED_PARTITIONS ──gave them back──► UNRELEASED_PARTITIONS
       ▲                             (old epoch)                          (new epoch) │
       └───────────────────────── all of its partitions are free ─────────────────────┘

A member that loses nothing never stops reading.

Source: KIP-848; Apache Kafka's behaviour where it is silent.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from txn.coordinator.group.consumer.records import (
    Assignment,
    CurrentValue,
    MemberState,
    Owned,
)

S = MemberState


class Aim(NamedTuple):
    """The target of a member.

    Attributes:
        epoch: The epoch of the target assignment.
        partitions: Its part of it.
        is_subscribed: Says whether it subscribes to a topic, by its id.
        is_free: Says whether no other member owns a partition.
    """

    epoch: int
    partitions: Assignment
    is_subscribed: Callable[[uuid.UUID], bool]
    is_free: Callable[[uuid.UUID, int], bool]


def reconciled(
    current: CurrentValue, aim: Aim, owned: Assignment | None, *, has_new_subscription: bool
) -> CurrentValue | None:
    """A member's next state; the same if it cannot go on, None if it has to join again.

    Args:
        current: Its state now.
        aim: Its target.
        owned: The partitions that it says it owns; None: it did not say.
        has_new_subscription: Its subscription changed, so it loses the topics it left at once.
    """
    if current.state is S.STABLE and current.epoch == aim.epoch:
        return _without_left_topics(current, aim, owned) if has_new_subscription else current
    if current.state is S.UNREVOKED_PARTITIONS and _owns_any(owned, current.revoking):
        return _without_left_topics(current, aim, owned) if has_new_subscription else current
    if current.state is S.UNKNOWN and (owned is None or owned):
        return None
    epoch = aim.epoch if current.state is S.UNKNOWN else current.epoch
    return _next(current, epoch, aim, owned)


def _next(current: CurrentValue, epoch: int, aim: Aim, owned: Assignment | None) -> CurrentValue:
    kept: dict[uuid.UUID, dict[int, int]] = {}
    lost: dict[uuid.UUID, dict[int, int]] = {}
    gained: dict[uuid.UUID, list[int]] = {}
    waits = False
    for topic_id in {**aim.partitions, **current.assigned}:
        target = aim.partitions.get(topic_id, frozenset())
        if not aim.is_subscribed(topic_id):
            target = frozenset()
        before = current.assigned.get(topic_id, {})
        _put(kept, topic_id, {each: since for each, since in before.items() if each in target})
        _put(lost, topic_id, {each: since for each, since in before.items() if each not in target})
        wanted = target - before.keys()
        free = [each for each in wanted if aim.is_free(topic_id, each)]
        waits = waits or len(free) < len(wanted)
        if free:
            gained[topic_id] = free
    if lost and _owns_any(owned, lost):
        return current._replace(
            epoch=epoch,
            previous_epoch=current.epoch,
            state=S.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=lost,
        )
    for topic_id, partitions in gained.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, aim.epoch))
    return current._replace(
        epoch=aim.epoch,
        previous_epoch=current.epoch,
        state=S.UNRELEASED_PARTITIONS if waits else S.STABLE,
        assigned=kept,
        revoking={},
    )


def _without_left_topics(current: CurrentValue, aim: Aim, owned: Assignment | None) -> CurrentValue:
    """Take away the topics that a member does not subscribe to any longer."""
    left = {
        each: current.assigned[each] for each in current.assigned if not aim.is_subscribed(each)
    }
    if not left:
        return current
    kept = {each: epochs for each, epochs in current.assigned.items() if each not in left}
    revoking: dict[uuid.UUID, Mapping[int, int]] = dict(current.revoking)
    for topic_id, epochs in left.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    state = S.UNREVOKED_PARTITIONS
    if not _owns_any(owned, revoking):
        state, revoking = current.state, dict(current.revoking)
    return current._replace(
        previous_epoch=current.epoch, state=state, assigned=kept, revoking=revoking
    )


def _put(owned: dict[uuid.UUID, dict[int, int]], topic_id: uuid.UUID, some: dict[int, int]) -> None:
    if some:
        owned[topic_id] = some


def _owns_any(owned: Assignment | None, partitions: Owned) -> bool:
    """Say whether a member may still own some partitions: it does, or did not say."""
    if owned is None:
        return True
    return any(
        not numbers.isdisjoint(partitions.get(topic_id, ())) for topic_id, numbers in owned.items()
    )
