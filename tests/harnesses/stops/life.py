"""The life of one transactional producer, and the required view of it after any stop.

A transaction has a number. It writes that number to both topics, and commits it as the offset of a
group. So a number seen in one place has to be seen in the others. Requests go over a bare
connection, as clients of transaction version 1 or 2 send them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from support.clients import create_topic
from support.wire_producer import INIT, TIMEOUT_MS, Identity, WireProducer, identity
from txn import _core

if TYPE_CHECKING:
    from txn._core import DecodedBatch

PLAIN, ROLLING = "flights", "seats"
TOPICS: Final = {PLAIN: str((1 << 63) - 1), ROLLING: "1000"}
"""Their segment.ms. Records are of a time long ago: a log that may not hold as much begins a
segment at a marker."""
GROUP: Final = "readers"
FETCH, OFFSET_FETCH, ADD, ADD_OFFSETS = 1, 9, 24, 25
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS = 61, 65
MARKERS: Final = (2, 3)
"""Kinds of batches, as `_core.decode_batches` tells them."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NEXT: Final = 9
"""The transaction that a client commits once it is back."""


def prepare(servers: str) -> None:
    """Make the topics."""
    for topic, segment_ms in TOPICS.items():
        create_topic(servers, topic, retention_ms="-1", segment_ms=segment_ms)


# ---------------------------------------------------------------- the client


class Dialect(Protocol):
    """Requests of a client of one transaction version."""

    def start(self, wire: WireProducer) -> Identity: ...

    def write(
        self, wire: WireProducer, producer: Identity, sequence: int, value: bytes
    ) -> None: ...

    def commit_offset(self, wire: WireProducer, producer: Identity, offset: int) -> None: ...

    def end(self, wire: WireProducer, producer: Identity, committed: bool) -> tuple[Identity, int]:
        """End the transaction; return the producer of the next one, and the count by which its
        sequences go on.
        """


class Version1:
    """A client that names the partitions of a transaction beforehand."""

    def start(self, wire: WireProducer) -> Identity:
        who = {"transactional_id": wire.transactional_id, "transaction_timeout": TIMEOUT_MS}
        return identity(wire.ask(INIT, 4, **who, producer_id=-1, producer_epoch=-1))

    def write(self, wire: WireProducer, producer: Identity, sequence: int, value: bytes) -> None:
        topics = [{"name": topic, "partitions": [0]} for topic in TOPICS]
        self._ask(wire, ADD, producer, v3_and_below_topics=topics)
        for topic in TOPICS:
            _require(wire.produce(producer, sequence, value, 11, topic=topic))

    def commit_offset(self, wire: WireProducer, producer: Identity, offset: int) -> None:
        self._ask(wire, ADD_OFFSETS, producer, group_id=GROUP)
        _require(wire.commit_offset(producer, GROUP, PLAIN, offset, version=3))

    def end(self, wire: WireProducer, producer: Identity, committed: bool) -> tuple[Identity, int]:
        _require(int(wire.end(producer, committed=committed, version=4).error_code))
        return producer, 1

    @staticmethod
    def _ask(wire: WireProducer, key: int, producer: Identity, **fields: Any) -> None:
        prefix = "v3_and_below_" if key == ADD else ""
        who = {
            "transactional_id": wire.transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }
        wire.ask(key, 3, **{prefix + name: value for name, value in who.items()}, **fields)


class Version2:
    """A client whose transaction gets a partition by a write to it, and that goes on with a new
    epoch.
    """

    def start(self, wire: WireProducer) -> Identity:
        return identity(wire.start(two_phase=False))

    def write(self, wire: WireProducer, producer: Identity, sequence: int, value: bytes) -> None:
        for topic in TOPICS:
            _require(wire.produce(producer, sequence, value, topic=topic))

    def commit_offset(self, wire: WireProducer, producer: Identity, offset: int) -> None:
        _require(wire.commit_offset(producer, GROUP, PLAIN, offset))

    def end(self, wire: WireProducer, producer: Identity, committed: bool) -> tuple[Identity, int]:
        return identity(wire.end(producer, committed=committed)), 0


DIALECTS: Final[dict[int, Dialect]] = {1: Version1(), 2: Version2()}


def _require(error_code: int) -> None:
    assert error_code == 0, f"refused with error {error_code}"


@dataclass
class ToldAnswers:
    """A client's requests, and its answers until the broker was gone."""

    written: list[int] = field(default_factory=list)
    """Transactions whose writes were answered."""
    asked: list[int] = field(default_factory=list)
    """Transactions that were asked for anything at all."""
    committed: list[int] = field(default_factory=list)
    unknown: int | None = None
    """The one whose commit was asked for, and not answered."""


def live(servers: str, version: int, told: ToldAnswers) -> None:
    """An aborted transaction and two committed ones."""
    dialect = DIALECTS[version]
    with WireProducer(servers) as wire:
        producer, sequence = dialect.start(wire), 0
        for number, committed in ((1, False), (2, True), (3, True)):
            producer, more = _transact(dialect, wire, (producer, sequence), number, committed, told)
            sequence = sequence + 1 if more else 0


def _transact(
    dialect: Dialect,
    wire: WireProducer,
    at: tuple[Identity, int],
    number: int,
    committed: bool,
    told: ToldAnswers,
) -> tuple[Identity, int]:
    producer, sequence = at
    told.asked.append(number)
    dialect.write(wire, producer, sequence, b"%d" % number)
    told.written.append(number)
    dialect.commit_offset(wire, producer, number)
    told.unknown = number if committed else None
    following = dialect.end(wire, producer, committed)
    told.unknown = None
    told.committed += [number] if committed else []
    return following


# ---------------------------------------------------------------- what is seen


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Contents of a partition as readers and administrators see them."""

    committed: list[int]
    uncommitted: list[int]
    last_stable_offset: int
    high_watermark: int
    producers: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class VisibleState:
    """The visible state of the client's transactions."""

    topics: dict[str, PartitionView]
    offset: int
    """Committed by the group; -1 if none is."""


def look(wire: WireProducer) -> VisibleState:
    """Read the visible state."""
    topics = {topic: _look_at(wire, topic) for topic in TOPICS}
    wanted = {"group_id": GROUP, "topics": [{"name": PLAIN, "partition_indexes": [0]}]}
    (group,) = wire.ask(OFFSET_FETCH, 8, groups=[wanted], require_stable=True).groups
    _require(int(group.error_code))
    [partition] = group.topics[0].partitions
    _require(int(partition.error_code))
    return VisibleState(topics, int(partition.committed_offset))


def _look_at(wire: WireProducer, topic: str) -> PartitionView:
    committed, last_stable_offset = _read(wire, topic, READ_COMMITTED)
    uncommitted, high_watermark = _read(wire, topic, READ_UNCOMMITTED)
    partitions = [{"name": topic, "partition_indexes": [0]}]
    [described] = wire.ask(DESCRIBE_PRODUCERS, 0, topics=partitions).topics[0].partitions
    producers = tuple(described.active_producers)
    return PartitionView(committed, uncommitted, last_stable_offset, high_watermark, producers)


def _read(wire: WireProducer, topic: str, isolation: int) -> tuple[list[int], int]:
    """Read all that is shown; return the values, and the offset where it ends."""
    values: list[int] = []
    offset, end = 0, -1
    while offset != end:
        found = _fetch(wire, topic, isolation, offset)
        end = found.last_stable_offset if isolation == READ_COMMITTED else found.high_watermark
        batches = _core.decode_batches(found.records or b"")
        assert batches or offset == end, f"P5: nothing of {topic} between {offset} and {end}"
        aborted = [
            (each.first_offset, each.producer_id) for each in found.aborted_transactions or ()
        ]
        values += _values(batches, aborted)
        offset = batches[-1][1] + 1 if batches else offset
    return values, end


def _fetch(wire: WireProducer, topic: str, isolation: int, offset: int) -> Any:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = wire.ask(
        FETCH,
        12,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
        forgotten_topics_data=[],
    )
    [partition_found] = answer.responses[0].partitions
    _require(int(partition_found.error_code))
    return partition_found


def _values(batches: list[DecodedBatch], aborted: list[tuple[int, int]]) -> Iterator[int]:
    """The records of a fetch, without those of the aborted transactions that it names."""
    left_out: set[int] = set()
    for base, _, producer_id, _, kind, records in batches:
        left_out |= {producer for first, producer in aborted if first <= base}
        aborted = [(first, producer) for first, producer in aborted if first > base]
        if kind in MARKERS:
            left_out.discard(producer_id)
        elif producer_id not in left_out:
            yield from (int(value or b"") for _, _, _, value in records)


# ---------------------------------------------------------------- the judge


def judge(view: VisibleState, told: ToldAnswers, *, keeps_answered: bool) -> list[int]:
    """Compare the visible state with the client's answers; return the committed transactions.

    Args:
        view: The visible state once the client has started again.
        told: The client's answers before.
        keeps_answered: Whether all that was answered is still there, committed or not.
    """
    shown = view.topics[PLAIN].committed
    unknown = [told.unknown] if told.unknown else []
    assert shown in (told.committed, told.committed + unknown), f"P1, P2: {shown} for {told}"
    for topic, seen in view.topics.items():
        assert seen.committed == shown, f"P3: {topic} shows {seen.committed}, {PLAIN} {shown}"
        written = seen.uncommitted
        assert set(written) <= set(told.asked), f"{topic} has {written}, asked for {told.asked}"
        assert set(written) >= set(told.written if keeps_answered else shown), f"{topic}: {written}"
        _judge_partition(topic, seen)
    offset = shown[-1] if shown else -1
    assert view.offset == offset, f"P3: the group is at {view.offset}, not {offset}"
    return shown


def _judge_partition(topic: str, seen: PartitionView) -> None:
    written = seen.uncommitted
    assert len(set(written)) == len(written), f"P6: {topic} has {written}"
    assert seen.last_stable_offset == seen.high_watermark, f"P5: {topic} waits: {seen}"
    hanging = [each for each in seen.producers if each.current_txn_start_offset >= 0]
    assert not hanging, f"P5: {topic} has {hanging}"


def come_back(
    servers: str, version: int, told: ToldAnswers, *, keeps_answered: bool
) -> VisibleState:
    """Start the client again, judge, and commit one more; return the visible state then."""
    dialect = DIALECTS[version]
    with WireProducer(servers) as wire:
        producer = dialect.start(wire)
        shown = judge(look(wire), told, keeps_answered=keeps_answered)
        told.committed, told.unknown = list(shown), None
        _transact(dialect, wire, (producer, 0), NEXT, True, told)
        _await_completion(wire)
        view = look(wire)
    assert judge(view, told, keeps_answered=keeps_answered) == [*shown, NEXT]
    return view


def go_on(servers: str, version: int) -> None:
    """Start the client again, commit one more, and judge that alone."""
    dialect = DIALECTS[version]
    with WireProducer(servers) as wire:
        _transact(dialect, wire, (dialect.start(wire), 0), NEXT, True, ToldAnswers())
        _await_completion(wire)
        view = look(wire)
    for topic, seen in view.topics.items():
        assert seen.committed[-1:] == [NEXT], f"P1: {topic} shows {seen.committed}"
        _judge_partition(topic, seen)
    assert view.offset == NEXT, f"P3: the group is at {view.offset}, not {NEXT}"


def _await_completion(wire: WireProducer) -> None:
    """Wait for the end; durability=commit answers EndTxn before the coordinator has noted it."""
    state = "PrepareCommit"
    while state == "PrepareCommit":
        [described] = wire.ask(
            DESCRIBE_TRANSACTIONS, 0, transactional_ids=[wire.transactional_id]
        ).transaction_states
        state = described.transaction_state
    assert state == "CompleteCommit"


def die_alone(servers: str, version: int) -> ToldAnswers:
    """Live until the broker is gone."""
    told = ToldAnswers()
    with suppress(ConnectionError, EOFError):
        live(servers, version, told)
    return told


def begin_alone(servers: str, version: int) -> None:
    """Start the client again, if the broker lives for as long."""
    with suppress(ConnectionError, EOFError), WireProducer(servers) as wire:
        DIALECTS[version].start(wire)
