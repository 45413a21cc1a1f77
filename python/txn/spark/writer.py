"""The sink: the parts of a micro-batch or a batch write on the driver and in its tasks.

The calls and their processes (Spark 4.2):

| call | process |
|---|---|
| `begin`, when the writer is made | a planner process, for every batch |
| `write_task` | a Python worker, once per attempt of a task |
| `settle`, from the writer's commit | another planner process, which knows only the messages |
| `recover`, from the writer's abort | the same |

Spark asks whether a task may commit only after its Python function has returned, so `write_task`
makes nothing visible. Spark calls abort also when commit itself failed, so abort must not undo
anything: it settles open transactions exactly as the next start would.

Sources: MicroBatchWrite, WriteToDataSourceV2Exec, PythonStreamingWrite, Spark 4.2.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txn._core import KafkaError
from txn.errors import ConfigError, FencedError
from txn.spark import checkpoint, kafka
from txn.spark.columns import Layout, layout_of, write_batch
from txn.spark.driver import Driver, DriverSettings
from txn.spark.errors import NotPreparedError, RefusedError
from txn.spark.first_contact import await_cluster
from txn.spark.handout import Handout
from txn.spark.identities import OWN
from txn.spark.kafka import connect, forget_client, is_retriable, shared_client
from txn.spark.logs import log
from txn.spark.options import SinkSettings
from txn.spark.progress import (
    BatchStage,
    SkipBatch,
    Slot,
    check_replayed,
    check_skipped,
    judge,
)
from txn.spark.python_worker import begin_task
from txn.spark.sink_identity import (
    check_that_it_does_not_feed_itself,
    disposable,
    for_one_batch,
    is_nameless,
    query_id_of,
    sink_id,
    source_offsets_of,
)
from txn.wire.error_codes import ErrorCode

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Local properties of a streaming query's tasks; the batch id is missing under Spark Connect."""

NO_QUERY: Final = ""
"""A batch write's substitute for the id of a streaming query."""


_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""PySpark 4.0 has none; there only batches are written."""


@dataclass(frozen=True, slots=True)
class Work:
    """The parameters of a task; pickled with the writer."""

    settings: SinkSettings
    layout: Layout
    handout: Handout


@dataclass(frozen=True, slots=True)
class Part(WriterCommitMessage):
    """A task's report: its open transaction, if it wrote rows."""

    task: int
    handout: Handout
    """Whole from task 0, without the spare producers from the others."""
    query: str
    batch: int
    slot: Slot | None
    was_skipped: bool


class StreamWriter(_StreamArrowWriter):  # type: ignore[misc]
    """The writer of one micro-batch. `work` is None where only commit or abort is called."""

    def __init__(self, settings: SinkSettings, work: Work | None) -> None:
        self._settings = settings
        self.work = work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Write the rows of one task and leave its transaction open."""
        begin_task()
        if self.work is None:
            raise RefusedError("the writer of the process that commits was given rows to write")
        context = _task()
        query, batch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
        if query is None or batch is None:
            raise ConfigError(
                "this task does not know which micro-batch it belongs to. Replace "
                "format('txn') by foreachBatch(txn.spark.sink(servers, topic='...', id='...')), "
                "which is told"
            )
        return write_task(self.work, query, int(batch), context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Decide the micro-batch."""
        parts = _parts(messages)
        settle(_named_by(self._settings, parts), parts, None, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Settle open transactions; a batch that was decided stays decided."""
        parts = [message for message in messages or () if isinstance(message, Part)]
        if parts or not is_nameless(self._settings):
            recover(_named_by(self._settings, parts), parts[0].handout if parts else None)


class BatchWriter(DataSourceArrowWriter):
    """The writer of one batch write, or of one micro-batch of `txn.spark.sink`."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Write the rows of one task and leave its transaction open."""
        begin_task()
        context = _task()
        query, batch = _numbered(self.work)
        return write_task(self.work, query, batch, context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the write."""
        settle(self.work.settings, _parts(messages), self.work.handout, _numbered(self.work)[1])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Settle open transactions."""
        recover(self.work.settings, self.work.handout)


def begin_stream(settings: SinkSettings, schema: StructType) -> StreamWriter:
    """Begin a micro-batch; its number is known only to its tasks.

    Raises:
        ConfigError: the columns cannot be written, there is no id, or the query reads its own
            progress.
        RefusedError: the progress belongs to another query.
        UnreachableError: the query is new, and no broker is within reach.
    """
    layout = _layout(settings, schema)
    if is_nameless(settings):
        settings = for_one_batch(settings, f"batch-{uuid.uuid4()}")
    settings = replace(settings, id=sink_id(settings))
    check_that_it_does_not_feed_itself(settings)
    if settings.checkpoint is not None and checkpoint.is_new(settings.checkpoint):
        await_cluster(settings.connection)
    handout = _begin(settings)
    query = checkpoint.query_id(settings.checkpoint) if settings.checkpoint else None
    known = handout.progress
    if query is not None and known is not None and known.query != query:
        judge(known, query, known.batch)  # raises, before any task runs
    return StreamWriter(settings, Work(settings, layout, handout))


def begin_batch(settings: SinkSettings, schema: StructType) -> BatchWriter:
    """Begin a batch write.

    Raises:
        ConfigError: the columns cannot be written, or the query reads its own progress.
        RefusedError: the progress belongs to a streaming query, or contradicts `txn.batch`.
        UnreachableError: no broker is within reach, and no query waits for it.
    """
    layout = _layout(settings, schema)
    if settings.id is None:
        settings = disposable(settings, f"batch-{uuid.uuid4()}")
    check_that_it_does_not_feed_itself(settings)
    if not settings.batch:  # a later one belongs to a query that runs
        await_cluster(settings.connection)
    handout = _begin(settings)
    work = Work(settings, layout, handout)
    query, batch = _numbered(work)
    judge(handout.progress, query, batch, trusts_checkpoint=settings.trusts_checkpoint)
    return BatchWriter(work)


def committer(settings: SinkSettings) -> StreamWriter:
    """A writer for the process that commits: it begins nothing, for that would fence itself."""
    if not is_nameless(settings):
        settings = replace(settings, id=sink_id(settings))
    return StreamWriter(settings, None)


def write_task(
    work: Work, query: str, batch: int, task: int, batches: Iterable[pa.RecordBatch]
) -> Part:
    """Write a task's rows in a transaction of its own, and leave it open.

    A batch that is in the output already is read to its end all the same. A stateful operator
    commits its state when its rows are drained.

    Raises:
        RefusedError: the batch contradicts the progress.
        KafkaError: the rows could not be written; the transaction is aborted.
    """
    handout = work.handout
    plan = judge(handout.progress, query, batch, trusts_checkpoint=work.settings.trusts_checkpoint)
    task_handout = handout if task == 0 else handout.without_spares()
    if isinstance(plan, SkipBatch) or not plan.includes(task):
        for _ in batches:
            pass
        return Part(task, task_handout, query, batch, None, was_skipped=isinstance(plan, SkipBatch))
    slot = None
    for batch_of_rows in batches:
        # The first rows open the transaction: a task without any must not leave one behind.
        if batch_of_rows.num_rows:
            slot = _write_open(work, task, batch_of_rows, batches)
            break
    return Part(task, task_handout, query, batch, slot, was_skipped=False)


def _write_open(
    work: Work, task: int, first: pa.RecordBatch, others: Iterable[pa.RecordBatch]
) -> Slot:
    settings = work.settings
    with kafka.translate_errors("write", settings.connection):
        try:
            return _write_with(shared_client(settings.connection), work, task, first, others)
        except KafkaError as error:
            if kafka.code_of(error) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or is_retriable(error):
                raise
            servers = settings.connection.bootstrap_servers
            raise ConfigError(f"{error.args[0]} (at {servers})", option="topic") from error


def _write_with(
    client: kafka.TransactionalClient,
    work: Work,
    task: int,
    first: pa.RecordBatch,
    others: Iterable[pa.RecordBatch],
) -> Slot:
    settings = work.settings
    identity = OWN.claim(
        client, work.handout, settings.timeout_ms, is_two_phase=settings.is_two_phase
    )
    who = (identity.transactional_id, identity.producer_id, identity.producer_epoch)
    try:
        writer = client.writer(
            *who,
            batch_bytes=settings.batch_bytes,
            compression=settings.compression,
            metadata_max_age_ms=settings.metadata_max_age_ms,
        )
        write_batch(writer, first, work.layout)
        for batch in others:
            if batch.num_rows:
                write_batch(writer, batch, work.layout)
        rows = writer.flush()
    except BaseException as error:
        # A cluster that did not answer in time is not asked again: the driver aborts the open
        # transaction.
        if not (isinstance(error, KafkaError) and is_retriable(error)):
            with suppress(KafkaError):
                client.end_txn(*who, commit=False)
        forget_client(settings.connection)
        raise
    return Slot(task, identity, rows)


def settle(
    settings: SinkSettings, parts: Sequence[Part], handout: Handout | None, batch: int
) -> None:
    """Decide a batch from its tasks' reports, unless it is in the output already.

    Args:
        settings: The requested settings.
        parts: The messages of the tasks; none if the batch had no tasks.
        handout: The identities handed out, if this process has them; else the messages do.
        batch: The number Spark gave it.

    Raises:
        NotPreparedError: the tasks contradict each other or the batch; nothing was decided.
        FencedError, LostError, KafkaError: as `Driver.decide`.
    """
    query = settings.query or NO_QUERY
    if parts:
        first = min(parts, key=lambda part: part.task)
        handout, query = first.handout, first.query
        _check_agreement(parts, handout, query, batch)
    with _driver(settings) as driver:
        if handout is None:
            handout = driver.begin()
            query = query_id_of(settings)
        plan = judge(handout.progress, query, batch, trusts_checkpoint=settings.trusts_checkpoint)
        ends = checkpoint.source_ends(settings.checkpoint, batch) if settings.checkpoint else None
        if isinstance(plan, SkipBatch):
            check_skipped(handout.progress, batch, ends)
            return
        skipped = [part.task for part in parts if part.was_skipped]
        if skipped:
            raise NotPreparedError(
                f"task {skipped[0]} of batch {batch} found it in the output already and wrote "
                "nothing, and its driver did not. Nothing was decided; the batch "
                "will be replayed",
                batch=batch,
            )
        slots = [part.slot for part in parts if part.slot is not None]
        if handout.progress is not None:
            check_replayed(handout.progress, batch, slots)
        driver.decide(
            handout,
            query,
            batch,
            slots,
            group=settings.group,
            source_offsets=source_offsets_of(settings, batch),
            source_ends=ends,
        )


def recover(settings: SinkSettings, handout: Handout | None) -> None:
    """Settle the transactions of a failed batch: decided ones are committed, the rest aborted.

    A driver that was replaced leaves that to its successor. Without its handout it cannot know that
    it was, and takes over.
    """
    with _driver(settings) as driver:
        try:
            driver.begin(handout.token if handout is not None else None)
        except FencedError as error:
            log.info("batch.left_to_successor txn_id=%s reason: %s", sink_id(settings), error)


def _begin(settings: SinkSettings) -> Handout:
    with _driver(settings) as driver:
        return driver.begin()


@contextmanager
def _driver(settings: SinkSettings) -> Iterator[Driver]:
    open_another: Callable[[], Any] = lambda: connect(settings.connection)  # noqa: E731
    try:
        with kafka.translate_errors("settle a batch", settings.connection):
            yield Driver(
                shared_client(settings.connection),
                DriverSettings(
                    id=sink_id(settings),
                    progress_topic=settings.progress_topic,
                    timeout_ms=settings.timeout_ms,
                    margin_ms=settings.margin_ms,
                    on_lost=settings.on_lost,
                    is_disposable=settings.is_disposable,
                ),
                connect=open_another,
            )
    except BaseException:
        forget_client(settings.connection)
        raise


def _layout(settings: SinkSettings, schema: StructType) -> Layout:
    return layout_of(
        [(field.name, field.dataType.simpleString()) for field in schema.fields], settings.topic
    )


def _numbered(work: Work) -> tuple[str, int]:
    """(query, batch) of a batch write: as given, or the next one of its `txn.id`."""
    if work.settings.batch is not None:
        return work.settings.query or NO_QUERY, work.settings.batch
    known = work.handout.progress
    if known is None:
        return NO_QUERY, 0
    if known.state is BatchStage.LOST:
        raise RefusedError(
            f"the last write under this txn.id, number {known.batch}, has lost the rows of tasks "
            f"{[slot.task for slot in known.slots]}, and it is not known whether this write has "
            f"the same rows. If it has, set txn.batch={known.batch}, and only these tasks write. "
            "Otherwise write the rows by other means, and set txn.on.lost=accept for one write",
            known_batch=known.batch,
        )
    return NO_QUERY, known.batch + 1


def _named_by(settings: SinkSettings, parts: Sequence[Part]) -> SinkSettings:
    """The settings with the id under which the tasks wrote, if the query has none."""
    if not is_nameless(settings) or not parts:
        return settings
    return for_one_batch(settings, parts[0].handout.id)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    parts = [message for message in messages if isinstance(message, Part)]
    if len(parts) != len(messages):
        raise NotPreparedError(
            f"Spark commits a batch of {len(messages)} tasks, of which {len(parts)} have reported. "
            "Nothing was decided; the batch will be replayed"
        )
    return parts


def _check_agreement(parts: Sequence[Part], handout: Handout, query: str, batch: int) -> None:
    expected = (handout.token, query, batch)
    for part in parts:
        agreed = (part.handout.token, part.query, part.batch)
        if agreed != expected:
            raise NotPreparedError(
                f"task {part.task} reports for batch {part.batch} of query {part.query!r} under "
                f"{part.handout.token}, and batch {batch} of query {query!r} under "
                f"{handout.token} is to be committed. Nothing was decided; the batch "
                "will be replayed",
                batch=batch,
            )


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("rows are written only by the tasks of a Spark job")
    return context


__all__ = ["BatchWriter", "RefusedError", "StreamWriter", "begin_batch", "begin_stream"]
