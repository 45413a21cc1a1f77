"""The transaction coordinator: carries out the decisions of `coordinator.transaction.decide`.

    decide ──► append to `__transaction_state` ──► apply ──► markers ──► Complete

Every request for a transactional id is a generator of operations that a shard runs
(`broker.runtime`). While one waits for the disk, the next waits for it. A commit waits for its data
and its Prepare together; `coordinator.transaction.ending` takes over at the Prepare.
With `durability=process` nothing waits and all of it is one step, but for many partitions.

The state behind an answer to a two-phase producer (KIP-939) is on the disk before the answer
leaves, as all state is with `durability=always`. Any answer may be the last before another system
decides, and from then on only that decision may end the transaction.

A Prepare is always finished: at once, by a retry every `RETRY_MS` while a disk refuses, or
at the next start. A topic that was deleted meanwhile needs no marker. Between many partitions a
request gives way to others, as while it waits. A transaction over very many writes no marker to
those that nothing ever touched. A late batch there makes the log, finds no expectation and has to
ask. Producer ids and epochs are on the disk before they are given out, lest a power failure lets
them be given out twice (P7).

Where this differs from Kafka: an operator's marker (WriteTxnMarkers) in the midst of a
transaction that is open here aborts all of it. Once the transaction is decided, the marker is
refused. Kafka writes the one marker, and the transaction is torn (P3).

Sources: KIP-98, KIP-664, KIP-890, KIP-939; the answers of Kafka's transaction coordinator.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from txn.broker.hanging_transactions import HangingTransactions, tell_left_open
from txn.broker.host import RETRY_MS, Durability, HangUpError, Host, Timer
from txn.broker.last_clients import LastClients
from txn.broker.lost_cache import require_cache
from txn.broker.lost_logs import refuse_lost_logs
from txn.broker.marker_sender import MarkerSender, to_be_retried
from txn.broker.producer_id_manager import NoProducerIdError, ProducerIdManager
from txn.broker.runtime import Shard, ShardPhase
from txn.coordinator.lost_logs import CompletedCommits
from txn.coordinator.operations import (
    COMMITTED,
    GIVE_WAY,
    Committed,
    Request,
    Synced,
    in_parts,
)
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.connections import CLOSE_MS, ConnectionUse, LatestConnections
from txn.coordinator.transaction.decide import (
    TV1,
    TV2,
    AbortFirst,
    Done,
    End,
    Refuse,
    Write,
    decide_add,
    decide_after_power_failure,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    decide_undo,
    decide_verify,
    plan,
)
from txn.coordinator.transaction.ending import Ending, Marked, Steps, decide, finish
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    Owner,
    fault_of,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.records import (
    TRANSACTIONAL_ID_BYTES_MAX,
    TxnRecord,
    decode_record,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import (
    AT_REST,
    NO_TIMEOUT_MS,
    NOBODY,
    PREPARED,
    LastOffset,
    ProducerIdAndEpoch,
    TopicPartition,
    Txn,
    TxnResult,
    TxnState,
    UnsyncedMarker,
    is_move,
)
from txn.coordinator.transaction.store import TxnStore
from txn.coordinator.transaction.unsynced import (
    LAST_OFFSETS_MAX,
    UNSYNCED_MARKERS_MAX,
    carried,
    is_ended_by,
    is_there,
    is_to_decide,
)
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.security.sessions import Peer
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition, java_hash

EXPIRY_INTERVAL: Final = "transaction.remove.expired.transaction.cleanup.interval.ms"

# Asked for several times in each transaction. By its class, a member takes CPython 3.11 0.1 us.
_ALWAYS: Final = Durability.ALWAYS
_COMMIT: Final = Durability.COMMIT
_PROCESS: Final = Durability.PROCESS
_NONE: Final = ErrorCode.NONE
_EMPTY: Final = TxnState.EMPTY
_ONGOING: Final = TxnState.ONGOING
_PREPARE_COMMIT: Final = TxnState.PREPARE_COMMIT
_TO_COMMIT: Final = TxnResult.COMMIT
_UNKNOWN_TOPIC_OR_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

_AS_OF_A_BATCH: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Codes that mean something else to the sender of a batch."""

LOOKED_AT_PER_TURN: Final = 2_000
"""Partitions of one turn that are looked at."""

ALLOWED_PER_TURN: Final = 200
"""Partitions of one turn that are opened, or told what to let in."""

MARKERS_PER_TURN: Final = 8
"""Markers of one turn. One that is the first record of its log has a turn of its own if they are
many: it makes files, which takes milliseconds."""

UNTOUCHED_MARKED_MAX: Final = 100
"""Partitions of a transaction that get their markers though nothing touched them, as in Kafka."""

RECORDS_PER_BATCH: Final = 1_000
"""Ids that one append forgets, or fences after a power failure."""


class InitProducerIdResult(NamedTuple):
    """The producer id and epoch to use from now on; none with an error code.

    `ongoing` is the identity of a transaction that was kept open for it (KIP-939).
    """

    producer: ProducerIdAndEpoch
    code: ErrorCode = ErrorCode.NONE
    ongoing: ProducerIdAndEpoch = NOBODY


class _Found(NamedTuple):
    """The state of a partition at a start, before the start wrote a marker to it."""

    log_end_offset: int
    open_transactions: list[OpenTransaction]


@dataclass(slots=True)
class Volatile:
    """The state of one transactional id that is in memory alone; a start begins without it.

    Attributes:
        begun_ms: When its open transaction began, on the monotonic clock.
        due_ms: When its timer rings, on that clock.
        timer: Looks whether the transaction is past its time, or can be decided on.
        following_timeout_ms: Asked for by the client of a transaction that is kept and has more.
        ending: The end under way.
        given_up: Its commit was aborted here; it is told so again if the answer was lost.
    """

    begun_ms: int = 0
    due_ms: int = 0
    timer: Timer | None = None
    following_timeout_ms: int | None = None
    ending: Ending | None = None
    given_up: ProducerIdAndEpoch | None = None

    @property
    def is_void(self) -> bool:
        """True if nothing of it is needed while the id is at rest."""
        return self.timer is None and self.given_up is None


class TxnShardState:
    """The state of a shard: the fold of its log, and the state in memory alone.

    Attributes:
        transactions: The fold.
        volatile: The state in memory of each id that is not at rest.
        undecided: Ids with a prepared commit of which a start cannot read all records.
        withheld: Ids of which a marker may be gone from a partition that cannot be opened; the
            next start looks again.
        written_again: Markers that a start wrote again for an id in a Prepare; its Complete
            carries them.
    """

    __slots__ = ("transactions", "undecided", "volatile", "withheld", "written_again")

    def __init__(self) -> None:
        self.transactions = TxnStore()
        self.volatile: dict[str, Volatile] = {}
        self.undecided: set[str] = set()
        self.withheld: set[str] = set()
        self.written_again: dict[str, tuple[UnsyncedMarker, ...]] = {}

    def is_left(self, transactional_id: str) -> bool:
        """Say whether a start ends nothing of an id, since a partition cannot be read."""
        return transactional_id in self.undecided or transactional_id in self.withheld

    def emptied(self) -> "TxnShardState":
        """The fold of no record. It keeps the findings of the start, which no log has."""
        empty = TxnShardState()
        empty.undecided, empty.withheld = self.undecided, self.withheld
        empty.written_again = self.written_again
        return empty


TxnShard = Shard[TxnShardState, TxnRecord]


class TransactionalIds:
    """The transactional ids of every shard."""

    def __init__(self, shard_of: Callable[[str], TxnShard | None]) -> None:
        self.shards: list[TxnShard] = []
        self.shard_of = shard_of

    def get(self, transactional_id: str) -> Txn | None:
        """The state of an id; None if it is unknown."""
        shard = self.shard_of(transactional_id)
        return None if shard is None else shard.state.transactions.get(transactional_id)

    def decoded(self) -> list[tuple[str, Txn]]:
        """The ids in use lately, every open transaction among them."""
        return [each for shard in self.shards for each in shard.state.transactions.decoded()]

    def items(self) -> Iterator[tuple[str, Txn]]:
        """All ids. Cost: those at rest for long are decoded."""
        for shard in self.shards:
            yield from shard.state.transactions.items()

    def __len__(self) -> int:
        return sum(len(shard.state.transactions) for shard in self.shards)


def _refused(code: ErrorCode) -> InitProducerIdResult:
    return InitProducerIdResult(NOBODY, code)


class TransactionCoordinator:
    """Every transactional id of this broker."""

    def __init__(self, host: Host, markers: MarkerSender) -> None:
        """Make a coordinator that is loading.

        Args:
            host: The broker.
            markers: Sends the markers of its transactions.
        """
        self.transactions = TransactionalIds(self.shard_of)
        self.clients = LastClients(host.now_ms)
        self.has_partition, self.partition_count = host.has_partition, host.partition_count
        self._markers = markers
        self._host = host
        self._is_loading = True
        self._completed: CompletedCommits | None = None
        """The commits that a start reads."""
        self._hanging = HangingTransactions(host, markers)
        self._producer_ids = ProducerIdManager(host)
        self._is_behind = False
        """True after a power failure while an unreadable partition may hold more state."""
        self._connections = LatestConnections()

    # ------------------------------------------------------------ requests

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        is_two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitProducerIdResult:
        """Give a starting producer its id and epoch; fence the one before it.

        Args:
            transactional_id: None for a producer that is idempotent alone.
            timeout_ms: How long its transactions may stay open.
            expected: The identity that it holds and wants to go on from (KIP-360), or None.
            is_two_phase: Another system decides on its transactions, which never time out.
            keep_prepared: Leave a transaction that is open as it is (KIP-939).
        """
        if transactional_id is None:
            return await self._new_producer()
        if (refusal := self.refusal(transactional_id)) is not ErrorCode.NONE:
            return _refused(refusal)
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            return _refused(ErrorCode.INVALID_REQUEST)
        if is_two_phase:
            if not self._host.setting("transaction.two.phase.commit.enable"):
                return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._host.setting("transaction.max.timeout.ms"):
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if not self.transactions.shards:
            try:
                await self._host.create_coordinator_topic(TRANSACTIONS_TOPIC)
            except StorageError:
                return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._make_shards()
        shard = self._shard_with(transactional_id)
        while shard.refusal is ErrorCode.NONE:
            request = self._initialize(shard, transactional_id, timeout_ms, expected, keep_prepared)
            identity = await shard.run(transactional_id, request, _refused)
            if identity is not None:
                return identity
            if not await self._producer_ids.ready():
                return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _refused(shard.refusal)  # it was unloaded meanwhile

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        *,
        client_version: int = TV1,
    ) -> ErrorCode:
        """Join partitions, all of which exist, to a transaction."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self._serving(transactional_id)
        if not isinstance(shard, Shard):
            return shard
        request = self._add(shard, transactional_id, producer, partitions, client_version)
        return await shard.run(transactional_id, request, _the_code)

    async def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask which partitions, all of which exist, are in a transaction; changes nothing."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        shard = self._serving(transactional_id)
        if not isinstance(shard, Shard):
            return dict.fromkeys(partitions, shard)
        return await shard.run(
            transactional_id,
            self._verify_all(shard, transactional_id, producer, partitions),
            lambda code: dict.fromkeys(partitions, code),
        )

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Ask whether a batch may open a transaction on its partition.

        Under transaction version 2 the partitions join the producer's transaction, which
        begins if none is open; under version 1 they must have been added before.

        Returns:
            Kafka's error code for each partition, 0 where the batch may be stored.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        shard = self._serving(transactional_id)
        if not isinstance(shard, Shard):
            return dict.fromkeys(partitions, _as_of_a_batch(shard))
        return await shard.run(
            transactional_id,
            self._join(shard, transactional_id, producer, transaction_version, partitions),
            lambda code: dict.fromkeys(partitions, _as_of_a_batch(code)),
        )

    def is_joined(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """Say whether a batch may be appended to a partition in this very moment.

        For those who had to wait for `join`: the transaction may have ended since.
        """
        shard = self.shard_of(transactional_id)
        txn = None if shard is None else shard.state.transactions.get(transactional_id)
        return (
            shard is not None
            and txn is not None
            and txn.state is _ONGOING
            and txn.is_of(producer)
            and not txn.is_prepared
            and partition in txn.partitions
            and not shard.is_held(transactional_id)
        )

    def forces_answers_of(self, transactional_id: str) -> bool:
        """Say whether answers to the client of an id wait until their state is on the disk.

        True where a shard does not tell: its coordinator may have promised that.
        """
        shard = self.shard_of(transactional_id)
        if shard is None:
            return False
        if shard.phase is not ShardPhase.ACTIVE:
            return self._host.durability is not Durability.PROCESS
        txn = shard.state.transactions.get(transactional_id)
        return txn is not None and self._forces_answers_of(txn)

    async def hang_up_if_late(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: Peer,
        use: ConnectionUse,
    ) -> None:
        """Give no answer to a request of a TV1 client that is late: the client has left.

        Asked once for each such request, in the order they come. See
        `coordinator.transaction.connections`. Waits for `CLOSE_MS` where the close of the
        connection may be under way.

        Raises:
            HangUpError: it did.
        """
        shard = self.shard_of(transactional_id)
        txn = None if shard is None else shard.state.transactions.get(transactional_id)
        if txn is None or not txn.is_of(producer):
            return
        connections, connection = self._connections, client.connection
        if not connections.may_be_late(transactional_id, use, producer, connection):
            return
        if connections.is_doubtful(transactional_id, use, connection) and not client.has_left():
            await self._pause(CLOSE_MS)
        if client.has_left():
            raise HangUpError(
                f"the producer of {transactional_id} has closed this connection to {use.value}; "
                f"this request may belong to an earlier transaction"
            )
        connections.note(transactional_id, use, producer, connection)

    def announce_offsets(self, transactional_id: str) -> None:
        """A TV1 client is told that it may send offsets; see `hang_up_if_late`."""
        self._connections.announce_offsets(transactional_id)

    async def _pause(self, pause_ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host.call_at(self._host.monotonic_ms() + pause_ms, partial(_end_pause, over))
        await over

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        *,
        bumps_epoch: bool,
    ) -> InitProducerIdResult:
        """End a transaction; return the identity that the producer has to use from now on.

        Args:
            transactional_id: Whose transaction.
            producer: The identity in the request.
            outcome: Commit or abort.
            bumps_epoch: EndTxn v5 (TV2); else the producer keeps its epoch.
        """
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        while True:
            shard = self._serving(transactional_id)
            if not isinstance(shard, Shard):
                return _refused(shard)
            request = self._end(shard, transactional_id, producer, outcome, bumps_epoch)
            identity = await shard.run(transactional_id, request, _refused)
            if identity is not None:
                return identity
            if not await self._producer_ids.ready():
                return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @property
    def failed_count(self) -> int:
        """Number of partitions of the coordinator that could not be read."""
        return len(self._unread())

    def refusal(self, transactional_id: str) -> ErrorCode:
        """Why nothing of an id is served: its shard loads, or could not be read; or NONE."""
        if self._is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard = self.shard_of(transactional_id)
        if shard is None:
            return ErrorCode.NONE
        if shard.refusal is ErrorCode.NONE and transactional_id in shard.state.withheld:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return shard.refusal

    def _serving(self, transactional_id: str) -> "TxnShard | ErrorCode":
        """The shard that serves an id, or why nothing of the id is served."""
        shard = None if self._is_loading else self.shard_of(transactional_id)
        if shard is not None and shard.refusal is _NONE and not shard.state.withheld:
            return shard
        if (refusal := self.refusal(transactional_id)) is not ErrorCode.NONE:
            return refusal
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if shard is None else shard

    def find(self, criteria: Filter) -> Iterator[tuple[str, Txn] | None]:
        """Every transactional id that passes a filter, and None for each that does not.

        A caller that searches very many can give way to others at each None.
        """
        now_ms = self._host.now_ms()
        for transactional_id, txn in self.transactions.items():
            passes = criteria.passes(transactional_id, txn, now_ms)
            yield (transactional_id, txn) if passes else None

    async def write_marker(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """End a producer's open transaction on a partition, as an operator asks for it.

        Args:
            partition: Which exists.
            marker: The marker to write; its time is set here.
            must_bump: The transaction was of version 2, so its marker has a later epoch than
                its records.
        """
        owner = self._owner_of(partition, marker.producer_id)
        if owner is None:
            code = await self._end_unowned(partition, marker, must_bump=must_bump)
            owner = self._owner_of(partition, marker.producer_id) if code is None else None
            if owner is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is None else code
        shard = self._shard_with(owner)
        while True:
            request = self._abort_for(shard, owner, partition, marker)
            code = await shard.run(owner, request, _the_code)
            if code is not None:
                return code
            if not await self._producer_ids.ready():
                return ErrorCode.KAFKA_STORAGE_ERROR

    async def _end_unowned(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> ErrorCode | None:
        """End a transaction that no id explains; None: one does by now, or the topic is gone.

        A group may commit an offset behind records and marker, so both are synced, the records
        before readers can pass them.
        """
        producer_id, holder = marker.producer_id, object()
        store = None
        try:
            store = self._host.partition(*partition)
            if store is None:
                return None
            if self._host.durability is not _PROCESS:
                if store.block_txn(producer_id, holder) > store.synced_end:
                    await self._host.sync([store])
                if self._owner_of(partition, producer_id) is not None:
                    return None
            refusal = self._refusal_of_unowned(store, marker, must_bump=must_bump)
            if refusal is not ErrorCode.NONE:
                return refusal
            marker = marker._replace(timestamp_ms=self._host.now_ms())
            sent = self._markers.send([partition], marker)
            if partition in sent.refused:
                return _code_of(sent.refused[partition])
            if partition not in sent.offsets:
                return None
            if self._host.durability is not _PROCESS:
                await self._host.sync([store])
        except StorageError as error:
            return _code_of(error)
        finally:
            if store is not None:
                store.producer_state.unblock_txn(producer_id, holder)
        return ErrorCode.NONE

    def _refusal_of_unowned(
        self, store: PartitionLog, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """Why an operator may not end a transaction that no id explains. Raises StorageError."""
        is_unsure = any(
            shard.phase is not ShardPhase.ACTIVE or shard.state.withheld
            for shard in self.transactions.shards
        )
        if is_unsure and _is_open_at(store, marker.producer_id, 0):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # it may be another's, and decided
        if must_bump and _is_open_at(store, marker.producer_id, marker.producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        # No Prepare stands behind it: a power failure could make it an abort after readers saw it.
        if marker.is_commit and _is_open_at(store, marker.producer_id, 0):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when there is none. Raises StorageError."""
        return self._host.partition(topic, index)

    def has_topic(self, topic: str) -> bool:
        """Say whether a topic exists."""
        return self._host.topic_id(topic) is not None

    def is_untouched(self, topic: str, index: int) -> bool:
        """Say whether a partition holds nothing, so that there is no need to open it."""
        return self._host.is_untouched(topic, index)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that keeps a group."""
        count = len(self._host.coordinator_partitions(OFFSETS_TOPIC))
        return OFFSETS_TOPIC, coordinator_partition(group_id, count)

    # ------------------------------------------------------------ flows

    async def _new_producer(self) -> InitProducerIdResult:
        if not await self._producer_ids.ready():
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return InitProducerIdResult(ProducerIdAndEpoch(self._producer_ids.take(), 0))

    def _initialize(
        self,
        shard: TxnShard,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        keep_prepared: bool,
    ) -> Request[InitProducerIdResult | None]:
        """Decide on InitProducerId and write it; None: it waits for a producer id."""
        known = shard.state
        try:
            while True:
                txn = known.transactions.get(transactional_id)
                decision = decide_init(
                    txn,
                    expected,
                    timeout_ms=timeout_ms,
                    now_ms=self._host.now_ms(),
                    new_producer_id=self._producer_ids.take,
                    keep_prepared=keep_prepared,
                )
                if not isinstance(decision, AbortFirst):
                    break
                log.info(
                    "txn.fenced",
                    transactional_id=transactional_id,
                    producer_id=decision.end.prepare.producer_id,
                    producer_epoch=decision.end.prepare.producer_epoch,
                )
                _begin_end(shard, transactional_id, decision.end)
                yield from self._finish(shard, transactional_id)
            if isinstance(decision, Refuse):
                return _refused(decision.code)
            if txn is not None and decision.txn.is_two_phase and decision.txn.is_prepared:
                yield from self._hand_over(shard, transactional_id, txn, decision.txn)
            else:
                _write(shard, transactional_id, decision.txn)
            volatile = known.volatile.get(transactional_id)
            if volatile is not None:
                has_more = timeout_ms < decision.txn.timeout_ms
                volatile.following_timeout_ms = timeout_ms if has_more else None
            self._let_in(transactional_id, decision.txn)
            yield COMMITTED
        except NoProducerIdError:
            return None
        except StorageError:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        ongoing = decision.txn.producer if decision.txn.is_prepared else NOBODY
        return InitProducerIdResult(decision.txn.client, ongoing=ongoing)

    def _add(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> Request[ErrorCode]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        decision = decide_add(
            shard.state.transactions.get(transactional_id),
            producer,
            partitions,
            client_version=client_version,
            now_ms=self._host.now_ms(),
        )
        if isinstance(decision, Refuse):
            return decision.code
        try:
            if isinstance(decision, Write):
                _write(shard, transactional_id, decision.txn)
            if self._forces_answers_of(decision.txn):  # written before, it may not be forced yet
                yield COMMITTED
        except StorageError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        allow = partial(self._allow_txn, transactional_id, producer)
        yield from in_parts(allow, partitions, ALLOWED_PER_TURN)
        return _NONE

    def _join(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> Request[dict[TopicPartition, int]]:
        existing, codes = [], {}
        for partition in partitions:
            if self.has_partition(*partition):
                existing.append(partition)
            else:
                codes[partition] = int(_UNKNOWN_TOPIC_OR_PARTITION)
        if transaction_version < TV2:
            for partition in existing:
                code = self._verify(shard, transactional_id, producer, partition)
                codes[partition] = _as_of_a_batch(code)
        elif existing:
            code = yield from self._add(shard, transactional_id, producer, existing, TV2)
            codes.update(dict.fromkeys(existing, _as_of_a_batch(code)))
        return codes

    def _verify_all(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> Request[dict[TopicPartition, ErrorCode]]:
        codes: dict[TopicPartition, ErrorCode] = {}

        def verify(part: Sequence[TopicPartition]) -> None:
            for each in part:
                codes[each] = self._verify(shard, transactional_id, producer, each)

        yield from in_parts(verify, list(partitions), ALLOWED_PER_TURN)
        return codes

    def _verify(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        txn = shard.state.transactions.get(transactional_id)
        decision = decide_verify(txn, producer, partition)
        if isinstance(decision, Refuse):
            return decision.code
        self._allow_txn(transactional_id, producer, [partition])
        return ErrorCode.NONE

    def _end(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        bumps_epoch: bool,
    ) -> Request[InitProducerIdResult | None]:
        """End a transaction; None: nothing changed, it waits for a producer id."""
        txn = shard.state.transactions.get(transactional_id)
        try:
            decision = self._decide_end(txn, producer, outcome, bumps_epoch)
        except NoProducerIdError:
            return None
        if isinstance(decision, Refuse):
            volatile = shard.state.volatile.get(transactional_id)
            return _answer_to_refused_end(volatile, producer, outcome, decision.code)
        if isinstance(decision, Done):
            return InitProducerIdResult(decision.txn.producer)
        if outcome is _TO_COMMIT:
            try:
                decision = yield from self._with_last_offsets(decision)
            except StorageError as error:
                _tell_not_durable(transactional_id, error)
                if decision.prepare.is_two_phase:  # it is not ours to decide
                    return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                yield from self._give_up(shard, transactional_id, producer, bumps_epoch)
                return _refused(ErrorCode.TRANSACTION_ABORTABLE)
        try:
            ending = _begin_end(shard, transactional_id, decision)
        except StorageError:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        following = InitProducerIdResult(decision.following)
        try:
            if not ending.is_decided:
                yield from decide(ending)
        except StorageError as error:
            if ending.is_commit and ending.data and not decision.prepare.is_two_phase:
                _tell_not_durable(transactional_id, error)
                undo = self._undo(shard, transactional_id, producer, ending, error)
                return (yield from undo)
            self._retry_later(shard, transactional_id, ending, error)
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            yield from finish(ending, self._steps(shard, transactional_id), following)
        except StorageError as error:
            self._retry_later(shard, transactional_id, ending, error)
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return following

    def _with_last_offsets(self, end: End) -> Request[End]:
        """Name the last offset of each partition in the Prepare of a commit.

        Data that another system decides on, or that is in very many partitions, is synced before.
        Raises StorageError: a partition cannot be opened or synced; nothing is written.
        """
        partitions = end.prepare.partitions
        if self._host.durability is _PROCESS:
            yield from self._require_open(partitions)
            return end
        is_named = len(partitions) <= LAST_OFFSETS_MAX
        if end.prepare.is_two_phase or not is_named:
            held = yield from self._require_open(partitions)
            yield Synced(held)
        if not is_named:
            return end
        last_offsets = []
        topic_ids = self._ids_of(partitions)
        for topic, index in sorted(partitions):
            store, topic_id = self._host.touched(topic, index), topic_ids[topic]
            if store is not None and topic_id is not None:
                offset = store.log_end_offset - 1
                last_offsets.append(LastOffset(topic_id, index, store.epoch_of(offset), offset))
        return end._replace(prepare=end.prepare._replace(last_offsets=tuple(last_offsets)))

    def _decide_end(
        self, txn: Txn | None, producer: ProducerIdAndEpoch, outcome: TxnResult, bumps_epoch: bool
    ) -> Refuse | Done | End:
        """Raises NoProducerIdError."""
        now_ms = self._host.now_ms()
        if not bumps_epoch:
            return decide_end(txn, producer, outcome, now_ms=now_ms)
        return decide_end_and_bump(
            txn, producer, outcome, now_ms=now_ms, new_producer_id=self._producer_ids.take
        )

    def _give_up(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        bumps_epoch: bool,
    ) -> Request[None]:
        """Abort a transaction that cannot be made durable, before a retry seems to succeed.

        The client asks for an abort when it hears of the failure. It is done by then, and the
        client goes on with the identity that this abort leaves it.
        """
        txn = shard.state.transactions.get(transactional_id)
        try:
            decision = self._decide_end(txn, producer, TxnResult.ABORT, bumps_epoch)
            assert isinstance(decision, End), f"{transactional_id} was open"
            _begin_end(shard, transactional_id, decision)
        except StorageError as error:  # the client's own abort, or its time, ends it
            log.error("txn.abort_failed", transactional_id=transactional_id, reason=error.message)
            return
        shard.state.volatile[transactional_id].given_up = producer
        yield from self._finish(shard, transactional_id)

    def _undo(
        self,
        shard: TxnShard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        ending: Ending,
        error: StorageError,
    ) -> Request[InitProducerIdResult]:
        """Abort a commit that is prepared and cannot be synced, as `_give_up` does.

        Until the abort is on the disk a start may find the commit, so nobody is told of it before.
        """
        prepare = decide_undo(ending.plan.prepare, now_ms=self._host.now_ms())
        try:
            undoing = _begin_end(shard, transactional_id, plan(prepare))
        except StorageError:  # it is the coordinator's own log; the next start finishes the commit
            self._retry_later(shard, transactional_id, ending, error)
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard.state.volatile[transactional_id].given_up = producer
        yield from self._finish(shard, transactional_id)
        is_sure = undoing.is_decided
        return _refused(
            ErrorCode.TRANSACTION_ABORTABLE if is_sure else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    def _abort_for(
        self, shard: TxnShard, transactional_id: str, partition: TopicPartition, marker: Marker
    ) -> Request[ErrorCode | None]:
        """Abort a transaction of which an operator wants to abort a part; None: as `_end`."""
        txn = shard.state.transactions.get(transactional_id)
        if txn is None or partition not in txn.partitions:  # it ended meanwhile
            return ErrorCode.NONE
        if marker.producer_epoch < txn.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if txn.state is not TxnState.ONGOING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if marker.is_commit:
            return ErrorCode.INVALID_TXN_STATE
        try:
            end = self._decide_fence(txn)
        except NoProducerIdError:
            return None
        log.warning("txn.aborted_by_operator", transactional_id=transactional_id)
        yield from self._fence(shard, transactional_id, end)
        fenced = shard.state.transactions.get(transactional_id)
        if fenced is not None and fenced.state not in AT_REST:  # a disk refuses
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _owner_of(self, partition: TopicPartition, producer_id: int) -> str | None:
        """Whose transaction it is that is open on a partition, as far as it is known here."""
        for shard in self.transactions.shards:
            owner = shard.state.transactions.owner_of(partition, producer_id)
            if owner is not None:
                return owner
        return None

    def _time_out(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Abort a transaction that is past its time (P5)."""
        txn = shard.state.transactions.get(transactional_id)
        volatile = shard.state.volatile.get(transactional_id)
        if txn is None or volatile is None or txn.state is not TxnState.ONGOING:
            return
        if not timeouts.is_timed_out(txn, volatile.begun_ms, self._host.monotonic_ms()):
            self._watch(shard, transactional_id, txn, volatile)
            return
        try:
            end = self._decide_fence(txn)
        except NoProducerIdError:
            self._host.spawn(self._time_out_with_an_id(shard, transactional_id))
            return
        log.warning(
            "txn.timed_out",
            transactional_id=transactional_id,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            timeout_ms=txn.timeout_ms,
        )
        yield from self._fence(shard, transactional_id, end)

    async def _time_out_with_an_id(self, shard: TxnShard, transactional_id: str) -> None:
        """Look at a time-out again once there is a producer id, or its block is refused."""
        due_ms = 0  # at once
        if not await self._producer_ids.ready():
            reason = "no producer ids can be allocated"
            log.error("txn.abort_failed", transactional_id=transactional_id, reason=reason)
            due_ms = self._host.monotonic_ms() + RETRY_MS
        volatile = shard.state.volatile.get(transactional_id)
        if volatile is not None:
            self._watch_from(shard, transactional_id, volatile, due_ms)

    def _decide_fence(self, txn: Txn) -> End:
        """Raises NoProducerIdError."""
        now_ms = self._host.now_ms()
        return decide_fence(txn, now_ms=now_ms, new_producer_id=self._producer_ids.take)

    def _fence(self, shard: TxnShard, transactional_id: str, end: End) -> Request[None]:
        """Abort an open transaction under a later epoch."""
        try:
            _begin_end(shard, transactional_id, end)
        except StorageError as error:
            log.error("txn.abort_failed", transactional_id=transactional_id, reason=error.message)
            volatile = shard.state.volatile[transactional_id]
            due_ms = self._host.monotonic_ms() + RETRY_MS
            self._watch_from(shard, transactional_id, volatile, due_ms)
            return
        yield from self._finish(shard, transactional_id)

    def _finish(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Finish the end under way: markers, then Complete. Does nothing where there is none."""
        volatile = shard.state.volatile.get(transactional_id)
        ending = None if volatile is None else volatile.ending
        if ending is None:
            return
        try:
            yield from finish(ending, self._steps(shard, transactional_id))
        except StorageError as error:
            self._retry_later(shard, transactional_id, ending, error)

    def _hand_over(
        self, shard: TxnShard, transactional_id: str, txn: Txn, kept: Txn
    ) -> Request[None]:
        """Append that an open transaction is kept for another system to decide on.

        If it began as any other, its records have to be on the disk before. Later batches are
        synced before they are acknowledged. Raises StorageError: nothing changed.
        """
        if txn.is_two_phase or self._host.durability is not Durability.COMMIT:
            _write(shard, transactional_id, kept)
            return
        self._host.sync_before_ack(txn.producer_id, is_forced=True)
        try:
            yield Synced(txn.partitions)
            _write(shard, transactional_id, kept)
        except StorageError:
            self._host.sync_before_ack(txn.producer_id, is_forced=False)
            raise

    # ------------------------------------------------------------ records

    def _encode(self, shard: TxnShard, record: TxnRecord) -> tuple[bytes, bytes | None]:
        """The key and value of a record; anything but a legal move is a bug."""
        transactional_id, txn = record
        if txn is None:
            return encode_key(transactional_id), None
        assert not isinstance(txn, bytes), f"{transactional_id} was read, not decided on"
        before = shard.state.transactions.get(transactional_id)
        assert is_move(before, txn), f"{transactional_id}: {before} cannot become {txn}"
        return encode_key(transactional_id), encode_value(txn)

    def _replay_appended(self, shard: TxnShard, record: TxnRecord, _: int) -> None:
        """Fold in a record that was appended; start or end its timer and its acknowledgements."""
        transactional_id, txn = record
        known = shard.state
        if txn is None:
            known.transactions.replay(record)
            known.volatile.pop(transactional_id, None)
            self.clients.forget(transactional_id)
            self._connections.forget(transactional_id)
            return
        assert not isinstance(txn, bytes), f"{transactional_id} was read, not decided on"
        before = known.transactions.get(transactional_id)
        known.transactions.replay(record)
        if self._host.durability is _COMMIT and (  # few are two-phase, and each record asks
            txn.timeout_ms == NO_TIMEOUT_MS
            or (before is not None and before.timeout_ms == NO_TIMEOUT_MS)
        ):
            self._sync_before_ack(before, txn)
        volatile = known.volatile.get(transactional_id)
        state = txn.state
        if state in AT_REST:
            if volatile is not None:
                volatile.ending = volatile.following_timeout_ms = None
                if state is _EMPTY:
                    volatile.given_up = None
                if volatile.is_void:
                    del known.volatile[transactional_id]
            return
        if volatile is None:
            volatile = known.volatile[transactional_id] = Volatile()
        if state is _ONGOING:
            volatile.given_up = None
            if before is None or before.state is not _ONGOING:
                volatile.begun_ms = self._host.monotonic_ms()
            elif volatile.timer is not None:
                return
            self._watch(shard, transactional_id, txn, volatile)

    def _forces_answers_of(self, txn: Txn) -> bool:
        """Say whether answers to a transaction's client wait until their state is on the disk."""
        durability = self._host.durability
        return durability is _ALWAYS or (durability is _COMMIT and txn.is_two_phase)

    def _sync_before_ack(self, before: Txn | None, txn: Txn) -> None:
        """Have the answers to Produce wait while a two-phase transaction is open, and no longer."""
        if txn.state not in AT_REST:
            if txn.is_two_phase:
                self._host.sync_before_ack(txn.producer_id, is_forced=True)
        elif before is not None and before.is_two_phase:
            self._host.sync_before_ack(before.producer_id, is_forced=False)

    # ------------------------------------------------------------ steps

    def _steps(self, shard: TxnShard, transactional_id: str) -> Steps:
        return Steps(
            self._block, partial(self._mark, shard), partial(_write, shard, transactional_id)
        )

    def _block(self, ending: Ending) -> Request[list[TopicPartition]]:
        """Let nothing more into a transaction that is decided; return its unsynced partitions."""
        unsynced: list[TopicPartition] = []
        is_one_step = len(ending.unmarked) <= MARKERS_PER_TURN
        if self._host.durability is _PROCESS and is_one_step:
            return unsynced
        block = partial(self._block_part, ending, unsynced)
        touched = yield from self._touched_of(ending.unmarked)
        yield from in_parts(block, touched, ALLOWED_PER_TURN)
        return unsynced

    def _block_part(
        self, ending: Ending, unsynced: list[TopicPartition], part: Sequence[TopicPartition]
    ) -> None:
        producer_id = ending.plan.prepare.producer_id
        for partition in part:
            try:
                store = self._host.touched(*partition)
                if store is not None and store.block_txn(producer_id) > store.synced_end:
                    unsynced.append(partition)
            except StorageError as error:
                ending.held[partition] = error

    def _mark(self, shard: TxnShard, ending: Ending) -> Request[Marked]:
        """Write the markers that an end lacks, each to the log of its partition."""
        prepare = ending.plan.prepare
        is_commit = prepare.state is _PREPARE_COMMIT
        marker = Marker(
            prepare.producer_id,
            prepare.producer_epoch,
            shard.log.leader_epoch,
            is_commit,
            self._host.now_ms(),
        )
        offsets: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, StorageError] = {}

        def send(part: Sequence[TopicPartition]) -> None:
            sent = self._markers.send(part, marker, ending.held)
            offsets.update(sent.offsets)
            refused.update(sent.refused)

        left = yield from self._touched_of(ending.unmarked)
        first = [] if len(left) <= MARKERS_PER_TURN else list(filter(self._is_unwritten, left))
        if first:
            yield from in_parts(send, first, 1)
            yield GIVE_WAY
            left = sorted(set(left).difference(first))
        yield from in_parts(send, left, MARKERS_PER_TURN)
        if refused:
            refused = to_be_retried(refused, marker)
            # It is decided and may be answered: nothing comes in before the marker that follows.
            block = partial(self._block_part, ending, [])
            yield from in_parts(block, sorted(refused), ALLOWED_PER_TURN)
        if is_commit and self._host.durability is not _PROCESS:
            ending.written += self._unsynced(offsets, marker)
        unsynced = ending.plan.complete.unsynced_markers
        if not unsynced and not ending.written:
            return Marked(marker.timestamp_ms, refused)
        unsynced = carried(unsynced, ending.written, self._is_synced)
        if len(unsynced) <= UNSYNCED_MARKERS_MAX:
            return Marked(marker.timestamp_ms, refused, unsynced)
        return Marked(marker.timestamp_ms, refused, to_sync=self._places_of(unsynced))

    def _unsynced(
        self, offsets: Mapping[TopicPartition, int], marker: Marker
    ) -> list[UnsyncedMarker]:
        """The markers that were just appended at these offsets, as a record carries them."""
        producer_id, producer_epoch, _, is_commit, _ = marker
        written = []
        topic_ids = self._ids_of(offsets)
        for (topic, index), offset in offsets.items():
            topic_id = topic_ids[topic]
            assert topic_id is not None, f"{topic} took a marker"
            written.append(
                UnsyncedMarker(topic_id, index, offset, producer_id, producer_epoch, is_commit)
            )
        return written

    def _is_synced(self, marker: UnsyncedMarker) -> bool:
        """Say whether no power failure can take a marker, or its topic was deleted."""
        try:
            store = self._log_of(marker)
        except StorageError:
            return False
        return store is None or marker.offset < store.synced_end

    def _log_of(self, place: UnsyncedMarker | LastOffset) -> PartitionLog | None:
        """The log of a partition by its topic's id; None if that is gone. Raises StorageError."""
        topic = self._name_of(place.topic_id)
        return None if topic is None else self._host.partition(topic, place.partition)

    def _id_of(self, topic: str) -> bytes | None:
        """The id of a topic, as records have it; None if there is no such topic."""
        topic_id = self._host.topic_id(topic)
        return None if topic_id is None else topic_id.bytes

    def _ids_of(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes | None]:
        """The ids of the partitions' topics by name; each is looked up once."""
        topic_ids: dict[str, bytes | None] = {}
        for topic, _ in partitions:
            if topic not in topic_ids:
                topic_ids[topic] = self._id_of(topic)
        return topic_ids

    def _name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by the id in a record; None if it was deleted."""
        return self._host.topic_name(uuid.UUID(bytes=topic_id))

    def _places_of(self, markers: Iterable[UnsyncedMarker]) -> frozenset[TopicPartition]:
        """The partitions of markers, but for those of deleted topics."""
        named = ((self._name_of(each.topic_id), each.partition) for each in markers)
        return frozenset((topic, index) for topic, index in named if topic is not None)

    def _let_in(self, transactional_id: str, txn: Txn) -> None:
        """Let the partitions of an open transaction take batches of it, or none any longer."""
        if txn.is_prepared:
            for store in self._opened_of(txn.partitions):
                store.producer_state.block_txn(txn.producer_id)
        elif txn.state is TxnState.ONGOING:
            self._allow_txn(transactional_id, txn.producer, txn.partitions)

    def _allow_txn(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Let partitions take the transaction's first batch without asking again."""
        producer_id, producer_epoch = producer
        id_hash = java_hash(transactional_id)
        for store in self._opened_of(partitions):
            store.producer_state.allow_txn(producer_id, producer_epoch, id_hash)

    def _synced(self, partitions: Iterable[TopicPartition]) -> Synced:
        """A wait for those partitions that can be opened; one that cannot holds back no other."""
        return Synced([(store.topic, store.index) for store in self._opened_of(partitions)])

    def _touched_of(self, partitions: Collection[TopicPartition]) -> Request[list[TopicPartition]]:
        """The partitions in order; of very many, without the untouched ones."""
        if len(partitions) <= UNTOUCHED_MARKED_MAX:
            return sorted(partitions)
        touched: list[TopicPartition] = []
        is_untouched = self._host.is_untouched

        def look_at(part: Sequence[TopicPartition]) -> None:
            touched.extend([each for each in part if not is_untouched(*each)])

        yield from in_parts(look_at, list(partitions), LOOKED_AT_PER_TURN)
        return sorted(touched)

    def _is_unwritten(self, partition: TopicPartition) -> bool:
        """Say whether a partition never got a record."""
        try:
            store = self._host.touched(*partition)
        except StorageError:
            return False
        return store is None or store.log_end_offset == 0

    def _require_open(
        self, partitions: Collection[TopicPartition]
    ) -> Request[list[TopicPartition]]:
        """The partitions that may hold something. Raises StorageError: one cannot be opened now."""
        touched = self._host.touched

        def require(part: Sequence[TopicPartition]) -> None:
            for topic, index in part:
                touched(topic, index)

        held = yield from self._touched_of(partitions)
        yield from in_parts(require, held, ALLOWED_PER_TURN)
        return held

    def _opened_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionLog]:
        """The logs of those partitions that can be opened, but for untouched ones.

        Another takes no batch before it is opened, and then its producer state asks for each.
        """
        opened = []
        touched = self._host.touched
        for topic, index in partitions:
            try:
                store = touched(topic, index)
            except StorageError:
                continue
            if store is not None:
                opened.append(store)
        return opened

    # ------------------------------------------------------------ shards

    def shard_of(self, transactional_id: str) -> TxnShard | None:
        """The shard that keeps an id; None while there is no `__transaction_state`."""
        shards = self.transactions.shards
        if not shards:
            if self._is_loading or not self._host.has_partition(TRANSACTIONS_TOPIC, 0):
                return None
            self._make_shards()
        return shards[coordinator_partition(transactional_id, len(shards))]

    def _make_shards(self) -> None:
        """Make the shards of `__transaction_state`, which exists."""
        if not self.transactions.shards:
            logs = self._host.coordinator_partitions(TRANSACTIONS_TOPIC)
            self.transactions.shards += [
                Shard(
                    self._host,
                    logs,
                    index,
                    TxnShardState(),
                    encode=self._encode,
                    replay=self._replay_appended,
                )
                for index in range(len(logs))
            ]
            if not self._is_loading:  # nothing was written to it yet
                for shard in self.transactions.shards:
                    shard.activate()

    def _shard_with(self, transactional_id: str) -> TxnShard:
        """The shard of an id that is known."""
        shard = self.shard_of(transactional_id)
        assert shard is not None, f"{transactional_id} is not known"
        return shard

    def _unread(self) -> list[str]:
        """The partitions of `__transaction_state` that could not be read."""
        return [
            f"{TRANSACTIONS_TOPIC}-{shard.index}"
            for shard in self.transactions.shards
            if shard.phase is ShardPhase.FAILED
        ]

    # ------------------------------------------------------------ time

    def _watch(self, shard: TxnShard, transactional_id: str, txn: Txn, volatile: Volatile) -> None:
        """Have an open transaction aborted when its time is up.

        Its timer is left alone when it ends: the next one of this id is due later and needs none.
        """
        if not timeouts.has_deadline(txn):
            return
        due_ms = timeouts.deadline_ms(txn, volatile.begun_ms)
        if volatile.timer is None or due_ms < volatile.due_ms:
            self._watch_from(shard, transactional_id, volatile, due_ms)

    def _watch_from(
        self, shard: TxnShard, transactional_id: str, volatile: Volatile, due_ms: int
    ) -> None:
        """Look at an id that is not at rest at a time of the monotonic clock."""
        if volatile.timer is not None:
            volatile.timer.cancel()
        volatile.due_ms = due_ms
        volatile.timer = self._host.call_at(
            due_ms, lambda: self._on_deadline(shard, transactional_id)
        )

    def _on_deadline(self, shard: TxnShard, transactional_id: str) -> None:
        volatile = shard.state.volatile.get(transactional_id)
        if volatile is None:  # the id has expired
            return
        volatile.timer = None
        txn = shard.state.transactions.get(transactional_id)
        if txn is not None and txn.state in AT_REST and volatile.is_void:
            del shard.state.volatile[transactional_id]
            return
        shard.start(transactional_id, self._time_out(shard, transactional_id))

    def _retry_later(
        self, shard: TxnShard, transactional_id: str, ending: Ending, error: StorageError
    ) -> None:
        if ending.told != error.message:  # told once, tried for long
            ending.told = error.message
            log.error("txn.end_delayed", transactional_id=transactional_id, reason=error.message)
        self._host.call_at(
            self._host.monotonic_ms() + RETRY_MS,
            lambda: shard.start(transactional_id, self._finish(shard, transactional_id)),
        )

    def _sweep_later(self) -> None:
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        self._host.call_at(self._host.monotonic_ms() + interval_ms, self._sweep)

    def _sweep(self) -> None:
        """Forget the ids that nobody used for long, and keep those in little that rest."""
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        for shard in self.transactions.shards:
            shard.state.transactions.compact_idle(self._host.now_ms() - interval_ms)
        try:
            self._forget_expired()
        except StorageError as error:
            log.error("txn.expiry_failed", reason=error.message)
        self._sweep_later()

    def _forget_expired(self) -> None:
        expiration_ms = self._host.setting("transactional.id.expiration.ms")
        for shard in self.transactions.shards:
            expired = [
                transactional_id
                for transactional_id in shard.state.transactions.expired(
                    self._host.now_ms(), expiration_ms
                )
                if not shard.is_held(transactional_id)
                and transactional_id not in shard.state.withheld
            ]
            unsynced = [name for name in expired if self._has_unsynced(shard, name)]
            if unsynced:
                expired = [name for name in expired if name not in set(unsynced)]
            if expired:
                _append_in_batches(shard, [(name, None) for name in expired])
                log.info("txn.expired", count=len(expired))
            for transactional_id in unsynced:
                shard.start(transactional_id, self._sync_markers(shard, transactional_id))

    def _has_unsynced(self, shard: TxnShard, transactional_id: str) -> bool:
        """Say whether a power failure may take a marker of an id."""
        txn = shard.state.transactions.get(transactional_id)
        if txn is None or self._host.durability is Durability.PROCESS:
            return False
        return not all(map(self._is_synced, txn.unsynced_markers))

    def _sync_markers(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Sync the markers of an id, which is forgotten once they are on the disk."""
        txn = shard.state.transactions.get(transactional_id)
        if txn is not None:
            yield from _forced(self._synced(self._places_of(txn.unsynced_markers)))

    # ------------------------------------------------------------ recovery

    def recover(
        self,
        *,
        power_failed: bool = False,
        has_losses: bool = False,
        stores: Iterable[PartitionLog] = (),
    ) -> None:
        """Replay `__transaction_state`, finish every Prepare, and go on.

        Open transactions wait for their client or their timeout. After a power failure they are
        aborted and every producer is fenced, see `decide_after_power_failure`. Before that the
        rules of `coordinator.transaction.unsynced` find the commits and markers that it took. A
        transaction that another system decides on keeps waiting for it: it has lost nothing that
        was acknowledged, unless with `durability=process`.

        A partition of `__transaction_state` that cannot be read is out of service. Nothing is
        decided for its ids. Nor is anything decided for an unknown producer, which may be one of
        theirs.
        Without a power failure a partition that holds a transaction open which no record explains
        is damaged and is refused (`open_transactions`).

        Args:
            power_failed: The machine stopped without the broker closing its logs, and no start
                has come since of which `call_when_recovered` was heard.
            has_losses: An operator gave up the losses of some partitions. Every producer is fenced
                as after a power failure. Only there are unexplained open transactions aborted.
            stores: Every partition a transaction may have written to.

        Raises:
            LostCacheError: without a power failure, records prove a loss as after one. Nothing was
                written yet.
            StorageError: a disk refuses a record or a marker that has to be written.
        """
        stores = tuple(stores)
        completed = self._completed = CompletedCommits()
        if self._host.has_partition(TRANSACTIONS_TOPIC, 0):
            self._make_shards()
            for shard in self.transactions.shards:
                if self._load(shard):
                    shard.activate()
        self._is_loading, self._completed = False, None
        if not power_failed:
            refuse_lost_logs(self._host, completed.known_ends(self._host.topic_name))
            held = [each for store in stores for each in _open_in(store)]
            ids = self.transactions
            require_cache(
                self._host, ids.decoded(), ids.items, held, lambda name: self._shard_with(name).log
            )
        self._decide_prepared(power_failed=power_failed)
        if power_failed or has_losses:
            self._write_lost_markers()
        for shard in self.transactions.shards:
            for transactional_id in self._resume_prepared(shard, power_failed=power_failed):
                shard.run_blocking(self._finish(shard, transactional_id))
        unread = self._unread()
        if power_failed:
            self._is_behind = bool(unread) or any(
                shard.state.undecided or shard.state.withheld for shard in self.transactions.shards
            )
            self._fence_everybody()
            known = [self._without_later(txn) for _, txn in self.transactions.items()]
            self._hanging.end(stores, known, unread=unread)
            self._sync_what_was_ended()
        else:
            self._refuse_unexplained(stores, unread)
            if has_losses:
                self._fence_everybody()
        for shard in self.transactions.shards:
            self._go_on(shard)
            for _, txn in shard.state.transactions.decoded():
                if txn.is_two_phase:  # a process before this one may have promised less
                    shard.run_blocking(_forced(self._synced(txn.partitions)))
            if shard.phase is ShardPhase.ACTIVE:
                shard.run_blocking(_forced(COMMITTED, is_due=True))
        self._sweep_later()

    def _go_on(self, shard: TxnShard) -> None:
        """Let the open transactions of a shard go on, each until its time is up."""
        for transactional_id, txn in shard.state.transactions.decoded():
            if transactional_id in shard.state.withheld:
                continue
            if txn.state is TxnState.ONGOING:
                age_ms = timeouts.age_at_start(txn, self._host.now_ms())
                volatile = shard.state.volatile[transactional_id]
                volatile.begun_ms = self._host.monotonic_ms() - age_ms
                self._watch(shard, transactional_id, txn, volatile)
            if self._host.durability is _COMMIT:
                self._sync_before_ack(None, txn)
            self._let_in(transactional_id, txn)

    def _is_given_up(self, held: OpenTransaction, owner: Owner | None) -> bool:
        """Say whether an operator gave up a transaction's end, or its coordinator's records."""
        if self._host.accepts_loss(*held.partition):
            return True
        if owner is None:
            indexes = [shard.index for shard in self.transactions.shards]
        else:
            indexes = [self._shard_with(owner.transactional_id).index]
        return any(self._host.accepts_loss(TRANSACTIONS_TOPIC, index) for index in indexes)

    @property
    def is_recovered(self) -> bool:
        """True once nothing is left of a power failure; else the next start has to look again."""
        return self._hanging.are_ended and not self._is_behind

    def call_when_recovered(self, call: Callable[[], object]) -> None:
        """Make a call once nothing is left of a power failure: at once, if nothing is."""
        if not self._is_behind:
            self._hanging.call_when_ended(call)

    def _load(self, shard: TxnShard) -> bool:
        """Replay a partition of `__transaction_state`; False: do without it."""
        error = shard.load(lambda: self._replay(shard), lambda: shard.state.emptied())
        if error is not None:
            if isinstance(error, CorruptLogError):
                self._host.refuse_partition(TRANSACTIONS_TOPIC, shard.index, error.message)
            self._fail(shard, shard.advice_on(error))
            return False
        for transactional_id, txn in shard.state.transactions.decoded():
            if txn.state not in AT_REST:
                shard.state.volatile[transactional_id] = Volatile()
        return True

    def _fail(self, shard: TxnShard, fault: str) -> None:
        """Serve the ids of a partition no longer, until the next start."""
        shard.fail(fault, TxnShardState())
        log.error(
            "txn.ids_not_served",
            partition=f"{TRANSACTIONS_TOPIC}-{shard.index}",
            reason=shard.fault,
        )

    def _resume_prepared(self, shard: TxnShard, *, power_failed: bool) -> list[str]:
        """Plan the end of each prepared transaction of a shard; return their ids."""
        prepared = [
            (transactional_id, txn)
            for transactional_id, txn in shard.state.transactions.decoded()
            if txn.state in PREPARED and not shard.state.is_left(transactional_id)
        ]
        for transactional_id, txn in prepared:
            self._resume(shard, transactional_id, txn, power_failed=power_failed)
        return [transactional_id for transactional_id, _ in prepared]

    def _resume(
        self, shard: TxnShard, transactional_id: str, txn: Txn, *, power_failed: bool
    ) -> None:
        """Plan the end of a transaction whose Prepare a start finds.

        Data that a power failure left is on the disk; data that cannot be read is not waited for.
        A partition that has a later transaction open has its marker: another one would end the
        later transaction.
        """
        end = plan(txn)
        if (written := shard.state.written_again.pop(transactional_id, None)) is not None:
            end = end._replace(complete=end.complete._replace(unsynced_markers=written))
        ending = shard.state.volatile[transactional_id].ending = Ending(end)
        unsynced = () if power_failed else self._opened_of(ending.data)
        ending.data = frozenset((store.topic, store.index) for store in unsynced)
        if txn.last_offsets:
            ending.unmarked -= self._begun_later(txn)

    def _begun_later(self, prepare: Txn) -> set[TopicPartition]:
        """The partitions of a Prepare where a transaction that is open began behind it."""
        named: dict[tuple[bytes | None, int], int] = {
            (each.topic_id, each.partition): each.offset for each in prepare.last_offsets
        }
        later = set()
        for store in self._opened_of(prepare.partitions):
            last_offset = named.get((self._id_of(store.topic), store.index), -1)
            if any(
                found.producer.producer_id == prepare.producer_id
                and found.first_offset > last_offset
                for found in _open_in(store)
            ):
                later.add((store.topic, store.index))
        return later

    def _without_later(self, txn: Txn) -> Txn:
        """A transaction without the partitions whose open records are of a later one.

        A Prepare whose Complete a disk refuses has such partitions. The later transaction's own
        record is lost, so the Prepare must not be taken for it.
        """
        if txn.state not in PREPARED or not txn.last_offsets:
            return txn
        return txn._replace(partitions=txn.partitions - self._begun_later(txn))

    # ------------------------------------------------------------ elections

    def resign(self, index: int) -> None:
        """Leave the ids of a partition to another broker.

        Requests that wait are answered with NOT_COORDINATOR. What is known of connections and
        clients stays: it is this broker's own, and no log has it. So do the findings of the start
        after a power failure. A shard that failed stays as it is.
        """
        shard = self.transactions.shards[index]
        if shard.phase is ShardPhase.FAILED:
            return
        for volatile in shard.state.volatile.values():
            if volatile.timer is not None:
                volatile.timer.cancel()
        shard.unload(shard.state.emptied())

    async def elect(self, index: int) -> None:
        """Coordinate the ids of a partition again: replay its log, then finish every Prepare.

        Its records are synced first, as those of a start: requests may have been waiting for that.
        Until then a request is answered with COORDINATOR_LOAD_IN_PROGRESS. Ids that the start left
        are left here too. A shard that failed is left to the next start, which looks for losses.
        """
        shard = self.transactions.shards[index]
        if shard.phase is ShardPhase.FAILED:
            return
        shard.begin_load()
        if not self._load(shard):
            return
        if self._host.durability is not Durability.PROCESS:
            try:
                await self._host.sync([shard.log])
            except StorageError as error:
                self._fail(shard, shard.advice_on(error))
                return
            if shard.phase is not ShardPhase.LOADING:  # it resigned meanwhile
                return
        shard.activate()
        for transactional_id in self._resume_prepared(shard, power_failed=False):
            shard.start(transactional_id, self._finish(shard, transactional_id))
        known = shard.state
        for transactional_id in sorted(known.undecided):
            txn = known.transactions.get(transactional_id)
            if txn is not None and is_to_decide(txn):
                self._decide_later(shard, transactional_id)
            else:  # another broker has finished it
                known.undecided.discard(transactional_id)
        self._go_on(shard)

    # ------------------------------------------------------------ lost records

    def _decide_prepared(self, *, power_failed: bool) -> None:
        """Abort every commit that is prepared and has lost records, before any marker is written.

        A marker would take the offset of a lost record. All of it is on the disk before the first
        one. Where a partition cannot be read the commit waits for it, after a kill too: the
        storage may have lost its cache. Raises StorageError: a disk refuses.
        """
        for shard in self.transactions.shards:
            undone: list[TxnRecord] = []
            for transactional_id, txn in shard.state.transactions.decoded():
                has_lost = self._has_lost_records(txn) if is_to_decide(txn) else False
                if has_lost is None:
                    shard.state.undecided.add(transactional_id)
                elif has_lost and power_failed:
                    prepare = decide_undo(txn, now_ms=self._host.now_ms())
                    undone.append((transactional_id, prepare))
                    log.warning("txn.unanswered_commit_aborted", transactional_id=transactional_id)
            if undone:
                _append_in_batches(shard, undone)
                shard.run_blocking(_forced(COMMITTED, is_due=True))
            for transactional_id in shard.state.undecided:
                log.error("txn.left_prepared", transactional_id=transactional_id)
                self._decide_later(shard, transactional_id)

    def _has_lost_records(self, prepare: Txn) -> bool | None:
        """Say whether a partition lacks records that a Prepare names; None: one cannot be read."""
        is_unknown = False
        for last in prepare.last_offsets:
            try:
                store = self._log_of(last)
            except StorageError:
                is_unknown = True
                continue
            if store is None or self._host.accepts_loss(store.topic, store.index):
                continue
            if not is_there(last, store):
                return True
        return None if is_unknown else False

    def _decide_later(self, shard: TxnShard, transactional_id: str) -> None:
        volatile = shard.state.volatile[transactional_id]
        volatile.timer = self._host.call_at(
            self._host.monotonic_ms() + RETRY_MS,
            lambda: shard.start(transactional_id, self._decide_and_finish(shard, transactional_id)),
        )

    def _decide_and_finish(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Decide on a Prepare whose records could not be read at the start."""
        known = shard.state
        if transactional_id not in known.undecided or transactional_id in known.withheld:
            return
        known.volatile[transactional_id].timer = None
        txn = known.transactions.get(transactional_id)
        assert txn is not None, f"{transactional_id} is prepared"
        has_lost = self._has_lost_records(txn)
        if has_lost is None:
            self._decide_later(shard, transactional_id)
            return
        if has_lost:
            txn = decide_undo(txn, now_ms=self._host.now_ms())
            try:
                _write(shard, transactional_id, txn)
            except StorageError:
                self._decide_later(shard, transactional_id)
                return
        known.undecided.discard(transactional_id)
        self._resume(shard, transactional_id, txn, power_failed=True)
        ending = known.volatile[transactional_id].ending
        assert ending is not None, f"{transactional_id} was resumed"
        self._fence_with(ending)
        yield from self._finish(shard, transactional_id)

    def _write_lost_markers(self) -> None:
        """Write the markers again that the power failure took, each before any later one.

        A new record of the id carries them until they are on the disk. Where a partition cannot be
        opened nothing of the id is served, lest something enters a transaction that is decided.

        Raises StorageError: a disk refuses one. Nobody may be served before it is written.
        """
        found: dict[TopicPartition, _Found] = {}
        for shard in self.transactions.shards:
            renewed: list[TxnRecord] = []
            for transactional_id, txn in shard.state.transactions.items():
                if not txn.unsynced_markers:
                    continue
                written = self._write_again(shard, transactional_id, txn, found)
                if txn.state in PREPARED:
                    shard.state.written_again[transactional_id] = written
                else:
                    following = txn._replace(unsynced_markers=written)
                    renewed.append((transactional_id, following))
            _append_in_batches(shard, renewed)

    def _write_again(
        self,
        shard: TxnShard,
        transactional_id: str,
        txn: Txn,
        found: dict[TopicPartition, _Found],
    ) -> tuple[UnsyncedMarker, ...]:
        """Write the markers of an id that are gone; return those to carry from now on."""
        to_carry = []
        for each in txn.unsynced_markers:
            topic = self._name_of(each.topic_id)
            if topic is None or not self._host.has_partition(topic, each.partition):
                continue
            place = topic, each.partition
            try:
                store = self._host.partition(*place)
            except StorageError as error:
                log.error(
                    "txn.id_not_served", transactional_id=transactional_id, reason=error.message
                )
                shard.state.withheld.add(transactional_id)
                to_carry.append(each)
                continue
            assert store is not None, f"{place} is there"
            if place not in found:
                found[place] = _Found(store.log_end_offset, _open_in(store))
            log_end_offset, open_transactions = found[place]
            ended = [
                opened
                for opened in open_transactions
                if is_ended_by(each, opened.producer, opened.first_offset)
            ]
            if not ended and each.offset < log_end_offset:  # it is there
                to_carry.append(each)
                continue
            marker = Marker(
                each.producer_id,
                each.producer_epoch,
                shard.log.leader_epoch,
                each.is_commit,
                self._host.now_ms(),
            )
            sent = self._markers.send([place], marker)
            for refusal in to_be_retried(sent.refused, marker).values():
                raise refusal
            if place in sent.offsets:
                to_carry.append(each._replace(offset=sent.offsets[place]))
            for opened in ended:
                open_transactions.remove(opened)
            log.info(
                "txn.marker_written_again",
                partition=f"{topic}-{each.partition}",
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
        return tuple(to_carry)

    def _sync_what_was_ended(self) -> None:
        """Have the markers of this start on the disk before anything is served."""
        places = set(self._hanging.marked)
        for _, txn in self.transactions.decoded():
            places |= self._places_of(txn.unsynced_markers)
        for shard in self.transactions.shards:
            if shard.phase is ShardPhase.ACTIVE:
                shard.run_blocking(_forced(self._synced(places)))
                return

    def _refuse_unexplained(self, stores: Iterable[PartitionLog], unread: Sequence[str]) -> None:
        """Refuse the partitions that hold a transaction open which no record explains."""
        found = [each for store in stores for each in _open_in(store)]
        if unexplained(found, owners_of(self.transactions.decoded())):
            owners = owners_of(self.transactions.items())
            for each, owner in unexplained(found, owners):
                if self._is_given_up(each, owner):
                    self._hanging.abort(each)
                elif owner is None and unread:
                    tell_left_open(each, unread)
                else:
                    self._host.refuse_partition(*each.partition, fault_of(each, owner))

    def _replay(self, shard: TxnShard) -> None:
        replay, completed = shard.state.transactions.replay, self._completed
        for batch in shard.log.batches():
            for stored in batch.records:
                try:
                    record = decode_record(stored.key or b"", stored.value)
                except ValueError as error:
                    raise CorruptLogError(
                        f"{TRANSACTIONS_TOPIC}-{shard.index} holds a damaged record at offset "
                        f"{stored.offset}: {error}",
                        offset=stored.offset,
                    ) from error
                if record is not None:
                    replay(record)
                    if completed is not None:
                        completed.read(record)

    def _fence_everybody(self) -> None:
        for shard in self.transactions.shards:
            fenced = [
                (transactional_id, following)
                for transactional_id, txn in shard.state.transactions.items()
                if transactional_id not in shard.state.withheld
                and (following := self._fenced(txn)) is not None
            ]
            _append_in_batches(shard, fenced)
            for transactional_id, txn in shard.state.transactions.decoded():
                volatile = shard.state.volatile.get(transactional_id)
                is_ending = txn.state in PREPARED and not shard.state.is_left(transactional_id)
                if not is_ending or volatile is None:
                    continue
                if volatile.ending is None:
                    volatile.ending = Ending(plan(txn))
                    shard.run_blocking(self._finish(shard, transactional_id))
                else:  # a disk refuses its markers
                    self._fence_with(volatile.ending)

    def _fence_with(self, ending: Ending) -> None:
        """Have the Complete of an end fence its client, as if power failed behind it."""
        complete = ending.plan.complete
        fenced = self._fenced(complete)
        if fenced is not None:
            ending.plan = ending.plan._replace(complete=fenced._replace(state=complete.state))
        ending.is_fenced = True

    def _fenced(self, txn: Txn) -> Txn | None:
        """The next state of an id after a power failure; None: it stays as it is."""
        is_behind = self._host.durability is Durability.PROCESS
        if txn.state in PREPARED:  # a disk refuses its markers; it is retried
            return None
        if txn.is_two_phase and not is_behind:
            return None
        return decide_after_power_failure(
            txn,
            is_behind=is_behind,
            now_ms=self._host.now_ms(),
            new_producer_id=self._producer_ids.take_now,
        )


def _end_pause(over: "asyncio.Future[None]") -> None:
    if not over.done():  # the broker stops
        over.set_result(None)


def _tell_not_durable(transactional_id: str, error: StorageError) -> None:
    log.error("txn.commit_not_durable", transactional_id=transactional_id, reason=error.message)


def _the_code(code: ErrorCode) -> ErrorCode:
    """The answer of a request that is answered with an error code alone."""
    return code


def _write(shard: TxnShard, transactional_id: str, txn: Txn) -> None:
    """Append the next state of an id and replay it. Raises StorageError: nothing changed."""
    shard.append([(transactional_id, txn)])


def _begin_end(shard: TxnShard, transactional_id: str, end: End) -> Ending:
    """Append a Prepare; `finish` comes next. Raises StorageError: nothing changed."""
    _write(shard, transactional_id, end.prepare)
    volatile = shard.state.volatile[transactional_id]
    if volatile.following_timeout_ms is not None:
        completed = end.complete._replace(timeout_ms=volatile.following_timeout_ms)
        end = end._replace(complete=completed)
    volatile.ending = Ending(end, is_decided=not shard.waits_for_disk)
    return volatile.ending


def _answer_to_refused_end(
    volatile: Volatile | None, producer: ProducerIdAndEpoch, outcome: TxnResult, code: ErrorCode
) -> InitProducerIdResult:
    """Give the answer to a repeated EndTxn, whose first answer may have been lost."""
    if volatile is None:
        return _refused(code)
    ending = volatile.ending
    is_waiting = code is ErrorCode.CONCURRENT_TRANSACTIONS
    if is_waiting and ending is not None and ending.is_put_off and not ending.is_fenced:
        return InitProducerIdResult(
            ending.plan.following
        )  # it is on the disk; a marker has to wait
    if outcome is TxnResult.COMMIT and volatile.given_up == producer:
        return _refused(ErrorCode.TRANSACTION_ABORTABLE)
    return _refused(code)


def _append_in_batches(shard: TxnShard, records: Sequence[TxnRecord]) -> None:
    """Append records, many at a time. Raises StorageError: of some of them nothing changed."""
    for start in range(0, len(records), RECORDS_PER_BATCH):
        shard.append(records[start : start + RECORDS_PER_BATCH])


def _forced(wait: Committed | Synced, *, is_due: bool = False) -> Request[None]:
    """Wait for the disk at a start; a disk that refuses ends the start only if it `is_due`."""
    try:
        yield wait
    except StorageError:
        if is_due:
            raise


def _open_in(store: PartitionLog) -> list[OpenTransaction]:
    """The transactions that a partition holds open; none where a disk keeps it from telling."""
    if store.producer_state.first_unstable_offset() < 0:
        return []
    try:
        known = store.producers()
    except StorageError:  # it refused a marker just now; the next start looks again
        return []
    return [
        OpenTransaction(
            (store.topic, store.index),
            ProducerIdAndEpoch(active.producer_id, active.producer_epoch),
            active.current_txn_start_offset,
        )
        for active in known
        if active.current_txn_start_offset >= 0
    ]


def _is_open_at(store: PartitionLog, producer_id: int, producer_epoch: int) -> bool:
    """Say whether a partition holds a transaction of this producer open, at this epoch or later."""
    return any(
        active.producer_id == producer_id
        and active.producer_epoch >= producer_epoch
        and active.current_txn_start_offset >= 0
        for active in store.producers()
    )


def _code_of(error: StorageError) -> ErrorCode:
    """The error code of a partition that takes no marker."""
    return ErrorCode(error.code) if error.code else ErrorCode.KAFKA_STORAGE_ERROR


def _as_of_a_batch(code: ErrorCode) -> int:
    """The code that Produce and TxnOffsetCommit give; their clients act on these codes."""
    return int(_AS_OF_A_BATCH.get(code, code))
