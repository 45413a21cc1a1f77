"""Stray partitions: directories of topics that the metadata log does not know.

A topic's record comes before its directories, and the record of its deletion before their removal.
So a stray partition with records proves that the metadata log has lost its end. A stray directory
without records proves nothing: a power failure during the creation of a topic can leave one.

Deviation from Apache Kafka: its start removes stray partitions.
"""

import os
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from txn.logs import log
from txn.metadata.image import RESERVED_TOPICS, Image
from txn.storage.ids import decode_id
from txn.storage.plain_files import TEXT_BYTES_MAX, read_plain

METADATA_FILE: Final = "partition.metadata"
"""File in each partition's directory: the id of its topic."""

DOOMED_SUFFIX: Final = "-delete"
"""Suffix of a partition's directory while `PartitionLog.delete` removes it."""

REMEDY: Final = (
    "Stop the broker and put back a copy of __cluster_metadata-0. Or give up the records of "
    "unknown topics: move their directories away"
)
"""An operator's options for stray partitions with records."""

_PARTITION: Final = re.compile(r"(.+)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Stray:
    """One stray partition.

    Attributes:
        directory: Its directory.
        topic_id: The id in its `partition.metadata`.
        has_records: Something was written to its log.
    """

    directory: Path
    topic_id: uuid.UUID
    has_records: bool


def strays_in(root: Path, image: Image, deleted: Collection[uuid.UUID]) -> list[Stray]:
    """List the stray partitions of a data directory, by name.

    Args:
        root: The data directory.
        image: All that the metadata log says.
        deleted: Topics that it says are gone.

    Raises:
        OSError: `root` or one of its directories cannot be read.

    Cost: one listing; only directories without a place in `image` are looked into.
    """
    strays = []
    for name in sorted(os.listdir(root)):
        named = _PARTITION.fullmatch(name)
        if named is None or named[1] in RESERVED_TOPICS:
            continue
        topic = image.topics.get(named[1])
        if topic is not None and int(named[2]) < topic.partition_count:
            continue
        directory = root / name
        topic_id = topic_id_of(directory)
        if topic_id is None or topic_id in deleted:
            continue
        if image.names.get(topic_id, named[1]) != named[1]:
            continue  # a copy of another topic's, which was renamed
        strays.append(Stray(directory, topic_id, _has_records(directory)))
    return strays


def topic_id_of(directory: Path) -> uuid.UUID | None:
    """The id in a directory's `partition.metadata`; None if it has none that can be read."""
    path = directory / METADATA_FILE
    try:
        lines = read_plain(path, TEXT_BYTES_MAX).decode().splitlines()
        return decode_id(dict(line.split(": ", 1) for line in lines)["topic_id"])
    except (FileNotFoundError, NotADirectoryError):  # of the root's own files
        return None
    except (OSError, ValueError, KeyError) as error:
        log.warning("partition.metadata_ignored", path=str(path), reason=repr(error))
        return None


def _has_records(directory: Path) -> bool:
    """Segments were removed if the first begins beyond offset 0."""
    return any(each.stat().st_size or each.stem.strip("0") for each in directory.glob("*.log"))
