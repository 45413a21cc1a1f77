"""Requests from anybody: looked through in Rust, then decoded by the protocol library."""

from collections.abc import Callable
from functools import cache
from typing import Any

from kio.index import load_request_schema

from txn import _core
from txn.wire.messages import MalformedRequestError, decode_request
from txn.wire.shapes import steps_of


@cache
def _without_tags(api_key: int, api_version: int) -> Callable[[bytes], bytes]:
    schema = load_request_schema(api_key, api_version)
    return _core.BodyShape(steps_of(schema), schema.__flexible__).without_tags


def decode(api_key: int, api_version: int, body: bytes) -> Any:
    """Decode the body that follows a request's header; pass over what is tagged and unknown.

    Raises:
        MalformedRequestError: the bytes do not follow the schema.
    """
    try:
        body = _without_tags(api_key, api_version)(body)
    except ValueError as error:
        raise MalformedRequestError(
            f"request with api key {api_key} version {api_version}: {error}"
        ) from error
    return decode_request(api_key, api_version, body)
