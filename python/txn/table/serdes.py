"""How keys and values of a table become bytes, and back."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from txn.errors import RejectedError


@dataclass(frozen=True, slots=True)
class Serde:
    """A pair of functions for keys or values.

    `dumps` must give equal bytes for equal keys, because a row is found by the bytes of its key.

    Attributes:
        dumps: Turns a value into bytes; it must not return None, which stands for a deletion.
        loads: Turns the bytes back.
    """

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]

    def to_bytes(self, value: object, what: str) -> bytes:
        """Return a key or a value as bytes. Raises RejectedError: `dumps` returns something else.

        Args:
            value: Goes to `dumps`.
            what: `key` or `value`, for the message.
        """
        data = self.dumps(value)
        if not isinstance(data, bytes):
            raise RejectedError(
                f"the {what} of a table has to be bytes, and its serde returns "
                f"{type(data).__name__}. Give Table({what}=txn.table.TEXT) or another Serde; to "
                "remove a row, use `del`"
            )
        return data


def _same(value: Any) -> Any:
    return value


def _to_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


BYTES: Final = Serde(_same, _same)
"""Keys and values are bytes; the default."""

TEXT: Final = Serde(str.encode, bytes.decode)
"""Texts, as UTF-8."""

JSON: Final = Serde(_to_json, json.loads)
"""Whatever JSON has, with the names of objects in order."""
