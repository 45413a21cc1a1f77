"""Reads stored records of a cluster, to the end or for ever, with a group or without.

Without a group nothing is committed and no group is joined: the reader begins at given offsets.
With one the group's members share the partitions, and its committed offsets say where to begin.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from txn.client.beginnings import Beginnings
from txn.client.bounded_call import BoundedCall
from txn.client.callbacks import keeping_fatal_error, keeping_fatal_errors
from txn.client.deadline import Deadline
from txn.client.failures import error_of, translate
from txn.client.library_log import LibraryLog
from txn.client.redaction import Redaction
from txn.client.settings import refused
from txn.errors import RejectedError
from txn.identifiers import TopicPartition as Place

WAIT_S: Final = 0.2
"""Limit of one wait for records: a signal is heard after it."""

RECORDS_AT_ONCE: Final = 500

DONE_MAX: Final = 1_000
"""The most entries about a partition's records before their commit; beyond, the last one grows."""

LEAVE_S: Final = 5.0
"""Limit of the commit at the end, and of leaving the group after it: librdkafka has none."""

NOT_ASSIGNED: Final = frozenset({KafkaError._STATE, KafkaError._UNKNOWN_PARTITION})

NO_GROUP: Final = "txn-reader"
"""librdkafka wants a name, and asks for its coordinator. Nothing else of it reaches a broker."""


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
    refusal: str | None = None
    """The cluster's reason if it refused the last commit, that of `close`."""
    uncommitted: int = 0
    """The number of `done` records whose offsets are not known to be committed, after `close`."""
    _done: dict[Place, deque[tuple[int, int]]] = field(init=False, default_factory=dict)
    """Records whose offsets are not known to be committed: the next offset, their number."""
    _lost: dict[Place, int] = field(init=False, default_factory=dict)
    """The number of such records in partitions that were taken away before their commit."""
    _consumer: confluent_kafka.Consumer = field(init=False)
    _beginnings: Beginnings = field(init=False)
    _redaction: Redaction = field(init=False)
    _open: set[Place] = field(init=False, default_factory=set)
    _is_assigned: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        level = "read_committed" if self.is_committed else "read_uncommitted"
        self._redaction = Redaction(self.settings)
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
            "on_commit": self._note_commit,
        }
        self._redaction.watch(settings)
        try:
            self._consumer = confluent_kafka.Consumer(keeping_fatal_errors(settings))
        except KafkaException as raised:
            raise refused("the consumer", raised, settings) from None  # it may have a secret
        self._beginnings = Beginnings(self._consumer, settings, self._handle_group_error)
        if self.group_id is not None:
            self._consumer.subscribe(
                list(self.topics),
                on_assign=keeping_fatal_error(self._assigned),
                on_revoke=keeping_fatal_error(self._revoked),
                on_lost=keeping_fatal_error(self._note_revoked),
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
        """Commit the offsets of records that were `done`, and leave the group.

        Each ends after `LEAVE_S`, and at a signal whose handler raises. `uncommitted` tells
        whether the commit took effect; without an answer the reader does not leave its group.
        """
        try:
            is_answered = self._commit()
        finally:
            owned = sum(count for each in self._done.values() for _, count in each)
            self.uncommitted = owned + sum(self._lost.values())
        if is_answered:
            BoundedCall(self._consumer.close).run(Deadline(LEAVE_S))

    def _commit(self) -> bool:
        """Commit in partitions that are still assigned; return whether there was an answer."""
        offsets = [
            TopicPartition(*place, done[-1][0]) for place, done in self._done.items() if done
        ]
        if not offsets:
            return True
        answers: list[TopicPartition] = []

        def commit() -> None:
            answers.extend(self._consumer.commit(offsets=offsets, asynchronous=False) or ())

        found: list[KafkaError | None]
        try:
            is_answered = BoundedCall(commit).run(Deadline(LEAVE_S))
            self._note_commit(None, answers)
            found = [each.error for each in answers]
        except KafkaException as raised:
            is_answered = True
            found = [error_of(raised)]
        refusals = [each.str() for each in found if each is not None and each.code() > 0]
        self.refusal = refusals[0] if refusals else None  # a code below 0: there was no answer
        return is_answered

    def _note_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Handle the answer to a commit; librdkafka makes some by itself."""
        for each in places:
            done = self._done.get((each.topic, each.partition))
            while done and error is None and each.error is None and done[0][0] <= each.offset:
                done.popleft()

    def done(self, messages: list[Message]) -> None:
        """Note that records need not be read again; only for a group.

        Records of a partition that has gone to another member meanwhile are read by that one too.
        """
        if self.group_id is not None and messages:
            last = {_place(each): each for each in messages}
            counts = Counter(map(_place, messages))
            for place, message in last.items():
                if self._has_stored(message):
                    self._note_done(place, int(message.offset() or 0) + 1, counts[place])

    def _note_done(self, place: Place, next_offset: int, count: int) -> None:
        done = self._done.setdefault(place, deque())
        if len(done) >= DONE_MAX:
            count += done.pop()[1]
        done.append((next_offset, count))

    def _has_stored(self, message: Message) -> bool:
        """Queue the offset behind a record for commit; False if another member owns it now."""
        try:
            self._consumer.store_offsets(message)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() not in NOT_ASSIGNED:
                raise translate(error, whose="the consumer", doing="storing offsets") from raised
            return False
        return True

    def batches(self) -> Iterator[list[Message]]:
        """Yield records as they come; an empty list about every `WAIT_S` without any.

        Ends when every partition, or a member's share of them, has been read up to its end.

        Raises:
            RejectedError: the cluster refuses, or the records cannot be read.
        """
        while self.ends is None or self._open or not self._is_assigned:
            self._beginnings.ask()
            first = self._consumer.poll(WAIT_S)
            if first is None:
                yield []
                continue
            rest = self._consumer.consume(RECORDS_AT_ONCE - 1, 0)
            found = [each for each in (first, *rest) if self._is_wanted(each)]
            self.outage = None if found else self.outage
            yield found

    def _is_wanted(self, message: Message) -> bool:
        """Return True if it is a record below the end; a report of librdkafka is none."""
        error = message.error()
        place = _place(message)
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._open.discard(place)
            else:
                self._handle_error(error, place[0])
            return False
        if self.ends is None:
            return True
        offset, end = int(message.offset() or 0), self.ends.get(place)
        if end is not None and offset + 1 >= end:
            self._open.discard(place)
        return end is None or offset < end

    def _handle_error(self, error: KafkaError, topic: str) -> None:
        """Note an outage; raise the error for anything else that ends the reading."""
        error = self._redaction.error(error)
        code = error.code()
        if code == KafkaError._MAX_POLL_EXCEEDED or error.retriable():
            self.outage = error.str()
            return
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED and self.group_id is None:
            return  # librdkafka asks for the coordinator of `NO_GROUP`, and reads on without one
        denied = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: ("group", self.group_id),
            KafkaError.TOPIC_AUTHORIZATION_FAILED: ("topic", topic),
        }
        if code in denied:
            kind, name = denied[code]
            raise RejectedError(
                f"{kind} {name!r} cannot be read: {error.name()}. Its user needs Read on the "
                f"{kind}",
                code=code,
                name=error.name(),
            )
        raise translate(error, whose="the consumer", doing="reading")

    def _handle_group_error(self, error: KafkaError) -> None:
        self._handle_error(error, self.topics[0])

    def _assigned(self, _: confluent_kafka.Consumer, places: list[TopicPartition]) -> None:
        self._is_assigned = True
        for each in places:
            self._open.add((each.topic, each.partition))
            self._lost.pop((each.topic, each.partition), None)  # its records come again
        self._beginnings.assign(places)

    def _revoked(self, _: confluent_kafka.Consumer, places: list[TopicPartition]) -> None:
        """Give partitions up; librdkafka commits their `done` records."""
        self._give_up(places)

    def _note_revoked(self, _: confluent_kafka.Consumer, places: list[TopicPartition]) -> None:
        """Note partitions that belong to others by now: nothing is committed there any more."""
        for place, done in self._give_up(places).items():
            self._lost[place] = self._lost.get(place, 0) + sum(count for _, count in done)

    def _give_up(self, places: list[TopicPartition]) -> dict[Place, deque[tuple[int, int]]]:
        """Forget partitions; return those with records whose commit had no answer."""
        self._is_assigned = False
        names = [(each.topic, each.partition) for each in places]
        self._open.difference_update(names)
        self._beginnings.release(names)
        return {place: self._done.pop(place) for place in names if place in self._done}

    def _note_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.outage = "no broker answers"


def _place(message: Message) -> Place:
    return str(message.topic()), int(message.partition() or 0)
