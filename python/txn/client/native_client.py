"""The methods of `confluent_kafka.Consumer` on txn's own client in Rust.

Groups use the consumer protocol (KIP-848) or the classic one. The callbacks of a rebalance run
in `poll` and `consume`, on the thread that calls them, as with librdkafka. `native_consumer.py`
puts the class below `txn.Consumer`.
"""

import base64
import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin._metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

from txn import _core
from txn.client.deadline import Deadline
from txn.client.group_metadata import write_place
from txn.client.native import client_thread, ms_of, refusals_of, security_of, servers_of
from txn.client.native_settings import CONSUMER, OR_LIBRDKAFKA, assignors_of, is_true, reset_of
from txn.client.topic_patterns import TopicPatterns
from txn.errors import ConfigError, RejectedError

LOGGER: Final = logging.getLogger("txn.client")

FATAL: Final = frozenset({35, 42, 82, 112, 128})
"""Refusals of a group after which its member does not join again."""

FOREVER_S: Final = 86_400.0
"""A wait without end: no call of the core has one."""

ASKING_S: Final = 0.05
"""Longest wait for records while the topics are listed that match a pattern."""

LEAVE_S: Final = 5.0
"""Longest wait of `close` for the coordinator; the session ends by itself otherwise."""


class NativeClient(confluent_kafka.Consumer):
    """The methods of `confluent_kafka.Consumer` on the native engine.

    Args:
        settings: Its configuration, by Kafka's names; `require_native_consumer` has passed it.

    Raises:
        ConfigError: the value of a setting does not fit.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        given = CONSUMER.by_first_names(settings)
        self._on_client_error: Any = given.get("error_cb")
        numbers = CONSUMER.numbers_of(given)
        instance, assignor = given.get("group.instance.id"), given.get("group.remote.assignor")
        try:
            self._core = _core.NativeConsumer(
                client_thread(),
                servers_of(given),
                client_id=str(given.get("client.id", "txn")),
                security=security_of(settings, self._refuse),
                group_id=str(given["group.id"]),
                member_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="),
                instance_id=None if instance is None else str(instance),
                assignor=None if assignor is None else str(assignor),
                assignors=assignors_of(given),
                reset=reset_of(settings),
                reports_ends=is_true(given.get("enable.partition.eof", False)),
                **numbers,
            )
        except ValueError as error:
            raise ConfigError(f"the consumer: {error}") from error
        self._group = str(given["group.id"])
        self._instance = None if instance is None else str(instance)
        self._is_classic = assignors_of(given) is not None
        self._on_commit: Any = given.get("on_commit")
        self._metadata_age_s = numbers["metadata_max_age_ms"] / 1000
        self._patterns: TopicPatterns | None = None
        self._keeps_store = not is_true(given.get("enable.auto.offset.store", True))
        self._stored: dict[tuple[str, int], TopicPartition] = {}
        self._commits: dict[int, list[TopicPartition]] = {}
        self._callbacks: dict[str, Any] = {}
        self._is_answered = False
        self._is_closed = False

    # ------------------------------------------------------------ assignments

    def subscribe(
        self,
        topics: list[str],
        on_assign: Any = None,
        on_revoke: Any = None,
        on_lost: Any = None,
    ) -> None:
        """Subscribe; topics that begin with ^ are patterns of RE2.

        A pattern is for the whole name in a group of KIP-848, and for its beginning in a classic
        group, as with librdkafka.

        Raises:
            RejectedError: the group is a classic one, and a pattern cannot be read. Other groups
                leave that to their coordinator, whose error `poll` raises.
        """
        self._require_open()
        patterns = [f"({topic})" for topic in topics if topic.startswith("^")]
        names = [topic for topic in topics if not topic.startswith("^")]
        of_classic = None
        if patterns and self._is_classic:
            try:
                of_classic = TopicPatterns(self._core, names, patterns, self._metadata_age_s)
            except ValueError as error:
                raise RejectedError(
                    f"a pattern of {topics} cannot be read: {error}. Correct it: a "
                    "pattern is a regular expression of RE2",
                    reason=str(error),
                ) from None
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        if not topics:
            return NativeClient.unsubscribe(self)
        self._patterns = of_classic
        if of_classic is None:
            self._core.subscribe(names, "|".join(patterns) or None)
        else:
            of_classic.look()
        return None

    def unsubscribe(self) -> None:
        """Leave the group; callbacks of the rebalance run here."""
        self._require_open()
        self._patterns = None
        self._core.unsubscribe()
        self._serve_events()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions and no others."""
        self._require_open()
        wanted = {(p.topic, p.partition) for p in partitions}
        self._core.unassign([place for place in self._core.assignment() if place not in wanted])
        NativeClient.incremental_assign(self, partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too."""
        self._require_open()
        self._is_answered = True
        self._core.assign([(p.topic, p.partition, p.offset) for p in partitions])

    def unassign(self) -> None:
        """Read nothing."""
        self._require_open()
        self._is_answered = True
        self._core.unassign(self._core.assignment())

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions no longer."""
        self._require_open()
        self._is_answered = True
        self._core.unassign([(p.topic, p.partition) for p in partitions])

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        self._require_open()
        return [TopicPartition(topic, partition) for topic, partition in self._core.assignment()]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions."""
        self._pause(partitions, is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out records of paused partitions."""
        self._pause(partitions, is_paused=False)

    def _pause(self, partitions: list[TopicPartition], *, is_paused: bool) -> None:
        self._require_open()
        for each in partitions:
            self._core.pause(each.topic, each.partition, is_paused)

    def seek(self, partition: TopicPartition) -> None:
        """Go on at an offset."""
        self._require_open()
        if not self._core.seek(partition.topic, partition.partition, partition.offset):
            raise KafkaException(
                KafkaError(
                    KafkaError._STATE,
                    f"{partition.topic}-{partition.partition} is not assigned",
                )
            )

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets behind the last records handed out."""
        self._require_open()
        found = []
        for each in partitions:
            at = self._core.position(each.topic, each.partition)
            found.append(_at(each.topic, each.partition, *(at or (OFFSET_INVALID, -1))))
        return found

    # ------------------------------------------------------------ records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record, or an error as a message; None after the time-out."""
        messages = NativeClient.consume(self, 1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to so many records once there are any; none after the time-out."""
        self._require_open()
        deadline = Deadline(FOREVER_S if timeout < 0 else timeout)
        while True:
            if errors := self._serve(num_messages):
                return errors
            taken: list[Any] = self._core.take(num_messages, ms_of(self._wait_s(deadline)))
            if taken or deadline.has_passed:
                return taken or self._serve(num_messages)

    def _wait_s(self, deadline: Deadline) -> float:
        """Return how long the core may wait for records."""
        is_asking = self._patterns is not None and self._patterns.is_asking
        return min(ASKING_S, deadline.remaining) if is_asking else deadline.remaining

    def _serve(self, most: int) -> list[Message]:
        """Run the callbacks that are due, and return up to so many errors and ends as messages."""
        self._serve_events()
        if self._commits:
            self._serve_commits(0)
        if self._patterns is not None:
            self._patterns.look()
        errors: list[Message] = []
        while len(errors) < most and (report := self._core.take_report()) is not None:
            code, is_retriable, text, topic, partition, is_without_begin = report
            number = KafkaError._AUTO_OFFSET_RESET if is_without_begin else code
            is_fatal = topic is None and code in FATAL
            error = KafkaError(number, text, retriable=is_retriable, fatal=is_fatal)
            errors.append(Message(topic=topic, partition=partition, error=error))
        while len(errors) < most and (end := self._core.take_end()) is not None:
            reached = KafkaError(KafkaError._PARTITION_EOF)
            errors.append(Message(topic=end[0], partition=end[1], offset=end[2], error=reached))
        for refusal in refusals_of(self._core):
            self._refuse(refusal)
        return errors

    def _refuse(self, reason: str) -> None:
        if self._on_client_error is not None:
            self._on_client_error(KafkaError(KafkaError._AUTHENTICATION, reason))

    def _serve_events(self) -> None:
        while (event := self._core.take_event()) is not None:
            number, kind, places = event
            callback = self._callbacks.get(kind)
            self._is_answered = False
            try:
                if callback is not None:
                    callback(self, [TopicPartition(*place) for place in places])
            finally:
                if kind != "assign":
                    self._core.unassign(places)
                elif not self._is_answered:
                    self._core.assign([(*place, OFFSET_INVALID) for place in places])
                self._core.event_done(number)

    # ------------------------------------------------------------ offsets

    def commit(  # type: ignore[override]  # the overloads of the base say the same
        self, message: Any = None, offsets: Any = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit outside transactions."""
        self._require_open()
        if message is not None:
            offsets = [_behind(message)]
        elif offsets is None and self._keeps_store:
            offsets = list(self._stored.values())
        elif offsets is None:
            offsets = NativeClient.position(self, NativeClient.assignment(self))
        offsets = [each for each in offsets if each.offset >= 0]
        if not offsets:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "there is no offset to commit"))
        number = self._core.ask_commit(
            [
                (p.topic, p.partition, p.offset, _epoch(p.leader_epoch), p.metadata or "")
                for p in offsets
            ]
        )
        self._stored.clear()
        if asynchronous:
            self._commits[number] = offsets
            return None
        answers = self._await(number, FOREVER_S, "the offsets were not committed")[0]
        _raise_first(answers)
        return list(offsets)

    def _serve_commits(self, timeout: float) -> None:
        for number, offsets in list(self._commits.items()):
            answer = self._core.answer(number, ms_of(timeout), drops=False)
            if answer is None:
                continue
            self._commits.pop(number, None)
            codes = [code for _, _, code, *_ in answer[1] if code]
            error = KafkaError(codes[0]) if codes else None
            if answer[0] is not None:
                code, is_retriable, text = answer[0]
                error = KafkaError(code, text, retriable=is_retriable)
            if self._on_commit is not None:
                self._on_commit(error, offsets)
            elif error is not None:
                LOGGER.warning("an asynchronous commit failed: %s", error.str())

    def store_offsets(self, message: Any = None, offsets: Any = None) -> None:
        """Store offsets for `commit`."""
        self._require_open()
        if not self._keeps_store:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG, "store_offsets needs enable.auto.offset.store=false"
                )
            )
        for each in offsets if message is None else [_behind(message)]:
            self._stored[each.topic, each.partition] = each

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the committed offsets of the group; waits for open transactions."""
        self._require_open()
        if not partitions:
            return []
        number = self._core.ask_committed([(p.topic, p.partition) for p in partitions])
        answers = self._await(number, timeout, "the committed offsets are not known")[0]
        _raise_first(answers)
        return [
            _at(topic, partition, OFFSET_INVALID if offset < 0 else offset, epoch, metadata)
            for topic, partition, _, offset, epoch, metadata in answers
        ]

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the first offsets at or after timestamps (ms), which stand in `offset`."""
        return [
            _at(topic, partition, OFFSET_END if offset < 0 else offset, epoch)
            for topic, partition, offset, epoch in self._by_time(
                [(p.topic, p.partition, p.offset) for p in partitions], timeout
            )
        ]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset of a partition and its end."""
        self._require_open()
        place = partition.topic, partition.partition
        if cached:
            return self._core.watermarks(*place) or (OFFSET_INVALID, OFFSET_INVALID)
        first, end = (self._by_time([(*place, at)], timeout) for at in (-2, -1))
        return first[0][2], end[0][2]

    def _by_time(
        self, wanted: list[tuple[str, int, int]], timeout: float | None
    ) -> list[tuple[str, int, int, int]]:
        self._require_open()
        if not wanted:
            return []
        number = self._core.ask_by_time(wanted)
        answers = self._await(number, timeout, "the offsets are not known")[0]
        _raise_first(answers)
        by_place = {(a[0], a[1]): (a[3], a[4]) for a in answers}
        return [(t, p, *by_place[t, p]) for t, p, _ in wanted]

    def _await(self, number: int, timeout: float | None, what: str) -> tuple[Any, Any, Any]:
        is_forever = timeout is None or timeout < 0
        wait_s = FOREVER_S if is_forever or timeout is None else timeout
        answer = self._core.answer(number, ms_of(wait_s), drops=True)
        if answer is None:
            last = self._core.last_error()
            text = what if last is None else f"{what}: {last}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))
        error, offsets, brokers, topics = answer
        if error is not None:
            code, is_retriable, text = error
            raise KafkaException(KafkaError(code, text, retriable=is_retriable))
        return offsets, brokers, topics

    # ------------------------------------------------------------ the rest

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return brokers and topics, with the leaders of partitions and without replicas."""
        self._require_open()
        number = self._core.ask_topics(None if topic is None else [topic])
        _, brokers, topics = self._await(number, timeout, "the topics are not known")
        found = ClusterMetadata()
        for id_, host, port in brokers:
            broker = found.brokers[id_] = BrokerMetadata()
            broker.id, broker.host, broker.port = id_, host, port
        for name, code, partitions in topics:
            each = found.topics[name] = TopicMetadata()
            each.topic = name
            each.error = KafkaError(code) if code else None
            for error_code, number, leader in partitions:
                partition = each.partitions[number] = PartitionMetadata()
                partition.id, partition.leader = number, leader
                partition.error = KafkaError(error_code) if error_code else None
        return found

    def cluster_id(self, *_: Any, **__: Any) -> str:
        """Raise ConfigError: the engine does not ask for it."""
        raise self._lacks("cluster_id", "AdminClient(settings).list_topics() of confluent-kafka")

    def set_sasl_credentials(self, *_: Any, **__: Any) -> None:
        """Raise ConfigError: a consumer keeps the credentials of its settings."""
        raise self._lacks("set_sasl_credentials", "a new consumer with the new credentials")

    def _lacks(self, call: str, instead: str) -> ConfigError:
        return ConfigError(
            f"the consumer of group {self._group!r} has no {call}() with the native engine: use "
            f"{instead}, {OR_LIBRDKAFKA}",
            property="engine",
        )

    def memberid(self) -> str:
        """Return the member id; empty before the group was joined."""
        self._require_open()
        return self._core.membership()[1]

    def consumer_group_metadata(self) -> Any:
        """Return the place in the group as librdkafka writes it, for the producer of any engine."""
        self._require_open()
        epoch, member = self._core.membership()
        instance = self._instance if epoch >= 0 else None
        return write_place(self._group, epoch, member, instance)

    def close(self) -> None:
        """Leave the group, run its callbacks, and close the connections."""
        if self._is_closed:
            return
        try:
            self._core.unsubscribe()
            self._serve_events()
            self._serve_commits(LEAVE_S)
            self._core.wait_until_left(ms_of(LEAVE_S))
        finally:
            self._is_closed = True
            self._core.close()

    def __enter__(self) -> "NativeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Consumer closed")


def _epoch(leader_epoch: int | None) -> int:
    return -1 if leader_epoch is None else leader_epoch


def _at(
    topic: str, partition: int, offset: int, epoch: int | None, metadata: str = ""
) -> TopicPartition:
    more: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if epoch is not None and epoch >= 0:
        more["leader_epoch"] = epoch
    return TopicPartition(topic, partition, offset, **more)


def _behind(message: Any) -> TopicPartition:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return _at(topic, partition, offset + 1, message.leader_epoch())


def _raise_first(answers: list[tuple[str, int, int, int, int, str]]) -> None:
    for topic, partition, code, *_ in answers:
        if code:
            error = KafkaError(code)
            raise KafkaException(KafkaError(code, f"{topic}-{partition}: {error.str()}"))
