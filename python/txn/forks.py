"""Forked children: a parent's brokers and clients stay the parent's.

A fork copies memory and shares descriptors, but only the forking thread goes on in the child. The
copy of a broker or of a client there has no threads, and its locks may be held by threads that are
gone. Its files, sockets and epoll sets are the parent's. So a child never closes, frees or uses a
copy: `abandon` is called on it once, and its memory is kept until the child ends.

Only forks that Python knows of are seen (`os.fork`, `multiprocessing`, gunicorn, uWSGI).
"""

import os
from typing import Any, Final, Protocol
from weakref import WeakSet


class Runs(Protocol):
    """Something with threads, sockets or locks of its own."""

    def abandon(self, parent: int) -> None:
        """Become unusable in a child of process `parent`, and close the descriptors that the child
        shares.

        Called in the child, right after the fork. Must take no lock that another thread may hold.
        """
        ...


_running: Final[WeakSet[Any]] = WeakSet()


def watch(running: Runs) -> None:
    """Have something abandoned in forked children, for as long as it lives."""
    _running.add(running)


def forget(running: Runs) -> None:
    """Leave something alone that has been closed."""
    _running.discard(running)


def _abandon_all() -> None:
    left = list(_running)
    _running.clear()
    for each in left:
        _keep_for_ever(each)
        each.abandon(os.getppid())


def _keep_for_ever(thing: object) -> None:
    """Keep an object from being freed, at the end of the interpreter too. Freeing it would join
    threads that do not exist, and close descriptors by numbers that belong to others by then.
    """
    import ctypes  # only here: few programs fork

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


os.register_at_fork(after_in_child=_abandon_all)
