"""HTTP on one thread: many connections side by side, each with one request and its answer.

No client delays another. A request is read as it arrives, an answer is written as the client reads
it, and each of the two has a deadline. The number of connections is bounded. A further connection
replaces the oldest one that has not sent its request.

The requests that are whole in the same round are answered together, so that many of one kind cost
no more than one.

A request is read up to its empty line. Headers are ignored, a body is not read, and every answer
closes the connection.
"""

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

HEAD_BYTES_MAX: Final = 8 << 10
REQUEST_S: Final = 2.0
"""A request has to arrive within this time."""
RESPONSE_S: Final = 5.0
"""A client has to take the answer within this time."""
CONNECTIONS_MAX: Final = 64
ACCEPTED_MAX: Final = 16
"""Connections that one round accepts: each has its turn to be read before a flood replaces it."""
PAUSE_S: Final = 0.1
"""Pause of a process that has no descriptor for another connection."""

Head = bytes | None
"""The head of a request; None if it is too long."""

AnswerAll = Callable[[Sequence[Head]], Iterator[tuple[int, bytes]]]
"""Yields the answers to the requests of a round, each with its position; the first is sent first.

A connection whose request gets no answer is closed.
"""


class _Exchange:
    """A connection, its request and its answer. Its calls raise OSError: the client has left."""

    __slots__ = ("_head", "_unsent", "deadline", "is_answered", "socket")

    def __init__(self, client: socket.socket) -> None:
        client.setblocking(False)
        self.socket = client
        self.deadline = time.monotonic() + REQUEST_S
        self.is_answered = False
        self._head = bytearray()
        self._unsent = memoryview(b"")

    @property
    def head(self) -> Head:
        """What was received."""
        return bytes(self._head) if len(self._head) <= HEAD_BYTES_MAX else None

    def read(self) -> bool:
        """Read on; return True if the head is whole, or too long."""
        received = self.socket.recv(HEAD_BYTES_MAX)
        if not received:
            raise ConnectionResetError
        self._head += received
        return b"\r\n\r\n" in self._head or len(self._head) > HEAD_BYTES_MAX

    def answer(self, data: bytes) -> bool:
        """Begin to write an answer; return True if all of it is written."""
        self.is_answered = True
        self.deadline = time.monotonic() + RESPONSE_S
        self._unsent = memoryview(data)
        return self.write()

    def write(self) -> bool:
        """Write on; return True if all is written."""
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        return not self._unsent


class HttpRounds:
    """Answers requests on the thread that calls `run`, until it is stopped.

    Args:
        listening: Accepts the clients.
        answer_all: Makes the answers.
    """

    def __init__(self, listening: socket.socket, answer_all: AnswerAll) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._answer_all = answer_all
        self._selector = selectors.PollSelector()  # it has no descriptor that a fork would share
        self._exchanges: dict[_Exchange, None] = {}
        """The oldest first."""
        self._is_stopped = False

    def stop(self) -> None:
        """Stop `run` once the answers that were begun are written.

        The caller then shuts down the listening socket, which wakes `run`.
        """
        self._is_stopped = True

    def run(self) -> None:
        """Serve; to be called once."""
        # A program may let SIGPIPE end it, and a write to a client that has left raises the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        self._selector.register(self._listening, selectors.EVENT_READ)
        while not self._is_stopped:
            self._round()
        self._selector.unregister(self._listening)
        for exchange in [each for each in self._exchanges if not each.is_answered]:
            self._close(exchange)
        while self._exchanges:
            self._round()
        self._selector.close()

    def _round(self) -> None:
        due = min((each.deadline for each in self._exchanges), default=None)
        wait_s = None if due is None else max(due - time.monotonic(), 0)
        events = self._selector.select(wait_s)
        now = time.monotonic()
        exchanges = [key.data for key, _ in events if key.data is not None]
        self._answer([each for each in exchanges if self._is_whole(each)])
        # Only those that were late when the round began: it may itself have taken long.
        for exchange in [each for each in self._exchanges if each.deadline <= now]:
            self._close(exchange)
        if len(events) > len(exchanges):
            self._accept()

    def _is_whole(self, exchange: _Exchange) -> bool:
        """Read or write on; return True if a request is there to be answered."""
        try:
            if not exchange.is_answered:
                return exchange.read()
            if exchange.write():
                self._close(exchange)
        except BlockingIOError:
            pass
        except OSError:
            self._close(exchange)
        return False

    def _answer(self, whole: Sequence[_Exchange]) -> None:
        left = dict(enumerate(whole))
        for position, data in self._answer_all([each.head for each in whole]):
            exchange = left.pop(position)
            try:
                is_written = exchange.answer(data)
            except OSError:
                is_written = True
            if is_written:
                self._close(exchange)
            else:
                self._selector.modify(exchange.socket, selectors.EVENT_WRITE, exchange)
        for exchange in left.values():
            self._close(exchange)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                client, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:  # stopped, or the process has no descriptor left
                time.sleep(0 if self._is_stopped else PAUSE_S)
                return
            if len(self._exchanges) >= CONNECTIONS_MAX:
                waiting = (each for each in self._exchanges if not each.is_answered)
                self._close(next(waiting, next(iter(self._exchanges))))
            exchange = _Exchange(client)
            self._exchanges[exchange] = None
            self._selector.register(client, selectors.EVENT_READ, exchange)

    def _close(self, exchange: _Exchange) -> None:
        del self._exchanges[exchange]
        self._selector.unregister(exchange.socket)
        exchange.socket.close()
