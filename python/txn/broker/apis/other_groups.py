"""Share groups and streams groups, which are switched off here: every request is refused.

Kafka announces these APIs also where `share.version` and `streams.version` are 0, and answers them
with UNSUPPORTED_VERSION before it looks at anybody's rights. Its clients then say that the cluster
does not support the protocol. `share_state` has the APIs between a broker and the coordinator of
share groups.

Deviation from Kafka: an answer has a group that is named several times once.

Sources: KIP-932, KIP-1071; the answers of Apache Kafka 4.4 without these features.
"""

from typing import Final

from txn.broker.apis.api import Api, Area, Handler, Response
from txn.broker.apis.guards import for_everybody
from txn.broker.host import Context
from txn.broker.node import Node
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.other_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribedShareGroup,
    DescribedShareOffsets,
    DescribedStreamsGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    GroupsDescribeRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupOffsetsResponse,
    ShareSessionResponse,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopologyDescriptionUpdateRequest,
    TopologyDescriptionUpdateResponse,
)
from txn.wire.error_codes import ErrorCode

OFF: Final = ErrorCode.UNSUPPORTED_VERSION
OFF_MESSAGE: Final = "The version of API is not supported."


def refusing_by(answer: Response) -> Handler[Node, object, Response]:
    """A handler that gives each request the same answer."""

    async def refuse(_: Node, request: object, context: Context) -> Response:
        return answer

    return refuse


async def share_group_describe(
    _: Node, request: GroupsDescribeRequest, context: Context
) -> ShareGroupDescribeResponse:
    """Refuse each group."""
    groups = dict.fromkeys(request.group_ids)
    return ShareGroupDescribeResponse([DescribedShareGroup(OFF, group) for group in groups])


async def streams_group_describe(
    _: Node, request: GroupsDescribeRequest, context: Context
) -> StreamsGroupDescribeResponse:
    """Refuse each group."""
    groups = dict.fromkeys(request.group_ids)
    return StreamsGroupDescribeResponse([DescribedStreamsGroup(OFF, group) for group in groups])


async def describe_share_group_offsets(
    _: Node, request: DescribeShareGroupOffsetsRequest, context: Context
) -> DescribeShareGroupOffsetsResponse:
    """Refuse each group."""
    groups = dict.fromkeys(group.group_id for group in request.groups)
    return DescribeShareGroupOffsetsResponse(
        [DescribedShareOffsets(group, OFF) for group in groups]
    )


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        (1, 1),
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
        for_everybody,
        refusing_by(ShareGroupHeartbeatResponse(OFF)),
    ),
    Api(
        ApiKey.SHARE_GROUP_DESCRIBE,
        (1, 1),
        GroupsDescribeRequest,
        ShareGroupDescribeResponse,
        for_everybody,
        share_group_describe,
    ),
    Api(
        ApiKey.SHARE_FETCH,
        (1, 2),
        ShareFetchRequest,
        ShareSessionResponse,
        for_everybody,
        refusing_by(ShareSessionResponse(OFF)),
    ),
    Api(
        ApiKey.SHARE_ACKNOWLEDGE,
        (1, 2),
        ShareAcknowledgeRequest,
        ShareSessionResponse,
        for_everybody,
        refusing_by(ShareSessionResponse(OFF)),
    ),
    Api(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        (0, 1),
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
        for_everybody,
        refusing_by(StreamsGroupHeartbeatResponse(OFF)),
    ),
    Api(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        (0, 1),
        GroupsDescribeRequest,
        StreamsGroupDescribeResponse,
        for_everybody,
        streams_group_describe,
    ),
    Api(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        (0, 1),
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
        for_everybody,
        describe_share_group_offsets,
    ),
    Api(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        (0, 0),
        AlterShareGroupOffsetsRequest,
        ShareGroupOffsetsResponse,
        for_everybody,
        refusing_by(ShareGroupOffsetsResponse(OFF, OFF_MESSAGE)),
    ),
    Api(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        (0, 0),
        DeleteShareGroupOffsetsRequest,
        ShareGroupOffsetsResponse,
        for_everybody,
        refusing_by(ShareGroupOffsetsResponse(OFF, OFF_MESSAGE)),
    ),
    Api(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        (0, 0),
        TopologyDescriptionUpdateRequest,
        TopologyDescriptionUpdateResponse,
        for_everybody,
        refusing_by(TopologyDescriptionUpdateResponse(OFF)),
    ),
)
