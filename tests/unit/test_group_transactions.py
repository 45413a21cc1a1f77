"""Groups and transactions together: both coordinators on one host, syncs that the test finishes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from support.flights import TOPIC, flights_host
from support.sessions import session
from txn.broker.apis.group_offset_fetch import offset_fetch
from txn.broker.committed_offsets import Committer
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.group_shards import GroupShards
from txn.broker.host import RETRY_MS, Context, Durability
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.turns import ITEMS_PER_TURN
from txn.config import BrokerSettings
from txn.coordinator.group.records import OffsetKey, OffsetValue
from txn.coordinator.transaction.states import TxnResult
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC
from txn.testing import FakeHost
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from txn.wire.error_codes import ErrorCode

KEY = OffsetKey("g", TOPIC, 0)


class Both:
    """Both coordinators, wired as the node does."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        for name in (
            "group.initial.rebalance.delay.ms",
            "group.max.size",
            "offsets.retention.check.interval.ms",
            "offsets.retention.minutes",
        ):
            host.settings[name] = BrokerSettings()[name]
        shards = GroupShards.load(host)
        markers = LocalMarkerSender(
            host.partition, shards.on_offsets_marker, shards.on_offsets_refusal
        )
        self.transactions = TransactionCoordinator(host, markers)
        self.transactions.recover()
        self.groups = GroupCoordinator(host, shards, self.transactions, self.transactions)

    async def begin(self) -> ProducerIdAndEpoch:
        identity = await self.transactions.init_producer_id("t", 60_000, None)
        return ProducerIdAndEpoch(identity.producer.producer_id, identity.producer.producer_epoch)

    def commit(
        self, producer: ProducerIdAndEpoch, offset: int, *keys: OffsetKey
    ) -> Coroutine[Any, Any, ErrorCode]:
        value = OffsetValue(offset, -1, "", self.host.now_ms())
        return self.groups.offsets.commit_in_transaction(
            Committer("g"),
            dict.fromkeys(keys or (KEY,), value),
            transactional_id="t",
            producer=ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch),
            transaction_version=2,
        )

    async def end(self, producer: ProducerIdAndEpoch, outcome: TxnResult) -> ProducerIdAndEpoch:
        identity = await self.transactions.end("t", producer, outcome, bumps_epoch=True)
        assert identity.code is ErrorCode.NONE
        return ProducerIdAndEpoch(identity.producer.producer_id, identity.producer.producer_epoch)

    def offset(self) -> int | None:
        stored = self.groups.offsets.committed("g").get((KEY.topic, KEY.partition))
        return None if stored is None else stored.value.offset

    def is_pending(self) -> bool:
        return (KEY.topic, KEY.partition) in self.groups.offsets.of_group("g").pending

    def open_transactions(self) -> int:
        stores = self.host.coordinator_partitions(OFFSETS_TOPIC)
        return sum(store.last_stable_offset < store.log_end_offset for store in stores)


async def settle(host: FakeHost) -> None:
    """Let everything run that can; finish the syncs that are waited for."""
    for _ in range(50):
        await asyncio.sleep(0)
        for sync in host.unfinished_syncs or ():
            if not sync.done():
                sync.set_result(None)


def play(story: Callable[[Both], Coroutine[Any, Any, None]], durability: Durability) -> Both:
    both = Both(flights_host(durability))
    asyncio.run(story(both))
    return both


def test_P3_offsets_are_committed_with_their_transaction() -> None:
    async def story(both: Both) -> None:
        producer = await both.begin()
        assert await both.commit(producer, 5) is ErrorCode.NONE
        assert both.offset() is None
        await both.end(producer, TxnResult.COMMIT)

    both = play(story, Durability.COMMIT)
    assert (both.offset(), both.open_transactions()) == (5, 0)
    assert Both(both.host.after_crash()).offset() == 5


def test_P2_committed_offsets_survive_a_power_failure() -> None:
    async def story(both: Both) -> None:
        producer = await both.begin()
        await both.commit(producer, 5)
        await both.end(producer, TxnResult.COMMIT)

    both = play(story, Durability.COMMIT)
    reopened = Both(both.host.after_power_failure(lambda synced, written: synced))
    assert (reopened.offset(), reopened.open_transactions()) == (5, 0)


def test_P2_a_group_is_told_nothing_older_than_a_commit_whose_marker_the_disk_refuses() -> None:
    """Power took the marker, and the disk was full at the start.

    The group was told the offset before the power failed. Then it was told that there was none,
    until the marker was there; only a request for stable offsets had to wait (seed 3100481).
    """

    async def story(both: Both) -> None:
        producer = await both.begin()
        await both.commit(producer, 5)
        await both.end(producer, TxnResult.COMMIT)

    before = play(story, Durability.COMMIT).host
    refusing = before.after_power_failure(lambda synced, written: synced)
    markers = [log for log in refusing.coordinator_partitions(OFFSETS_TOPIC) if log.stored]
    for log in markers:
        log.is_read_only = True
    reopened = Both(refusing)
    for version in (0, 1, 7, 8):
        assert told(reopened, version) == (ErrorCode.NOT_COORDINATOR, []), version
    for log in markers:
        log.is_read_only = False
    refusing.advance(RETRY_MS)
    for version in (0, 1, 7, 8):
        assert told(reopened, version) == (ErrorCode.NONE, [5]), version


def told(both: Both, version: int) -> tuple[ErrorCode, list[int]]:
    """The error code and the offsets of an OffsetFetch that asks for no stable ones."""
    topic = OffsetFetchTopic(name=KEY.topic, partition_indexes=(KEY.partition,))
    request = OffsetFetchRequest(
        group_id="g",
        topics=(topic,),
        groups=(OffsetFetchGroup(group_id="g", topics=(topic,)),),
    )
    context = Context(ApiKey.OFFSET_FETCH, version, "client", session())
    answer = asyncio.run(offset_fetch(both.groups, request, context))
    group = answer if version < 8 else answer.groups[0]
    partitions = [each for topic in group.topics for each in topic.partitions]
    codes = {each.error_code for each in partitions} | {group.error_code}
    (code,) = codes - {ErrorCode.NONE} or {ErrorCode.NONE}
    return code, [each.committed_offset for each in partitions if not each.error_code]


MANY: Final = range(3 * ITEMS_PER_TURN)
"""Partitions that no answer tells of in one turn."""


@pytest.mark.parametrize("is_stable_only", [False, True])
@pytest.mark.parametrize("is_of_all", [False, True])
def test_P3_a_long_answer_shows_a_transaction_whole(is_of_all: bool, is_stable_only: bool) -> None:
    """The answer gave way to others, and a transaction that ended meanwhile showed in its rest.

    The first partition was at the old offset and the last at the new one, with no error.
    """
    first, last = (OffsetKey("g", TOPIC, index) for index in (MANY[0], MANY[-1]))
    topic = OffsetFetchTopic(name=TOPIC, partition_indexes=tuple(MANY))
    group = OffsetFetchGroup(group_id="g", topics=None if is_of_all else (topic,))
    request = OffsetFetchRequest(groups=(group,), require_stable=is_stable_only)
    context = Context(ApiKey.OFFSET_FETCH, 8, "client", session())
    told = []

    async def story(both: Both) -> None:
        before = OffsetValue(5, -1, "", both.host.now_ms())
        offsets = {OffsetKey("g", TOPIC, index): before for index in MANY}
        await both.groups.offsets.commit(Committer("g"), offsets, knows_group_not_found=True)
        producer = await both.begin()
        asked = asyncio.create_task(offset_fetch(both.groups, request, context))
        await asyncio.sleep(0)  # it gives way for the first time
        assert await both.commit(producer, 42, first, last) is ErrorCode.NONE
        await both.end(producer, TxnResult.COMMIT)
        assert not asked.done(), "the answer took one turn"
        told.append(await asked)

    play(story, Durability.PROCESS)
    offsets = {
        partition.partition_index: partition.committed_offset
        for topic in told[0].groups[0].topics
        for partition in topic.partitions
    }
    assert offsets.keys() == set(MANY)
    assert (offsets[MANY[0]], offsets[MANY[-1]]) in [(5, 5), (42, 42)]


def test_P3_offsets_of_a_transaction_that_timed_out_do_not_count() -> None:
    async def story(both: Both) -> None:
        producer = await both.begin()
        await both.commit(producer, 5)
        both.host.advance(61_000)
        await settle(both.host)

    both = play(story, Durability.PROCESS)
    assert (both.offset(), both.is_pending(), both.open_transactions()) == (
        None,
        False,
        0,
    )


def test_P7_offsets_that_had_to_wait_until_their_transaction_ended_are_not_written() -> None:
    """A join that waits for the disk may be overtaken by the end of its transaction.

    Records appended then come after the marker: they would open a transaction that nobody ends, and
    hold the offsets pending and the last stable offset back for ever.
    """
    codes: list[ErrorCode] = []

    async def story(both: Both) -> None:
        producer = await both.begin()
        both.host.unfinished_syncs = []
        waiting = asyncio.ensure_future(both.commit(producer, 5))
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(both.end(producer, TxnResult.ABORT))
        await asyncio.sleep(0)
        await settle(both.host)
        codes.append(await waiting)
        await ending

    both = play(story, Durability.ALWAYS)
    assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert (both.offset(), both.is_pending(), both.open_transactions()) == (
        None,
        False,
        0,
    )


def test_P7_offsets_of_a_fenced_producer_are_not_written() -> None:
    codes: list[ErrorCode] = []

    async def story(both: Both) -> None:
        zombie = await both.begin()
        await both.begin()
        codes.append(await both.commit(zombie, 5))

    both = play(story, Durability.PROCESS)
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not both.is_pending()
