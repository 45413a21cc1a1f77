"""OAUTHBEARER: the server's side, a bearer token in one message.

Pure: `validate` checks the token. A client whose token is refused gets the reason in JSON,
answers with one byte, and is refused then.

    GS2_HEADER ^A auth=Bearer TOKEN ^A [KEY=VALUE ^A …] ^A

Sources: RFC 7628, RFC 6750; KIP-255, KIP-768.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from txn.security.mechanisms import NAME_MAX, RefusedError, Success, text_of

MESSAGE_MAX: Final = 64 << 10
"""The most bytes of a message: its token is checked on the control loop, and may wait for keys."""

_MESSAGE: Final = re.compile(
    "(?P<header>[ny],(?:a=(?P<authzid>[^,\1]*))?,)\1(?P<pairs>(?:[A-Za-z]+=[^\1]*\1)+)\1"
)
_BEARER: Final = re.compile(r"Bearer +(?P<token>[A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


class ValidToken(NamedTuple):
    """The facts of a token that was checked."""

    name: str
    expires_ms: int


class InvalidTokenError(Exception):
    """A token is refused. The text says why and has no part of the token.

    Attributes:
        name: The principal that it claims, if it could be read.
        status: The `status` of RFC 7628 that the client gets.
    """

    def __init__(self, reason: str, *, name: str = "", status: str = "invalid_token") -> None:
        super().__init__(reason)
        self.name = name
        self.status = status


class OAuthExchange:
    """One authentication by OAUTHBEARER; a `mechanisms.Exchange`.

    Args:
        validate: Checks a token; raises InvalidTokenError. Its other exceptions pass, and the
            same message may be given again.
    """

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._refused: RefusedError | None = None

    def respond(self, token: bytes) -> bytes | Success:
        """See `Exchange`."""
        if self._refused is not None:
            raise self._refused
        if len(token) > MESSAGE_MAX:
            raise RefusedError("the message is too long")
        message = _MESSAGE.fullmatch(text_of(token))
        if message is None:
            raise RefusedError("the message is not of OAUTHBEARER")
        bearer = _BEARER.fullmatch(_pairs(message["pairs"]).get("auth", ""))
        if bearer is None:
            raise RefusedError("the message has no bearer token")
        try:
            valid = self._validate(bearer["token"])
            if len(valid.name) > NAME_MAX:
                raise InvalidTokenError("the principal's name is too long")
        except InvalidTokenError as error:
            answer = json.dumps({"status": error.status}, separators=(",", ":"))
            self._refused = RefusedError(str(error), name=error.name, message=answer)
            return answer.encode()
        if message["authzid"] not in (None, "", valid.name):
            raise RefusedError(
                "the authorization id is another name than the token's",
                name=valid.name,
                message="Authentication failed: Client requested an authorization id that is "
                "different from the token's principal name",
            )
        return Success(valid.name, b"", valid.expires_ms)


def _pairs(text: str) -> dict[str, str]:
    """The pairs of a message. Raises RefusedError: a key is there twice."""
    entries = [entry.partition("=")[::2] for entry in text.split("\1")[:-1]]
    pairs = dict(entries)
    if len(pairs) < len(entries):
        raise RefusedError("the message has a key twice")
    return pairs
