"""A proxy between clients and a broker that knows where a request begins and ends.

Whole frames pass through it. So it can cut a connection between two of them, delay one connection
and not another, and hold a request of a transaction back. Then the client's connection is reset,
and its request stays on its way. It reaches the broker when the client has long gone on over
another connection. A network may do that to any TCP client whose connection breaks.

A frame that is under way when its connection is cut is gone; only held frames arrive late.
"""

import asyncio
import contextlib
import random
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Coroutine
from typing import Any, Final

from kio.serial import entity_reader

from harnesses.black_box.history import LateEndTxn, LateJoin
from txn.wire.kio import load_request_schema

END_TXN: Final = "EndTxn"
PRODUCE: Final = "Produce"
JOINS: Final = (PRODUCE, "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit")
"""Requests that let records or offsets into a transaction."""
APIS: Final = {0: JOINS[0], 24: JOINS[1], 25: JOINS[2], 26: END_TXN, 28: JOINS[3]}
"""Requests that may be held back, by their key."""
ANY_ANSWER: Final = range(1 << 15)
"""The keys of all APIs."""
PRODUCE_KEY: Final = 0
ANSWER_S: Final = 5.0
"""Time to wait for the answer to a request that was held back."""

HEADER: Final = struct.Struct(">hhih")
"""Key, version, correlation id, length of the client id."""


class ProxiedConnection:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker = broker
        self.delay_s = 0.0
        self.is_holding = False
        self.was_late = False
        self.ended = asyncio.Event()
        self.asked: deque[int] = deque()
        """The keys of unanswered requests; a broker answers in this order."""
        self.loses_answer_to: Container[int] = ()

    def cut(self) -> None:
        self.client.transport.abort()
        self.broker.transport.abort()


class Proxy:
    """Listens on a port of its own from the moment it is made until `close`.

    Attributes:
        late: The EndTxn requests that were held back and have arrived by now.
        late_joins: The same for other requests of transactions.
    """

    def __init__(self) -> None:
        self.late: list[LateEndTxn] = []
        self.late_joins: list[LateJoin] = []
        self.upstream_port = 0
        """The broker's; to be set before the first client comes."""
        self._connections: set[ProxiedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hold: Callable[[str, str], float] | None = None
        self._released = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Cut everything and stop to listen."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ------------------------------------------------------------ what may be done to connections

    def cut(self, share: float, chance: random.Random) -> int:
        """Cut about this share of the connections, one at least; return how many."""
        return self._on_some(share, chance, ProxiedConnection.cut)

    def lose_answers(self, share: float, chance: random.Random, to: Container[int]) -> int:
        """Cut connections instead of passing the next answer on: its request is done.

        Args:
            to: The keys of the APIs whose answers are lost.
        """

        def lose(connection: ProxiedConnection) -> None:
            connection.loses_answer_to = to

        return self._on_some(share, chance, lose)

    def delay(self, share: float, seconds: float, chance: random.Random) -> int:
        """Delay every frame of some connections, both ways; 0 seconds ends it for those."""

        def slow_down(connection: ProxiedConnection) -> None:
            connection.delay_s = seconds

        return self._on_some(share, chance, slow_down)

    def hold(self, hold_s: Callable[[str, str], float] | None) -> None:
        """Hold requests of transactions back.

        Args:
            hold_s: How long one of this API and this transactional id is held at most; 0 lets it
                pass. None lets all pass.
        """
        self._hold = hold_s

    def release(self) -> None:
        """Hand over the held request now; returns when the broker has answered it."""
        self._call(self._release())

    async def _release(self) -> int:
        released, self._released = self._released, asyncio.Event()
        holding = [c for c in self._connections if c.is_holding]
        released.set()
        await asyncio.gather(*(connection.ended.wait() for connection in holding))
        return len(holding)

    def _on_some(
        self, share: float, chance: random.Random, do: Callable[[ProxiedConnection], None]
    ) -> int:
        async def all_of_them() -> int:
            among = [c for c in self._connections if not c.is_holding]
            chosen = chance.sample(among, min(len(among), max(1, round(share * len(among)))))
            for connection in chosen:
                do(connection)
            return len(chosen)

        return self._call(all_of_them())

    def _call(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    # ------------------------------------------------------------ the way of a frame

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's callback is a task"
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        connection = ProxiedConnection(writer, up_writer)
        self._connections.add(connection)
        pumps = [
            asyncio.ensure_future(self._pump_requests(reader, connection)),
            asyncio.ensure_future(self._pump_answers(up_reader, connection)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if connection.is_holding:
                await pumps[0]
                await asyncio.wait(pumps[1:], timeout=ANSWER_S)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._connections.discard(connection)
            connection.cut()
            connection.ended.set()
            self._tasks.discard(task)

    async def _pump_requests(
        self, reader: asyncio.StreamReader, connection: ProxiedConnection
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                connection.asked.append(_api_key(frame))
                api = APIS.get(_api_key(frame))
                if api is not None and self._hold is not None:
                    request = _decoded(frame)
                    transactional_id = _transactional_id_of(request)
                    held_s = self._hold(api, transactional_id) if transactional_id else 0.0
                    if held_s > 0:
                        received_s = time.monotonic()
                        await self._deliver_late(frame, held_s, connection)
                        self._note(api, request, received_s)
                        return
                await _pass_on(frame, connection.broker, connection.delay_s)

    async def _pump_answers(
        self, reader: asyncio.StreamReader, connection: ProxiedConnection
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                if connection.asked.popleft() in connection.loses_answer_to or connection.was_late:
                    return
                if not connection.is_holding:
                    await _pass_on(frame, connection.client, connection.delay_s)

    async def _deliver_late(
        self, frame: bytes, held_s: float, connection: ProxiedConnection
    ) -> None:
        connection.is_holding = True
        connection.client.transport.abort()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), held_s)
        connection.was_late = True
        await _pass_on(frame, connection.broker, 0.0)
        connection.broker.write_eof()  # the client's close travels behind its last request

    def _note(self, api: str, request: Any, received_s: float) -> None:
        transactional_id = _transactional_id_of(request)
        forwarded_s = time.monotonic()
        if api == END_TXN:
            self.late.append(
                LateEndTxn(
                    transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    request.committed,
                    received_s,
                    forwarded_s,
                )
            )
        else:
            self.late_joins.append(LateJoin(api, transactional_id, received_s, forwarded_s))

    async def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.cut()
        self._released.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWER_S)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def _pass_on(frame: bytes, writer: asyncio.StreamWriter, delay_s: float) -> None:
    if delay_s > 0:
        await asyncio.sleep(delay_s)
    writer.write(frame)
    await writer.drain()


def _api_key(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")


def _decoded(frame: bytes) -> Any:
    key, version, _, client_id_size = HEADER.unpack_from(frame, 4)
    schema: Any = load_request_schema(key, version)
    body = 4 + HEADER.size + max(client_id_size, 0)
    if schema.__flexible__:
        assert frame[body] == 0, "clients put no tagged fields into the header"
        body += 1
    entity, _ = entity_reader(schema)(frame[body:], 0)
    return entity


def _transactional_id_of(request: Any) -> str:
    """Whose a request is; empty for a Produce outside transactions."""
    names = ("transactional_id", "v3_and_below_transactional_id")
    return next((found for name in names if (found := getattr(request, name, None))), "")
