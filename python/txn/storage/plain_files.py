"""Reading small files of a data directory, where something else may stand in their place."""

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
    descriptor = open_private(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"it is {kind_of_mode(mode)}, not a file")


def read_plain(path: Path, bytes_max: int = BYTES_MAX) -> bytes:
    """Read a regular file whole. Raises as `open_plain`, and OSError for a larger one."""
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > bytes_max:
            raise OSError(f"it has {size} bytes; {bytes_max} are the most that are read")
        return file.read(bytes_max)
