"""The text files of a data directory. Pure: they take and give text.

    checkpoints              version (0), number of lines, then `topic partition offset`
    leader-epoch-checkpoint  version (0), number of lines, then `leader_epoch start_offset`
    partition.metadata       `version: 0`, `topic_id: <22 characters>`
    meta.properties          `name=value`; version, cluster.id, node.id, directory.id
    quorum-state             JSON

Kafka leaves a checkpoint it never wrote empty.

Sources: Kafka's OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile,
MetaProperties and QuorumStateData.
"""

import json
import re
import uuid
from typing import Any, Final

from txn.identifiers import TopicPartition
from txn.storage.checkpoints import OFFSET_MAX, decode_checkpoint
from txn.storage.ids import decode_id, encode_id

VERSION: Final = "0"


def read_checkpoint(text: str) -> dict[TopicPartition, int]:
    """Read offsets by partition; stricter than a start, which passes over unusable lines.

    Raises:
        ValueError: it is no checkpoint; the message has the reason.
    """
    if not text:
        return {}
    if text.splitlines() != text.split("\n")[:-1]:
        raise ValueError("its lines do not end as they should")
    offsets = decode_checkpoint(text)
    lines = text.count("\n") - 2
    if len(offsets) != lines:
        raise ValueError(f"it names {len(offsets)} partitions in {lines} lines")
    return offsets


def read_leader_epochs(text: str) -> list[tuple[int, int]]:
    """Read (leader epoch, start offset), both growing.

    Raises:
        ValueError: it is no leader epoch checkpoint; the message has the reason.
    """
    epochs: list[tuple[int, int]] = []
    for line in _lines(text):
        fields = line.split(" ")
        if len(fields) != 2:
            raise ValueError(f"the line {line!r} is not a leader epoch and an offset")
        epoch, start = _number(fields[0]), _number(fields[1])
        if epochs and (epoch <= epochs[-1][0] or start < epochs[-1][1]):
            raise ValueError(f"the line {line!r} goes back")
        epochs.append((epoch, start))
    return epochs


def read_txn_index_sums(text: str) -> dict[int, tuple[int, int]]:
    """Read (entries, CRC-32C) of transaction indexes by their base offset.

    Raises:
        ValueError: it is no such checkpoint; the message has the reason.
    """
    sums: dict[int, tuple[int, int]] = {}
    for line in _lines(text):
        fields = line.split(" ")
        if len(fields) != 3:
            raise ValueError(f"the line {line!r} is not a base offset, a number and a checksum")
        base_offset, entries, checksum = map(_number, fields)
        if sums and base_offset <= max(sums):
            raise ValueError(f"the line {line!r} goes back")
        sums[base_offset] = entries, checksum
    return sums


def _lines(text: str) -> list[str]:
    if not text:
        return []
    lines = text.split("\n")
    if len(lines) < 3 or lines[-1]:
        raise ValueError("it is cut off")
    version, count, *entries = lines[:-1]
    if version != VERSION:
        raise ValueError(f"its version is {version!r}, known is {VERSION}")
    if _number(count) != len(entries):
        raise ValueError(f"it announces {count} lines and has {len(entries)}")
    return entries


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > OFFSET_MAX:
        raise ValueError(f"{text!r} is no number")
    return int(text)


def read_topic_id(text: str) -> uuid.UUID:
    """Read the topic id of a `partition.metadata`. Raises ValueError."""
    # Not `splitlines`, which takes other control characters for the end of a line too.
    fields = dict(line.partition(": ")[::2] for line in text.split("\n") if line)
    if fields.get("version") != VERSION:
        raise ValueError(f"its version is {fields.get('version')!r}, known is {VERSION}")
    return _read_id(fields.get("topic_id", ""), "topic_id")


def read_properties(text: str) -> dict[str, str]:
    """Read `name=value` lines, comments left out. Raises ValueError."""
    properties = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"the line {line!r} is not name=value")
        properties[name] = value
    return properties


def read_identity(text: str) -> tuple[str, int, uuid.UUID]:
    """Read (cluster id, node id, directory id) of a `meta.properties`. Raises ValueError."""
    properties = read_properties(text)
    missing = {"version", "cluster.id", "node.id", "directory.id"} - properties.keys()
    if missing:
        raise ValueError(f"it has no {sorted(missing)[0]}")
    if properties["version"] != "1":
        raise ValueError(f"its version is {properties['version']!r}, known is 1")
    directory_id = _read_id(properties["directory.id"], "directory.id")
    return properties["cluster.id"], _number(properties["node.id"]), directory_id


def read_json(text: str) -> dict[str, Any]:
    """Read a JSON object. Raises ValueError."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def read_quorum_state(text: str) -> dict[str, Any]:
    """Read a `quorum-state`. Raises ValueError."""
    state = read_json(text)
    _require(state, "leaderId", "leaderEpoch", "votedId", "data_version")
    return state


def read_clean_mark(text: str) -> dict[str, Any]:
    """Read a `.kafka_cleanshutdown`. Raises ValueError."""
    mark = read_json(text)
    _require(mark, "version", "brokerEpoch")
    return mark


def _require(content: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(content.get(name), int):
            raise ValueError(f"it has no number {name!r}")


def _read_id(text: str, name: str) -> uuid.UUID:
    try:
        decoded = decode_id(text)
    except ValueError:
        decoded = None
    if decoded is None or encode_id(decoded) != text:
        raise ValueError(f"its {name} is {text!r}, no id of 22 characters")
    return decoded
