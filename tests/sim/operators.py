"""People with tools: some abort transactions that hold readers back, some delete old records.

The first acts as `kafka-transactions abort`. DescribeProducers lists the open transactions of a
partition, and WriteTxnMarkers ends one there, with its client at work or long gone. It may end only
a transaction that hangs: its records are there and no coordinator knows of it, as bugs of older
brokers left them.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from sim.clients import RETRIABLE, ClientsWorld, Script, ScriptedTransaction, SimClient
from sim.history import Fate, Place
from txn.identifiers import ProducerIdAndEpoch
from txn.wire.bodies.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from txn.wire.bodies.txn_tools import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    ProducerEntry,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from txn.wire.error_codes import ErrorCode

DELETE_RECORDS, WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 21, 27, 61
HANGING: Final = ProducerIdAndEpoch(9_000_000, 3)
"""Whose transaction hangs; the coordinator gave out no such id."""
HANGING_VALUE: Final = b"hanging"


def hanging_places(script: Script) -> tuple[Place, ...]:
    """Where a transaction hangs for this operator to find."""
    if script.kind != "abort":
        return ()
    return tuple(
        place for step in script.transactions if step.end == "hanging" for place, _ in step.writes
    )


class Aborter(SimClient):
    """Ends open transactions on the partitions its script names.

    A step's `end` is "abort" for any open transaction there, "hanging" for hanging ones alone; the
    operator comes back to that until it is gone.
    """

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script.name, chance)
        self.script = script

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        for step in self.script.transactions:
            for place, _ in step.writes:
                if step.end == "hanging":
                    while await self._find_and_abort(place, step):
                        await self.back_off()
                else:
                    await self._find_and_abort(place, step)
            await self.world.loop.sleep(step.pause_us)

    async def _find_and_abort(self, place: Place, step: ScriptedTransaction) -> bool:
        """Abort one of the transactions that are open; False if there is none to abort."""
        found = [
            (ProducerIdAndEpoch(active.producer_id, active.producer_epoch), active)
            for active in await self._producers(place)
            if active.current_txn_start_offset >= 0
        ]
        if step.end == "hanging":
            found = [each for each in found if each[0] == HANGING]
        if not found:
            return False
        producer, active = self.chance.choice(found)
        if any(
            attempt.is_two_phase and attempt.identity[0] == producer.producer_id
            for attempt in self.history.attempts
        ):
            return False  # only the other system knows whether it may be aborted
        attempt = self._attempt_at(place, active.current_txn_start_offset)
        was_open = attempt is not None and attempt.fate is Fate.OPEN
        code = await self._abort(place, producer, max(active.coordinator_epoch, 0))
        if attempt is not None and was_open and code is ErrorCode.NONE:
            attempt.aborted_by_operator()
        return True

    async def _producers(self, place: Place) -> Sequence[ProducerEntry]:
        topic = DescribeProducersTopic(name=place[0], partition_indexes=(place[1],))
        request = DescribeProducersRequest(topics=(topic,))
        while True:
            answer = await self.ask(DESCRIBE_PRODUCERS, 0, request)
            found = answer.topics[0].partitions[0]
            if found.error_code not in RETRIABLE:
                producers: Sequence[ProducerEntry] = found.active_producers
                return producers
            await self.back_off()  # a disk that is full answers so, and lists nobody

    def _attempt_at(self, place: Place, offset: int) -> Any:
        """Whose transaction it is, by the first of its records; None if that was deleted."""
        broker = self.world.broker
        if broker is None or broker.is_dead or broker.node is None or place[0].startswith("__"):
            return None
        fetched = broker.fetch(place, offset, 1, is_committed=False)
        values = [record.value for batch in fetched.batches for record in batch.records]
        return self.history.owner.get(values[0] or b"") if values else None

    async def _abort(
        self, place: Place, producer: ProducerIdAndEpoch, coordinator_epoch: int
    ) -> ErrorCode:
        self.say(
            f"aborts {producer.producer_id}/{producer.producer_epoch} on {place[0]}-{place[1]}"
        )
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=coordinator_epoch,
            topics=(WritableTxnMarkerTopic(name=place[0], partition_indexes=(place[1],)),),
        )
        request = WriteTxnMarkersRequest(markers=(marker,))
        while True:
            answer = await self.ask(WRITE_TXN_MARKERS, 1, request)
            code = ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)
            self.say(f"  {code.name}")
            if code not in RETRIABLE:
                return code
            await self.back_off()


class Deleter(SimClient):
    """Deletes records: up to some offset of each partition its script names, or all there are."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script.name, chance)
        self.script = script

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        for step in self.script.transactions:
            for place, _ in step.writes:
                await self._delete(place)
            await self.world.loop.sleep(step.pause_us)

    async def _delete(self, place: Place) -> None:
        await self.connected()
        broker = self.world.broker
        if broker is None or broker.is_dead or broker.node is None:
            return
        end = broker.storage.logs[place].log_end_offset
        offset = self.chance.choice((-1, self.chance.randint(0, end)))
        self.say(f"DeleteRecords {place[0]}-{place[1]} below {offset}, it ends at {end}")
        partition = DeleteRecordsPartition(partition_index=place[1], offset=offset)
        topic = DeleteRecordsTopic(name=place[0], partitions=(partition,))
        request = DeleteRecordsRequest(topics=(topic,))
        code = None
        while code is None or code in RETRIABLE:
            answer = await self.ask(DELETE_RECORDS, 2, request)
            result = answer.topics[0].partitions[0]
            code = result.error_code
            self.say(f"  {code.name}: {result.low_watermark}")
            if code is ErrorCode.NONE:
                self.history.deleted(place, result.low_watermark)
            else:
                await self.back_off()
