"""ApiVersions: the APIs, their versions and the features that this broker announces.

Sources: KIP-35, KIP-511, KIP-584, KIP-1242.
"""

import re
from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import for_everybody
from txn.broker.apis.table import SERVED_BY_REACTORS, served_in_python
from txn.broker.host import Context
from txn.broker.metadata_log import FEATURES, OLDEST_LEVELS
from txn.broker.node import Node
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.versions import (
    NO_NODE,
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

FEATURES_FROM_LEVEL_0: Final = 4
"""The first ApiVersions version in which a supported feature may begin at level 0. Clients that
ask in version 3, as Java's before 3.8, cannot read it (KAFKA-17011, KAFKA-17492)."""

NAMES_SOFTWARE_FROM: Final = 3
"""The first version that names the client's software."""

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The name or the version of a client's software (KIP-511)."""

NO_EPOCH: Final = -1
"""The epoch of the features in an answer without features."""


class ApiVersions:
    """The ApiVersions answers of a node, made once for each version while its features last."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._answers: dict[int, bytes] = {}
        self._features: dict[str, int] = {}
        self._epoch = NO_EPOCH

    async def answer(self, request: ApiVersionsRequest, context: Context) -> bytes:
        """Answer a request."""
        version = context.api_version
        code = _fault(self._node, request, version)
        if code is not ErrorCode.NONE:
            refused = ApiVersionsResponse(code, [], [], NO_EPOCH, [])
            return encode_response(ApiKey.API_VERSIONS, version, refused)
        features = self._node.image.features
        if self._features != features:
            self._features = features.copy()
            self._epoch = self._node.metadata.partition.log_end_offset
            self._answers.clear()
        if version not in self._answers:
            self._answers[version] = _encoded(self._node, version, self._epoch)
        return self._answers[version]


def _fault(node: Node, request: ApiVersionsRequest, version: int) -> ErrorCode:
    """The reason to refuse a client: a part of its name, or an address that is another node's now.

    A client that connects anew has to name both the cluster and the node, or neither.
    """
    if (request.cluster_id is None) is not (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    software = (request.client_software_name, request.client_software_version)
    if version >= NAMES_SOFTWARE_FROM and not all(map(SOFTWARE.fullmatch, software)):
        return ErrorCode.INVALID_REQUEST
    meant = (request.cluster_id, request.node_id)
    if request.cluster_id is not None and meant != (node.cluster_id, node.node_id):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def unsupported_version(node: Node) -> bytes:
    """The answer to a request of an unknown version: version 0's body, error 35.

    franz-go opens every connection this way. Source: KIP-511.
    """
    return _encoded(node, 0, NO_EPOCH, ErrorCode.UNSUPPORTED_VERSION)


def _encoded(node: Node, version: int, epoch: int, code: ErrorCode = ErrorCode.NONE) -> bytes:
    """The answer with every API and feature. Clients believe features of a later epoch alone."""
    served = SERVED_BY_REACTORS | served_in_python(node.settings)
    served[ApiKey.PRODUCE] = (PRODUCE_ANNOUNCED_FROM, served[ApiKey.PRODUCE][1])
    finalized = node.image.features
    features = {name: finalized[name] for name in FEATURES if name in finalized}
    response = ApiVersionsResponse(
        code,
        [ApiVersion(key, low, high) for key, (low, high) in sorted(served.items())],
        [
            SupportedFeature(name, OLDEST_LEVELS[name], max(FEATURES[name], level))
            for name, level in features.items()
            if version >= FEATURES_FROM_LEVEL_0 or OLDEST_LEVELS[name] > 0
        ],
        epoch,
        # A feature at level 0 is switched off, and has no entry in Kafka either.
        [FinalizedFeature(name, level, level) for name, level in features.items() if level > 0],
    )
    return encode_response(ApiKey.API_VERSIONS, version, response)


APIS: Final = Area(
    ApiVersions,
    Api(
        ApiKey.API_VERSIONS,
        (0, 5),
        ApiVersionsRequest,
        ApiVersionsResponse,
        for_everybody,
        ApiVersions.answer,
    ),
)
