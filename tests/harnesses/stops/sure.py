"""The part of a directory that is on the disk for sure, and the rest that a power failure may
leave.

As POSIX promises it, and no more. Of a file: the bytes it had when the last sync of it began that
has returned. Of a directory: the names it had when the last sync of it began. A file that is
written and synced in a directory that is not is a file without a name. A name that is synced of a
file that is not stands for an empty file. File systems keep more, each of its own: that much more
may remain after a power failure.
"""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from harnesses.black_box.power import OTHER_BOOT


@dataclass(frozen=True, slots=True)
class SureState:
    """The state that a sync makes sure once it has returned."""

    number: int
    file: int
    content: bytes | dict[str, int]
    """The bytes of a file, or the names of a directory and the files they stand for."""


class Sure:
    """The part of a directory that is on the disk for sure. Files are known by their inodes."""

    def __init__(self) -> None:
        self._contents: dict[int, tuple[int, bytes | dict[str, int]]] = {}
        self._root = 0
        self._begun = 0
        self._kept_open: dict[int, int] = {}
        """So that no number of an inode is given to another file."""

    def take_all(self, root: Path) -> None:
        """Take a directory as it is: its writer has synced it."""
        for directory, _, names in os.walk(root):
            self.end(self.begin(directory))
            for name in names:
                self.end(self.begin(os.path.join(directory, name)))
        self._root = root.stat().st_ino

    def keep(self, root: Path) -> None:
        """Go on with a directory of which this is sure.

        A file without a name has no number any more that is its own; it may have its name again
        after a power failure.
        """
        for directory, _, names in os.walk(root):
            for path in (directory, *(os.path.join(directory, name) for name in names)):
                self._keep_open(os.open(path, os.O_RDONLY))

        def renumbered(file: int) -> int:
            return file if file in self._kept_open else -abs(file)

        for file, (number, content) in list(self._contents.items()):
            del self._contents[file]
            if isinstance(content, dict):
                content = {name: renumbered(each) for name, each in content.items()}
            self._contents[renumbered(file)] = number, content
            self._begun = max(self._begun, number)

    def begin(self, path: str) -> SureState:
        """Note the state that a sync is to make sure."""
        self._begun += 1
        file = self._keep_open(os.open(path, os.O_RDONLY))
        descriptor = self._kept_open[file]
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            return SureState(self._begun, file, self._names(descriptor))
        return SureState(self._begun, file, os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def end(self, synced: SureState) -> None:
        """Take the noted state for sure."""
        number, _ = self._contents.get(synced.file, (0, b""))
        if synced.number > number:
            self._contents[synced.file] = synced.number, synced.content

    def of(self, file: int) -> bytes | dict[str, int] | None:
        """The sure state of a file or a directory; None if there is none."""
        _, content = self._contents.get(file, (0, None))
        return content

    def _names(self, directory: int) -> dict[str, int]:
        names = {}
        for name in os.listdir(directory):
            with suppress(FileNotFoundError):  # another thread removed it or gave it another name
                names[name] = self._keep_open(os.open(name, os.O_RDONLY, dir_fd=directory))
        return names

    def _keep_open(self, descriptor: int) -> int:
        file = os.fstat(descriptor).st_ino
        if self._kept_open.setdefault(file, descriptor) != descriptor:
            os.close(descriptor)
        return file

    def to_json(self) -> Any:
        contents = [
            [file, content.decode("latin-1") if isinstance(content, bytes) else content]
            for file, (_, content) in self._contents.items()
        ]
        return [self._root, contents]

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        sure = cls()
        sure._root, contents = fields
        for file, content in contents:
            is_text = isinstance(content, str)
            sure._contents[file] = 1, content.encode("latin-1") if is_text else content
        return sure


# ---------------------------------------------------------------- what is left


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """The unsure data that a power failure takes."""

    names: Callable[[], bool]
    """True if it takes the names of a directory."""
    tail: Callable[[bytes], bytes]
    """The form of the bytes of a file behind those that are sure."""


def _nothing(_: bytes) -> bytes:
    return b""


def _half(tail: bytes) -> bytes:
    return tail[: len(tail) // 2]


LOSSES: Final = {
    "all": PowerLoss(lambda: True, _nothing),
    "bytes": PowerLoss(lambda: False, _nothing),
    "names": PowerLoss(lambda: True, bytes),
    "halves": PowerLoss(lambda: False, _half),
    "zeros": PowerLoss(lambda: False, lambda tail: bytes(len(tail))),
    "nothing": PowerLoss(lambda: False, bytes),
}


def some_of(chance: random.Random) -> PowerLoss:
    """A loss that is another one for every file and directory."""
    losses = list(LOSSES.values())
    return PowerLoss(lambda: chance.random() < 0.5, lambda tail: chance.choice(losses).tail(tail))


def lose_power(root: Path, sure: Sure, loss: PowerLoss) -> None:
    """Turn a directory, whose broker is dead, into its state at the next boot."""
    left = root.with_name(root.name + ".left")
    _Failure(root, sure, loss).rebuild(left)
    shutil.rmtree(root)
    left.rename(root)
    lock = root / ".lock"
    if lock.exists() and lock.read_bytes():  # it names the boot of this machine that has passed
        lock.write_bytes(OTHER_BOOT)


class _Failure:
    def __init__(self, root: Path, sure: Sure, loss: PowerLoss) -> None:
        self._sure = sure
        self._loss = loss
        self._paths = {path.lstat().st_ino: path for path in (root, *root.rglob("*"))}
        self._root = root.lstat().st_ino

    def rebuild(self, left: Path) -> None:
        self._rebuild_directory(self._root, left)

    def _rebuild_directory(self, directory: int, left: Path) -> None:
        left.mkdir()
        for name, file in sorted(self._names(directory).items()):
            path = self._paths.get(file)
            if (path is not None and path.is_dir()) or isinstance(self._sure.of(file), dict):
                self._rebuild_directory(file, left / name)
            else:
                (left / name).write_bytes(self._content(file))

    def _names(self, directory: int) -> dict[str, int]:
        names = self._sure.of(directory)
        if directory in self._paths and not self._loss.names():
            return {path.name: path.lstat().st_ino for path in self._paths[directory].iterdir()}
        return names if isinstance(names, dict) else {}

    def _content(self, file: int) -> bytes:
        sure = self._sure.of(file) or b""
        assert isinstance(sure, bytes)
        written = self._paths[file].read_bytes() if file in self._paths else sure
        if not written.startswith(sure):  # written anew, or cut
            return sure
        return sure + self._loss.tail(written[len(sure) :])
