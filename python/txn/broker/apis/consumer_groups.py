"""Groups of the consumer protocol on the wire: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Sources: their message schemas; KIP-848; Apache Kafka's checks and texts (GroupCoordinatorService,
KafkaApis).
"""

import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.groups import (
    ANSWER_BYTES_MAX,
    GROUP_OPERATIONS,
    fits,
    java_host,
    shortened,
)
from txn.broker.apis.guards import GROUP_FAILED, READ_GROUP, TOPIC_FAILED
from txn.broker.consumer_groups import Sees
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.host import Context
from txn.broker.metadata_log import GROUP_FEATURE
from txn.broker.turns import Turns
from txn.coordinator.group.consumer.beat import JOINS, LEAVES, Beat
from txn.coordinator.group.consumer.group import (
    LEFT_FOR_A_WHILE,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
)
from txn.coordinator.group.consumer.records import Assignment, Owned
from txn.coordinator.group.consumer.target import preferred_assignor
from txn.metadata.image import OFFSETS_TOPIC
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.consumer_groups import (
    NOT_SAID,
    AssignedPartitions,
    AssignedTopicPartitions,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)
from txn.wire.bodies.groups import OPERATIONS_NOT_ASKED
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

OWN_MEMBER_ID_FROM: Final = 1
"""The first version in which a client makes its member id itself."""

TOPICS_MAX: Final = 10_000
"""Topic names of one subscription."""

OWNED_MAX: Final = 100_000
"""Partitions that one heartbeat names."""

ID_LENGTH_MAX: Final = 249
"""Characters of a member id or an instance id. A member id is in the key of each of its records,
so large ones make the batches of a group large. Kafka's consumer takes no longer instance id, and
makes member ids of 22 characters."""

PATTERN_LENGTH_MAX: Final = 10_000

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

Answer = ConsumerGroupHeartbeatResponse


async def consumer_group_heartbeat(
    groups: GroupCoordinator,
    request: ConsumerGroupHeartbeatRequest,
    context: Context,
    sees: Sees | None = None,
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, go on or leave, and tell it the partitions that it may read."""
    if not groups.host.feature_level(GROUP_FEATURE):
        return Answer(ErrorCode.UNSUPPORTED_VERSION)
    fault = _fault(groups, request, context.api_version)
    if fault is not None:
        return fault
    beat = Beat(
        member_id=request.member_id or groups.make_id(),
        epoch=request.member_epoch,
        client_id=shortened(context.client_id),
        client_host=java_host(context.client_host),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
    )
    answer = await groups.consumer.heartbeat(request.group_id, beat, sees, context.session.owner)
    if answer.error is not ErrorCode.NONE:
        return Answer(answer.error, answer.message)
    interval_ms = groups.consumer.setting(request.group_id, "heartbeat.interval.ms")
    is_leaving = request.member_epoch < JOINS
    return Answer(
        ErrorCode.NONE,
        None,
        answer.member_id,
        answer.epoch,
        0 if is_leaving else interval_ms,
        None if answer.assignment is None else _assigned(answer.assignment),
    )


def _fault(
    groups: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, api_version: int
) -> ConsumerGroupHeartbeatResponse | None:
    """Why a request is refused before its group is looked at; None: it is not."""
    epoch = request.member_epoch
    names = (request.group_id, request.member_id, request.instance_id, request.rack_id)
    pattern = request.subscribed_topic_regex or ""
    needs_id = api_version >= OWN_MEMBER_ID_FROM or epoch > JOINS or epoch == LEAVES
    assignors = groups.consumer.assignors
    message = None
    if needs_id and not request.member_id.strip():
        message = "MemberId can't be empty."
    elif not request.group_id.strip():
        message = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        message = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        message = "RackId can't be empty."
    elif epoch == JOINS and request.rebalance_timeout_ms == NOT_SAID:
        message = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == JOINS and (request.topic_partitions is None or request.topic_partitions):
        message = "TopicPartitions must be empty when (re-)joining."
    elif (
        epoch == JOINS
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
    ):
        message = (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    elif epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        message = "InstanceId can't be null."
    elif epoch < LEFT_FOR_A_WHILE:
        message = "MemberEpoch is invalid."
    elif max(len(request.member_id), len(request.instance_id or "")) > ID_LENGTH_MAX:
        message = f"MemberId and InstanceId can't be longer than {ID_LENGTH_MAX} characters."
    elif not all(fits(name or "") for name in (*names, pattern)) or _is_too_large(request):
        message = "The request is too large."
    if message is not None:
        return Answer(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return Answer(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {shortened(request.server_assignor)} is not supported. Supported "
            f"assignors: {', '.join(assignors)}.",
        )
    return None


def _is_too_large(request: ConsumerGroupHeartbeatRequest) -> bool:
    owned = sum(1 + len(topic.partitions) for topic in request.topic_partitions or ())
    topics, pattern = request.subscribed_topic_names or (), request.subscribed_topic_regex or ""
    return len(topics) > TOPICS_MAX or len(pattern) > PATTERN_LENGTH_MAX or owned > OWNED_MAX


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    owned: dict[uuid.UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        topic_id = topic.topic_id or uuid.UUID(int=0)
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assigned(owned: Owned) -> AssignedPartitions:
    return AssignedPartitions(
        [AssignedTopicPartitions(topic_id, sorted(epochs)) for topic_id, epochs in owned.items()]
    )


# ---------------------------------------------------------------- groups


async def consumer_group_describe(
    groups: GroupCoordinator, request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    """Tell a group's state, its members and their assignments; each group once."""
    turns = Turns()
    described = []
    left_bytes = ANSWER_BYTES_MAX
    is_served = groups.host.feature_level(GROUP_FEATURE) > 0
    for group_id in dict.fromkeys(request.group_ids):
        group = groups.consumer.get(group_id)
        await turns.next(1 if group is None else 1 + len(group.members))
        if not is_served:
            described.append(DescribedConsumerGroup(ErrorCode.UNSUPPORTED_VERSION, None, group_id))
        elif groups.refusal(group_id) is not ErrorCode.NONE:
            partition = groups.group_partition(group_id)
            message = f"Partition {partition} of {OFFSETS_TOPIC}, which keeps it, cannot be read."
            code = ErrorCode.NOT_COORDINATOR
            described.append(DescribedConsumerGroup(code, message, group_id))
        elif group is None:
            is_other = groups.any_group(group_id) is not None
            end = "is not a consumer group." if is_other else "not found."
            code = ErrorCode.GROUP_ID_NOT_FOUND
            described.append(DescribedConsumerGroup(code, f"Group {group_id} {end}", group_id))
        elif left_bytes < 0:
            message = "The answer is full. Ask for this group again, with fewer others."
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            described.append(DescribedConsumerGroup(code, message, group_id))
        else:
            left_bytes -= group.size_bytes
            operations = (
                GROUP_OPERATIONS if request.include_authorized_operations else OPERATIONS_NOT_ASKED
            )
            described.append(_described(groups, group, operations))
    return ConsumerGroupDescribeResponse(described)


def _described(
    groups: GroupCoordinator, group: ConsumerGroup, operations: int
) -> DescribedConsumerGroup:
    default = groups.consumer.assignors[0]
    subscriptions = [member.subscription for member in group.members.values()]
    members = []
    for member in group.members.values():
        subscription = member.subscription
        members.append(
            DescribedConsumer(
                member.member_id,
                subscription.instance_id,
                subscription.rack_id,
                member.epoch,
                subscription.client_id,
                subscription.client_host,
                subscription.topics,
                subscription.pattern or "",
                _described_part(groups, _owned_by(member)),
                _described_part(groups, group.target.get(member.member_id, NOTHING)),
                CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
            )
        )
    return DescribedConsumerGroup(
        ErrorCode.NONE,
        None,
        group.group_id,
        group.state.value,
        group.epoch,
        group.target_value.epoch,
        preferred_assignor(subscriptions, default),
        members,
        operations,
    )


def _owned_by(member: ConsumerMember) -> dict[uuid.UUID, set[int]]:
    """The partitions that a member reads, with those that it has still to give back."""
    owned: dict[uuid.UUID, set[int]] = {}
    for part in (member.current.assigned, member.current.revoking):
        for topic_id, epochs in part.items():
            owned.setdefault(topic_id, set()).update(epochs)
    return owned


def _described_part(
    groups: GroupCoordinator, part: Mapping[uuid.UUID, Collection[int]]
) -> DescribedAssignment:
    """Partitions by topics that are there."""
    described = []
    for topic_id, partitions in part.items():
        name = groups.host.topic_name(topic_id)
        if name is not None:
            described.append(DescribedTopicPartitions(topic_id, name, sorted(partitions)))
    return DescribedAssignment(described)


# ---------------------------------------------------------------- access


async def _guard_heartbeat(
    call: Call[GroupCoordinator, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse],
) -> ConsumerGroupHeartbeatResponse:
    """READ on the group, DESCRIBE on the topics that are named, or that a pattern matches."""
    request, access = call.request, call.access
    if not READ_GROUP.is_met(call):
        return Answer(GROUP_FAILED)
    topics = request.subscribed_topic_names or ()
    if len(await access.among(Operation.DESCRIBE, ResourceType.TOPIC, topics)) < len({*topics}):
        return Answer(TOPIC_FAILED)
    sees = partial(access.among, Operation.DESCRIBE, ResourceType.TOPIC, is_logged=False)
    return await consumer_group_heartbeat(call.service, request, call.context, sees)


async def _guard_describe(
    call: Call[GroupCoordinator, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse],
) -> ConsumerGroupDescribeResponse:
    """DESCRIBE on the group and on each topic of it; the operations where they are asked for."""
    request, access = call.request, call.access
    allowed = await access.among(Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    refused = [
        DescribedConsumerGroup(GROUP_FAILED, None, group_id)
        for group_id in dict.fromkeys(request.group_ids)
        if group_id not in allowed
    ]
    kept = tuple(group_id for group_id in request.group_ids if group_id in allowed)
    response = await call.proceed_with(changed(request, group_ids=kept))
    described = []
    for one in response.groups:
        names = {topic for member in one.members for topic in _topics_of(member)}
        seen = await access.among(Operation.DESCRIBE, ResourceType.TOPIC, sorted(names))
        if len(seen) < len(names):
            message = (
                "The group has described topic(s) that the client is not authorized to describe."
            )
            described.append(DescribedConsumerGroup(TOPIC_FAILED, message, one.group_id))
        elif one.authorized_operations == OPERATIONS_NOT_ASKED:
            described.append(one)
        else:
            operations = access.operations(ResourceType.GROUP, one.group_id)
            described.append(one._replace(authorized_operations=operations))
    return ConsumerGroupDescribeResponse([*refused, *described])


def _topics_of(member: DescribedConsumer) -> set[str]:
    parts = (member.assignment, member.target_assignment)
    assigned = {topic.topic_name for part in parts for topic in part.topic_partitions}
    return assigned | {*member.subscribed_topic_names}


APIS: Final = Area(
    lambda node: node.groups,
    Api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (0, 1),
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        _guard_heartbeat,
        consumer_group_heartbeat,
    ),
    Api(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        _guard_describe,
        consumer_group_describe,
    ),
)
