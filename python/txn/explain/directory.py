"""Facts from the files of a stopped broker, txn's or Apache Kafka's. Nothing is written.

    __transaction_state      the newest record of each id, and those before it
    .snapshot, then .log     producers of a partition, and their open transactions

A broker may be using the files. The result is then their present content, and the broker itself
can answer more.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Final

from txn.clock import now_ms
from txn.cluster.facts import (
    AtStart,
    LoggedBatch,
    OpenTransaction,
    Owner,
    PartitionOffsets,
    StateRecord,
    state_record,
)
from txn.cluster.fetched import logged, records_in
from txn.coordinator.transaction.records import decode_key
from txn.coordinator.transaction.states import LastOffset, Txn, UnsyncedMarker
from txn.coordinator.transaction.unsynced import is_ended_by, is_in_log, is_to_decide
from txn.errors import CorruptLogError, DirectoryError
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.inspect import segments, texts
from txn.inspect.files import read_named, read_text
from txn.inspect.layout import (
    METADATA_TOPIC,
    PartitionFiles,
    StopState,
    list_partition,
    partition_of,
    partitions_in,
    state_of,
)
from txn.inspect.metadata_log import read_metadata
from txn.inspect.open_transactions import was_left_in_another_boot
from txn.metadata.image import TRANSACTIONS_TOPIC, Image
from txn.partition import ProducerStateManager, ReplayedBatch
from txn.storage.checkpoints import LOG_STARTS
from txn.storage.directory import META, read_identity

READ_BYTES: Final = 1 << 23


class DirectorySource:
    """A data directory as a `facts.FactSource`.

    Raises:
        DirectoryError: it is no data directory.
    """

    is_running = False

    def __init__(self, root: Path, *, clock: Callable[[], int] = now_ms) -> None:
        if not root.is_dir() or not (root / META).exists():
            raise DirectoryError(
                f"{root} is no data directory: it has no {META}. Give the directory that "
                "`txn serve --data` or `log.dirs` names",
                path=str(root),
            )
        self.options = f"--data {quote(str(root))}"
        self.state: StopState = state_of(root)
        self._clock = clock
        self._root = root
        self.left_out: dict[TopicPartition, str] = {}
        self._replayed: dict[TopicPartition, Replayed] = {}
        self._damaged: set[int] = set()
        """Partitions of `__transaction_state`."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by this machine."""
        return self._clock()

    @cached_property
    def _directories(self) -> dict[TopicPartition, Path]:
        directories = {partition_of(path): path for path in partitions_in(self._root)}
        return {partition: path for partition, path in directories.items() if partition is not None}

    def topics(self) -> Mapping[str, Sequence[int]]:
        """Topic → its partitions on this node, internal topics too."""
        topics: dict[str, list[int]] = {}
        for topic, index in sorted({*self._directories, *self._placed()}):
            topics.setdefault(topic, []).append(index)
        return topics

    def _placed(self) -> Iterator[TopicPartition]:
        """The partitions that the metadata has on this node; one without records has no files."""
        try:
            node_id, *_ = read_identity(self._root / META)
        except DirectoryError:  # damaged: a start will report it
            return
        for topic in self._image.topics.values():
            for index, placement in topic.placements.items():
                if node_id in placement.replicas:
                    yield topic.name, index

    # ------------------------------------------------------------ partitions

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Where logs begin and end, as the next start will find them."""
        return {partition: self._replay(partition).ends for partition in sorted(partitions)}

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Open transactions of partitions, by partition and first offset.

        Damaged partitions are left out, and named in `left_out`.
        """
        for partition in partitions:
            try:
                self._replay(partition)
            except CorruptLogError as error:
                self.left_out[partition] = error.message
        opened = [
            OpenTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp_ms if producer.last_timestamp_ms >= 0 else None,
                producer.coordinator_epoch,
            )
            for partition in partitions
            if partition not in self.left_out
            for producer in self._replay(partition).producer_state.describe()
            if producer.current_txn_start_offset >= 0
        ]
        return sorted(opened, key=lambda held: (held.partition, held.first_offset))

    def refused(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """None: files have no access control."""
        return {}

    def batches(self, partition: TopicPartition, first_offset: int) -> Iterator[LoggedBatch]:
        """The batches of a log from the one with an offset on; control batches too."""
        for _, each in self._batches(partition, first_offset):
            yield each

    def records(
        self, partition: TopicPartition, first_offset: int
    ) -> Iterator[tuple[LoggedBatch, Sequence[segments.SegmentRecord]]]:
        """The batches of a log from the one with an offset on, with their records."""
        for path, each in self._batches(partition, first_offset):
            yield each, records_in(path, each.batch)

    def _batches(
        self, partition: TopicPartition, first_offset: int
    ) -> Iterator[tuple[Path, LoggedBatch]]:
        if partition not in self._directories:
            return
        files = list_partition(self._directories[partition])
        for base_offset in _segments_from(files, first_offset):
            path = files.file(base_offset, ".log")
            for batch in segments.walk(path):
                if isinstance(batch, segments.Damage) or batch.fault:
                    if self._is_torn_tail(files, base_offset, batch):
                        return
                    raise _damaged(path)
                if batch.last_offset >= first_offset:
                    yield path, logged(path, batch)

    def _is_torn_tail(
        self,
        files: PartitionFiles,
        base_offset: int,
        bad: segments.SegmentBatch | segments.Damage,
    ) -> bool:
        """Return True if bad bytes of a segment are a write that was cut short at the log's end."""
        if self.state is StopState.CLEAN or base_offset != files.segments[-1]:
            return False
        end = bad.end if isinstance(bad, segments.Damage) else bad.position + bad.size_bytes
        return end >= files.file(base_offset, ".log").stat().st_size

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset of a batch with a record at least as young as a time."""
        for each in self.batches(partition, 0):
            if each.batch.max_timestamp_ms >= timestamp_ms:
                return each.batch.base_offset
        return None

    def _replay(self, partition: TopicPartition) -> "Replayed":
        if partition not in self._replayed:
            log_starts: Mapping[TopicPartition, int] = {}
            with suppress(FileNotFoundError, ValueError):  # `txn log verify` finds fault with it
                log_starts = texts.read_checkpoint(read_text(self._root / LOG_STARTS))
            directory = self._directories.get(partition)
            files = None if directory is None else list_partition(directory)
            self._replayed[partition] = Replayed(
                files, log_starts.get(partition, 0), may_be_torn=self.state is not StopState.CLEAN
            )
        return self._replayed[partition]

    # ------------------------------------------------------------ after a power failure

    def at_start(self, held: OpenTransaction) -> AtStart | None:
        """Return how the next start ends a transaction if a power failure removed a trace of it."""
        if not self._has_lost_power:
            return None
        for transactional_id in self._histories:
            txn = self._newest(transactional_id)
            if txn is None or self.unread(transactional_id):
                continue
            is_prepared = txn.producer_id == held.producer_id and held.partition in txn.partitions
            if is_prepared and is_to_decide(txn) and self._has_lost_records(txn):
                return AtStart.ABORTED
            for marker in txn.unsynced_markers:
                producer = ProducerIdAndEpoch(held.producer_id, held.producer_epoch)
                is_here = self._place_of(marker) == held.partition
                if is_here and is_ended_by(marker, producer, held.first_offset):
                    return AtStart.COMMITTED_AGAIN if marker.is_commit else AtStart.ABORTED_AGAIN
        return None

    @cached_property
    def _has_lost_power(self) -> bool:
        """Return True if the next start counts as one after a power failure."""
        return self.state is StopState.LEFT and was_left_in_another_boot(self._root)

    def _has_lost_records(self, prepare: Txn) -> bool:
        """Return True if a partition that can be read lacks records that a Prepare names."""
        for last in prepare.last_offsets:
            place = self._place_of(last)
            if place is None:  # its topic was deleted
                continue
            with suppress(CorruptLogError):
                if not is_in_log(last, self._log(place)):
                    return True
        return False

    def _log(self, place: TopicPartition) -> "_Log":
        if place not in self._directories:  # power took all of it
            return _Log(PartitionOffsets(0, 0, 0), [])
        epochs: list[tuple[int, int]] = []
        with suppress(FileNotFoundError, ValueError):
            path = self._directories[place] / "leader-epoch-checkpoint"
            epochs = texts.read_leader_epochs(read_text(path))
        # A start adds the epochs of batches that the file does not know.
        for each in self.batches(place, epochs[-1][1] if epochs else 0):
            if not epochs or each.batch.leader_epoch > epochs[-1][0]:
                epochs.append((each.batch.leader_epoch, each.batch.base_offset))
        return _Log(self._replay(place).ends, epochs)

    def _place_of(self, named: LastOffset | UnsyncedMarker) -> TopicPartition | None:
        """A named partition; None if its topic is unknown."""
        topic = self._topic_names.get(uuid.UUID(bytes=named.topic_id))
        return None if topic is None else (topic, named.partition)

    @cached_property
    def _topic_names(self) -> Mapping[uuid.UUID, str]:
        return self._image.names

    @cached_property
    def _image(self) -> Image:
        return read_metadata(self._root / f"{METADATA_TOPIC}-0")

    # ------------------------------------------------------------ transactional ids

    def owners(self, producer_ids: Collection[int] | None = None) -> list[Owner]:
        """The transactional ids that use some producer ids; None: all of them."""
        owners = (self.owner(transactional_id) for transactional_id in sorted(self._histories))
        return [
            owner
            for owner in owners
            if owner is not None and (producer_ids is None or owner.producer_id in producer_ids)
        ]

    def transactional_ids(self) -> list[str]:
        """All transactional ids, sorted."""
        return sorted(self._histories)

    def owner(self, transactional_id: str) -> Owner | None:
        """One transactional id, None if it is not known."""
        txn = self._newest(transactional_id)
        if txn is None:
            return None
        return Owner(
            transactional_id,
            txn.state,
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
            txn.start_ms if txn.start_ms >= 0 else None,
            txn.partitions,
            txn.updated_ms,
        )

    def _newest(self, transactional_id: str) -> Txn | None:
        history = self._histories.get(transactional_id)
        return history[-1].txn if history else None

    def history(self, transactional_id: str) -> list[StateRecord]:
        """Records of an id that `__transaction_state` still has, oldest first."""
        return self._histories.get(transactional_id, [])

    def histories(
        self, transactional_ids: Collection[str], offsets_max: int | None = None
    ) -> dict[str, list[StateRecord]]:
        """The history of each id; all of it, as the files are read once."""
        return {each: self.history(each) for each in transactional_ids}

    def unread(self, transactional_id: str | None = None) -> list[str]:
        """The partitions of `__transaction_state` that are damaged; of an id: its own, if it is."""
        histories = self._histories  # by reading them damage is found
        damaged = self._damaged
        if transactional_id is not None:
            its_own = {record.partition for record in histories.get(transactional_id, ())}
            damaged = damaged & its_own
        return [f"{TRANSACTIONS_TOPIC}-{index}" for index in sorted(damaged)]

    @cached_property
    def _histories(self) -> dict[str, list[StateRecord]]:
        histories: dict[str, list[StateRecord]] = {}
        for (topic, index), directory in self._directories.items():
            if topic != TRANSACTIONS_TOPIC:
                continue
            files = list_partition(directory)
            for base_offset in files.segments:
                path = files.file(base_offset, ".log")
                for batch in segments.walk(path):
                    if isinstance(batch, segments.Damage) or batch.fault:
                        if not self._is_torn_tail(files, base_offset, batch):
                            self._damaged.add(index)
                            self.left_out[topic, index] = _damaged(path).message
                        continue
                    if batch.is_control:
                        continue
                    for record in records_in(path, batch):
                        transactional_id = _key_of(record)
                        if transactional_id is not None:
                            decoded = state_record(index, record)
                            histories.setdefault(transactional_id, []).append(decoded)
        return histories


class _Log:
    """A log as `is_in_log` looks at it.

    Args:
        ends: Where it begins and ends.
        epochs: Its leader epochs and their first offsets, both growing.
    """

    def __init__(self, ends: PartitionOffsets, epochs: Sequence[tuple[int, int]]) -> None:
        self.log_start_offset, self.log_end_offset = ends.log_start_offset, ends.end_offset
        self._epochs = epochs

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was written; -1 if none is known."""
        return max((epoch for epoch, first in self._epochs if first <= offset), default=-1)


class Replayed:
    """The rules of a partition, fed with its files as a start would; done when it is made.

    Attributes:
        producer_state: Producers and transactions by the records of the log.
        ends: Where the log begins and ends.

    Raises:
        CorruptLogError: the log is damaged, and not only by a write that was cut short where that
            may be.
    """

    def __init__(
        self, files: PartitionFiles | None, log_start_offset: int, *, may_be_torn: bool
    ) -> None:
        self.producer_state = ProducerStateManager()
        self._may_be_torn = may_be_torn
        if files is None or not files.segments:
            self.ends = PartitionOffsets(0, 0, 0)
            return
        newest = files.segments[-1]
        end_offset = self._read(files, newest, lambda _batches: None)
        start = self._restore(files, end_offset)
        for base_offset in _segments_from(files, start):
            if start < end_offset:
                self._read(files, base_offset, lambda batches: self._feed(files, batches, start))
        unstable = self.producer_state.first_unstable_offset()
        # A start beyond the end is a damaged checkpoint, which `txn log verify` finds.
        is_start = files.segments[0] < log_start_offset <= end_offset
        self.ends = PartitionOffsets(
            log_start_offset if is_start else files.segments[0],
            unstable if unstable >= 0 else end_offset,
            end_offset,
        )

    def _restore(self, files: PartitionFiles, end_offset: int) -> int:
        """Load the newest snapshot that can be read; return from where on to replay."""
        for offset in reversed(files.snapshots):
            if files.segments[0] <= offset <= end_offset:
                with suppress(ValueError):
                    self.producer_state.restore(read_named(files, offset, ".snapshot"), ())
                    return offset
        return files.segments[0]

    def _feed(self, files: PartitionFiles, batches: Sequence[ReplayedBatch], start: int) -> None:
        try:
            self.producer_state.replay([batch for batch in batches if batch[0] >= start])
        except AssertionError as error:
            raise _damaged(files.directory) from error

    def _read(
        self,
        files: PartitionFiles,
        base_offset: int,
        take: Callable[[Sequence[ReplayedBatch]], object],
    ) -> int:
        """Read a segment from end to end; return the offset after its last sound batch."""
        path = files.file(base_offset, ".log")
        check = segments.check(path, base_offset, b"", b"", is_deep=False)
        is_done = False
        while not is_done:
            take(check.advance(READ_BYTES))
            is_done = check.position == check.end
        if check.is_damaged:
            _, _, end, is_like_torn, _ = check.faults[0]
            is_tail = base_offset == files.segments[-1] and end == check.end and is_like_torn
            if not (is_tail and self._may_be_torn):
                raise _damaged(path)
        return check.next_offset


def _damaged(path: Path) -> CorruptLogError:
    return CorruptLogError(f"{path} is damaged. Run `txn log verify` on it", path=str(path))


def _segments_from(files: PartitionFiles, offset: int) -> list[int]:
    """The segments with an offset or anything behind it."""
    following = zip(files.segments, files.segments[1:], strict=False)
    return [*(base for base, end in following if end > offset), *files.segments[-1:]]


def _key_of(record: segments.SegmentRecord) -> str | None:
    try:
        return decode_key(record.key or b"")
    except ValueError as error:
        raise CorruptLogError(
            f"{TRANSACTIONS_TOPIC} holds a key at offset {record.offset} that cannot be read: "
            f"{error}. Run `txn log verify` on the directory"
        ) from error
