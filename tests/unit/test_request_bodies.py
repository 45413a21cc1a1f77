"""Bodies of requests: unknown tagged fields are passed over, and no count is believed.

A client lost its connection for one of these fields: kio refuses an unknown one, and KIP-482 says
to pass over it. And 20 bytes ended the broker. kio reserved memory for as many items as an array
announced, and the process was aborted for want of it.
"""

from unittest.mock import Mock

import pytest

from support.served import SERVED_IN_PYTHON, decode, each_version
from support.tagged import (
    NO_TAGS,
    UNKNOWN_TAGS,
    encode,
    encode_plainly,
    example,
    nullable_fields,
    structures_of,
    values_in_order,
)
from txn.server.loop import requests
from txn.server.loop.requests import MalformedRequestError
from txn.wire.kio import load_request_schema

FLEXIBLE = list(each_version(SERVED_IN_PYTHON, is_flexible=True))


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_a_request_with_unknown_tags_reads_as_the_one_without(key: int, version: int) -> None:
    request = example(load_request_schema(key, version), {})
    assert encode(request, NO_TAGS) == encode_plainly(request)
    decoded = decode(key, version, encode(request, UNKNOWN_TAGS) + b"behind")
    assert values_in_order(decoded) == values_in_order(request)


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_structures_within_a_request_are_ours(key: int, version: int) -> None:
    decoded = decode(key, version, encode(example(load_request_schema(key, version), {})))
    for structure in structures_of(decoded):
        assert type(structure).__mro__[1].__module__.startswith("txn.wire.bodies.")


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_nulls_beside_unknown_tags_are_nulls(key: int, version: int) -> None:
    schema = load_request_schema(key, version)
    request = example(schema, dict.fromkeys(nullable_fields(schema)))
    decoded = decode(key, version, encode(request, UNKNOWN_TAGS))
    assert values_in_order(decoded) == values_in_order(request)


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_a_request_with_unknown_tags_cut_anywhere_is_malformed(key: int, version: int) -> None:
    body = encode(example(load_request_schema(key, version), {}), UNKNOWN_TAGS)
    for end in range(len(body)):
        with pytest.raises(MalformedRequestError):
            decode(key, version, body[:end])


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x01\x63\x02x", id="longer than the request"),
        pytest.param(b"\x02\x63\x01x", id="more announced than sent"),
        pytest.param(b"\x01\x63\xff\xff\xff\xff\x0f", id="four gigabytes long"),
        pytest.param(b"\xff\xff\xff\xff\x0f\x63\x00", id="four billion of them"),
        pytest.param(b"\x01\x63\xff\xff\xff\xff\x1f", id="a size of more than 32 bits"),
        pytest.param(b"\x01\xff\xff\xff\xff\xff\x01\x00", id="a tag of six bytes"),
    ],
)
def test_malformed_tagged_fields_are_malformed(tags: bytes) -> None:
    request = example(load_request_schema(26, 5), {})
    with pytest.raises(MalformedRequestError):
        decode(26, 5, encode(request, tags))


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(65, 0, b"\xff\xff\xff\xff\x0f", id="four billion ids"),
        pytest.param(65, 0, b"\xff\xff\xff\xff\x0f" + UNKNOWN_TAGS, id="and unknown tags"),
        pytest.param(3, 0, b"\x7f\xff\xff\xff", id="two billion topics"),
        pytest.param(3, 0, b"\0\0\0\2" + b"\0\1x", id="one topic more than there is"),
        pytest.param(3, 0, b"\xff\xff\xff\xfe", id="minus two topics"),
    ],
)
def test_the_count_of_an_array_is_not_believed(key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        decode(key, version, body)


@pytest.mark.parametrize("length", [-1, -2, -(2**15)])
def test_every_negative_length_of_a_string_is_null(length: int) -> None:
    """Only -1 was, to kio; a client that sent another lost its connection."""
    body = length.to_bytes(2, signed=True) + b"\0\0\0\1"
    assert decode(22, 1, body).transactional_id is None
    with pytest.raises(MalformedRequestError):
        decode(10, 0, body)  # FindCoordinator: the key may not be null


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_every_negative_count_of_an_array_is_null(length: int) -> None:
    count = length.to_bytes(4, signed=True)
    assert decode(9, 2, b"\0\1g" + count).topics is None
    with pytest.raises(MalformedRequestError):
        decode(9, 1, b"\0\1g" + count)


@pytest.mark.parametrize("length", [b"\0", b"\x80\0", b"\xff\xff\xff\xff\x0f"])
def test_every_negative_compact_length_is_null(length: bytes) -> None:
    assert decode(22, 2, length + b"\0\0\0\1\0").transactional_id is None
    assert decode(9, 6, b"\2g" + length + b"\0").topics is None


def test_a_string_has_32767_bytes_at_most() -> None:
    longest = b"\x80\x80\x02" + b"x" * 32_767 + b"\0\0\0\1\0"
    assert len(decode(22, 2, longest).transactional_id) == 32_767
    with pytest.raises(MalformedRequestError):
        decode(22, 2, b"\x81\x80\x02x" + longest[3:])


def test_what_the_broker_lacks_is_not_blamed_on_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a file descriptor to import a schema by, a sound request was told malformed."""
    monkeypatch.setattr(requests, "request_schema", Mock(side_effect=OSError("too many files")))
    requests._parts_of_request.cache_clear()
    with pytest.raises(OSError, match="too many files"):
        decode(3, 1, b"")


LEGACY = list(each_version(SERVED_IN_PYTHON, is_flexible=False))


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(("key", "version"), LEGACY)
def test_a_request_of_an_old_version_is_read_to_its_end(
    key: int, version: int, nulls: bool
) -> None:
    schema = load_request_schema(key, version)
    request = example(schema, dict.fromkeys(nullable_fields(schema)) if nulls else {})
    body = encode_plainly(request)
    assert values_in_order(decode(key, version, body + b"behind")) == values_in_order(request)
    for end in range(len(body)):
        with pytest.raises(MalformedRequestError):
            decode(key, version, body[:end])
