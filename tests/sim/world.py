"""One run: a broker that dies and starts again, its clients, and everything that goes wrong."""

import gc
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sim.agenda import US_PER_MS, US_PER_S, Agenda, AgendaEntry, SimLoop
from sim.broker import START_MS, Failures, SimBroker
from sim.checkers import (
    first_without_marker,
    judge,
    judge_cleaning,
    judge_coordinator,
    judge_damage,
    judge_groups,
    judge_halves,
)
from sim.cleaning import SimCleaning
from sim.clients import ClientsWorld, PlainProducer, SimClient, TransactionalProducer
from sim.copiers import GROUP, SOURCES, Copier
from sim.disk import Disk, Place, ProducerState
from sim.history import Anomaly, Attempt, Fate, History
from sim.network import DisconnectedError, NetworkFault, SimConnection
from sim.operators import HANGING, HANGING_VALUE, Aborter, Deleter, hanging_places
from sim.plan import (
    FAULTS_END_US,
    FROM_THE_START,
    PLACES,
    PlannedFault,
    SimPlan,
    make_plan,
    smaller_plans,
)
from sim.readers import Follower
from sim.two_phase import TwoPhaseProducer
from sim.upgrades import Upgrade
from txn.broker.host import Durability
from txn.broker.node import Node
from txn.broker.shard import ShardPhase
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import AT_REST, Txn, TxnState
from txn.errors import CorruptLogError
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import StoredBatch
from txn.wire.hashing import coordinator_partition

LONGEST_US = 120 * US_PER_S
"""Clients that are not done by now never will be."""
REST_US = 8 * US_PER_S
"""Longer than any transaction's timeout and any delay of its end."""


MAKERS: dict[str, Callable[..., SimClient]] = {
    "tv1": TransactionalProducer,
    "tv2": TransactionalProducer,
    "plain": PlainProducer,
    "copy1": Copier,
    "copy2": Copier,
    "db": TwoPhaseProducer,
    "up1": Upgrade,
    "up2": Upgrade,
    "abort": Aborter,
    "delete": Deleter,
}


@dataclass(frozen=True, slots=True)
class SimResult:
    """The result of a plan."""

    plan: SimPlan
    anomalies: tuple[Anomaly, ...]
    story: tuple[str, ...]
    steps: int
    committed: int
    """Transactions whose commit was answered."""
    lives: int

    @property
    def names(self) -> set[str]:
        return {anomaly.name for anomaly in self.anomalies}


class World(ClientsWorld):
    """Everything of one run."""

    def __init__(self, plan: SimPlan, *, tells: bool = False) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.history = History()
        self.failures = Failures()
        self.loop = SimLoop(self.agenda, self.failures.note)  # type: ignore[abstract]
        self.disk = Disk(
            self._stream(9),
            segment_bytes=self._stream(8).choice((400, 400, 1_500, 1 << 20)),
        )
        self.broker: SimBroker | None = None
        self.lives = 0
        self.power_failed = False
        """True if the power failed since the last recovery that came to its end."""
        self.cache_lost = False
        """True if files lost their unsynced ends in the same boot, since that recovery."""
        self.power_ever_failed = False
        self.records_operations = False
        """True if each broker keeps a trace of its operations on the disk."""
        self.story: list[str] = []
        if tells:
            self.history.tell = self._tell
        self._follower = Follower(self.history, PLACES)
        self._clients: list[SimClient] = []
        self._connections: list[SimConnection] = []
        self._connected = 0
        self._requests: dict[str, int] = {}
        self._network = {(each.client, each.request): each for each in plan.network}
        self._has_copiers = any(script.kind.startswith("copy") for script in plan.scripts)
        self._told: dict[Place, int] = {}
        """The group's offsets as last looked at."""
        self._armed: PlannedFault | None = None
        self._before_crash: dict[Place, ProducerState] = {}
        hanging = {place for script in plan.scripts for place in hanging_places(script)}
        self._to_hang = sorted(hanging, reverse=True)
        """Where transactions are to hang."""
        self._unmarked: dict[Place, tuple[dict[str, bytes], StoredBatch]] = {}
        """Logs whose last marker is gone: their files as they were before, and the marker."""
        self._restart_due: AgendaEntry | None = None

    def run(self) -> SimResult:
        """Let it happen, then judge."""
        log, level = logging.getLogger("txn"), logging.getLogger("txn").level
        log.setLevel(logging.CRITICAL + 1)  # the broker's log lines are no part of the story
        gc.disable()  # one pass at the end: many in between take 8 % of a run
        try:
            return self._run()
        finally:
            gc.enable()
            self._end_cleaner()
            self.disk.release()
            log.setLevel(level)

    def _run(self) -> SimResult:
        self._seed()
        self._start_broker()
        for number, script in enumerate(self.plan.scripts):
            chance = self._stream(1_000 + number)
            self._clients.append(MAKERS[script.kind](self, script, chance))
        tasks = [self.loop.create_task(client.run()) for client in self._clients]  # type: ignore[attr-defined]
        self._poll_at = self._stream(7)
        self.loop.after(0, self._poll)
        for fault in self.plan.faults:
            if fault.at_us == FROM_THE_START:
                continue
            self.agenda.at(fault.at_us, self.loop, self._happen, fault)
        self.agenda.run(FAULTS_END_US, lambda: False)
        self._heal()
        self.agenda.run(LONGEST_US, lambda: all(task.done() for task in tasks))
        for client, task in zip(self._clients, tasks, strict=True):
            if not task.done():
                self.history.found("stuck-client", f"{client.name} never came to an end")
        self.agenda.run(self.agenda.now_us + REST_US)
        assert self.broker is not None, "it was started again"
        self._follower.poll(self.broker, 1_000)
        self.history.anomalies += [
            Anomaly("broker-error", repr(error)) for error in self.failures.seen
        ]
        anomalies = judge(
            self.history,
            self.broker,
            may_lose_plain=self.power_ever_failed and self.plan.durability is not Durability.ALWAYS,
        )
        return SimResult(
            self.plan,
            tuple(anomalies),
            tuple(self.story),
            self.agenda.steps,
            sum(attempt.fate.name == "COMMITTED" for attempt in self.history.attempts),
            self.lives,
        )

    def _stream(self, number: int) -> random.Random:
        return random.Random(self.plan.seed * 1_000_003 + number)

    def _tell(self, line: str) -> None:
        self.story.append(f"{self.agenda.now_us / US_PER_S:9.6f}  {line}")

    # ------------------------------------------------------------ for clients

    def connect(self, client: str) -> SimConnection:
        if self.broker is None or self.broker.is_dead:
            raise DisconnectedError
        self._connected += 1
        connection = SimConnection(
            self.agenda,
            self.loop,
            self.broker,
            self._stream(10_000 + self._connected),
        )
        self._connections.append(connection)
        return connection

    def fault_of(self, client: str) -> NetworkFault | None:
        number = self._requests[client] = self._requests.get(client, 0) + 1
        return self._network.get((client, number))

    # ------------------------------------------------------------ the broker's lives

    def _start_broker(self) -> None:
        self.lives += 1
        self.history.say("broker", f"starts, life {self.lives}")
        broker = SimBroker(
            self.agenda,
            self.disk,
            self._stream(100_000 + self.lives),
            durability=self.plan.durability,
            power_failed=self.power_failed,
            failures=self.failures,
            settings=dict(self.plan.settings),
        )
        for each in self.disk.files.values():
            each.harm()
        if self.records_operations:
            broker.trace = []
        fault, self._armed = self._armed, None
        if fault is not None and fault.in_recovery is not None:
            broker.dies_at = fault.in_recovery
        from_the_start = [each for each in self.plan.faults if each.at_us == FROM_THE_START]
        if self.lives == 1 and from_the_start:
            fault = from_the_start[0]
            broker.dies_at = fault.operations
        broker.storage.expected = self._before_crash
        self._before_crash = {}
        self.broker = broker
        has_started = broker.start()
        if broker.power_failed and not self.power_failed:
            self._found_lost_cache()
        if not has_started:
            if broker.refusal is not None:
                self._put_back(broker.refusal)
            self.history.say("broker", f"stops at boundary {broker.operations} of its start")
            if fault is not None:
                self._lose_unsynced(fault)
            self._restart_later(10_000)
            return
        if self.lives == 1 and from_the_start:
            self._armed = fault
        else:
            broker.dies_at = None
        self.history.anomalies += [
            Anomaly("recovery-divergence", f"{place[0]}-{place[1]}: {text}")
            for place, text in broker.storage.diverged
        ]
        for place, (_, marker) in self._unmarked.items():
            if not _is_written_again(broker.storage.logs[place].stored, marker):
                text = f"it started on {place[0]}-{place[1]}, of which a marker is gone"
                self.history.found("damage-served", text)
        self._unmarked.clear()
        self.disk.accepted.clear()
        self.history.anomalies += [
            *judge_damage(broker),
            *judge_coordinator(broker),
            *judge_groups(broker),
        ]
        if self.cache_lost and not self.power_failed:
            self.history.anomalies += judge_halves(self.history, broker)
            self._tell_of_lost_cache()
            broker.die()
            self._restart_later(1_000)
            return
        for place in PLACES if self.power_failed else ():
            self._follower.starts_at(place, broker.storage.logs[place].log_end_offset)
            file = self.disk.files.get(place)
            first_offset = first_without_marker(broker, place)
            is_refusing = file is not None and (file.is_full or file.is_unsyncable)
            if is_refusing and first_offset is not None:
                self._follower.marker_is_refused(place, first_offset)
        assert broker.node is not None, "it has started"
        broker.node.transactions.call_when_recovered(self._recovered)
        broker.on_death = lambda: self.loop.after(0, self._died, broker)
        broker.on_write = lambda: self._look(broker, 1)
        self._let_hang(broker)

    def _recovered(self) -> None:
        self.power_failed = self.cache_lost = False

    def _found_lost_cache(self) -> None:
        """A start says that the storage lost its cache, and has noted it in the directory."""
        self.history.say("broker", "finds that the storage lost its cache")
        if not self.cache_lost and not self._unmarked:
            self.history.found("false-alarm", "a start takes a kill for a lost cache")
        self.power_failed = True

    def _tell_of_lost_cache(self) -> None:
        """An operator tells of a loss without proof: the next start is one after a power cut."""
        self.history.say("operator", "tells of the lost cache")
        self.power_failed = True

    def _died(self, broker: SimBroker) -> None:
        self._end_cleaner()
        self.history.say("broker", f"dies at boundary {broker.operations}")
        for connection in self._connections:
            connection.break_after(500)
        self._connections.clear()
        fault = self._armed
        if fault is None or not self._lose_unsynced(fault):
            if fault is not None and fault.kind == "flip":
                self._flip(fault)
            if fault is not None and fault.kind == "unmark":
                self._unmark(broker)
            self._before_crash = {
                place: log.state()
                for place, log in broker.storage.logs.items()
                if log.is_quiet and place != broker.died_at and place not in self._unmarked
            }
        self._restart_later(fault.down_us if fault is not None else 1_000)

    def _flip(self, fault: PlannedFault) -> None:
        file = self.disk.files.get(fault.place)
        if file is not None:
            offset = file.flip(fault.batch, is_believed=fault.bias != "scanned")
            self.history.say("fault", f"a bit of the batch at {offset} is wrong")

    def _unmark(self, broker: SimBroker) -> None:
        """Lose a marker that ended a transaction which the coordinator had completed."""
        assert broker.node is not None, "it had started"
        at_rest = {
            producer_id
            for _, txn in broker.node.transactions.transactions.items()
            if txn.state in AT_REST
            for producer_id in (txn.producer_id, txn.previous_producer_id)
        }
        for place in PLACES:
            file = self.disk.files.get(place)
            marker = None if file is None else file.ends_with_a_marker()
            if file is not None and marker is not None and marker.producer_id in at_rest:
                self.history.say("fault", f"the last marker of {place[0]}-{place[1]} is gone")
                self._unmarked[place] = file.lose_last(), marker
                return

    def _put_back(self, refusal: CorruptLogError) -> None:
        """An operator puts a copy in the place of the log that was said to be damaged.

        Where a transaction hangs, its loss is accepted instead.
        """
        reason = refusal.message.replace(f"{self.disk.root}/", "").split(": the batch")[0]
        self.history.say("broker", f"will not start: {reason}")
        if self.cache_lost and not self.power_failed:
            self._tell_of_lost_cache()
            return
        for place, (contents, marker) in self._unmarked.items():
            if refusal.message.startswith(f"{place[0]}-{place[1]}: producer "):
                self.disk.files[place].put_back(contents, marker)
                self._unmarked.clear()
                return
        if f"producer {HANGING.producer_id} " in refusal.message:
            self.disk.accepted |= set(PLACES)
            return
        for damaged in self.disk.files.values():
            if damaged.is_damage(refusal):
                damaged.repair()
                return
        if self.disk.accepted:
            raise RuntimeError(f"a start refuses what was accepted: {refusal.message}")
        self.history.found("damage-unnamed", refusal.message)
        self.disk.accepted |= self.disk.files.keys()  # or no start would come to an end
        for damaged in self.disk.files.values():
            damaged.repair()

    def _lose_unsynced(self, fault: PlannedFault) -> bool:
        """Have the files lose unsynced changes; False if they lose none by this fault."""
        if fault.kind not in ("power", "cache"):
            return False
        self.disk.lose_power(self._stream(500_000 + self.lives), fault.bias)
        if fault.kind == "cache":
            self.cache_lost = True
        else:
            self.power_failed = True
            if fault.place[0].startswith("__"):
                self._flip(fault)
        self.power_ever_failed = True
        self._follower.power_failed()
        return True

    def _restart_later(self, down_us: int) -> None:
        self.loop.after(down_us, self._start_broker)

    def _seed(self) -> None:
        """Put the contents from before the run on the disk.

        Transactional ids have a long history, so that their epochs are soon used up.
        """
        if self.plan.first_epoch is None:
            return
        broker = SimBroker(
            self.agenda,
            self.disk,
            self._stream(3),
            durability=self.plan.durability,
            power_failed=False,
            failures=self.failures,
        )
        broker.start()
        assert broker.node is not None, "nothing keeps it from starting"
        self._seed_epochs(broker, broker.node, self.plan.first_epoch)
        for log in broker.storage.logs.values():
            log.sync()
        broker.loop.is_dead = True

    def _let_hang(self, broker: SimBroker) -> None:
        """Write late, past the coordinator, for an operator to find; a start would refuse it."""
        for place in sorted(self._to_hang):
            attempt = Attempt("hanging", "", "", (-1, -1), 0, Fate.NEVER, {HANGING_VALUE: place})
            self.history.owner[HANGING_VALUE] = self.history.begin(attempt)
        while self._to_hang:
            log = broker.storage.logs[self._to_hang.pop()]
            log.append([(None, HANGING_VALUE)], timestamp_ms=START_MS, producer=HANGING)

    def _seed_epochs(self, broker: SimBroker, node: Node, first_epoch: int) -> None:
        broker.create_at_once(lambda: node.controller.create_coordinator_topic(TRANSACTIONS_TOPIC))
        for producer_id, name in zip(
            node.host.allocate_producer_ids_now(), ("pay", "ship"), strict=False
        ):
            txn = Txn(
                producer_id=producer_id,
                producer_epoch=first_epoch,
                timeout_ms=2_000,
                state=TxnState.EMPTY,
                partitions=frozenset(),
                start_ms=-1,
                updated_ms=START_MS,
            )
            stores = node.host.coordinator_partitions(TRANSACTIONS_TOPIC)
            store = stores[coordinator_partition(name, len(stores))]
            store.append([(encode_key(name), encode_value(txn))], timestamp_ms=START_MS)

    # ------------------------------------------------------------ what goes wrong

    def _happen(self, fault: PlannedFault) -> None:
        broker = self.broker
        assert broker is not None, "it was started"
        self.history.say("fault", str(fault))
        if fault.kind in ("full", "unsyncable"):
            file = self.disk.files.get(fault.place)
            if file is not None:
                setattr(file, "is_full" if fault.kind == "full" else "is_unsyncable", True)
                self.loop.after(fault.down_us, self._repair)
            return
        if fault.kind == "clock":
            self.agenda.clock_step_us += fault.down_us
            return
        if fault.kind == "flip" and fault.bias == "at rest":
            self._flip(fault)
            return
        if broker.is_dead or self._armed is not None:
            return
        if fault.kind == "compact":
            self._clean(broker, fault)
            return
        if fault.kind == "resign":
            self._resign(broker, fault)
            return
        self._armed = fault
        if fault.operations:
            broker.dies_at = broker.operations + fault.operations
            self.loop.after(US_PER_S, self._die_at_last, broker)
        else:
            broker.die()

    def _resign(self, broker: SimBroker, fault: PlannedFault) -> None:
        """Have the broker give up its transactional ids for a while, unless it still starts."""
        if broker.node is None:
            return
        coordinator = broker.node.transactions
        for shard in coordinator.transactions.shards:
            if shard.phase is ShardPhase.ACTIVE:
                coordinator.resign(shard.index)
                elect = partial(self._elect, broker, coordinator, shard.index)
                self.loop.after(fault.down_us, elect)

    def _elect(self, broker: SimBroker, coordinator: TransactionCoordinator, index: int) -> None:
        if not broker.is_dead:
            broker.spawn(coordinator.elect(index))

    def _clean(self, broker: SimBroker, fault: PlannedFault) -> None:
        """Have the cleaner pass; its result is put in place when the time is over."""
        log = broker.storage.logs.get(fault.place)
        if log is None:
            return
        cleaning = log.begin_cleaning(broker.now_ms())
        if cleaning is not None:
            self.history.say("cleaner", f"passes {log.topic}-{log.index} below {cleaning.end}")
            broker.loop.after(fault.down_us, self._end_cleaning, cleaning)

    def _end_cleaning(self, cleaning: SimCleaning) -> None:
        cleaning.go_on()
        log = cleaning.log
        if log.place in PLACES and not cleaning.has_failed:
            assert self.broker is not None, "its cleaner worked"
            self.history.anomalies += judge_cleaning(self.broker, log.place)

    def _end_cleaner(self) -> None:
        if self.disk.cleaning is not None:
            self.disk.cleaning.abandon()

    def _die_at_last(self, broker: SimBroker) -> None:
        if self.broker is broker and not broker.is_dead:
            broker.die()

    def _repair(self) -> None:
        """The disk works again; where a sync failed, an operator restarts the broker."""
        self.disk.heal()
        broker = self.broker
        if broker is None or broker.is_dead:
            return
        if any(log.has_failed for log in broker.storage.logs.values()):
            self.history.say("operator", "restarts the broker")
            broker.die()

    def _heal(self) -> None:
        """Nothing goes wrong from now on."""
        self._network.clear()
        self._repair()

    def _look(self, broker: SimBroker, batches_max: int) -> None:
        """The records that any reader may see at this moment."""
        self._follower.poll(broker, batches_max)
        groups = None if broker.node is None else broker.node.groups
        if self._has_copiers and groups is not None and not groups.offsets.lacks_a_marker(GROUP):
            committed = groups.offsets.committed(GROUP)
            for place in SOURCES:
                stored = committed.get(place)
                offset = -1 if stored is None else stored.value.offset
                if self._told.get(place) != offset:
                    self._told[place] = offset
                    self.history.told_offset(place, offset, self.agenda.now_us)

    def _poll(self) -> None:
        if self.broker is not None and not self.broker.is_dead and self.broker.node is not None:
            self._look(self.broker, self._poll_at.choice((1, 2, 5)))
        if self.agenda.now_us < FAULTS_END_US:
            self.loop.after(self._poll_at.choice((3, 50, 300)) * US_PER_MS, self._poll)


def _is_written_again(stored: Sequence[StoredBatch], marker: StoredBatch) -> bool:
    """Say whether a log has a marker that was gone from its end."""
    return any(
        each.kind is marker.kind
        and each.producer_id == marker.producer_id
        and each.base_offset >= marker.base_offset
        for each in stored
    )


# -------------------------------------------------------------------- seeds


def run_plan(plan: SimPlan, *, tells: bool = False) -> SimResult:
    """Run a plan."""
    return World(plan, tells=tells).run()


def run_seed(seed: int) -> SimResult:
    """Run the plan of a seed."""
    return run_plan(make_plan(seed))


def shrink(result: SimResult, run: Callable[[SimPlan], SimResult] = run_plan) -> SimResult:
    """Find a smaller plan that goes wrong in a way this one does, and tell its story."""
    wanted = result.names
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for plan in smaller_plans(result.plan):
            found = run(plan)
            if found.names & wanted:
                result, is_smaller = found, True
                break
    return run_plan(result.plan, tells=True)


def text_of(result: SimResult) -> str:
    """A failing run as a person reads it."""
    plan = result.plan
    lines = [
        f"seed {plan.seed} fails: " + ", ".join(sorted(result.names)),
        f"durability={plan.durability.value}"
        + (f", first epoch {plan.first_epoch}" if plan.first_epoch is not None else ""),
        *(str(anomaly) for anomaly in result.anomalies),
        "the story:",
        *result.story,
    ]
    return "\n".join(lines)
