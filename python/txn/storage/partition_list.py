"""Lists of partitions in the data directory: a JSON file with one object per partition.

The form is `{"version": 1, NAME: [{"topic": …, "partition": …, …}]}`. A list is replaced whole and
durably, and its file is removed once the list is empty.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.storage.plain_files import read_plain
from txn.storage.private import replace_file, sync_directory

VERSION: Final = 1

T = TypeVar("T")


def read_partition_list(
    path: Path, name: str, decode: Callable[[Mapping[str, Any]], T], *, remedy: str
) -> dict[TopicPartition, T]:
    """Read a list; a missing file is an empty one.

    Raises:
        StorageError: the file exists and is unreadable; its message ends with `remedy`.
    """
    try:
        stored = json.loads(read_plain(path))
        if stored["version"] != VERSION:
            raise ValueError(f"its version is {stored['version']!r}; known is {VERSION}")
        return {(each["topic"], each["partition"]): decode(each) for each in stored[name]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"cannot read {path}: {error!r}. {remedy}") from error


def write_partition_list(
    path: Path, name: str, entries: Mapping[TopicPartition, Mapping[str, Any]]
) -> None:
    """Replace a list durably, and remove the file of an empty one. Raises OSError."""
    if entries:
        listed = [
            {"topic": topic, "partition": index, **entry}
            for (topic, index), entry in sorted(entries.items())
        ]
        text = json.dumps({"version": VERSION, name: listed}, indent=1)
        replace_file(path, path.with_suffix(".tmp"), text, os.fsync)
    elif path.exists():
        path.unlink()
    sync_directory(path.parent, os.fsync)
