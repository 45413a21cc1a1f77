"""PLAIN: the server's side, `AUTHZID NUL NAME NUL PASSWORD` in one token.

Pure. Without TLS below, anybody between client and server can read the password.

Source: RFC 4616.
"""

import hashlib
import hmac
from collections.abc import Mapping

from txn.security.mechanisms import NAME_MAX, RefusedError, Success, text_of


class PlainExchange:
    """One authentication by PLAIN; a `mechanisms.Exchange`.

    Args:
        passwords: Name → password.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes | Success:
        """See `Exchange`. The texts for clients are Kafka's."""
        parts = text_of(token).split("\0")
        if len(parts) != 3:
            raise RefusedError(
                f"the token has {len(parts)} parts",
                message=f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
            )
        authzid, name, password = parts
        if not name:
            raise RefusedError(
                "the name is empty", message="Authentication failed: username not specified"
            )
        if len(name) > NAME_MAX:
            raise RefusedError("the name is too long")
        if not password:
            raise RefusedError(
                "the password is empty",
                name=name,
                message="Authentication failed: password not specified",
            )
        expected = self._passwords.get(name)
        is_right = _are_equal(password, expected or "")
        if expected is None or not is_right:
            raise RefusedError(
                "there is no such user" if expected is None else "the password is wrong",
                name=name,
                message="Authentication failed: Invalid username or password",
            )
        if authzid not in ("", name):
            raise RefusedError(
                "the authorization id is another name",
                name=name,
                message="Authentication failed: Client requested an authorization id that is "
                "different from username",
            )
        return Success(name)


def _are_equal(one: str, other: str) -> bool:
    """Compare secrets, in a time that shows neither their length nor their common start."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (one, other)]
    return hmac.compare_digest(*digests)
