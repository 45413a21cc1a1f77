"""A command that goes on until somebody stops it: Ctrl-C and SIGTERM, and a reader that leaves."""

import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Have SIGTERM raise KeyboardInterrupt in the `with` block, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_outlive_callbacks() -> Iterator[None]:
    """Raise KeyboardInterrupt in the `with` block also where confluent-kafka has lost it.

    Of a signal that comes while it runs a callback a SystemError is left.
    """
    came: list[int] = []

    def interrupt(number: int, _: object) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemError:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def has_lost_its_reader() -> bool:
    """Say whether standard output is a pipe that nobody reads any more."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # it is no file
        return False
    look = select.poll()
    look.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0))
