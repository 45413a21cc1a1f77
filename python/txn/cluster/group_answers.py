"""The answers of DescribeGroups and ConsumerGroupDescribe as facts about a group.

A broker of an older version leaves fields out; a fact that it does not state is None.
"""

from typing import Any, Final

from txn.cluster.groups import (
    CONSUMERS,
    ConsumerMember,
    ConsumerProtocol,
    GroupFacts,
    GroupMember,
    assigned_partitions,
)
from txn.identifiers import TopicPartition

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Types of a member of a consumer group, from ConsumerGroupDescribe 1 on."""


def classic_group(group: Any) -> GroupFacts:
    """A group of DescribeGroups; only members of consumer groups have partitions."""
    members = [
        GroupMember(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            member.client_host,
            assigned_partitions(member.member_assignment)
            if group.protocol_type == CONSUMERS
            else (),
        )
        for member in group.members
    ]
    return GroupFacts(group.group_state, group.protocol_type, members)


def consumer_group(group: Any) -> GroupFacts:
    """A group of ConsumerGroupDescribe (KIP-848)."""
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _places(member.assignment),
            ConsumerMember(
                member.member_epoch,
                _places(member.target_assignment),
                member.rack_id,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex or None,
                getattr(member, "member_type", CONSUMER_MEMBER) == CLASSIC_MEMBER,
            ),
        )
        for member in group.members
    ]
    protocol = ConsumerProtocol(group.group_epoch, group.assignment_epoch, group.assignor_name)
    return GroupFacts(group.group_state, CONSUMERS, members, protocol)


def _places(assignment: Any) -> list[TopicPartition]:
    """The partitions of an assignment of ConsumerGroupDescribe, sorted."""
    return sorted(
        (topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )
