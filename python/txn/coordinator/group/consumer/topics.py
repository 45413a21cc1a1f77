"""The topics of the cluster as a consumer group sees them. Pure."""

import uuid
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol


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

    It is 0 if none of the topics is there. Apache Kafka computes another one. So it assigns a group
    of ours once more, and its members keep what they have.
    """
    hashed = blake2b(digest_size=8)
    is_any_there = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            is_any_there = True
            hashed.update(topic_id.bytes)
            hashed.update(topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(hashed.digest(), "big", signed=True) if is_any_there else 0
