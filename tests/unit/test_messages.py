"""Answers made bit by bit are the bytes of answers made at once."""

import pytest

from txn.wire.bodies.configs import (
    ConfigSynonym,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, encode_response, join_entries

DESCRIBE_CONFIGS = 32


def result(name: str) -> DescribeConfigsResult:
    synonym = ConfigSynonym("log.retention.ms", "6", 4)
    entry = DescribedConfig("retention.ms", "5", False, 1, False, [synonym], 5, None)
    return DescribeConfigsResult(ErrorCode.NONE, None, 2, name, [entry, entry])


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_joined_entries_are_the_response(version: int, count: int) -> None:
    results = [result(f"topic-{number}") for number in range(count)]
    entries = [encode_entry(DESCRIBE_CONFIGS, version, "results", one) for one in results]
    whole = encode_response(DESCRIBE_CONFIGS, version, DescribeConfigsResponse(results))
    assert join_entries(DESCRIBE_CONFIGS, version, entries) == whole
