"""The server's side of a SASL mechanism: tokens that end in a principal or a refusal.

Pure. `scram`, `plain` and `oauth` have the mechanisms. An exchange is made for one authentication
and never used again. Every token comes from a client that is not authenticated yet.

Source: RFC 4422; KIP-12, KIP-43.
"""

from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms of this broker; GSSAPI is none of them."""

NAME_MAX: Final = 1024
"""The most characters of a client's name."""


class Success(NamedTuple):
    """The client has proven its name.

    Attributes:
        name: Its name, without the type of the principal.
        answer: The last token, for the client.
        expires_ms: Time of day at which its credential expires; None: never.
    """

    name: str
    answer: bytes = b""
    expires_ms: int | None = None


class RefusedError(Exception):
    """The client is refused. The text says why, for the log, and has no secret.

    Attributes:
        name: The name that the client gave, if it came so far.
        message: The text for the client; None: Kafka's general one, without a reason.
    """

    def __init__(self, reason: str, *, name: str = "", message: str | None = None) -> None:
        super().__init__(reason)
        self.name = name
        self.message = message


class Exchange(Protocol):
    """One authentication of one client."""

    def respond(self, token: bytes) -> bytes | Success:
        """Handle the client's next token; return the next challenge, or the end.

        Raises:
            RefusedError: the client is refused, and the exchange is over.
        """
        ...


def text_of(token: bytes) -> str:
    """A token of a mechanism whose tokens are text. Raises RefusedError."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise RefusedError("the token is no UTF-8") from None
