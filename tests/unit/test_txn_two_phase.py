"""A prepared transaction outlives its client and its time (KIP-939)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import Durability, HangUpError
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.connections import ConnectionUse
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.states import NO_TIMEOUT_MS, Txn, TxnResult, TxnState
from txn.identifiers import LAST_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ADMIT, ASK_TO_JOIN, REFUSE
from txn.security.sessions import Peer
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

P0, P1 = (TOPIC, 0), (TOPIC, 1)
COMMIT, ABORT = TxnResult.COMMIT, TxnResult.ABORT
INVALID_PRODUCER_EPOCH = 47
LONG_MS = 2**32


def replay(coordinator: Any, transactional_id: str, txn: Txn) -> None:
    """Let a coordinator know of an id what no request brought about."""
    shard = coordinator.transactions.of(transactional_id)
    shard.state.transactions.replay((transactional_id, txn))


class Bench:
    """A coordinator that allows two-phase commit."""

    def __init__(self, host: FakeHost | None = None, *, power_failed: bool = False) -> None:
        self.host = host or flights_host()
        self.host.settings["transaction.two.phase.commit.enable"] = True
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.coordinator.recover(power_failed=power_failed, stores=self.host.stores())

    def start(self, **wanted: Any) -> InitProducerIdResult:
        asked = {"is_two_phase": True} | wanted
        shown = asked.pop("shown", None)
        identity = self.coordinator.init_producer_id("pay", 60_000, shown, **asked)
        assert isinstance(identity, InitProducerIdResult)
        return identity

    def prepared(self, *, epoch: int = 0) -> ProducerIdAndEpoch:
        """A client that wrote to two partitions and is gone."""
        producer = self.start().producer
        if epoch:
            replay(self.coordinator, "pay", self.txn()._replace(producer_epoch=epoch))
            producer = ProducerIdAndEpoch(producer.producer_id, epoch)
        for partition in (P0, P1):
            assert self.write(producer, partition, 0, b"a") == ADMIT
        return producer

    def write(
        self, producer: ProducerIdAndEpoch, partition: Any, sequence: int, value: bytes
    ) -> int:
        self.join(producer, partition)
        return self.host.store(*partition).client_append(producer, sequence, value, TV2)[0]

    def join(self, producer: ProducerIdAndEpoch, partition: Any) -> ErrorCode:
        joined = self.coordinator.join(
            "pay", producer.producer_id, producer.producer_epoch, TV2, [partition]
        )
        assert isinstance(joined, dict)
        return ErrorCode(joined[partition])

    def end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult = COMMIT, *, bumps: bool = True
    ) -> InitProducerIdResult:
        identity = self.coordinator.end("pay", producer, outcome, bumps_epoch=bumps)
        assert isinstance(identity, InitProducerIdResult)
        return identity

    def txn(self) -> Txn:
        txn: Txn | None = self.coordinator.transactions.get("pay")
        assert txn is not None
        return txn

    def committed(self) -> list[bytes | None]:
        return [*self.host.store(*P0).committed(), *self.host.store(*P1).committed()]


def crashed(bench: Bench) -> Bench:
    return Bench(bench.host.after_crash())


def as_it_is(bench: Bench) -> Bench:
    return bench


either = pytest.mark.parametrize("then", [as_it_is, crashed])
"""The broker goes on, or is killed and starts again."""


# ---------------------------------------------------------------- time


def test_a_transaction_that_another_system_decides_on_never_times_out() -> None:
    bench = Bench()
    producer = bench.prepared()
    assert bench.txn().timeout_ms == NO_TIMEOUT_MS
    bench.host.advance(LONG_MS)
    after = crashed(bench)
    after.host.advance(LONG_MS)
    assert after.txn().state is TxnState.ONGOING
    assert after.end(producer).code is ErrorCode.NONE
    assert after.committed() == [b"a", b"a"]


def test_two_phase_commit_has_to_be_allowed() -> None:
    bench = Bench()
    bench.host.settings["transaction.two.phase.commit.enable"] = False
    assert bench.start().code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_limit_of_timeouts_does_not_hold_for_what_has_none() -> None:
    bench = Bench()
    identity = bench.coordinator.init_producer_id("pay", 0, None, is_two_phase=True)
    assert isinstance(identity, InitProducerIdResult)
    assert identity.code is ErrorCode.NONE


def test_keeping_an_ordinary_transaction_gives_it_no_less_time() -> None:
    bench = Bench()
    bench.write(bench.start(is_two_phase=False).producer, P0, 0, b"a")
    bench.host.advance(59_000)
    bench.start(keep_prepared=True)
    bench.host.advance(LONG_MS)
    assert bench.txn().state is TxnState.ONGOING


def test_an_ordinary_transaction_that_was_kept_still_times_out() -> None:
    bench = Bench()
    bench.write(bench.start(is_two_phase=False).producer, P0, 0, b"a")
    kept = bench.start(is_two_phase=False, keep_prepared=True)
    bench.host.advance(60_000)
    assert bench.txn().state is TxnState.COMPLETE_ABORT
    assert bench.txn().producer == ProducerIdAndEpoch(kept.producer.producer_id, 2)
    assert bench.end(kept.producer, ABORT).producer == bench.txn().producer


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_P5_who_keeps_a_prepared_transaction_and_is_not_two_phase_has_its_own_time(
    outcome: TxnResult,
) -> None:
    """Its next transaction never timed out, as little as the one that it had kept."""
    bench = Bench()
    bench.prepared()
    client = bench.start(is_two_phase=False, keep_prepared=True).producer
    bench.host.advance(LONG_MS)
    following = bench.end(client, outcome).producer
    assert bench.write(following, P0, 0, b"its own") == ADMIT
    bench.host.advance(60_000)
    assert bench.txn().state is TxnState.COMPLETE_ABORT
    store = bench.host.store(*P0)
    assert store.last_stable_offset == store.log_end_offset


# ---------------------------------------------------------------- taking over


@either
def test_a_kept_transaction_is_named_and_its_client_gets_the_next_epoch(
    then: Callable[[Bench], Bench],
) -> None:
    bench = Bench()
    old = bench.prepared()
    identity = then(bench).start(keep_prepared=True)
    assert identity == InitProducerIdResult(ProducerIdAndEpoch(old.producer_id, 1), ongoing=old)


def test_with_nothing_open_there_is_nothing_to_name() -> None:
    bench = Bench()
    assert bench.start(keep_prepared=True).ongoing == NO_PRODUCER
    assert bench.start(keep_prepared=True).producer.producer_epoch == 1


@either
@pytest.mark.parametrize(("outcome", "seen"), [(COMMIT, [b"a", b"a"]), (ABORT, [])])
def test_P3_whoever_took_over_decides_for_all_partitions(
    outcome: TxnResult, seen: list[bytes], then: Callable[[Bench], Bench]
) -> None:
    bench = Bench()
    bench.prepared()
    client = bench.start(keep_prepared=True).producer
    bench = then(bench)
    following = bench.end(client, outcome)
    assert following.producer == ProducerIdAndEpoch(client.producer_id, client.producer_epoch + 1)
    assert bench.committed() == seen
    assert bench.txn().producer == following.producer
    assert bench.write(following.producer, P0, 0, b"b") == ADMIT
    assert bench.end(following.producer).code is ErrorCode.NONE
    assert bench.host.store(*P0).committed()[-1] == b"b"


@either
def test_a_lost_answer_to_the_end_is_given_again(then: Callable[[Bench], Bench]) -> None:
    bench = Bench()
    bench.prepared()
    client = bench.start(keep_prepared=True).producer
    following = bench.end(client)
    bench = then(bench)
    assert bench.end(client) == following
    assert bench.end(client, ABORT).code is ErrorCode.INVALID_TXN_STATE


def test_taking_over_can_be_repeated() -> None:
    bench = Bench()
    old = bench.prepared()
    first = bench.start(keep_prepared=True)
    second = crashed(bench).start(keep_prepared=True)
    assert first.ongoing == second.ongoing == old
    assert second.producer == ProducerIdAndEpoch(old.producer_id, 2)


def test_version_1_may_end_what_was_kept() -> None:
    bench = Bench()
    bench.prepared()
    client = bench.start(keep_prepared=True).producer
    assert bench.end(client, bumps=False).code is ErrorCode.NONE
    assert bench.committed() == [b"a", b"a"]
    assert bench.txn().producer == client
    assert bench.end(client, bumps=False).code is ErrorCode.NONE


def test_a_plain_start_aborts_what_was_kept() -> None:
    bench = Bench()
    bench.prepared()
    kept = bench.start(keep_prepared=True).producer
    fresh = bench.start()
    assert (fresh.code, fresh.ongoing) == (ErrorCode.NONE, NO_PRODUCER)
    assert fresh.producer.producer_epoch > kept.producer_epoch
    assert bench.committed() == []
    assert bench.end(kept, ABORT).code is ErrorCode.PRODUCER_FENCED


@either
def test_the_last_epoch_is_followed_by_a_new_producer_id(then: Callable[[Bench], Bench]) -> None:
    bench = Bench()
    old = bench.prepared(epoch=LAST_PRODUCER_EPOCH)
    taken_over = bench.start(keep_prepared=True)
    assert taken_over.ongoing == old
    assert taken_over.producer.producer_id != old.producer_id
    assert taken_over.producer.producer_epoch == 0
    bench = then(bench)
    following = bench.end(taken_over.producer)
    assert following.producer == ProducerIdAndEpoch(taken_over.producer.producer_id, 1)
    assert bench.committed() == [b"a", b"a"]
    assert bench.end(taken_over.producer) == following
    assert bench.host.store(*P0).markers() == [(old.producer_id, 32767, True)]


def test_the_client_may_come_to_its_last_epoch_too() -> None:
    bench = Bench()
    old = bench.prepared(epoch=LAST_PRODUCER_EPOCH - 1)
    client = bench.start(keep_prepared=True).producer
    assert client == ProducerIdAndEpoch(old.producer_id, LAST_PRODUCER_EPOCH)
    following = bench.end(client)
    assert following.producer.producer_id != old.producer_id
    assert following.producer.producer_epoch == 0
    bench = crashed(bench)
    assert bench.end(client) == following
    assert bench.start(shown=client).producer == following.producer


# ---------------------------------------------------------------- who is fenced


@either
def test_P7_whoever_prepared_it_is_fenced(then: Callable[[Bench], Bench]) -> None:
    bench = Bench()
    old = bench.prepared()
    client = bench.start(keep_prepared=True).producer
    bench = then(bench)
    assert bench.end(old).code is ErrorCode.PRODUCER_FENCED
    assert bench.join(old, P0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.start(shown=old).code is ErrorCode.PRODUCER_FENCED
    assert bench.end(client).code is ErrorCode.NONE


@either
def test_P7_nothing_gets_into_a_prepared_transaction(then: Callable[[Bench], Bench]) -> None:
    """Neither late requests of its first client, nor those of the new one."""
    bench = Bench()
    old = bench.prepared()
    client = bench.start(keep_prepared=True).producer
    bench = then(bench)
    store = bench.host.store(*P0)
    assert store.client_append(old, 1, b"late", TV2) == (REFUSE, INVALID_PRODUCER_EPOCH)
    assert store.client_append(client, 0, b"early", TV2)[0] == ASK_TO_JOIN
    assert bench.join(client, P0) is ErrorCode.INVALID_TXN_STATE
    assert not bench.coordinator.is_joined("pay", old, P0)
    assert not bench.coordinator.is_joined("pay", client, P0)
    bench.end(client)
    assert bench.committed() == [b"a", b"a"]


def test_P7_an_earlier_take_over_is_fenced_by_a_later_one() -> None:
    bench = Bench()
    bench.prepared()
    first = bench.start(keep_prepared=True).producer
    second = bench.start(keep_prepared=True).producer
    assert bench.end(first).code is ErrorCode.PRODUCER_FENCED
    assert bench.start(shown=first, keep_prepared=True).code is ErrorCode.PRODUCER_FENCED
    assert bench.end(second).code is ErrorCode.NONE


# ---------------------------------------------------------------- power failures


SURE = (Durability.COMMIT, Durability.ALWAYS)


def at_worst(synced: int, written: int) -> int:
    """All that a power failure may take."""
    return synced


async def done(answer: Any) -> Any:
    """An answer that may have to wait for the disk."""
    return await answer if isinstance(answer, Awaitable) else answer


class Prepared:
    """A two-phase client of a broker whose disk takes its time, up to where it has prepared."""

    def __init__(self, durability: Durability, *, is_two_phase: bool = True) -> None:
        self.host = flights_host(durability)
        self.host.settings["transaction.two.phase.commit.enable"] = True
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.coordinator.recover()
        self.is_two_phase = is_two_phase

    async def start(self, **wanted: Any) -> InitProducerIdResult:
        started = self.coordinator.init_producer_id("pay", 60_000, None, **wanted)
        identity: InitProducerIdResult = await done(started)
        return identity

    async def prepare(self) -> ProducerIdAndEpoch:
        producer = (await self.start(is_two_phase=self.is_two_phase)).producer
        for partition in (P0, P1):
            joined = self.coordinator.join("pay", *producer, TV2, [partition])
            assert await done(joined) == {partition: 0}
            store = self.host.store(*partition)
            assert store.client_append(producer, 0, b"a", TV2)[0] == ADMIT
            if self.host.durability is Durability.ALWAYS or producer[0] in self.host.forced:
                await self.host.sync([store])  # as the reactors do before they answer
        return producer

    async def end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult = COMMIT
    ) -> InitProducerIdResult:
        ended = self.coordinator.end("pay", producer, outcome, bumps_epoch=True)
        identity: InitProducerIdResult = await done(ended)
        return identity

    async def settled(self) -> None:
        """The work behind an answer is done."""
        for _ in range(30):
            await asyncio.sleep(0)

    def lose_power(self) -> None:
        self.host = self.host.after_power_failure(at_worst)
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.coordinator.recover(power_failed=True, stores=self.host.stores())

    def txn(self) -> Txn | None:
        txn: Txn | None = self.coordinator.transactions.get("pay")
        return txn

    def committed(self) -> list[bytes | None]:
        return [*self.host.store(*P0).committed(), *self.host.store(*P1).committed()]


@pytest.mark.parametrize("durability", SURE)
@pytest.mark.parametrize("outcome", TxnResult)
def test_P2_what_is_prepared_is_ended_as_decided_whatever_the_power_failure_took(
    durability: Durability, outcome: TxnResult
) -> None:
    """With `durability=commit` its records were in memory alone, and it was aborted."""

    async def run() -> None:
        bench = Prepared(durability)
        producer = await bench.prepare()
        bench.lose_power()
        taken_over = await bench.start(is_two_phase=True, keep_prepared=True)
        assert taken_over.ongoing == producer
        bench.lose_power()
        assert (await bench.end(taken_over.producer, outcome)).code is ErrorCode.NONE
        await bench.settled()
        assert bench.committed() == ([b"a", b"a"] if outcome is COMMIT else [])

    asyncio.run(run())


@pytest.mark.parametrize("durability", SURE)
def test_P2_its_own_client_may_end_it_too_after_a_power_failure(durability: Durability) -> None:
    async def run() -> None:
        bench = Prepared(durability)
        producer = await bench.prepare()
        bench.lose_power()
        assert (await bench.end(producer)).code is ErrorCode.NONE
        assert bench.committed() == [b"a", b"a"]

    asyncio.run(run())


def test_an_ordinary_transaction_forces_nothing_before_its_end() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT, is_two_phase=False)
        producer = (await bench.start()).producer
        bench.host.syncs.clear()
        joined = bench.coordinator.join("pay", *producer, TV2, [P0])
        assert joined == {P0: 0}
        assert bench.host.forced == set()
        assert not bench.coordinator.must_sync_before_answer_of("pay")
        assert bench.host.syncs == []

    asyncio.run(run())


@pytest.mark.parametrize("durability", [Durability.PROCESS, Durability.COMMIT])
def test_batches_are_forced_from_the_beginning_of_a_two_phase_transaction_to_its_end(
    durability: Durability,
) -> None:
    async def run() -> None:
        bench = Prepared(durability)
        forced = [bench.host.forced.copy()]
        producer = await bench.prepare()
        forced.append(bench.host.forced.copy())
        for _ in range(2):
            await bench.end(producer, ABORT)
            await bench.settled()
        forced.append(bench.host.forced)
        open_ones = {producer.producer_id} if durability is Durability.COMMIT else set()
        assert forced == [set(), open_ones, set()]

    asyncio.run(run())


def test_batches_are_forced_no_longer_when_the_producer_id_changes_with_the_end() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT)
        await bench.start(is_two_phase=True)
        txn = bench.txn()
        assert txn is not None
        last = txn._replace(producer_epoch=LAST_PRODUCER_EPOCH)
        replay(bench.coordinator, "pay", last)
        await done(bench.coordinator.join("pay", *last.producer, TV2, [P0]))
        assert bench.host.forced == {last.producer_id}
        following = (await bench.end(last.producer)).producer
        await bench.settled()
        assert following.producer_id != last.producer_id
        assert bench.host.forced == set()

    asyncio.run(run())


def test_batches_are_forced_after_a_restart_in_the_midst_of_a_transaction() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT)
        producer = await bench.prepare()
        left = bench.host.after_crash()
        EagerCalls(coordinator_on(left)).recover()
        assert left.forced == {producer.producer_id}

    asyncio.run(run())


def test_P2_what_a_process_that_promised_less_had_open_is_forced_by_the_next() -> None:
    async def run() -> None:
        bench = Prepared(Durability.PROCESS)
        producer = await bench.prepare()
        bench.host = bench.host.after_crash()
        bench.host.durability = Durability.COMMIT
        bench.coordinator = EagerCalls(coordinator_on(bench.host))
        bench.coordinator.recover()
        bench.lose_power()
        assert (await bench.end(producer)).code is ErrorCode.NONE
        assert bench.committed() == [b"a", b"a"]

    asyncio.run(run())


def test_P2_an_ordinary_transaction_is_on_the_disk_before_another_system_decides_on_it() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT, is_two_phase=False)
        await bench.prepare()
        taken_over = await bench.start(is_two_phase=True, keep_prepared=True)
        bench.lose_power()
        assert (await bench.end(taken_over.producer)).code is ErrorCode.NONE
        assert bench.committed() == [b"a", b"a"]

    asyncio.run(run())


def test_P2_an_ordinary_transaction_that_cannot_be_forced_is_not_handed_over() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT, is_two_phase=False)
        await bench.prepare()
        bench.host.store(*P1).is_unsyncable = True
        refused = await bench.start(is_two_phase=True, keep_prepared=True)
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        txn = bench.txn()
        assert txn is not None
        assert not txn.is_prepared
        assert bench.host.forced == set()
        bench.lose_power()
        assert bench.committed() == []

    asyncio.run(run())


def test_what_cannot_be_handed_over_has_its_batches_forced_no_longer() -> None:
    """Its data was forced and that it is kept could not be written: it times out as it was."""

    async def run() -> None:
        bench = Prepared(Durability.COMMIT, is_two_phase=False)
        await bench.prepare()
        for store in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
            store.is_read_only = True
        refused = await bench.start(is_two_phase=True, keep_prepared=True)
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.host.forced == set()

    asyncio.run(run())


def test_P2_a_disk_that_refuses_puts_a_prepared_commit_off_and_does_not_undo_it() -> None:
    async def run() -> None:
        bench = Prepared(Durability.COMMIT)
        producer = await bench.prepare()
        bench.host.store(*P1).is_unsyncable = True
        assert (await bench.end(producer)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        bench.host = bench.host.after_crash()
        bench.coordinator = EagerCalls(coordinator_on(bench.host))
        bench.coordinator.recover()
        assert (await bench.end(producer)).code is ErrorCode.NONE
        assert bench.committed() == [b"a", b"a"]

    asyncio.run(run())


def test_P2_a_partition_that_joined_is_not_told_of_before_it_is_on_the_disk() -> None:
    """The client asks again after the first sync failed: it is no success either."""

    async def run() -> None:
        bench = Prepared(Durability.COMMIT)
        producer = (await bench.start(is_two_phase=True)).producer
        for store in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
            store.is_unsyncable = True
        for _ in range(2):
            joined = bench.coordinator.add_partitions("pay", producer, [P0])
            assert await done(joined) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ASK_TO_JOIN

    asyncio.run(run())


def test_P3_what_may_have_lost_records_is_aborted_after_a_power_failure() -> None:
    bench = Bench()
    bench.prepared()
    bench.start(keep_prepared=True)
    left = Bench(bench.host.after_power_failure(lambda synced, written: written), power_failed=True)
    assert left.txn().state is TxnState.COMPLETE_ABORT
    assert left.committed() == []


def test_P3_a_late_end_of_what_was_kept_is_known_by_its_connection() -> None:
    # The new owner was not noted with its connection, since the transaction has another identity.
    # Its EndTxn of version 1 could have come late, and ended the next transaction.
    bench = Bench()
    bench.prepared()
    client = bench.start(keep_prepared=True).producer
    use, left = ConnectionUse.TRANSACTION, Peer("127.0.0.1", 1, lambda: True)
    bench.coordinator.hang_up_if_late("pay", client, Peer("127.0.0.1", 2), use)
    assert bench.end(client, bumps=False).code is ErrorCode.NONE
    with pytest.raises(HangUpError):
        bench.coordinator.hang_up_if_late("pay", client, left, use)
