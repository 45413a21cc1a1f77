"""Forked children: a parent's brokers and clients stay the parent's.

A fork copies memory and shares descriptors, but only the forking thread continues in the child. The
copy of a broker or of a client there has no threads, and its locks may be held by threads that are
gone. Its files, sockets and epoll sets are the parent's. So a child never closes, frees or uses a
copy: it calls `_abandon` on the copy once, and keeps its memory until the child ends.

Only forks that Python knows of are seen (`os.fork`, `multiprocessing`, gunicorn, uWSGI).
"""

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol
from weakref import WeakSet

WAIT_S: Final = 5.0
"""Time that a fork waits for other threads, which load modules or are within a step."""


class Runs(Protocol):
    """Something with threads, sockets or locks of its own."""

    def _abandon(self, parent: int) -> None:
        """Become unusable in a child of process `parent`, and close the descriptors that the child
        shares.

        Called in the child, right after the fork. Must take no lock that another thread may hold.
        """
        ...


_running: Final[WeakSet[Any]] = WeakSet()
_held: Final[list[Any]] = []
"""All that runs, from the begin of a fork to its end. In the child a collection of garbage would
free one that the program has dropped before it is abandoned. Any other hook may cause one."""
_in_step: Final[set[int]] = set()
"""The threads that are within `one_step`, by their identifiers."""
_slow_modules: Final[set[str]] = set()
"""Modules that a fork has awaited in vain: one may run the whole program, and never be loaded."""


def watch(running: Runs) -> None:
    """Register an object to be abandoned in forked children, for as long as it lives."""
    _running.add(running)


def forget(running: Runs) -> None:
    """Leave something alone that has been closed."""
    _running.discard(running)


@contextmanager
def one_step() -> Iterator[None]:
    """Delay forks by other threads during the block: a socket that is not registered yet would
    stay open in a child. Not to be nested.
    """
    thread = threading.get_ident()
    _in_step.add(thread)
    try:
        yield
    finally:
        _in_step.discard(thread)


def _abandon_all() -> None:
    _in_step.clear()
    _held.extend(_running)  # those of another thread, made since the fork began
    _running.clear()
    for each in {id(each): each for each in _held}.values():
        _keep_for_ever(each)
        each._abandon(os.getppid())
    _held.clear()


def _prepare() -> None:
    if _running:
        import ctypes  # noqa: F401 (few programs fork; the child is to load no module)

        _hold_all()
        _await_others()  # last: nothing may begin between it and the fork


def _hold_all() -> None:
    while True:
        try:
            _held[:] = _running
            return
        except RuntimeError:  # another thread has added one meanwhile
            continue


def _await_others() -> None:
    """Wait until no other thread is within a step, or loads a module. In the child that module
    would be loaded by nobody, and awaited for ever. Brokers load handlers with the first request
    of each kind.
    """
    is_importing = _is_importing()
    ends_s = time.monotonic() + WAIT_S
    while (_in_step - {threading.get_ident()}) or (not is_importing and _others_import()):
        if time.monotonic() >= ends_s:
            _slow_modules.update(_modules_loading())
            return
        time.sleep(0.001)


def _others_import() -> bool:
    return not _modules_loading() <= _slow_modules


def _modules_loading() -> set[str]:
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    return {name for name, lock in list(locks.items()) if lock() is not None}


def _is_importing() -> bool:
    """Return True if the calling thread itself loads a module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _keep_for_ever(thing: object) -> None:
    """Keep an object from being freed, at the end of the interpreter too. Freeing it would join
    threads that do not exist, and close descriptors by numbers that belong to others by then.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


# Handlers run in reverse order. So `logging`, which holds its lock from its own handler on, is
# imported above: a module that makes a logger while it is loaded would never be done.
assert logging
os.register_at_fork(before=_prepare, after_in_parent=_held.clear, after_in_child=_abandon_all)
