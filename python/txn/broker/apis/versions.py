"""ApiVersions: the APIs, their versions and the features that this broker announces.

Sources: KIP-35, KIP-511, KIP-584.
"""

from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import for_everybody
from txn.broker.apis.index import APIS_BY_MODULE
from txn.broker.apis.table import SERVED_BY_REACTORS
from txn.broker.host import Context
from txn.broker.metadata_log import FEATURES
from txn.broker.node import Node
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response

PRODUCE_ANNOUNCED_FROM: Final = 0
"""Produce 0-2 are refused but announced: without them librdkafka takes a broker for one
that cannot do later versions (KAFKA-18659)."""

OLDEST_LEVELS: Final = {"metadata.version": 7, "transaction.version": 0, "group.version": 0}
"""The oldest level of each feature that an Apache Kafka 4 supports."""

FEATURES_FROM_LEVEL_0: Final = 4
"""The first ApiVersions version in which a supported feature may begin at level 0. Clients that
ask in version 3, as Java's before 3.8, cannot read it (KAFKA-17011, KAFKA-17492)."""


class ApiVersions:
    """The ApiVersions answers of a node, made once for each version."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._answers: dict[int, bytes] = {}

    async def answer(self, request: ApiVersionsRequest, context: Context) -> bytes:
        """Answer a request."""
        version = context.api_version
        if version not in self._answers:
            self._answers[version] = _encoded(self._node, version, ErrorCode.NONE)
        return self._answers[version]


def unsupported_version(node: Node) -> bytes:
    """The answer to a request of an unknown version: version 0's body, error 35.

    franz-go opens every connection this way. Source: KIP-511.
    """
    return _encoded(node, 0, ErrorCode.UNSUPPORTED_VERSION)


def _encoded(node: Node, version: int, code: ErrorCode) -> bytes:
    served = SERVED_BY_REACTORS | {
        key: versions for apis in APIS_BY_MODULE.values() for key, versions in apis.items()
    }
    served[ApiKey.PRODUCE] = (PRODUCE_ANNOUNCED_FROM, served[ApiKey.PRODUCE][1])
    finalized = node.image.features
    features = {name: finalized[name] for name in FEATURES if name in finalized}
    response = ApiVersionsResponse(
        code,
        [ApiVersion(key, low, high) for key, (low, high) in sorted(served.items())],
        [
            SupportedFeature(name, OLDEST_LEVELS[name], level)
            for name, level in features.items()
            if version >= FEATURES_FROM_LEVEL_0 or OLDEST_LEVELS[name] > 0
        ],
        0,
        [FinalizedFeature(name, level, level) for name, level in features.items()],
    )
    return encode_response(ApiKey.API_VERSIONS, version, response)


APIS: Final = Area(
    ApiVersions,
    Api(
        ApiKey.API_VERSIONS,
        (0, 4),
        ApiVersionsRequest,
        ApiVersionsResponse,
        for_everybody,
        ApiVersions.answer,
    ),
)
