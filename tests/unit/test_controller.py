"""A change of metadata is published once it is on the disk, and not a moment earlier."""

import asyncio
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pytest

from txn.broker.controller import LocalController
from txn.broker.metadata_log import METADATA_TOPIC, MetadataLog, NodeIdentity
from txn.broker.metadata_publisher import MetadataPublisher
from txn.broker.shell import LogStorage
from txn.broker.syncs import Failures, synced
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.metadata.delta import Delta
from txn.metadata.image import TRANSACTIONS_TOPIC, Image
from txn.metadata.record_encoding import decode
from txn.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from txn.storage.base import PartitionLog
from txn.testing import MemoryLog

IDENTITY = NodeIdentity(1, "test", uuid.UUID(int=9))


class Rooms:
    """A storage in which some topics have no room."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def require_room(self, topic: str, indexes: range) -> None:
        if topic in self.taken:
            raise StorageError(f"{topic} is in the way")

    def begin(self, topic: str) -> None:
        """Nothing tells of an earlier topic."""


class Bench:
    """A controller over a log whose syncs wait for the test."""

    def __init__(self) -> None:
        self.log = MemoryLog(METADATA_TOPIC, 0)
        self.publisher = MetadataPublisher(Image())
        self.deltas: list[Delta] = []
        self.publisher.subscribe(lambda image, delta: self.deltas.append(delta))
        self.rooms = Rooms()
        self.passes: list[list[Callable[[Failures], None]]] = []
        self._asked: list[Callable[[Failures], None]] = []
        self.controller = LocalController(
            MetadataLog(self.log, lambda: 0),
            self.publisher,
            cast(LogStorage, self.rooms),
            BrokerSettings({}),
            IDENTITY,
            partial(synced, self.sync_each),
        )

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._begin_pass)
        self._asked.append(done)

    def _begin_pass(self) -> None:
        """One sync for all that asked in this turn of the loop, as the scheduler has it."""
        self.passes.append(self._asked)
        self._asked = []

    async def finish_pass(self, error: StorageError | None = None) -> None:
        """Let the sync that was begun first come to its end."""
        await asyncio.sleep(0)
        for done in self.passes.pop(0):
            done({} if error is None else {id(self.log): error})
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def published(self) -> Collection[str]:
        return self.publisher.image.topics.keys()

    def written(self) -> list[Any]:
        return [
            decode(stored.value or b"") for batch in self.log.batches() for stored in batch.records
        ]


def test_P2_a_topic_is_published_when_its_records_are_on_the_disk() -> None:
    """It was served while its records were in memory: a commit could outlive the topic."""

    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 2, {})
        assert "orders" in bench.controller.image.topics
        assert bench.published == set()
        assert bench.deltas == []
        await bench.finish_pass()
        assert bench.published == {"orders"}
        assert await creation == bench.publisher.image.topics["orders"].topic_id
        (delta,) = bench.deltas
        assert [topic.partition_count for topic in delta.created.values()] == [2]

    asyncio.run(main())


def test_a_change_is_decided_on_earlier_ones_that_are_not_durable() -> None:
    async def main() -> None:
        bench = Bench()
        first = bench.controller.create_topic("orders", 2, {})
        topic = bench.controller.image.topics["orders"]
        second = bench.controller.create_partitions(topic, 5)
        third = bench.controller.alter_configs(TOPIC_RESOURCE, "orders", {"retention.ms": "5"})
        await bench.finish_pass()
        await asyncio.gather(first, second, third)
        published = bench.publisher.image.topics["orders"]
        assert published.partition_count == 5
        assert published.settings == {"retention.ms": "5"}
        assert bench.controller.image is bench.publisher.image

    asyncio.run(main())


def test_a_deleted_topic_is_served_until_its_deletion_is_on_the_disk() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 1, {})
        await bench.finish_pass()
        await creation
        deletion = bench.controller.delete_topic("orders")
        assert "orders" not in bench.controller.image.topics
        assert bench.published == {"orders"}
        await bench.finish_pass()
        await deletion
        assert bench.published == set()
        assert bench.deltas[-1].deleted.keys() == {"orders"}

    asyncio.run(main())


def test_a_change_that_could_not_be_synced_is_refused_and_not_published() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 1, {})
        await bench.finish_pass(StorageError("the disk refuses"))
        with pytest.raises(StorageError, match="the disk refuses"):
            await creation
        assert bench.published == set()

    asyncio.run(main())


def test_a_change_whose_sync_failed_is_published_before_a_later_one_that_is_durable() -> None:
    """Its records are in the log, below those of the later one: a start would read them."""

    async def main() -> None:
        bench = Bench()
        first = bench.controller.create_topic("orders", 1, {})
        await bench.finish_pass(StorageError("the disk refuses"))
        with pytest.raises(StorageError, match="the disk refuses"):
            await first
        second = bench.controller.create_topic("payments", 1, {})
        await bench.finish_pass()
        await second
        assert [list(delta.created) for delta in bench.deltas] == [["orders"], ["payments"]]

    asyncio.run(main())


def test_a_change_that_came_during_a_pass_waits_for_the_next_one() -> None:
    async def main() -> None:
        bench = Bench()
        first = bench.controller.create_topic("orders", 1, {})
        await asyncio.sleep(0)
        second = bench.controller.create_topic("payments", 1, {})
        await bench.finish_pass()
        await first
        assert bench.published == {"orders"}
        await bench.finish_pass()
        await second
        assert bench.published == {"orders", "payments"}

    asyncio.run(main())


def test_a_change_made_on_this_thread_publishes_those_before_it_first() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 1, {})
        block = bench.controller.allocate_producer_ids_now()
        assert bench.published == {"orders"}
        assert bench.publisher.image.next_producer_id == block.stop
        assert await creation == bench.publisher.image.topics["orders"].topic_id
        await bench.finish_pass()  # nothing is published twice
        assert [list(delta.created) for delta in bench.deltas] == [["orders"], []]

    asyncio.run(main())


def test_P2_a_coordinators_topic_is_there_once_it_is_on_the_disk() -> None:
    """Its first use kept everybody waiting for the disk."""

    async def main() -> None:
        bench = Bench()
        creation = asyncio.ensure_future(
            bench.controller.create_coordinator_topic(TRANSACTIONS_TOPIC)
        )
        await asyncio.sleep(0)
        assert not creation.done()
        assert bench.published == set()
        await bench.finish_pass()
        await creation
        assert bench.published == {TRANSACTIONS_TOPIC}

    asyncio.run(main())


def test_a_coordinators_topic_that_is_on_its_way_is_not_made_twice() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic(TRANSACTIONS_TOPIC, 2, {})
        again = asyncio.ensure_future(bench.controller.create_coordinator_topic(TRANSACTIONS_TOPIC))
        await bench.finish_pass()
        await again
        assert await creation == bench.publisher.image.topics[TRANSACTIONS_TOPIC].topic_id
        assert len([each for each in bench.deltas if each.created]) == 1

    asyncio.run(main())


def test_a_topic_without_room_is_refused_and_writes_nothing() -> None:
    async def main() -> None:
        bench = Bench()
        bench.rooms.taken.add("orders")
        with pytest.raises(StorageError, match="in the way"):
            await bench.controller.create_topic("orders", 1, {})
        assert bench.written() == []
        assert bench.controller.image is bench.publisher.image

    asyncio.run(main())


def test_producer_ids_are_never_allocated_twice() -> None:
    async def main() -> None:
        bench = Bench()
        blocks = [bench.controller.allocate_producer_ids_now()]
        waiting = [bench.controller.allocate_producer_ids() for _ in range(3)]
        await bench.finish_pass()
        blocks += await asyncio.gather(*waiting)
        assert len({number for block in blocks for number in block}) == 4_000

    asyncio.run(main())


def test_P7_a_block_of_producer_ids_is_given_out_once_it_is_on_the_disk() -> None:
    async def main() -> None:
        bench = Bench()
        allocation = asyncio.ensure_future(bench.controller.allocate_producer_ids())
        await asyncio.sleep(0)
        assert not allocation.done()
        assert bench.publisher.image.next_producer_id == 0
        await bench.finish_pass()
        assert await allocation == range(1_000)
        assert bench.publisher.image.next_producer_id == 1_000

    asyncio.run(main())


def test_a_block_of_producer_ids_that_could_not_be_synced_is_given_to_nobody() -> None:
    """Its record may be in the log at the next start, or not."""

    async def main() -> None:
        bench = Bench()
        allocation = bench.controller.allocate_producer_ids()
        await bench.finish_pass(StorageError("the disk refuses"))
        with pytest.raises(StorageError, match="the disk refuses"):
            await allocation
        following = bench.controller.allocate_producer_ids()
        await bench.finish_pass()
        assert await following == range(1_000, 2_000)

    asyncio.run(main())


def test_catching_up_waits_for_every_change_before() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 1, {})
        caught_up = asyncio.ensure_future(bench.controller.caught_up())
        await bench.finish_pass()
        await caught_up
        assert bench.published == {"orders"}
        await creation

    asyncio.run(main())


def test_many_changes_are_published_in_turns() -> None:
    """Requests of others waited while a thousand topics of one were published."""

    async def main() -> None:
        bench = Bench()
        creations = [bench.controller.create_topic(f"t{number}", 1, {}) for number in range(100)]
        await bench.finish_pass()
        assert 0 < len(bench.published) < 100
        await asyncio.gather(*creations)
        assert len(bench.published) == 100

    asyncio.run(main())


def test_a_brokers_settings_are_told_apart_from_a_topics() -> None:
    async def main() -> None:
        bench = Bench()
        creation = bench.controller.create_topic("orders", 1, {})
        await bench.finish_pass()
        await creation
        changes: Mapping[str, str | None] = {"log.retention.ms": "5"}
        alteration = bench.controller.alter_configs(BROKER_RESOURCE, "", changes)
        await bench.finish_pass()
        await alteration
        assert bench.deltas[-1] == Delta(has_broker_settings=True)

    asyncio.run(main())
