"""Producers whose transactions another system decides on (KIP-939, two-phase commit).

A database and a producer together: write, *prepare*, have the database note the decision, end the
transaction. An instance that dies in between leaves its transaction open, for as long as it takes.
The next one takes the transactional id over and keeps the open transaction, commits it if the
database noted that, and aborts it if not.

The database is `Attempt.is_decided`. It fences as the broker does: an instance that was taken
over notes nothing any more.
"""

import random

from sim.clients import (
    INIT_PRODUCER_ID,
    VERSIONS,
    AbortableError,
    ClientsWorld,
    FencedError,
    Script,
    ScriptedTransaction,
    TransactionalProducer,
)
from sim.history import Attempt, Fate, Identity
from txn.identifiers import ProducerIdAndEpoch
from txn.wire.bodies.txn import InitProducerIdRequest
from txn.wire.error_codes import ErrorCode

ENDS_IT_LATER = ("decided", "restart", "leave")
"""Values of `end` for a transaction that its instance leaves open."""


class TwoPhaseProducer(TransactionalProducer):
    """One instance after another; the last ends the open transaction.

    A transaction's `end` is "commit", "abort", "sleep" (decided, and committed only after
    `pause_us`) or "decided" (the instance dies behind the decision). It can also be "restart" (it
    dies before) or "leave" (likewise, and no other transaction follows).
    """

    def __init__(
        self, world: ClientsWorld, script: Script, chance: random.Random, first_number: int = 0
    ) -> None:
        super().__init__(world, script, chance)
        self._first_number = first_number
        """The number of its first transaction."""
        self.versions = {**VERSIONS[2], INIT_PRODUCER_ID: 6}

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        is_initialized = False
        for number, step in enumerate(self.script.transactions, self._first_number):
            try:
                if not is_initialized:
                    await self.initialize(None)
                    is_initialized = True
                await self.transaction(f"{self.name}.{number}", step)
            except FencedError:
                self.give_up()
                is_initialized = False
                if not self.script.comes_back:
                    break
            if step.end in ENDS_IT_LATER:
                self.give_up()
                is_initialized = False
                await self.world.loop.sleep(step.pause_us)
            if step.end == "leave":
                break
        self.give_up()
        await self._settle()

    async def _settle(self) -> None:
        """End the open transaction; against another instance that does the same, too."""
        while True:
            try:
                await self.initialize(None)
            except FencedError:
                await self.back_off()
            else:
                return

    async def initialize(self, shown: ProducerIdAndEpoch | None) -> None:
        """Take the transactional id over, keep the open transaction, and end it as was decided."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.script.timeout_ms,
            enable_two_phase_commit=True,
            keep_prepared_txn=True,
        )
        asked_us = self.world.agenda.now_us
        answer = await self.decided(INIT_PRODUCER_ID, request, lambda a: a.error_code)
        self.initialized_us = self.world.agenda.now_us
        code = answer.error_code
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        self.say(
            f"  {code.name}: {answer.producer_id}/{answer.producer_epoch}, "
            f"open is {ongoing[0]}/{ongoing[1]}"
        )
        if code is not ErrorCode.NONE:
            raise FencedError
        self.take(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        self.history.initialized(self.name, self.script.transactional_id, self.identity, asked_us)
        self.has_lost_end = False
        if ongoing[0] >= 0:
            await self.end_kept(self.attempt_of(ongoing))

    async def end_kept(self, attempt: Attempt) -> None:
        """End the transaction that was open and is kept."""
        await self.end(attempt, is_commit=attempt.is_decided)

    def attempt_of(self, identity: Identity) -> Attempt:
        """The transaction that was written under an identity; under version 1 the last one."""
        return next(each for each in reversed(self.history.attempts) if each.identity == identity)

    def begin(self, name: str) -> Attempt:
        attempt = super().begin(name)
        attempt.is_two_phase = True
        return attempt

    async def transaction(self, name: str, step: ScriptedTransaction) -> Attempt:
        attempt = self.begin(name)
        try:
            await self.write(attempt, step)
        except AbortableError:
            await self.end(attempt, is_commit=False)
        else:
            await self.end_as(attempt, step.end, step.pause_us)
        return attempt

    async def end_as(self, attempt: Attempt, end: str, pause_us: int) -> None:
        """End a transaction, or leave it, as a step says."""
        if end in ("restart", "leave"):
            return
        if end == "abort":
            await self.end(attempt, is_commit=False)
            return
        self._decide(attempt)
        if end == "sleep":
            await self.world.loop.sleep(pause_us)
        if end != "decided":
            await self.end(attempt, is_commit=True)

    def _decide(self, attempt: Attempt) -> None:
        """Have the database note that a transaction is to be committed."""
        if attempt.fate is not Fate.OPEN:
            raise FencedError
        self.say(f"  {attempt.name} is decided")
        attempt.ask_to_commit()
        attempt.is_decided = True

    def was_refused(self, attempt: Attempt, code: ErrorCode) -> None:
        """Another instance may have taken the transaction over; it acts as was decided."""
        if not attempt.is_decided:
            super().was_refused(attempt, code)
