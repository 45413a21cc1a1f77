"""Directories of test brokers and runs, which are removed however their process ends.

Each directory is locked while it is in use. A process that was killed loses its locks, so
the next process that opens a directory removes all unlocked ones.
"""

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from txn.testing.kept_files import empty

PREFIX: Final = "txn-test-"
SHARED_MEMORY: Final = Path("/dev/shm")
"""Where it is there, data directories live in memory: an fsync costs nothing."""

YOUNG_S: Final = 10.0
"""Age up to which a directory may still wait for the lock of its maker."""


class ScratchDirectory:
    """A new directory, removed by `close`, by a collection, or at the end of the interpreter.

    Args:
        in_memory: Put it into memory where the machine has `/dev/shm`.

    Attributes:
        path: The directory.
        is_open: False after `close`.
    """

    def __init__(self, *, in_memory: bool) -> None:
        parent = SHARED_MEMORY
        if not in_memory or not os.access(parent, os.W_OK | os.X_OK):
            parent = Path(tempfile.gettempdir())
        _sweep_once(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._pid = os.getpid()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.is_open = True
        _open.add(self)

    def close(self) -> None:
        """Remove it. Harmless when repeated, and in a forked child."""
        if self.is_open and self._pid == os.getpid():
            self.is_open = False
            _open.discard(self)
            _remove(self.path)
            os.close(self._lock)

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()


_open: Final[weakref.WeakSet[ScratchDirectory]] = weakref.WeakSet()


@atexit.register
def _close_open() -> None:
    """Runs behind the same of `broker.py`, which imports this module and writes until then."""
    for place in list(_open):
        place.close()


def sweep(parent: Path, young_s: float = YOUNG_S) -> None:
    """Remove the directories that a killed process left more than `young_s` seconds ago."""
    with suppress(OSError):
        left = [entry for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
        for entry in left:
            _remove_if_left(entry, young_s)


_sweep_once = functools.cache(sweep)


def _remove(directory: str | Path) -> None:
    """Remove a directory, or as much of it as can be."""
    try:
        empty(directory)
        os.rmdir(directory)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_if_left(entry: os.DirEntry[str], young_s: float) -> None:
    with suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        if found.st_uid != os.getuid() or time.time() - found.st_ctime < young_s:
            return
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(entry.path)
        finally:
            os.close(descriptor)
