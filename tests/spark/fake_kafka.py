"""A cluster in memory: just the rules of transactions that the Spark protocol leans on.

Both transaction versions. A real node treats a careless client quietly and wrongly, and so does
this one: a second writer under the same epoch has its batches dropped as duplicates.
"""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from txn._core import KafkaError
from txn.spark.kafka import TransactionalClient, Writer

FENCED, INVALID_EPOCH, INVALID_STATE, UNKNOWN_TOPIC, UNKNOWN_ID = 90, 47, 48, 3, 49

Place = tuple[str, int]


@dataclass
class FakeRecord:
    key: bytes | None
    value: bytes | None
    transaction: "FakeTransaction | None"
    """None for a marker."""


@dataclass
class FakeTransaction:
    """One transaction; its outcome is None while it is open."""

    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    is_committed: bool | None = None
    started_ms: int = 0


@dataclass
class FakeProducer:
    """The coordinator's entry of a transactional id."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    timeout_ms: int = 0
    open: FakeTransaction | None = None
    ended: bool | None = None
    """End of the last transaction."""
    ended_epoch: int = -1


class FakeKafka:
    """The cluster; also a client of it."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.transaction_version = transaction_version
        self.now_ms = 1_000_000
        self.logs: dict[Place, list[FakeRecord]] = {}
        self.counts: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.producers: dict[str, FakeProducer] = {}
        self.group_offsets: dict[tuple[str, str, int], int] = {}
        self.sequences: dict[tuple[Place, int], tuple[int, int]] = {}
        """Per partition and producer id: (epoch, next sequence)."""
        self.inits: list[str] = []
        self.allows_two_phase = False
        self.forgotten = 0

    # ---------------------------------------------------------------- topics

    def partition_count(self, topic: str) -> int:
        if topic not in self.counts:
            raise KafkaError(f"no topic {topic}", UNKNOWN_TOPIC, False)
        return self.counts[topic]

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> bool:
        is_new = topic not in self.counts
        self.counts.setdefault(topic, partitions)
        self.configs.setdefault(topic, configs)
        return is_new

    def list_offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        timestamp_ms: int,
        *,
        read_committed: bool = True,
    ) -> list[int]:
        self.partition_count(topic)
        if timestamp_ms == -2:
            return [0 for _ in partitions]
        return [self.end((topic, n), read_committed=read_committed) for n in partitions]

    def fetch(
        self, topic: str, partition: int, start: int, end: int, *, read_committed: bool = True
    ) -> Iterator[dict[str, Any]]:
        end = min(end, self.end((topic, partition), read_committed=read_committed))
        found = [
            (record.key, record.value)
            for record in self.logs.get((topic, partition), [])[start:end]
            if record.transaction is not None
            and (record.transaction.is_committed or not read_committed)
        ]
        yield {"rows": len(found), **_columns("key", found, 0), **_columns("value", found, 1)}

    def committed(self, topic: str) -> list[bytes | None]:
        """Records that a read_committed reader of the whole topic gets."""
        return [
            value
            for place in sorted(self.logs)
            if place[0] == topic
            for record in self.logs[place][: self.end(place)]
            for value in [record.value]
            if record.transaction is not None and record.transaction.is_committed
        ]

    def end(self, place: Place, *, read_committed: bool = True) -> int:
        """The last stable offset, or the end of the log."""
        log = self.logs.get(place, [])
        if read_committed:
            for offset, record in enumerate(log):
                if record.transaction is not None and record.transaction.is_committed is None:
                    return offset
        return len(log)

    # ---------------------------------------------------------------- transactions

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        is_two_phase: bool = False,
    ) -> tuple[int, int]:
        if is_two_phase and not self.allows_two_phase:
            raise KafkaError("InitProducerId 6 is not offered", 35, False)
        self.inits.append(transactional_id)
        new = FakeProducer(1000 + self.forgotten + len(self.producers))
        producer = self.producers.setdefault(transactional_id, new)
        if producer.open is not None:  # under any epoch that the caller expects, as Kafka has it
            self._end_with(producer, False)
            producer.epoch += 1
            producer.last_epoch = -1
        if producer_id >= 0 and producer_epoch != producer.epoch:
            if producer_epoch == producer.last_epoch:
                return producer.producer_id, producer.epoch
            raise KafkaError(f"{transactional_id} is fenced", FENCED, False)
        producer.last_epoch = producer.epoch if producer_id >= 0 else -1
        producer.epoch += 1
        producer.timeout_ms = 2**31 - 1 if is_two_phase else timeout_ms
        producer.ended = None
        return producer.producer_id, producer.epoch

    def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
    ) -> tuple[int, int]:
        if transactional_id not in self.producers:
            raise KafkaError(f"{transactional_id} is unknown", UNKNOWN_ID, False)
        producer = self.producers[transactional_id]
        is_repeated = (
            producer.open is None
            and producer.ended is not None
            and producer_epoch == producer.ended_epoch
        )
        if is_repeated:
            if producer.ended is not commit:
                raise KafkaError("ended the other way", INVALID_STATE, False)
            return producer.producer_id, producer.epoch
        if producer_epoch != producer.epoch:
            raise KafkaError(f"{transactional_id} is fenced", FENCED, False)
        if producer.open is None:
            raise KafkaError(f"{transactional_id} has nothing open", INVALID_STATE, False)
        self._end_with(producer, commit)
        producer.ended_epoch = producer_epoch
        if self.transaction_version == 2:
            producer.last_epoch = producer.epoch
            producer.epoch += 1
        return producer.producer_id, producer.epoch

    def expire(self, transactional_ids: Sequence[str] | None = None) -> None:
        """Abort open transactions as their timeout does: with a new epoch."""
        for name in self.producers if transactional_ids is None else transactional_ids:
            producer = self.producers[name]
            if producer.open is not None and producer.timeout_ms < 2**31 - 1:
                self._end_with(producer, False)
                producer.epoch += 1
                producer.ended_epoch = producer.epoch

    def forget(self, transactional_ids: Sequence[str]) -> None:
        """Forget ids whose transactions have ended, as transactional.id.expiration.ms does."""
        for name in transactional_ids:
            assert self.producers.pop(name).open is None
            self.forgotten += 1

    def _end_with(self, producer: FakeProducer, commit: bool) -> None:
        assert producer.open is not None
        producer.open.is_committed = commit
        for place in producer.open.places:
            self.logs[place].append(FakeRecord(None, None, None))
        if commit:
            self.group_offsets |= producer.open.offsets
        producer.open = None
        producer.ended = commit

    def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> list[tuple[str, int, str, int, int, int, int]]:
        found = []
        for name in transactional_ids:
            producer = self.producers[name]
            state = "Ongoing" if producer.open is not None else "CompleteCommit"
            started_ms = producer.open.started_ms if producer.open is not None else -1
            who = (producer.producer_id, producer.epoch)
            found.append((name, 0, state, *who, started_ms, producer.timeout_ms))
        return found

    def list_transactions(self, states: Sequence[str], prefix: str) -> list[tuple[str, int, str]]:
        assert list(states) == ["Ongoing"]
        return [
            (name, producer.producer_id, "Ongoing")
            for name, producer in self.producers.items()
            if name.startswith(prefix) and producer.open is not None
        ]

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: Sequence[tuple[str, int, int]],
    ) -> None:
        transaction = self._joined(transactional_id, producer_id, producer_epoch)
        transaction.offsets |= {(group, topic, n): offset for topic, n, offset in offsets}

    def writer(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        *,
        batch_bytes: int = 1 << 20,
        compression: str = "none",
        metadata_max_age_ms: int = 300_000,
    ) -> Writer:
        assert transactional_id is not None
        return FakeWriter(self, transactional_id, producer_id, producer_epoch)

    def close(self) -> None:
        pass

    def _joined(self, name: str, producer_id: int, epoch: int) -> FakeTransaction:
        producer = self.producers[name]
        if (producer_id, epoch) != (producer.producer_id, producer.epoch):
            raise KafkaError(f"{name} is fenced", INVALID_EPOCH, False)
        if producer.open is None:
            producer.open = FakeTransaction(started_ms=self.now_ms)
        return producer.open

    def append(
        self,
        who: tuple[str, int, int],
        place: Place,
        records: Sequence[tuple[bytes | None, bytes | None]],
        sequence: int,
    ) -> None:
        """Store a batch, or drop it as a duplicate."""
        name, producer_id, epoch = who
        transaction = self._joined(name, producer_id, epoch)
        known_epoch, expected = self.sequences.get((place, producer_id), (-1, 0))
        if epoch == known_epoch and sequence < expected:
            return
        self.sequences[place, producer_id] = (epoch, sequence + len(records))
        transaction.places.add(place)
        log = self.logs.setdefault(place, [])
        log += [FakeRecord(key, value, transaction) for key, value in records]


class FakeWriter:
    """Sends everything at `flush`, a batch per partition."""

    def __init__(
        self, cluster: FakeKafka, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> None:
        self._cluster = cluster
        self._who = (transactional_id, producer_id, producer_epoch)
        self._waiting: dict[Place, list[tuple[bytes | None, bytes | None]]] = {}
        self._sent: dict[Place, int] = {}

    def write(
        self,
        topic: str,
        rows: int,
        key: tuple[bytes, bytes, bytes | None] | None,
        value: tuple[bytes, bytes, bytes | None],
        headers: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None] | None = None,
        partition: bytes | None = None,
        timestamp_ms: bytes | None = None,
    ) -> None:
        keys = [None] * rows if key is None else _rows(key, rows)
        numbers = struct.unpack(f"<{rows}i", partition) if partition else [0] * rows
        for number, pair in zip(numbers, zip(keys, _rows(value, rows), strict=True), strict=True):
            self._waiting.setdefault((topic, number), []).append(pair)

    def flush(self) -> int:
        for place, records in self._waiting.items():
            first = self._sent.get(place, 0)
            self._cluster.append(self._who, place, records, first)
            self._sent[place] = first + len(records)
        self._waiting.clear()
        return sum(self._sent.values())


class Crash(BaseException):
    """The process is killed."""


class Faulty:
    """A client that does something at its n-th call: before it, or after its effect.

    `event` may raise `Crash`. Or it may run another driver and return, as happens to a process that
    stood still for a while.
    """

    def __init__(
        self, client: FakeKafka, call: int, event: Callable[[], None], *, after: bool
    ) -> None:
        self._client = client
        self._left = call
        self._event = event
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name == "writer":
            return lambda *who, **settings: _FaultyWriter(self, found(*who, **settings))
        return self.around(found) if callable(found) else found

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **settings: Any) -> Any:
            is_due = self._left == 0
            self._left -= 1
            if is_due and not self._after:
                self._event()
            answer = call(*args, **settings)
            if is_due and self._after:
                self._event()
            return answer

        return guarded


class _FaultyWriter:
    def __init__(self, faulty: Faulty, writer: Writer) -> None:
        self.write = writer.write
        self.flush = faulty.around(writer.flush)


class Hooked:
    """A client that does something before its first call of a name; `abort` is EndTxn's no."""

    def __init__(self, client: FakeKafka, **hooks: Callable[[], None]) -> None:
        self._client = client
        self._hooks = hooks
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._hooked(name, found) if callable(found) else found

    def _hooked(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(*args: Any, **settings: Any) -> Any:
            known = "abort" if name == "end_txn" and settings.get("commit") is False else name
            if known in self._hooks and known not in self.called:
                self.called.append(known)
                self._hooks[known]()
            return call(*args, **settings)

        return hooked


class Interleaving:
    """Runs several actors, one request at a time, in the order that a list of numbers gives.

    An actor is a function of a client. It stands still before each request until it is its
    turn; when the list is over, actors that still stand are never heard of again.
    """

    def __init__(self, cluster: FakeKafka, turns: Sequence[int]) -> None:
        self._cluster = cluster
        self._turns = list(turns)

    def run(self, actors: Sequence[Callable[[TransactionalClient], None]]) -> None:
        threads = [_Actor(self._cluster, actor) for actor in actors]
        for thread in threads:
            thread.start()
            thread.wait()
        for turn in self._turns:
            waiting = [thread for thread in threads if thread.is_alive()]
            if not waiting:
                break
            waiting[turn % len(waiting)].go_on()
        for thread in threads:
            thread.end()
        for thread in threads:
            if thread.failure is not None:
                raise thread.failure


class _Actor(threading.Thread):
    def __init__(self, cluster: FakeKafka, actor: Callable[[TransactionalClient], None]) -> None:
        super().__init__(daemon=True)
        self._actor = actor
        self._client = _Stepwise(cluster, self._stand_still)
        self._turn = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._is_over = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._actor(cast(TransactionalClient, self._client))
        except Crash:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self._is_over = True
            self._stopped.release()

    def wait(self) -> None:
        """Wait until it stands still again, or has ended."""
        self._stopped.acquire()
        if self._is_over:
            self.join()

    def go_on(self) -> None:
        self._turn.release()
        self.wait()

    def end(self) -> None:
        if self.is_alive():
            self._is_over = True
            self._turn.release()
            self.join()

    def _stand_still(self) -> None:
        self._stopped.release()
        self._turn.acquire()
        if self._is_over:
            raise Crash


class _Stepwise:
    def __init__(self, client: FakeKafka, stand_still: Callable[[], None]) -> None:
        self._client = client
        self._stand_still = stand_still

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name == "writer":
            return lambda *who, **settings: _StepwiseWriter(self, found(*who, **settings))
        return self.guarded(found) if callable(found) else found

    def guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **settings: Any) -> Any:
            self._stand_still()
            return call(*args, **settings)

        return guarded


class _StepwiseWriter:
    def __init__(self, stepwise: _Stepwise, writer: Writer) -> None:
        self.write = writer.write
        self.flush = stepwise.guarded(writer.flush)


def _rows(buffers: tuple[bytes, bytes, bytes | None], rows: int) -> list[bytes | None]:
    offsets = struct.unpack_from(f"<{rows + 1}i", buffers[0])
    return [
        buffers[1][offsets[row] : offsets[row + 1]]
        if buffers[2] is None or buffers[2][row // 8] >> row % 8 & 1
        else None
        for row in range(rows)
    ]


def _columns(
    name: str, records: Sequence[tuple[bytes | None, bytes | None]], which: int
) -> dict[str, bytes]:
    values = [record[which] for record in records]
    offsets, validity = [0], bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        offsets.append(offsets[-1] + len(value or b""))
        if value is not None:
            validity[row // 8] |= 1 << row % 8
    return {
        f"{name}_offsets": struct.pack(f"<{len(offsets)}i", *offsets),
        f"{name}_data": b"".join(value or b"" for value in values),
        f"{name}_validity": bytes(validity),
    }
