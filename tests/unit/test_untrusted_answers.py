"""Answers of a stranger's broker: the items of their arrays are counted before one is made."""

import struct

import pytest

from txn.wire.api_keys import ApiKey
from txn.wire.plain_bodies import ANSWER_ITEMS_MAX, decode_untrusted
from txn.wire.schemas import response_schema


def listed(groups: int) -> bytes:
    """An answer to ListGroups 1 that lists groups without names."""
    return struct.pack(">ihi", 0, 0, groups) + bytes(4 * groups)


def test_an_answer_with_more_items_than_any_cluster_has_is_refused() -> None:
    """Each two bytes of an answer of 100 MiB became an object of up to 250."""
    schema = response_schema(ApiKey.LIST_GROUPS, 1)
    assert len(decode_untrusted(schema, listed(1_000)).groups) == 1_000  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="items"):
        decode_untrusted(schema, listed(ANSWER_ITEMS_MAX + 1))
