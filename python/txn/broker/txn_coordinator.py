"""The transaction coordinator: carries out what `coordinator.transaction.decide` decides.

    decide ──► append to `__transaction_state` ──► apply ──► markers ──► Complete

Every request for a transactional id is a flow (`broker.flow`): while one waits for the
disk, the next waits for it. The end of a transaction, with what has to be on the disk
before the next step when `durability` is not `process`:

    1  the partitions of the transaction       else a commit could outlive its records (P2)
    2  Prepare: the decision (P3)              else readers could see what is then undone
    3  a marker in every partition; here the client gets its answer
    4  the markers                             else a Complete that forgets the partitions
                                               could outlive a marker: an open transaction
                                               that nobody would ever end (P5)
    5  Complete                                else the next transaction could outlive it, and
                                               recovery end that one by this Prepare (P3)

Steps 4 and 5 go on behind the answer; the next transaction of this id waits for them. An
abort skips step 1. With `durability=process` nothing waits and all of it is one step.

What a two-phase producer (KIP-939) is told has to be on the disk before, as everything has
with `durability=always`: each of its answers may be the last before another system decides,
and after that nothing but this decision may end the transaction.

A Prepare is always finished: at once, by a retry every `RETRY_MS` while a disk refuses, or
at the next start. A topic that was deleted meanwhile needs no marker. Producer ids and
epochs are on the disk before they are given out, lest a power failure lets them be given
out twice (P7).

Where this differs from Kafka: a marker that an operator asks for (WriteTxnMarkers) in the
midst of a transaction that is open here aborts all of it, and is refused once that is
decided. Kafka writes the one marker, and the transaction is torn (P3).

Sources: KIP-98, KIP-664, KIP-890, KIP-939; what Kafka's transaction coordinator answers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from txn.broker.flow import Flow, Flows, Force, Reply, run_blocking
from txn.broker.hanging_transactions import HangingTransactions, tell_left_open
from txn.broker.host import RETRY_MS, CoordinatorPartitions, Durability, HangUpError, Host, Timer
from txn.broker.last_clients import LastClients
from txn.broker.markers import Markers
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.connections import LatestConnections, Role
from txn.coordinator.transaction.decide import (
    TV1,
    TV2,
    AbortFirst,
    Done,
    Refuse,
    Write,
    complete,
    decide_add,
    decide_after_power_failure,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    decide_verify,
)
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    Owner,
    fault_of,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.producer_ids import ProducerIds
from txn.coordinator.transaction.records import (
    TRANSACTIONAL_ID_BYTES_MAX,
    decode_key,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import (
    AT_REST,
    NO_TIMEOUT_MS,
    NOBODY,
    PREPARED,
    Producer,
    TopicPartition,
    Txn,
    TxnResult,
    TxnState,
    is_move,
)
from txn.coordinator.transaction.store import TxnStore
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition, java_hash

EXPIRY_INTERVAL: Final = "transaction.remove.expired.transaction.cleanup.interval.ms"

RECORDS_PER_BATCH: Final = 1_000
"""How many ids are forgotten, or fenced after a power failure, with one append."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a producer has to use from now on; or, with an error code, nobody.

    `ongoing` is the identity of a transaction that was kept open for it (KIP-939).
    """

    producer: Producer
    code: ErrorCode = ErrorCode.none
    ongoing: Producer = NOBODY


class Deadline(NamedTuple):
    """When to look whether a transaction is past its time, and what will.

    `due_ms` is on the monotonic clock.
    """

    due_ms: int
    timer: Timer


def _refused(code: ErrorCode) -> Identity:
    return Identity(NOBODY, code)


class TransactionCoordinator:
    """Every transactional id of this broker."""

    def __init__(self, host: Host) -> None:
        self.transactions = TxnStore()
        self.clients = LastClients(host.now_ms)
        self.markers = Markers(host)
        self._host = host
        self._flows = Flows(host)
        self._hanging = HangingTransactions(host, self.markers)
        self._producer_ids = ProducerIds(host.allocate_producer_ids)
        self._logs: CoordinatorPartitions = ()
        self._log_count = 0
        """Of `_logs`, which never grow; 0 until they are first asked for."""
        self._unread: dict[int, str] = {}
        """Partitions of `__transaction_state` that could not be read, and why."""
        self._is_behind = False
        """Whether the power failed, and a partition that could not be read may know of more."""
        self._told_delays: dict[str, str] = {}
        self._connections = LatestConnections()
        self._deadlines: dict[str, Deadline] = {}
        self._begun_ms: dict[str, int] = {}
        """When each open transaction began, on the monotonic clock."""
        self._unmarked: dict[str, frozenset[TopicPartition]] = {}
        """Of a Prepare that a disk refused to finish: the partitions without a marker yet."""
        self._following_timeouts: dict[str, int] = {}
        """What its client asked for, where the transaction that it keeps has more time."""
        self._given_up: dict[str, Producer] = {}
        """Whose commit was aborted here; it is told so again if the answer was lost."""

    # ------------------------------------------------------------ requests

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        shown: Producer | None,
        *,
        is_two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Identity:
        """Give a starting producer its id and epoch; fence the one before it.

        Args:
            transactional_id: None for a producer that is idempotent alone.
            timeout_ms: How long its transactions may stay open.
            shown: What it holds and wants to go on from (KIP-360), or None.
            is_two_phase: Another system decides on its transactions, which never time out.
            keep_prepared: Leave a transaction that is open as it is (KIP-939).
        """
        if transactional_id is None:
            return self._new_producer()
        if not self.is_loaded(transactional_id):
            return _refused(ErrorCode.not_coordinator)
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            return _refused(ErrorCode.invalid_request)
        if is_two_phase:
            if not self._host.setting("transaction.two.phase.commit.enable"):
                return _refused(ErrorCode.transactional_id_authorization_failed)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._host.setting("transaction.max.timeout.ms"):
            return _refused(ErrorCode.invalid_transaction_timeout)
        return await self._flows.run(
            transactional_id,
            self._initialize(transactional_id, timeout_ms, shown, keep_prepared),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = TV1,
    ) -> ErrorCode:
        """Join partitions, all of which exist, to a transaction."""
        if not transactional_id:
            return ErrorCode.invalid_request
        if not self.is_loaded(transactional_id):
            return ErrorCode.not_coordinator
        return await self._flows.run(
            transactional_id, self._add(transactional_id, producer, partitions, client_version)
        )

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask which partitions, all of which exist, are in a transaction; changes nothing."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.invalid_request)
        if not self.is_loaded(transactional_id):
            return dict.fromkeys(partitions, ErrorCode.not_coordinator)
        return await self._flows.run(
            transactional_id, self._verify_all(transactional_id, producer, partitions)
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
        producer = Producer(producer_id, producer_epoch)
        if not self.is_loaded(transactional_id):
            code = int(_as_of_a_batch(ErrorCode.not_coordinator))
            return dict.fromkeys(partitions, code)
        return await self._flows.run(
            transactional_id,
            self._join(transactional_id, producer, transaction_version, partitions),
        )

    def is_joined(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> bool:
        """Say whether a batch may be appended to a partition in this very moment.

        For those who had to wait for `join`: the transaction may have ended since.
        """
        txn = self.transactions.get(transactional_id)
        return (
            txn is not None
            and txn.state is TxnState.ONGOING
            and txn.client == producer
            and not txn.is_prepared
            and partition in txn.partitions
            and not self._flows.is_held(transactional_id)
        )

    def forces_answers_of(self, transactional_id: str) -> bool:
        """Whether what the client of an id is told has to be on the disk before it is told."""
        txn = self.transactions.get(transactional_id)
        return txn is not None and self._forces_answers_of(txn)

    def hang_up_if_late(
        self, transactional_id: str, producer: Producer, connection: int, role: Role
    ) -> None:
        """Give no answer to a TV1 client that has left the connection over which its request came.

        Asked once for each such request, in the order they come. See `LatestConnections`.

        Raises:
            HangUpError: it has.
        """
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.client != producer:
            return
        if self._connections.is_superseded(transactional_id, role, producer, connection):
            raise HangUpError(
                f"the producer of {transactional_id} speaks to {role.value} over a later "
                "connection; what comes over this one may belong to an earlier transaction"
            )

    async def end(
        self, transactional_id: str, producer: Producer, outcome: TxnResult, *, bumps_epoch: bool
    ) -> Identity:
        """End a transaction; answer what the producer has to use from now on.

        Args:
            transactional_id: Whose transaction.
            producer: What the client shows.
            outcome: Commit or abort.
            bumps_epoch: EndTxn v5 (TV2); else the producer keeps its epoch.
        """
        if not transactional_id:
            return _refused(ErrorCode.invalid_request)
        if not self.is_loaded(transactional_id):
            return _refused(ErrorCode.not_coordinator)
        return await self._flows.run(
            transactional_id, self._end(transactional_id, producer, outcome, bumps_epoch)
        )

    @property
    def failed_count(self) -> int:
        """Number of partitions of the coordinator that could not be read."""
        return len(self._unread)

    def is_loaded(self, transactional_id: str) -> bool:
        """Say whether what is stored of an id could be read, so that it can be decided on."""
        return not self._unread or self._shard_of(transactional_id) not in self._unread

    def find(self, wanted: Filter) -> Iterator[tuple[str, Txn] | None]:
        """Every transactional id that passes a filter, and None for each that does not.

        So whoever looks through very many can give way to others meanwhile.
        """
        now_ms = self._host.now_ms()
        for transactional_id, txn in self.transactions.items():
            passes = wanted.passes(transactional_id, txn, now_ms)
            yield (transactional_id, txn) if passes else None

    async def write_marker(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """End what a producer left open on a partition, as an operator asks for it.

        Args:
            partition: Which exists.
            marker: What to write; its time is set here.
            must_bump: The transaction was of version 2, so its marker has a later epoch than
                its records.
        """
        owner = self._owner_of(partition, marker.producer_id)
        if owner is not None:
            return await self._flows.run(owner, self._abort_for(owner, partition, marker))
        try:
            store = self._host.partition(*partition)
            assert store is not None, f"{partition} was looked up"
            if self._unread and _is_open_at(store, marker.producer_id, 0):
                return ErrorCode.coordinator_not_available  # it may be another's, and decided
            if must_bump and _is_open_at(store, marker.producer_id, marker.producer_epoch):
                return ErrorCode.invalid_producer_epoch
            self.markers.append_to(store, replace(marker, timestamp_ms=self._host.now_ms()))
        except StorageError as error:
            return _code_of(error)
        return ErrorCode.none

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when there is none. Raises StorageError."""
        return self._host.partition(topic, index)

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether a partition exists."""
        return self._host.has_partition(topic, index)

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists."""
        return self._host.topic_id(topic) is not None

    def is_untouched(self, topic: str, index: int) -> bool:
        """Say whether a partition holds nothing, so that there is no need to open it."""
        return self._host.is_untouched(topic, index)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that keeps a group."""
        count = len(self._host.coordinator_partitions(OFFSETS_TOPIC))
        return OFFSETS_TOPIC, coordinator_partition(group_id, count)

    # ------------------------------------------------------------ flows

    def _new_producer(self) -> Identity:
        try:
            return Identity(Producer(self._producer_ids.take(), 0))
        except StorageError:
            return _refused(ErrorCode.coordinator_not_available)

    def _initialize(
        self, transactional_id: str, timeout_ms: int, shown: Producer | None, keep_prepared: bool
    ) -> Flow[Identity]:
        try:
            while True:
                txn = self.transactions.get(transactional_id)
                decision = decide_init(
                    txn,
                    shown,
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
                    producer_id=decision.txn.producer_id,
                    producer_epoch=decision.txn.producer_epoch,
                )
                self._write(transactional_id, decision.txn)
                yield from self._finish(transactional_id)
            if isinstance(decision, Refuse):
                return _refused(decision.code)
            if txn is not None and decision.txn.is_two_phase and decision.txn.is_prepared:
                yield from self._hand_over(transactional_id, txn, decision.txn)
            else:
                self._write(transactional_id, decision.txn)
            self._following_timeouts.pop(transactional_id, None)
            if timeout_ms < decision.txn.timeout_ms:
                self._following_timeouts[transactional_id] = timeout_ms
            self._let_in(transactional_id, decision.txn)
            yield from self._force_log(transactional_id)
        except StorageError:
            return _refused(ErrorCode.coordinator_not_available)
        ongoing = decision.txn.producer if decision.txn.is_prepared else NOBODY
        return Identity(decision.txn.client, ongoing=ongoing)

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Flow[ErrorCode]:
        if not transactional_id:
            return ErrorCode.invalid_request
        decision = decide_add(
            self.transactions.get(transactional_id),
            producer,
            partitions,
            client_version=client_version,
            now_ms=self._host.now_ms(),
        )
        if isinstance(decision, Refuse):
            return decision.code
        try:
            if isinstance(decision, Write):
                self._write(transactional_id, decision.txn)
            if self._forces_answers_of(decision.txn):  # written before, it may not be forced yet
                yield from self._force_log(transactional_id)
        except StorageError:
            return ErrorCode.coordinator_not_available
        self._allow_txn(transactional_id, producer, partitions)
        return ErrorCode.none

    def _join(
        self,
        transactional_id: str,
        producer: Producer,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> Flow[dict[TopicPartition, int]]:
        existing = [p for p in partitions if self._host.has_partition(*p)]
        codes = dict.fromkeys(partitions, ErrorCode.unknown_topic_or_partition)
        if transaction_version >= TV2 and existing:
            code = yield from self._add(transactional_id, producer, existing, TV2)
            codes.update(dict.fromkeys(existing, code))
        else:
            codes.update((p, self._verify(transactional_id, producer, p)) for p in existing)
        return {partition: int(_as_of_a_batch(code)) for partition, code in codes.items()}

    def _verify_all(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Flow[dict[TopicPartition, ErrorCode]]:
        yield from ()
        return {p: self._verify(transactional_id, producer, p) for p in partitions}

    def _verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        txn = self.transactions.get(transactional_id)
        decision = decide_verify(txn, producer, partition)
        if isinstance(decision, Refuse):
            return decision.code
        self._allow_txn(transactional_id, producer, [partition])
        return ErrorCode.none

    def _end(
        self, transactional_id: str, producer: Producer, outcome: TxnResult, bumps_epoch: bool
    ) -> Flow[Identity]:
        if not transactional_id:
            return _refused(ErrorCode.invalid_request)
        txn = self.transactions.get(transactional_id)
        try:
            decision = self._decide_end(txn, producer, outcome, bumps_epoch)
        except StorageError:  # no new producer id to be had
            return _refused(ErrorCode.coordinator_not_available)
        if isinstance(decision, Refuse):
            return self._answer_to_refused_end(transactional_id, producer, outcome, decision.code)
        if not isinstance(decision, Write):
            return Identity(decision.txn.producer)
        prepared = decision.txn
        if outcome is TxnResult.COMMIT:
            try:
                stores = tuple(self._stores_of(prepared.partitions))  # they can be opened
                yield from self._force(stores)
            except StorageError as error:
                log.error(
                    "txn.commit_not_durable",
                    transactional_id=transactional_id,
                    reason=error.message,
                )
                if prepared.is_two_phase:  # it is not ours to decide
                    return _refused(ErrorCode.coordinator_not_available)
                yield from self._give_up(transactional_id, producer, bumps_epoch)
                return _refused(ErrorCode.transaction_abortable)
        try:
            self._write(transactional_id, prepared)
        except StorageError:
            return _refused(ErrorCode.coordinator_not_available)
        try:
            yield from self._force_log(transactional_id)
        except StorageError as error:
            self._retry_later(transactional_id, error)
            return _refused(ErrorCode.coordinator_not_available)
        self._mark(transactional_id)
        following = Identity(complete(prepared, now_ms=prepared.updated_ms).producer)
        yield Reply(following)
        yield from self._settle(transactional_id)
        return following

    def _decide_end(
        self, txn: Txn | None, producer: Producer, outcome: TxnResult, bumps_epoch: bool
    ) -> Refuse | Done | Write:
        """Raises StorageError: no new producer id is to be had."""
        now_ms = self._host.now_ms()
        if not bumps_epoch:
            return decide_end(txn, producer, outcome, now_ms=now_ms)
        return decide_end_and_bump(
            txn, producer, outcome, now_ms=now_ms, new_producer_id=self._producer_ids.take
        )

    def _give_up(self, transactional_id: str, producer: Producer, bumps_epoch: bool) -> Flow[None]:
        """Abort what cannot be made durable, before somebody tries again and seems to succeed.

        It is the abort that the client will ask for when it hears of it: that is then done
        already, and the client goes on with the identity that this abort leaves it.
        """
        txn = self.transactions.get(transactional_id)
        try:
            decision = self._decide_end(txn, producer, TxnResult.ABORT, bumps_epoch)
            assert isinstance(decision, Write), f"{transactional_id} was open"
            self._write(transactional_id, decision.txn)
            self._given_up[transactional_id] = producer
        except StorageError as error:  # the client's own abort, or its time, ends it
            log.error("txn.abort_failed", transactional_id=transactional_id, reason=error.message)
            return
        yield from self._finish(transactional_id)

    def _answer_to_refused_end(
        self, transactional_id: str, producer: Producer, outcome: TxnResult, code: ErrorCode
    ) -> Identity:
        """Answer once more what an end was answered whose answer may have been lost."""
        if code is ErrorCode.concurrent_transactions and transactional_id in self._unmarked:
            prepared = self._prepared(transactional_id)  # on the disk; a marker has to wait
            return Identity(complete(prepared, now_ms=prepared.updated_ms).producer)
        if outcome is TxnResult.COMMIT and self._given_up.get(transactional_id) == producer:
            return _refused(ErrorCode.transaction_abortable)
        return _refused(code)

    def _abort_for(
        self, transactional_id: str, partition: TopicPartition, marker: Marker
    ) -> Flow[ErrorCode]:
        """Abort a transaction of which an operator wants to abort a part."""
        txn = self.transactions.get(transactional_id)
        if txn is None or partition not in txn.partitions:  # it ended meanwhile
            return ErrorCode.none
        if marker.producer_epoch < txn.producer_epoch:
            return ErrorCode.invalid_producer_epoch
        if txn.state is not TxnState.ONGOING:
            return ErrorCode.concurrent_transactions
        if marker.is_commit:
            return ErrorCode.invalid_txn_state
        log.warning("txn.aborted_by_operator", transactional_id=transactional_id)
        yield from self._fence(transactional_id)
        fenced = self.transactions.get(transactional_id)
        if fenced is not None and fenced.state not in AT_REST:  # a disk refuses
            return ErrorCode.kafka_storage_error
        return ErrorCode.none

    def _owner_of(self, partition: TopicPartition, producer_id: int) -> str | None:
        """Whose transaction it is that is open on a partition, as far as it is known here."""
        for transactional_id, txn in self.transactions.decoded():
            if txn.producer_id == producer_id and partition in txn.partitions:
                return transactional_id
        return None

    def _time_out(self, transactional_id: str) -> Flow[None]:
        """Abort a transaction that is past its time (P5)."""
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.state is not TxnState.ONGOING:
            return
        if not timeouts.is_timed_out(
            txn, self._begun_ms[transactional_id], self._host.monotonic_ms()
        ):
            self._watch(transactional_id, txn)
            return
        log.warning(
            "txn.timed_out",
            transactional_id=transactional_id,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            timeout_ms=txn.timeout_ms,
        )
        yield from self._fence(transactional_id)

    def _fence(self, transactional_id: str) -> Flow[None]:
        """Abort an open transaction under a later epoch."""
        txn = self.transactions.get(transactional_id)
        assert txn is not None, f"{transactional_id} is not known"
        try:
            prepared = decide_fence(
                txn, now_ms=self._host.now_ms(), new_producer_id=self._producer_ids.take
            )
            self._write(transactional_id, prepared)
        except StorageError as error:
            log.error("txn.abort_failed", transactional_id=transactional_id, reason=error.message)
            self._watch_from(transactional_id, self._host.monotonic_ms() + RETRY_MS)
            return
        yield from self._finish(transactional_id)

    def _finish(self, transactional_id: str) -> Flow[None]:
        """Finish a Prepare: markers, then Complete. Does nothing where there is none."""
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.state not in PREPARED:
            return
        try:
            yield from self._force_log(transactional_id)
        except StorageError as error:
            self._retry_later(transactional_id, error)
            return
        self._mark(transactional_id)
        yield from self._settle(transactional_id)

    def _settle(self, transactional_id: str) -> Flow[None]:
        """Write Complete, once every marker is in its partition to stay; it is to stay too."""
        txn = self._prepared(transactional_id)
        if transactional_id in self._unmarked:
            return
        try:
            yield from self._force(self._stores_of(txn.partitions))
            completed = complete(txn, now_ms=self._host.now_ms())
            following_ms = self._following_timeouts.get(transactional_id, txn.timeout_ms)
            self._write(transactional_id, completed._replace(timeout_ms=following_ms))
            self._told_delays.pop(transactional_id, None)
            self._following_timeouts.pop(transactional_id, None)
            yield from self._force_log(transactional_id)
        except StorageError as error:
            self._retry_later(transactional_id, error)

    def _hand_over(self, transactional_id: str, txn: Txn, kept: Txn) -> Flow[None]:
        """Write that an open transaction is kept for another system to decide on.

        If it began as any other, what it holds has to be on the disk before, and what is still
        sent to it is forced from here on. Raises StorageError: nothing changed.
        """
        if txn.is_two_phase or self._host.durability is not Durability.COMMIT:
            self._write(transactional_id, kept)
            return
        self._host.sync_before_ack(txn.producer_id, is_forced=True)
        try:
            yield from self._force(self._stores_of(txn.partitions))
            self._write(transactional_id, kept)
        except StorageError:
            self._host.sync_before_ack(txn.producer_id, is_forced=False)
            raise

    def _force(self, stores: Iterable[PartitionLog]) -> Flow[None]:
        """Wait for the disk, if `durability` asks for it. Raises StorageError."""
        if self._host.durability is not Durability.PROCESS and (wanted := tuple(stores)):
            yield Force(wanted)

    def _force_log(self, transactional_id: str) -> Flow[None]:
        """Wait until what is written of an id is on the disk, as `_force` does."""
        if self._host.durability is not Durability.PROCESS:
            yield from self._force([self._log_of(transactional_id)])

    # ------------------------------------------------------------ steps

    def _write(self, transactional_id: str, txn: Txn) -> None:
        """Append what is now known of an id and apply it. Raises StorageError: nothing changed."""
        before = self.transactions.get(transactional_id)
        assert is_move(before, txn), f"{transactional_id}: {before} cannot become {txn}"
        self._log_of(transactional_id).append(
            [(encode_key(transactional_id), encode_value(txn))], timestamp_ms=txn.updated_ms
        )
        self.transactions.apply(transactional_id, txn)
        self._sync_before_ack(before, txn)
        if txn.state is not TxnState.ONGOING:
            self._begun_ms.pop(transactional_id, None)
        elif before is None or before.state is not TxnState.ONGOING:
            self._begun_ms[transactional_id] = self._host.monotonic_ms()
        if txn.state in (TxnState.EMPTY, TxnState.ONGOING):
            self._given_up.pop(transactional_id, None)
        self._watch(transactional_id, txn)

    def _forces_answers_of(self, txn: Txn) -> bool:
        """Whether what the client of a transaction is told has to be on the disk before."""
        durability = self._host.durability
        return durability is Durability.ALWAYS or (
            durability is Durability.COMMIT and txn.is_two_phase
        )

    def _sync_before_ack(self, before: Txn | None, txn: Txn) -> None:
        """Have the answers to Produce wait likewise, from a transaction's beginning to its end."""
        if self._host.durability is not Durability.COMMIT:
            return
        if txn.state not in AT_REST:
            if txn.is_two_phase:
                self._host.sync_before_ack(txn.producer_id, is_forced=True)
        elif before is not None and before.is_two_phase:
            self._host.sync_before_ack(before.producer_id, is_forced=False)

    def _prepared(self, transactional_id: str) -> Txn:
        """The Prepare that is being finished."""
        txn = self.transactions.get(transactional_id)
        assert txn is not None, f"{transactional_id} is not known"
        assert txn.state in PREPARED, f"{transactional_id} is in {txn.state.label}"
        return txn

    def _mark(self, transactional_id: str) -> None:
        """Write a Prepare's markers; what a disk refuses stays in `_unmarked` and is retried."""
        txn = self._prepared(transactional_id)
        marker = self.markers.make(
            txn.producer,
            coordinator_epoch=self._log_of(transactional_id).leader_epoch,
            is_commit=txn.state is TxnState.PREPARE_COMMIT,
        )
        wanted = self._unmarked.pop(transactional_id, txn.partitions)
        failures: dict[TopicPartition, StorageError] = {}
        for partition in sorted(wanted):
            try:
                self.markers.append(partition, marker)
            except StorageError as error:
                failures[partition] = error
        if failures:
            self._unmarked[transactional_id] = frozenset(failures)
            self._retry_later(transactional_id, next(iter(failures.values())))

    def _let_in(self, transactional_id: str, txn: Txn) -> None:
        """Let the partitions of an open transaction take batches of it, or none any longer."""
        if txn.is_prepared:
            for store in self._opened_of(txn.partitions):
                store.producer_state.block_txn(txn.producer_id)
        elif txn.state is TxnState.ONGOING:
            self._allow_txn(transactional_id, txn.producer, txn.partitions)

    def _allow_txn(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> None:
        """Let partitions take the transaction's first batch without asking again."""
        id_hash = java_hash(transactional_id)
        for store in self._opened_of(partitions):
            store.producer_state.allow_txn(producer.producer_id, producer.producer_epoch, id_hash)

    def _stores_of(self, partitions: Iterable[TopicPartition]) -> Iterator[PartitionLog]:
        """The partitions that still exist, each looked up when it is its turn.

        Raises StorageError: one cannot be opened now.
        """
        for topic, index in sorted(partitions):
            store = self._host.partition(topic, index)
            if store is not None:
                yield store

    def _opened_of(self, partitions: Iterable[TopicPartition]) -> Iterator[PartitionLog]:
        """Of these partitions those that can be opened.

        Another takes no batch before it is opened, and then its producer state asks for each.
        """
        for topic, index in partitions:
            with suppress(StorageError):
                store = self._host.partition(topic, index)
                if store is not None:
                    yield store

    def _log_of(self, transactional_id: str) -> PartitionLog:
        """The partition of `__transaction_state` that keeps an id."""
        index = self._shard_of(transactional_id)
        assert index not in self._unread, f"{transactional_id} could not be read"
        return self._logs[index]

    def _shard_of(self, transactional_id: str) -> int:
        """The number of that partition."""
        if not self._log_count:
            self._logs = self._host.coordinator_partitions(TRANSACTIONS_TOPIC)
            self._log_count = len(self._logs)
        return coordinator_partition(transactional_id, self._log_count)

    # ------------------------------------------------------------ time

    def _watch(self, transactional_id: str, txn: Txn) -> None:
        """Have an open transaction aborted when its time is up.

        Its timer is left alone when it ends: the next one of this id is due later and needs none.
        """
        if not timeouts.has_deadline(txn):
            return
        due_ms = timeouts.deadline_ms(txn, self._begun_ms[transactional_id])
        watched = self._deadlines.get(transactional_id)
        if watched is None or due_ms < watched.due_ms:
            if watched is not None:
                watched.timer.cancel()
            self._watch_from(transactional_id, due_ms)

    def _watch_from(self, transactional_id: str, due_ms: int) -> None:
        """Look at an id at a time of the monotonic clock."""
        timer = self._host.call_at(due_ms, lambda: self._on_deadline(transactional_id))
        self._deadlines[transactional_id] = Deadline(due_ms, timer)

    def _on_deadline(self, transactional_id: str) -> None:
        self._deadlines.pop(transactional_id, None)
        self._flows.start(transactional_id, self._time_out(transactional_id))

    def _retry_later(self, transactional_id: str, error: StorageError) -> None:
        if self._told_delays.get(transactional_id) != error.message:  # told once, tried for long
            self._told_delays[transactional_id] = error.message
            log.error("txn.end_delayed", transactional_id=transactional_id, reason=error.message)
        self._host.call_at(
            self._host.monotonic_ms() + RETRY_MS,
            lambda: self._flows.start(transactional_id, self._finish(transactional_id)),
        )

    def _sweep_later(self) -> None:
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        self._host.call_at(self._host.monotonic_ms() + interval_ms, self._sweep)

    def _sweep(self) -> None:
        """Forget the ids that nobody used for long, and keep those in little that rest."""
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        self.transactions.compact_idle(self._host.now_ms() - interval_ms)
        try:
            self._forget_expired()
        except StorageError as error:
            log.error("txn.expiry_failed", reason=error.message)
        self._sweep_later()

    def _forget_expired(self) -> None:
        expiration_ms = self._host.setting("transactional.id.expiration.ms")
        expired = [
            (transactional_id, None)
            for transactional_id in self.transactions.expired(self._host.now_ms(), expiration_ms)
            if not self._flows.is_held(transactional_id)
        ]
        if expired:
            self._write_together(expired)
            log.info("txn.expired", count=len(expired))

    def _write_together(self, written: Sequence[tuple[str, Txn | None]]) -> None:
        """Append what is now known of many ids, many at a time, and apply it; None forgets one.

        Raises StorageError: of some of them nothing changed.
        """
        by_log: dict[int, list[tuple[str, Txn | None]]] = {}
        for entry in written:
            by_log.setdefault(self._log_of(entry[0]).index, []).append(entry)
        for index, entries in by_log.items():
            for start in range(0, len(entries), RECORDS_PER_BATCH):
                batch = entries[start : start + RECORDS_PER_BATCH]
                records = [
                    (encode_key(transactional_id), None if txn is None else encode_value(txn))
                    for transactional_id, txn in batch
                ]
                self._logs[index].append(records, timestamp_ms=self._host.now_ms())
                for transactional_id, txn in batch:
                    self.transactions.apply(transactional_id, txn)
                    if txn is None:
                        self.clients.forget(transactional_id)
                        self._connections.forget(transactional_id)
                        self._given_up.pop(transactional_id, None)
                        self._following_timeouts.pop(transactional_id, None)

    # ------------------------------------------------------------ recovery

    def recover(
        self,
        *,
        power_failed: bool = False,
        has_losses: bool = False,
        stores: Iterable[PartitionLog] = (),
    ) -> None:
        """Replay `__transaction_state`, finish every Prepare, and go on.

        What is open waits for its client or for its time, unless the machine lost power:
        then open transactions are aborted and every producer is fenced, see
        `decide_after_power_failure`. What another system decides on waits for that even so: of it
        nothing is lost that was acknowledged, unless with `durability=process`.

        A partition of `__transaction_state` that cannot be read is out of service; nothing is
        decided for its ids, nor for a producer that nobody knows, since it may be one of those.
        Without a power failure a partition that holds a transaction open which no record explains
        is damaged and is refused (`open_transactions`).

        Args:
            power_failed: The machine stopped without the broker closing its logs, and no start
                has come since of which `call_when_recovered` was heard.
            has_losses: An operator gave up what some partitions lost: every producer is fenced as
                after a power failure. But only there is what nothing explains aborted.
            stores: Every partition a transaction may have written to.
        """
        if self._host.has_partition(TRANSACTIONS_TOPIC, 0):
            self._logs = self._host.coordinator_partitions(TRANSACTIONS_TOPIC)
            self._log_count = len(self._logs)
            for index in range(self._log_count):
                self._load(index)
        for transactional_id, _ in self.transactions.decoded():
            run_blocking(self._finish(transactional_id))
        unread = [f"{TRANSACTIONS_TOPIC}-{index}" for index in self._unread]
        if power_failed:
            self._is_behind = bool(unread)
            self._fence_everybody()
            known = [txn for _, txn in self.transactions.items()]
            self._hanging.end(stores, known, unread=unread)
        else:
            self._refuse_unexplained(stores, unread)
            if has_losses:
                self._fence_everybody()
        for transactional_id, txn in self.transactions.decoded():
            if txn.state is TxnState.ONGOING:
                age_ms = timeouts.age_at_start(txn, self._host.now_ms())
                self._begun_ms[transactional_id] = self._host.monotonic_ms() - age_ms
            self._watch(transactional_id, txn)
            self._sync_before_ack(None, txn)
            self._let_in(transactional_id, txn)
            if txn.is_two_phase:  # a process before this one may have promised less
                with suppress(StorageError):
                    run_blocking(self._force(self._stores_of(txn.partitions)))
        loaded = (index for index in range(len(self._logs)) if index not in self._unread)
        run_blocking(self._force(self._logs[index] for index in loaded))
        self._sweep_later()

    def _is_given_up(self, found: OpenTransaction, owner: Owner | None) -> bool:
        """Say whether an operator gave up the end of a transaction, or who knew of it."""
        if self._host.accepts_loss(*found.partition):
            return True
        shards = (
            range(len(self._logs)) if owner is None else [self._shard_of(owner.transactional_id)]
        )
        return any(self._host.accepts_loss(TRANSACTIONS_TOPIC, index) for index in shards)

    @property
    def is_recovered(self) -> bool:
        """Whether nothing is left of a power failure; else the next start has to look again."""
        return self._hanging.are_ended and not self._is_behind

    def call_when_recovered(self, call: Callable[[], object]) -> None:
        """Make a call once nothing is left of a power failure: at once, if nothing is."""
        if not self._is_behind:
            self._hanging.call_when_ended(call)

    def _load(self, index: int) -> None:
        """Replay a partition of `__transaction_state`, or do without it."""
        try:
            self._replay(self._logs[index])
            return
        except CorruptLogError as error:
            self._unread[index] = error.message
            self._host.refuse_partition(TRANSACTIONS_TOPIC, index, error.message)
        except (StorageError, OSError) as error:
            self._unread[index] = str(error)
        for transactional_id in self.transactions:
            if self._shard_of(transactional_id) == index:
                self.transactions.apply(transactional_id, None)
        log.error(
            "txn.ids_not_served",
            partition=f"{TRANSACTIONS_TOPIC}-{index}",
            reason=self._unread[index],
        )

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

    def _replay(self, store: PartitionLog) -> None:
        for batch in store.batches():
            for record in batch.records:
                try:
                    transactional_id = decode_key(record.key or b"")
                    if transactional_id is not None:
                        self.transactions.load(transactional_id, record.value)
                except ValueError as error:
                    raise CorruptLogError(
                        f"{store.topic}-{store.index} holds a damaged record at offset "
                        f"{record.offset}: {error}",
                        offset=record.offset,
                    ) from error

    def _fence_everybody(self) -> None:
        fenced: list[tuple[str, Txn | None]] = []
        is_behind = self._host.durability is Durability.PROCESS
        for transactional_id, txn in self.transactions.items():
            if txn.state in PREPARED:  # a disk refuses its markers; it is retried
                continue
            if txn.is_two_phase and not is_behind:
                continue
            following = decide_after_power_failure(
                txn,
                is_behind=is_behind,
                now_ms=self._host.now_ms(),
                new_producer_id=self._producer_ids.take,
            )
            assert is_move(txn, following), f"{transactional_id}: {txn} cannot become {following}"
            fenced.append((transactional_id, following))
        self._write_together(fenced)
        for transactional_id, _ in fenced:
            run_blocking(self._finish(transactional_id))


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
            Producer(active.producer_id, active.producer_epoch),
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
    """What a partition answers for not taking a marker."""
    return ErrorCode(error.code) if error.code else ErrorCode.kafka_storage_error


def _as_of_a_batch(code: ErrorCode) -> ErrorCode:
    """Say it as Produce and TxnOffsetCommit do; their clients act on these codes."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator):
        return ErrorCode.kafka_storage_error
    return code
