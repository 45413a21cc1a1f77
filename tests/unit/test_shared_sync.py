"""One pass of fdatasync serves everybody who waited when it began."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from txn.broker.shared_sync import LANES, SharedSync
from txn.errors import StorageError
from txn.storage.memory import MemoryStore


class CountingStore(MemoryStore):
    """A store that counts its syncs, or refuses them."""

    def __init__(self, topic: str, *, is_broken: bool = False) -> None:
        super().__init__(topic, 0)
        self.syncs = 0
        self._is_broken = is_broken

    def sync(self) -> None:
        self.syncs += 1
        if self._is_broken:
            raise StorageError(f"{self.topic} is broken")


async def in_place(calls: Sequence[Callable[[], None]]) -> None:
    await asyncio.sleep(0)
    for call in calls:
        call()


def test_P2_callers_that_wait_together_share_one_pass() -> None:
    store = CountingStore("orders")

    async def many() -> None:
        shared = SharedSync(in_place)
        await asyncio.gather(*(shared.sync([store]) for _ in range(10)))

    asyncio.run(many())
    assert store.syncs == 1


def test_P2_a_caller_that_comes_during_a_pass_is_served_by_the_next_one() -> None:
    store = CountingStore("orders")

    async def late() -> None:
        shared = SharedSync(in_place)
        first = asyncio.ensure_future(shared.sync([store]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.ensure_future(shared.sync([store]))
        await asyncio.gather(first, second)

    asyncio.run(late())
    assert store.syncs == 2


def test_P2_partitions_of_a_pass_are_synced_side_by_side_and_all_are_waited_for() -> None:
    """One after the other each waited for a journal's commit of its own."""
    stores = [CountingStore(f"topic-{number}") for number in range(20)]
    side_by_side = []

    async def counted(calls: Sequence[Callable[[], None]]) -> None:
        side_by_side.append(len(calls))
        await in_place(calls)

    asyncio.run(SharedSync(counted).sync(stores))
    assert [store.syncs for store in stores] == [1] * 20
    assert side_by_side == [LANES]


def test_a_partition_that_cannot_be_synced_fails_only_those_who_wait_for_it() -> None:
    """One deleted topic failed every commit of its pass."""
    good, broken = CountingStore("good"), CountingStore("broken", is_broken=True)

    async def both() -> tuple[BaseException | None, BaseException | None]:
        shared = SharedSync(in_place)
        return await asyncio.gather(
            shared.sync([good]), shared.sync([good, broken]), return_exceptions=True
        )

    fine, failed = asyncio.run(both())
    assert fine is None
    with pytest.raises(StorageError, match="broken is broken"):
        raise failed or AssertionError("nothing failed")
