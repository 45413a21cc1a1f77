"""A session: the principal, the listener and the client of a connection.

Pure. A client that nothing authenticates is `ANONYMOUS`; Kafka's authorizers know it by this name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from txn.security.login import Login

ANONYMOUS: Final = "User:ANONYMOUS"
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"

CLIENT_NETWORK_BITS: Final = 64
"""The least network that IPv6 gives to one client."""


class Listener(NamedTuple):
    """A socket that accepts connections.

    `address` is the bound (host, port), `advertised` the one in Metadata answers.
    `is_inter_broker`: other brokers connect here, rather than clients.
    """

    name: str
    address: tuple[str, int]
    advertised: tuple[str, int]
    security_protocol: str = PLAINTEXT
    is_inter_broker: bool = False

    @property
    def is_sasl(self) -> bool:
        """Clients authenticate by SASL before anything else."""
        return is_sasl(self.security_protocol)


def never_leaves() -> bool:
    """A client that is not known to have left."""
    return False


class Peer(NamedTuple):
    """The peer of a connection; a connection that was accepted later has a higher number.

    `has_left`: says whether it sends no more; a request of before may still be under way.
    """

    host: str
    connection: int
    has_left: Callable[[], bool] = never_leaves


class Session(NamedTuple):
    """The client of a connection, and how it came.

    `principal` is `ANONYMOUS` until the client has authenticated.
    """

    principal: str
    listener: Listener
    client: Peer

    @property
    def owner(self) -> str:
        """The name by which a client takes turns: its principal, or the address if it has none.

        Of an IPv6 address it is the network of 64 bits, since one client has many addresses.
        """
        return _network(self.client.host) if self.principal == ANONYMOUS else self.principal


def _network(host: str) -> str:
    from ipaddress import IPv6Address, IPv6Network, ip_address  # 2 ms of a start

    try:
        address = ip_address(host)
    except ValueError:  # a request that did not come over a socket
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), CLIENT_NETWORK_BITS), strict=False))


def is_sasl(security_protocol: str) -> bool:
    """Return True if clients of a security protocol authenticate by SASL."""
    return security_protocol in (SASL_PLAINTEXT, SASL_SSL)


def is_tls(security_protocol: str) -> bool:
    """Return True if a security protocol encrypts."""
    return security_protocol in (SSL, SASL_SSL)


class Connection:
    """A connection as Python knows it. The sockets keep it, and bring it with every request.

    `login` is its authentication; None where the listener asks for none. An authentication
    replaces `session`, and nothing else does. Nobody has it once the connection is closed.
    """

    __slots__ = ("__weakref__", "login", "session")

    def __init__(self, session: Session, login: "Login | None" = None) -> None:
        self.session = session
        self.login = login

    @property
    def is_authenticated(self) -> bool:
        """Its client has authenticated, or need not."""
        return self.login is None or self.login.is_reauthentication


def begin(listener: Listener, peer: Peer, principal: str | None = None) -> Session:
    """The session of a connection; `principal`: None if nothing authenticates its client."""
    # Not interned: CPython 3.12 keeps an interned text for ever, and clients choose these.
    return Session(principal or ANONYMOUS, listener, peer)
