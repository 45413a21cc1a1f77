"""Bodies of untrusted senders: checked and made plain in Rust, then decoded by kio.

Pure: bytes go in, values come out. Requests to a broker are decoded by `txn.server.loop.requests`,
which has a bound of its own for their items.
"""

from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

from txn import _core, forks
from txn.wire.kio import entity_reader
from txn.wire.shapes import steps_of

ANSWER_ITEMS_MAX: Final = 4_000_000
"""The most items in the arrays of an answer. The metadata of 200,000 partitions with five replicas
has some 2,200,000; each may need 250 bytes in memory, and two bytes on the wire."""


class Plain(Protocol):
    """Makes a body plain, see `_core.BodyShape.plain`."""

    def __call__(self, body: bytes, items_max: int | None = None) -> bytes:
        """Return the body, plain. Raises ValueError."""
        ...


Parts = tuple[Plain, Callable[[bytes, int], tuple[object, int]]]
"""Makes a body plain; reads it and returns its end."""


def parts_of(schema: type) -> Parts:
    """Make the two parts of a decoder of a schema. Cost: some 100 µs; callers keep them."""
    is_flexible = bool(getattr(schema, "__flexible__", False))
    with forks.one_step():  # kio makes its readers under locks of the whole process
        return _core.BodyShape(steps_of(schema), is_flexible).plain, entity_reader(schema)


@cache
def _parts_of_schema(schema: type) -> Parts:
    return parts_of(schema)


def decode_untrusted(schema: type, body: bytes) -> object:
    """Decode a body of an untrusted sender by a schema that knows no tagged fields.

    Raises an exception of any kind: the bytes do not follow the schema, or their arrays have more
    than `ANSWER_ITEMS_MAX` items.
    """
    plain, read = _parts_of_schema(schema)
    decoded, _ = read(plain(body, ANSWER_ITEMS_MAX), 0)
    return decoded
