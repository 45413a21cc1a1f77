"""Answers made bit by bit are the bytes of answers made at once."""

from typing import Any

import pytest

from txn.wire.messages import encode_entry, encode_response, join_entries

DESCRIBE_CONFIGS = 32


def result(name: str) -> dict[str, Any]:
    entry = {
        "name": "retention.ms",
        "value": "5",
        "read_only": False,
        "config_source": 1,
        "is_sensitive": False,
        "synonyms": [{"name": "log.retention.ms", "value": "6", "source": 4}],
        "config_type": 5,
        "documentation": None,
    }
    return {
        "error_code": 0,
        "error_message": None,
        "resource_type": 2,
        "resource_name": name,
        "configs": [entry, entry],
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_joined_entries_are_the_response(version: int, count: int) -> None:
    results = [result(f"topic-{number}") for number in range(count)]
    entries = [encode_entry(DESCRIBE_CONFIGS, version, "results", one) for one in results]
    whole = encode_response(DESCRIBE_CONFIGS, version, {"results": results})
    assert join_entries(DESCRIBE_CONFIGS, version, entries) == whole
