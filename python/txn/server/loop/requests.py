"""Untrusted request bytes: checked in Rust, then decoded by the protocol library.

Every request has at most `ITEMS_MAX` items in its arrays. An item may have two bytes on the wire
and needs up to 250 bytes in memory while it is answered. A thing that it names may be larger, such
as a topic's partitions, so handlers describe each thing once, however often it is named
(`tests/api/requests/test_repeated_names.py`). Beside its own bytes and these descriptions a request
needs at most some 50 MiB, and a second or two of one processor.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol, TypeVar

from txn import _core, forks
from txn.wire.kio import entity_reader
from txn.wire.requests import view
from txn.wire.schemas import request_schema
from txn.wire.shapes import steps_of

ITEMS_MAX: Final = 200_000
"""The limit of partitions in Produce and Fetch, too."""

Request = TypeVar("Request")


class MalformedRequestError(Exception):
    """A request body does not follow its schema; the connection that sent it is closed."""


class Plain(Protocol):
    """Makes a body plain, see `_core.BodyShape.plain`."""

    def __call__(self, body: bytes, items_max: int | None = None) -> bytes:
        """Return the body, plain. Raises ValueError."""
        ...


Parts = tuple[Plain, Callable[[bytes, int], tuple[object, int]]]
"""Makes a body plain; reads a request and returns its end."""


def _parts(schema: type) -> Parts:
    is_flexible = bool(getattr(schema, "__flexible__", False))
    with forks.one_step():  # kio makes its readers under locks of the whole process
        return _core.BodyShape(steps_of(schema), is_flexible).plain, entity_reader(schema)


@cache
def _parts_of_schema(schema: type) -> Parts:
    return _parts(schema)


@cache
def _parts_of_request(kind: type, api_key: int, api_version: int) -> Parts:
    return _parts(view(kind, request_schema(api_key, api_version)))


def decode_untrusted(schema: Any, body: bytes) -> Any:
    """Decode a body of an untrusted sender by a schema that knows no tagged fields.

    Raises an exception of any kind: the bytes do not follow the schema.
    """
    plain, read = _parts_of_schema(schema)
    decoded, _ = read(plain(body), 0)
    return decoded


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
