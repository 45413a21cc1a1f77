"""A streaming query without Spark: Spark's promises about batches, and nothing more.

A batch that was started has the same rows when it is started again; which task gets which
row may differ. Batches are numbered without gaps. Only a batch whose commit returned is
over. All of that survives a crash of the driver; processes do not.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark.fake_kafka import FakeKafka
from txn.spark.columns import one_record
from txn.spark.driver import Driver, DriverSettings
from txn.spark.handout import Handout
from txn.spark.identities import OwnIdentities
from txn.spark.kafka import TransactionalClient
from txn.spark.progress import OnLost, SkipBatch, Slot, judge

TIMEOUT_MS = 900_000
OUTPUT = "out"


@dataclass
class FakeWorker:
    """A Python worker process."""

    own: OwnIdentities = field(default_factory=OwnIdentities)
    is_busy: bool = False


class FakeQuery:
    """A query with its checkpoint; `restart` gives the query after a crash."""

    def __init__(
        self,
        cluster: FakeKafka,
        *,
        id: str = "q",
        query: str = "query-1",
        tasks: int = 3,
        seed: int = 0,
        on_lost: OnLost = OnLost.FAIL,
    ) -> None:
        self.cluster = cluster
        self.id = id
        self.query = query
        self.tasks = tasks
        self.on_lost = on_lost
        self.has_losers = True
        self.dice = random.Random(seed)
        self.next_batch = 0
        """The number in the commit log of the checkpoint."""
        self.restart()

    def restart(self) -> None:
        """Forget every process; only the checkpoint and the cluster are left."""
        self.workers = [FakeWorker() for _ in range(self.tasks)]

    def driver(self, client: TransactionalClient | None = None) -> Driver:
        settings = DriverSettings(
            id=self.id,
            progress_topic="__txn_spark",
            timeout_ms=TIMEOUT_MS,
            margin_ms=30_000,
            on_lost=self.on_lost,
        )
        cluster = self.cluster
        return Driver(client or cluster, settings, now_ms=lambda: cluster.now_ms, pause=self._wait)

    def rows(self, batch: int) -> list[bytes]:
        return [f"{batch}-{number}".encode() for number in range(5)]

    def run_batch(self, client: TransactionalClient | None = None) -> bool:
        """Run the next batch through to Spark's commit log; say whether tasks wrote.

        A retry, and a speculative attempt whose message is thrown away, come with it.
        """
        client = client or self.cluster
        batch = self.next_batch
        driver = self.driver(client)
        handout = driver.begin()
        verdict = judge(handout.progress, self.query, batch)
        if not isinstance(verdict, SkipBatch):
            shares = self._shared_out(self.rows(batch))
            tasks = [task for task in range(self.tasks) if verdict.includes(task)]
            slots = [self.attempt(client, handout, task, shares[task]) for task in tasks]
            if self.has_losers:
                loser = self.dice.choice(tasks)
                self.attempt(client, handout, loser, shares[loser])
            driver.decide(
                handout,
                self.query,
                batch,
                [slot for slot in slots if slot is not None],
                group="g",
                source_offsets=[("in", 0, batch + 1)],
            )
        self.next_batch = max(self.next_batch, batch + 1)
        return not isinstance(verdict, SkipBatch)

    def attempt(
        self, client: TransactionalClient, handout: Handout, task: int, rows: Sequence[bytes]
    ) -> Slot | None:
        """One attempt of a task, on any worker."""
        if not rows:
            return None
        worker = self._free_worker()
        worker.is_busy = True
        identity = worker.own.claim(client, handout, TIMEOUT_MS)
        writer = client.writer(
            identity.transactional_id, identity.producer_id, identity.producer_epoch
        )
        for row in rows:
            one_record(writer, OUTPUT, b"k", row)
        slot = Slot(task, identity, writer.flush())
        worker.is_busy = False
        return slot

    def _free_worker(self) -> "FakeWorker":
        """A worker runs one task at a time; one whose task stands still is not given another."""
        free = [worker for worker in self.workers if not worker.is_busy]
        if not free:
            free = [FakeWorker()]
            self.workers += free
        return self.dice.choice(free)

    def written(self) -> list[bytes]:
        """All rows that a read_committed reader finds, sorted."""
        return sorted(value for value in self.cluster.committed(OUTPUT) if value is not None)

    def expected(self, batches: int) -> list[bytes]:
        return sorted(row for batch in range(batches) for row in self.rows(batch))

    def _shared_out(self, rows: list[bytes]) -> list[list[bytes]]:
        shares: list[list[bytes]] = [[] for _ in range(self.tasks)]
        for row in rows:
            self.dice.choice(shares).append(row)
        return shares

    def _wait(self, seconds: float) -> None:
        self.cluster.now_ms += int(seconds * 1000)
