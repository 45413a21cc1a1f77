"""Stored records of a cluster, read once or for ever, with a group or without.

Without a group nothing is committed and no group is joined: the reader begins at given offsets.
With one the group's members share the partitions, and its committed offsets say where to begin.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from txn.client.failures import error_of, translate
from txn.client.library_log import LibraryLog
from txn.client.settings import refused

Place = tuple[str, int]

WAIT_S: Final = 0.2
"""Limit of one wait for records: a signal is heard after it."""

RECORDS_AT_ONCE: Final = 500

NOT_ASSIGNED: Final = frozenset({KafkaError._STATE, KafkaError._UNKNOWN_PARTITION})

NO_GROUP: Final = "txn-reader"
"""librdkafka wants a name; without a subscription it reaches no broker."""


@dataclass(slots=True)
class StoredRecords:
    """A reader; `batches` reads. Close it in any case.

    Args:
        settings: The way in, by librdkafka's names.
        is_committed: Only records of committed transactions.
        starts: Where to begin in each partition, without a group.
        ends: Where to end in each partition, exclusive; none: never.
        group_id: The group; None: none.
        topics: The topics of the group's members.
        default: Where a group begins in a partition without a committed offset.
    """

    settings: Mapping[str, object]
    is_committed: bool = True
    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] | None = None
    group_id: str | None = None
    topics: tuple[str, ...] = ()
    default: str = "earliest"
    outage: str | None = None
    """librdkafka's last words about brokers that are gone, until records come again."""
    _consumer: confluent_kafka.Consumer = field(init=False)
    _open: set[Place] = field(init=False, default_factory=set)
    _is_assigned: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        level = "read_committed" if self.is_committed else "read_uncommitted"
        settings = {
            **self.settings,
            "group.id": self.group_id or NO_GROUP,
            "isolation.level": level,
            "enable.auto.commit": self.group_id is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": self.ends is not None,
            "auto.offset.reset": self.default,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            "logger": LibraryLog(),
            "error_cb": self._note_error,
        }
        try:
            self._consumer = confluent_kafka.Consumer(settings)
        except KafkaException as raised:
            raise refused("the consumer", raised, settings) from None  # it may have a secret
        if self.group_id is not None:
            self._consumer.subscribe(
                list(self.topics), on_assign=self._assigned, on_revoke=self._revoked
            )
            return
        ends = self.ends
        self._open = {
            each for each, start in self.starts.items() if ends is None or start < ends[each]
        }
        self._is_assigned = True
        places = [TopicPartition(*each, self.starts[each]) for each in sorted(self._open)]
        self._consumer.assign(places)

    def close(self) -> None:
        """Leave the group, with the offsets of records that were `done`."""
        self._consumer.close()

    def done(self, messages: list[Message]) -> None:
        """Note that records need not be read again; only for a group.

        Records of a partition that has gone to another member meanwhile are read by that one too.
        """
        if self.group_id is not None and messages:
            last = {(each.topic(), each.partition()): each for each in messages}
            for message in last.values():
                self._store_offset(message)

    def _store_offset(self, message: Message) -> None:
        try:
            self._consumer.store_offsets(message)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() not in NOT_ASSIGNED:
                raise translate(error, whose="the consumer", doing="storing offsets") from raised

    def batches(self) -> Iterator[list[Message]]:
        """Yield records as they come; an empty list about every `WAIT_S` without any.

        Ends when every partition, or a member's share of them, has been read up to its end.

        Raises:
            RejectedError: the cluster refuses, or the records cannot be read.
        """
        while self.ends is None or self._open or not self._is_assigned:
            first = self._consumer.poll(WAIT_S)
            if first is None:
                yield []
                continue
            rest = self._consumer.consume(RECORDS_AT_ONCE - 1, 0)
            found = [each for each in (first, *rest) if self._is_wanted(each)]
            self.outage = None if found else self.outage
            yield found

    def _is_wanted(self, message: Message) -> bool:
        """Say whether it is a record below the end; a report of librdkafka is none."""
        error = message.error()
        place = (str(message.topic()), int(message.partition() or 0))
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._raise(error)
            self._open.discard(place)
            return False
        if self.ends is None:
            return True
        offset, end = int(message.offset() or 0), self.ends.get(place)
        if end is not None and offset + 1 >= end:
            self._open.discard(place)
        return end is None or offset < end

    def _raise(self, error: KafkaError) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED or error.retriable():
            self.outage = error.str()
            return
        raise translate(error, whose="the consumer", doing="reading")

    def _assigned(self, _: confluent_kafka.Consumer, places: list[TopicPartition]) -> None:
        self._is_assigned = True
        self._open |= {(each.topic, each.partition) for each in places}

    def _revoked(self, _: confluent_kafka.Consumer, places: list[TopicPartition]) -> None:
        self._is_assigned = False
        self._open -= {(each.topic, each.partition) for each in places}

    def _note_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.outage = "no broker answers"
