"""Checks that a data directory is still at its path.

Open files stay open when the directory is moved, removed or replaced, but a path is resolved each
time. So a new file would be in another directory than the open ones. The lock file identifies the
directory: no other file has its inode while the broker holds it open. See also
`rust/txn-log/src/in_place.rs`.
"""

from pathlib import Path

from txn.storage.directory import LOCK


class DirectoryPlace:
    """The lock file of a data directory, as it was when this was made.

    Attributes:
        lock_file: Its device and inode; None where there is none.
    """

    __slots__ = ("_path", "lock_file")

    def __init__(self, root: Path) -> None:
        self._path = root / LOCK
        self.lock_file = self._find(None)

    def is_kept(self) -> bool:
        """Return False if it is not there. A path that cannot be read proves nothing."""
        return self._find(self.lock_file) == self.lock_file

    def require_kept(self) -> None:
        """Raise OSError unless it is there."""
        if not self.is_kept():
            raise FileNotFoundError(2, "the data directory was moved, removed or replaced")

    def _find(self, unknown: tuple[int, int] | None) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return unknown
        return found.st_dev, found.st_ino
