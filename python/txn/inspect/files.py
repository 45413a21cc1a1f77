"""Reading files that are known by their names alone: plain ones only, and none of absurd size.

A directory may hold a FIFO that blocks its reader, a device, a link to itself, or a sparse file of
a tebibyte.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from txn.inspect.layout import FileKind, PartitionFiles, kind_of
from txn.storage import plain_files

MIB: Final = 1 << 20

BYTES_MAX: Final[Mapping[FileKind | None, int]] = {
    FileKind.INDEX: 256 * MIB,
    FileKind.TIME_INDEX: 256 * MIB,
    FileKind.TXN_INDEX: 256 * MIB,
    FileKind.SNAPSHOT: 256 * MIB,  # of more than five million producers
    FileKind.CHECKPOINT: plain_files.BYTES_MAX,
    FileKind.LEADER_EPOCHS: 64 * MIB,
    FileKind.TXN_INDEX_SUMS: 64 * MIB,
}
"""Larger than any such file of a broker's; of other files `plain_files.TEXT_BYTES_MAX`."""


class UnusableError(ValueError):
    """The file does not match its name; the message has the reason."""


def require_plain(path: Path) -> None:
    """Refuse any file but a plain one, without opening it. Raises UnusableError, OSError."""
    _require_plain(path.stat().st_mode)


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises UnusableError, OSError."""
    require_plain(path)  # before opening, which moves some devices
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        _require_plain(status.st_mode)
        kind = kind_of(path)
        most = BYTES_MAX.get(kind, plain_files.TEXT_BYTES_MAX)
        if status.st_size > most:
            raise UnusableError(f"it has {status.st_size:,} bytes; none is larger than {most:,}")
        return file.read(most)


def read_named(files: PartitionFiles, offset: int, suffix: str) -> bytes:
    """Read a partition's file named by an offset; empty if it is not there.

    Raises:
        UnusableError: it is no plain file, or of absurd size.
        OSError: it cannot be read.
    """
    path = files.file(offset, suffix)
    return read_bytes(path) if path.name in files.names else b""


def read_text(path: Path) -> str:
    """Read a text file. Raises UnusableError and other ValueErrors, OSError."""
    return read_bytes(path).decode()


def _require_plain(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UnusableError(f"it is {plain_files.kind_of_mode(mode)}, not a file")
