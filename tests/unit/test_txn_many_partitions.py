"""A transaction over many partitions: untouched ones cost nothing, the others give way to others.

EndTxn of 8,000 partitions that nobody had written made 8,000 logs in one step, for 2 to 34 seconds.
No other request, time-out or probe had its turn meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import Durability
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.coordinator.transaction.decide import TV1, TV2
from txn.coordinator.transaction.states import TxnResult
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.partition import ADMIT, ASK_TO_JOIN
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

COUNT: Final = 500
PARTITIONS: Final[list[TopicPartition]] = [(TOPIC, index) for index in range(COUNT)]
WRITTEN: Final[TopicPartition] = (TOPIC, 3)
TIMEOUT_MS: Final = 60_000
CLIENT_V1: Final = 1
"""Origin of a batch."""


def served(host: FakeHost) -> TransactionCoordinator:
    coordinator = coordinator_on(host)
    coordinator.recover(stores=host.stores())
    return coordinator


async def started(coordinator: TransactionCoordinator, name: str) -> ProducerIdAndEpoch:
    return (await coordinator.init_producer_id(name, TIMEOUT_MS, None)).producer


async def ended(
    coordinator: TransactionCoordinator,
    name: str,
    producer: ProducerIdAndEpoch,
    outcome: TxnResult = TxnResult.COMMIT,
) -> ErrorCode:
    return (await coordinator.end(name, producer, outcome, bumps_epoch=False)).code


def markers(host: FakeHost) -> int:
    return sum(len(store.markers()) for store in host.stores())


async def turns_until(is_so: Callable[[], bool]) -> None:
    """Let others have their turns until it is so."""
    for _ in range(10 * COUNT):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never is")


async def open_wide(
    host: FakeHost, coordinator: TransactionCoordinator, *, is_written: bool = True
) -> ProducerIdAndEpoch:
    """A transaction over all partitions, with a record in each."""
    producer = await started(coordinator, "wide")
    assert await coordinator.add_partitions("wide", producer, PARTITIONS) is ErrorCode.NONE
    for partition in PARTITIONS if is_written else ():
        assert host.store(*partition).client_append(producer, 0, b"x", CLIENT_V1)[0] == ADMIT
    return producer


def test_an_untouched_partition_gets_no_log_and_no_marker() -> None:
    async def run(host: FakeHost, outcome: TxnResult) -> None:
        coordinator = served(host)
        host.untouched = set(PARTITIONS)
        producer = await open_wide(host, coordinator, is_written=False)
        assert await ended(coordinator, "wide", producer, outcome) is ErrorCode.NONE
        assert host.untouched == set(PARTITIONS)
        assert markers(host) == 0
        assert host.syncs == [] or all(TOPIC not in dict(places) for places in host.syncs)

    for durability in Durability:
        for outcome in TxnResult:
            asyncio.run(run(flights_host(durability, COUNT), outcome))


def test_P7_a_late_batch_of_an_ended_transaction_finds_an_untouched_partition_closed() -> None:
    async def run() -> None:
        host = flights_host(partitions=COUNT)
        coordinator = served(host)
        host.untouched = set(PARTITIONS)
        producer = await open_wide(host, coordinator, is_written=False)
        await ended(coordinator, "wide", producer)
        log = host.partition(*WRITTEN)
        assert log is not None
        assert log.client_append(producer, 0, b"late", CLIENT_V1)[0] == ASK_TO_JOIN
        joined = await coordinator.join("wide", *producer, TV1, [WRITTEN])
        assert joined == {WRITTEN: ErrorCode.TRANSACTION_ABORTABLE}
        assert log.client_append(producer, 0, b"late", CLIENT_V1)[0] == ASK_TO_JOIN

    asyncio.run(run())


def test_P3_a_partition_that_is_written_after_it_was_added_untouched_gets_its_marker() -> None:
    async def run() -> None:
        host = flights_host(partitions=COUNT)
        coordinator = served(host)
        host.untouched = set(PARTITIONS)
        producer = await open_wide(host, coordinator, is_written=False)
        log = host.partition(*WRITTEN)
        assert log is not None
        assert log.client_append(producer, 0, b"x", CLIENT_V1)[0] == ASK_TO_JOIN
        await coordinator.join("wide", *producer, TV1, [WRITTEN])
        assert log.client_append(producer, 0, b"x", CLIENT_V1)[0] == ADMIT
        await ended(coordinator, "wide", producer)
        assert log.committed() == [b"x"]
        assert markers(host) == 1

    asyncio.run(run())


def test_P5_another_transaction_ends_between_the_markers_of_a_wide_one() -> None:
    async def run(host: FakeHost) -> None:
        coordinator = served(host)
        wide = await open_wide(host, coordinator)
        small = await started(coordinator, "small")
        ending = asyncio.create_task(ended(coordinator, "wide", wide))
        await turns_until(lambda: markers(host) > 0)
        place = [(TOPIC, 0)]
        await coordinator.add_partitions("small", small, place, client_version=TV2)
        assert await ended(coordinator, "small", small) is ErrorCode.NONE
        assert not ending.done()
        assert markers(host) < COUNT
        assert await ending is ErrorCode.NONE
        assert markers(host) == COUNT + 1

    for durability in Durability:
        asyncio.run(run(flights_host(durability, COUNT)))


def test_P3_nothing_enters_a_transaction_whose_markers_are_being_written() -> None:
    """Without a promise for power failures the partitions of an end were not blocked."""

    async def run(host: FakeHost) -> None:
        coordinator = served(host)
        producer = await open_wide(host, coordinator)
        ending = asyncio.create_task(ended(coordinator, "wide", producer))
        await turns_until(lambda: markers(host) > 0)
        unmarked = next(store for store in host.stores()[::-1] if store.stored)
        assert not unmarked.markers()
        assert unmarked.client_append(producer, 1, b"late", CLIENT_V1)[0] != ADMIT
        assert await ending is ErrorCode.NONE
        assert unmarked.committed() == [b"x"]

    for durability in Durability:
        asyncio.run(run(flights_host(durability, COUNT)))


def test_P3_a_coordinator_that_resigns_between_markers_leaves_the_rest_to_the_next() -> None:
    async def run() -> None:
        host = flights_host(partitions=COUNT)
        coordinator = served(host)
        producer = await open_wide(host, coordinator)
        shard = coordinator.transactions.of("wide")
        assert shard is not None
        ending = asyncio.create_task(ended(coordinator, "wide", producer))
        await turns_until(lambda: markers(host) > 0)
        coordinator.resign(shard.index)
        assert await ending is ErrorCode.NOT_COORDINATOR
        left = markers(host)
        assert left < COUNT
        await coordinator.elect(shard.index)
        await turns_until(lambda: all(store.committed() for store in host.topics[TOPIC]))
        assert markers(host) >= COUNT

    asyncio.run(run())


def test_P2_a_start_finishes_a_wide_transaction_and_opens_no_untouched_partition() -> None:
    async def run() -> FakeHost:
        host = flights_host(partitions=COUNT)
        coordinator = served(host)
        host.untouched = set(PARTITIONS)
        producer = await open_wide(host, coordinator, is_written=False)
        log = host.partition(*WRITTEN)
        assert log is not None
        await coordinator.join("wide", *producer, TV1, [WRITTEN])
        assert log.client_append(producer, 0, b"x", CLIENT_V1)[0] == ADMIT
        log.is_read_only = True
        await ended(coordinator, "wide", producer)
        assert markers(host) == 0
        return host.after_crash()

    host = asyncio.run(run())
    host.untouched = {place for place in PARTITIONS if not host.store(*place).stored}
    served(host)
    assert host.store(*WRITTEN).committed() == [b"x"]
    assert len(host.untouched) == COUNT - 1


def test_P5_another_request_is_served_while_many_partitions_are_verified() -> None:
    async def run() -> None:
        host = flights_host(partitions=COUNT)
        coordinator = served(host)
        producer = await open_wide(host, coordinator)
        verified = asyncio.create_task(coordinator.verify_partitions("wide", producer, PARTITIONS))
        await asyncio.sleep(0)
        await started(coordinator, "small")
        assert not verified.done()
        assert await verified == dict.fromkeys(PARTITIONS, ErrorCode.NONE)

    asyncio.run(run())
