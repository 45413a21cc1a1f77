"""Spark's checkpoint, where it lies on a local path.

`<checkpoint>/metadata` holds the query's id; `<checkpoint>/sources/<n>/0` where Spark's Kafka
source starts; `<checkpoint>/offsets/<batch>` holds, a line each, a version, Spark's own settings,
and where every source ends in that batch. In version 2
(`spark.sql.streaming.offsetLog.formatVersion`) a source's line begins with its name and a colon.

Source: StreamMetadata, OffsetSeqLog, Spark 4.2.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from txn.errors import ConfigError
from txn.spark.mark import Mark


def local_path(location: str) -> Path | None:
    """The directory of a checkpoint, or None when it is not on this machine."""
    parts = urlparse(location)
    if parts.scheme == "":
        return Path(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def query_id(location: str) -> str | None:
    """The id of the checkpoint's query; None when it cannot be read here or is not there yet."""
    path = local_path(location)
    if path is None:
        return None
    try:
        identity: str = json.loads((path / "metadata").read_text())["id"]
    except FileNotFoundError:
        return None
    return identity


def is_new(location: str) -> bool:
    """Return True if no batch of the query is through; false when the checkpoint is not here."""
    path = local_path(location)
    if path is None:
        return False
    return not any(file.name.isdecimal() for file in (path / "commits").glob("*"))


def source_offsets(location: str, batch: int) -> list[tuple[str, int, int]]:
    """Where a batch ends in its Kafka sources.

    Returns:
        (topic, partition, offset of the first record after the batch), of every source whose
        offsets look like Kafka's.

    Raises:
        ConfigError: the checkpoint is not on this machine, or does not hold the batch.
    """
    path = local_path(location)
    if path is None:
        raise ConfigError(
            f"txn.group needs the checkpoint's offsets, and {location} is not a local path. "
            "Remove txn.group, or put the checkpoint on a mounted path"
        )
    try:
        text = (path / "offsets" / str(batch)).read_text()
    except FileNotFoundError:
        raise ConfigError(
            f"txn.group needs the offsets of batch {batch}, and {path} does not hold them: "
            "checkpointLocation is not this query's"
        ) from None
    offsets: dict[tuple[str, int], int] = {}
    for source in _sources(text.splitlines()):
        offsets.update(_kafka_offsets(source))
    return [(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]


def source_ends(location: str, batch: int) -> str | None:
    """A digest of where a batch's sources end; None when the checkpoint does not have it here.

    A replay of a batch finds the same. A checkpoint of an earlier time lets Spark plan a batch of
    that number anew: it finds the same only if it ends at the same place.
    """
    path = local_path(location)
    if path is None:
        return None
    try:
        lines = (path / "offsets" / str(batch)).read_bytes().splitlines()
    except FileNotFoundError:
        return None
    sources = lines[2:]  # the lines before have a version, and the time of the plan
    return hashlib.sha256(b"\n".join(sources)).hexdigest()[:16]


def source_topics(location: str) -> set[str]:
    """The topics that the newest batch reads; none when the checkpoint is not on this machine."""
    path = local_path(location)
    if path is None:
        return set()
    try:
        batches = [int(file.name) for file in (path / "offsets").iterdir() if file.name.isdecimal()]
    except FileNotFoundError:
        return set()
    if not batches:
        return set()
    return {topic for topic, _, _ in source_offsets(location, max(batches))}


def noted_starts(location: str) -> dict[int, str]:
    """The starts that Spark's Kafka source has noted for a query that has no batch yet.

    Returns:
        The offsets of each such source as JSON, by the number that Spark gives it; none when the
        checkpoint is not on this machine.

    Source: KafkaSourceInitialOffsetWriter, Spark 4.2.
    """
    path = local_path(location)
    if path is None or any(file.name.isdecimal() for file in (path / "offsets").glob("*")):
        return {}
    noted = {}
    for note in (path / "sources").glob("*/0"):
        # A zero byte, which Spark before 2.1 expects, and a version stand before the offsets.
        version, _, text = note.read_bytes().lstrip(b"\0").decode().partition("\n")
        if note.parent.name.isdecimal() and version == "v1" and _kafka_offsets(text):
            noted[int(note.parent.name)] = text.strip()
    return noted


def _sources(lines: Sequence[str]) -> list[str]:
    """Where each source ends, of the lines of a batch.

    Raises:
        ConfigError: the lines are of a version that is not known here. To find no source in them
            would be a silent loss of `txn.group`.
    """
    version = lines[0] if lines else ""
    match version:
        case "v1":
            return list(lines[2:])  # the line between has Spark's settings
        case "v2":
            return [line.partition(":")[2] for line in lines[2:]]
    raise ConfigError(
        f"the checkpoint's offsets have version {version!r}, and txn knows v1 and v2. Upgrade txn, "
        "or set spark.sql.streaming.offsetLog.formatVersion=2 for a new checkpoint"
    )


def _kafka_offsets(line: str) -> dict[tuple[str, int], int]:
    try:
        return {
            place: offset
            for place, offset in Mark.from_json(json.loads(line)).at.items()
            if type(offset) is int and offset >= 0
        }
    except (ValueError, AttributeError):  # another kind of source, or none yet
        return {}
