"""A black-box checker: clients write what they can tell apart while the broker is killed.

    python tests/black_box.py --seconds 300 --seed 7

Producers write values that occur once to the partitions of one topic, plainly idempotent or
in transactions that they commit, abort, leave to their timeout or lose to a second instance.
Copiers read that topic as a consumer group and write its values to another one together
with their offsets. Meanwhile the broker is killed with SIGKILL and started again at random
moments. Everybody notes in a `History` what the broker told them; at the end `judge` holds
that against what a reader of each isolation level finds.

The seed settles every choice of the clients, but not how their threads meet: a run with the
same seed is alike, not the same.

Anomalies, as `judge` names them:

    lost-write          an acknowledged record, or one of a committed transaction, is missing
    duplicate           a value is stored twice
    reordered           values of one producer lie in another order than it sent them
    aborted-read        a record of an aborted transaction is shown under read_committed
    torn-transaction    a transaction whose outcome is unknown is shown in part
    zombie-commit       a commit succeeded after another instance had taken over
    offset-split        a group's offsets and the output written with them disagree
    lso-regress         the last stable offset or the end of a partition moved back
    lso-stuck           the last stable offset did not reach the end after every timeout
    unstable-read       a reader that followed the log saw something else than one at its end
    phantom             a record that nobody wrote
"""

import argparse
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from brokers import BrokerProcess
from clients import WAIT_S, create_topic, plain_producer, read_messages, transactional_producer

SOURCE = "source"
COPIES = "copies"
GROUP = "copiers"
PARTITIONS = 3
TIMEOUT_MS = 4_000
"""Of every transaction; what is left open is aborted after it."""

OFFSETS_S = 10.0
"""After it, sending offsets is given up."""

Partition = tuple[str, int]
View = Mapping[Partition, list[tuple[int, bytes]]]
"""Partition → (offset, value) in the order they were read."""


class Outcome(Enum):
    """What a client knows about records it sent."""

    KEPT = "acknowledged, or committed"
    GONE = "aborted, or never asked to be committed"
    UNKNOWN = "whole or absent"


@dataclass
class Write:
    """One record, and whether it was acknowledged."""

    partition: Partition
    value: bytes
    is_acknowledged: bool = False


@dataclass
class Attempt:
    """One transaction as its client saw it; `writes` in the order they were sent."""

    name: str
    writes: list[Write] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class History:
    """What the clients did and were told; appended to by threads, read at the end."""

    plain: dict[str, list[Write]] = field(default_factory=dict)
    """Idempotent producer → what it sent."""
    attempts: list[Attempt] = field(default_factory=list)
    followed: dict[Partition, list[tuple[int, bytes]]] = field(default_factory=dict)
    """What a read_committed reader saw that went along with the log."""
    group_offsets: dict[int, int] = field(default_factory=dict)
    """Partition of `SOURCE` → the copiers' committed offset at the end."""
    anomalies: list[str] = field(default_factory=list)
    """What was seen to be wrong while it happened."""


# ---------------------------------------------------------------- the judge


def judge(history: History, committed: View, uncommitted: View) -> list[str]:
    """Name every anomaly, one a line; none when all promises were kept.

    Args:
        history: What the clients were told.
        committed: What a read_committed reader finds at the end, in every partition.
        uncommitted: What a read_uncommitted reader finds.
    """
    return [
        *history.anomalies,
        *_judge_stored(history, committed, uncommitted),
        *_judge_plain(history, uncommitted),
        *_judge_attempts(history, committed),
        *_judge_followed(history, committed),
        *_judge_copies(history, committed),
    ]


def _judge_stored(history: History, committed: View, uncommitted: View) -> Iterator[str]:
    """Everything once, by somebody, and the same for both readers."""
    plain = [write for writes in history.plain.values() for write in writes]
    transactional = [write for attempt in history.attempts for write in attempt.writes]
    known = Counter((write.partition, write.value) for write in plain + transactional)
    for partition, found in uncommitted.items():
        for value, count in Counter(value for _, value in found).items():
            if count > 1:
                yield f"duplicate: {value!r} is {count} times in {partition}"
            if (partition, value) not in known:
                yield f"phantom: {value!r} in {partition}"
    for partition, found in committed.items():
        for offset, value in sorted(set(found) - set(uncommitted[partition])):
            yield f"phantom: {value!r} at {offset} of {partition} only under read_committed"
        if [offset for offset, _ in found] != sorted({offset for offset, _ in found}):
            yield f"duplicate: offsets of {partition} do not rise"


def _judge_plain(history: History, uncommitted: View) -> Iterator[str]:
    for name, writes in history.plain.items():
        for partition, found in uncommitted.items():
            mine = [write for write in writes if write.partition == partition]
            yield from _judge_order(name, mine, found)
            values = {value for _, value in found}
            for write in mine:
                if write.is_acknowledged and write.value not in values:
                    yield f"lost-write: {write.value!r}, acknowledged, is not in {partition}"


def _judge_attempts(history: History, committed: View) -> Iterator[str]:
    values = {partition: {value for _, value in found} for partition, found in committed.items()}
    for attempt in history.attempts:
        shown = [write for write in attempt.writes if write.value in values[write.partition]]
        about = f"{len(shown)} of {len(attempt.writes)} records of {attempt.name} are shown"
        if attempt.outcome is Outcome.KEPT and len(shown) < len(attempt.writes):
            yield f"lost-write: {about}, it was committed"
        if attempt.outcome is Outcome.GONE and shown:
            yield f"aborted-read: {about}, it was aborted"
        if attempt.outcome is Outcome.UNKNOWN and 0 < len(shown) < len(attempt.writes):
            yield f"torn-transaction: {about}"
        for partition, found in committed.items():
            mine = [write for write in attempt.writes if write.partition == partition]
            yield from _judge_order(attempt.name, mine, found)


def _judge_order(name: str, sent: list[Write], found: list[tuple[int, bytes]]) -> Iterator[str]:
    rank = {write.value: number for number, write in enumerate(sent)}
    ranks = [rank[value] for _, value in found if value in rank]
    if ranks != sorted(ranks):
        yield f"reordered: records of {name}"


def _judge_followed(history: History, committed: View) -> Iterator[str]:
    for partition, followed in history.followed.items():
        expected = committed[partition][: len(followed)]
        if followed != expected:
            at = next(
                (pair for pair in zip(followed, expected, strict=False) if pair[0] != pair[1]),
                (followed[len(expected) :], "nothing"),
            )
            yield f"unstable-read: {partition}: {at[0]!r} while following, {at[1]!r} at the end"


def _judge_copies(history: History, committed: View) -> Iterator[str]:
    """The output holds the input up to the group's offset: all of it, once, in order."""
    for index, position in history.group_offsets.items():
        wanted = [value for offset, value in committed[SOURCE, index] if offset < position]
        got = [original_of(value) for _, value in committed[COPIES, index]]
        if got != wanted:
            yield (
                f"offset-split: the group is at {position} of {SOURCE}-{index}, which has "
                f"{len(wanted)} records before it, and {len(got)} copies were made: "
                f"missing {sorted(Counter(wanted) - Counter(got))[:5]}, "
                f"too many {sorted(Counter(got) - Counter(wanted))[:5]}"
            )


def copy_of(value: bytes, attempt: str) -> bytes:
    """What a copier makes of a record; another value in every attempt."""
    return value + b" copied by " + attempt.encode()


def original_of(copy: bytes) -> bytes:
    """What was copied."""
    return copy.partition(b" copied by ")[0]


# ---------------------------------------------------------------- the clients


class Run:
    """One run: a broker, its clients, and what they noted."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.history = History()
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._names: Counter[str] = Counter()

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def go(self, seconds: float) -> tuple[View, View]:
        """Let clients and SIGKILL loose; return both readers' views of what is left.

        Raises whatever a client did not expect.
        """
        for topic in (SOURCE, COPIES):
            create_topic(self.servers, topic, PARTITIONS)
        threads = [
            threading.Thread(target=work, name=name, daemon=True) for name, work in self._work()
        ]
        for thread in threads:
            thread.start()
        self._kill_until(time.monotonic() + seconds)
        self._over.set()
        for thread in threads:
            thread.join(4 * WAIT_S)
            if thread.is_alive():
                frame = sys._current_frames()[thread.ident or 0]
                where = "".join(traceback.format_stack(frame))
                raise TimeoutError(f"{thread.name} does not come to an end:\n{where}")
        if self._failures:
            raise self._failures[0]
        self._await_stable()
        self._note_group_offsets()
        return self._read("read_committed"), self._read("read_uncommitted")

    def _work(self) -> Iterator[tuple[str, Callable[[], None]]]:
        clients = {
            self._write_plainly: ("plain-0", "plain-1"),
            self._write_in_transactions: ("txn-0", "txn-1", "txn-2"),
            self._copy: ("copier-0", "copier-1"),
            self._follow: ("follower",),
            self._watch_ends: ("watcher",),
        }
        for work, names in clients.items():
            for name in names:
                yield name, self._guarded(work, name)

    def _guarded(self, work: Callable[[str, random.Random], None], name: str) -> Callable[[], None]:
        chance = random.Random(self._random.random())

        def run() -> None:
            try:
                work(name, chance)
            except BaseException as failure:
                self._failures.append(failure)

        return run

    def _kill_until(self, end: float) -> None:
        while not self._failures:
            left = end - time.monotonic()
            if left <= 0:
                return
            self._over.wait(min(left, self._random.uniform(0.2, 4.0)))
            self.broker.kill()
            self._over.wait(self._random.choice((0.0, 0.0, 0.3)))
            self.broker.restart()

    # ------------------------------------------------------------ who writes

    def _write_plainly(self, name: str, chance: random.Random) -> None:
        writes = self.history.plain[name] = []
        producer = plain_producer(self.servers, enable_idempotence=True)
        number = 0
        while not self._over.is_set():
            for _ in range(chance.randrange(1, 20)):
                partition = (SOURCE, chance.randrange(PARTITIONS))
                write = Write(partition, b"%s:%d" % (name.encode(), number))
                number += 1
                writes.append(write)
                _send(producer, write)
            producer.poll(0)
            self._over.wait(chance.uniform(0.0, 0.1))
        if producer.flush(2 * WAIT_S):
            raise TimeoutError(f"{name} could not deliver everything to a broker that runs")

    def _write_in_transactions(self, name: str, chance: random.Random) -> None:
        """Transactions of one transactional id, one after the other, ended in every way."""
        producer = self._producer(name)
        while not self._over.is_set():
            attempt = self._attempt(name)
            producer.begin_transaction()
            for number in range(chance.randrange(1, 12)):
                where = (SOURCE, chance.randrange(PARTITIONS))
                _write(producer, attempt, where, b"%s:%d" % (attempt.name.encode(), number))
                if chance.random() < 0.2:
                    producer.flush(chance.uniform(0.0, 0.2))
            end = chance.choices(
                (self._commit, self._abort, self._abandon, self._outwait, self._lose, self._race),
                (10, 4, 1, 1, 2, 2),
            )[0]
            if not end(producer, attempt, chance):
                producer = self._producer(name)
        # What is left open now, only its timeout will end.
        attempt = self._attempt(name)
        producer.begin_transaction()
        _write(producer, attempt, (SOURCE, 0), b"%s:left" % attempt.name.encode())
        producer.flush(WAIT_S)
        attempt.outcome = Outcome.GONE

    def _copy(self, name: str, chance: random.Random) -> None:
        """Consume, transform, produce; whatever fails begins anew at the committed offsets."""
        while not self._over.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": self.servers,
                    "group.id": GROUP,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6_000,
                }
            )
            consumer.subscribe([SOURCE])
            producer = self._producer(name)
            try:
                while not self._over.is_set() and self._copy_once(name, chance, consumer, producer):
                    pass
            finally:
                consumer.close()

    def _copy_once(
        self, name: str, chance: random.Random, consumer: Consumer, producer: Producer
    ) -> bool:
        """Copy what is there; say whether consumer and producer may go on."""
        taken = [
            message
            for message in consumer.consume(chance.randrange(1, 200), timeout=0.3)
            if message.error() is None
        ]
        if not taken:
            return True
        attempt = self._attempt(name)
        positions: dict[int, int] = {}
        producer.begin_transaction()
        for message in taken:
            index, offset = message.partition() or 0, message.offset() or 0
            _write(
                producer, attempt, (COPIES, index), copy_of(message.value() or b"", attempt.name)
            )
            positions[index] = offset + 1
        offsets = [TopicPartition(SOURCE, index, at) for index, at in positions.items()]
        is_sent = _send_offsets(producer, consumer, offsets)
        if is_sent is None:
            return self._abandon(producer, attempt, chance)
        if not is_sent:
            self._abort(producer, attempt, chance)
            return False
        end = chance.choices((self._commit, self._abort, self._abandon), (12, 2, 1))[0]
        return end(producer, attempt, chance) and attempt.outcome is Outcome.KEPT

    # ------------------------------------------------------------ ways to end; True: go on with it

    def _commit(self, producer: Producer, attempt: Attempt, chance: random.Random) -> bool:
        try:
            _insist(producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                return False
            is_aborted = self._abort(producer, attempt, chance)
            # A commit that was sent may have arrived: only a successful abort says it did not.
            attempt.outcome = Outcome.GONE if is_aborted else Outcome.UNKNOWN
            return is_aborted
        attempt.outcome = Outcome.KEPT
        return True

    def _abort(self, producer: Producer, attempt: Attempt, _: random.Random) -> bool:
        attempt.outcome = Outcome.GONE
        try:
            _insist(producer.abort_transaction)
        except KafkaException:
            return False
        return True

    def _abandon(self, _: Producer, attempt: Attempt, __: random.Random) -> bool:
        attempt.outcome = Outcome.GONE
        return False

    def _outwait(self, producer: Producer, attempt: Attempt, chance: random.Random) -> bool:
        """Commit about when the transaction times out."""
        self._over.wait(TIMEOUT_MS / 1000 * chance.uniform(0.8, 1.2))
        return self._commit(producer, attempt, chance)

    def _lose(self, zombie: Producer, attempt: Attempt, _: random.Random) -> bool:
        """Commit after a second instance has taken over."""
        attempt.outcome = Outcome.GONE
        self._producer(attempt.name.partition("/")[0])
        try:
            _insist(zombie.commit_transaction)
        except KafkaException:
            return False
        self.history.anomalies.append(f"zombie-commit: {attempt.name} was committed by a zombie")
        return False

    def _race(self, zombie: Producer, attempt: Attempt, chance: random.Random) -> bool:
        """Commit while a second instance is taking over."""
        name = attempt.name.partition("/")[0]
        successor = threading.Thread(target=self._guarded(lambda *_: self._take(name), name))
        successor.start()
        self._over.wait(chance.uniform(0.0, 0.02))
        self._commit(zombie, attempt, chance)
        successor.join()
        return False

    def _take(self, name: str) -> None:
        self._producer(name)

    # ------------------------------------------------------------ who watches

    def _follow(self, _: str, __: random.Random) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        everything = _partitions()
        self.history.followed = {partition: [] for partition in everything}
        consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in everything])
        while not self._over.is_set():
            for message in consumer.consume(500, timeout=0.3):
                if message.error() is None:
                    seen = self.history.followed[message.topic() or "", message.partition() or 0]
                    seen.append((message.offset() or 0, message.value() or b""))
        consumer.close()

    def _watch_ends(self, _: str, __: random.Random) -> None:
        """Neither the last stable offset nor the end of a partition ever moves back."""
        readers = {isolation: _reader(self.servers, isolation) for isolation in ISOLATIONS}
        highest: Counter[tuple[str, Partition]] = Counter()
        while not self._over.wait(0.02):
            for isolation, reader in readers.items():
                for partition in _partitions():
                    end = _end(reader, partition)
                    if end is None:
                        continue
                    if end < highest[isolation, partition]:
                        self.history.anomalies.append(
                            f"lso-regress: the end of {partition} under {isolation} went from "
                            f"{highest[isolation, partition]} to {end}"
                        )
                    highest[isolation, partition] = end
        for reader in readers.values():
            reader.close()

    # ------------------------------------------------------------ the end

    def _await_stable(self) -> None:
        """Wait until no transaction is open, at most a few timeouts."""
        readers = [_reader(self.servers, isolation) for isolation in ISOLATIONS]
        deadline = time.monotonic() + 3 * TIMEOUT_MS / 1000 + WAIT_S
        for partition in _partitions():
            while True:
                stable, end = (_end(reader, partition) for reader in readers)
                if stable == end is not None:
                    break
                if time.monotonic() > deadline:
                    self.history.anomalies.append(
                        f"lso-stuck: {partition} is stable up to {stable} of {end}"
                    )
                    break
        for reader in readers:
            reader.close()

    def _note_group_offsets(self) -> None:
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": GROUP})
        wanted = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        for found in reader.committed(wanted, timeout=WAIT_S):
            at = 0 if found.offset == OFFSET_INVALID else found.offset
            self.history.group_offsets[found.partition] = at
        reader.close()

    def _read(self, isolation: str) -> View:
        view: dict[Partition, list[tuple[int, bytes]]] = {p: [] for p in _partitions()}
        for topic in (SOURCE, COPIES):
            for message in read_messages(self.servers, topic, isolation=isolation):
                where = topic, message.partition() or 0
                view[where].append((message.offset() or 0, message.value() or b""))
        return view

    # ------------------------------------------------------------ small things

    def _producer(self, transactional_id: str) -> Producer:
        while True:
            try:
                return transactional_producer(
                    self.servers, transactional_id, transaction_timeout_ms=TIMEOUT_MS
                )
            except KafkaException as failure:
                if self._over.is_set() or not failure.args[0].retriable():
                    raise

    def _attempt(self, name: str) -> Attempt:
        self._names[name] += 1
        attempt = Attempt(f"{name}/{self._names[name]}")
        self.history.attempts.append(attempt)
        return attempt


ISOLATIONS = ("read_committed", "read_uncommitted")


def _partitions() -> Iterable[Partition]:
    return [(topic, index) for topic in (SOURCE, COPIES) for index in range(PARTITIONS)]


def _send(producer: Producer, write: Write) -> None:
    def settle(error: KafkaError | None, _: Message) -> None:
        write.is_acknowledged = error is None

    topic, index = write.partition
    while True:
        try:
            producer.produce(topic, value=write.value, partition=index, on_delivery=settle)
            return
        except BufferError:
            producer.poll(0.1)


def _write(producer: Producer, attempt: Attempt, partition: Partition, value: bytes) -> None:
    """Write in a transaction; one that has failed already takes nothing more."""
    write = Write(partition, value)
    try:
        _send(producer, write)
    except KafkaException:
        return
    attempt.writes.append(write)


def _send_offsets(
    producer: Producer, consumer: Consumer, offsets: list[TopicPartition]
) -> bool | None:
    """Send a group's offsets to a transaction; None if the call does not come back.

    librdkafka waits for the group's coordinator without looking at the timeout (its issue
    5456): once a broker was gone, until another connection changes its state.
    """
    sent: list[bool] = []
    group = consumer.consumer_group_metadata()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, group, WAIT_S)
            sent.append(True)
        except KafkaException:
            sent.append(False)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(OFFSETS_S)
    return sent[0] if sent else None


def _insist(call: Callable[[float], object]) -> None:
    """End a transaction, again while librdkafka says that it may be tried again."""
    deadline = time.monotonic() + 2 * WAIT_S
    while True:
        try:
            call(WAIT_S)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise


def _reader(servers: str, isolation: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": servers, "group.id": "ends", "isolation.level": isolation}
    )


def _end(reader: Consumer, partition: Partition) -> int | None:
    """The end a reader may see; None while there is no broker to say."""
    try:
        found = reader.get_watermark_offsets(TopicPartition(*partition), timeout=2.0)
    except KafkaException:
        return None
    return None if found is None else found[1]


def run_black_box(
    data: Path, seconds: float, seed: int, durability: str = "process"
) -> tuple[Counter[Outcome], list[str]]:
    """Run once; return how many transactions ended how, and the anomalies."""
    broker = BrokerProcess(data, "group.initial.rebalance.delay.ms=0", durability=durability)
    try:
        run = Run(broker, seed)
        committed, uncommitted = run.go(seconds)
    finally:
        broker.stop()
    outcomes = Counter(attempt.outcome for attempt in run.history.attempts)
    return outcomes, judge(run.history, committed, uncommitted)


def main() -> int:
    """Run from the command line; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 16))
    parser.add_argument("--durability", default="process", choices=("process", "commit", "always"))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    data = Path(tempfile.mkdtemp(prefix="black-box-")) / "data"
    outcomes, anomalies = run_black_box(
        data, arguments.seconds, arguments.seed, arguments.durability
    )
    print(", ".join(f"{outcome.name.lower()} {count}" for outcome, count in outcomes.items()))
    print(*anomalies[:50], sep="\n")
    print(f"{len(anomalies)} anomalies; data in {data}")
    return 1 if anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
