"""The topics of the cluster as a consumer group sees them. Pure."""

import struct
import uuid
from collections.abc import Iterable
from typing import Protocol

import xxhash


class Topics(Protocol):
    """The published metadata of topics."""

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if unknown."""
        ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id, None if unknown."""
        ...

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is unknown."""
        ...


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A number that differs where topics, their ids or their partition counts do.

    It is 0 if none of the topics is there. Apache Kafka computes the same number where brokers have
    no racks. So a group that moves to it, or from it, is not assigned anew.

    Source: KIP-1101.
    """
    hashes = [
        struct.pack("<Q", _topic_hash(name, topic_id, topics.partition_count(name)))
        for name in sorted(names)
        if (topic_id := topics.topic_id(name)) is not None
    ]
    if not hashes:
        return 0
    signed: int = struct.unpack("<q", xxhash.xxh3_64_digest(b"".join(hashes))[::-1])[0]
    return signed


def _topic_hash(name: str, topic_id: uuid.UUID, partitions: int) -> int:
    """The hash of one topic; Java's text has two bytes a character."""
    most, least = struct.unpack(">QQ", topic_id.bytes)
    text = name.encode("utf-16-le")
    hashed = xxhash.xxh3_64(struct.pack("<BQQ", 0, most, least) + text)
    hashed.update(struct.pack(f"<ii{partitions}i", len(text) // 2, partitions, *range(partitions)))
    return hashed.intdigest()
