"""The state of share groups, which are switched off here: every request is refused.

A broker stores this state with the coordinator of share groups, and no client asks for it. Apache
Kafka 4.4 announces these APIs to clients also where `share.version` is 0. A principal needs
CLUSTER_ACTION. It then learns of each partition that this broker is not its coordinator, since no
partition of `__share_group_state` is loaded.

As in Kafka, an answer has each partition once. It is empty for a group without a name, and where a
topic has no partitions; InitializeShareGroupState leaves out such a topic alone.

Deviation from Kafka: the answer has the order of the request, and not that of a hash table.

Sources: KIP-932; the answers of Apache Kafka 4.4 without share groups.
"""

from typing import Final
from uuid import UUID

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import CLUSTER_REFUSED, Need
from txn.broker.host import Context
from txn.broker.node import Node
from txn.security.acls import Operation
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.share_state import (
    PartitionStateResult,
    ShareStateRequest,
    ShareStateResponse,
    TopicStateResult,
)
from txn.wire.error_codes import ErrorCode

CLUSTER_ACTION: Final = Need(Operation.CLUSTER_ACTION)

DONE_BY: Final = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "initialize share group state",
    ApiKey.READ_SHARE_GROUP_STATE: "read share group state",
    ApiKey.WRITE_SHARE_GROUP_STATE: "write share group state",
    ApiKey.DELETE_SHARE_GROUP_STATE: "delete share group state",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "read share group state summary",
}
"""The work of each API, in Kafka's words."""


async def not_coordinator(
    _: Node, request: ShareStateRequest, context: Context
) -> ShareStateResponse:
    """Refuse each partition: no coordinator of share groups is here."""
    key = ApiKey(context.api_key)
    is_blank = any(not topic.partitions for topic in request.topics)
    if not request.group_id or (is_blank and key is not ApiKey.INITIALIZE_SHARE_GROUP_STATE):
        return ShareStateResponse([])
    message = f"Unable to {DONE_BY[key]}: This is not the correct coordinator."
    named: dict[UUID | None, dict[int, None]] = {}
    for topic in request.topics:
        if topic.partitions:
            partitions = named.setdefault(topic.topic_id, {})
            partitions.update(dict.fromkeys(each.partition for each in topic.partitions))
    return ShareStateResponse(
        [
            TopicStateResult(
                topic_id,
                [
                    PartitionStateResult(partition, ErrorCode.NOT_COORDINATOR, message)
                    for partition in partitions
                ],
            )
            for topic_id, partitions in named.items()
        ]
    )


def refused(request: ShareStateRequest, _: Context) -> ShareStateResponse:
    """Refuse each partition as named, to a principal without CLUSTER_ACTION."""
    return ShareStateResponse(
        [
            TopicStateResult(
                topic.topic_id,
                [
                    PartitionStateResult(each.partition, *CLUSTER_REFUSED)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _api(key: ApiKey, last_version: int) -> Api[Node]:
    return Api(
        key,
        (0, last_version),
        ShareStateRequest,
        ShareStateResponse,
        CLUSTER_ACTION.or_by(refused),
        not_coordinator,
    )


APIS: Final = Area(
    lambda node: node,
    _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0),
    _api(ApiKey.READ_SHARE_GROUP_STATE, 0),
    _api(ApiKey.WRITE_SHARE_GROUP_STATE, 1),
    _api(ApiKey.DELETE_SHARE_GROUP_STATE, 0),
    _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1),
)
