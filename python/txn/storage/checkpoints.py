"""Offset checkpoints: small text files at the root of a data directory, one line per partition.

    0                  version
    2                  how many lines follow
    orders 0 17        topic, partition, offset
    orders 1 4

Invariant: a checkpoint is replaced whole, and an entry is written only after it is true of the log.
So a log that ends below its entry is refused, unless the power failed (`storage/native.py`). A
checkpoint that is missing or unreadable counts as empty. That is logged, and every log is read from
its beginning.

Source: Apache Kafka, `OffsetCheckpointFile`.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from txn.identifiers import TopicPartition
from txn.logs import log
from txn.storage.in_place import DirectoryPlace
from txn.storage.plain_files import read_plain
from txn.storage.private import open_private, replace_file

LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_ENDS: Final = "cleaner-offset-checkpoint"

VERSION: Final = "0"

OFFSET_MAX: Final = 2**63 - 1
_INDEX_MAX: Final = 2**31 - 1
_LINE: Final = re.compile(r"(\S+) ([0-9]+) ([0-9]+)")


def encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> str:
    """Write offsets as a checkpoint's text, in order."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return "\n".join((VERSION, str(len(lines)), *lines, ""))


def decode_checkpoint(text: str) -> dict[TopicPartition, int]:
    """Read a checkpoint's text.

    Raises:
        ValueError: It is none, or not whole, or has a number that no offset or partition has.
    """
    version, count, *lines = text.splitlines() or ("",) * 2
    if version != VERSION:
        raise ValueError(f"its version is {version!r}; known is {VERSION}")
    matches = [_LINE.fullmatch(line) for line in lines]
    if count != str(len(lines)) or None in matches:
        raise ValueError(f"its {len(lines)} lines are not the {count!r} offsets it promises")
    offsets = {(line[1], int(line[2])): int(line[3]) for line in matches if line}
    for (topic, index), offset in offsets.items():
        if index > _INDEX_MAX or offset > OFFSET_MAX:
            raise ValueError(f"its line {topic} {index} {offset} has a number that is too large")
    return offsets


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Read a checkpoint; empty when it is missing or senseless."""
    try:
        return decode_checkpoint(read_plain(path).decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("checkpoint.ignored", path=str(path), reason=str(error))
        return {}


def write_checkpoint(
    path: Path, offsets: Mapping[TopicPartition, int], *, keeps_room: bool = False
) -> None:
    """Replace a checkpoint, durably. Raises OSError.

    With `keeps_room` the former file stays under the temporary name, and the next one is written
    into its blocks: a full disk still takes a checkpoint of the same length.
    """
    temporary = path.with_name(path.name + ".tmp")
    former = path.with_name(path.name + ".former")
    text = encode_checkpoint(offsets)
    if keeps_room:
        with suppress(OSError):
            former.unlink(missing_ok=True)
            os.link(path, former)
    replace_file(path, temporary, text, os.fsync)
    if keeps_room:
        with suppress(OSError):
            if former.exists():
                former.rename(temporary)
            else:
                with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_CREAT), "w") as file:
                    file.write(text)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Checkpoint:
    """One checkpoint file and its writer; unchanged content is not written again."""

    def __init__(
        self,
        path: Path,
        offsets: Callable[[], Mapping[TopicPartition, int]],
        *,
        stored: dict[TopicPartition, int],
        keeps_room: bool = False,
    ) -> None:
        """`offsets` returns the content of the next write; `stored` is that of the file."""
        self.path = path
        self._keeps_room = keeps_room
        self.stored = stored
        self._offsets = offsets
        self._place = DirectoryPlace(path.parent)
        self._writing = threading.Lock()

    def write(self) -> None:
        """Return once the offsets, as they are or later, are on the disk. Raises OSError."""
        with self._writing:
            offsets = dict(self._offsets())
            if offsets != self.stored:
                self._place.require_kept()  # a copy of the directory has other offsets
                write_checkpoint(self.path, offsets, keeps_room=self._keeps_room)
                self.stored = offsets
