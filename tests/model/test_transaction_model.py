"""Two producers fight for one transactional id while everything that can fail does.

An *attempt* is one transaction as its client sees it: the records it was told are stored, and the
outcome of its end. The judge knows only the answers of clients and the records of a read_committed
reader:

* an attempt is seen whole or not at all (P3); whole if its commit was answered (P1, P2),
  not at all if it was aborted, or fenced before anybody asked to commit it (P4, P7);
* no record is seen twice (P6);
* the last stable offset never moves back, and in the end nothing holds it (P5);
* the coordinator's state is the replay of its own records (P8).

`Crashes`: one process after another, killed before or after any write, also during
recovery. `PowerFailures`: with `durability=commit`, the machine loses the worst part of the
unsynced logs, at any moment between two syncs.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import RETRY_MS, Durability
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import PREPARED, Txn, TxnResult, TxnState
from txn.coordinator.transaction.store import TxnStore
from txn.identifiers import LAST_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.partition import ADMIT, ASK_TO_JOIN, DUPLICATE
from txn.testing import Crash, FakeHost
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

ID = "pay"
TIMEOUT_MS = 10_000
PARTITIONS: list[TopicPartition] = [(TOPIC, 0), (TOPIC, 1), (OFFSETS_TOPIC, 0)]
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Fate(Enum):
    """The client's knowledge of the end of its attempt."""

    OPEN = "nobody asked to end it"
    ASKED = "a commit was asked for and not answered"
    UNCERTAIN = "a commit was asked for, its answer lost, and a later one was no"
    COMMITTED = "a commit was answered"
    NEVER = "it must never be seen"


@dataclass
class Attempt:
    """One transaction, as its client takes it."""

    fate: Fate = Fate.OPEN
    values: set[bytes] = field(default_factory=set)
    declared: set[TopicPartition] = field(default_factory=set)
    was_interrupted: bool = False

    def give_up(self) -> None:
        """No more requests will come for it."""
        if self.fate is Fate.OPEN:
            self.fate = Fate.NEVER
        elif self.fate is Fate.ASKED:
            self.fate = Fate.UNCERTAIN


class ProducerInstance:
    """One producer instance. It may live on after another took its place."""

    def __init__(self, transaction_version: int) -> None:
        self.transaction_version = transaction_version
        self.producer: ProducerIdAndEpoch | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.attempt = Attempt()
        self.asked: TxnResult | None = None
        """The end it asked for and has no answer to."""

    def take(self, producer: ProducerIdAndEpoch) -> None:
        """Go on with an identity it was given."""
        assert 0 <= producer.producer_epoch <= LAST_PRODUCER_EPOCH
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer

    def give_up(self) -> None:
        """Stop until it is initialized again."""
        self.producer = None
        self.asked = None
        self.attempt.give_up()


def replayed(host: FakeHost) -> dict[str, Txn]:
    """The contents of `__transaction_state`, read from its start."""
    transactions = TxnStore()
    for store in host.topics.get(TRANSACTIONS_TOPIC, []):
        for batch in store.batches():
            for record in batch.records:
                transactional_id = decode_key(record.key or b"")
                assert transactional_id is not None
                txn = None if record.value is None else decode_value(record.value)
                transactions.replay((transactional_id, txn))
    return dict(transactions.items())


def unwritten(host: FakeHost) -> set[TopicPartition]:
    """The partitions that a start does not open: nothing is on the disk."""
    return {place for place in PARTITIONS if not host.store(*place).stored}


class TransactionWorld(RuleBasedStateMachine):
    """The common part of both machines: the clients, the judge, and the promises."""

    durability = Durability.PROCESS

    def __init__(self) -> None:
        super().__init__()
        self.host = flights_host(self.durability)
        self.host.untouched = unwritten(self.host)
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.clients: list[ProducerInstance] = []
        self.attempts: list[Attempt] = []
        self.values = count()
        self.stable: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)

    @initialize(
        versions=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2])),
        epoch=st.sampled_from([None, 32_763, 32_764, 32_765, 32_766]),
    )
    def begin(self, versions: tuple[int, int], epoch: int | None) -> None:
        self.clients = [ProducerInstance(version) for version in versions]
        if epoch is not None:
            self._seed(epoch)
        self.coordinator.recover()

    def _seed(self, producer_epoch: int) -> None:
        """Let the id have a long history, so that its epochs are soon used up."""
        txn = Txn(
            producer_id=7,
            producer_epoch=producer_epoch,
            timeout_ms=TIMEOUT_MS,
            state=TxnState.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            updated_ms=0,
        )
        self.host.create_topic(TRANSACTIONS_TOPIC, 2)
        stores = self.host.coordinator_partitions(TRANSACTIONS_TOPIC)
        store = stores[coordinator_partition(ID, len(stores))]
        store.append([(encode_key(ID), encode_value(txn))], timestamp_ms=0)
        store.sync()

    # ------------------------------------------------------------ what clients do

    def _begin_attempt(self, client: ProducerInstance) -> None:
        client.attempt = Attempt()
        self.attempts.append(client.attempt)

    def _initialized(self, client: ProducerInstance, identity: InitProducerIdResult) -> None:
        client.give_up()
        if identity.code is not ErrorCode.NONE:
            assert identity.code in RETRIABLE
            return
        for attempt in self.attempts:  # the former owner is fenced (P7)
            if attempt.fate is Fate.OPEN:
                attempt.fate = Fate.NEVER
        client.take(identity.producer)
        self._begin_attempt(client)

    def _append(self, client: ProducerInstance, partition: TopicPartition, value: bytes) -> int:
        """Append admitted batches; return the verdict's kind."""
        assert client.producer is not None
        self.host.untouched.discard(partition)  # it is opened, whatever it answers
        kind, _ = self.host.store(*partition).client_append(
            client.producer,
            client.sequences.get(partition, 0),
            value,
            client.transaction_version,
        )
        if kind in (ADMIT, DUPLICATE):
            assert kind == ADMIT, "every value is sent once"
            client.sequences[partition] = client.sequences.get(partition, 0) + 1
            client.attempt.values.add(value)
        return kind

    def _ended(self, client: ProducerInstance, identity: InitProducerIdResult) -> None:
        outcome, client.asked = client.asked, None
        attempt = client.attempt
        if identity.code in RETRIABLE:
            client.asked = outcome
            return
        if identity.code is not ErrorCode.NONE:
            if attempt.fate is Fate.ASKED and not attempt.was_interrupted:
                attempt.fate = Fate.NEVER
            client.give_up()
            return
        attempt.fate = Fate.COMMITTED if outcome is TxnResult.COMMIT else Fate.NEVER
        client.take(identity.producer)
        self._begin_attempt(client)

    def _may_end(self, client: ProducerInstance) -> bool:
        return client.producer is not None and bool(client.attempt.declared)

    # ------------------------------------------------------------ what is promised

    def _seen(self) -> list[bytes | None]:
        return [value for store in self.host.stores() for value in store.committed()]

    def _is_settled(self) -> bool:
        """True if every decision has reached every partition."""
        txn = self.coordinator.transactions.get(ID)
        return txn is None or txn.state not in PREPARED

    @invariant()
    def P3_P4_P7_attempts_are_seen_whole_or_not_at_all(self) -> None:
        seen = self._seen()
        assert len(seen) == len(set(seen)), "a record is seen twice"
        for attempt in self.attempts:
            visible = attempt.values & set(seen)
            if attempt.fate in (Fate.OPEN, Fate.NEVER):
                assert not visible, f"aborted or open, but seen: {attempt}"
            elif attempt.fate is Fate.COMMITTED and self._is_settled():
                assert visible == attempt.values, f"committed, but torn: {attempt}"
            elif self._is_settled():
                assert visible in (set(), attempt.values), f"torn: {attempt}"

    @invariant()
    def P5_the_last_stable_offset_never_moves_back(self) -> None:
        for partition in PARTITIONS:
            stable = self.host.store(*partition).last_stable_offset
            assert stable >= self.stable[partition]
            self.stable[partition] = stable

    @invariant()
    def P8_what_is_known_is_what_replay_gives(self) -> None:
        if self.clients:
            assert dict(self.coordinator.transactions.items()) == replayed(self.host)

    def _end_of_time(self) -> None:
        """Every transaction is over by now, and so is its obstacle."""
        for store in self.host.stores():
            store.is_read_only = False
        self.host.advance(TIMEOUT_MS + RETRY_MS)

    def _nothing_is_held(self) -> None:
        assert self._is_settled()
        for store in self.host.stores():
            assert store.last_stable_offset == store.log_end_offset, "P5: held for ever"
        self.P3_P4_P7_attempts_are_seen_whole_or_not_at_all()


class Crashes(TransactionWorld):
    """Killed before or after any write."""

    def __init__(self) -> None:
        super().__init__()
        self.recovery_crash_at: int | None = None

    # ------------------------------------------------------------ faults

    @rule(
        fault=st.sampled_from(["crash later", "crash now", "a disk refuses", "time passes"]),
        writes=st.integers(0, 12),
        in_recovery=st.none() | st.integers(0, 6),
        partition=st.sampled_from(PARTITIONS),
        by_ms=st.sampled_from([1, RETRY_MS, TIMEOUT_MS // 2, TIMEOUT_MS]),
    )
    def go_wrong(
        self,
        fault: str,
        writes: int,
        in_recovery: int | None,
        partition: TopicPartition,
        by_ms: int,
    ) -> None:
        """One of many faults; one rule, so that transactions get somewhere between them."""
        if fault == "crash later":
            self.host.crash_at = writes
            self.recovery_crash_at = in_recovery
        elif fault == "crash now":
            self._restart()
        elif fault == "a disk refuses":
            store = self.host.store(*partition)
            store.is_read_only = not store.is_read_only
        else:
            self._survive(lambda: self.host.advance(by_ms))

    def _survive(self, act: Callable[[], Any]) -> Any:
        """Do something; a process killed on the way answers None."""
        try:
            return act()
        except Crash:
            self._restart()
            return None

    def _restart(self) -> None:
        self.host = self.host.after_crash()
        self.host.untouched = unwritten(self.host)
        self.host.crash_at, self.recovery_crash_at = self.recovery_crash_at, None
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self._survive(self.coordinator.recover)

    # ------------------------------------------------------------ clients

    @rule(number=st.integers(0, 1), shows=st.booleans())
    def initialize_client(self, number: int, shows: bool) -> None:
        client = self.clients[number]
        shown = client.producer if shows else None
        answer = self._survive(lambda: self.coordinator.init_producer_id(ID, TIMEOUT_MS, shown))
        if answer is None or (shown is not None and answer.code is ErrorCode.PRODUCER_FENCED):
            client.give_up()
        else:
            self._initialized(client, answer)

    @rule(number=st.integers(0, 1), partition=st.sampled_from(PARTITIONS))
    def write(self, number: int, partition: TopicPartition) -> None:
        client = self.clients[number]
        if client.producer is None:
            self.initialize_client(number, shows=False)
        if client.producer is None or client.asked is not None:
            return
        if client.transaction_version == 1 and partition not in client.attempt.declared:
            producer = client.producer
            code = self._survive(lambda: self.coordinator.add_partitions(ID, producer, [partition]))
            if code is None or code in RETRIABLE:
                return
            if code is not ErrorCode.NONE:
                client.give_up()
                return
            client.attempt.declared.add(partition)
        value = b"%d" % next(self.values)
        if self._append(client, partition, value) == ASK_TO_JOIN:
            self._join_and_append(client, partition, value)

    def _join_and_append(
        self, client: ProducerInstance, partition: TopicPartition, value: bytes
    ) -> None:
        producer = client.producer
        assert producer is not None
        codes = self._survive(
            lambda: self.coordinator.join(
                ID,
                producer.producer_id,
                producer.producer_epoch,
                client.transaction_version,
                [partition],
            )
        )
        if codes is None or codes[partition] in RETRIABLE:
            return
        if codes[partition] == 0:
            client.attempt.declared.add(partition)
            assert self._append(client, partition, value) == ADMIT
        else:
            client.give_up()

    @rule(number=st.integers(0, 1), partition=st.sampled_from(PARTITIONS), back=st.integers(1, 3))
    def write_late(self, number: int, partition: TopicPartition, back: int) -> None:
        """A batch of an epoch that is over: wherever it lands, it must never be seen."""
        txn = self.coordinator.transactions.get(ID)
        if txn is None or txn.producer_epoch < back:
            return
        late = ProducerIdAndEpoch(txn.producer_id, txn.producer_epoch - back)
        if late in [client.producer for client in self.clients]:  # it writes for itself
            return
        value = b"late %d" % next(self.values)
        store = self.host.store(*partition)
        sequence = self.clients[number].sequences.get(partition, 0)
        if store.client_append(late, sequence, value, 2)[0] == ASK_TO_JOIN:
            codes = self._survive(
                lambda: self.coordinator.join(
                    ID, late.producer_id, late.producer_epoch, 2, [partition]
                )
            )
            assert codes is None or codes[partition] != 0, "P7: joined with an old epoch"
        assert value not in self._seen()

    @rule(number=st.integers(0, 1), outcome=st.sampled_from(TxnResult))
    def end(self, number: int, outcome: TxnResult) -> None:
        client = self.clients[number]
        if client.asked is None and self._may_end(client):
            client.asked = outcome
            if outcome is TxnResult.COMMIT:
                client.attempt.fate = Fate.ASKED
            self._ask_to_end(client)

    @rule(
        number=st.integers(0, 1),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=4),
    )
    def commit_a_transaction(self, number: int, partitions: list[TopicPartition]) -> None:
        """Everyday work of applications."""
        for partition in partitions:
            self.write(number, partition)
        self.end(number, TxnResult.COMMIT)

    @precondition(lambda self: any(client.asked for client in self.clients))
    @rule()
    def ask_again(self) -> None:
        """The answer was lost: the same request once more."""
        for client in self.clients:
            if client.asked is not None:
                self._ask_to_end(client)

    def _ask_to_end(self, client: ProducerInstance) -> None:
        producer, outcome = client.producer, client.asked
        assert producer is not None
        assert outcome is not None
        answer = self._survive(
            lambda: self.coordinator.end(
                ID, producer, outcome, bumps_epoch=client.transaction_version == 2
            )
        )
        if answer is None:
            client.attempt.was_interrupted = True
        else:
            if answer.code in RETRIABLE:
                client.attempt.was_interrupted = True
            self._ended(client, answer)

    def teardown(self) -> None:
        if not self.clients:
            return
        self.host.crash_at = self.recovery_crash_at = None
        self._end_of_time()
        self._nothing_is_held()
        self._restart()
        self._nothing_is_held()


@dataclass
class Asked:
    """A request on its way."""

    kind: str
    client: ProducerInstance
    answer: "asyncio.Future[Any]"
    partition: TopicPartition | None = None


class PowerFailures(TransactionWorld):
    """With `durability=commit`: unsynced records may be gone."""

    durability = Durability.COMMIT

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.host.unfinished_syncs = []
        self.under_way: list[Asked] = []

    def _in_loop(self, act: Callable[[], Any]) -> Any:
        """Do something on the loop, then let everything go on that can."""

        async def run() -> Any:
            result = act()
            for _ in range(12):
                await asyncio.sleep(0)
            return result

        result = self.loop.run_until_complete(run())
        self._harvest()
        return result

    def _is_busy(self, client: ProducerInstance) -> bool:
        return any(asked.client is client for asked in self.under_way)

    def _ask(
        self, client: ProducerInstance, kind: str, act: Callable[[], Any], **facts: Any
    ) -> None:
        async def answer(result: Any) -> Any:
            return await result if asyncio.isfuture(result) else result

        self._in_loop(
            lambda: self.under_way.append(
                Asked(kind, client, asyncio.ensure_future(answer(act())), **facts)
            )
        )

    def _harvest(self) -> None:
        done = [asked for asked in self.under_way if asked.answer.done()]
        self.under_way = [asked for asked in self.under_way if not asked.answer.done()]
        for asked in done:
            result = asked.answer.result()
            if asked.kind == "init":
                self._initialized(asked.client, result)
            elif asked.kind == "end":
                self._ended(asked.client, result)
            else:
                assert asked.partition is not None
                self._joined(asked.client, asked.partition, result)

    def _joined(self, client: ProducerInstance, partition: TopicPartition, result: Any) -> None:
        code = result if isinstance(result, ErrorCode) else ErrorCode(result[partition])
        if code in RETRIABLE or client.producer is None:
            return
        if code is not ErrorCode.NONE:
            client.give_up()
            return
        client.attempt.declared.add(partition)
        self._append(client, partition, b"%d" % next(self.values))

    # ------------------------------------------------------------ clients

    @rule(number=st.integers(0, 1))
    def initialize_client(self, number: int) -> None:
        client = self.clients[number]
        if not self._is_busy(client):
            client.give_up()
            self._ask(
                client, "init", lambda: self.coordinator.init_producer_id(ID, TIMEOUT_MS, None)
            )

    @rule(number=st.integers(0, 1), partition=st.sampled_from(PARTITIONS))
    def write(self, number: int, partition: TopicPartition) -> None:
        client = self.clients[number]
        if client.producer is None and not self._is_busy(client):
            self.initialize_client(number)
            self._finish_all_syncs()
        producer = client.producer
        if producer is None or client.asked is not None or self._is_busy(client):
            return
        if client.transaction_version == 1 and partition not in client.attempt.declared:
            self._ask(
                client,
                "add",
                lambda: self.coordinator.add_partitions(ID, producer, [partition]),
                partition=partition,
            )
        elif self._append(client, partition, b"%d" % next(self.values)) == ASK_TO_JOIN:
            self._ask(
                client,
                "join",
                lambda: self.coordinator.join(
                    ID,
                    producer.producer_id,
                    producer.producer_epoch,
                    client.transaction_version,
                    [partition],
                ),
                partition=partition,
            )

    @rule(
        number=st.integers(0, 1),
        outcome=st.sampled_from([TxnResult.COMMIT, TxnResult.COMMIT, TxnResult.ABORT]),
        syncs=st.integers(0, 3),
    )
    def end(self, number: int, outcome: TxnResult, syncs: int) -> None:
        """Ask for the end, and let the disk finish some of its syncs."""
        client = self.clients[number]
        if self._is_busy(client) or not self._may_end(client):
            return
        if client.asked is None:
            client.asked = outcome
            if outcome is TxnResult.COMMIT:
                client.attempt.fate = Fate.ASKED
        producer, asked = client.producer, client.asked
        assert producer is not None
        self._ask(
            client,
            "end",
            lambda: self.coordinator.end(
                ID, producer, asked, bumps_epoch=client.transaction_version == 2
            ),
        )
        for _ in range(syncs):
            self._finish_oldest_sync()

    @rule(
        number=st.integers(0, 1),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=4),
        syncs=st.integers(0, 3),
    )
    def commit_a_transaction(
        self, number: int, partitions: list[TopicPartition], syncs: int
    ) -> None:
        """Everyday work of applications."""
        self._finish_all_syncs()
        for partition in partitions:
            self.write(number, partition)
        self.end(number, TxnResult.COMMIT, syncs)

    # ------------------------------------------------------------ the disk and time

    @precondition(lambda self: self.host.unfinished_syncs)
    @rule()
    def finish_a_sync(self) -> None:
        self._finish_oldest_sync()

    def _finish_oldest_sync(self) -> None:
        syncs = self.host.unfinished_syncs
        if syncs:
            self._in_loop(lambda: syncs.pop(0).set_result(None))

    def _finish_all_syncs(self) -> None:
        while self.host.unfinished_syncs:
            self._finish_oldest_sync()

    @rule(
        fault=st.sampled_from(["power", "power", "crash", "time passes"]),
        data=st.data(),
        by_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS]),
    )
    def go_wrong(self, fault: str, data: st.DataObject, by_ms: int) -> None:
        """One of many faults; one rule, so that transactions get somewhere between them."""
        if fault == "power":
            left = self.host.after_power_failure(
                lambda synced, written: data.draw(st.integers(synced, written))
            )
            self._replace(left, power_failed=True)
        elif fault == "crash":
            self._replace(self.host.after_crash(), power_failed=False)
        else:
            self._in_loop(lambda: self.host.advance(by_ms))

    def _replace(self, host: FakeHost, *, power_failed: bool) -> None:
        for asked in self.under_way:
            asked.client.attempt.was_interrupted = True
            if asked.kind == "init":
                asked.client.give_up()
        self._cancel_all()
        self.host = host
        host.untouched = unwritten(host)
        self.coordinator = EagerCalls(coordinator_on(host))
        self.coordinator.recover(power_failed=power_failed, stores=host.stores())
        assert host.refused == {}, "P9: what is whole was taken for damaged"
        host.unfinished_syncs = []
        if power_failed:
            self.stable = {p: min(self.stable[p], self._end_of(p)) for p in PARTITIONS}

    def _end_of(self, partition: TopicPartition) -> int:
        return self.host.store(*partition).log_end_offset

    def teardown(self) -> None:
        try:
            if self.clients:
                self._finish_all_syncs()
                self._in_loop(self._end_of_time)
                self._finish_all_syncs()
                self._nothing_is_held()
                self.lose_everything_unsynced()
        finally:
            self._cancel_all()
            self.loop.close()

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.under_way = []
        self._in_loop(lambda: None)

    def lose_everything_unsynced(self) -> None:
        self._replace(
            self.host.after_power_failure(lambda synced, written: synced), power_failed=True
        )
        self._nothing_is_held()


Crashes.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
PowerFailures.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestCrashes = Crashes.TestCase
TestPowerFailures = PowerFailures.TestCase
