"""`SecuritySettings`: how a client connects to a secured listener, as values without open files.

`client_reader` reads them from a mapping, and `txn.access` opens connections with them. No `repr`
has a secret.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates or a key: in a file, or as text. `setting` is the name that gave it."""

    setting: str
    location: str | None = None
    text: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One token for the life of the client."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that holds the token, read at each authentication."""

    path: str


@dataclass(frozen=True, slots=True)
class TokenCall:
    """A function of the program that returns the token, called at each authentication."""

    call: Callable[[], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """A token without a signature, for brokers under test. Source: RFC 7515, appendix A.5."""

    claims: tuple[tuple[str, str | tuple[str, ...]], ...]
    life_s: int = 3_600


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OIDC: a token endpoint, and the client that asks there. Source: RFC 6749, 4.4."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    trusted: Store | None = None
    """Authorities of the endpoint; None: the system's."""
    encodes_header: bool = False


TokenSource = StaticToken | TokenFile | TokenCall | UnsecuredToken | ClientCredentials


@dataclass(frozen=True, slots=True, repr=False)
class SecuritySettings:
    """The way to a cluster's listener. Its `repr` has the protocol and the mechanism alone."""

    protocol: str = "PLAINTEXT"
    trusted: Store | None = None
    """Authorities; None: the system's."""
    keystore: Store | None = None
    """Certificate and key in one file, in place of the next two."""
    certificate: Store | None = None
    key: Store | None = None
    key_password: str | None = None
    check_hostname: bool = True
    check_certificate: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    token: TokenSource | None = None
    extensions: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        mechanism = "" if self.mechanism is None else f", {self.mechanism}"
        return f"SecuritySettings({self.protocol}{mechanism})"

    @property
    def is_encrypted(self) -> bool:
        """The connection is over TLS."""
        return self.protocol.endswith("SSL")

    @property
    def is_authenticated(self) -> bool:
        """The client logs in by SASL."""
        return self.protocol.startswith("SASL")


PLAIN: Final = SecuritySettings()
"""A plain connection without authentication."""
