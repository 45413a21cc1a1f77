"""The authentication of one connection, step by step: handshake, tokens, and both again.

Pure. `Login` decides, and the server carries out its `Step`s. It answers, passes the sockets the
principal, and closes a refused connection after a pause.

| state | SaslHandshake | SaslAuthenticate | ApiVersions |
|---|---|---|---|
| new | begins | closed | answered |
| versions answered | begins | closed | closed |
| between them | refused, 34 | goes on | refused, 34 |
| authenticated, no expiry | 34, goes on being served | 34, goes on being served | answered |
| authenticated for a time | begins again | 34, goes on being served | answered |
| begun again with another mechanism | closed | refused, 58 | closed |

A client begins again once a second at most. Sooner it gets 34, or is closed if its session is over.
A client that asks for versions in a version that is not served may ask again.

A second authentication keeps mechanism and principal; else the connection is refused. The sockets
let no other request through while one is needed (`rust/txn-net/src/authentication.rs`).

Sources: KIP-43 (handshake), KIP-152 (SaslAuthenticate), KIP-368 (expiry); Apache Kafka 4.2,
`SaslServerAuthenticator`. Version 0 of the handshake announces bare tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from txn.security.mechanisms import Exchange, RefusedError, Success
from txn.wire.error_codes import ErrorCode

AGAIN_MIN_MS: Final = 1_000
"""A connection authenticates again once in this time at most."""

ILLEGAL_HANDSHAKE: Final = "SaslHandshake request received after successful authentication"
ILLEGAL_TOKEN: Final = "SaslAuthenticate request received after successful authentication"


class Offer(NamedTuple):
    """A mechanism of a listener.

    `reauth_ms`: the longest session, `connections.max.reauth.ms`; 0: as long as the connection.
    """

    begin: Callable[[], Exchange]
    reauth_ms: int = 0


class Effect(Enum):
    """The change that a step makes to its connection."""

    NONE = "none"
    REQUIRE = "require"
    """Accept only requests of the authentication from it."""
    REQUIRE_RAW = "require raw"
    """The same, and tokens come bare."""
    ADMIT = "admit"
    """Serve it, on behalf of `principal`, for `lifetime_ms`."""
    REFUSE = "refuse"
    """Answer after a pause, and close it."""
    CLOSE = "close"
    """Close it without an answer."""


class Step(NamedTuple):
    """The answer to a request, and its effect.

    Attributes:
        effect: The change of the connection.
        code: Error code of the answer.
        message: Text for the client.
        token: Token for the client.
        principal: The client, if it is admitted.
        lifetime_ms: Its session; None: as long as the connection. Clients get 0 for that.
        is_reauthentication: It had authenticated before.
        reason: Why it is refused, for the log.
        name: The name that it gave, for the log.
    """

    effect: Effect
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    principal: str = ""
    lifetime_ms: int | None = None
    is_reauthentication: bool = False
    reason: str = ""
    name: str = ""


class _State(Enum):
    NEW = "new"
    VERSIONS_TOLD = "versions told"
    BEGUN = "begun"
    OTHER_MECHANISM = "other mechanism"
    DONE = "done"


class Login:
    """The authentication of one connection.

    Args:
        offers: The mechanisms of its listener.
    """

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._offers = offers
        self._state = _State.NEW
        self._exchange: Exchange | None = None
        self._principal: str | None = None
        self._expires_ms: int | None = None
        """End of the session on the monotonic clock; None: as long as the connection."""
        self._begun_again_ms: int | None = None
        self._other = ""
        self.mechanism = ""
        """The mechanism that was begun last."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The names that a handshake is answered with."""
        return list(self._offers)

    @property
    def is_reauthentication(self) -> bool:
        """The client had authenticated before."""
        return self._principal is not None

    def handshake(self, mechanism: str, version: int, *, monotonic_ms: int) -> Step:
        """Begin with a mechanism."""
        match self._state:
            case _State.BEGUN:
                reason = "a handshake came between tokens"
                message = (
                    "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication."
                )
                return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, reason, message)
            case _State.OTHER_MECHANISM:
                return self._close("a handshake came between tokens")
            case _State.DONE if not self._may_begin_again(monotonic_ms):
                if self._expires_ms is not None and monotonic_ms >= self._expires_ms:
                    return self._close("the session is over, and was prolonged a moment ago")
                return Step(Effect.NONE, ErrorCode.ILLEGAL_SASL_STATE, ILLEGAL_HANDSHAKE)
        if mechanism not in self._offers:
            return self._refuse(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the mechanism is not enabled"
            )
        if self._state is _State.DONE:
            self._begun_again_ms = monotonic_ms
            if mechanism != self.mechanism:
                self._state = _State.OTHER_MECHANISM
                self._other = mechanism
                return Step(Effect.REQUIRE, is_reauthentication=True)
        self._state, self.mechanism = _State.BEGUN, mechanism
        self._exchange = self._offers[mechanism].begin()
        effect = Effect.REQUIRE if version >= 1 else Effect.REQUIRE_RAW
        return Step(effect, is_reauthentication=self.is_reauthentication)

    def admits_versions(self, *, is_served: bool) -> bool:
        """Return True if ApiVersions is answered now; before a handshake it is answered once.

        Args:
            is_served: It has a version that is served. A client may try another first.
        """
        if self._state is _State.NEW:
            if is_served:
                self._state = _State.VERSIONS_TOLD
            return True
        return self._state is _State.DONE

    def refuse_versions(self) -> Step:
        """Refuse an ApiVersions that is not admitted."""
        reason = "ApiVersions came out of order"
        if self._state is not _State.BEGUN:
            return self._close(reason)
        message = "Unexpected Kafka request of type API_VERSIONS during SASL authentication."
        return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, reason, message)

    def respond(self, token: bytes, *, now_ms: int, monotonic_ms: int) -> Step:
        """Handle the next token of the client.

        An exception of the exchange that is no refusal passes, and changes nothing.
        """
        match self._state:
            case _State.NEW | _State.VERSIONS_TOLD:
                return self._close("a token came before the handshake")
            case _State.DONE:
                return Step(Effect.NONE, ErrorCode.ILLEGAL_SASL_STATE, ILLEGAL_TOKEN)
            case _State.OTHER_MECHANISM:
                message = (
                    f"SASL mechanism '{self._other}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self.mechanism}'"
                )
                return self._refuse_token("another mechanism than before", message)
        assert self._exchange is not None, "it was begun"
        try:
            answer = self._exchange.respond(token)
        except RefusedError as refused:
            return self._refuse_token(str(refused), refused.message, refused.name)
        if not isinstance(answer, Success):
            return Step(Effect.NONE, token=answer, is_reauthentication=self.is_reauthentication)
        return self._admit(answer, now_ms, monotonic_ms)

    def refuse(self, reason: str) -> Step:
        """Refuse the client for another reason than its token."""
        return self._refuse_token(reason, None)

    def _admit(self, success: Success, now_ms: int, monotonic_ms: int) -> Step:
        principal = f"User:{success.name}"
        if self._principal not in (None, principal):
            message = (
                f"Cannot change principals during re-authentication from "
                f"{_with_point(self._principal)}: {_with_point(principal)}"
            )
            return self._refuse_token("another principal than before", message, success.name)
        lifetime_ms = _lifetime_ms(
            success.expires_ms, self._offers[self.mechanism].reauth_ms, now_ms
        )
        step = Step(
            Effect.ADMIT,
            token=success.answer,
            principal=principal,
            lifetime_ms=lifetime_ms,
            is_reauthentication=self.is_reauthentication,
        )
        self._state, self._exchange, self._principal = _State.DONE, None, principal
        self._expires_ms = None if lifetime_ms is None else monotonic_ms + lifetime_ms
        return step

    def _may_begin_again(self, monotonic_ms: int) -> bool:
        last = self._begun_again_ms
        is_early = last is not None and monotonic_ms - last < AGAIN_MIN_MS
        return self._expires_ms is not None and not is_early

    def _refuse_token(self, reason: str, message: str | None, name: str = "") -> Step:
        # The general text says nothing about the user: a client may not learn that there is one.
        general = (
            f"Authentication failed during {'re-' * self.is_reauthentication}authentication due to "
            f"invalid credentials with SASL mechanism {self.mechanism}"
        )
        return self._refuse(
            ErrorCode.SASL_AUTHENTICATION_FAILED, reason, message or general, name=name
        )

    def _refuse(
        self, code: ErrorCode, reason: str, message: str | None = None, *, name: str = ""
    ) -> Step:
        self._exchange = None
        return Step(
            Effect.REFUSE,
            code,
            message,
            is_reauthentication=self.is_reauthentication,
            reason=reason,
            name=name,
        )

    def _close(self, reason: str) -> Step:
        self._exchange = None
        return Step(Effect.CLOSE, is_reauthentication=self.is_reauthentication, reason=reason)


def _lifetime_ms(expires_ms: int | None, reauth_ms: int, now_ms: int) -> int | None:
    """The session: until the credential expires, and not longer than the broker allows."""
    if expires_ms is None:
        return reauth_ms if reauth_ms > 0 else None
    left_ms = max(0, expires_ms - now_ms)
    return min(left_ms, reauth_ms) if reauth_ms > 0 else left_ms


def _with_point(principal: str | None) -> str:
    """A principal as Kafka's text has it, `User.alice`."""
    return (principal or "").replace(":", ".", 1)
