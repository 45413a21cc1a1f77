"""How a long-running command ends: by Ctrl-C, by SIGTERM, or when its reader leaves."""

import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt in the block; leave ignored ones alone."""
    before = {
        number: signal.signal(number, _interrupt)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_: int, __: object) -> NoReturn:
    """Raise an exception with a value: `signal.default_int_handler` makes one without.

    Before Python 3.12 confluent-kafka keeps the value alone of an exception that leaves a callback.
    Without a value it raises a SystemError.
    """
    raise KeyboardInterrupt


def is_reader_gone() -> bool:
    """Return whether standard output is a pipe without a reader."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # it is no file
        return False
    look = select.poll()
    look.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0))
