"""The control loop: everything but Produce and Fetch is decided here, by one thread at a time.

Requests come from the reactors through `Server.take`; answers go back through `Server.reply`. The
most frequent requests of transactions are decided on the reactors' own threads while the loop
sleeps, see `ControlLockLoop`. A request that cannot be read costs its sender the connection, and no
other client anything.

A large request does not delay others either. A worker thread decodes it and encodes a large answer,
and its handler gives way to others (`broker.turns`). Few large requests are under way at a time,
and clients take turns (`client_turns`). The others wait undecoded, because a decoded request needs
many times the memory. With `queued.max.request.bytes`, requests for large answers also wait while
clients have not read earlier ones. If the connection of a request was closed, the request is not
begun, and it is not continued if it changes nothing.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from txn import _core
from txn.broker.apis.table import BoundApi, Reply, build_table
from txn.broker.host import Context, HangUpError, Toll, counted_in
from txn.broker.node import Node
from txn.logs import log, rare_log
from txn.security.sessions import Connection, Listener, Peer, Session, begin
from txn.server.loop import eager
from txn.server.loop.client_turns import ClientLeftError, ClientTurns
from txn.server.loop.control_lock import ControlLockLoop
from txn.server.loop.large_requests import (
    LARGE_ANSWERS,
    LARGE_AT_A_TIME,
    LARGE_BYTES,
    LARGE_OF_A_CLIENT,
    READ_ONLY,
    WAITING,
    is_large,
)
from txn.server.loop.requests import MalformedRequestError, decode_request
from txn.server.loop.routing import decided_by_reactors
from txn.server.loop.scheduler import LoopScheduler
from txn.server.loop.watched_steps import Metered, UntilClientLeft
from txn.wire.api_keys import ApiKey
from txn.wire.encoding import Body
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response, has_flexible_header, with_throttle_time

if TYPE_CHECKING:
    from txn._core import ClientRequest, ParkedProduce
    from txn.security.login import Login
    from txn.server.security.logins import Logins

LOGIN_KEYS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""APIs of brokers among themselves, whose time no quota counts."""


def _log_callback_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the exception of a callback, which no caller would see."""
    log.error(
        "broker.work_failed", reason=context.get("message"), exc_info=context.get("exception")
    )


def _log_fatal_request(
    client_host: str,
    api_key: int | None,
    api_version: int | None,
    fault: str,
    code: int | None,
    reason: str | None,
) -> None:
    """Log a request for which a reactor has closed the connection."""
    request = {"api_key": api_key, "api_version": api_version, "client_host": client_host}
    if fault == "malformed":
        rare_log.warning("request.malformed", **request, reason=reason)
    elif fault == "unsupported":
        rare_log.warning("request.unsupported", **request)
    elif fault == "unacknowledged":
        assert code is not None, "it is the error of a partition"
        error = ErrorCode(code).name
        rare_log.warning("request.unacknowledged", **request, error=error, partition=reason)
    else:
        has_expired = fault == "expired"
        rare_log.warning("request.unauthenticated", **request, session_expired=has_expired)


def _is_of_login(login: "Login", api_key: int, is_served: bool) -> bool:
    """Return True if a request is answered or refused by the authentication of its connection."""
    if api_key == ApiKey.API_VERSIONS:
        return not login.admits_versions(is_served=is_served)
    return api_key in LOGIN_KEYS


def _is_held(connection: "ref[Connection]") -> bool:
    return connection() is not None


class ControlLoop:
    """Answers requests on its own thread, and on reactors' threads, until it is stopped."""

    def __init__(
        self,
        loop: ControlLockLoop,
        scheduler: LoopScheduler,
        server: _core.Server,
        node: Node,
        listeners: Sequence[Listener],
        logins: "Logins | None" = None,
        *,
        bounds_answers: bool = False,
    ) -> None:
        self._loop = loop
        self._loop.set_exception_handler(_log_callback_error)
        self._scheduler = scheduler
        self._server = server
        self._node = node
        self._quotas = node.quotas
        self._listeners = listeners
        self._logins = logins
        self.table: Mapping[int, BoundApi] = build_table(node)
        self._tasks: set[asyncio.Task[None]] = set()
        if node.authorizer is not None:
            from txn.broker.apis.access import data_path_access  # few brokers have an authorizer

            server.authorize_by(data_path_access(node.authorizer))
        self._large = ClientTurns(LARGE_AT_A_TIME, LARGE_OF_A_CLIENT)
        self._large_searches = ClientTurns(LARGE_AT_A_TIME, LARGE_OF_A_CLIENT)
        self._large_answers = ClientTurns(LARGE_AT_A_TIME, LARGE_OF_A_CLIENT)
        self._bounds_answers = bounds_answers
        self._room: list[asyncio.Future[None]] = []
        """Requests that wait for memory for their answers."""
        self.thread = threading.Thread(target=self._run, name="txn-control", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._loop.add_reader(self._server.wakeup_fd, self._on_wakeup)
        self._let_reactors_decide()
        self.thread.start()

    def stop(self) -> None:
        """Answer no more; returns when the thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_locked(self._server)
        self._loop.remove_reader(self._server.wakeup_fd)
        self._scheduler.close()
        waiting = asyncio.all_tasks(self._loop)
        for task in waiting:
            task.cancel()
        if waiting:
            self._loop.run_until_complete(asyncio.wait(waiting, timeout=5))
        with contextlib.suppress(RuntimeError):
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _let_reactors_decide(self) -> None:
        """Let reactors decide; the server holds this loop weakly, see `ServerCatalog`."""
        api_keys = decided_by_reactors(self._node.durability)
        if not api_keys:
            return
        held = ref(self)

        def decide(requests: "list[ClientRequest]", joins: "list[ParkedProduce]") -> bool:
            control = held()
            if control is None:
                return False  # the broker is gone
            control._loop.run_for_loop(control.serve, requests, joins)
            return True

        def settle() -> None:
            control = held()
            if control is not None:
                control._loop.run_for_loop(control._scheduler.settle)

        self._server.let_reactors_decide(api_keys, decide)
        self._scheduler.let_reactors_settle(self._server, settle)

    def serve(self, requests: "list[ClientRequest]", joins: "list[ParkedProduce]") -> None:
        """Begin to answer requests and joins; the caller holds the control lock."""
        for request in requests:
            self._dispatch(*request)
        for join in joins:
            self._start(self._join(*join), join[0])

    def _on_wakeup(self) -> None:
        if self._server.take_room():
            waiting, self._room = self._room, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)
        self.serve(self._server.take(), self._server.take_joins())
        for reason in self._server.take_failures():
            log.error("connection.failed", reason=reason)
        for listener, client_host, reason in self._server.take_failed_handshakes():
            rare_log.warning(
                "connection.handshake_failed",
                listener=self._listeners[listener].name,
                client_host=client_host,
                reason=reason,
            )
        for listener, client_host, limit in self._server.take_refused():
            rare_log.warning(
                "connection.refused",
                listener=self._listeners[listener].name,
                client_host=client_host,
                limit=limit,
            )
        for fatal in self._server.take_fatal_requests():
            _log_fatal_request(*fatal)

    def _dispatch(
        self,
        token: int,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: bytes,
        client_host: str,
        listener: int,
        principal: str | None,
        number: int,
        attachment: object,
    ) -> None:
        if isinstance(attachment, Connection):
            connection = attachment
        else:
            assert isinstance(attachment, _core.ClientPresence), "its connection is new"
            peer = Peer(client_host, number, attachment.has_left)
            session = begin(self._listeners[listener], peer, principal)
            connection = self._attach_connection(token, session)
        api = self.table.get(api_key)
        is_served = api is not None and api_version in api.served
        if connection.login is not None and _is_of_login(connection.login, api_key, is_served):
            self._start(self._log_in(token, connection, api_key, api_version, body), token)
            return
        if api is None or not is_served:
            self._refuse(token, api_key, api_version, client_host)
            return
        toll = Toll() if self._quotas.takes_toll and connection.is_authenticated else None
        context = Context(api_key, api_version, client_id or "", connection.session, toll)
        is_bounded = self._bounds_answers and api_key in LARGE_ANSWERS
        if is_bounded or len(body) >= LARGE_BYTES:
            held = ref(connection)  # the sockets have it until it is closed
            is_there = partial(_is_held, held)
            turns = self._large_searches if api_key == ApiKey.LIST_OFFSETS else self._large
            turns = self._large_answers if is_bounded else turns
            self._start(self._serve_large(token, api, context, body, is_there, turns), token)
            return
        try:
            answerer = api.answerer
            if toll is None:
                request: object = decode_request(answerer.request, api_key, api_version, body)
                work = answerer.answer(request, context)
            else:
                request = counted_in(
                    toll, decode_request, answerer.request, api_key, api_version, body
                )
                work = Metered(answerer.answer(request, context), toll)
            answer = eager.step(work)
            if isinstance(answer, eager.Suspended):
                rest, ended = self._finish(token, context, answer), partial(self._on_end, token)
                self._tasks.add(eager.continue_as_task(self._loop, rest, answer, ended))
            elif not isinstance(answer, bytes) and is_large(answer):
                self._start(self._reply_large(token, context, answer), token)
            else:
                self._reply(token, context, answer)
        except Exception as error:
            self._on_error(token, context, error)

    def _attach_connection(self, token: int, session: Session) -> Connection:
        """Make a connection's state with its first request; the sockets keep it for the next."""
        login = None if self._logins is None else self._logins.begin(session.listener)
        connection = Connection(session, login)
        self._server.attach(token, connection)
        return connection

    async def _log_in(
        self, token: int, connection: Connection, api_key: int, api_version: int, body: bytes
    ) -> None:
        """Answer a request of an authentication."""
        assert self._logins is not None, "the connection has a login"
        answering = self._logins.answer(token, connection, api_key, api_version, body)
        del body  # it may be large, and a client that fails waits
        try:
            await answering
        except MalformedRequestError as error:
            host = connection.session.client.host
            rare_log.warning("request.malformed", client_host=host, reason=str(error))
            self._server.disconnect(token)

    def _refuse(self, token: int, api_key: int, api_version: int, client_host: str) -> None:
        if api_key == ApiKey.API_VERSIONS:
            from txn.broker.apis.versions import unsupported_version

            self._server.reply(token, False, unsupported_version(self._node))
            return
        rare_log.warning(
            "request.unsupported", api_key=api_key, api_version=api_version, client_host=client_host
        )
        self._server.disconnect(token)

    def _on_error(self, token: int, context: Context, error: Exception) -> None:
        """Close the connection of a request that cannot be answered; call in the handler."""
        if isinstance(error, ClientLeftError):
            return
        if isinstance(error, HangUpError):
            self._hang_up(token, context, error)
        elif isinstance(error, MalformedRequestError):
            self._on_malformed(token, context, error)
        else:
            self._fail(token, context)

    def _hang_up(self, token: int, context: Context, hang_up: HangUpError) -> None:
        rare_log.warning(
            hang_up.event,
            api_key=context.api_key,
            client_id=context.client_id,
            client_host=context.client_host,
            reason=str(hang_up),
        )
        self._server.disconnect(token)

    def _on_malformed(self, token: int, context: Context, error: MalformedRequestError) -> None:
        rare_log.warning(
            "request.malformed",
            api_key=context.api_key,
            api_version=context.api_version,
            client_host=context.client_host,
            reason=str(error),
        )
        self._server.disconnect(token)

    def _fail(self, token: int, context: Context) -> None:
        """A bug costs the connection of the request that met it; call where it is handled."""
        rare_log.exception(
            "request.failed", api_key=context.api_key, api_version=context.api_version
        )
        self._server.disconnect(token)

    async def _serve_large(
        self,
        token: int,
        api: BoundApi,
        context: Context,
        body: bytes,
        is_there: Callable[[], bool],
        turns: ClientTurns,
    ) -> None:
        """Answer a large request, in turns with others, unless its client leaves before."""
        key, version, toll = context.api_key, context.api_version, context.toll
        client = (context.session.principal, context.client_host)
        try:
            async with turns.turn_of(client, is_there):
                while turns is self._large_answers and not self._server.has_room():
                    self._room.append(self._loop.create_future())
                    await self._room[-1]
                if not is_there():
                    return
                kind = api.answerer.request
                request: object = await self._loop.run_in_executor(
                    None, counted_in, toll, decode_request, kind, key, version, body
                )
                answer = api.answerer.answer(request, context)
                if key in READ_ONLY:
                    answer = UntilClientLeft(answer, is_there)
                if toll is not None:
                    answer = Metered(answer, toll)
                del request, body
                if key not in WAITING:
                    await self._finish(token, context, answer)
                    return
            await self._finish(token, context, answer)
        except MalformedRequestError as error:
            self._on_malformed(token, context, error)
        except ClientLeftError:
            pass

    async def _finish(self, token: int, context: Context, answer: Awaitable[Reply]) -> None:
        try:
            reply = await answer
            if not isinstance(reply, bytes) and is_large(reply):
                await self._reply_large(token, context, reply)
            else:
                self._reply(token, context, reply)
        except Exception as error:
            self._on_error(token, context, error)

    def _reply(self, token: int, context: Context, reply: Reply) -> None:
        key, version = context.api_key, context.api_version
        body = reply if isinstance(reply, bytes) else encode_response(key, version, reply)
        if context.toll is not None:
            body = self._throttled(token, context, context.toll, body)
        self._server.reply(token, has_flexible_header(key, version), body)

    def _throttled(self, token: int, context: Context, toll: Toll, body: bytes) -> bytes:
        """Mute a client that is over its quotas; return its answer with the time of that."""
        quotas, session = self._quotas, context.session
        throttle_ms = 0
        if quotas.counts_time and context.api_key not in EXEMPT:
            throttle_ms = self._server.throttle_ms(
                session.principal, session.client.host, context.client_id, toll.spent_s
            )
        if toll.throttle_ms > throttle_ms:
            throttle_ms = toll.throttle_ms
            quotas.note_throttled(throttle_ms)
        if not throttle_ms:
            return body
        self._server.mute(token, throttle_ms)
        return with_throttle_time(context.api_key, context.api_version, body, throttle_ms)

    async def _reply_large(self, token: int, context: Context, response: Body) -> None:
        key, version = context.api_key, context.api_version
        body = await self._loop.run_in_executor(
            None, counted_in, context.toll, encode_response, key, version, response
        )
        self._reply(token, context, body)

    async def _join(
        self,
        token: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        partitions: list[tuple[str, int]],
    ) -> None:
        """Ask the coordinator for a Produce that met a partition outside its transaction."""
        verdicts = await self._node.verifier.join(
            transactional_id, producer_id, producer_epoch, transaction_version, partitions
        )
        refused = []
        if any(verdicts.values()):
            refused = [(topic, index, code) for (topic, index), code in verdicts.items() if code]
        self._server.resume(token, refused)

    def _start(self, work: Coroutine[Any, Any, None], token: int) -> None:
        """Run work at once; if it has to wait, it goes on as a task."""
        try:
            task = eager.run(self._loop, work, partial(self._on_end, token))
        except Exception:
            rare_log.exception("request.failed")
            self._server.disconnect(token)
            return
        if task is not None:
            self._tasks.add(task)

    def _on_end(self, token: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            rare_log.error("request.failed", exc_info=task.exception())
            self._server.disconnect(token)
