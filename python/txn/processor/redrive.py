"""Dead letters that are listed, and those that are produced to their topics again.

A letter is *redriven* by a transaction that has two parts: the record in its original topic, and
the offsets of the group `txn-dead-letters` (`settled.py`). A redrive that is killed and repeated
goes on where its last transaction ended, so no letter is redriven twice. The transactional id is
made of the topic's name: a second redrive of the topic fences the first.

A redriven record has the key, the value and the headers of the original record, and the header
`txn.original.timestamp`. Its timestamp is the time of the redrive, so retention does not delete it
at once. It goes to its original partition, or by its key if the topic has no such partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

import txn.client
from txn.client.failures import error_of, translate
from txn.errors import ConfigError, RetriableError
from txn.processor.letters import TIMESTAMP, Letter, letter_of, original_headers
from txn.processor.records import Record, record_of
from txn.processor.settled import Settled, settled_after, settled_of

GROUP_ID: Final = "txn-dead-letters"
LETTERS_PER_TRANSACTION: Final = 500
BYTES_PER_TRANSACTION: Final = 8 << 20
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a topic of dead letters, with the facts of its headers."""

    record: Record
    letter: Letter

    @property
    def size_bytes(self) -> int:
        """The bytes of its key and its value."""
        return len(self.record.key or b"") + len(self.record.value or b"")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are wanted; None: any.

    Attributes:
        original: The original topic.
        error: The class of the error, with its module or without; or its digest; or a part of its
            message.
        place: Partition and offset of one letter.
        last: Partition → the last offset that is wanted of it; no letter of other partitions.
    """

    original: str | None = None
    error: str | None = None
    place: tuple[int, int] | None = None
    last: Mapping[int, int] | None = None

    def has(self, dead: DeadLetter) -> bool:
        """Return True if a letter is chosen."""
        letter, record = dead.letter, dead.record
        if self.place is not None and self.place != (record.partition, record.offset):
            return False
        if self.last is not None and record.offset > self.last.get(record.partition, -1):
            return False
        if self.original is not None and self.original != letter.topic:
            return False
        return self.error is None or _has_error(letter, self.error)


@dataclass(slots=True)
class Redriven:
    """The result of a redrive.

    Attributes:
        counts: Number of letters by the topic that they went to.
        unaddressed: Chosen letters whose headers name no original topic; they are kept.
    """

    counts: dict[str, int] = field(default_factory=dict)
    unaddressed: int = 0

    @property
    def total(self) -> int:
        """The number of letters that were redriven."""
        return sum(self.counts.values())


class DeadLetters:
    """The letters of one topic. Close it: it is a context manager.

    Args:
        settings: The properties of a connection.
        topic: The topic of dead letters.

    Raises:
        ConfigError: a property does not fit.
    """

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self._settings = dict(settings)
        self._topic = topic
        self._consumer = txn.client.Consumer(
            {
                **self._settings,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
            },
            group_id=GROUP_ID,
        )

    def __enter__(self) -> "DeadLetters":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def letters(self, choice: Choice | None = None) -> Iterator[DeadLetter]:
        """Return the chosen letters that are not redriven, by partition and offset.

        Raises:
            ConfigError: the topic is not there.
            TxnError: the cluster does not answer, or refuses.
        """
        wanted = choice or Choice()
        for partition, settled in self._settled().items():
            for dead in self._read(partition, settled.offset):
                if not settled.has(dead.record.offset) and wanted.has(dead):
                    yield dead

    def redrive(self, choice: Choice | None = None, *, to: str | None = None) -> Redriven:
        """Produce the chosen letters to their original topics, and commit that they are redriven.

        Each transaction has up to `LETTERS_PER_TRANSACTION` letters. What an error or a kill leaves
        behind is redriven by the next call.

        Args:
            choice: Which letters; None: all.
            to: The topic to produce to, in place of the original ones.

        Raises:
            ConfigError: the topic, or one to produce to, is not there.
            FencedError: another redrive of the topic has begun.
            TxnError: the cluster does not answer, or refuses.
        """
        wanted = choice or Choice()
        result = Redriven()
        with txn.client.Producer(
            self._settings, transactional_id=f"{GROUP_ID}-{self._topic}"
        ) as producer:  # it ends an earlier redrive, so the offsets below are settled
            for partition, settled in self._settled().items():
                self._redrive_partition(producer, partition, settled, wanted, to, result)
        return result

    def _redrive_partition(
        self,
        producer: txn.client.Producer,
        partition: int,
        settled: Settled,
        wanted: Choice,
        to: str | None,
        result: Redriven,
    ) -> None:
        seen: list[tuple[int, bool]] = []
        batch: list[DeadLetter] = []
        for dead in self._read(partition, settled.offset):
            offset = dead.record.offset
            is_new = not settled.has(offset) and wanted.has(dead)
            if is_new and to is None and dead.letter.topic is None:
                result.unaddressed += 1
                is_new = False
            seen.append((offset, is_new or settled.has(offset)))
            if not is_new:
                continue
            batch.append(dead)
            size = sum(each.size_bytes for each in batch)
            if len(batch) == LETTERS_PER_TRANSACTION or size >= BYTES_PER_TRANSACTION:
                self._commit(producer, partition, settled_after(settled, seen), batch, to, result)
                batch = []
        if batch:
            self._commit(producer, partition, settled_after(settled, seen), batch, to, result)

    def _commit(
        self,
        producer: txn.client.Producer,
        partition: int,
        settled: Settled,
        batch: Sequence[DeadLetter],
        to: str | None,
        result: Redriven,
    ) -> None:
        position = TopicPartition(self._topic, partition, settled.offset, metadata=settled.metadata)
        targets = [to or dead.letter.topic or "" for dead in batch]
        partitions = {name: self._partitions(name) for name in set(targets)}
        with producer.transaction() as t:
            for dead, target in zip(batch, targets, strict=True):
                home = dead.letter.partition if to is None else None
                t.produce(
                    target,
                    dead.record.value,
                    dead.record.key,
                    headers=_headers(dead),
                    partition=home if home in partitions[target] else None,
                )
            t.send_offsets([position], self._consumer)
        for target in targets:
            result.counts[target] = result.counts.get(target, 0) + 1

    def _settled(self) -> dict[int, Settled]:
        """Return the state of each partition, by its number."""
        places = [TopicPartition(self._topic, each) for each in self._partitions(self._topic)]
        try:
            committed = self._consumer.committed(places, TIMEOUT_S)
            for each in committed:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as raised:
            raise self._failure(raised, f"asking for the offsets of {GROUP_ID!r}") from raised
        return {each.partition: settled_of(each.offset, each.metadata) for each in committed}

    def _partitions(self, topic: str) -> list[int]:
        try:
            found = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic]
        except KafkaException as raised:
            raise self._failure(raised, f"asking for topic {topic!r}") from raised
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise ConfigError(
                    f"there is no topic {topic!r}; `txn topics list` shows those that are there"
                )
            raise translate(found.error, whose="the client", doing=f"asking for topic {topic!r}")
        return sorted(found.partitions)

    def _read(self, partition: int, start: int) -> Iterator[DeadLetter]:
        """Return the committed records of a partition from an offset to its present end."""
        place = TopicPartition(self._topic, partition)
        try:
            first, end = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
        except KafkaException as raised:
            raise self._failure(raised, f"asking for the end of {self._topic!r}") from raised
        if max(first, start) >= end:
            return
        at = start if start > first else OFFSET_BEGINNING
        self._consumer.assign([TopicPartition(self._topic, partition, at)])
        try:
            while True:
                message = self._consumer.poll(TIMEOUT_S)
                if message is None:
                    raise RetriableError(
                        f"{self._topic}-{partition} was not read to its end within {TIMEOUT_S:g} "
                        "s. Try again"
                    )
                if message.error() is not None:  # its end
                    return
                record = record_of(message)
                if record.offset >= end:
                    return
                yield DeadLetter(record, letter_of(record.headers))
                if record.offset >= end - 1:
                    return
        finally:
            with suppress(RuntimeError):  # it is closed
                self._consumer.unassign()

    def _failure(self, raised: KafkaException, doing: str) -> Exception:
        return translate(error_of(raised), whose="the client", doing=doing)


def _has_error(letter: Letter, text: str) -> bool:
    name = letter.error_class or ""
    is_named = text in (name, name.rpartition(".")[2], letter.error_digest)
    return is_named or text in (letter.error_message or "")


def _headers(dead: DeadLetter) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = [*original_headers(dead.record.headers)]
    if dead.letter.timestamp_ms is not None:
        headers.append((TIMESTAMP, str(dead.letter.timestamp_ms)))
    return headers
