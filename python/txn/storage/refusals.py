"""Partitions that a start refused as damaged: `refused-partitions.json` in the data directory.

The proof of a loss may be known to one start alone: that the broker had stopped in order, or that
the power had not failed. So a refusal stays in force for as long as the partition's files are as
they were. Once they have changed, as a copy was put back, they are judged by the facts of the
start that refused them. A loss that an operator accepts ends it (`losses`).

A partition whose log is sound and contradicts the coordinator's is judged anew by each start, but
for one after a power failure: what is contradictory then may be the failure's, and passes.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from txn.errors import StorageError
from txn.storage.checkpoints import Place
from txn.storage.plain_files import read_plain
from txn.storage.private import force_directory, replace_file

REFUSED_PARTITIONS: Final = "refused-partitions.json"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a partition was refused.

    Attributes:
        reason: What is damaged, and what an operator can do.
        path: The damaged file or directory.
        position: Where in it.
        was_clean: The broker before had stopped in order.
        power_failed: The power had failed before.
        files: What its files were like, see `losses.fingerprint`; None if its log is sound.
    """

    reason: str
    path: str
    position: int
    was_clean: bool
    power_failed: bool
    files: str | None


def read_refusals(root: Path) -> dict[Place, Refusal]:
    """Read which partitions of a data directory were refused.

    Raises:
        StorageError: the file is there, and cannot be read.
    """
    path = root / REFUSED_PARTITIONS
    try:
        stored = json.loads(read_plain(path))
        if stored["version"] != VERSION:
            raise ValueError(f"its version is {stored['version']!r}; known is {VERSION}")
        return {
            (each["topic"], each["partition"]): Refusal(**each["refusal"])
            for each in stored["refused"]
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"cannot read {path}: {error!r}. Put back a copy of it; or remove it, and run "
            "`txn log verify` before the next start: damage that it names may go unnoticed then"
        ) from error


def write_refusals(root: Path, refusals: Mapping[Place, Refusal]) -> None:
    """Replace the refusals, durably; nothing is left of an empty list. Raises OSError."""
    path = root / REFUSED_PARTITIONS
    if refusals:
        refused = [
            {"topic": topic, "partition": index, "refusal": asdict(refusal)}
            for (topic, index), refusal in sorted(refusals.items())
        ]
        text = json.dumps({"version": VERSION, "refused": refused}, indent=1)
        replace_file(path, path.with_suffix(".tmp"), text, os.fsync)
    elif path.exists():
        path.unlink()
    force_directory(root)
