"""Tokens for OAUTHBEARER, asked for at each authentication.

| source | the token is |
|---|---|
| `StaticToken` | the same for ever |
| `TokenFile` | read again |
| `TokenCall` | returned by the program's function |
| `UnsecuredToken` | made here, without a signature |
| `ClientCredentials` | fetched from an OIDC endpoint, and kept for four fifths of its life |

An error has one sentence and no secret: no token, and no text of an endpoint or a function, which
may repeat one.

Sources: RFC 6749 (4.4, 5.2), RFC 7628; KIP-255, KIP-768.
"""

import base64
import json
import math
import re
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from txn.access.stores import OpenKeystore, trusted_pem
from txn.errors import ConfigError, RejectedError, RetriableError, TxnError
from txn.security.client import (
    ClientCredentials,
    StaticToken,
    TokenCall,
    TokenFile,
    TokenSource,
    UnsecuredToken,
)

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector, Request

TOKEN_BYTES_MAX: Final = 64 << 10
ANSWER_BYTES_MAX: Final = 1 << 20

SOCKET_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
"""Limit of asking and of the whole answer, for one that comes byte by byte."""

KEPT_SHARE: Final = 0.8
"""Share of a token's life after which another one is fetched, as Kafka's clients have it."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_CODE: Final = re.compile(r"[a-z_]{1,40}")

kept_tokens: dict[ClientCredentials, tuple[str, float]] = {}
"""The token of each client and the moment it is renewed: many connections share one."""


def token_call(
    source: TokenSource, open_keystore: OpenKeystore, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], str]:
    """Return the function that a client calls at each authentication.

    It raises ConfigError, RejectedError or RetriableError.
    """
    match source:
        case StaticToken(token):
            return lambda: _checked(token, "sasl.oauthbearer.token")
        case TokenFile(path):
            return lambda: _read(path)
        case TokenCall(call):
            return lambda: _called(call)
        case UnsecuredToken():
            return lambda: _unsecured(source)
        case ClientCredentials():
            return lambda: _fetched(source, open_keystore, clock)


def _checked(token: object, whose: str) -> str:
    if isinstance(token, str) and _TOKEN.fullmatch(token):
        return token
    raise RejectedError(
        f"the token of {whose} is none: a token is a text of letters, digits and -._~+/="
    )


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(TOKEN_BYTES_MAX)
    except OSError as error:
        raise ConfigError(
            f"the file with the token, {path!r}, cannot be read: {error.strerror}. Give a file of "
            "this machine",
            property="sasl.oauthbearer.token.endpoint.url",
        ) from None
    return _checked(content.decode("ascii", "replace").strip(), f"the file {path!r}")


def _called(call: Callable[[], str]) -> str:
    try:
        token = call()
    except TxnError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise RetriableError(
            f"the function that returns the token has raised {type(error).__name__} at "
            f"{place.filename}:{place.lineno}. Its text is left out, for it may hold secrets"
        ) from None
    return _checked(token, "the function")


def _unsecured(source: UnsecuredToken) -> str:
    now = int(time.time())
    claims: dict[str, object] = {"iat": now, "exp": now + source.life_s}
    claims |= {
        name: list(value) if isinstance(value, tuple) else value for name, value in source.claims
    }
    parts = ({"alg": "none"}, claims)
    return "".join(f"{_encoded(json.dumps(part).encode())}." for part in parts)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# ---------------------------------------------------------------- OIDC


def _fetched(
    source: ClientCredentials, open_keystore: OpenKeystore, clock: Callable[[], float]
) -> str:
    kept = kept_tokens.get(source)
    if kept is not None and clock() < kept[1]:
        return kept[0]
    asked = clock()
    answer = _ask(source, open_keystore)
    token = _checked(answer.get("access_token"), f"the endpoint at {_host(source)}")
    life_s = _life_s(answer, token)
    kept_tokens[source] = token, asked + KEPT_SHARE * life_s
    return token


def _ask(source: ClientCredentials, open_keystore: OpenKeystore) -> dict[str, Any]:
    """Ask the endpoint for a token; return its answer, an object."""
    from urllib.error import HTTPError
    from urllib.request import Request

    pair = (source.client_id, source.client_secret)
    if source.encodes_header:
        pair = (quote_plus(pair[0]), quote_plus(pair[1]))
    form = {"grant_type": "client_credentials"}
    if source.scope is not None:
        form["scope"] = source.scope
    request = Request(
        source.endpoint,
        urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(":".join(pair).encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    try:
        deadline = time.monotonic() + ANSWER_SECONDS
        content = _answer(_opener(source, open_keystore, deadline), request)
        answer = json.loads(content)
    except HTTPError as error:
        raise _refusal(source, error.code, _code_in(error)) from None
    except OSError as error:  # URLError is one
        reason = getattr(error, "reason", error)
        said = getattr(reason, "verify_message", None) or getattr(reason, "strerror", None)
        raise RetriableError(
            f"the token endpoint at {_host(source)} does not answer: {said or reason}"
        ) from None
    except (ValueError, RecursionError):  # no JSON, or no HTTP
        answer = None
    except Exception as error:
        raise RetriableError(
            f"the token endpoint at {_host(source)} does not speak HTTP: {type(error).__name__}"
        ) from None
    if not isinstance(answer, dict):
        raise RetriableError(
            f"the token endpoint at {_host(source)} answers with no JSON object. Correct "
            "sasl.oauthbearer.token.endpoint.url"
        )
    return answer


def _opener(
    source: ClientCredentials, open_keystore: OpenKeystore, deadline: float
) -> "OpenerDirector":
    import ssl
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    from txn.timed_http import timed_handlers

    class NoRedirect(HTTPRedirectHandler):
        """Follows none: the client's secret is for one endpoint."""

        def redirect_request(self, *_: Any) -> None:
            return None

    if not source.endpoint.lower().startswith("https:"):
        to_this_machine = ProxyHandler({})
        return build_opener(NoRedirect, to_this_machine, *timed_handlers(deadline))
    authorities = trusted_pem(source.trusted, open_keystore)
    try:
        context = ssl.create_default_context(
            cadata=None if authorities is None else authorities.decode("ascii", "replace")
        )
    except ssl.SSLError:
        raise ConfigError("https.ca.location holds no certificates that can be read") from None
    return build_opener(NoRedirect, *timed_handlers(deadline, context))


def _answer(opener: "OpenerDirector", request: "Request") -> bytes:
    """Return the body of the answer, within its limit of size."""
    with opener.open(request, timeout=SOCKET_SECONDS) as response:
        return _body(response)


def _body(response: "HTTPResponse | HTTPError") -> bytes:
    content = b""
    while piece := response.read1(64 << 10):
        content += piece
        if len(content) > ANSWER_BYTES_MAX:
            raise ValueError("the answer is too large")
    return content


def _refusal(source: ClientCredentials, status: int, code: str | None) -> TxnError:
    said = f"HTTP {status}" + (f", {code}" if code else "")
    where = f"the token endpoint at {_host(source)}"
    if 300 <= status < 400:
        return ConfigError(
            f"{where} sends elsewhere ({said}), and the client's secret goes to no other place. "
            "Give the address where tokens are given"
        )
    if status == 429 or status >= 500:
        return RetriableError(f"{where} gives no token now ({said})")
    return RejectedError(
        f"{where} refuses a token ({said}). Check the client's id, its secret and the scope"
    )


def _code_in(error: "HTTPError") -> str | None:
    """The error's code of RFC 6749, 5.2; its description is free text, and left out."""
    from http.client import HTTPException

    try:
        with error:
            code = json.loads(_body(error)).get("error")
    except (OSError, HTTPException, ValueError, AttributeError, RecursionError):
        return None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def _life_s(answer: dict[str, Any], token: str) -> float:
    """Seconds that a token lives: as the endpoint says, or the token; 0 if neither does."""
    seconds = answer.get("expires_in")
    if isinstance(seconds, str) and seconds.isdecimal():
        seconds = float(seconds)
    if not isinstance(seconds, int | float):
        seconds = (_expiry_s(token) or 0) - time.time()
    return max(0.0, _finite(seconds) or 0.0)


def _finite(number: Any) -> float | None:
    """A number of JSON, which may be endless or none."""
    try:
        value = float(number)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def expiry_s(token: str) -> float:
    """Return the second since the epoch at which a token ends; one that does not say: 5 minutes."""
    return _expiry_s(token) or time.time() + 300.0


def _expiry_s(token: str) -> float | None:
    try:
        return _finite(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _host(source: ClientCredentials) -> str:
    return urlsplit(source.endpoint).netloc
