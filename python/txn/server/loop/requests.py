"""Untrusted request bytes: checked in Rust, then decoded by the protocol library.

Every request has at most `ITEMS_MAX` items in its arrays. An item may have two bytes on the wire
and needs up to 250 bytes in memory while it is answered. A thing that it names may be larger, such
as a topic's partitions, so handlers describe each thing once, however often it is named
(`tests/api/requests/test_repeated_names.py`). Beside its own bytes and these descriptions a request
needs at most some 50 MiB, and a second or two of one processor.
"""

from functools import cache
from typing import Final, TypeVar

from txn.wire.plain_bodies import Parts, parts_of
from txn.wire.requests import view
from txn.wire.schemas import request_schema

ITEMS_MAX: Final = 200_000
"""The limit of partitions in Produce and Fetch, too."""

Request = TypeVar("Request")


class MalformedRequestError(Exception):
    """A request body does not follow its schema; the connection that sent it is closed."""


@cache
def _parts_of_request(kind: type, api_key: int, api_version: int) -> Parts:
    return parts_of(view(kind, request_schema(api_key, api_version)))


def load_request(kind: type, api_key: int, api_version: int) -> None:
    """Load schema and reader of the requests of an API and version. Raises OSError."""
    _parts_of_request(kind, api_key, api_version)


def decode_request(kind: type[Request], api_key: int, api_version: int, body: bytes) -> Request:
    """Decode the body that follows a request's header into the class of the API's requests.

    Tagged fields that the schema does not have are passed over, and every negative length is
    null. Bytes behind the last field are ignored, as Kafka does: librdkafka sends three of them
    when it asks for the metadata of all topics.

    Raises:
        MalformedRequestError: the bytes do not follow the schema, or have more than `ITEMS_MAX`
            items.
    """
    # An error here is not the request's fault.
    plain, read = _parts_of_request(kind, api_key, api_version)  # type: ignore[arg-type]
    try:
        request, _ = read(plain(body, ITEMS_MAX), 0)
    except Exception as error:
        raise MalformedRequestError(
            f"request with api key {api_key} version {api_version}: {error!r}"
        ) from error
    assert isinstance(request, kind)
    return request
