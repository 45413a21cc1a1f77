"""The last client of each transactional id: for the operator whose readers wait for it.

It is kept only in memory, so it is known since the broker was started. The number of ids is
bounded, so a broker with very many ids is not affected. Requests to the coordinator are noted here;
the records that clients produce are not. The connection of the request says whether its client has
closed it; nothing is noted when a connection ends.

Ids are of any length, so their characters are bounded too. Nothing is interned: CPython 3.12 keeps
an interned text for ever.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from txn.broker.host import Context

IDS_MAX: Final = 10_000
"""Number of ids that are remembered, the latest ones; some 400 bytes each."""

CHARACTERS_MAX: Final = 2_000_000
"""Number of characters of all remembered ids together."""

CLIENT_ID_SHOWN: Final = 255
"""Number of characters that are remembered of a client id."""


class LastClient(NamedTuple):
    """A client that the coordinator served: its id, its address, the time and the request.

    `is_connected` is False once the connection of that request is closed, by either side.
    """

    client_id: str
    client_host: str
    seen_ms: int
    request: str
    is_connected: bool


class LastClients:
    """The client that last acted for each transactional id."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._by_id: dict[str, tuple[str, str, int, str, Callable[[], bool]]] = {}
        """The fields of each `LastClient`, the last as a question to its connection: every request
        makes an entry, and few are read."""
        self._characters = 0

    def note(self, transactional_id: str, context: Context, request: str) -> None:
        """Remember that a request was served, one that was not refused."""
        by_id = self._by_id
        self.forget(transactional_id)  # the newest stands last
        self._characters += len(transactional_id)
        while len(by_id) >= IDS_MAX or (by_id and self._characters > CHARACTERS_MAX):
            self.forget(next(iter(by_id)))
        client_id = context.client_id[:CLIENT_ID_SHOWN]
        peer = context.session.client
        by_id[transactional_id] = (client_id, peer.host, self._now_ms(), request, peer.has_left)

    def get(self, transactional_id: str) -> LastClient | None:
        """The last client; None if there was none since the start."""
        last = self._by_id.get(transactional_id)
        if last is None:
            return None
        client_id, host, seen_ms, request, has_left = last
        return LastClient(client_id, host, seen_ms, request, not has_left())

    def forget(self, transactional_id: str) -> None:
        """Drop the entry of an id that expired."""
        if self._by_id.pop(transactional_id, None) is not None:
            self._characters -= len(transactional_id)
