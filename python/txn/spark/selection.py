"""The partitions a reader has chosen, and the offsets that its options mean there.

Sources: KafkaOffsetReaderAdmin, ConsumerStrategy, Spark 4.2 (behaviour).
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from txn._core import KafkaClient, KafkaError
from txn.errors import ConfigError
from txn.identifiers import TopicPartition
from txn.java_pattern import of_names
from txn.spark.kafka import code_of
from txn.spark.mark import Mark, Offsets, id_text, named, topics_of
from txn.spark.options import EARLIEST, LATEST, PROGRESS_TOPIC, Boundary, SourceSettings
from txn.wire.error_codes import ErrorCode

_T = TypeVar("_T")

KAFKAS_TOPICS: Final = ("__consumer_offsets", "__share_group_state", "__transaction_state")
"""The internal topics, which the client leaves out of a cluster's list, too."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The meaning of an option now."""

    mark: Mark
    latest: frozenset[TopicPartition]
    """Partitions placed at their end, where another call would place them elsewhere."""


class SelectedPartitions:
    """The cluster's view of the chosen topics."""

    def __init__(self, client: KafkaClient, settings: SourceSettings) -> None:
        self._client = client
        self._settings = settings

    def find(
        self, known: Iterable[TopicPartition] = ()
    ) -> tuple[list[TopicPartition], dict[str, str]]:
        """The partitions that are there to read, and the ids of their topics.

        Args:
            known: Partitions that were there once. As for `describe_known`, one answer is no proof.
        """
        topics = self._settings.topics
        names: Sequence[str] = topics.names
        if topics.pattern is not None:
            names = self._matching(of_names(topics.pattern))
        elif topics.assigned is not None:
            names = list(topics.assigned)
        described = self.describe(names)
        missing = [place for place in known if not _has(described, place) and self.chooses(place)]
        described |= self.describe(topics_of(missing), is_patient=True)
        places = [
            (name, number)
            for name, (count, _) in described.items()
            for number in (range(count) if topics.assigned is None else topics.assigned[name])
            if number < count
        ]
        return places, {name: id for name, (_, id) in described.items() if id is not None}

    def chooses(self, place: TopicPartition) -> bool:
        """Return True if the options choose a partition; it need not be there."""
        (topic, number), chosen = place, self._settings.topics
        if chosen.assigned is not None:
            return number in chosen.assigned.get(topic, ())
        if chosen.pattern is not None:
            return self._matches(of_names(chosen.pattern), topic)
        return topic in chosen.names

    def describe(
        self, topics: Sequence[str], *, is_patient: bool = False
    ) -> dict[str, tuple[int, str | None]]:
        """Partition count and id of the topics that are there."""
        if not topics:
            return {}
        answers = self._client.describe_topics(topics, is_patient=is_patient)
        return {
            name: (answer[0], None if answer[1] is None else id_text(answer[1]))
            for name, answer in zip(topics, answers, strict=True)
            if answer is not None
        }

    def describe_known(self, places: Iterable[TopicPartition]) -> dict[str, tuple[int, str | None]]:
        """The same of partitions that were there once.

        One that is missing is asked for again, for some seconds: a node that has just started may
        not know it yet.
        """
        places = list(places)
        described = self.describe(topics_of(places))
        missing = [place for place in places if not _has(described, place)]
        return described | self.describe(topics_of(missing), is_patient=True)

    def check_all_are_there(self, places: Sequence[TopicPartition]) -> None:
        """Check that everything named is among the partitions that are there.

        Raises:
            ConfigError: a topic or partition that an option names is not there.
        """
        chosen = self._settings.topics
        counts = dict.fromkeys((*chosen.names, *(chosen.assigned or ())), 0)
        for name, _ in places:
            counts[name] = counts.get(name, 0) + 1
        for name, count in counts.items():
            option = "subscribe" if chosen.assigned is None else "assign"
            if count == 0 and not self.describe([name]):
                self._no_topic(name, option)
        for name, numbers in (chosen.assigned or {}).items():
            missing = sorted({(name, number) for number in numbers} - set(places))
            if missing and (described := self.describe([name]).get(name)):
                count = described[0]
                raise ConfigError(
                    f"assign names partition {missing[0][1]} of topic {name!r}, which has {count}, "
                    "numbered from 0. Correct the option assign, or add partitions",
                    option="assign",
                    topic=name,
                )

    def ends(
        self, places: Sequence[TopicPartition], which: int, *, read_committed: bool | None = None
    ) -> Offsets:
        """The offset of each partition by time: `EARLIEST`, `LATEST`, or milliseconds.

        -1 where no record is as late as that.
        """
        ends: Offsets = {}
        committed = self._settings.read_committed if read_committed is None else read_committed
        for topic in topics_of(places):
            numbers = [number for name, number in places if name == topic]
            offsets = self._client.list_offsets(topic, numbers, which, read_committed=committed)
            ends |= {(topic, n): offset for n, offset in zip(numbers, offsets, strict=True)}
        return ends

    def resolve(self, boundary: Boundary) -> Resolved:
        """The offsets that an option means, of all partitions.

        Raises:
            ConfigError: a topic is not there; the option names partitions that are not read, or
                misses some; or a partition has no record of the time to start at, or later.
        """
        places, ids = self.find()
        self.check_all_are_there(places)
        check_all_are_named(boundary, places)
        offsets, latest = self.offsets(boundary, places)
        return Resolved(Mark(offsets, ids), latest)

    def offsets(
        self, boundary: Boundary, places: Sequence[TopicPartition]
    ) -> tuple[Offsets, frozenset[TopicPartition]]:
        """The offsets that an option means now in some of its partitions.

        Returns:
            The offsets, and those partitions among `places` that are placed at their end.

        Raises:
            ConfigError: a partition has no record of the time to start at, or later.
        """
        chosen = {place: boundary.of(place) for place in places}
        if boundary.is_time:
            return self._at_times(chosen, boundary)
        latest = [place for place, at in chosen.items() if at == LATEST]
        chosen |= self.ends([place for place, at in chosen.items() if at == EARLIEST], EARLIEST)
        chosen |= self.ends(latest, LATEST)
        return chosen, frozenset(latest)

    def _at_times(
        self, times: Offsets, boundary: Boundary
    ) -> tuple[Offsets, frozenset[TopicPartition]]:
        """The first record of each partition at its time or later, its end if there is none.

        The ends are asked for first. A record of that time that comes in between is behind them.
        """
        ends, found = self.ends(list(times), LATEST), Offsets()
        for time_ms in sorted(set(times.values())):
            found |= self.ends([place for place, at in times.items() if at == time_ms], time_ms)
        without = sorted(place for place, at in found.items() if at < 0)
        if without and not boundary.may_be_latest:
            topic, partition = without[0]
            raise ConfigError(
                f"{boundary.option}: {named(without[0])} has no record at or after "
                f"{times[without[0]]}. Give an earlier time, or set "
                "startingOffsetsByTimestampStrategy=latest to start there with the "
                "records to come",
                option=boundary.option,
                topic=topic,
                partition=partition,
            )
        return found | {place: ends[place] for place in without}, frozenset(without)

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Topics in whose name it is found, as by Spark's Kafka source."""
        return sorted(name for name in self._client.topics() if self._matches(pattern, name))

    def _matches(self, pattern: re.Pattern[str], topic: str) -> bool:
        """Kafka's own and the sink's topics are left out: a query would feed itself."""
        hidden = {*KAFKAS_TOPICS, PROGRESS_TOPIC, self._settings.progress_topic}
        return topic not in hidden and pattern.search(topic) is not None

    def _no_topic(self, topic: str, option: str) -> NoReturn:
        raise ConfigError(
            f"there is no topic {topic!r} at {self._settings.connection.bootstrap_servers}. "
            f"Create it first, or correct the option {option}",
            topic=topic,
            option=option,
        )


def settled(plan: Callable[[], _T], timeout_ms: int) -> _T:
    """The result of a plan, which is made again where a topic was deleted under it.

    Raises:
        KafkaError: topics still come and go after `timeout_ms`, or another fault.
    """
    end_s = time.monotonic() + timeout_ms / 1_000
    while True:
        try:
            return plan()
        except KafkaError as error:
            is_gone = code_of(error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_gone or time.monotonic() > end_s:
                raise


def _has(described: Mapping[str, tuple[int, str | None]], place: TopicPartition) -> bool:
    topic, number = place
    return number < described.get(topic, (0, None))[0]


def check_all_are_named(boundary: Boundary, places: Iterable[TopicPartition]) -> None:
    """Check that an option with offsets of partitions has one for each that is read, and no other.

    Raises:
        ConfigError: it misses one, or names one that is not read.
    """
    if isinstance(boundary.at, int):
        return
    places = set(places)
    chosen = {(name, number) for name, each in boundary.at.items() for number in each}
    for name in boundary.topics:
        # Without a partition its first one is named, so that the check reports it.
        chosen |= {place for place in places if place[0] == name} or {(name, 0)}
    strange, left = sorted(chosen - places), sorted(places - chosen)
    if strange or left:
        what = f"names {named(strange[0])}, which is not read" if strange else ""
        raise ConfigError(
            f"{boundary.option} {what or f'misses {named(left[0])}'}: it has to name every "
            "partition of the topics, which are "
            f"{', '.join(named(place) for place in sorted(places))}",
            option=boundary.option,
        )
