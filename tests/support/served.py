"""The versions of each request that txn answers, by its handlers."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

from txn.broker.apis.api import Api
from txn.broker.apis.index import APIS_BY_MODULE
from txn.broker.apis.table import area_of
from txn.server.loop.requests import decode_request
from txn.wire.kio import load_request_schema

Versions = dict[int, tuple[int, int]]
"""API key → first and last version."""

APIS: Final[dict[int, Api[Any]]] = {
    key: api for module in APIS_BY_MODULE for key, api in area_of(module).apis.items()
}
SERVED_IN_PYTHON: Final[Versions] = {key: api.versions for key, api in APIS.items()}


def versions_of(api_key: int) -> list[int]:
    """The versions in which an API is answered."""
    low, high = SERVED_IN_PYTHON[api_key]
    return list(range(low, high + 1))


def decode(api_key: int, api_version: int, body: bytes) -> Any:
    """Decode a request as the broker does."""
    return decode_request(APIS[api_key].request, api_key, api_version, body)


def each_version(served: Versions, *, is_flexible: bool) -> Iterator[ParameterSet]:
    """Parameters of a test: API key and version, of those with tagged fields or those without.

    Named after their request.
    """
    for key, (low, high) in served.items():
        for version in range(low, high + 1):
            schema = load_request_schema(key, version)
            if schema.__flexible__ is is_flexible:
                yield pytest.param(key, version, id=f"{schema.__name__}-{version}")
