"""The proxy between the clients of a test and their broker.

The proxy forwards whole frames of the Kafka protocol, so it can act between two frames. The way of
a request:

    client → read → [paused: wait] → [delayed: sleep] → [a fault of its API] → broker
    client ← [a fault of its API] ← [delayed: sleep] ← [paused: wait] ← answer

| effect | the broker | the client |
|---|---|---|
| `LOSE_REQUEST` | never sees the request | sees its connection cut |
| `LOSE_ANSWER` | executes the request | sees its connection cut |
| `REFUSE` | never sees the Produce | gets an error for each partition |
| `HOLD_REQUEST`, `HOLD_ANSWER` | waits until the test releases the frame | waits too |

Each fault happens once. The proxy recognises the kit's own connections by their client id, and
never applies a fault to them. All proxies of a process share one thread, which ends with the last.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from txn import forks
from txn.errors import ForkedError
from txn.testing.errors import WaitError
from txn.testing.faults import Effect, Fault
from txn.testing.wire import Request, refusal

KIT_CLIENT_ID: Final = "txn-testing"
"""Client id of the kit's own requests."""

FRAME_BYTES_MAX: Final = 128 << 20
BACKLOG: Final = 128
STOP_S: Final = 10.0

T = TypeVar("T")


@dataclass
class Asked:
    """A request whose answer did not pass yet."""

    request: Request
    fault: Fault | None = None
    own_answer: bytes | None = None
    """The proxy's own; the broker never saw the request."""


class Link:
    """A client's connection, and the one to the broker that belongs to it."""

    def __init__(
        self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter, label: str
    ) -> None:
        self.client = client
        self.broker = broker
        self.label = label
        self.client_id: str | None = None
        self.asked: deque[Asked] = deque()

    @property
    def is_kit_client(self) -> bool:
        """True for connections of the kit itself."""
        return self.client_id == KIT_CLIENT_ID

    def cut(self) -> None:
        """Close both connections at once."""
        self.client.transport.abort()
        self.broker.transport.abort()


class Watch:
    """Called by the proxy for each request and answer of clients; does nothing by itself.

    The calls come on the proxy's thread, and must not wait.
    """

    def on_request(self, link: Link, request: Request) -> None:
        """A request came; it has not passed yet."""

    def on_answer(self, link: Link, request: Request, answer: bytes) -> None:
        """The answer to a request came; it has not passed yet."""

    def on_fault(self, link: Link, request: Request, fault: Fault) -> None:
        """A fault happened to a request."""


class _Thread:
    """The event loop of all proxies of this process, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def join(self) -> asyncio.AbstractEventLoop:
        """Count one more user; return the loop, which runs."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="txn-proxy", daemon=True
                )
                self._thread.start()
            return self._loop

    def leave(self) -> None:
        """Count one user less; the last one ends the thread."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def abandon(self) -> None:
        """Forget the parent's loop in a forked child; take no lock that another thread may hold."""
        self.__init__()  # type: ignore[misc]


_thread = _Thread()
os.register_at_fork(after_in_child=_thread.abandon)


class Proxy:
    """Listens on a loopback port from the moment it is made until `close`.

    Attributes:
        port: Its own port, which it keeps.
        watch: Called for everything that passes.
        label: Put on the connections that come from now on, for stories.
    """

    def __init__(self) -> None:
        self.watch = Watch()
        self.label = ""
        self._upstream: int | None = None
        self._delay_s = 0.0
        self._faults: list[Fault] = []
        self._held: set[Fault] = set()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._forked_from: int | None = None
        self._is_open = True
        self._closed = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._loop = _thread.join()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        forks.watch(self)

    def close(self) -> None:
        """Cut everything and listen no more. Harmless when repeated, and in a forked child."""
        if self._forked_from is not None or not self._is_open:
            return
        self._is_open = False
        forks.forget(self)
        self._call(self._close())
        _thread.leave()
        self._closed.set()

    def await_close(self, seconds: float) -> None:
        """Wait until it is closed, by another thread. Raises WaitError."""
        if not self._closed.wait(seconds):
            raise WaitError(f"the proxy at port {self.port} is open after {seconds:g} s")

    def _abandon(self, parent: int) -> None:
        """Close the sockets that a forked child shares; see `txn.forks`."""
        self._forked_from = parent
        self._is_open = False
        shared = [self._socket.fileno()]
        for link in list(self._links):
            for writer in (link.client, link.broker):
                shared.append(writer.get_extra_info("socket").fileno())
        for descriptor in shared:
            with contextlib.suppress(OSError):
                if descriptor >= 0:
                    os.close(descriptor)

    # ------------------------------------------------------------ commands, from any thread

    def connect_to(self, port: int) -> None:
        """Pass new connections to a broker's port; there was none, see `disconnect`."""
        self._upstream = port  # a connection that comes about meanwhile looks again

    def disconnect(self, *, heals: bool = False) -> None:
        """Cut every connection, and close new ones until `connect_to`.

        With `heals` do the work of `heal` too. Frames that are held go with their connections.
        """

        def disconnect() -> None:
            self._upstream = None
            for link in list(self._links):
                link.cut()
            if heals:
                self._heal()

        self._run_on_loop(disconnect)

    def cut(self, client_id: str | None = None) -> int:
        """Cut the clients' connections, those of one client id if given; return their number."""

        async def cut() -> int:
            chosen = [
                link
                for link in self._links
                if not link.is_kit_client and client_id in (None, link.client_id)
            ]
            for link in chosen:
                link.cut()
            return len(chosen)

        return self._call(cut())

    def pause(self) -> None:
        """Block all requests and answers until `resume`."""
        self._run_on_loop(self._passing.clear)

    def resume(self) -> None:
        """End a pause."""
        self._run_on_loop(self._passing.set)

    def delay(self, seconds: float) -> None:
        """Delay each frame, either way; 0 ends it."""

        def set_delay() -> None:
            self._delay_s = seconds

        self._run_on_loop(set_delay)

    def add(self, *faults: Fault) -> None:
        """Inject faults into the next matching requests."""
        self._run_on_loop(lambda: self._faults.extend(faults))

    def heal(self) -> None:
        """End pauses and delays, release held frames, and forget faults that did not happen."""
        self._run_on_loop(self._heal)

    @property
    def is_forked(self) -> bool:
        """True in a forked child: it runs in the parent."""
        return self._forked_from is not None

    def require_this_process(self) -> None:
        """Raise ForkedError in a forked child."""
        if self._forked_from is not None:
            raise ForkedError(
                f"this test broker runs in process {self._forked_from}, and process "
                f"{os.getpid()} is a fork of that one. Use its bootstrap_servers here, and "
                "command it in the parent",
                pid=self._forked_from,
            )

    def _run_on_loop(self, call: Callable[[], object]) -> None:
        """Make a call on the loop, and return when it is made."""
        made: Future[None] = Future()

        def make() -> None:
            try:
                call()
            except BaseException as error:
                made.set_exception(error)
            else:
                made.set_result(None)

        self._loop.call_soon_threadsafe(make)  # no task: each round of the loop costs
        made.result(STOP_S)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    # ------------------------------------------------------------ the loop's side

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    def _heal(self) -> None:
        self._passing.set()
        self._delay_s = 0.0
        self._faults.clear()
        for fault in self._held:
            fault.release()

    async def _close(self) -> None:
        await asyncio.wrap_future(self._listening)
        assert self._server is not None, "it listens"
        self._server.close()
        self._passing.set()
        for link in list(self._links):
            link.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next round

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's callback is a task"
        self._tasks.add(task)
        try:
            await self._link(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy closes; asyncio would report it as an error
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._upstream
        if port is None:
            return
        try:
            from_broker, broker = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        if port != self._upstream:  # it went while the connection came about
            broker.transport.abort()
            return
        link = Link(writer, broker, self.label)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pass_requests(reader, link)),
            asyncio.ensure_future(self._pass_answers(from_broker, link)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.cut()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pass_requests(self, reader: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while True:
                request = Request.read(await _frame(reader))
                link.client_id = request.client_id
                asked = Asked(request)
                if not link.is_kit_client:
                    await self._wait(link)
                    self.watch.on_request(link, request)
                    if not await self._apply_fault(link, asked):
                        return
                if request.has_answer:
                    link.asked.append(asked)
                if asked.own_answer is None:
                    link.broker.write(request.frame)
                    await link.broker.drain()
                else:
                    self._give_own_answers(link)

    async def _apply_fault(self, link: Link, asked: Asked) -> bool:
        """Apply a fault to a request; False: its connection is to be cut."""
        request = asked.request
        due = [each for each in self._faults if each.counts(request)]
        if not due:
            return True
        fault = due[0]  # the others happen to the next request
        fault.request = request
        self._faults.remove(fault)
        if fault.effect is Effect.LOSE_REQUEST:
            self.watch.on_fault(link, request, fault)
            fault.note_happened()
            return False
        if fault.effect is Effect.HOLD_REQUEST:
            self.watch.on_fault(link, request, fault)
            return await self._hold(fault)
        asked.fault = fault
        if fault.effect is Effect.REFUSE:
            self.watch.on_fault(link, request, fault)
            asked.own_answer = refusal(request, fault.code)
            fault.note_happened()
        return True

    async def _pass_answers(self, reader: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            while True:
                answer = await _frame(reader)
                asked = link.asked[0]
                if not link.is_kit_client:
                    self.watch.on_answer(link, asked.request, answer)
                    if not await self._apply_fault_to_answer(link, asked):
                        return
                    await self._wait(link)
                link.asked.popleft()
                link.client.write(answer)
                self._give_own_answers(link)
                await link.client.drain()

    async def _apply_fault_to_answer(self, link: Link, asked: Asked) -> bool:
        fault = asked.fault
        if fault is None:
            return True
        self.watch.on_fault(link, asked.request, fault)
        if fault.effect is Effect.HOLD_ANSWER:
            return await self._hold(fault)
        fault.note_happened()
        return False

    async def _hold(self, fault: Fault) -> bool:
        self._held.add(fault)
        try:
            return await fault.await_release()
        finally:
            self._held.discard(fault)

    def _give_own_answers(self, link: Link) -> None:
        """Answer for the broker, once every earlier request is answered."""
        while link.asked and (answer := link.asked[0].own_answer) is not None:
            link.asked.popleft()
            link.client.write(answer)

    async def _wait(self, link: Link) -> None:
        await self._passing.wait()
        if self._delay_s > 0:
            await asyncio.sleep(self._delay_s)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    count = int.from_bytes(size, "big")
    if count > FRAME_BYTES_MAX:
        raise ValueError("this is not the Kafka protocol")
    return size + await reader.readexactly(count)
