"""ApiVersions: the APIs, their versions and the features that this broker announces.

Sources: KIP-35, KIP-511, KIP-584.
"""

from collections.abc import Mapping
from typing import Final

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

__all__ = ["ApiVersions", "ApiVersionsRequest", "ApiVersionsResponse"]

PRODUCE_ANNOUNCED_FROM: Final = 0
"""Produce 0-2 are refused but announced: without them librdkafka takes a broker for one
that cannot do later versions (KAFKA-18659)."""

OLDEST_LEVELS: Final = {"metadata.version": 7, "transaction.version": 0}
"""The oldest level of each feature that an Apache Kafka 4 supports."""

FEATURES_FROM_LEVEL_0: Final = 4
"""The first ApiVersions version in which a supported feature may begin at level 0. Clients that
ask in version 3, as Java's before 3.8, cannot read it (KAFKA-17011, KAFKA-17492)."""


class ApiVersions:
    """The ApiVersions answer, made once for each version.

    Args:
        node: Has the finalized features.
        ranges: First and last version of each API that is answered.
    """

    def __init__(self, node: Node, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._node = node
        _, last = ranges[ApiKey.PRODUCE]
        self._ranges = {**ranges, ApiKey.PRODUCE: (PRODUCE_ANNOUNCED_FROM, last)}
        self._answers: dict[int, bytes] = {}

    async def __call__(self, request: object, context: Context) -> bytes:
        """Answer a request."""
        version = context.api_version
        if version not in self._answers:
            self._answers[version] = self._encoded(version, ErrorCode.NONE)
        return self._answers[version]

    def unsupported(self) -> bytes:
        """The answer to a request of an unknown version: version 0's body, error 35.

        franz-go opens every connection this way. Source: KIP-511.
        """
        return self._encoded(0, ErrorCode.UNSUPPORTED_VERSION)

    def _encoded(self, version: int, code: ErrorCode) -> bytes:
        finalized = self._node.image.features
        features = {name: finalized[name] for name in FEATURES if name in finalized}
        response = ApiVersionsResponse(
            code,
            [ApiVersion(key, low, high) for key, (low, high) in sorted(self._ranges.items())],
            [
                SupportedFeature(name, OLDEST_LEVELS[name], level)
                for name, level in features.items()
                if version >= FEATURES_FROM_LEVEL_0 or OLDEST_LEVELS[name] > 0
            ],
            0,
            [FinalizedFeature(name, level, level) for name, level in features.items()],
        )
        return encode_response(ApiKey.API_VERSIONS, version, response)
