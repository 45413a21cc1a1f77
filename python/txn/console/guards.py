"""Checks that every request passes, and the headers that every answer carries.

    Host      names this machine. A page of another site that made its own name point here (DNS
              rebinding) sends that name, and is refused.
    Origin    of a request that changes something is this console. `Sec-Fetch-Site` too.
    CSRF      a form carries the session's secret, which no other site can read.
    CSP       a browser runs our script and our style sheet alone, and none that stands in a page.

Sources: OWASP's sheets on cross-site request forgery and DNS rebinding; CSP level 3.
"""

import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txn.console.faults import NotUnderstoodError
from txn.errors import RejectedError
from txn.logs import log

FORM_BYTES_MAX: Final = 1 << 16

BUG: Final = (
    "A bug of the console kept this page from being made. Its standard error has the details. "
    "Please report them; the commands of `txn` tell the same meanwhile."
)

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without a referrer a form would have `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Middleware: refuses a foreign Host, and adds the headers to every answer.

    Args:
        app: The console.
        host: The address that it listens at; its name is allowed beside those of loopback.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = LOOPBACK_NAMES | {host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) == 1 and _name_in(hosts[0]) in self._names:
            try:
                await self._app(scope, receive, send_guarded)
            except Exception:
                log.exception("console.bug", path=scope["path"])
                if is_begun:
                    return
                bug = PlainTextResponse(f"{BUG}\n", status_code=500)
                await bug(scope, receive, send_guarded)
            return
        refusal = PlainTextResponse(
            "This console answers to the names of this machine alone. Open the address that "
            "`txn console` printed.\n",
            status_code=421,
        )
        await refusal(scope, receive, send_guarded)


def require_same_origin(request: Request) -> None:
    """Refuse a change that a page of another site asks for. Raises RejectedError."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers["host"]
    is_ours = origin is None or origin.lower() == f"http://{host.lower()}"
    if not is_ours or site not in ("same-origin", "none"):
        raise RejectedError("another site asked for this change. Nothing was done")


def require_csrf(form: Mapping[str, str], secret: str) -> None:
    """Refuse a form that this session did not get from the console. Raises RejectedError."""
    given = form.get("csrf", "").encode("utf-8", "replace")
    if not secrets.compare_digest(given, secret.encode()):
        raise RejectedError(
            "the form belongs to another session. Nothing was done. Open the page again, and send "
            "the form from there"
        )


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form. Raises NotUnderstoodError: it is large, or of another kind."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise NotUnderstoodError("a form is sent as application/x-www-form-urlencoded")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            raise NotUnderstoodError(f"the form is larger than {FORM_BYTES_MAX} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _name_in(host: str) -> str | None:
    """The name in a Host header, without its port; None if it has another form."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return name if parts.netloc == host and parts.username is None else None
