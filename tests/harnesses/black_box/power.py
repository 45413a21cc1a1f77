"""A power failure, as far as one machine can play it: unsynced data is forgotten.

A SIGKILL leaves the page cache, so it cannot show a sync that is missing or comes too late.
Here the broker's process notes at every sync how long the log was when it began (from outside
the rules: `NativeLog.sync` is wrapped), and is killed at one of these moments, before or
after the sync. Then every log is cut back to a length between its synced length and its written
written: all of the rest lost, none of it, or a torn piece. The directory gets another boot
id, by which the next start knows that the power failed.

The reactors' own syncs (answers to Produce that wait for the disk) are no such moments. A test that
needs them has the process look how far they came: `note_reactors_syncs`.

This does not play a directory's entries, indexes and checkpoints, which are kept as written.
"""

import json
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from typing_extensions import override

from support.python_syncs import sync_each
from support.seam import Seam
from txn.broker.syncs import Failures
from txn.server.loop.scheduler import LoopScheduler
from txn.storage.base import PartitionLog
from txn.storage.native_log import NativeLog

OTHER_BOOT: Final = b"00000000-0000-0000-0000-000000000000\n"
SYNCS_LEFT_MAX: Final = 12
SYNCED: Final = "synced"
OPENED: Final = "opened"
BATCH_START: Final = struct.Struct(">qi")
"""Head of a batch: its base offset, and how many bytes follow."""


def notes_of(data: Path) -> Path:
    """The file in which a broker on this directory notes its syncs: lines of a kind, a log's path
    and a length.
    """
    return data.with_name(data.name + ".synced")


def _note(data: Path, what: str, lengths: Mapping[Path, int]) -> None:
    lines = [json.dumps([what, str(path), length]) + "\n" for path, length in lengths.items()]
    with notes_of(data).open("a") as notes:
        notes.write("".join(lines))


def _lengths(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in directory.glob("*.log")}


def _synced(notes: Path) -> dict[str, int]:
    """Length of each log that is on the disk."""
    sure: dict[str, int] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, path, length = json.loads(line)
        if what == SYNCED:
            sure[path] = max(sure.get(path, 0), length)
        else:  # a recovery may have cut it
            sure[path] = min(sure.get(path, 0), length)
    return sure


def note_syncs(seam: Seam) -> None:
    """Have every sync of this process noted; on SIGUSR1, die at one of the next."""
    chance = random.Random()
    lock = threading.Lock()
    logs: dict[Path, Any] = {}
    left: list[int] = []
    """Empty, or how many moments are left until the power fails."""

    def arm(_number: int, _frame: FrameType | None) -> None:
        left[:] = [chance.randrange(SYNCS_LEFT_MAX)]

    def pass_moment() -> None:
        with lock:
            if left and left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[:] = [left[0] - 1] if left else []

    @seam.instead_of(NativeLog)
    class NotesItsSyncs(NativeLog):
        __slots__ = ("_directory",)

        def __init__(self, root: Path, topic: str, index: int, **settings: Any) -> None:
            super().__init__(root, topic, index, **settings)
            self._directory = root / f"{topic}-{index}"
            logs[self._directory] = self.log
            _note(root, OPENED, _lengths(self._directory))

        @override
        def sync(self) -> None:
            lengths = _lengths(self._directory)
            pass_moment()
            super().sync()
            _note(self._directory.parent, SYNCED, lengths)
            pass_moment()

    @seam.instead_of(LoopScheduler)
    class SyncsInPython(LoopScheduler):
        @override
        def sync_each(
            self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]
        ) -> None:
            sync_each(self, stores, done)

    def note_recovery_points(_number: int, _frame: FrameType | None) -> None:
        for directory, log in logs.items():
            end = log.recovery_point
            lengths = {path: _length_below(path, end) for path in directory.glob("*.log")}
            _note(directory.parent, SYNCED, lengths)
        if logs:
            notes_of(next(iter(logs)).parent).with_suffix(".looked").touch()

    signal.signal(signal.SIGUSR1, arm)
    signal.signal(signal.SIGUSR2, note_recovery_points)


def note_reactors_syncs(data: Path, pid: int) -> None:
    """Have the process of `note_syncs` note up to where each log is on the disk by now."""
    looked = notes_of(data).with_suffix(".looked")
    os.kill(pid, signal.SIGUSR2)
    while not looked.exists():
        time.sleep(0.01)
    looked.unlink()


def _length_below(path: Path, end: int) -> int:
    """Bytes of a log file in batches below an offset."""
    data, length = path.read_bytes(), 0
    while length + BATCH_START.size <= len(data):
        base_offset, size = BATCH_START.unpack_from(data, length)
        if base_offset >= end:
            break
        length += BATCH_START.size + size
    return length


def some_of(chance: random.Random) -> Callable[[int, int], int]:
    """Parts that a disk may keep: only the synced part, or all of it, or a torn piece."""
    return lambda sure, written: chance.choice((sure, sure, written, chance.randint(sure, written)))


def only_what_is_sure(sure: int, _written: int) -> int:
    """The part that the unkindest disk keeps."""
    return sure


def lose_power(data: Path, kept: Callable[[int, int], int]) -> None:
    """Cut every log of a directory whose broker is dead back to a length that may be left.

    Args:
        data: The data directory.
        kept: From how many bytes are sure and how many were written, how many are left.
    """
    synced = _synced(notes_of(data))
    left: dict[Path, int] = {}
    for path in sorted(data.glob("*/*.log")):
        written = path.stat().st_size
        left[path] = kept(min(synced.get(str(path), 0), written), written)
        os.truncate(path, left[path])
    notes_of(data).unlink(missing_ok=True)
    _note(data, SYNCED, left)  # the rest has proved to be on the disk
    (data / ".lock").write_bytes(OTHER_BOOT)
