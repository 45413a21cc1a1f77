"""Kafka's request and response bodies as bytes, by the schemas of kio.

Requests from others are decoded by `txn.server.loop.requests`, their answers by `plain_bodies`.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Final, get_args, get_type_hints

from txn.wire.api_keys import ApiKey
from txn.wire.encoding import (
    Body,
    Values,
    body_encoder,
    encode,
    encode_body,
    structure_writer,
)
from txn.wire.schemas import request_schema, response_schema
from txn.wire.varint import unsigned_varint

THROTTLE_MS_MAX: Final = 2**31 - 1


def encode_request(api_key: int, api_version: int, values: Values) -> bytes:
    """Encode a request body; fields the version does not have are left out."""
    return encode(request_schema(api_key, api_version), values)


@cache
def is_flexible(api_key: int, api_version: int) -> bool:
    """Return True if the response carries the flexible (tagged) header."""
    return bool(response_schema(api_key, api_version).__flexible__)  # type: ignore[attr-defined]


@cache
def has_flexible_header(api_key: int, api_version: int) -> bool:
    """Return True if the header of a response has tagged fields. Source: KIP-511.

    That of ApiVersions never has: its client may not know yet which versions are flexible.
    """
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version)


def load_response(kind: type, api_key: int, api_version: int) -> None:
    """Load schema and writer of the responses of an API and version. Raises OSError."""
    is_flexible(api_key, api_version)
    structure_writer(response_schema(api_key, api_version), kind)


def encode_response(api_key: int, api_version: int, response: Body) -> bytes:
    """Encode a response body; fields the version does not have are left out."""
    return _response_encoder(api_key, api_version, type(response))(response)


@cache
def _response_encoder(api_key: int, api_version: int, kind: type) -> Callable[[Body], bytes]:
    return body_encoder(response_schema(api_key, api_version), kind)


@cache
def _entry_schema(api_key: int, api_version: int, name: str) -> type:
    (entry, _) = get_args(get_type_hints(response_schema(api_key, api_version))[name])
    assert isinstance(entry, type), f"{name} is not a list of structures"
    return entry


def encode_entry(api_key: int, api_version: int, name: str, entry: Body) -> bytes:
    """Encode one entry of a response's list, so that long answers can be made bit by bit."""
    return encode_body(_entry_schema(api_key, api_version, name), entry)


@cache
def _begins_with_throttle_time(api_key: int, api_version: int) -> bool:
    first = next(iter(fields(response_schema(api_key, api_version))), None)
    return first is not None and first.name == "throttle_time"


def with_throttle_time(api_key: int, api_version: int, body: bytes, throttle_ms: int) -> bytes:
    """The body of a response with another throttle time.

    Only responses that begin with it have it: that is, all but ApiVersions and old versions.
    """
    if not _begins_with_throttle_time(api_key, api_version):
        return body
    return min(throttle_ms, THROTTLE_MS_MAX).to_bytes(4, "big") + body[4:]


def join_entries(api_key: int, api_version: int, entries: Sequence[bytes]) -> bytes:
    """Make the body of a response that is a throttle time and one list."""
    no_throttle = bytes(4)
    if not is_flexible(api_key, api_version):
        return no_throttle + len(entries).to_bytes(4, "big") + b"".join(entries)
    no_tags = b"\0"
    return no_throttle + unsigned_varint(len(entries) + 1) + b"".join(entries) + no_tags
