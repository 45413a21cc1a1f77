"""The progress record of a query's micro-batches: the decision, and its consequences.

Pure: no client, no clock. `driver.py` reads and writes these records. They live in a compacted
topic, keyed by the query's `txn.id`, and are written only inside transactions of the query's
driver. So a driver that was replaced can write none, by any action.

    DECIDED   these transactions of tasks are to be committed: the commit point of a batch
    DONE      all of them are committed; their producers may be used again
    LOST      some were aborted by their timeout; the batch has to run again for these tasks

A record replaces the one before it. No producer identity of a batch is handed out again before its
DONE record is written. So committing the transactions of a DECIDED record over and over gives the
same answer each time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from txn.counts import counted
from txn.spark.errors import NotPreparedError, RefusedError
from txn.spark.logs import log

VERSION: Final = 1
"""Version of the JSON; a reader refuses a newer one."""

SPARE_BATCHES_MAX: Final = 8
"""A producer that this many batches did not use is dropped: its process is most likely gone."""

SPARES_MAX: Final = 2_000
"""More are not kept, at some 60 bytes each: the record has to stay far below a megabyte."""


@dataclass(frozen=True, slots=True)
class TransactionIdentity:
    """A producer as the transaction coordinator knows it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The open transaction of one task, written and acknowledged, waiting for the decision."""

    task: int
    """The number of Spark's partition."""
    identity: TransactionIdentity
    rows: int


@dataclass(frozen=True, slots=True)
class Spare:
    """A producer whose last transaction has ended; only the process that made it may use it."""

    identity: TransactionIdentity
    idle: int
    """Number of batches for which it has not been used."""


class OnLost(Enum):
    """The option `txn.on.lost`: the next step when decided transactions are gone."""

    FAIL = "fail"
    REPLAY = "replay"
    """Their tasks write again."""
    ACCEPT = "accept"
    """Their rows are in the output by other means, or are not wanted: go on."""


class BatchStage(Enum):
    """The stage of a record's batch."""

    DECIDED = "decided"
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest record of one `txn.id`."""

    state: BatchStage
    query: str
    """The id in Spark's checkpoint; empty for batch writes."""
    batch: int
    slots: tuple[Slot, ...]
    """DECIDED: the transactions to commit.

    LOST: the transactions that could not be committed. DONE: empty.
    """
    spares: tuple[Spare, ...]
    rows: int
    written_ms: int
    source_ends: str | None = None
    """A digest of where the batch's sources end; None where the checkpoint could not be read."""

    def to_json(self) -> bytes:
        """The record's value."""
        return json.dumps(
            {
                "version": VERSION,
                "state": self.state.value,
                "query": self.query,
                "batch": self.batch,
                "rows": self.rows,
                "written_ms": self.written_ms,
                "source_ends": self.source_ends,
                "slots": [[slot.task, *_texts(slot.identity), slot.rows] for slot in self.slots],
                "spares": [[*_texts(spare.identity), spare.idle] for spare in self.spares],
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def from_json(value: bytes) -> "Progress":
        """Read a record's value.

        Raises:
            RefusedError: it is not a record of this version.
        """
        try:
            fields = json.loads(value)
            if fields["version"] != VERSION:
                raise ValueError(f"version {fields['version']}")
            return _progress(fields)
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(
                f"a progress record cannot be read ({error!r}): it was written by another version "
                "of txn, or by something else. Upgrade txn, or set another txn.progress.topic",
            ) from error


def _texts(identity: TransactionIdentity) -> tuple[str, int, int]:
    return identity.transactional_id, identity.producer_id, identity.producer_epoch


def _progress(fields: Mapping[str, Any]) -> Progress:
    return Progress(
        state=BatchStage(fields["state"]),
        query=fields["query"],
        batch=fields["batch"],
        slots=tuple(
            Slot(task, TransactionIdentity(name, producer_id, epoch), rows)
            for task, name, producer_id, epoch, rows in fields["slots"]
        ),
        spares=tuple(
            Spare(TransactionIdentity(name, producer_id, epoch), idle)
            for name, producer_id, epoch, idle in fields["spares"]
        ),
        rows=fields["rows"],
        written_ms=fields["written_ms"],
        source_ends=fields.get("source_ends"),  # older records have none
    )


@dataclass(frozen=True, slots=True)
class SkipBatch:
    """The batch is in the output already: read its rows to the end and write none."""


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Write the batch: all tasks, or only those whose transactions were lost."""

    tasks: frozenset[int] | None = None

    def includes(self, task: int) -> bool:
        """Return True if this task writes."""
        return self.tasks is None or task in self.tasks


BatchPlan = SkipBatch | WriteBatch


def judge(
    progress: Progress | None, query: str, batch: int, *, trusts_checkpoint: bool = False
) -> BatchPlan:
    """Return what to do with a micro-batch that Spark has started.

    Args:
        progress: The newest record, which must not be DECIDED: that is finished first.
        query: The id in the checkpoint of the query that runs.
        batch: The number Spark gave the batch.
        trusts_checkpoint: Go on when the checkpoint has batches and there is no record.

    Raises:
        RefusedError: checkpoint and progress contradict each other.
    """
    if progress is None:
        if batch == 0 or trusts_checkpoint:
            return WriteBatch()
        raise RefusedError(
            f"the checkpoint has {counted(batch, 'earlier batch', 'earlier batches')}, and the "
            f"sink has no record of {'it: it is' if batch == 1 else 'them: they are'} from "
            'format("kafka"), or the progress topic was lost, or txn.id or txn.progress.topic was '
            "changed. If all earlier rows are in the output, set "
            "txn.on.missing.progress=trust-checkpoint for one start",
            batch=batch,
        )
    if (
        progress.state is BatchStage.DECIDED
    ):  # `Driver.begin` finishes it before it hands anything out
        raise RefusedError(
            f"batch {progress.batch} is decided and its transactions are not committed yet",
            batch=batch,
        )
    if progress.query != query:
        raise RefusedError(
            f"this query is {query or 'a batch write'}, but the progress under its txn.id is that "
            f"of {progress.query or 'batch writes'}, at batch {progress.batch}: the checkpoint was "
            "removed, or two queries share a txn.id. Its batches would be skipped as if they were "
            "in the output. Give the new query a txn.id of its own. With "
            "startingOffsets=earliest this writes all rows a second time: delete the output first "
            "with examples/spark/reset.py, write into a new topic, or start from "
            "txn.spark.offsets",
            query=query,
            known_query=progress.query,
        )
    if progress.state is BatchStage.LOST and batch == progress.batch:
        return WriteBatch(frozenset(slot.task for slot in progress.slots))
    if batch <= progress.batch:
        return SkipBatch()
    if batch == progress.batch + 1 and progress.state is BatchStage.DONE:
        return WriteBatch()
    raise RefusedError(
        f"batch {batch} was started, but the last one on record is {progress.batch}, which is "
        f"{progress.state.value}: the checkpoint is ahead of the progress topic. If the batches in "
        'between were written by format("kafka"), set a new txn.id, and for one start '
        "txn.on.missing.progress=trust-checkpoint. Otherwise their rows are missing: restore the "
        "progress topic, or start from a copy of the checkpoint",
        batch=batch,
        known_batch=progress.batch,
    )


def check_skipped(progress: Progress | None, batch: int, source_ends: str | None) -> None:
    """Check that a batch that is skipped is the one in the output.

    Spark runs only the newest batch again, with the same ends. An older checkpoint lets it plan
    batches anew under numbers that were used, and these may hold rows that are not in the output.
    Offsets never go back, so it is enough to compare the newest.

    Args:
        progress: The newest record.
        batch: The number of the skipped batch.
        source_ends: A digest of where its sources end, if the checkpoint has them.

    Raises:
        RefusedError: the batch ends elsewhere.
    """
    if progress is None or batch > progress.batch:
        return
    if batch < progress.batch:
        log.warning(
            "batch.skipped query=%s batch=%s newest=%s: the checkpoint is older than the output",
            *(progress.query, batch, progress.batch),
        )
    elif None not in (source_ends, progress.source_ends) and source_ends != progress.source_ends:
        raise RefusedError(
            f"batch {batch} is in the output already, and it ended at other offsets than this one: "
            "the checkpoint was brought back from an earlier time, and its batch was planned anew. "
            "To skip it would lose rows, to write it would repeat some. Bring the newest "
            "checkpoint back, or start with a new checkpoint, a new txn.id and startingOffsets at "
            "the end of the output (of a query with txn.group, txn.spark.offsets tells them)",
            batch=batch,
            known_batch=progress.batch,
        )


def check_replayed(progress: Progress, batch: int, slots: Sequence[Slot]) -> None:
    """Check that a replay has written as many rows as were lost, task by task.

    Raises:
        NotPreparedError: it has not; nothing was decided.
    """
    if progress.state is not BatchStage.LOST or batch != progress.batch:
        return
    lost = {slot.task: slot.rows for slot in progress.slots}
    written = {slot.task: slot.rows for slot in slots}
    if written != lost:
        raise NotPreparedError(
            f"batch {batch} has lost rows (task: rows) {lost}, and now its tasks wrote {written}: "
            "the batch does not give every task the same rows again. Nothing was decided. Write "
            "the rows by other means, and start once with txn.on.lost=accept",
            batch=batch,
        )


def spares_after(
    before: Sequence[Spare], used: Sequence[Slot], next_identities: Sequence[TransactionIdentity]
) -> tuple[Spare, ...]:
    """The producers to hand out after a batch.

    Args:
        before: The identities handed out for it.
        used: The transactions that were committed.
        next_identities: The identities of those producers from now on.
    """
    busy = {slot.identity.transactional_id for slot in used}
    kept = [
        replace(spare, idle=spare.idle + 1)
        for spare in before
        if spare.identity.transactional_id not in busy and spare.idle < SPARE_BATCHES_MAX
    ]
    fresh = [Spare(identity, 0) for identity in next_identities]
    return tuple(sorted(fresh + kept, key=lambda spare: spare.idle)[:SPARES_MAX])
