"""The read position of a query: an offset per partition, and the topics' ids.

Kept in Spark's offset log as JSON, as Spark's own Kafka source keeps offsets, with the ids
under a key that no topic can have:

    {"orders": {"0": 23, "1": 7}, "topic ids": {"orders": "wJz1X0yBQ4m8cV1tq2n6Jg"}}

A topic that was deleted and made anew has another id under the same name. Its offsets start at 0
again, so without the id they would be taken for those of the old topic. Rows of the new one would
be skipped, or read as the continuation of the old one. Checkpoints of earlier versions and of
Spark's Kafka source have no ids; they get them with the next batch.

Pure: no client. Source: KIP-516 (topic ids).
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Place = tuple[str, int]
"""(topic, partition)."""

Offsets = dict[Place, int]

IDS: Final = "topic ids"
"""A name with a space, which Kafka refuses for a topic."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The first offset still to be read of each partition."""

    at: Offsets
    ids: Mapping[str, str]
    """Topic ids by topic; topics of unknown id are left out."""

    @staticmethod
    def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> "Mark":
        """The mark that Spark gives back."""
        at = {
            (topic, int(partition)): offset
            for topic, partitions in offsets.items()
            if topic != IDS
            for partition, offset in partitions.items()
        }
        return Mark(at, dict(offsets.get(IDS, {})))

    def to_json(self) -> dict[str, dict[str, Any]]:
        """The mark as Spark keeps it: equal marks give equal text."""
        content: dict[str, dict[str, Any]] = {}
        for (topic, partition), offset in sorted(self.at.items()):
            content.setdefault(topic, {})[str(partition)] = offset
        if self.ids:
            content[IDS] = dict(sorted(self.ids.items()))
        return content


def id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def made_anew(before: Mark, now: Mark) -> set[str]:
    """Topics that another one of the same name has replaced, as far as ids tell."""
    return {
        topic
        for topic, topic_id in before.ids.items()
        if topic in now.ids and now.ids[topic] != topic_id
    }


def gone(before: Mark, now: Mark) -> list[Place]:
    """Partitions that were read and are not there any more; not those of a topic made anew."""
    replaced = made_anew(before, now)
    return sorted(place for place in before.at.keys() - now.at.keys() if place[0] not in replaced)


def short(before: Mark, now: Mark) -> list[Place]:
    """Partitions that end before the place up to which they were read."""
    replaced = made_anew(before, now)
    return sorted(
        place
        for place, end in now.at.items()
        if place[0] not in replaced and end < before.at.get(place, end)
    )


def topics_of(places: Iterable[Place]) -> list[str]:
    """The topics of some partitions, each once."""
    return list(dict.fromkeys(topic for topic, _ in places))


def named(place: Place) -> str:
    """A partition as Kafka's log lines name it."""
    return f"{place[0]}-{place[1]}"
