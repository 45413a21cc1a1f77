"""Reads the outputs as they grow and once more in the end, and compares them with the oracle.

A row that a read_committed reader was given and that is not there in the end was uncommitted. So
the two readings have to be the same, offset by offset.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from spark.long.rows import CLOSING, NOBODY, Totals, lines_of
from support import clients

READ_WAIT_S: Final = 0.5
FETCHED_AT_ONCE: Final = 5_000
EXAMPLES_MAX: Final = 5


class Oracle(Protocol):
    """Expected rows."""

    def line(self, number: int) -> bytes:
        """The output of row `number`."""


@dataclass
class Reading:
    """The committed records of both outputs, in the order of a reader."""

    oracle: Oracle
    seen: bytearray = field(default_factory=bytearray)
    """A bit for each row's number."""
    rows: int = 0
    """Distinct rows."""
    closings: int = 0
    totals: Counter[bytes] = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    next_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    digests: dict[tuple[str, int], "hashlib.blake2b"] = field(default_factory=dict)

    def note(self, topic: str, partition: int, offset: int, value: bytes, *, is_row: bool) -> None:
        """Take in one record."""
        place = topic, partition
        if offset < self.next_offset.get(place, 0):
            self.wrong.append(f"offset {offset} of {topic}-{partition} came again")
        self.next_offset[place] = offset + 1
        digest = self.digests.setdefault(place, hashlib.blake2b(digest_size=16))
        digest.update(b"%d %b\n" % (offset, value))
        if is_row:
            self._note_row(value)
        elif value.split(b"|")[2] != NOBODY.encode():
            self.totals[value] += 1
            if self.totals[value] > 1:
                self.repeated.append(value.decode())

    def digest(self) -> dict[tuple[str, int], str]:
        """Both outputs, as a short text for each partition."""
        return {place: digest.hexdigest() for place, digest in self.digests.items()}

    def _note_row(self, value: bytes) -> None:
        number = int(value[: value.index(b"|")])
        if number >= CLOSING:
            self.closings += 1
            return
        if value != self.oracle.line(number):
            self.wrong.append(value.decode())
        byte, bit = number >> 3, 1 << (number & 7)
        if byte >= len(self.seen):
            self.seen.extend(bytes(byte + 1 - len(self.seen)))
        if self.seen[byte] & bit:
            self.repeated.append(value.decode())
        else:
            self.seen[byte] |= bit
            self.rows += 1

    def missing(self, count: int) -> list[int]:
        """The numbers below `count` that no row had; all of them."""
        seen = self.seen
        return [
            number
            for number in range(count)
            if number >> 3 >= len(seen) or not seen[number >> 3] & (1 << (number & 7))
        ]


@dataclass(frozen=True)
class Verdict:
    """The outputs beside those that had to be."""

    rows: int
    rows_expected: int
    totals: int
    totals_expected: int
    missing: int
    repeated: int
    wrong: int
    uncommitted_read: int
    """Partitions of which the reader of the growing output saw other records."""
    held_back: int
    """Offsets behind a transaction that nobody ends."""
    examples: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not (
            self.missing or self.repeated or self.wrong or self.uncommitted_read or self.held_back
        )


def compare(live: Reading, final: Reading, count: int, held_back: int, totals: Totals) -> Verdict:
    """Compare the readings with each other, and the final one with the expected lines.

    Args:
        live: The reading of the growing outputs.
        final: That of the finished ones.
        count: The number of rows.
        held_back: Offsets behind an open transaction.
        totals: The expected totals.
    """
    missing = final.missing(count)
    expected = Counter(lines_of(totals))
    missing_totals, strange = expected - final.totals, Counter(final.totals.keys()) - expected
    before, after = live.digest(), final.digest()
    differing = sorted(
        place for place in after.keys() | before.keys() if before.get(place) != after.get(place)
    )
    beyond = final.rows - (count - len(missing))
    examples = [
        *(f"missing row {number}" for number in missing[:EXAMPLES_MAX]),
        *(f"missing total {line.decode()}" for line in list(missing_totals)[:EXAMPLES_MAX]),
        *(f"repeated {text}" for text in final.repeated[:EXAMPLES_MAX]),
        *(f"wrong {text}" for text in (final.wrong + live.wrong)[:EXAMPLES_MAX]),
        *(f"wrong total {line.decode()}" for line in list(strange)[:EXAMPLES_MAX]),
        *(f"read otherwise while it grew: {topic}-{n}" for topic, n in differing),
    ]
    return Verdict(
        rows=final.rows,
        rows_expected=count,
        totals=len(final.totals),
        totals_expected=expected.total(),
        missing=len(missing) + missing_totals.total(),
        repeated=max(len(final.repeated), len(live.repeated)),
        wrong=len(final.wrong) + len(live.wrong) + strange.total() + beyond,
        uncommitted_read=len(differing),
        held_back=held_back,
        examples=tuple(examples),
    )


class LiveReader:
    """A read_committed reader of the growing outputs, in a thread of its own."""

    def __init__(self, servers: str, reading: Reading, topics: Mapping[str, bool]) -> None:
        self.reading = reading
        self._servers = servers
        self._topics = topics
        self._stop = threading.Event()
        self._until: dict[tuple[str, int], int] | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def stop_at(self, ends: dict[tuple[str, int], int]) -> None:
        """Read up to these offsets, and wait for it."""
        self._until = ends
        self._thread.join(clients.WAIT_S * 4)
        self._stop.set()
        self._thread.join(clients.WAIT_S)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), "the reader hangs"

    def _run(self) -> None:
        try:
            read(self._servers, self.reading, self._topics, self._is_over)
        except BaseException as error:
            self.failure = error

    def _is_over(self, positions: Mapping[tuple[str, int], int]) -> bool:
        until = self._until
        return self._stop.is_set() or (until is not None and are_reached(positions, until))


def are_reached(
    positions: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
) -> bool:
    """Say whether a reader has come to all of these ends."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


def read(
    servers: str,
    reading: Reading,
    topics: Mapping[str, bool],
    is_over: Callable[[Mapping[tuple[str, int], int]], bool],
) -> None:
    """Read committed records from the beginning, until it is over.

    Args:
        servers: The cluster.
        reading: Takes the records in.
        topics: The outputs; True for the one with rows.
        is_over: Asked between reads, with the ends that were reached.

    Raises:
        KafkaException: the broker has lost a place that was read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "long-judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    reached: dict[tuple[str, int], int] = {}
    try:
        known = {name: consumer.list_topics(name, clients.WAIT_S).topics[name] for name in topics}
        places = [(name, number) for name, topic in known.items() for number in topic.partitions]
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        while not is_over(reached):
            for message in consumer.consume(FETCHED_AT_ONCE, READ_WAIT_S):
                topic, partition = str(message.topic()), message.partition() or 0
                offset = message.offset() or 0
                error = message.error()
                if error is None:
                    value = message.value() or b""
                    reading.note(topic, partition, offset, value, is_row=topics[topic])
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[topic, partition] = offset
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KafkaException(error)
    finally:
        consumer.close()
