"""Clients that come to two-phase commit (KIP-939) while a transaction is open.

The first instances are ordinary ones, of either version. The last of them leaves a transaction
open, and the first with two-phase commit keeps it. From the answer to its InitProducerId on another
system may decide on it. Requests that the ordinary instance still has under way come too late
then: it gets nothing into the transaction and does not end it.

No ordinary instance ever comes again: it would abort the prepared transaction, as it should.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sim.broker import PRODUCE, Produce
from sim.clients import (
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AbortableError,
    ClientsWorld,
    Script,
    ScriptedTransaction,
    SimClient,
    TransactionalProducer,
)
from sim.copiers import add_offsets, commit_offsets, offsets_in, request_to_commit
from sim.history import Attempt, Fate, Identity, Place
from sim.network import DisconnectedError, NetworkFault
from sim.two_phase import TwoPhaseProducer
from txn.identifiers import ProducerIdAndEpoch
from txn.storage.base import StoredBatch

LEFT = ("written", "writing", "adding", "more", "offsets", "committing", "aborting")
"""Values of `ScriptedTransaction.left`: how the ordinary instance leaves its last transaction.

    written      all of it was acknowledged
    writing      all of it is under way
    adding       an AddPartitionsToTxn is under way (version 1)
    more         all of it was acknowledged; what the instance writes on is under way, and gets
                 into the decided transaction only if it came before the next instance
    offsets      the same, of offsets that it commits for a group
    committing   its commit is under way
    aborting     its abort is

The last of these requests is late. A connection holds it back, or the instance was stopped for a
while, so that it comes over a new one. "adding" and "more" are about the step's last write.
"""
PAUSES_US = (0, 0, 1_000, 20_000, 400_000, 900_000)
"""Time until the next instance comes; the longest is longer than a transaction may be open."""


def offsets_place(version: int) -> Place:
    """Partition of which the client of a version commits offsets; copiers do of others."""
    return "sink", version - 1


class Upgrade(SimClient):
    """Ordinary instances up to the step that says how it is left, then those of another kind."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script.name, chance)
        self.script = script

    async def run(self) -> None:
        steps = self.script.transactions
        count = next((number for number, step in enumerate(steps, 1) if step.left), len(steps))
        kind = "tv" + self.script.kind[-1]
        script = replace(self.script, kind=kind, transactions=steps[:count])
        before = OrdinaryProducer(self.world, script, self.chance)
        await before.run()
        await self.world.loop.sleep(self.chance.choice(PAUSES_US))
        script = replace(self.script, start_us=0, transactions=steps[count - 1 :])
        if before.left is None:  # it was fenced before, by the time
            script = replace(script, transactions=steps[count:])
            await TwoPhaseProducer(self.world, script, self.chance, count).run()
        else:
            await Heir(self.world, script, self.chance, count - 1, before).run()


class OrdinaryProducer(TransactionalProducer):
    """The instances before; the last leaves a transaction open."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script, chance)
        self.left: Attempt | None = None
        self.more: Attempt | None = None
        """The batches that it writes after it has left the transaction."""
        self.is_whole = False
        """All batches of the transaction that it left were acknowledged."""

    def begin(self, name: str) -> Attempt:
        attempt = super().begin(name)
        attempt.is_two_phase = True
        return attempt

    def fault_of(self, key: int, request: Any) -> NetworkFault | None:
        """None of its starts comes late: it would abort a transaction prepared by then."""
        fault = super().fault_of(key, request)
        is_start = key == INIT_PRODUCER_ID and request.producer_id < 0
        is_late = fault is not None and fault.kind == "late"
        return replace(fault, kind="lost") if fault and is_start and is_late else fault

    async def transaction(self, name: str, step: ScriptedTransaction) -> Attempt:
        if not step.left:
            return await super().transaction(name, step)
        attempt = self.begin(name)
        with suppress(AbortableError):
            await self._leave(attempt, step)
        self.say(f"  leaves {name}")
        self.left, self.attempt = attempt, None
        return attempt

    async def _leave(self, attempt: Attempt, step: ScriptedTransaction) -> None:
        if step.left == "writing":
            await self._leave_writing(attempt, step)
            return
        has_last = step.left not in ("adding", "more")
        await self.write(attempt, step if has_last else replace(step, writes=step.writes[:-1]))
        self.is_whole = True
        match step.left:
            case "offsets":
                await self._leave_with_offsets(attempt)
            case "adding":
                await self._send_late(ADD_PARTITIONS, self.request_to_add(step.writes[-1][0]))
            case "more":
                more = self.more = self.begin(f"{attempt.name}+")
                (batch,) = await self.batches_of(more, replace(step, writes=step.writes[-1:]))
                request = Produce(self.transactional_id, self.producer, (batch,))
                await self._send_late(PRODUCE, request)
            case "committing":
                attempt.ask_to_commit()
                await self._send_late(END_TXN, self.request_to_end(is_commit=True))
            case "aborting":
                await self._send_late(END_TXN, self.request_to_end(is_commit=False))

    async def _leave_writing(self, attempt: Attempt, step: ScriptedTransaction) -> None:
        *batches, last = await self.batches_of(attempt, step)
        connection = await self.connected()
        for batch in batches:
            self.send_over(connection, batch)
        await self._send_late(PRODUCE, Produce(self.transactional_id, self.producer, (last,)))

    async def _leave_with_offsets(self, attempt: Attempt) -> None:
        self.is_whole = False
        await add_offsets(self)
        place = offsets_place(self.version)
        attempt.offsets[place] = 1
        await commit_offsets(self, request_to_commit(self, attempt.offsets))
        self.is_whole = True
        more = self.more = self.begin(f"{attempt.name}+")
        more.offsets[place] = 2
        await self._send_late(TXN_OFFSET_COMMIT, request_to_commit(self, more.offsets))

    async def _send_late(self, key: int, request: Any) -> None:
        """Leave a request under way, or come to itself again after a while and send it then."""
        delay_us = self.chance.choice((0, 1_000, 100_000))
        if self.chance.random() < 0.5:
            connection = await self.connected()
            fault = NetworkFault(self.name, 0, "late", delay_us)
            self._tell_of(key, request, fault)
            connection.request(key, self.versions[key], request, fault)
        else:
            delay_us += self.chance.choice((0, 500_000, 1_500_000))
            self.world.loop.create_task(self._send_after(delay_us, key, request))

    async def _send_after(self, delay_us: int, key: int, request: Any) -> None:
        await self.world.loop.sleep(delay_us)
        connection = await self.connected()
        self._tell_of(key, request, None)
        with suppress(DisconnectedError):
            await connection.request(key, self.versions[key], request, None)


class Heir(TwoPhaseProducer):
    """The instances with two-phase commit; the first begins by finding the open transaction."""

    def __init__(
        self,
        world: ClientsWorld,
        script: Script,
        chance: random.Random,
        first_number: int,
        before: OrdinaryProducer,
    ) -> None:
        super().__init__(world, script, chance, first_number)
        assert before.left is not None, "there is something to take over"
        self._before = before
        self._left = before.left
        self._is_first = True

    async def initialize(self, shown: ProducerIdAndEpoch | None) -> None:
        try:
            await super().initialize(shown)
            if self._is_first and self.attempt is None:
                self._left.give_up()  # nothing was open any more
        finally:
            self._is_first = False

    def attempt_of(self, identity: Identity) -> Attempt:
        return self._left if identity == self._left.identity else super().attempt_of(identity)

    async def end_kept(self, attempt: Attempt) -> None:
        if not self._is_first:
            await super().end_kept(attempt)
            return
        self.attempt = attempt
        attempt.found_open()
        if self._before.more is not None:
            self._judge(self._before.more)

    def _judge(self, more: Attempt) -> None:
        """The later batches may be shown if they are in the log by now, else never."""
        if more.values.keys() <= self._values() and more.offsets.items() <= self._offsets():
            more.fate = Fate.UNCERTAIN
        else:
            more.was_fenced = True

    def _values(self) -> set[bytes | None]:
        return {record.value for batch in self._stored() for record in batch.records}

    def _offsets(self) -> set[tuple[Place, int]]:
        batches = self._stored("__consumer_offsets")
        return {(place, offset) for batch in batches for place, _, offset in offsets_in(batch)}

    def _stored(self, topic: str | None = None) -> Iterator[StoredBatch]:
        """Records of the logs, or of those of one topic."""
        assert self.world.broker is not None, "it has answered"
        for place, log in self.world.broker.storage.logs.items():
            if topic in (None, place[0]):
                yield from log.stored

    async def transaction(self, name: str, step: ScriptedTransaction) -> Attempt:
        if not step.left:
            return await super().transaction(name, step)
        if self.attempt is not None:
            is_to_abort = not self._before.is_whole and step.end not in ("restart", "leave")
            await self.end_as(self._left, "abort" if is_to_abort else step.end, step.pause_us)
        return self._left
