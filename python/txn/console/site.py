"""The parts that pages share: the frame, the answer to an error, and following by events.

A page is a package in `txn.console.pages`. It makes a `Page` with its routes. A route's view is a
plain function of a `Visit`; it runs in a thread of its own, as the sources are synchronous.
"""

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from txn.cli.no_answer import one_line
from txn.console.access import Access, Session
from txn.console.faults import NotUnderstoodError, understood
from txn.console.guards import read_form, require_csrf, require_same_origin
from txn.console.rendering import environment
from txn.console.sources import Source, Way
from txn.errors import ConfigError, RejectedError, RetriableError, TxnError

FOLLOW_S: Final = 2.0
"""Seconds between two looks at a page that is followed."""

SHARE_MAX: Final = 0.05
"""The share of its time that a followed page may spend on looks: a costly page looks less often."""

PARSED_CHARS_MAX: Final = 200
"""The most characters of a parameter that is more than a text to look for."""

Context = dict[str, Any]
Parsed = TypeVar("Parsed")
Plan = TypeVar("Plan")


class SchemaReader(Protocol):
    """Reads keys and values by the schemas of a registry."""

    def lines(
        self, topic: str, key: bytes | None, value: bytes | None
    ) -> tuple[tuple[Sequence[str], str | None], tuple[Sequence[str], str | None]]:
        """The lines of a key and of a value, each with a note."""
        ...


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a logged-in user."""

    site: "Site"
    request: Request
    session: Session
    form: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])

    def text(self, name: str) -> str:
        """A parameter of the URL, without blanks around it; of one that is repeated, the last."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """The same with its blanks: a name may begin or end with one."""
        return str(self.request.query_params.get(name, ""))

    def parsed(self, name: str, parse: Callable[[str], Parsed], default: str) -> Parsed:
        """A parameter of the URL, as a function reads it. Raises NotUnderstoodError with its name.

        Args:
            name: The parameter.
            parse: It raises ConfigError for a text that it does not read.
            default: The text to read where the URL has none.
        """
        text = self.text(name) or default
        with understood(name):
            if len(text) > PARSED_CHARS_MAX:
                raise ConfigError(f"{text[:PARSED_CHARS_MAX]!r}… is too long. Correct it")
            return parse(text)

    def chosen(self, name: str, known: Sequence[str]) -> str:
        """One of several words; the first if the URL has none. Raises NotUnderstoodError."""

        def parse(text: str) -> str:
            if text not in known:
                raise ConfigError(f"{text!r} is none of {', '.join(known)}. Choose one of them")
            return text

        return self.parsed(name, parse, known[0])

    def flag(self, name: str) -> bool:
        """True for 1, False for 0 or none. Raises NotUnderstoodError."""
        return self.chosen(name, ("0", "1")) == "1"

    def number(self, name: str, default: int | None = None) -> int:
        """A number of the URL's parameters. Raises NotUnderstoodError; without a default also
        for a parameter that is not there.
        """

        def parse(text: str) -> int:
            if not text.isascii() or not text.isdigit() or len(text) > 19:
                raise ConfigError(f"{text!r} is no number from 0 on. Correct it")
            return int(text)

        return self.parsed(name, parse, "" if default is None else str(default))

    def planned(self, kind: type[Plan]) -> Plan:
        """The plan that the form names, once. Raises RejectedError: it is no longer kept."""
        found = self.session.plans.take(self.form.get("planned", ""))
        if not isinstance(found, kind):
            raise RejectedError(
                "the plan was carried out already, or newer plans have taken its place. Nothing "
                "was done. Look at a new plan first"
            )
        return found


@dataclass(frozen=True, slots=True)
class View:
    """A template, and the function that asks for the facts it shows.

    `command` of its context is the command line that gives the same facts, or a list of them. The
    template's block `live` is the part that changes while the page is followed.
    """

    template: str
    ask: Callable[[Visit, Source], Context]


@dataclass(frozen=True, slots=True)
class Action:
    """A change, asked for by a form. It returns the address of the page to show next."""

    act: Callable[[Visit], str]


@dataclass(frozen=True, slots=True)
class Stream:
    """Pieces of text that arrive while they are found; the browser may stop at any time.

    `begin` runs in a thread of its own, and may raise the error that is shown instead.
    """

    begin: Callable[[Visit], AsyncIterator[bytes]]
    media_type: str


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes for a file: never shown by the browser."""

    content: Callable[[Visit, Source], tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console: its place in the navigation, and its routes."""

    title: str
    path: str
    routes: Sequence[tuple[str, View | Action | Stream | Download]]
    needs_brokers: bool = False
    """True if the files of a stopped broker do not tell it."""


class Site:
    """The console of one cluster.

    Args:
        way: Where the facts are.
        pages: In the order of the navigation.
        may_write: True if the pages offer changes.
        schemas: Reads records by the schemas of a registry; None without one.
    """

    def __init__(
        self,
        way: Way,
        pages: Sequence[Page],
        *,
        may_write: bool,
        schemas: SchemaReader | None = None,
    ) -> None:
        self.way = way
        self.schemas = schemas
        self.access = Access(way)
        self.may_write = may_write
        # A browser sends one set of cookies to all ports of a host, and tunnels give two consoles
        # the same name and port.
        self.cookie: Final = f"txn_console_{secrets.token_hex(4)}"
        self.pages = [page for page in pages if way.is_running or not page.needs_brokers]
        self.stopping = asyncio.Event()
        self._templates: Environment = environment()

    @property
    def is_busy(self) -> bool:
        """True while a thread waits for brokers."""
        return any(each.is_busy for each in self.access.threads())

    def give_up(self) -> None:
        """Answer every request that still waits for brokers: the console stops."""
        for each in self.access.threads():
            each.give_up(RetriableError("the console stops. Start it again, and reload this page"))

    def routes(self) -> list[Route]:
        """The routes of all pages."""
        return [
            Route(
                path,
                self._endpoint(page, served),
                methods=["POST"] if isinstance(served, Action) else ["GET"],
            )
            for page in self.pages
            for path, served in page.routes
        ]

    def html(
        self,
        template: str,
        context: Mapping[str, Any],
        *,
        session: Session | None,
        status: int = 200,
    ) -> HTMLResponse:
        """A whole page."""
        return HTMLResponse(self.text(template, context, session), status)

    def text(self, template: str, context: Mapping[str, Any], session: Session | None) -> str:
        """A template with its expressions filled in."""
        return self._templates.get_template(template).render(self._frame(session) | dict(context))

    def error(
        self, error: TxnError, session: Session | None, page: Page | None = None
    ) -> HTMLResponse:
        """The page about an error: its message says what to do."""
        titles = {
            400: "Not understood",
            403: "Refused",
            404: "Not found",
            503: "No answer",
            500: "Cannot be read",
        }
        status = status_of(error)
        context = {
            "title": titles[status],
            "message": one_line(error),
            "page": page,
            "command": None,
        }
        return self.html("error.html", context, session=session, status=status)

    def _frame(self, session: Session | None) -> Context:
        return {
            "site": self,
            "session": session,
            "pages": self.pages,
            "page": None,
            "command": None,
            "is_live": False,
        }

    def _endpoint(
        self, page: Page, served: View | Action | Stream | Download
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            is_followed = "text/event-stream" in _accepted(request)
            key = request.cookies.get(self.cookie)
            session = self.access.session(key, is_use=not is_followed)
            if session is None:
                if isinstance(served, (View, Stream)) and not is_followed:
                    return RedirectResponse(f"/login?{_next(request)}", 303)
                return Response(status_code=401)
            visit = Visit(self, request, session)
            try:
                if isinstance(served, Action):
                    return await self._acted(visit, served)
                if isinstance(served, Stream):
                    pieces = await session.threads.run(served.begin, visit)
                    return StreamingResponse(pieces, media_type=served.media_type)
                if isinstance(served, Download):
                    return await session.threads.run(self._downloaded, visit, served)
                if is_followed:
                    events = self._followed(visit, page, served)
                    return StreamingResponse(events, media_type="text/event-stream")
                return await session.threads.run(self._viewed, visit, page, served)
            except TxnError as error:
                return self.error(error, session, page)

        return endpoint

    async def _acted(self, visit: Visit, action: Action) -> Response:
        require_same_origin(visit.request)
        form = await read_form(visit.request)
        require_csrf(form, visit.session.csrf)
        if not self.may_write:
            raise RejectedError(
                "this console changes nothing. Start `txn console --write`, or use the command "
                "line that the page shows"
            )
        found = Visit(self, visit.request, visit.session, form)
        return RedirectResponse(await visit.session.threads.run(action.act, found), 303)

    def _viewed(self, visit: Visit, page: Page, view: View) -> Response:
        context = self._asked(visit, page, view)
        return self.html(view.template, context, session=visit.session)

    def _asked(self, visit: Visit, page: Page, view: View) -> Context:
        with visit.session.sources.borrowed() as source:
            asked = view.ask(visit, source)
            return {"page": page, "now_ms": source.now_ms(), "visit": visit} | asked

    def _downloaded(self, visit: Visit, download: Download) -> Response:
        with visit.session.sources.borrowed() as source:
            name, content = download.content(visit, source)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers, media_type="application/octet-stream")

    async def _followed(self, visit: Visit, page: Page, view: View) -> AsyncIterator[bytes]:
        """The part of a page that changes, each time it differs; until a stop or the log-out."""
        before = b""
        while not self.stopping.is_set():
            self.access.end_idle()
            if visit.session.has_ended:
                return
            began = time.monotonic()
            try:
                part = await visit.session.threads.run(self._live_part, visit, page, view)
            except TxnError as error:
                yield _event("trouble", one_line(error))
                part, before = None, b""  # the page shows the trouble until the part comes again
            if part is not None:
                digest = hashlib.sha256(part.encode()).digest()
                if digest != before:
                    before = digest
                    yield _event("part", part)
                else:
                    yield b": the same\n\n"
            pause_s = max(FOLLOW_S, (time.monotonic() - began) / SHARE_MAX)
            try:
                await asyncio.wait_for(self.stopping.wait(), pause_s)
            except TimeoutError:
                continue

    def _live_part(self, visit: Visit, page: Page, view: View) -> str:
        template = self._templates.get_template(view.template)
        frame = self._frame(visit.session) | self._asked(visit, page, view)
        return "".join(template.blocks["live"](template.new_context(frame)))


def status_of(error: TxnError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, NotUnderstoodError):
        return 400
    if isinstance(error, ConfigError):
        return 404
    if isinstance(error, RejectedError):
        return 403
    return 503 if isinstance(error, RetriableError) else 500


def _accepted(request: Request) -> str:
    return request.headers.get("accept", "")


def _next(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return urlencode({"next": f"{request.url.path}{query}"})


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii")
