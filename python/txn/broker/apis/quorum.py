"""DescribeQuorum, UpdateFeatures and UnregisterBroker of the one node.

The node is the only voter of the metadata log. Its controller has no socket of its own, so it is
described without an address. Texts are those of Apache Kafka 4.4, as its tools show them.

Where this differs from Kafka: this node does not unregister itself. Kafka's does, and serves
nothing from then on.
"""

from collections.abc import Mapping
from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import ALTER_CLUSTER, CLUSTER_REFUSED, DESCRIBE_CLUSTER
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.metadata_log import FEATURES, METADATA_TOPIC, OLDEST_LEVELS
from txn.broker.node import Node
from txn.errors import StorageError
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.quorum import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdate,
    QuorumNode,
    QuorumReplica,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdatedFeature,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from txn.wire.error_codes import ErrorCode

METADATA_VERSION: Final = "metadata.version"

NOT_HERE: Final = "This server does not host this topic-partition."


async def describe_quorum(
    node: Node, request: DescribeQuorumRequest, context: Context
) -> DescribeQuorumResponse:
    """Answer with this node as the leader and only voter of the metadata log."""
    wanted = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if wanted != [(METADATA_TOPIC, 0)]:  # Kafka too tells of it alone
        topics = [
            DescribedQuorumTopic(
                topic.topic_name,
                [
                    DescribedQuorumPartition(
                        one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(ErrorCode.NONE, "", topics)
    partition, now_ms = node.metadata.partition, node.host.now_ms()
    voter = QuorumReplica(node.node_id, None, partition.log_end_offset, now_ms, now_ms)
    described = DescribedQuorumPartition(
        0,
        ErrorCode.NONE,
        "",
        node.node_id,
        partition.leader_epoch,
        partition.log_end_offset,
        [voter],
    )
    topics = [DescribedQuorumTopic(METADATA_TOPIC, [described])]
    return DescribeQuorumResponse(ErrorCode.NONE, "", topics, [QuorumNode(node.node_id, [])])


async def update_features(
    node: Node, request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    """Finalize features at other levels: all that are named, or none."""
    finalized = node.controller.image.features
    for update in request.feature_updates:
        fault = _fault(update, finalized, node.node_id)
        if fault is not None:
            message = (
                "The update failed for all features since the following feature had an error: "
                + fault
            )
            return UpdateFeaturesResponse(ErrorCode.INVALID_UPDATE_VERSION, message)
    levels = {update.feature: update.max_version_level for update in request.feature_updates}
    changed = {name: level for name, level in levels.items() if finalized.get(name) != level}
    if changed and not request.validate_only:
        try:
            await node.controller.update_features(changed)
        except StorageError as error:
            return UpdateFeaturesResponse(ErrorCode(error.code), error.message)
        for name, level in changed.items():
            audit.acted(context, "feature.updated", "CLUSTER", name, level=level)
    results = [
        UpdatedFeature(update.feature, ErrorCode.NONE, None) for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(ErrorCode.NONE, None, results)


def _fault(update: FeatureUpdate, finalized: Mapping[str, int], node_id: int) -> str | None:
    """The reason why a feature cannot have a level; None: it can."""
    name, level = update.feature, update.max_version_level
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    current = finalized.get(name, 0)
    head = f"Invalid update version {level} for feature {name}."
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{head} The controller does not support the given upgrade type."
    if level < 0:
        return f"{head} A feature version cannot be less than 0."
    if name not in FEATURES:
        fault = f"Feature {name} not found." if level == 0 else _NOT_SUPPORTED.format(node_id)
        return f"{head} {fault}"
    low, high = OLDEST_LEVELS[name], max(FEATURES[name], current)
    if not low <= level <= high:
        return f"{head} Local controller {node_id} only supports versions {low}-{high}"
    if level < current and kind == UPGRADE:
        return (
            f"{head} Can't downgrade the version of this feature without setting the upgrade type "
            "to either safe or unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return f"{head} Can't downgrade to a newer version."
    if level < current and name == METADATA_VERSION:
        return (
            f"Unsupported metadata.version downgrade from {current} to {level}. Refusing to "
            "perform the requested downgrade because it might delete metadata information."
        )
    return None


_NOT_SUPPORTED: Final = "Local controller {} does not support this feature."


async def unregister_broker(
    node: Node, request: UnregisterBrokerRequest, context: Context
) -> UnregisterBrokerResponse:
    """Answer that there is no such broker, or that the only one stays."""
    broker = request.broker_id
    if broker == node.node_id:
        message = f"Broker {broker} is the only one of this cluster, so it stays registered."
        return UnregisterBrokerResponse(ErrorCode.INVALID_REQUEST, message)
    message = f"Broker ID {broker} is not currently registered"
    return UnregisterBrokerResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, message)


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DESCRIBE_QUORUM,
        (0, 2),
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DESCRIBE_CLUSTER.or_else(DescribeQuorumResponse(*CLUSTER_REFUSED, [])),
        describe_quorum,
    ),
    Api(
        ApiKey.UPDATE_FEATURES,
        (0, 2),
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
        ALTER_CLUSTER.or_else(UpdateFeaturesResponse(*CLUSTER_REFUSED)),
        update_features,
    ),
    Api(
        ApiKey.UNREGISTER_BROKER,
        (0, 0),
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        ALTER_CLUSTER.or_else(UnregisterBrokerResponse(*CLUSTER_REFUSED)),
        unregister_broker,
    ),
)
