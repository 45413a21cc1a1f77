"""The start that Spark's Kafka source has noted in a checkpoint, before the query's first batch.

Spark's Kafka source writes down where a new query starts (`<checkpoint>/sources/<n>/0`), and only
then is the first batch planned. A query that is killed in between has that note and no
batch. A source in Python does not know the path of the checkpoint, so it cannot read the note. It
would start where its options say now: at another "latest", without the records in between.

So `start` plans the first batch of such a query itself, in Spark's own log of offsets. The batch
has no rows and ends at the noted start. Spark runs it as one that was planned before a kill, and
the next batch begins at its end. The log takes one batch 0, so of two starts at once one wins. As
the batch is not noted as through, state stores and sinks begin with it as with any other.

It cannot do that where Spark has other inner names, its log of offsets has version 2, or the
checkpoint has no id of a query. Then it refuses the checkpoint, unless the source's
`startingOffsets` are the noted ones.

Under Spark Connect the checkpoint is the server's, and nothing is looked at.

Source: MicroBatchExecution (populateStartOffsets), OffsetSeqLog, Spark 4.2.
"""

import functools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from txn.errors import ConfigError
from txn.spark import checkpoint
from txn.spark.logs import log
from txn.spark.mark import Mark

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
LOG_VERSION: Final = "spark.sql.streaming.offsetLog.formatVersion"
STREAMING: Final = "org.apache.spark.sql.execution.streaming"
CHECKPOINTING: Final = f"{STREAMING}.checkpointing"

_patched: set[type] = set()


class _Source(NamedTuple):
    """A place in a plan where a stream is read."""

    number: int
    """Spark's number of the source, which several places may share."""
    starting: str | None
    """The `startingOffsets` of a source of txn; None: it is another one."""


def check_noted_starts(spark: SparkSession) -> None:
    """Make the `start` of queries on `format("txn")` look for such a note, in this process."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if ".connect." in type(spark).__module__ or DataStreamWriter in _patched:
        return
    _patched.add(DataStreamWriter)
    DataStreamWriter.start = _checked(DataStreamWriter.start)  # type: ignore[method-assign]
    DataStreamWriter.toTable = _checked(DataStreamWriter.toTable)  # type: ignore[method-assign]


def _checked(start: Any) -> Any:
    @functools.wraps(start)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        location, sources = _found(self, options)
        if location is not None and any(source.starting is not None for source in sources):
            _begin_at_notes(self._spark, location, sources)
        return start(self, *arguments, **options)

    return checked


def _begin_at_notes(spark: SparkSession, location: str, sources: Sequence[_Source]) -> None:
    """Plan the first batch of a query that has noted starts and no batch.

    Raises ConfigError: it cannot be planned.
    """
    noted = checkpoint.noted_starts(location)
    wanted = {
        source.number: noted[source.number]
        for source in sources
        if source.number in noted
        and source.starting is not None
        and not _begins_at(source.starting, noted[source.number])
    }
    if not wanted:
        return
    try:
        if int(spark.conf.get(LOG_VERSION, None) or 1) != 1:
            raise ValueError("the log of offsets has another version")
        if checkpoint.query_id(location) is None:
            raise ValueError("it has no metadata, and Spark takes no batch without them")
        is_planned = _plan(spark, location, sources, wanted)
    except Exception as error:  # a Spark whose inner names differ
        log.debug("query.start_not_planned reason: %s", error)
        raise ConfigError(
            f"the checkpoint {location} has no batch yet, only the start that Spark's Kafka source "
            "has noted. A source in Python cannot read it, and records would be left out. Set its "
            "startingOffsets to that start, for as long as the query has no batch: "
            f"{' and '.join(wanted.values())}",
            option="startingOffsets",
        ) from None
    if is_planned:
        log.info(
            "query.start_taken_over checkpoint: %s offsets: %s", location, " ".join(wanted.values())
        )


def _plan(
    spark: SparkSession, location: str, sources: Sequence[_Source], wanted: Mapping[int, str]
) -> bool:
    """Write batch 0, which ends at the noted starts; false if the checkpoint has one meanwhile."""
    jvm: Any = spark._jvm
    streaming, checkpointing = _package(jvm, STREAMING), _package(jvm, CHECKPOINTING)
    option = jvm.scala.Option
    ends = jvm.java.util.ArrayList()
    for source in sources:
        note = wanted.get(source.number)
        if note is None:  # it starts with the next batch
            ends.add(option.empty())
            continue
        end = Mark.from_json(json.loads(note)).as_beginning().to_json()
        ends.add(option.apply(streaming.runtime.SerializedOffset(json.dumps(end))))
    metadata = _metadata(spark, checkpointing.OffsetSeqMetadata)
    offsets = jvm.scala.jdk.javaapi.CollectionConverters.asScala(ends).toSeq()
    batch = checkpointing.OffsetSeq(offsets, option.apply(metadata))
    path = f"{location.rstrip('/')}/offsets"
    return bool(checkpointing.OffsetSeqLog(spark._jsparkSession, path, False).add(0, batch))


def _metadata(spark: SparkSession, kind: Any) -> Any:
    """The settings of a batch that Spark plans now.

    Of the session they have no number of shuffle partitions: that stands in the query's own copy.
    """
    content = json.loads(
        kind.apply(0, time.time_ns() // 1_000_000, spark._jsparkSession.conf()).json()
    )
    for name, value in content["conf"].items():
        if value is None:
            content["conf"][name] = spark.conf.get(name)
    return kind.apply(json.dumps(content))


def _package(jvm: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), jvm)


def _found(writer: Any, options: dict[str, Any]) -> tuple[str | None, list[_Source]]:
    """The checkpoint of a query, and the places of its plan where streams are read."""
    try:
        given = _options(writer, options)
        location = given.get("checkpointlocation")
        directory, name = writer._spark.conf.get(CHECKPOINTS, None), given.get("queryname")
        if location is None and directory and name:
            location = f"{directory.rstrip('/')}/{name}"
        return location, _sources_of(writer._df._jdf.queryExecution().analyzed())
    except Exception as error:  # a Spark whose inner names differ
        log.debug("query.start_not_checked reason: %s", error)
        return None, []


def _sources_of(plan: Any) -> list[_Source]:
    """The places of a plan where streams are read; equal ones share a source, as in Spark."""
    leaves = plan.collectLeaves()
    distinct: list[Any] = []
    found = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if not leaf.isStreaming():
            continue
        number = next((n for n, known in enumerate(distinct) if known.equals(leaf)), len(distinct))
        if number == len(distinct):
            distinct.append(leaf)
        is_of_txn = leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "txn"
        starting = (leaf.extraOptions().get("startingOffsets") or "") if is_of_txn else None
        found.append(_Source(number, starting))
    return found


def _options(writer: Any, others: dict[str, Any]) -> dict[str, str]:
    """The options of a query, with small letters."""
    field = writer._jwrite.getClass().getDeclaredField("extraOptions")
    field.setAccessible(True)
    content = field.get(writer._jwrite)
    given = {}
    for name in ("checkpointLocation", "queryName"):
        found = others.get(name)
        if found is None and content.contains(name):
            found = content.apply(name)
        if found is not None:
            given[name.lower()] = str(found)
    return given


def _begins_at(starting: str, note: str) -> bool:
    """Return True if an option has the noted offsets, perhaps among those of added partitions."""
    try:
        given = json.loads(starting)
    except ValueError:  # earliest, latest
        return False
    return all(
        given.get(topic, {}).get(partition) == offset
        for topic, partitions in json.loads(note).items()
        for partition, offset in partitions.items()
    )
