"""A heartbeat of the consumer group protocol, its answer, and the steps that it leads to.

Pure. Invariant: nobody acts on an `Outcome` whose records are not written. A `Refusal` changes
nothing.
"""

from typing import Final, NamedTuple

from txn.coordinator.group.consumer.group import ConsumerMember
from txn.coordinator.group.consumer.records import Assignment, ClassicMember, Owned, Records
from txn.coordinator.group.consumer.target import Task
from txn.wire.error_codes import ErrorCode

JOINS: Final = 0
LEAVES: Final = -1
"""Epochs of a heartbeat that joins, or leaves for good."""

NOT_SAID: Final = -1
"""A rebalance timeout that did not change."""


class Beat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None, or -1: the member's data did not change.

    A JoinGroup of a classic member is one too. It has the member's classic data, and
    `knows_its_id` if the coordinator gave the member its id before.
    """

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    classic: ClassicMember | None = None
    knows_its_id: bool = False

    @property
    def is_full(self) -> bool:
        """Says everything, so that the answer has the assignment in any case."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != NOT_SAID and has_subscription and self.owned is not None


class BeatAnswer(NamedTuple):
    """The answer to a heartbeat. `assignment` is None if the member has it already."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: Owned | None = None


class Outcome(NamedTuple):
    """The next steps: write the records, replay them, then answer.

    Attributes:
        answer: Answers the request.
        records: To be written as one batch.
        heard: The member whose session is prolonged.
        checked_topics: The group was compared with the topics as they are.
        replaced: The static member whose place another one took.
        gone: The members to remove, by `migration.remove`.
        task: The target assignment to compute now, beside the control loop.
    """

    answer: BeatAnswer
    records: Records = ()
    heard: str | None = None
    checked_topics: bool = False
    replaced: str | None = None
    gone: tuple[str, ...] = ()
    task: Task | None = None


class Refusal(Exception):
    """A request is answered with an error code."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.answer = BeatAnswer(error, message)


def require_holder(holder: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Raises Refusal: another member has the instance id."""
    if holder.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )


def fenced(reason: str) -> Refusal:
    """The refusal of a member that has to join again; the reason is a sentence."""
    advice = "The member must abandon all its partitions and rejoin."
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{reason} {advice}")


def unknown_member(member_id: str, group_id: str) -> Refusal:
    """The refusal of an id that no member of the group has."""
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
