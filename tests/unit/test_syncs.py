"""Futures of syncs: each ends with its own partitions."""

import asyncio
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest

from txn.broker.syncs import Failures, synced
from txn.errors import StorageError
from txn.storage.base import PartitionLog
from txn.testing import MemoryLog


class FakeDisk:
    """Syncs in the turn of the loop after the one that asked; refuses some partitions."""

    def __init__(self, *broken: str) -> None:
        self.asked: list[list[str]] = []
        self._broken = broken

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        self.asked.append([store.topic for store in stores])
        refused = [store for store in stores if store.topic in self._broken]
        failures = {id(store): StorageError(f"{store.topic} is broken") for store in refused}
        asyncio.get_running_loop().call_soon(done, failures)


def test_P2_all_partitions_of_a_caller_are_synced_side_by_side() -> None:
    """One after the other each waited for a journal's commit of its own."""
    disk, stores = FakeDisk(), [MemoryLog(f"topic-{number}", 0) for number in range(3)]

    async def one() -> None:
        await synced(disk.sync_each, stores)

    asyncio.run(one())
    assert disk.asked == [["topic-0", "topic-1", "topic-2"]]


def test_a_caller_that_gave_up_is_not_told() -> None:
    disk, store = FakeDisk(), MemoryLog("orders", 0)

    async def given_up() -> None:
        gone, waiting = synced(disk.sync_each, [store]), synced(disk.sync_each, [store])
        gone.cancel()
        await waiting

    asyncio.run(given_up())


def test_a_partition_that_cannot_be_synced_fails_only_those_who_wait_for_it() -> None:
    """One deleted topic failed every commit of its pass."""
    disk = FakeDisk("broken")
    good, broken = MemoryLog("good", 0), MemoryLog("broken", 0)

    async def both() -> tuple[BaseException | None, BaseException | None]:
        return await asyncio.gather(
            synced(disk.sync_each, [good]),
            synced(disk.sync_each, [good, broken]),
            return_exceptions=True,
        )

    fine, failed = asyncio.run(both())
    assert fine is None
    with pytest.raises(StorageError, match="broken is broken"):
        raise failed or AssertionError("nothing failed")


def test_a_sync_that_cannot_begin_fails_its_caller_and_no_later_one() -> None:
    """Nobody was told, and every later commit waited for a sync that had never begun."""
    disk, store = FakeDisk(), MemoryLog("orders", 0)
    sync_each = Mock(side_effect=RuntimeError("a bug"))

    async def both() -> None:
        with pytest.raises(StorageError, match="a bug"):
            await synced(sync_each, [store])
        sync_each.side_effect = disk.sync_each
        await synced(sync_each, [store])

    asyncio.run(both())
    assert disk.asked == [["orders"]]
