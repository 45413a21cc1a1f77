"""Every API this broker answers: its versions and its handler.

ApiVersions announces the entries of this table and no others.
"""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import NamedTuple

from txn.broker.apis import (
    configs,
    groups,
    log_dirs,
    metadata,
    offsets,
    txn,
    txn_tools,
)
from txn.broker.apis.api import Api, Reply, Service
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

SERVED_BY_REACTORS: dict[int, tuple[int, int]] = {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 18)}
"""Answered in Rust, without Python."""

PRODUCE_ANNOUNCED_FROM = 0
"""Produce 0-2 are refused but announced: without them librdkafka takes a broker for one
that cannot do later versions (KAFKA-18659)."""

API_VERSIONS_RANGE = (0, 4)

APIS_OF_NODE = (*metadata.APIS, *offsets.APIS, *configs.APIS, *log_dirs.APIS)
APIS_OF_TRANSACTIONS = (*txn.APIS, *txn_tools.APIS)

OLDEST_LEVELS = {"metadata.version": 7, "transaction.version": 0}
"""The oldest level of each feature that an Apache Kafka 4 supports."""

FEATURES_FROM_LEVEL_0 = 4
"""The first ApiVersions version in which a supported feature may begin at level 0. Clients that
ask in version 3, as Java's before 3.8, cannot read it (KAFKA-17011, KAFKA-17492)."""


class BoundApi(NamedTuple):
    """One API with the service that answers it."""

    versions: tuple[int, int]
    request: type
    response: type
    answer: Callable[[object, Context], Coroutine[object, None, Reply]]

    def serves(self, api_version: int) -> bool:
        """Say whether a version is answered."""
        return self.versions[0] <= api_version <= self.versions[1]


def build_table(node: Node) -> Mapping[int, BoundApi]:
    """Bind every API to the service that answers it."""
    apis = [
        *(_bound(api, node) for api in APIS_OF_NODE),
        *(_bound(api, node.transactions) for api in APIS_OF_TRANSACTIONS),
        *(_bound(api, node.groups) for api in groups.APIS),
    ]
    table = dict(apis)
    assert len(table) == len(apis), "an api key has two handlers"
    versions = _ApiVersions(node, table)
    table[ApiKey.API_VERSIONS] = BoundApi(
        API_VERSIONS_RANGE, ApiVersionsRequest, ApiVersionsResponse, versions
    )
    return table


def _bound(api: Api[Service], service: Service) -> tuple[int, BoundApi]:
    answer = partial(api.answer, service)
    return api.key, BoundApi(api.versions, api.request, api.response, answer)


class _ApiVersions:
    """The ApiVersions answer, made once for each version."""

    def __init__(self, node: Node, table: Mapping[int, BoundApi]) -> None:
        self._node = node
        self._table = table
        self._answers: dict[int, bytes] = {}

    async def __call__(self, request: object, context: Context) -> bytes:
        version = context.api_version
        if version not in self._answers:
            response = self.response(version, ErrorCode.NONE)
            self._answers[version] = encode_response(ApiKey.API_VERSIONS, version, response)
        return self._answers[version]

    def response(self, version: int, code: ErrorCode) -> ApiVersionsResponse:
        finalized = self._node.image.features
        features = {name: finalized[name] for name in FEATURES if name in finalized}
        return ApiVersionsResponse(
            code,
            [ApiVersion(key, low, high) for key, (low, high) in sorted(self._ranges().items())],
            [
                SupportedFeature(name, OLDEST_LEVELS[name], level)
                for name, level in features.items()
                if version >= FEATURES_FROM_LEVEL_0 or OLDEST_LEVELS[name] > 0
            ],
            0,
            [FinalizedFeature(name, level, level) for name, level in features.items()],
        )

    def _ranges(self) -> dict[int, tuple[int, int]]:
        served = {key: api.versions for key, api in self._table.items()}
        served |= SERVED_BY_REACTORS
        served[ApiKey.PRODUCE] = (PRODUCE_ANNOUNCED_FROM, served[ApiKey.PRODUCE][1])
        return served


def unsupported_api_versions(table: Mapping[int, BoundApi]) -> bytes:
    """The answer to an ApiVersions request of an unknown version: version 0's body, error 35.

    franz-go opens every connection this way. Source: KIP-511.
    """
    answer = table[ApiKey.API_VERSIONS].answer
    assert isinstance(answer, _ApiVersions)
    return encode_response(
        ApiKey.API_VERSIONS, 0, answer.response(0, ErrorCode.UNSUPPORTED_VERSION)
    )
