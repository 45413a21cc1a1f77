"""The files of a broker that is stopped: a snapshot keeps them, a reset restores them.

A broker's directory has seven files for each partition, most of them with a few bytes. So a reset
costs the system calls for each file, and they are few: it is created, written and closed. The old
file is removed and not overwritten, because two names in a directory may be one file.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from txn.storage.private import DIRECTORY_MODE, FILE_MODE, write_whole

SMALL_BYTES: Final = 32 << 10
"""Size up to which a file is kept in the memory of the process."""

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class KeptFiles:
    """The files of a directory at a moment, without times and rights, which a broker does not read.

    Args:
        source: The directory; no process writes to it meanwhile.
        aside: An empty directory, where large files are kept.
    """

    def __init__(self, source: Path, aside: Path) -> None:
        self._aside = str(aside)
        self._directories: list[str] = []
        self._small: list[tuple[str, bytes]] = []
        self._large: list[str] = []
        self._keep(str(source), "")

    def put_into(self, directory: Path) -> None:
        """Fill an empty directory."""
        for name in self._directories:
            os.mkdir(f"{directory}/{name}", DIRECTORY_MODE)
        for name, content in self._small:
            _write(f"{directory}/{name}", content)
        for name in self._large:
            shutil.copyfile(f"{self._aside}/{name}", f"{directory}/{name}")

    def _keep(self, source: str, below: str) -> None:
        for entry in os.scandir(f"{source}/{below}"):
            name = below + entry.name
            if entry.is_dir():
                self._directories.append(name)
                os.mkdir(f"{self._aside}/{name}", DIRECTORY_MODE)
                self._keep(source, f"{name}/")
            elif entry.stat().st_size <= SMALL_BYTES:
                self._small.append((name, Path(entry.path).read_bytes()))
            else:
                self._large.append(name)
                shutil.copyfile(entry.path, f"{self._aside}/{name}")


def empty(directory: str | Path) -> None:
    """Remove everything in a directory."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            empty(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, _NEW_FILE, FILE_MODE)
    try:
        write_whole(descriptor, content)
    finally:
        os.close(descriptor)
