"""The consumer of a block: its partitions before and behind the block, and its way back.

Each function knows a `txn.Consumer`, which notes everything itself, and a plain one of
confluent-kafka, which can only be looked at.
"""

import time
from dataclasses import dataclass
from inspect import iscoroutinefunction

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from txn.client.beginnings import NOT_FETCHED
from txn.client.consumer import Consumer
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.failures import error_of, translate
from txn.client.places import names_of, places_of, positions_of
from txn.errors import RetriableError
from txn.identifiers import TopicPartition as Place


def require_consumer(consumer: object) -> None:
    """Raise TypeError for something that is no consumer, or one whose answers are awaited."""
    awaited = (getattr(consumer, name, None) for name in ("consumer_group_metadata", "poll"))
    if any(iscoroutinefunction(call) for call in awaited):
        raise TypeError(
            f"a transaction cannot use {type(consumer).__name__}, whose answers are awaited. Use a "
            "txn.Consumer; in asyncio a txn.aio.Consumer with a txn.aio.Producer"
        )
    if not hasattr(consumer, "consumer_group_metadata"):
        raise TypeError(
            f"transaction() takes the consumer whose offsets it commits, or nothing, not "
            f"{consumer!r}. The transactional id belongs to the producer: "
            "Producer(transactional_id=...)"
        )


@dataclass(frozen=True, slots=True)
class PlainState:
    """The observable state of a plain `confluent_kafka.Consumer` when a block begins.

    The group's metadata names the generation and the member, so a rebalance that reaches the
    member's end changes them. A partition that is revoked without that yet is missing from the
    assignment. A block during which either changes is aborted. A consumer that has no partitions
    when a block begins is made to join its group first (`join`).

    Some cases stay unseen here that `Consumer` sees. A `seek` hides the position until the next
    record, so the block commits no offset there. A partition comes and goes within one block
    and one generation. Records were handed out before the block from a partition that went away
    before it. A `poll` before the block had taken records when a signal interrupted it. A `commit`
    in a block commits its records, and one without arguments after an aborted block does, too.
    Last, for a group that never committed, the first record handed out is unknown. A rewind under
    `auto.offset.reset=latest` then skips the records that an aborted block read.
    """

    metadata: object
    assignment: frozenset[Place]


def state_of(consumer: confluent_kafka.Consumer) -> PlainState | None:
    """Return what to compare with at the end of a block; None for a `Consumer`."""
    if isinstance(consumer, Consumer):
        return None
    return PlainState(consumer.consumer_group_metadata(), places_of(consumer.assignment()))


def lost_partitions_text(
    consumer: confluent_kafka.Consumer, before: PlainState | None, *, produced: bool
) -> str | None:
    """Describe the partitions that the consumer lost since a block began; None if none.

    Args:
        consumer: The block's consumer.
        before: Its state when the block began.
        produced: Whether the block has produced anything.
    """
    if isinstance(consumer, Consumer):
        return consumer._positions.describe_loss()
    now = state_of(consumer)
    assert now is not None
    assert before is not None
    if now != before:
        had, has = names_of(before.assignment), names_of(now.assignment)
        return f"its group rebalanced; it had {had} and has {has}"
    if produced and not now.assignment:
        return "it has no partitions, so nothing of what it handed out can be committed"
    return None


def join(consumer: confluent_kafka.Consumer, deadline: Deadline) -> None:
    """Wait until a plain consumer has partitions, without taking records from it.

    A record that arrives with them is put back by a seek. Gives up quietly at the deadline:
    a member of a group with more members than partitions has none.

    Raises:
        TxnError: the consumer reported an error.
    """
    while not consumer.assignment() and not deadline.has_passed:
        message = consumer.poll(min(PAUSE_SECONDS, deadline.remaining))
        if message is None:
            continue
        error = message.error()
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            consumer.seek(TopicPartition(topic, partition, offset))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise translate(error, whose="the consumer", doing="joining its group")


def reached_by(consumer: confluent_kafka.Consumer) -> list[TopicPartition]:
    """Return one past the last record handed out, for partitions that handed out any.

    For a `Consumer` it is the target of a seek, if the seek came after the record.
    """
    if isinstance(consumer, Consumer):
        return [
            TopicPartition(*place, offset)
            for place, offset in consumer._positions.reached().items()
        ]
    return positions_of(consumer, consumer.assignment())


def rewind(consumer: confluent_kafka.Consumer, timeout: float = 60.0) -> None:
    """Put a consumer back to its group's committed offsets, as if nothing more had been read.

    Every assigned partition is sought to its committed offset. If nothing is committed, a
    `txn.Consumer` returns to the first record that it returned, and a plain consumer to
    `auto.offset.reset`. A `txn.Consumer` that was sought, or assigned at an offset, since the
    last commit and before the block returns to that offset. For a read_committed consumer the
    rewind waits for the offsets of a transaction that is still being ended.

    Args:
        consumer: A consumer of a group.
        timeout: Seconds to wait for the cluster.

    Raises:
        RetriableError: the committed offsets could not be fetched in time; the consumer keeps its
            position, and must not be read before a rewind has succeeded.
        TxnError: the cluster refuses to return them.
    """
    deadline = Deadline(timeout)
    if isinstance(consumer, Consumer):
        consumer._positions.note_aborted()
    assigned = consumer.assignment()
    moved = places_of(positions_of(consumer, assigned))
    for partition in _committed(consumer, assigned, deadline) if assigned else ():
        place = (partition.topic, partition.partition)
        target: int | None = OFFSET_INVALID if partition.offset < 0 else partition.offset
        if isinstance(consumer, Consumer):
            target = consumer._positions.rewind_offset(place, partition.offset)
        if target is not None and (target != OFFSET_INVALID or place in moved):
            _seek(consumer, TopicPartition(*place, target))
    if isinstance(consumer, Consumer):
        consumer._positions.note_rewound(assigned)


def _seek(consumer: confluent_kafka.Consumer, target: TopicPartition) -> None:
    try:
        if isinstance(consumer, Consumer):
            consumer._seek_back(target)
        else:
            consumer.seek(target)
    except KafkaException as raised:
        error = error_of(raised)
        if error.code() not in NOT_FETCHED:
            raise translate(error, whose="the consumer", doing="seeking back") from raised


def _committed(
    consumer: confluent_kafka.Consumer, assigned: list[TopicPartition], deadline: Deadline
) -> list[TopicPartition]:
    while True:
        try:
            answer = consumer.committed(assigned, max(PAUSE_SECONDS, deadline.remaining))
            error = next((p.error for p in answer if p.error is not None), None)
            if error is None:
                return answer
        except KafkaException as raised:
            error = error_of(raised)
        failure = translate(error, whose="the consumer", doing="asking what is committed")
        if deadline.has_passed or not isinstance(failure, RetriableError):
            raise failure
        time.sleep(PAUSE_SECONDS)
