"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments of the one node.

It is the only replica of each partition and leads it. So no election is needed and no reassignment
is ever under way. The only assignment that can be asked for is the one that is there. Texts are
those of Apache Kafka 4.4, as its tools show them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import ALTER_CLUSTER, CLUSTER_REFUSED, DESCRIBE_CLUSTER
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.replicas import (
    ELECTION_TYPES,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionElection,
    ReassignablePartition,
    ReassignedPartition,
    ReassignedTopic,
    TopicElection,
)
from txn.wire.error_codes import ErrorCode

NOT_NEEDED: Final = "Leader election not needed for topic partition."


async def elect_leaders(
    node: Node, request: ElectLeadersRequest, context: Context
) -> ElectLeadersResponse:
    """Answer that no partition needs an election."""
    if request.election_type not in ELECTION_TYPES and request.topic_partitions != ():
        message = f"Unknown election type {request.election_type}"
        return _no_election(request, ErrorCode.INVALID_REQUEST, message)
    if request.topic_partitions is None:
        topics = [TopicElection(name) for name in tuple(node.image.topics)]
        return ElectLeadersResponse(ErrorCode.NONE, topics)
    turns = Turns()
    results = []
    for topic in request.topic_partitions:
        await turns.next(1 + len(topic.partitions))
        elections = [_election(node, topic.topic, index) for index in topic.partitions]
        results.append(TopicElection(topic.topic, elections))
    return ElectLeadersResponse(ErrorCode.NONE, results)


def _election(node: Node, topic: str, index: int) -> PartitionElection:
    if topic not in node.image.topics:
        fault = f"No such topic as {topic}"
    elif not node.host.has_partition(topic, index):
        fault = f"No such partition as {topic}-{index}"
    else:
        return PartitionElection(index, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)
    return PartitionElection(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, fault)


def _no_election(
    request: ElectLeadersRequest, code: ErrorCode, message: str
) -> ElectLeadersResponse:
    topics = [
        TopicElection(
            topic.topic, [PartitionElection(index, code, message) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(code, topics)


async def alter_partition_reassignments(
    node: Node, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Accept the assignment to this node, which is the one in force, and refuse any other."""
    turns = Turns()
    responses = []
    for topic in request.topics:
        await turns.next(1 + len(topic.partitions))
        partitions = [_reassigned(node, topic.name, wanted) for wanted in topic.partitions]
        responses.append(ReassignedTopic(topic.name, partitions))
    return AlterPartitionReassignmentsResponse(
        request.allow_replication_factor_change, ErrorCode.NONE, None, responses
    )


def _reassigned(node: Node, topic: str, wanted: ReassignablePartition) -> ReassignedPartition:
    index = wanted.partition_index
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic not in node.image.topics:
        return ReassignedPartition(index, unknown, f"Unable to find a topic named {topic}.")
    if not node.host.has_partition(topic, index):
        return ReassignedPartition(index, unknown, f"Unable to find partition {topic}:{index}.")
    if wanted.replicas is None:
        return ReassignedPartition(index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    fault = assignment_fault(wanted.replicas, node.node_id)
    if fault is not None:
        return ReassignedPartition(index, ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)
    return ReassignedPartition(index, ErrorCode.NONE)


def assignment_fault(brokers: Sequence[int], node_id: int) -> str | None:
    """The fault in the brokers of a partition; None: this node alone is among them."""
    ordered = sorted(brokers)
    twice = [one for one, following in pairwise(ordered) if one == following]
    strange = [one for one in ordered if one != node_id]
    if twice:
        fault = f"the broker {twice[0]} more than once"
    elif strange:
        fault = f"broker {strange[0]}, but no such broker is registered"
    elif not ordered:
        fault = "an empty replica list"
    else:
        return None
    return f"The manual partition assignment includes {fault}."


def _not_reassigned(
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    responses = [
        ReassignedTopic(
            topic.name,
            [
                ReassignedPartition(one.partition_index, *CLUSTER_REFUSED)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(True, *CLUSTER_REFUSED, responses)


async def list_partition_reassignments(
    node: Node, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    """Answer that no reassignment is under way."""
    return ListPartitionReassignmentsResponse(ErrorCode.NONE, None, [])


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.ELECT_LEADERS,
        (0, 2),
        ElectLeadersRequest,
        ElectLeadersResponse,
        ALTER_CLUSTER.or_by(lambda request, _: _no_election(request, *CLUSTER_REFUSED)),
        elect_leaders,
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ALTER_CLUSTER.or_by(lambda request, _: _not_reassigned(request)),
        alter_partition_reassignments,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        DESCRIBE_CLUSTER.or_else(ListPartitionReassignmentsResponse(*CLUSTER_REFUSED, [])),
        list_partition_reassignments,
    ),
)
