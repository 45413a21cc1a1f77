"""Writes lines to a pipe without blocking the threads that log.

A pipe whose reader has stopped buffers 64 KiB, and then blocks each thread that writes to it. So
one thread writes, and the others put their lines into a queue. Lines that do not fit the queue are
dropped and counted. A line with the count is written where the lines are missing.
"""

import atexit
import io
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final, TextIO, cast

QUEUE_BYTES_MAX: Final = 256 << 10
"""Bytes that wait at most; a line alone may have more."""

FLUSH_S: Final = 1.0
"""Time that the end of a program waits for the last lines."""


class LineWriter:
    """Writes lines to a descriptor, in order, on a thread of its own. Any thread may call it.

    In a forked child it is empty, and begins with a thread of the child's: the lines that wait are
    the parent's to write.

    Args:
        descriptor: Takes the bytes; it stays open.
        describe_left_out: Returns a line with the number of lines left out.
    """

    def __init__(
        self,
        descriptor: int,
        describe_left_out: Callable[[int], str] = lambda count: f"{count} lines were left out\n",
    ) -> None:
        self._descriptor = descriptor
        self._describe_left_out = describe_left_out
        self.failure: OSError | None = None
        """The error of the last write, if it failed."""
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._left_out = 0
        """Lines that found no room behind those that wait."""
        self._lost = 0
        """Lines before them that the descriptor has refused."""
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def put(self, content: bytes) -> None:
        """Queue bytes for writing; never blocks."""
        with self._changed:
            is_full = self._waiting and self._bytes + len(content) > QUEUE_BYTES_MAX
            if is_full or self._left_out:  # none goes ahead of one that was left out
                self._left_out += content.count(b"\n")
                return
            self._waiting.append(content)
            self._bytes += len(content)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, `FLUSH_S` at most."""
        ends = time.monotonic() + FLUSH_S
        with self._changed:
            while self._thread is not None and (self._waiting or self._is_writing):
                left = ends - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="txn-lines", daemon=True)
        with suppress(RuntimeError):  # the system has none; the next line tries again
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                contents, self._waiting, self._bytes = self._waiting, [], 0
                if self._lost:
                    contents.insert(0, self._describe_left_out(self._lost).encode())
                if self._left_out:
                    contents.append(self._describe_left_out(self._left_out).encode())
                self._lost = self._left_out = 0
                self._is_writing = True
            lost = sum(content.count(b"\n") for content in contents if not self._write(content))
            with self._changed:
                self._lost = lost
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, content: bytes) -> bool:
        try:
            while content:
                content = content[self._write_part(content) :]
        except OSError as error:
            self.failure = error
            return False
        self.failure = None
        return True

    def _write_part(self, content: bytes) -> int:
        try:
            return os.write(self._descriptor, content)
        except BlockingIOError:  # another program has made it so for all that share it
            import select

            writable = select.poll()
            writable.register(self._descriptor, select.POLLOUT)
            writable.poll()
            return 0


class _Queue(io.RawIOBase):
    """Takes the bytes of a text stream for a writer."""

    def __init__(self, writer: LineWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """Queue the bytes."""
        taken = bytes(content)
        self._writer.put(taken)
        return len(taken)

    def fileno(self) -> int:
        """The descriptor that gets the bytes."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return True if that is a terminal's."""
        return os.isatty(self._descriptor)


def line_stream(stream: TextIO, describe_left_out: Callable[[int], str]) -> TextIO:
    """Return a stream that writes to the same descriptor, whole lines at a time, without waiting.

    The end of the program waits `FLUSH_S` for the last lines.

    Args:
        stream: A stream with a descriptor of its own.
        describe_left_out: As `LineWriter` takes it.
    """
    stream.flush()
    writer = LineWriter(stream.fileno(), describe_left_out)
    atexit.register(writer.flush)
    queue = cast("BinaryIO", _Queue(writer, stream.fileno()))
    return io.TextIOWrapper(queue, stream.encoding, "backslashreplace", line_buffering=True)
