"""One pass of fdatasync serves everybody who waited when it began."""

import asyncio
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest

from txn.broker.shared_sync import Failures, SharedSync
from txn.errors import StorageError
from txn.storage.base import PartitionLog
from txn.storage.memory import MemoryLog


class Disk:
    """Syncs in the turn of the loop after the one that asked; refuses some partitions."""

    def __init__(self, *broken: str) -> None:
        self.passes: list[list[str]] = []
        self._broken = broken

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        self.passes.append([store.topic for store in stores])
        refused = [store for store in stores if store.topic in self._broken]
        failures = {id(store): StorageError(f"{store.topic} is broken") for store in refused}
        asyncio.get_running_loop().call_soon(done, failures)


def test_P2_callers_that_wait_together_share_one_pass() -> None:
    disk, store = Disk(), MemoryLog("orders", 0)

    async def many() -> None:
        shared = SharedSync(disk.sync_each)
        await asyncio.gather(*(shared.sync([store]) for _ in range(10)))

    asyncio.run(many())
    assert disk.passes == [["orders"]]


def test_P2_a_caller_that_comes_during_a_pass_is_served_by_the_next_one() -> None:
    disk, store = Disk(), MemoryLog("orders", 0)

    async def late() -> None:
        shared = SharedSync(disk.sync_each)
        first = shared.sync([store])
        await asyncio.sleep(0)
        assert disk.passes == [["orders"]]
        assert not first.done()
        second = shared.sync([store])
        await first
        assert not second.done()
        await second

    asyncio.run(late())
    assert disk.passes == [["orders"], ["orders"]]


def test_P2_all_partitions_of_the_callers_are_in_one_pass() -> None:
    """One after the other each waited for a journal's commit of its own."""
    disk, stores = Disk(), [MemoryLog(f"topic-{number}", 0) for number in range(3)]

    async def both() -> None:
        shared = SharedSync(disk.sync_each)
        await asyncio.gather(shared.sync(stores[:2]), shared.sync(stores[1:]))

    asyncio.run(both())
    assert disk.passes == [["topic-0", "topic-1", "topic-2"]]


def test_a_pass_begins_anew_after_the_last_caller_was_served() -> None:
    disk, store = Disk(), MemoryLog("orders", 0)

    async def twice() -> None:
        shared = SharedSync(disk.sync_each)
        await shared.sync([store])
        await shared.sync([store])

    asyncio.run(twice())
    assert disk.passes == [["orders"], ["orders"]]


def test_a_caller_that_gave_up_is_not_told() -> None:
    disk, store = Disk(), MemoryLog("orders", 0)

    async def given_up() -> None:
        shared = SharedSync(disk.sync_each)
        gone, waiting = shared.sync([store]), shared.sync([store])
        gone.cancel()
        await waiting

    asyncio.run(given_up())


def test_a_partition_that_cannot_be_synced_fails_only_those_who_wait_for_it() -> None:
    """One deleted topic failed every commit of its pass."""
    disk = Disk("broken")
    good, broken = MemoryLog("good", 0), MemoryLog("broken", 0)

    async def both() -> tuple[BaseException | None, BaseException | None]:
        shared = SharedSync(disk.sync_each)
        return await asyncio.gather(
            shared.sync([good]), shared.sync([good, broken]), return_exceptions=True
        )

    fine, failed = asyncio.run(both())
    assert fine is None
    with pytest.raises(StorageError, match="broken is broken"):
        raise failed or AssertionError("nothing failed")


def test_a_pass_that_cannot_begin_fails_those_it_should_have_served_and_no_later_one() -> None:
    """Nobody was told, and every later commit waited for a pass that had never begun."""
    disk, store = Disk(), MemoryLog("orders", 0)
    sync_each = Mock(side_effect=RuntimeError("a bug"))

    async def both() -> None:
        shared = SharedSync(sync_each)
        first, second = shared.sync([store]), shared.sync([store])
        with pytest.raises(StorageError, match="a bug"):
            await first
        with pytest.raises(StorageError, match="a bug"):
            await second
        sync_each.side_effect = disk.sync_each
        await shared.sync([store])

    asyncio.run(both())
    assert disk.passes == [["orders"]]
