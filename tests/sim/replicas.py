"""Two and three replicas of one partition, each over a real `_core.PartitionLog`.

A seed decides on everything: appends, fetches, messages that are late or lost, kills, power
failures, elections, changes of the ISR. Leader and followers keep Kafka's rules (`Replica.fetch`,
`answer`, `accept`); a controller without faults elects leaders from the ISR.

A kill leaves the files as they are, for the page cache survives. A power failure leaves the files
as they were at the last sync. The replica that comes back from one has lost promised records, so
the controller takes it out of the ISR.

Checked after every step: LSO ≤ HW ≤ log end; no record below any high watermark is ever lost or
changed. A new leader has all of them. Checked at the end, when every message arrives: all logs are
equal, and each producer state is that of a replay. Each `ReplicationRule` can be broken; a broken
one has to be caught.
"""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from txn import _core
from txn.partition import ProducerStateManager

SETTINGS = {"segment.bytes": 700, "index.interval.bytes": 150}
STEPS = 160
ROUNDS = 60
"""Rounds of fetches at the end; each may truncate once or bring some batches."""


class ReplicationRule(Enum):
    """A rule of replication, to be broken on purpose."""

    HIGH_WATERMARK_WAITS = "the high watermark is the least log end of the ISR, not the leader's"
    FETCH_ACKNOWLEDGES = "to fetch an offset acknowledges what is below, to be sent it does not"
    FOLLOWER_TRUNCATES = "a follower takes back what its leader does not have"
    EPOCHS_ARE_COMPARED = "a leader compares epochs, not only log ends"
    TRUNCATION_ASKS_FIRST = "a follower does not truncate to its high watermark by itself"
    PARTITION_EPOCHS_ARE_COMPARED = "an older ISR of the same leader epoch means nothing"
    LEADER_IS_IN_SYNC = "a leader is elected from the ISR"
    LOSS_LEAVES_THE_ISR = "a replica that lost unsynced records leaves the ISR"


class ReplicaAnomaly(AssertionError):
    """A promise that was broken."""


class FetchRequest(NamedTuple):
    """A follower's question."""

    follower: int
    broker_epoch: int
    """Of the process that asks."""
    number: int
    """Of the follower's requests; the answer to an older one is passed over."""
    leader_epoch: int
    offset: int
    latest_epoch: int


class FetchAnswer(NamedTuple):
    """A leader's answer: records, or where their logs diverge."""

    number: int
    leader_epoch: int
    high_watermark: int
    records: bytes = b""
    diverging: tuple[int, int] | None = None
    log_end: int = -1
    """Set if the offset is beyond it."""


class LeaderAndIsr(NamedTuple):
    """The controller's word on a partition."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    partition_epoch: int = 0
    """Rises with every change."""


class ReplicaMessage(NamedTuple):
    """On its way to a replica."""

    to: int
    body: FetchRequest | FetchAnswer | LeaderAndIsr


class CheckpointEntries(NamedTuple):
    """A log's entries in the checkpoints."""

    recovery_point: int = 0
    high_watermark: int = 0


NOBODY = LeaderAndIsr(-1, -1, frozenset())
NOTHING = CheckpointEntries()


@dataclass
class ReplicaBatch:
    """A stored batch as it is compared."""

    base_offset: int
    end_offset: int
    bytes: bytes


@dataclass
class Replica:
    """One broker's replica, running or not."""

    index: int
    root: Path
    broken: frozenset[ReplicationRule]
    log: _core.PartitionLog | None = None
    producer_state: ProducerStateManager = field(default_factory=ProducerStateManager)
    known: LeaderAndIsr = NOBODY
    checkpoint: CheckpointEntries = NOTHING
    durable: dict[str, bytes] = field(default_factory=dict)
    durable_checkpoint: CheckpointEntries = NOTHING
    fetched: dict[int, int] = field(default_factory=dict)
    """As leader: log ends of followers, as far as they have fetched in this epoch."""
    epoch_start: int = 0
    broker_epoch: int = 0
    number: int = 0

    @property
    def directory(self) -> Path:
        """Where the log is."""
        return self.root / f"replica-{self.index}" / "orders-0"

    @property
    def running(self) -> _core.PartitionLog:
        """The open log."""
        assert self.log is not None
        return self.log

    @property
    def leads(self) -> bool:
        """True if it believes to be the leader."""
        return self.known.leader == self.index

    # ------------------------------------------------------------ life

    def start(self, *, power_failed: bool = False) -> None:
        """Open the log as a follower of nobody."""
        self.broker_epoch += 1
        self.producer_state = ProducerStateManager()
        self.producer_state.note_loss()  # it may be told to truncate
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.log = _core.PartitionLog(
            str(self.directory),
            self.producer_state,
            SETTINGS,
            power_failed=power_failed,
            recovery_point=self.checkpoint.recovery_point,
            high_watermark=self.checkpoint.high_watermark,
            role="follower",
        )
        self.known = NOBODY

    def kill(self) -> None:
        """End the process; the files stay as they are, and the checkpoints may be old."""
        self.log = None

    def lose_power(self) -> None:
        """End the machine; the files are as they were at the last sync."""
        self.log = None
        shutil.rmtree(self.directory, ignore_errors=True)
        self.checkpoint = self.durable_checkpoint
        if self.durable:
            self.directory.mkdir(parents=True)
        for name, content in self.durable.items():
            (self.directory / name).write_bytes(content)

    def sync(self) -> None:
        """Force the log to the disk."""
        log = self.running
        log.sync()
        self.checkpoint = CheckpointEntries(log.recovery_point, log.high_watermark)
        self.durable_checkpoint = self.checkpoint
        paths = self.directory.iterdir() if self.directory.is_dir() else ()
        self.durable = {path.name: path.read_bytes() for path in paths}

    # ------------------------------------------------------------ roles

    def become(self, known: LeaderAndIsr) -> None:
        """Take the controller's word; an older one than is known means nothing."""
        is_older = known.partition_epoch < self.known.partition_epoch
        if ReplicationRule.PARTITION_EPOCHS_ARE_COMPARED in self.broken:
            is_older = known.leader_epoch < self.known.leader_epoch
        if is_older:
            return
        is_new = known.leader_epoch > self.known.leader_epoch
        self.known = known
        if not is_new:
            return
        self.fetched = {}
        self.epoch_start = self.running.set_role(
            "leader" if self.leads else "follower", known.leader_epoch
        )
        if not self.leads and ReplicationRule.TRUNCATION_ASKS_FIRST in self.broken:
            self.truncate(self.running.high_watermark)

    def truncate(self, offset: int) -> None:
        """Take back the records above."""
        self.running.truncate_to(offset, self.lower_checkpoints)
        self.sync()

    def lower_checkpoints(self, bound: int) -> None:
        """Have no entry beyond a bound."""
        point, high_watermark = self.checkpoint
        self.checkpoint = CheckpointEntries(min(point, bound), min(high_watermark, bound))

    def fetch(self) -> FetchRequest:
        """Ask the leader for the next records."""
        self.number += 1
        latest = self.running.latest_epoch
        return FetchRequest(
            self.index,
            self.broker_epoch,
            self.number,
            self.known.leader_epoch,
            self.running.log_end_offset,
            -1 if latest is None else latest,
        )

    def answer(self, request: FetchRequest, bytes_max: int) -> FetchAnswer | None:
        """Answer a follower as the leader; None to one of another epoch."""
        log, epoch = self.running, self.known.leader_epoch
        if not self.leads or request.leader_epoch != epoch:
            return None
        end = log.end_of_epoch(request.latest_epoch) if request.latest_epoch >= 0 else None
        is_compared = ReplicationRule.EPOCHS_ARE_COMPARED not in self.broken
        if is_compared and end and (end[0] < request.latest_epoch or end[1] < request.offset):
            return FetchAnswer(request.number, epoch, -1, diverging=end)
        if request.offset > log.log_end_offset:
            return FetchAnswer(request.number, epoch, -1, log_end=log.log_end_offset)
        records = b""
        if request.offset < log.log_end_offset:
            records = log.read(request.offset, bytes_max)
        reached = request.offset
        if records and ReplicationRule.FETCH_ACKNOWLEDGES in self.broken:
            reached = _core.decode_batches(records)[-1][1] + 1
        self.fetched[request.follower] = reached
        self.advance()
        return FetchAnswer(request.number, epoch, log.high_watermark, records)

    def advance(self) -> None:
        """Raise the high watermark to the least log end of the ISR."""
        log = self.running
        others = self.known.isr - {self.index}
        if ReplicationRule.HIGH_WATERMARK_WAITS in self.broken:
            log.raise_high_watermark(log.log_end_offset)
        elif others <= self.fetched.keys():
            ends = [self.fetched[other] for other in others]
            log.raise_high_watermark(min([log.log_end_offset, *ends]))

    def accept(self, answer: FetchAnswer) -> None:
        """Store the leader's answer, or take back records that it does not have."""
        log = self.running
        if answer.number != self.number or answer.leader_epoch != self.known.leader_epoch:
            return
        if answer.diverging or answer.log_end >= 0:
            if ReplicationRule.FOLLOWER_TRUNCATES not in self.broken:
                self.truncate(self._target(answer))
            return
        if answer.records:
            epoch = self.known.leader_epoch
            log.append_as_follower(answer.records, epoch, self.lower_checkpoints)
        log.raise_high_watermark(answer.high_watermark)

    def _target(self, answer: FetchAnswer) -> int:
        log = self.running
        if answer.diverging is None:
            return answer.log_end
        epoch, end = answer.diverging
        mine = log.end_of_epoch(epoch)
        if mine is None:
            return min(end, log.log_end_offset)
        return min(mine[1], end if mine[0] == epoch else log.log_end_offset)

    # ------------------------------------------------------------ what is stored

    def batches(self) -> Iterator[ReplicaBatch]:
        """The stored batches, in order."""
        log = self.running
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data, position = log.read(offset, 1), 0
            for base, last, *_ in _core.decode_batches(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                yield ReplicaBatch(base, last + 1, data[position : position + size])
                position, offset = position + size, last + 1


class ReplicaCluster:
    """The replicas, the messages between them, and the controller."""

    def __init__(
        self, root: Path, seed: int, replicas: int, broken: frozenset[ReplicationRule] = frozenset()
    ) -> None:
        self.random = random.Random(seed)
        self.broken = broken
        self.replicas = [Replica(index, root, broken) for index in range(replicas)]
        self.messages: list[ReplicaMessage] = []
        self.controller = LeaderAndIsr(0, 0, frozenset(range(replicas)))
        self.committed: dict[int, bytes] = {}
        """Every batch that lay below a high watermark, by base offset."""
        self.lost: set[int] = set()
        """Replicas whose power failed, until they are back."""
        for replica in self.replicas:
            replica.start()
            replica.become(self.controller)

    def run(self) -> None:
        """Play the schedule of the seed. Raises Anomaly."""
        steps = [
            (30, self.append),
            (25, self.fetch),
            (45, self.deliver),
            (4, self.lose_message),
            (5, self.sync),
            (3, self.kill),
            (3, self.lose_power),
            (5, self.come_back),
            (4, self.elect),
            (5, self.change_isr),
        ]
        weights = [weight for weight, _ in steps]
        for _ in range(STEPS):
            (_, step) = self.random.choices(steps, weights)[0]
            step()
            self.check()
        self.settle()

    # ------------------------------------------------------------ steps

    def append(self) -> None:
        """A client writes to a replica that believes to lead."""
        leaders = [replica for replica in self.up() if replica.leads]
        if not leaders:
            return
        replica = self.random.choice(leaders)
        log, producer_id = replica.running, self.random.randrange(3)
        records: list[tuple[bytes | None, bytes | None]] = [(None, self.random.randbytes(20))]
        try:
            match self.random.randrange(4):
                case 0:
                    log.append(_core.encode_batch(records * self.random.randint(1, 3), 1))
                case 1 | 2:
                    batch = _core.encode_batch(records, 1, producer_id, 0, is_transactional=True)
                    log.append(batch)
                case _:
                    log.append_marker(producer_id, 0, 0, self.random.random() < 0.5, 1)
        except _core.LogRefusedError:
            return  # the rules of the transaction refuse it
        replica.advance()

    def fetch(self) -> None:
        """A follower asks its leader."""
        followers = [one for one in self.up() if not one.leads and one.known.leader >= 0]
        if followers:
            follower = self.random.choice(followers)
            self.messages.append(ReplicaMessage(follower.known.leader, follower.fetch()))

    def deliver(self) -> None:
        """A message arrives, not always the oldest."""
        if not self.messages:
            return
        place = min(self.random.randrange(len(self.messages)), self.random.randrange(4))
        message = self.messages.pop(place)
        replica = self.replicas[message.to]
        if replica.log is None:
            return
        match message.body:
            case FetchRequest() as request if self.is_current(request):
                answer = replica.answer(request, self.random.choice((1, 300, 5000)))
                if answer is not None:
                    self.messages.append(ReplicaMessage(request.follower, answer))
                    self.expand(replica, request.follower)
            case FetchAnswer() as answer:
                self.accept(replica, answer)
            case LeaderAndIsr() as known:
                self.become(replica, known)

    def is_current(self, request: FetchRequest) -> bool:
        """True if the process that asks still runs. Records of an older one may be lost."""
        follower = self.replicas[request.follower]
        return request.broker_epoch == follower.broker_epoch and follower.log is not None

    def accept(self, replica: Replica, answer: FetchAnswer) -> None:
        """A follower takes an answer; where rules are broken its log may refuse it."""
        try:
            replica.accept(answer)
        except _core.LogRefusedError as error:
            raise ReplicaAnomaly(f"replica {replica.index} cannot go on: {error}") from error

    def become(self, replica: Replica, known: LeaderAndIsr) -> None:
        """A replica hears of the controller; a new leader has all that was committed."""
        is_new = known.leader_epoch > replica.known.leader_epoch
        replica.become(known)
        if is_new and replica.leads and known == self.controller:
            stored = {batch.base_offset: batch.bytes for batch in replica.batches()}
            for base, content in self.committed.items():
                if stored.get(base) != content:
                    raise ReplicaAnomaly(
                        f"leader {replica.index} lacks the committed batch at {base}"
                    )

    def lose_message(self) -> None:
        """A message never arrives. The controller's are sent again, so they are not lost."""
        losable = [one for one in self.messages if not isinstance(one.body, LeaderAndIsr)]
        if losable:
            self.messages.remove(self.random.choice(losable))

    def sync(self) -> None:
        """A replica forces its log to the disk."""
        if up := self.up():
            self.random.choice(up).sync()

    def kill(self) -> None:
        """A process ends."""
        if up := self.up():
            replica = self.random.choice(up)
            replica.kill()
            self.forget_messages(replica)

    def lose_power(self) -> None:
        """A machine ends, if another running one of the ISR has its promised records."""
        up = self.up()
        in_sync = [one for one in up if one.index in self.controller.isr]
        if len(in_sync) < 2:
            return
        replica = self.random.choice(up)
        replica.lose_power()
        self.forget_messages(replica)
        self.lost.add(replica.index)
        if ReplicationRule.LOSS_LEAVES_THE_ISR in self.broken:
            return
        isr = self.controller.isr - {replica.index}
        if replica.index == self.controller.leader:
            self.appoint(self.random.choice([one for one in in_sync if one is not replica]), isr)
        else:
            self.announce(self.controller._replace(isr=isr))

    def come_back(self) -> None:
        """A replica starts again, and hears of the controller."""
        down = [replica for replica in self.replicas if replica.log is None]
        if not down:
            return
        replica = self.random.choice(down)
        replica.start(power_failed=replica.index in self.lost)
        self.lost.discard(replica.index)
        self.messages.append(ReplicaMessage(replica.index, self.controller))

    def elect(self) -> None:
        """The controller makes another replica the leader."""
        candidates = [one for one in self.up() if one.index in self.controller.isr]
        if ReplicationRule.LEADER_IS_IN_SYNC in self.broken:
            candidates = self.up()
        if candidates:
            self.appoint(self.random.choice(candidates), self.controller.isr)

    def change_isr(self) -> None:
        """The leader has a follower leave the ISR; the controller takes it of the leader alone."""
        leader = self.replicas[self.controller.leader]
        others = self.controller.isr - {leader.index}
        if leader.log is None or not others or leader.known != self.controller:
            return
        isr = self.controller.isr - {self.random.choice(sorted(others))}
        self.announce(self.controller._replace(isr=isr))
        leader.become(self.controller)
        leader.advance()

    def expand(self, leader: Replica, follower: int) -> None:
        """A follower that has come to the high watermark and the epoch's start joins the ISR."""
        if leader.known != self.controller or follower in self.controller.isr:
            return
        reached = leader.fetched.get(follower, -1)
        if reached >= max(leader.running.high_watermark, leader.epoch_start):
            # The leader counts it from the moment of asking.
            self.announce(self.controller._replace(isr=self.controller.isr | {follower}))
            leader.become(self.controller)

    def appoint(self, replica: Replica, isr: frozenset[int]) -> None:
        epoch = self.controller.leader_epoch + 1
        self.announce(LeaderAndIsr(replica.index, epoch, isr | {replica.index}))

    def announce(self, known: LeaderAndIsr) -> None:
        epoch = self.controller.partition_epoch + 1
        self.controller = known._replace(partition_epoch=epoch)
        for replica in self.replicas:
            self.messages.append(ReplicaMessage(replica.index, self.controller))

    def forget_messages(self, replica: Replica) -> None:
        """Messages on their way to a process that ended are gone."""
        self.messages = [message for message in self.messages if message.to != replica.index]

    def up(self) -> list[Replica]:
        """The running replicas."""
        return [replica for replica in self.replicas if replica.log is not None]

    # ------------------------------------------------------------ checks

    def check(self) -> None:
        """No record below a high watermark is lost or changed, in any replica."""
        for replica in self.up():
            log = replica.running
            if not log.last_stable_offset <= log.high_watermark <= log.log_end_offset:
                raise ReplicaAnomaly(f"replica {replica.index}: its offsets are out of order")
            for batch in replica.batches():
                if batch.end_offset > log.high_watermark:
                    break
                known = self.committed.setdefault(batch.base_offset, batch.bytes)
                if known != batch.bytes:
                    raise ReplicaAnomaly(
                        f"replica {replica.index} has another batch at {batch.base_offset}"
                    )

    def settle(self) -> None:
        """Bring everybody back, deliver everything, and compare."""
        for _ in self.replicas:
            self.come_back()
        for _ in range(ROUNDS):
            self.messages = [ReplicaMessage(one.index, self.controller) for one in self.replicas]
            self.messages += [
                ReplicaMessage(one.known.leader, one.fetch())
                for one in self.replicas
                if not one.leads and one.known.leader >= 0
            ]
            while self.messages:
                self.deliver()
                self.check()
        leader = self.replicas[self.controller.leader]
        expected = list(leader.batches())
        for replica in self.replicas:
            if list(replica.batches()) != expected:
                raise ReplicaAnomaly(f"replica {replica.index} is not the leader's equal")
            if replica.running.high_watermark != leader.running.log_end_offset:
                raise ReplicaAnomaly(f"replica {replica.index} did not hear of the high watermark")
            self.check_replay(replica)
        if missing := self.committed.keys() - {batch.base_offset for batch in expected}:
            raise ReplicaAnomaly(f"committed batches are gone: {sorted(missing)}")

    def check_replay(self, replica: Replica) -> None:
        """The producer state equals a replay of the batches from the first on."""
        directory = replica.root / f"replay-{replica.index}" / "orders-0"
        directory.mkdir(parents=True)
        content = b"".join(batch.bytes for batch in replica.batches())
        (directory / f"{0:020}.log").write_bytes(content)
        replayed = ProducerStateManager()
        log = _core.PartitionLog(str(directory), replayed, {})
        if _state(replayed) != _state(replica.producer_state):
            raise ReplicaAnomaly(
                f"replica {replica.index}: its producer state is not that of a replay"
            )
        if log.last_stable_offset != replica.running.last_stable_offset:
            raise ReplicaAnomaly(
                f"replica {replica.index}: its last stable offset is not that of a replay"
            )


def _state(producer_state: ProducerStateManager) -> tuple[object, ...]:
    return (
        sorted(producer_state.describe()),
        sorted(producer_state.last_batches()),
        producer_state.aborted_entries(),
        producer_state.first_unstable_offset(),
    )


def run(
    root: Path, seed: int, replicas: int, broken: frozenset[ReplicationRule] = frozenset()
) -> None:
    """Play one seed in an empty directory. Raises Anomaly."""
    ReplicaCluster(root, seed, replicas, broken).run()
