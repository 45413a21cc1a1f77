"""One life of the broker: a real `Node` on a simulated disk, from start to death.

The real parts are the node, its coordinators and groups, the handlers of `broker/apis`, and the
producer state of every partition. Rust is simulated: `Reactor` here treats a request as
`rust/txn-net/src/produce/append.rs` does (append, park batches that have to join, append again),
and reads as `fetch/records.rs` does.

In production reactors are threads beside the control loop. So before each of the control
loop's own writes a Produce that is on its way may be let in, as the disk's watcher decides.
"""

import random
import uuid
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from sim.agenda import Agenda, Crash, SimLoop
from sim.disk import KAFKA_STORAGE_ERROR, Disk, Place, SimCatalog, SimLog, SimStorage
from sim.machine import SyncMarks
from support.responses import typed
from txn.broker.apis.table import Reply, build_table
from txn.broker.host import Context, Durability, HangUpError
from txn.broker.lost_cache import LostCacheError
from txn.broker.metadata_log import NodeIdentity
from txn.broker.node import Node
from txn.broker.syncs import Failures as SyncFailures
from txn.config import BrokerSettings
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.partition import ADMIT, ASK_TO_JOIN, DUPLICATE
from txn.security.sessions import Session
from txn.server.loop import eager
from txn.storage.base import BatchKind, PartitionLog, StoredBatch
from txn.wire.error_codes import ErrorCode

PRODUCE = 0
START_MS = 1_700_000_000_000
"""The time on a broker's clock at time 0."""

SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.min.session.timeout.ms": 1_000,
    "transaction.two.phase.commit.enable": True,
}
TOPICS = {"source": 2, "sink": 2}
TICKS_US = (20_000, 300_000, 1_000_000)
DIRECTORY_ID = uuid.UUID(int=77)


@dataclass(slots=True)
class ProduceData:
    """One partition of a Produce request."""

    place: Place
    base_sequence: int
    values: tuple[bytes, ...]


@dataclass(slots=True)
class Produce:
    """A Produce request, decoded. Without a transactional id it is of an idempotent producer."""

    transactional_id: str | None
    producer: ProducerIdAndEpoch
    batches: tuple[ProduceData, ...]


@dataclass(slots=True)
class FetchData:
    """The result of a fetch for one partition."""

    code: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1


class Failures:
    """Faults of broker code that must not happen: every unexpected exception."""

    def __init__(self) -> None:
        self.seen: list[BaseException] = []

    def note(self, error: BaseException) -> None:
        if not isinstance(error, Crash):
            self.seen.append(error)


class SimBroker:
    """One process."""

    def __init__(
        self,
        agenda: Agenda,
        disk: Disk,
        chance: random.Random,
        *,
        durability: Durability,
        power_failed: bool,
        failures: Failures,
        settings: Mapping[str, object] = {},
    ) -> None:
        self.agenda = agenda
        self.disk = disk
        self.loop = SimLoop(agenda, failures.note)  # type: ignore[abstract]
        self.accepted = count(1)
        """Numbers of its connections."""
        self.operations = 0
        self.trace: list[tuple[str, Place]] | None = None
        """Every operation on the disk, if somebody wants to know."""
        self.dies_at: int | None = None
        """The number of the boundary at which it dies; each operation has one at either side."""
        self.on_death: Callable[[], object] = lambda: None
        self.on_write: Callable[[], object] = lambda: None
        """Called after every write, in the middle of the broker's work."""
        self.incoming: list[Callable[[], object]] = []
        """Produce requests on their way, which a reactor may take at any moment."""
        self.died_at: Place | None = None
        """The log it was working on."""
        self.failures = failures
        self._chance = chance
        self._settings = {**SETTINGS, **settings, "durability": durability.value}
        self.power_failed = power_failed
        """True if its start counts as one after a power failure; as the directory notes it."""
        self._in_worker: list[tuple[SimLog, SyncMarks]] | None = None
        self._in_reactor = False
        self._syncs_at_once = False
        self.node: Node | None = None
        self.refusal: CorruptLogError | None = None
        """Why it would not serve all that is stored, if for damage."""
        disk.watcher = self
        self.storage = SimStorage(disk, self, power_failed=power_failed)
        self.catalog = SimCatalog()

    def start(self) -> bool:
        """Recover and be ready for requests.

        False if it died on the way, a disk refused, or stored data is damaged. A refused partition
        keeps no other from being recovered; then an operator stops the broker to put back a copy.
        """
        try:
            try:
                self.node = self._load()
            except LostCacheError:  # as `txn.server.lifecycle.service` does
                self.power_failed = True
                self.storage = SimStorage(self.disk, self, power_failed=True)
                self.node = self._load()
            life, ids = self.agenda.now_us, count()
            self.node.groups.make_id = lambda: f"{life}-{next(ids)}"
            controller = self.node.controller
            for name, partitions in TOPICS.items():
                if name not in self.node.image.topics:
                    self.create_at_once(partial(controller.create_topic, name, partitions, {}))
            if not self.power_failed and self.node.durability is not Durability.PROCESS:
                self.storage.force_what_was_accepted()
        except (Crash, StorageError):
            self.refusal = self.storage.damage
            self.loop.is_dead = True
            return False
        except CorruptLogError as error:
            self.refusal = error
            self.loop.is_dead = True
            return False
        if self.storage.damage is not None:
            self.refusal = self.storage.damage
            self.loop.is_dead = True
            return False
        self.storage.note_log_starts()  # as a start after a power failure does
        self._table = build_table(self.node)
        self.loop.after(self._chance.choice(TICKS_US), self._tick)
        return True

    def _load(self) -> Node:
        return Node.start(
            settings=BrokerSettings(self._settings),
            storage=self.storage,
            scheduler=self,
            catalog=self.catalog,
            identity=NodeIdentity(1, "sim", DIRECTORY_ID),
            power_failed=self.power_failed,
        )

    def create_at_once(self, create: Callable[[], Awaitable[object]]) -> None:
        """Let the controller create a topic before anything else happens; its sync takes no time.

        Raises Crash, or the exception of the creation.
        """

        async def creation() -> None:
            await create()

        around, agenda = _get_running_loop(), Agenda()
        loop = SimLoop(agenda, lambda error: None)  # type: ignore[abstract]
        self._syncs_at_once = True
        try:
            task = loop.create_task(creation())
            agenda.run(0)
        finally:
            self._syncs_at_once = False
            _set_running_loop(around)
        if not task.done():
            raise Crash
        task.result()

    def _tick(self) -> None:
        """The work beside the appends that a real broker does once a second."""
        for log in self.storage.logs.values():
            log.tick()
        self.storage.note_log_starts()
        self.loop.after(self._chance.choice(TICKS_US), self._tick)

    @property
    def is_dead(self) -> bool:
        return self.loop.is_dead

    def die(self) -> None:
        """Stop here: nothing of this process happens any more."""
        if not self.loop.is_dead:
            self.loop.die()
            self.on_death()

    # ------------------------------------------------------------ a node's scheduler

    def now_ms(self) -> int:
        return START_MS + self.agenda.time_of_day_us // 1000

    def monotonic_ms(self) -> int:
        return self.agenda.now_us // 1000

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Any:
        when_us = when_ms * 1000
        return self.agenda.at(max(when_us, self.agenda.now_us + 1), self.loop, self._guarded, call)

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self.failures.note(error)

    def spawn(self, work: Any) -> None:
        self.loop.create_task(work)

    async def in_worker(self, call: Callable[[], None]) -> None:
        """A blocking call on a worker thread; its syncs take their time."""
        for log, marks in self._wanted_by(call):
            await self.loop.sleep(self._sync_us())
            self._force(log, marks)

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        call(lambda: False)

    def sync_each(
        self, stores: Sequence[PartitionLog], done: Callable[[SyncFailures], None]
    ) -> None:
        """Syncs side by side: data present at their begin is on the disk at their end."""
        failures: SyncFailures = {}

        def sync_all() -> None:
            for store in stores:
                try:
                    store.sync()
                except StorageError as error:
                    failures[id(store)] = error

        if self._syncs_at_once:
            sync_all()
            done(failures)
            return

        def go_on() -> None:
            if wanted:
                self.loop.after(self._sync_us(), force_next)
            else:
                self.agenda.soon(self.loop, done, failures)

        def force_next() -> None:
            self._force(*wanted.pop())
            go_on()

        wanted = self._wanted_by(sync_all)
        go_on()

    def _wanted_by(self, call: Callable[[], None]) -> list[tuple[SimLog, SyncMarks]]:
        """The syncs that a call asks for: the logs, and the changes that each found."""
        wanted = self._in_worker = []
        try:
            call()
        finally:
            self._in_worker = None
        wanted.sort(key=lambda each: each[0].place)
        self._chance.shuffle(wanted)  # they are side by side: any may be done before another
        return wanted

    def _sync_us(self) -> int:
        return self._chance.choice((300, 2_000, 20_000))

    def _force(self, log: SimLog, marks: SyncMarks) -> None:
        self._boundary("sync", log.place)
        marks.force()
        self._boundary("synced", log.place)

    # ------------------------------------------------------------ the disk's watcher

    def before_lock(self) -> None:
        if self.is_dead:
            raise Crash
        if self.incoming and not self._in_reactor and self._chance.random() < 0.3:
            self.incoming[0]()

    def about_to(self, operation: str, place: Place) -> None:
        self._boundary(operation, place)

    def did(self, operation: str, log: SimLog) -> None:
        self._boundary("synced" if operation == "sync" else "written", log.place)
        if operation == "write":
            self.on_write()

    def end_later(self, log: SimLog, marks: SyncMarks) -> bool:
        if self._in_worker is None:
            return False
        self._in_worker.append((log, marks))
        return True

    def _boundary(self, operation: str, place: Place) -> None:
        """A moment between two operations: here a process may die."""
        if self.is_dead:
            raise Crash
        if self.trace is not None:
            self.trace.append((operation, place))
        self.operations += 1
        if self.dies_at is not None and self.operations >= self.dies_at:
            self.died_at = place
            self.die()
            raise Crash

    # ------------------------------------------------------------ requests

    def receive(
        self,
        client: Session,
        key: int,
        version: int,
        request: Any,
        answer: Callable[[Any], object],
        hang_up: Callable[[], object],
    ) -> None:
        """Take a request of a client.

        `answer` is called once, or `hang_up`, or neither if the process dies before.
        """
        if key == PRODUCE:
            self._produce(version, request, answer)
            return
        assert self.node is not None, "requests come when it has started"
        context = Context(key, version, "client", client)
        answerer = self._table[key].answerer

        def give(reply: Reply) -> None:
            answer(typed(answerer.response, key, version, reply))

        try:
            eager.run(self.loop, self._answer(answerer.answer(request, context), give, hang_up))
        except Exception as error:
            self.failures.note(error)

    async def _answer(
        self,
        handled: Awaitable[Any],
        answer: Callable[[Any], object],
        hang_up: Callable[[], object],
    ) -> None:
        try:
            answered = await handled
        except HangUpError:
            hang_up()
        else:
            answer(answered)

    # ------------------------------------------------------------ Produce

    def _produce(self, version: int, request: Produce, answer: Callable[[Any], object]) -> None:
        codes: dict[int, int] = {}
        self._append(version, request, codes, None)
        pending = [n for n in range(len(request.batches)) if n not in codes]
        if not pending:
            self._answer_produce(version, request, codes, answer)
            return
        self.loop.after(
            self._chance.choice((0, 50, 500)),
            lambda: self.loop.create_task(self._join(version, request, codes, answer)),
        )

    async def _join(
        self,
        version: int,
        request: Produce,
        codes: dict[int, int],
        answer: Callable[[Any], object],
    ) -> None:
        """Ask the coordinator for a parked Produce, as the control loop does."""
        assert self.node is not None, "it has started"
        places = [each.place for n, each in enumerate(request.batches) if n not in codes]
        verdicts = await self.node.verifier.join(
            request.transactional_id or "",
            request.producer.producer_id,
            request.producer.producer_epoch,
            2 if version >= 12 else 1,
            places,
        )
        refused = {place: code for place, code in verdicts.items() if code}

        def resume() -> None:
            if resume in self.incoming:
                self.incoming.remove(resume)
                self._append(version, request, codes, refused)
                self._answer_produce(version, request, codes, answer)

        self.incoming.append(resume)
        self.loop.after(self._chance.choice((0, 50, 500, 5_000)), resume)

    def _append(
        self,
        version: int,
        request: Produce,
        codes: dict[int, int],
        refused: Mapping[Place, int] | None,
    ) -> None:
        self._in_reactor, was_in_reactor = True, self._in_reactor
        try:
            for number, batch in enumerate(request.batches):
                if number not in codes:
                    code = self._append_one(version, request, batch, refused)
                    if code is not None:
                        codes[number] = _code_for(version, code)
        finally:
            self._in_reactor = was_in_reactor

    def _append_one(
        self,
        version: int,
        request: Produce,
        batch: ProduceData,
        refused: Mapping[Place, int] | None,
    ) -> int | None:
        """Kafka's error code, or None: it has to join first."""
        if refused is not None and batch.place in refused:
            return refused[batch.place]
        log = self.storage.logs.get(batch.place)
        if log is None:
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            kind, value = log.append_client_batch(
                2 if version >= 12 else 1,
                request.producer,
                batch.base_sequence,
                batch.values,
                self.now_ms(),
                transactional_id=request.transactional_id,
            )
        except StorageError:
            return KAFKA_STORAGE_ERROR
        if kind in (ADMIT, DUPLICATE):
            return 0
        if kind == ASK_TO_JOIN:
            return None if refused is None else int(ErrorCode.INVALID_TXN_STATE)
        return value

    def _answer_produce(
        self,
        version: int,
        request: Produce,
        codes: dict[int, int],
        answer: Callable[[Any], object],
    ) -> None:
        answers = [codes[number] for number in range(len(request.batches))]
        assert self.node is not None, "it has started"
        is_forced = self.node.durability is Durability.ALWAYS or (
            request.transactional_id is not None
            and request.producer.producer_id in self.catalog.forced
        )
        if not is_forced or not any(c == 0 for c in answers):
            answer(answers)
            return
        logs = [
            self.storage.logs[batch.place]
            for batch, code in zip(request.batches, answers, strict=True)
            if code == 0
        ]
        self.loop.create_task(self._answer_when_synced(logs, answers, answer))

    async def _answer_when_synced(
        self, logs: list[SimLog], answers: list[int], answer: Callable[[Any], object]
    ) -> None:
        """As a reactor that waits at the durability service."""
        assert self.node is not None, "it has started"
        try:
            await self.node.host.sync(logs)
        except StorageError:
            answers = [KAFKA_STORAGE_ERROR if code == 0 else code for code in answers]
        answer(answers)

    # ------------------------------------------------------------ Fetch

    def fetch(
        self, place: Place, offset: int, batches_max: int, *, is_committed: bool
    ) -> FetchData:
        """Read whole batches, as a fetch of one partition does."""
        log = self.storage.logs[place]
        stable, end = log.last_stable_offset, log.log_end_offset
        fetched = FetchData(high_watermark=end, last_stable_offset=stable, next_offset=offset)
        if not log.log_start_offset <= offset <= end:
            fetched.code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
            return fetched
        limit = stable if is_committed else end
        if offset >= limit:
            return fetched
        try:
            for batch in _below(log.read_batches(offset, batches_max), limit):
                fetched.batches.append(batch)
                fetched.next_offset = log.end_of(batch)
        except CorruptLogError:
            if not fetched.batches:
                fetched.code = int(ErrorCode.CORRUPT_MESSAGE)
                return fetched
        if is_committed:
            fetched.aborted = log.aborted_in(offset, fetched.next_offset)
        return fetched

    def behind_damage(self, place: Place, offset: int) -> int:
        """Where a reader goes on that was refused a damaged batch."""
        log = self.storage.logs[place]
        bases = (batch.base_offset for batch in log.stored)
        return next((base for base in bases if base > offset), log.log_end_offset)


def _below(batches: Iterator[StoredBatch], limit: int) -> Iterator[StoredBatch]:
    for batch in batches:
        if batch.base_offset >= limit:
            return
        yield batch


def _code_for(version: int, code: int) -> int:
    """How a Produce of a version says it; see `code_for` in `produce/version.rs`."""
    match ErrorCode(code):
        case ErrorCode.TRANSACTION_ABORTABLE if version < 11:
            return int(ErrorCode.INVALID_TXN_STATE)
        case ErrorCode.PRODUCER_FENCED:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        case ErrorCode.CONCURRENT_TRANSACTIONS if version < 12:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
    return code


__all__ = ["BatchKind", "Failures", "FetchData", "Produce", "ProduceData", "SimBroker"]
