"""The console as an ASGI application: the pages, the log-in and our two files for the browser."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from txn.cli.no_answer import one_line
from txn.console.faults import NotUnderstoodError
from txn.console.guards import Guard, read_form, require_csrf, require_same_origin
from txn.console.site import Site
from txn.errors import ConfigError, TxnError

ASSETS: Final = Path(__file__).parent / "assets"
TYPES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "mark.svg": "image/svg+xml",
}


def create_app(site: Site, host: str) -> Starlette:
    """Make the application of a console that listens at a host."""
    assets = {name: (ASSETS / name).read_bytes() for name in TYPES}

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in TYPES:
            raise HTTPException(404)
        headers = {"Cache-Control": "max-age=60"}
        return Response(assets[name], media_type=TYPES[name], headers=headers)

    async def login(request: Request) -> Response:
        return await _login(site, request)

    async def logout(request: Request) -> Response:
        return await _logout(site, request)

    async def missing(request: Request, error: Exception) -> Response:
        session = site.access.session(request.cookies.get(site.cookie))
        status = error.status_code if isinstance(error, HTTPException) else 500
        told: TxnError = ConfigError(
            f"there is no page {request.url.path}. The navigation names every page"
        )
        if status == 405:
            told = NotUnderstoodError(
                "this address takes another kind of request. Use the form of its page"
            )
        page = site.error(told, session)
        page.status_code = status
        return page

    return Starlette(
        routes=[
            Route("/login", login, methods=["GET", "POST"]),
            Route("/logout", logout, methods=["POST"]),
            Route("/assets/{name}", asset),
            *site.routes(),
        ],
        middleware=[Middleware(Guard, host=host), Middleware(TokenInAddress, site=site)],
        exception_handlers={404: missing, 405: missing},
    )


class TokenInAddress:
    """Middleware: `?token=…` of any address begins a session, and leaves the address."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        token = None if request is None else request.query_params.get("token")
        if request is None or token is None:
            await self._app(scope, receive, send)
            return
        key = self._site.access.by_token(token)
        if key is None:
            message = "the token is not that of this console. Its start line has it"
            context = {"title": "Log in", "message": message, "next": "/"}
            page = self._site.html("login.html", context, session=None, status=403)
            await page(scope, receive, send)
            return
        self._site.access.end(request.cookies.get(self._site.cookie))
        rest = request.url.remove_query_params("token")
        target = _local(f"{rest.path}?{rest.query}" if rest.query else rest.path)
        answer = RedirectResponse(target, 303)
        _set_cookie(self._site, answer, key)
        await answer(scope, receive, send)


async def _login(site: Site, request: Request) -> Response:
    target = _local(request.query_params.get("next", "/"))
    message = None
    status = 200
    if request.method == "POST":
        try:
            require_same_origin(request)
            form = await read_form(request)
            target = _local(form.get("next", "/"))
            key = await _key_of(site, form)
        except TxnError as error:
            message, status = one_line(error), 403
        else:
            site.access.end(request.cookies.get(site.cookie))
            answer = RedirectResponse(target, 303)
            _set_cookie(site, answer, key)
            return answer
    context = {"title": "Log in", "message": message, "next": target}
    return site.html("login.html", context, session=None, status=status)


async def _key_of(site: Site, form: dict[str, str]) -> str:
    if "token" in form:
        key = site.access.by_token(form["token"].strip())
        if key is None:
            raise ConfigError("the token is not that of this console. Its start line has it")
        return key
    username, password = form.get("username", ""), form.get("password", "")
    return await site.access.logins.run(site.access.by_password, username, password)


async def _logout(site: Site, request: Request) -> Response:
    key = request.cookies.get(site.cookie)
    session = site.access.session(key)
    try:
        require_same_origin(request)
        if session is not None:
            require_csrf(await read_form(request), session.csrf)
    except TxnError as error:
        return site.error(error, session)
    site.access.end(key)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(site.cookie)
    return answer


def _set_cookie(site: Site, answer: Response, key: str) -> None:
    answer.set_cookie(site.cookie, key, httponly=True, samesite="lax", path="/")


def _local(target: str) -> str:
    """The address to show after the log-in; one of another site becomes the first page."""
    parts = urlsplit(target)
    is_local = not parts.scheme and not parts.netloc and target.startswith("/")
    return target if is_local and not target.startswith("//") and "\\" not in target else "/"
