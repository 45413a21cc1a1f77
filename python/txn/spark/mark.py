"""The read position of a query: an offset per partition, and the topics' ids.

Kept in Spark's offset log as JSON, as Spark's own Kafka source keeps offsets. The rest is the text
of one more key, which holds no partition:

    {"orders": {"0": 23, "1": 7}, "{\\"topic ids\\": {\\"orders\\": \\"wJz1X0y…\\"}}": {}}

So a program that goes through the offsets of a query's progress, to commit or to compare them,
meets Spark's own and no others. Spark's Kafka source reads them, too. Earlier versions had the
ids under a key `topic ids` with other content, which is still read.

A topic that was deleted and made anew has another id under the same name. Its offsets start at 0
again, so without the id they would be taken for those of the old topic. Rows of the new one would
be skipped, or read as the continuation of the old one. Checkpoints of earlier versions and of
Spark's Kafka source have no ids; they get them with the next batch.

A query that starts where another source started has that start as the end of its first batch, with
a note that this batch is empty (`txn.spark.noted_start`).

A partition that the options do not choose any more keeps its offset in that key, too. So a warning
is logged once, and the query continues there when the options choose the partition again.

Pure: no client. Source: KIP-516 (topic ids).
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from txn.identifiers import TopicPartition

Offsets = dict[TopicPartition, int]

IDS: Final = "topic ids"
LEFT_OUT: Final = "left out"
BEGINNING: Final = "beginning"
"""Names of notes beside the offsets; once keys of their own. No topic's name has a space."""


def is_reserved_key(key: str) -> bool:
    """Return True if a key of a mark's JSON is no topic."""
    return key.startswith("{") or key in (IDS, LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Mark:
    """The first offset still to be read of each partition."""

    at: Offsets
    ids: Mapping[str, str]
    """Topic ids by topic; those that are not known are missing."""
    left_out: Offsets = field(default_factory=dict)
    """The same of partitions that were read once, and that the options do not choose any more."""
    is_beginning: bool = False
    """True if the query begins here: the batch that ends here reads nothing."""

    @staticmethod
    def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> "Mark":
        """The mark that Spark gives back."""
        notes: dict[str, Any] = {}
        for key, content in offsets.items():
            if is_reserved_key(key):
                notes |= json.loads(key) if key.startswith("{") else {key: content}
        read = {topic: at for topic, at in offsets.items() if not is_reserved_key(topic)}
        left_out = _from_json(notes.get(LEFT_OUT, {}))
        is_beginning = BEGINNING in notes
        return Mark(_from_json(read), dict(notes.get(IDS, {})), left_out, is_beginning)

    def to_json(self) -> dict[str, dict[str, int]]:
        """The mark as Spark keeps it: equal marks give equal text."""
        content = _to_json(self.at)
        notes: dict[str, Any] = {}
        if self.ids:
            notes[IDS] = dict(sorted(self.ids.items()))
        if self.left_out:
            notes[LEFT_OUT] = _to_json(self.left_out)
        if self.is_beginning:
            notes[BEGINNING] = True
        if notes:
            content[json.dumps(notes)] = {}
        return content

    def choosing(self, places: Iterable[TopicPartition]) -> "Mark":
        """The mark with those of these partitions that were left out in their places again."""
        again = {place: self.left_out[place] for place in places if place in self.left_out}
        left_out = {place: at for place, at in self.left_out.items() if place not in again}
        return Mark(self.at | again, self.ids, left_out)

    def as_beginning(self) -> "Mark":
        """The mark as the end of a batch that only records where a query begins."""
        return replace(self, is_beginning=True)


def _from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    content: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        content.setdefault(topic, {})[str(partition)] = offset
    return content


def id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def made_anew(before: Mark, now: Mark) -> set[str]:
    """Topics that another one of the same name has replaced, as far as their ids show."""
    return {
        topic
        for topic, topic_id in before.ids.items()
        if topic in now.ids and now.ids[topic] != topic_id
    }


def gone(before: Mark, now: Mark) -> list[TopicPartition]:
    """Partitions that were read and are not there any more; not those of a topic made anew."""
    replaced = made_anew(before, now)
    return sorted(place for place in before.at.keys() - now.at.keys() if place[0] not in replaced)


def short(before: Mark, now: Mark) -> list[TopicPartition]:
    """Partitions that end before the place up to which they were read."""
    replaced = made_anew(before, now)
    return sorted(
        place
        for place, end in now.at.items()
        if place[0] not in replaced and end < before.at.get(place, end)
    )


def topics_of(places: Iterable[TopicPartition]) -> list[str]:
    """The topics of some partitions, each once."""
    return list(dict.fromkeys(topic for topic, _ in places))


def named(place: TopicPartition) -> str:
    """A partition as Kafka's log lines name it."""
    return f"{place[0]}-{place[1]}"
