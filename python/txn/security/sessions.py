"""A session: the principal, the listener and the client of a connection.

Pure. A client that nothing authenticates is `ANONYMOUS`; Kafka's authorizers know it by this name.
"""

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"


class Listener(NamedTuple):
    """A socket that accepts connections.

    `address` is the bound (host, port), `advertised` the one that Metadata tells clients.
    `is_inter_broker`: other brokers connect here, rather than clients.
    """

    name: str
    address: tuple[str, int]
    advertised: tuple[str, int]
    security_protocol: str = PLAINTEXT
    is_inter_broker: bool = False


class Peer(NamedTuple):
    """The peer of a connection; a connection that was accepted later has a higher number."""

    host: str
    connection: int


class Session(NamedTuple):
    """The facts about a connection that hold before its first request."""

    principal: str
    listener: Listener
    client: Peer


def anonymous(listener: Listener, host: str, connection: int) -> Session:
    """The session of a connection that nothing authenticates."""
    return Session(ANONYMOUS, listener, Peer(host, connection))
