"""The versions of each request that txn answers, by its handlers."""

from collections.abc import Iterator
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from kio.index import load_request_schema

from txn.broker.apis import (
    configs,
    groups,
    log_dirs,
    metadata,
    offsets,
    txn,
    txn_tools,
)
from txn.broker.apis.table import API_VERSIONS, API_VERSIONS_RANGE

Versions = dict[int, tuple[int, int]]
"""API key → first and last version."""

AREAS = (configs, groups, log_dirs, metadata, offsets, txn_tools, txn)

SERVED_IN_PYTHON: Final[Versions] = {
    API_VERSIONS: API_VERSIONS_RANGE,
    **{key: found for area in AREAS for key, found in area.VERSIONS.items()},
}


def each_version(served: Versions, *, is_flexible: bool) -> Iterator[ParameterSet]:
    """Parameters of a test: API key and version, of those with tagged fields or those without.

    Named after their request.
    """
    for key, (low, high) in served.items():
        for version in range(low, high + 1):
            schema = load_request_schema(key, version)
            if schema.__flexible__ is is_flexible:
                yield pytest.param(key, version, id=f"{schema.__name__}-{version}")
