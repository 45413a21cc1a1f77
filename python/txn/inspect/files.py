"""Reading files that are known by their names alone: plain ones only, and none of absurd size.

A directory may hold a FIFO that blocks its reader, a device, a link to itself, or a sparse file of
a tebibyte.
"""

import os
import stat
from pathlib import Path
from typing import Final

from txn.inspect.layout import FileKind, PartitionFiles, kind_of

MIB: Final = 1 << 20

BYTES_MAX: Final = {
    FileKind.INDEX: 256 * MIB,
    FileKind.TIME_INDEX: 256 * MIB,
    FileKind.TXN_INDEX: 256 * MIB,
    FileKind.SNAPSHOT: 256 * MIB,  # of more than five million producers
    FileKind.CHECKPOINT: 256 * MIB,  # of more than a million partitions
    FileKind.LEADER_EPOCHS: 64 * MIB,
    FileKind.TXN_INDEX_SUMS: 64 * MIB,
}
"""Larger than any such file of a broker's; of other files `TEXT_BYTES_MAX`."""

TEXT_BYTES_MAX: Final = 1 * MIB

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)


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
        most = TEXT_BYTES_MAX if kind is None else BYTES_MAX.get(kind, TEXT_BYTES_MAX)
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
        what = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        raise UnusableError(f"it is {what}, not a file")
