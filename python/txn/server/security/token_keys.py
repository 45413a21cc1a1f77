"""The keys of a token issuer, and the check of a bearer token by them.

The keys are a JSON Web Key Set in a file, or behind an HTTPS URL. A worker thread fetches them when
the first client needs them, when they are old, and for a token with an unknown key. That last fetch
occurs at most once in `sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`. A fetch that fails
leaves the previous keys in use. PyJWT, of the extra `oauth`, checks signatures.

Deviations from Apache Kafka 4.2: without a key set Kafka accepts unsigned tokens; here the start
is refused. A key of a symmetric algorithm is never used, nor a URL of plain HTTP except on
loopback.

Sources: RFC 7515, RFC 7517, RFC 7519; KIP-768.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from txn.clock import monotonic_ms
from txn.config import BrokerSettings, split_list
from txn.errors import ConfigError
from txn.logs import rare_log
from txn.security.mechanisms import OAUTHBEARER
from txn.security.oauth import InvalidTokenError, ValidToken

PREFIX: Final = "sasl.oauthbearer."

ALGORITHMS: Final = frozenset("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split())
"""Asymmetric all: with a symmetric one, the public key of the issuer would sign tokens."""

ONLY_SIGNATURE: Final[Any] = {
    f"verify_{part}": part == "signature"
    for part in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}
"""PyJWT checks the signature, `check_claims` the claims, by the broker's clock."""

SET_BYTES_MAX: Final = 1 << 20
FETCH_TIMEOUT_S: Final = 10.0
"""The wait for each piece of a key set behind a URL."""

FETCH_SECONDS_MAX: Final = 30.0
"""The most that the whole answer takes, for one that comes byte by byte."""

TIME_MAX_S: Final = 1 << 40
"""Later than any clock goes; a number beyond is no time."""

TIMES: Final = ("exp", "iat", "nbf")
REQUIRED_TIMES: Final = ("exp", "iat")

BLANKS: Final = "".join(map(chr, range(0x21)))
"""Stripped from a subject, as by `trim` in Java."""

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class KeysWantedError(Exception):
    """A token cannot be checked before its issuer's keys are fetched again."""

    def __init__(self, keys: "TokenKeys") -> None:
        super().__init__("the issuer's keys have to be fetched")
        self.keys = keys


class TokenRules(NamedTuple):
    """The claims that a token has to have.

    `audiences`: one of them has to be in it; none: it may be for nobody in particular; None: for
    anybody. `issuer`: None for any.
    """

    audiences: tuple[str, ...] | None = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    sub_claim: str = "sub"
    scope_claim: str = "scope"


class TokenKeys:
    """Checks tokens by the keys of their issuer.

    Args:
        rules: For their claims.
        fetch: Reads the key set; called on a worker thread. Raises OSError or ValueError.
        now_ms: The time of day.
        refresh_ms: Age of the keys at which they are fetched again.
        pause_ms: Least time between two fetches for the sake of a client.
    """

    def __init__(
        self,
        rules: TokenRules,
        fetch: Callable[[], bytes],
        now_ms: Callable[[], int],
        *,
        refresh_ms: int,
        pause_ms: int,
    ) -> None:
        self._rules = rules
        self._fetch = fetch
        self._now_ms = now_ms
        self._refresh_ms = refresh_ms
        self._pause_ms = pause_ms
        self._keys: dict[str | None, dict[str, Any]] = {}
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._fetching: asyncio.Future[None] | None = None

    def validate(self, token: str) -> ValidToken:
        """Check a token.

        Raises:
            InvalidTokenError: it is not to be trusted.
            KeysWantedError: try it again once `refresh` has returned.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise InvalidTokenError(f"it cannot be read: {type(error).__name__}") from None
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidTokenError("its algorithm is none of an issuer with a public key")
        key = self._key(header.get("kid"))
        if key.get("alg") not in (None, algorithm) or key.get("kty") == "oct":
            raise InvalidTokenError("its algorithm is not that of its key")
        try:
            claims = jwt.decode(
                token, jwt.PyJWK(key, algorithm), algorithms=[algorithm], options=ONLY_SIGNATURE
            )
        except jwt.PyJWTError as error:
            raise InvalidTokenError(f"its signature: {type(error).__name__}") from None
        return check_claims(claims, self._rules, self._now_ms())

    async def refresh(self) -> None:
        """Fetch the keys, unless it was tried a moment ago; failures are logged."""
        if self._fetching is None:
            if not self._is_due(self._pause_ms, self._tried_ms):
                return
            self._begin()
        assert self._fetching is not None, "it was begun"
        await asyncio.shield(self._fetching)

    def _key(self, kid: object) -> dict[str, Any]:
        """The key of a token. Raises as `validate`."""
        may_begin = self._fetching is None and self._is_due(self._pause_ms, self._tried_ms)
        is_old = self._fetched_ms is not None and self._is_due(self._refresh_ms, self._fetched_ms)
        if is_old and may_begin:
            self._begin()  # the old ones do meanwhile
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if isinstance(kid, str) and kid in self._keys:
            return self._keys[kid]
        if self._fetching is not None or self._is_due(self._pause_ms, self._tried_ms):
            raise KeysWantedError(self)
        raise InvalidTokenError("its key is none of its issuer's")

    def _is_due(self, after_ms: int, last_ms: int | None) -> bool:
        return last_ms is None or monotonic_ms() - last_ms >= after_ms

    def _begin(self) -> None:
        self._tried_ms = monotonic_ms()
        loop = asyncio.get_running_loop()
        fetched = loop.run_in_executor(None, lambda: read_key_set(self._fetch()))
        self._fetching = loop.create_future()
        fetched.add_done_callback(self._end)

    def _end(self, fetched: "asyncio.Future[dict[str | None, dict[str, Any]]]") -> None:
        fetching, self._fetching = self._fetching, None
        if fetched.cancelled():
            pass
        elif (error := fetched.exception()) is not None:
            rare_log.warning("oauth.keys_not_fetched", reason=error)
        else:
            self._keys, self._fetched_ms = fetched.result(), monotonic_ms()
        if fetching is not None and not fetching.done():
            fetching.set_result(None)


def read_key_set(data: bytes) -> dict[str | None, dict[str, Any]]:
    """Read a JSON Web Key Set: keys that verify signatures, by their ids. Raises ValueError."""
    decoded = json.loads(data)
    keys = decoded.get("keys") if isinstance(decoded, dict) else None
    if not isinstance(keys, list):
        raise ValueError("it is no JSON Web Key Set")
    return {
        key.get("kid"): key
        for key in keys
        if isinstance(key, dict)
        and isinstance(key.get("kid"), str | None)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    }


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> ValidToken:
    """Check the claims of a token whose signature is right. Raises InvalidTokenError."""
    named = claims.get(rules.sub_claim)
    name = named.strip(BLANKS) if isinstance(named, str) else ""
    if any("\ud800" <= character <= "\udfff" for character in name):
        # JSON can write one half of a character by \u; no log and no record could hold the name.
        raise InvalidTokenError(f"its claim {rules.sub_claim} is no text")
    if not name:
        raise InvalidTokenError(f"its claim {rules.sub_claim} names nobody")

    def refuse(reason: str) -> InvalidTokenError:
        return InvalidTokenError(reason, name=name)

    times = {claim: _time_ms(claims[claim]) for claim in TIMES if claim in claims}
    for claim in REQUIRED_TIMES:
        if times.setdefault(claim, None) is None:
            raise refuse(f"its claim {claim} is no time")
    expires_ms, begins_ms = times["exp"], times.get("nbf", 0)
    if begins_ms is None:
        raise refuse("its claim nbf is no time")
    assert expires_ms is not None, "it is required"
    skew_ms = rules.clock_skew_s * 1000
    if now_ms >= expires_ms + skew_ms:
        raise refuse("it has expired")
    if now_ms < begins_ms - skew_ms:
        raise refuse("it does not count yet")
    if expires_ms < max(begins_ms, times["iat"] or 0):
        raise refuse("it expires before it begins")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise refuse("its issuer is another")
    audience = claims.get("aud", [])
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise refuse("its claim aud is no list of audiences")
    expected = rules.audiences
    if expected is not None and (audiences or expected) and not set(audiences) & set(expected):
        raise refuse("it is for another audience")
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str | list):
        raise refuse(f"its claim {rules.scope_claim} is no scope")
    return ValidToken(name, expires_ms)


def _time_ms(value: object) -> int | None:
    """The milliseconds of a claim that is a time; None if it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < TIME_MAX_S:
        return int(value * 1000)
    return None


def token_keys(settings: BrokerSettings, listener: str, now_ms: Callable[[], int]) -> TokenKeys:
    """The keys and rules of a listener. Raises ConfigError."""

    def setting(name: str) -> Any:
        return settings.of_listener(listener, f"{PREFIX}{name}", OAUTHBEARER)

    url = setting("jwks.endpoint.url")
    if url is None:
        raise ConfigError(
            f"listener {listener} offers OAUTHBEARER, and broker property {PREFIX}"
            "jwks.endpoint.url is not given: tokens that nobody signed are not taken here",
            property=f"{PREFIX}jwks.endpoint.url",
        )
    try:
        for module in ("jwt", "cryptography"):
            import_module(module)
    except ImportError:
        raise ConfigError(
            f"listener {listener} offers OAUTHBEARER, which needs PyJWT and cryptography: "
            "run pip install '.[oauth]' in txn's repository",
            property="sasl.enabled.mechanisms",
        ) from None
    audiences = tuple(split_list(setting("expected.audience") or ""))
    rules = TokenRules(
        None if setting("allow.unverified.audience") else audiences,
        None if setting("allow.unverified.issuer") else setting("expected.issuer"),
        setting("clock.skew.seconds"),
        setting("sub.claim.name"),
        setting("scope.claim.name"),
    )
    return TokenKeys(
        rules,
        _reader(url),
        now_ms,
        refresh_ms=setting("jwks.endpoint.refresh.ms"),
        pause_ms=setting("jwks.endpoint.retry.backoff.max.ms"),
    )


def _reader(url: str) -> Callable[[], bytes]:
    """A function that reads a key set. Raises ConfigError: the URL is not to be trusted."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.hostname in (None, "localhost"):
        from urllib.request import url2pathname

        path = url2pathname(parts.path)
        return lambda: _file(path)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        return lambda: _page(url)
    raise ConfigError(
        f"broker property {PREFIX}jwks.endpoint.url has another scheme than https and file: "
        "keys that anybody on the way can change prove nothing",
        property=f"{PREFIX}jwks.endpoint.url",
    )


def _file(path: str) -> bytes:
    with open(path, "rb") as source:
        return _bounded(source.read(SET_BYTES_MAX + 1))


def _page(url: str) -> bytes:
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    from txn.timed_http import timed_handlers

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *args: object) -> None:
            return None  # to where the URL does not say

    timed = timed_handlers(time.monotonic() + FETCH_SECONDS_MAX)
    opener = build_opener(NoRedirects, ProxyHandler(), *timed)
    with opener.open(url, timeout=FETCH_TIMEOUT_S) as page:
        return _bounded(page.read(SET_BYTES_MAX + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > SET_BYTES_MAX:
        raise ValueError(f"it has more than {SET_BYTES_MAX} bytes")
    return data
