"""Every API this broker answers: its versions, and who answers it.

ApiVersions tells what is in this table and nothing else.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from txn.broker.apis import (
    configs,
    groups,
    log_dirs,
    metadata,
    offsets,
    txn,
    txn_tools,
)
from txn.broker.host import Answer, Context
from txn.broker.node import FEATURES, Node
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18

SERVED_BY_REACTORS = {PRODUCE: (3, 13), FETCH: (4, 18)}
"""Answered in Rust, without Python."""

PRODUCE_ANNOUNCED_FROM = 0
"""Produce 0-2 are refused but announced: without them librdkafka takes a broker for one
that cannot do later versions (KAFKA-18659)."""

API_VERSIONS_RANGE = (0, 4)

OLDEST_LEVELS = {"metadata.version": 7, "transaction.version": 0}
"""The oldest level of each feature that an Apache Kafka 4 supports."""

FEATURES_FROM_LEVEL_0 = 4
"""The ApiVersions version from which on a supported feature may begin at level 0; clients that
ask in version 3, Java's before 3.8 among them, cannot read it (KAFKA-17011, KAFKA-17492)."""


class Api(NamedTuple):
    """One API: the versions it is answered in, and by whom."""

    versions: tuple[int, int]
    answer: Callable[[Any, Context], Awaitable[Answer]]

    def serves(self, api_version: int) -> bool:
        """Say whether a version is answered."""
        return self.versions[0] <= api_version <= self.versions[1]


def build_table(node: Node) -> Mapping[int, Api]:
    """Bind every handler to the service it belongs to."""
    table: dict[int, Api] = {}
    areas: tuple[tuple[ModuleType, object], ...] = (
        (metadata, node),
        (offsets, node),
        (configs, node),
        (log_dirs, node),
        (txn, node.transactions),
        (txn_tools, node.transactions),
        (groups, node.groups),
    )
    for area, service in areas:
        for key, handler in area.HANDLERS.items():
            assert key not in table, f"api key {key} has two handlers"
            table[key] = Api(area.VERSIONS[key], _bind(handler, service))
    table[API_VERSIONS] = Api(API_VERSIONS_RANGE, _ApiVersions(node, table))
    return table


def _bind(
    handler: Callable[..., Any], service: object
) -> Callable[[Any, Context], Awaitable[Answer]]:
    return lambda request, context: handler(service, request, context)


class _ApiVersions:
    """The ApiVersions answer, made once for each version."""

    def __init__(self, node: Node, table: Mapping[int, Api]) -> None:
        self._node = node
        self._table = table
        self._answers: dict[int, bytes] = {}

    async def __call__(self, request: Any, context: Context) -> bytes:
        version = context.api_version
        if version not in self._answers:
            self._answers[version] = encode_response(
                API_VERSIONS, version, self._content(version, ErrorCode.none)
            )
        return self._answers[version]

    def _content(self, version: int, code: ErrorCode) -> dict[str, Any]:
        finalized = self._node.image.features
        features = {name: finalized[name] for name in FEATURES if name in finalized}
        return {
            "error_code": code,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in sorted(self._ranges().items())
            ],
            "supported_features": [
                {"name": name, "min_version": OLDEST_LEVELS[name], "max_version": level}
                for name, level in features.items()
                if version >= FEATURES_FROM_LEVEL_0 or OLDEST_LEVELS[name] > 0
            ],
            "finalized_features_epoch": 0,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in features.items()
            ],
        }

    def _ranges(self) -> dict[int, tuple[int, int]]:
        served = {key: api.versions for key, api in self._table.items()}
        served |= SERVED_BY_REACTORS
        served[PRODUCE] = (PRODUCE_ANNOUNCED_FROM, served[PRODUCE][1])
        return served


def unsupported_api_versions(table: Mapping[int, Api]) -> bytes:
    """The answer to an ApiVersions request of an unknown version: version 0's body, error 35.

    franz-go opens every connection this way. Source: KIP-511.
    """
    answer = table[API_VERSIONS].answer
    assert isinstance(answer, _ApiVersions)
    content = answer._content(0, ErrorCode.unsupported_version)
    return encode_response(API_VERSIONS, 0, content)
