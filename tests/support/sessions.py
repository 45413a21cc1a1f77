"""Sessions of clients that no socket knows."""

from collections.abc import Callable

from txn.security.sessions import PLAINTEXT, Listener, Peer, Session, begin, never_leaves

LISTENER = Listener(PLAINTEXT, ("127.0.0.1", 9092), ("127.0.0.1", 9092))


def session(
    host: str = "127.0.0.1", connection: int = 1, has_left: Callable[[], bool] = never_leaves
) -> Session:
    return begin(LISTENER, Peer(host, connection, has_left))
