"""Scripted clients: producers as librdkafka (TV1) and as Java 4 or franz-go (TV2) behave.

A client sends the requests of those clients, in their versions, and treats an answer as they
do: try again, abort, or stop because it is fenced. It notes the answers it got in the `History` and
nothing else. A script is data, so that a failing run can be made smaller.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sim.agenda import Agenda, SimLoop
from sim.broker import PRODUCE, Produce, ProduceData, SimBroker
from sim.history import Attempt, Fate, History, Identity, Place, PlainWrite
from sim.network import DisconnectedError, NetworkFault, SimConnection
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch
from txn.wire.bodies.txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from txn.wire.error_codes import ErrorCode

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
NAMES: Final = {
    PRODUCE: "Produce",
    INIT_PRODUCER_ID: "InitProducerId",
    ADD_PARTITIONS: "AddPartitionsToTxn",
    ADD_OFFSETS: "AddOffsetsToTxn",
    END_TXN: "EndTxn",
    TXN_OFFSET_COMMIT: "TxnOffsetCommit",
    9: "OffsetFetch",
    11: "JoinGroup",
    12: "Heartbeat",
    14: "SyncGroup",
    21: "DeleteRecords",
    27: "WriteTxnMarkers",
    61: "DescribeProducers",
}
VERSIONS: Final = {
    1: {
        PRODUCE: 10,
        INIT_PRODUCER_ID: 4,
        ADD_PARTITIONS: 0,
        ADD_OFFSETS: 0,
        END_TXN: 1,
        TXN_OFFSET_COMMIT: 3,
    },
    2: {PRODUCE: 12, INIT_PRODUCER_ID: 5, END_TXN: 5, TXN_OFFSET_COMMIT: 5},
}

RETRIABLE: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
FENCED: Final = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
BATCHES_IN_FLIGHT: Final = 5


class FencedError(Exception):
    """Another instance took over, or the broker ended the transaction."""


class AbortableError(Exception):
    """The transaction cannot commit."""


class ClientsWorld:
    """The common part of clients; `sim.world` makes it."""

    agenda: Agenda
    loop: SimLoop
    history: History
    broker: SimBroker | None

    def connect(self, client: str) -> SimConnection:
        """Open a connection; raises DisconnectedError if nobody listens."""
        raise NotImplementedError

    def fault_of(self, client: str) -> NetworkFault | None:
        """The fate of the client's next request."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ScriptedTransaction:
    """One transaction of a script.

    `end` is "commit", "abort", "sleep" (silent until `pause_us` has passed, then commit), "leave"
    (nothing more ever comes) or "restart" (a new instance of the same client). It can also be
    "purge" (an abort that waits for no answer, as librdkafka's). Its values for other kinds of
    clients are in `two_phase.py` and `operators.py`.
    """

    writes: tuple[tuple[Place, int], ...]
    """Partition and number of records, a batch each."""
    end: str
    pause_us: int = 0
    left: str = ""
    """The way in which an ordinary instance leaves it open to one with two-phase commit
    (`upgrades.py`).
    """


@dataclass(frozen=True, slots=True)
class Script:
    """The script of one client."""

    name: str
    kind: str
    """ "tv1", "tv2", "plain", "copy1" and "copy2" for copiers of either version, "db" for a
    producer with two-phase commit, "up1" and "up2" for one of either version that comes to it,
    "abort" and "delete" for operators."""
    transactional_id: str
    start_us: int
    transactions: tuple[ScriptedTransaction, ...]
    timeout_ms: int = 2_000
    comes_back: bool = False
    """When it is fenced it starts anew, and so fences the other."""


class SimClient:
    """A client's connection and how it asks."""

    def __init__(self, world: ClientsWorld, name: str, chance: random.Random) -> None:
        self.world = world
        self.history = world.history
        self.name = name
        self.chance = chance
        self.losses = 0
        """Number of broken connections."""
        self._connection: SimConnection | None = None

    async def connected(self) -> SimConnection:
        while self._connection is None or self._connection.is_broken:
            try:
                self._connection = self.world.connect(self.name)
            except DisconnectedError:
                await self.world.loop.sleep(50_000)
        return self._connection

    async def ask(self, key: int, version: int, request: Any) -> Any:
        """Send a request until it is answered."""
        while True:
            connection = await self.connected()
            fault = self.fault_of(key, request)
            self._tell_of(key, request, fault)
            try:
                answer = await connection.request(key, version, request, fault)
            except DisconnectedError:
                self.losses += 1
                self.say("  disconnected")
                await self.back_off()
                continue
            return answer

    def fault_of(self, key: int, request: Any) -> NetworkFault | None:
        """The fate of the next request, which is this one."""
        return self.world.fault_of(self.name)

    async def back_off(self) -> None:
        await self.world.loop.sleep(self.chance.choice((1_000, 20_000, 100_000)))

    def say(self, what: str) -> None:
        self.history.say(self.name, what)

    def _tell_of(self, key: int, request: Any, fault: NetworkFault | None) -> None:
        if self.history.tell is not None:
            what = _text_of(request)
            self.say(f"{NAMES.get(key, key)} {what}" + (f"  [{fault.kind}]" if fault else ""))


def _text_of(request: Any) -> str:
    if isinstance(request, Produce):
        batches = ", ".join(
            f"{b.place[0]}-{b.place[1]} seq {b.base_sequence}: "
            + " ".join(value.decode() for value in b.values)
            for b in request.batches
        )
        who = request.producer
        return f"{who.producer_id}/{who.producer_epoch} {batches}"
    shown = ("producer_id", "producer_epoch", "committed")
    return " ".join(f"{n}={v}" for n in shown if (v := getattr(request, n, None)) is not None)


class Sender(SimClient):
    """A producer's batches: sequences, several in flight, resent in order."""

    def __init__(self, world: ClientsWorld, name: str, chance: random.Random) -> None:
        super().__init__(world, name, chance)
        self.producer = NO_PRODUCER
        self.sequences: dict[Place, int] = {}
        self.produce_version = 12
        self.transactional_id: str | None = None

    @property
    def identity(self) -> Identity:
        return self.producer.producer_id, self.producer.producer_epoch

    def take(self, producer: ProducerIdAndEpoch) -> None:
        """Go on with an identity; sequences of another start at 0."""
        if producer != self.producer:
            self.sequences.clear()
            self.history.was_given(self.name, (producer.producer_id, producer.producer_epoch))
        self.producer = producer

    def number(self, place: Place, values: tuple[bytes, ...]) -> ProduceData:
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + len(values)
        return ProduceData(place, sequence, values)

    async def send(self, batches: Iterable[ProduceData]) -> None:
        """Have batches stored, each in a request; up to five are under way."""
        unacknowledged = list(batches)
        while unacknowledged:
            connection = await self.connected()
            sent = [
                (batch, self.send_over(connection, batch))
                for batch in unacknowledged[:BATCHES_IN_FLIGHT]
            ]
            unacknowledged = await self._acknowledge(sent) + unacknowledged[BATCHES_IN_FLIGHT:]

    def send_over(self, connection: SimConnection, batch: ProduceData) -> "asyncio.Future[Any]":
        """Send a batch, and do not wait."""
        request = Produce(self.transactional_id, self.producer, (batch,))
        fault = self.fault_of(PRODUCE, request)
        self._tell_of(PRODUCE, request, fault)
        return connection.request(PRODUCE, self.produce_version, request, fault)

    async def send_or_purge(self, batches: Iterable[ProduceData]) -> None:
        """Send batches once, and give those up that are not answered.

        The next batch gets the sequences of the first that was given up, under the same epoch.
        """
        connection = await self.connected()
        sent = [(batch, self.send_over(connection, batch)) for batch in batches]
        for batch in reversed(await self._acknowledge(sent)):
            self.sequences[batch.place] = batch.base_sequence

    async def _acknowledge(self, sent: list[tuple[ProduceData, Any]]) -> list[ProduceData]:
        """Wait for the answers; return the batches to send again, in order."""
        again: list[ProduceData] = []
        was_lost = False
        for batch, answer in sent:
            try:
                code = ErrorCode((await answer)[0])
            except DisconnectedError:
                was_lost = True
                again.append(batch)
                continue
            if code is ErrorCode.NONE:
                self.acknowledged(batch)
            elif code in RETRIABLE or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and again):
                again.append(batch)
            else:
                self.say(f"  Produce: {code.name}")
                raise AbortableError(code.name)
        if was_lost:
            self.losses += 1
            self.say("  disconnected")
        if again:
            await self.back_off()
        return again

    def acknowledged(self, batch: ProduceData) -> None:
        """A batch is stored."""


class PlainProducer(Sender):
    """An idempotent producer without transactions."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script.name, chance)
        self.script = script

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        await self._initialize()
        for number, step in enumerate(self.script.transactions):
            batches = []
            for position, (place, count) in enumerate(step.writes):
                values = tuple(
                    f"{self.name}.{number}.{position}.{n}".encode() for n in range(count)
                )
                for value in values:
                    self.history.plain[value] = PlainWrite(self.name, place)
                batches.append(self.number(place, values))
            try:
                await self.send(batches)
            except AbortableError:  # an application would make a new producer
                await self._initialize()
            await self.world.loop.sleep(step.pause_us)

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        code = None
        while code is not ErrorCode.NONE:
            answer = await self.ask(INIT_PRODUCER_ID, 4, request)
            code = answer.error_code
        self.take(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))

    def acknowledged(self, batch: ProduceData) -> None:
        for value in batch.values:
            self.history.plain[value].is_acknowledged = True


class TransactionalProducer(Sender):
    """One instance after another of a transactional id, as its script says."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script.name, chance)
        self.script = script
        self.version = 1 if script.kind in ("tv1", "copy1") else 2
        self.versions = VERSIONS[self.version]
        self.produce_version = self.versions[PRODUCE]
        self.transactional_id = script.transactional_id
        self.attempt: Attempt | None = None
        self.added: set[Place] = set()
        self.has_lost_end = False
        self.initialized_us = 0

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        is_initialized = False
        for number, step in enumerate(self.script.transactions):
            try:
                if not is_initialized:
                    await self.initialize(None)
                    is_initialized = True
                await self.transaction(f"{self.name}.{number}", step)
            except FencedError:
                self.give_up()
                is_initialized = False
                if not self.script.comes_back:
                    return
                await self.world.loop.sleep(step.pause_us)
            if step.end == "restart":
                self.give_up()
                is_initialized = False
            if step.end == "leave":
                break
        self.give_up()

    def give_up(self) -> None:
        if self.attempt is not None:
            self.attempt.give_up()
            self.attempt = None

    # ------------------------------------------------------------ requests

    async def initialize(self, shown: ProducerIdAndEpoch | None) -> None:
        """Take the transactional id over, or go on from its identity (KIP-360)."""
        known = shown or NO_PRODUCER
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.script.timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )
        asked_us = self.world.agenda.now_us
        answer = await self.decided(INIT_PRODUCER_ID, request, lambda a: a.error_code)
        self.initialized_us = self.world.agenda.now_us
        code = answer.error_code
        self.say(f"  {code.name}: {answer.producer_id}/{answer.producer_epoch}")
        if code is not ErrorCode.NONE:
            raise FencedError
        self.take(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        self.history.initialized(self.name, self.script.transactional_id, self.identity, asked_us)
        self.has_lost_end = False

    async def decided(self, key: int, request: Any, code_of: Callable[[Any], ErrorCode]) -> Any:
        """Ask until the answer is not to try again."""
        while True:
            answer = await self.ask(key, self.versions[key], request)
            if code_of(answer) not in RETRIABLE:
                return answer
            self.was_put_off(key, code_of(answer))
            await self.back_off()

    def was_put_off(self, key: int, code: ErrorCode) -> None:
        self.say(f"  {code.name}")
        if key == END_TXN and self.attempt is not None:
            self.attempt.was_interrupted = True

    def begin(self, name: str) -> Attempt:
        """Begin a transaction; the broker hears of it with its first write."""
        attempt = self.attempt = self.history.begin(
            Attempt(
                name, self.name, self.script.transactional_id, self.identity, self.initialized_us
            )
        )
        attempt.follows_lost_end = self.has_lost_end
        self.added.clear()
        self.say(f"begins {name}")
        return attempt

    async def transaction(self, name: str, step: ScriptedTransaction) -> Attempt:
        """One transaction from its first write to its end."""
        attempt = self.begin(name)
        try:
            await self.write(attempt, step)
            if step.end in ("leave", "restart"):
                return attempt
            if step.end == "sleep":
                await self.world.loop.sleep(step.pause_us)
            await self.end(attempt, is_commit=step.end not in ("abort", "purge"))
        except AbortableError:
            if attempt.fate is Fate.OPEN:
                await self.end(attempt, is_commit=False)
            if self.version == 1:
                await self.initialize(self.producer)
        else:
            if step.end != "sleep":
                await self.world.loop.sleep(step.pause_us)
        return attempt

    async def write(self, attempt: Attempt, step: ScriptedTransaction) -> None:
        batches = await self.batches_of(attempt, step)
        if step.end == "purge":
            await self.send_or_purge(batches)
        else:
            await self.send(batches)

    async def batches_of(self, attempt: Attempt, step: ScriptedTransaction) -> list[ProduceData]:
        """The batches to send, on partitions that are in the transaction if that comes first."""
        batches = []
        for position, (place, count) in enumerate(step.writes):
            if self.version == 1 and place not in self.added:
                await self.add_partitions(place)
            values = tuple(f"{attempt.name}.{position}.{n}".encode() for n in range(count))
            for value in values:
                attempt.values[value] = place
                self.history.owner[value] = attempt
            batches.append(self.number(place, values))
        return batches

    async def add_partitions(self, place: Place) -> None:
        answer = await self.decided(ADD_PARTITIONS, self.request_to_add(place), _code_of_added)
        self.accept(_code_of_added(answer))
        self.added.add(place)

    def request_to_add(self, place: Place) -> AddPartitionsToTxnRequest:
        assert self.transactional_id is not None, "it has transactions"
        topic = AddPartitionsToTxnTopic(name=place[0], partitions=(place[1],))
        return AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            topics=(topic,),
        )

    def request_to_end(self, *, is_commit: bool) -> EndTxnRequest:
        assert self.transactional_id is not None, "it has transactions"
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=is_commit,
        )

    def accept(self, code: ErrorCode) -> None:
        """Raise the client's exception for an error."""
        if code is ErrorCode.NONE:
            return
        self.say(f"  {code.name}")
        if code in FENCED:
            raise FencedError
        raise AbortableError(code.name)

    async def end(self, attempt: Attempt, *, is_commit: bool) -> None:
        """Commit or abort, and take the broker's identity for the next one."""
        if self.version == 1 and not self.added:
            attempt.give_up()  # there is nothing to end, and nothing is sent
            return
        request = self.request_to_end(is_commit=is_commit)
        if is_commit and attempt.fate is Fate.OPEN:
            attempt.ask_to_commit()
        was_fenced = attempt.was_fenced
        losses = self.losses
        answer = await self.decided(END_TXN, request, lambda a: a.error_code)
        if self.losses != losses:
            attempt.was_interrupted = True
            self.has_lost_end = True
        code = answer.error_code
        self.say(f"  EndTxn: {code.name}")
        if code is ErrorCode.TRANSACTION_ABORTABLE and is_commit:
            attempt.refused()
            await self.end(attempt, is_commit=False)
            return
        if code is not ErrorCode.NONE:
            self.was_refused(attempt, code)
            raise FencedError
        if is_commit and (attempt.fate is Fate.NEVER or was_fenced):
            self.history.found("zombie-commit", f"{attempt.name} was fenced, then committed")
        attempt.fate = Fate.COMMITTED if is_commit else Fate.NEVER
        attempt.ended_us = self.world.agenda.now_us
        self.attempt = None
        if self.version == 2:
            self.take(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))

    def was_refused(self, attempt: Attempt, code: ErrorCode) -> None:
        """The end of a transaction was refused for good."""
        attempt.refused()
        attempt.give_up()


def _code_of_added(answer: AddPartitionsToTxnResponse) -> ErrorCode:
    results = answer.results_by_topic_v3_and_below
    return next(
        (
            ErrorCode(partition.partition_error_code)
            for topic in results
            for partition in topic.results_by_partition
            if partition.partition_error_code != ErrorCode.NONE
        ),
        ErrorCode.NONE,
    )
