"""Headers of records that confluent-kafka has read, safe where a name is no UTF-8.

For such a name `Message.headers` raises a SystemError once, and then returns pairs with a NULL in
the name's place. A call that Python has specialised returns them the first time. Any use of the
NULL ends the process; only the garbage collector skips it.
"""

import gc
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Message

Pair = tuple[str, str | bytes | None]

_headers: Final[Callable[[Message], Any]] = methodcaller("headers")
"""Calls from C, where Python looks for an exception beside a result; its warm bytecode does not."""


def headers_of(message: Message) -> tuple[list[Pair], int]:
    """Return the headers of a record, and the number of those left out for their names.

    The record itself is without them from then on, so its `headers` are safe too.
    """
    try:
        headers = _headers(message)
    except SystemError:
        headers = _headers(message)
    if isinstance(headers, dict):  # its producer gave them so
        return list(headers.items()), 0
    if not headers or len(gc.get_referents(*headers)) == 2 * len(headers):
        return headers or [], 0
    sound = [pair for pair in headers if len(gc.get_referents(pair)) == 2]
    message.set_headers(sound)
    return sound, len(headers) - len(sound)
