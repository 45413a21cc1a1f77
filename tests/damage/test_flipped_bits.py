"""P9 for a whole directory: one bit of one file is flipped while nobody runs, then a broker starts.

A real node on real files, without sockets. Damage in acknowledged data is found by the start or by
a reader there, and named by its file; no reader sees it. Any other place of the bit (an index, a
snapshot, a checkpoint) can be made from the logs, so it changes nothing. And no bit of one
partition changes another.

A few small files hold decisions of their own and, as in Apache Kafka, no checksum. Of those it is
promised that a start is refused with the file's name, or nothing is lost. The exception is a log
start that became another number: there the log begins, as far as it goes, and nothing else changes.

More: `FLIPS=20000 SEED=7 pytest tests/damage/test_flipped_bits.py`.
"""

import asyncio
import logging
import os
import random
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sim.disk import SimCatalog
from support.exploring import seed_of_run
from txn import _core
from txn.broker.committed_offsets import Committer
from txn.broker.metadata_log import NodeIdentity
from txn.broker.node import Node
from txn.config import BrokerSettings
from txn.coordinator.group.records import OffsetKey, OffsetValue
from txn.coordinator.transaction.states import TxnResult
from txn.errors import CorruptLogError, DirectoryError, StorageError, TxnError
from txn.identifiers import ProducerIdAndEpoch
from txn.inspect import segments
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.server.loop import eager
from txn.storage.base import BatchKind, PartitionLog
from txn.storage.checkpoints import LOG_STARTS, read_checkpoint
from txn.storage.directory import CLEAN, LOCK, META, DataDirectory
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog

pytestmark = pytest.mark.crash

FLIPS = int(os.environ.get("FLIPS", "400"))
SEED = seed_of_run(0)
SETTINGS = {
    "durability": "process",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 900_000
BASE_OFFSET_BYTES = 8
PARTITION_METADATA = "partition.metadata"
UNCHECKED = {PARTITION_METADATA, LOG_STARTS}
"""Files that hold decisions of their own and, as in Apache Kafka, no checksum."""

Place = tuple[str, int]
Batch = tuple[Any, ...]
"""A batch of `_core.decode_batches`: base and last offset, producer, kind, records."""


class StoppedClock:
    """A node's scheduler where nothing is ever due."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Any:
        class Never:
            def cancel(self) -> None:
                """It was not going to happen."""

        return Never()

    def spawn(self, work: Any) -> None:
        raise AssertionError("nothing waits for the disk here")

    async def in_worker(self, call: Callable[[], None]) -> None:
        call()

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        call(lambda: False)

    def sync_each(self, stores: Any, done: Callable[[Any], None]) -> None:
        for store in stores:
            store.sync()
        done({})


class OpenedNode(NamedTuple):
    """A node and where its logs are."""

    node: Node
    storage: NativeStorage


def opened(data: Path, *, was_clean: bool) -> OpenedNode:
    settings = BrokerSettings(SETTINGS)
    storage = NativeStorage.load(data, settings, was_clean=was_clean)
    node = Node.start(
        settings=settings,
        storage=storage,
        scheduler=StoppedClock(),
        catalog=SimCatalog(),
        identity=NodeIdentity(1, "bits", uuid.UUID(int=77)),
    )
    return OpenedNode(node, storage)


class LogContent(NamedTuple):
    """One partition as its readers and producers find it."""

    batches: Mapping[int, Batch]
    end: int
    last_stable_offset: int
    aborted: object
    producers: object


class BrokerState(NamedTuple):
    """All that a broker knows."""

    logs: Mapping[Place, LogContent]
    transactions: object
    offsets: object


def sound_batches(store: PartitionLog) -> dict[int, Batch]:
    """Every batch by its base offset, each read alone, but for those that are refused."""
    assert isinstance(store, NativeLog)
    found: dict[int, Batch] = {}
    offset = store.log_start_offset
    while offset < store.log_end_offset:
        try:
            (batch,) = _core.decode_batches(store.log.read(offset, 1))
        except _core.CorruptLogError:
            offset += 1
        else:
            found[batch[0]] = batch
            offset = batch[1] + 1
    return found


def refusals_of(node: Node) -> dict[Place, StorageError]:
    """The partitions that are not served, and why."""
    refusals = {}
    for name, partitions in node.partitions.items():
        for index in range(len(partitions)):
            try:
                partitions[index]
            except StorageError as error:
                refusals[name, index] = error
    return refusals


def state_of(node: Node) -> BrokerState:
    logs = {}
    for name, partitions in node.partitions.items():
        for store in partitions.opened():
            logs[name, store.index] = LogContent(
                sound_batches(store),
                store.log_end_offset,
                store.last_stable_offset,
                [entry[:3] for entry in store.producer_state.aborted_entries()],
                sorted(store.producer_state.describe()),
            )
    return BrokerState(
        logs,
        dict(node.transactions.transactions.items()),
        dict(node.groups.offsets.committed("group")),
    )


async def write_history(node: Node) -> None:
    """Committed, aborted and open transactions over two partitions, plain batches, offsets."""
    await node.controller.create_topic("orders", 2, {"internal.segment.bytes": "1000"})
    places = [("orders", 0), ("orders", 1)]
    for number in range(3):
        answer = await node.transactions.init_producer_id(f"pay-{number}", TIMEOUT_MS, None)
        producer = answer.producer
        for turn in range(4):
            write_transaction(node, f"pay-{number}", producer, places, f"{number}.{turn}")
            if number < 2 or turn < 3:
                outcome = TxnResult.COMMIT if turn % 2 else TxnResult.ABORT
                await node.transactions.end(f"pay-{number}", producer, outcome, bumps_epoch=False)
            offset = OffsetValue(turn, -1, "", NOW_MS)
            await node.groups.offsets.commit(
                Committer("group"),
                {OffsetKey("group", "orders", number % 2): offset},
                knows_group_not_found=True,
            )


def write_transaction(
    node: Node, transactional_id: str, producer: ProducerIdAndEpoch, places: list[Place], value: str
) -> None:
    eager.step(node.transactions.add_partitions(transactional_id, producer, places))
    for place in places:
        store = node.replicas.get(*place)
        assert store is not None
        store.append([(None, f"plain {value}".encode())], timestamp_ms=NOW_MS)
        identity = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)
        records = [(b"key", f"{value}.{each}".encode() * 3) for each in range(3)]
        store.append(records, timestamp_ms=NOW_MS, producer=identity)


@pytest.fixture(scope="module", params=["closed", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose logs are on the disk: closed, or killed behind a checkpoint."""
    kind = str(request.param)
    data = tmp_path_factory.mktemp(kind) / kind
    data.mkdir()
    node, storage = opened(data, was_clean=False)
    asyncio.run(write_history(node))
    for log in storage.past.recovery_points.logs().values():
        log.sync()
    node.partitions["orders"][1].delete_records(3)
    storage.upkeep.tick()
    if kind == "closed":
        node.close()
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()
    kept = tmp_path_factory.mktemp("left") / kind
    shutil.copytree(data, kept)
    return kept


@pytest.fixture(scope="module")
def sound(left: Path, tmp_path_factory: pytest.TempPathFactory) -> BrokerState:
    """The contents that are found there without damage."""
    data = tmp_path_factory.mktemp("sound") / "data"
    shutil.copytree(left, data)
    state = state_of(opened(data, was_clean=left.name == "closed").node)
    assert sum(len(log.batches) for log in state.logs.values()) > 60
    assert any(
        batch[4] == BatchKind.ABORT_MARKER for batch in state.logs["orders", 1].batches.values()
    )
    return state


def newest_batch_of(path: Path) -> int:
    """The position of the last batch of a log, beyond its end for any other file.

    Its base offset is under no checksum, as in Apache Kafka, and no batch behind contradicts it.
    """
    if path.suffix != ".log":
        return path.stat().st_size
    return [
        each.position for each in segments.walk(path) if isinstance(each, segments.SegmentBatch)
    ][-1]


def refused_by(path: Path, log: LogContent) -> Set[int]:
    """The batches a damaged segment may refuse: where a length is wrong, all that follow in it."""
    others = sorted(int(each.stem) for each in path.parent.glob("*.log"))
    start = int(path.stem)
    end = min((each for each in others if each > start), default=log.end)
    return {base for base in log.batches if start <= base < end}


class Flip(NamedTuple):
    """A bit and the outcome of a broker that met it."""

    path: Path
    position: int
    bit: int
    is_refused: bool
    """A partition was not served, or nothing was."""
    faults: list[str]


def flipped(left: Path, data: Path, sound: BrokerState, chance: random.Random) -> Flip:
    """Flip one bit somewhere, start, look at everything."""
    shutil.copytree(left, data)
    files = sorted(
        path
        for path in data.rglob("*")
        if path.is_file() and path.stat().st_size and path.name not in UNCHECKED
    )
    path = chance.choice(files)
    stored = bytearray(path.read_bytes())
    position, bit = chance.randrange(len(stored)), chance.randrange(8)
    if position - newest_batch_of(path) in range(BASE_OFFSET_BYTES):
        position += BASE_OFFSET_BYTES
    stored[position] ^= 1 << bit
    path.write_bytes(stored)
    try:
        node = opened(data, was_clean=left.name == "closed").node
    except (CorruptLogError, StorageError) as error:
        faults = faults_of_refusal(path, error)
        if path.parent.name.startswith("orders-"):
            faults.append(f"all was refused for one partition: {error}")
        return Flip(path, position, bit, is_refused=True, faults=faults)
    found, refusals = state_of(node), refusals_of(node)
    faults = differences(sound, found, path, refusals.keys())
    for refusal in refusals.values():
        faults += faults_of_refusal(path, refusal)
    shutil.rmtree(data)
    return Flip(path, position, bit, is_refused=bool(refusals), faults=faults)


def faults_of_refusal(path: Path, error: TxnError) -> list[str]:
    """Faults of the refusal of a partition, or of a start, for a flipped bit of a file."""
    is_named = str(path) in str(error) or path.parent.name in str(error)
    faults = [] if is_named else [f"it does not say where: {error}"]
    if path.suffix != ".log":
        faults.append(f"something was refused for what can be made anew: {error}")
    return faults


def differences(
    sound: BrokerState, found: BrokerState, path: Path, refused: Collection[Place] = ()
) -> list[str]:
    """Faults of a broker that started on damage in a file; some partitions it refuses."""
    faults = []
    unread = {topic for topic, _ in refused}  # of a coordinator's topic there is one partition
    transactions = {} if TRANSACTIONS_TOPIC in unread else sound.transactions
    offsets = {} if OFFSETS_TOPIC in unread else sound.offsets
    if found.transactions != transactions:
        faults.append(f"transactions: {found.transactions}, not {transactions}")
    if found.offsets != offsets:
        faults.append(f"offsets: {found.offsets}, not {offsets}")
    for place, log in sound.logs.items():
        if place in refused:
            continue
        here = found.logs[place]
        is_damaged = path.suffix == ".log" and path.parent.name == f"{place[0]}-{place[1]}"
        missing = log.batches.keys() - here.batches.keys()
        wrong = {each for each in here.batches if here.batches[each] != log.batches.get(each)}
        if wrong or missing - (refused_by(path, log) if is_damaged else set()):
            faults.append(f"{place}: {sorted(missing)} are missing, {sorted(wrong)} are wrong")
        if here[1:] != log[1:]:
            faults.append(f"{place}: {here[1:]}, not {log[1:]}")
    return faults


def test_P9_no_flipped_bit_of_a_directory_is_served_or_costs_anything_else(
    left: Path, sound: BrokerState, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    flips = [flipped(left, tmp_path / f"{n}", sound, chance) for n in range(FLIPS)]
    assert not (faulty := [flip for flip in flips if flip.faults]), f"{len(faulty)}: {faulty[0]}"
    assert any(flip.path.suffix == ".log" for flip in flips)
    assert any(flip.is_refused for flip in flips)
    assert any(not flip.is_refused and flip.path.suffix == ".snapshot" for flip in flips)


# ---------------------------------------------------------------- small files without a checksum


def flip_of(path: Path, bit: int) -> bytes:
    """Flip a bit of a file, counted from its start; return its former value."""
    stored = path.read_bytes()
    damaged = bytearray(stored)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    return stored


def bits_of(path: Path, chance: random.Random) -> list[int]:
    """Some bits of a file, or all if more are asked for than usual."""
    count = path.stat().st_size * 8
    return chance.sample(range(count), min(count, FLIPS // 8))


def copy_of(left: Path, to: Path) -> Path:
    return Path(shutil.copytree(left, to, dirs_exist_ok=True))


def test_P9_a_flipped_bit_of_a_partition_metadata_is_named_and_changes_nothing(
    left: Path, sound: BrokerState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path("orders-1", PARTITION_METADATA)
    outcomes = set()
    for bit in bits_of(left / file, random.Random(SEED)):
        data = copy_of(left, tmp_path / f"{bit}")
        flip_of(data / file, bit)
        caplog.clear()
        node = opened(data, was_clean=left.name == "closed").node
        found, refusals = state_of(node), refusals_of(node)
        assert not differences(sound, found, data / file, refusals.keys())
        if refusals:
            assert refusals.keys() == {("orders", 1)}
            assert str(data / file) in str(refusals["orders", 1])
            outcomes.add("refused")
        else:
            assert found == sound
            is_id_lost = "partition.metadata_ignored" in caplog.text
            outcomes.add("ignored" if is_id_lost else "of no meaning")
        shutil.rmtree(data)
    # Of the file only the id is read: not its version, nor a line's end behind it.
    assert outcomes == {"refused", "ignored", "of no meaning"}


def test_P9_a_flipped_bit_of_the_log_starts_costs_no_record_behind_the_start_it_names(
    left: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bare = copy_of(left, tmp_path / "bare")
    (bare / LOG_STARTS).unlink()
    whole = state_of(opened(bare, was_clean=left.name == "closed").node)
    faults, ignored = {}, 0
    for bit in bits_of(left / LOG_STARTS, random.Random(SEED)):
        data = copy_of(left, tmp_path / f"{bit}")
        flip_of(data / LOG_STARTS, bit)
        caplog.clear()
        starts = read_checkpoint(data / LOG_STARTS)
        ignored += "checkpoint.ignored" in caplog.text
        found = state_of(opened(data, was_clean=left.name == "closed").node)
        if lost := lost_behind(starts, whole, found):
            faults[bit] = lost
        shutil.rmtree(data)
    assert not faults
    assert ignored > 0


def lost_behind(starts: Mapping[Place, int], whole: BrokerState, found: BrokerState) -> list[str]:
    """Differences from a directory where nothing was deleted, behind the starts of the logs."""
    faults = []
    for place, log in whole.logs.items():
        start = starts.get(place, 0)
        start = start if start <= log.end else 0
        wanted = {base: batch for base, batch in log.batches.items() if batch[1] >= start}
        if found.logs[place].batches != wanted or found.logs[place].end != log.end:
            faults.append(f"{place} from {start} on: {sorted(found.logs[place].batches)}")
    if found[1:] != whole[1:]:
        faults.append(f"coordinators: {found[1:]}, not {whole[1:]}")
    return faults


@pytest.mark.parametrize("name", [META, LOCK, CLEAN])
def test_P9_a_flipped_bit_of_a_directory_s_own_files_is_named_or_costs_no_record(
    tmp_path: Path, name: str
) -> None:
    """A node or a cluster may get another name; a directory left in order stays one."""
    data = tmp_path / "data"
    directory = DataDirectory.open(data)
    directory.note_boot()
    directory.mark_clean()
    directory.release()
    kept = copy_of(data, tmp_path / "kept")
    unnamed, node_ids = [], set()
    for bit in range((kept / name).stat().st_size * 8):
        copy_of(kept, data)
        flip_of(data / name, bit)
        try:
            found = DataDirectory.open(data)
        except DirectoryError as error:
            if str(data / name) not in str(error):
                unnamed.append((bit, error))
        else:
            found.release()
            node_ids.add(found.node_id)
            assert found.was_clean
            assert not found.power_failed
    assert not unnamed
    assert directory.node_id in node_ids
