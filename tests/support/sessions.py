"""Sessions of clients that no socket knows."""

from txn.security.sessions import PLAINTEXT, Listener, Session, begin

LISTENER = Listener(PLAINTEXT, ("127.0.0.1", 9092), ("127.0.0.1", 9092))


def session(host: str = "127.0.0.1", connection: int = 1) -> Session:
    return begin(LISTENER, host, connection)
