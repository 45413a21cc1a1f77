"""Reads small files of a data directory, and refuses a FIFO or device that has their name."""

import os
import stat
from pathlib import Path
from typing import Final

from txn.storage.private import open_private

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISREG, "a file"),
)


BYTES_MAX: Final = 1 << 30
"""A checkpoint of a million partitions with the longest names has some 290 MB."""

CHUNK_BYTES: Final = 4 << 10
"""Bytes that are asked for behind the size that a file had when it was opened."""

TEXT_BYTES_MAX: Final = 1 << 20
"""The bound of `meta.properties`, `partition.metadata` and other texts of a few lines."""


def kind_of_mode(mode: int) -> str:
    """Name the kind of file at a path, by the mode that `os.stat` gives."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")


def open_plain(path: Path, flags: int) -> int:
    """Open a regular file, made for this user alone if `flags` say so; return its descriptor.

    Raises:
        OSError: It cannot be opened, or it is no regular file. A FIFO is not waited for.
    """
    return _opened(path, flags)[0]


def read_plain(path: Path, bytes_max: int = BYTES_MAX) -> bytes:
    """Read a regular file whole. Raises as `open_plain`, and OSError for a larger one."""
    descriptor, size = _opened(path, os.O_RDONLY)
    try:
        if size > bytes_max:
            raise OSError(f"it has {size} bytes; {bytes_max} are the most that are read")
        # `read` makes room for all that it is asked for: a start would map and unmap 1 GiB for
        # each file of some lines.
        content = os.read(descriptor, size)
        while more := os.read(descriptor, min(CHUNK_BYTES, bytes_max - len(content))):
            content += more
    finally:
        os.close(descriptor)
    return content


def _opened(path: Path, flags: int) -> tuple[int, int]:
    """Do the work of `open_plain`; return descriptor and size."""
    descriptor = open_private(path, flags | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        return descriptor, found.st_size
    os.close(descriptor)
    raise OSError(f"it is {kind_of_mode(found.st_mode)}, not a file")
