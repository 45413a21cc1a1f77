"""The machine's disk below real files: the contents that a power failure cannot take.

The files are real, in a directory in memory, and the Rust logs that write to them show every change
beforehand (`_core.watch_disk`). So the files hold the page cache: a process that dies leaves them.
Beside each file stand the bytes that are on the disk for sure, and every change since, in order;
beside each directory likewise its entries. A sync moves the changes that it found to the sure part.
A power failure writes the files anew, from the sure part and any of the changes since.

A sync may end later than it begins: `deferred` collects its `SyncMarks`, and only
`SyncMarks.force` makes them count.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from txn import _core


class DiskChange(NamedTuple):
    """A change of a file, as `_core.watch_disk` tells it."""

    kind: str
    position: int
    data: bytes


class Inode:
    """One file: its bytes on the disk, and the changes since."""

    __slots__ = ("forced", "since", "sure")

    def __init__(self, content: bytes = b"") -> None:
        self.sure = bytearray(content)
        self.since: list[DiskChange] = []
        self.forced = 0
        """Number of changes that were moved from `since` to `sure`."""

    @property
    def changes(self) -> int:
        return self.forced + len(self.since)

    def force(self, changes: int) -> None:
        count = changes - self.forced
        if count > 0:
            for change in self.since[:count]:
                apply(self.sure, change)
            del self.since[:count]
            self.forced = changes

    def left_by(self, chance: random.Random, bias: str) -> bytes:
        """Bytes that a power failure may leave."""
        content = bytearray(self.sure)
        if bias == "none":
            kept = self.since
        elif bias == "all":
            kept = []
        elif chance.random() < 0.6:
            kept = self.since[: chance.randint(0, len(self.since))]
        else:
            kept = [_torn(each, chance) for each in self.since if chance.random() < 0.6]
        for change in kept:
            apply(content, change)
        return bytes(content)


def _torn(change: DiskChange, chance: random.Random) -> DiskChange:
    """The change, or a beginning of it."""
    if change.kind != "write" or chance.random() < 0.5:
        return change
    return change._replace(data=change.data[: chance.randint(0, len(change.data))])


def apply(content: bytearray, change: DiskChange) -> None:
    """Make a change to bytes; a hole reads as zeros."""
    match change.kind:
        case "create":
            content.clear()
        case "truncate":
            del content[change.position :]
            content.extend(bytes(change.position - len(content)))
        case "write":
            content.extend(bytes(max(change.position - len(content), 0)))
            content[change.position : change.position + len(change.data)] = change.data


class DirectoryEntries:
    """One directory: its entries on the disk, and their changes since."""

    __slots__ = ("entries", "forced", "since", "sure")

    def __init__(self) -> None:
        self.entries: dict[str, Inode] = {}
        self.sure: dict[str, Inode] = {}
        self.since: list[tuple[str, Inode | None]] = []
        """Names, with their new file or None; a rename is two, of which a failure takes both."""
        self.forced = 0

    @property
    def changes(self) -> int:
        return self.forced + len(self.since)

    def note(self, *changes: tuple[str, Inode | None]) -> None:
        for name, inode in changes:
            _enter(self.entries, name, inode)
        if len(changes) == 2:
            self.since.append((f"{changes[0][0]}\0{changes[1][0]}", changes[1][1]))
        else:
            self.since += changes

    def force(self, changes: int) -> None:
        count = changes - self.forced
        if count > 0:
            self.sure = self._after(self.since[:count])
            del self.since[:count]
            self.forced = changes

    def left_by(self, chance: random.Random, bias: str) -> dict[str, Inode]:
        """Entries that a power failure may leave: they arrive in order."""
        if bias == "any":
            return self._after(self.since[: chance.randint(0, len(self.since))])
        return self._after(self.since if bias == "none" else [])

    def _after(self, changes: list[tuple[str, Inode | None]]) -> dict[str, Inode]:
        entries = dict(self.sure)
        for name, inode in changes:
            former, _, new = name.rpartition("\0")
            if former:
                entries.pop(former, None)
            _enter(entries, new, inode)
        return entries


def _enter(entries: dict[str, Inode], name: str, inode: Inode | None) -> None:
    if inode is None:
        entries.pop(name, None)
    else:
        entries[name] = inode


class SyncMarks:
    """The changes that one sync found: they are on the disk when it ends."""

    def __init__(self) -> None:
        self.is_forced = False
        self._found: list[tuple[Inode | DirectoryEntries, int]] = []

    def note(self, held: Inode | DirectoryEntries) -> None:
        self._found.append((held, held.changes))

    def cover(self, earlier: "SyncMarks") -> None:
        """Have this sync end with the changes of another that began before it."""
        self._found = earlier._found + self._found

    def force(self) -> None:
        """End the sync."""
        for held, changes in self._found:
            held.force(changes)
        self.is_forced = True


class Deferred:
    """A block in which a machine collects the marks of syncs. Every tick of every log is one."""

    __slots__ = ("_before", "_machine")

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine
        self._before: SyncMarks | None = None

    def __enter__(self) -> SyncMarks:
        machine = self._machine
        self._before = machine.marks
        marks = machine.marks = SyncMarks()
        return marks

    def __exit__(self, *_: object) -> None:
        self._machine.marks = self._before


Refuses = Callable[[str, str, str], tuple[float, int] | None]
"""From a change's kind, directory and file: None, or the part of a write that arrives and the
error.
"""


class Machine:
    """The files of one machine below a root."""

    def __init__(self, root: Path, refuses: Refuses) -> None:
        self.root = root
        self._root = str(root)
        self._refuses = refuses
        self._directories: dict[str, DirectoryEntries] = {}
        self._names = DirectoryEntries()
        """The root's entries; their files stand for directories."""
        self.marks: SyncMarks | None = None
        """Collects the syncs; None: each counts at once."""
        self.versions: Counter[str] = Counter()
        """Number of changes in each directory so far."""
        _core.watch_disk(self._root, self._before)

    def release(self) -> None:
        """Watch no longer, and remove the files."""
        _core.release_disk(self._root)
        shutil.rmtree(self.root)

    def deferred(self) -> "Deferred":
        """Collect the marks of the syncs in the block, which do not count until they are forced."""
        return Deferred(self)

    def _before(
        self, kind: str, path: str, target: str, position: int, data: bytes
    ) -> tuple[int, int] | None:
        parent, _, name = path.rpartition("/")
        whole = _last(path if kind == "sync_directory" else parent)
        refusal = self._refuses(kind, whole, name)
        if refusal is not None:
            part, error = refusal
            written = int(len(data) * part)
            if written and kind == "write":
                self._note("write", whole, name, "", position, data[:written])
            return written, error
        if kind == "sync_directory":
            self._mark(self._names if path == self._root else self._directory(whole))
        else:
            self._note(kind, whole, name, target, position, data)
        return None

    def _note(
        self, kind: str, whole: str, name: str, target: str, position: int, data: bytes
    ) -> None:
        directory = self._directory(whole)
        self.versions[whole] += 1
        inode = directory.entries.get(name)
        match kind:
            case "sync":
                if inode is not None:
                    self._mark(inode)
            case "remove":
                if inode is not None:
                    directory.note((name, None))
            case "rename":
                if inode is not None:
                    directory.note((name, None), (_last(target), inode))
            case _:
                if inode is None:
                    inode = Inode()
                    directory.note((name, inode))
                if kind != "create" or inode.since or inode.sure:
                    inode.since.append(DiskChange(kind, position, data))

    def _mark(self, held: Inode | DirectoryEntries) -> None:
        marks = self.marks
        if marks is None:
            held.force(held.changes)
        else:
            marks.note(held)

    def _directory(self, name: str) -> DirectoryEntries:
        directory = self._directories.get(name)
        if directory is None:
            directory = self._directories[name] = DirectoryEntries()
            self._names.note((name, Inode()))
        return directory

    def sure_bytes(self, directory: str) -> dict[str, bytes]:
        """The files of a directory as a power failure would leave them at the least."""
        known = self._directories.get(directory)
        if known is None or directory not in self._names.sure:
            return {}
        return {name: bytes(inode.sure) for name, inode in known.sure.items()}

    def lose_power(self, chance: random.Random, bias: str) -> None:
        """Leave the files as a power failure does.

        Args:
            chance: For `bias` "any".
            bias: Of the changes that no sync has found, "all", "none" or "any" are lost.
        """
        left = self._names.left_by(chance, bias)
        names = DirectoryEntries()
        for name, directory in sorted(self._directories.items()):
            if name not in left:
                self._remove(name)
                continue
            entries = directory.left_by(chance, bias)
            self.put(name, {each: entries[each].left_by(chance, bias) for each in sorted(entries)})
            names.sure[name] = names.entries[name] = left[name]
        self._names = names
        self._directories = {
            name: directory for name, directory in self._directories.items() if name in left
        }

    def put(self, name: str, files: dict[str, bytes]) -> None:
        """Have a directory hold these files, on the disk."""
        self._remove(name)
        write_all(f"{self._root}/{name}", files)
        directory = self._directories[name] = DirectoryEntries()
        for each, content in files.items():
            directory.sure[each] = directory.entries[each] = Inode(content)
        if name not in self._names.entries:
            self._names.note((name, Inode()))
        self._names.force(self._names.changes)

    def replace(self, directory: str, name: str, content: bytes) -> None:
        """Have a file hold something else, not synced."""
        inode = self._directory(directory).entries[name]
        inode.since += DiskChange("truncate", 0, b""), DiskChange("write", 0, content)
        self.versions[directory] += 1
        (self.root / directory / name).write_bytes(content)

    def settle(self, name: str) -> None:
        """Have a directory on the disk as it is."""
        directory = self._directories.get(name)
        if directory is not None:
            self._names.force(self._names.changes)
            directory.force(directory.changes)
            for inode in directory.entries.values():
                inode.force(inode.changes)

    def files(self, name: str, suffix: str = "") -> dict[str, bytes]:
        """The files of a directory as they are, or those whose names end so."""
        return read_all(f"{self._root}/{name}", suffix)

    def _remove(self, name: str) -> None:
        self.versions[name] += 1
        shutil.rmtree(f"{self._root}/{name}", ignore_errors=True)


def _last(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def read_all(directory: str, suffix: str = "") -> dict[str, bytes]:
    """The contents of the files in a directory, by name; none if it is not there."""
    found = {}
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return {}
    for name in names:
        if name.endswith(suffix):
            with open(f"{directory}/{name}", "rb", buffering=0) as file:
                found[name] = file.readall()
    return found


def write_all(directory: str, files: Mapping[str, bytes]) -> None:
    """Make a directory with these files."""
    os.mkdir(directory, 0o700)
    for name, content in files.items():
        with open(f"{directory}/{name}", "wb", buffering=0) as file:
            file.write(content)
