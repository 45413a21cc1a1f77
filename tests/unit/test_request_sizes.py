"""Limits on the items of a request in its arrays, for any request.

One of 8.6 MiB named 4.3 million topics: it took 14 s of the control loop and 1.1 GiB of memory.
"""

import pytest

from support.served import SERVED_IN_PYTHON, decode
from support.worst_requests import arrays_of, with_many
from txn.server.loop import requests
from txn.server.loop.requests import MalformedRequestError

FEW = 50

ARRAYS = [
    pytest.param(key, version, array, id=f"{key}-{version}-{array}")
    for key, (low, high) in SERVED_IN_PYTHON.items()
    for version in range(low, high + 1)
    for array in range(arrays_of(key, version))
]


@pytest.mark.parametrize(("key", "version", "array"), ARRAYS)
def test_an_array_of_too_many_items_is_malformed(
    monkeypatch: pytest.MonkeyPatch, key: int, version: int, array: int
) -> None:
    monkeypatch.setattr(requests, "ITEMS_MAX", FEW)
    with pytest.raises(MalformedRequestError, match="too many items"):
        decode(key, version, with_many(key, version, array, FEW + 1))


@pytest.mark.parametrize(("key", "version", "array"), ARRAYS)
def test_an_array_of_some_items_is_read(key: int, version: int, array: int) -> None:
    decode(key, version, with_many(key, version, array, FEW))


def test_a_request_of_as_many_partitions_as_a_broker_may_be_asked_for_is_read() -> None:
    offset_fetch = 9
    assert decode(offset_fetch, 1, with_many(offset_fetch, 1, 1, 199_999)).topics
    with pytest.raises(MalformedRequestError, match="too many items"):
        decode(offset_fetch, 1, with_many(offset_fetch, 1, 1, 200_000))
