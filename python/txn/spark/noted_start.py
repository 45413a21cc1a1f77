"""The start that Spark's Kafka source has noted in a checkpoint, before the query's first batch.

Spark's Kafka source writes down where a new query starts (`<checkpoint>/sources/<n>/0`), and only
then is the first batch planned. A query that is killed in between has that note X
source in Python is not told the place of the checkpoint, so it cannot read the note. It would start
where its options say now: at another "latest", without the records in between. So `start` refuses
such a checkpoint, unless the source's `startingOffsets` are the noted ones.

Under Spark Connect the checkpoint is the server's, and nothing is looked at.
"""

import functools
import json
from typing import Any

from pyspark.sql import SparkSession

from txn.errors import ConfigError
from txn.spark import checkpoint
from txn.spark.logs import log

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

_patched: set[type] = set()


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
        location, starts = _found(self, options)
        noted = checkpoint.noted_starts(location) if location and starts else []
        for note in noted:
            if not any(_begins_at(given, note) for given in starts):
                raise ConfigError(
                    f"the checkpoint {location} has no batch yet, only the start that Spark's "
                    "Kafka source has noted. A source in Python cannot read it, and records would "
                    "be left out. Set its startingOffsets to that start, for as long as the query "
                    f"has no batch: {note}",
                    option="startingOffsets",
                )
        return start(self, *arguments, **options)

    return checked


def _found(writer: Any, options: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The checkpoint of a query, and the startingOffsets of its sources, if all are txn's."""
    try:
        given = _options(writer, options)
        location = given.get("checkpointlocation")
        directory, name = writer._spark.conf.get(CHECKPOINTS, None), given.get("queryname")
        if location is None and directory and name:
            location = f"{directory.rstrip('/')}/{name}"
        leaves = writer._df._jdf.queryExecution().analyzed().collectLeaves()
        sources = [leaves.apply(number) for number in range(leaves.size())]
        streams = [source for source in sources if source.nodeName() == "StreamingRelationV2"]
        if any(stream.sourceName() != "txn" for stream in streams):
            return location, []
        return location, [stream.extraOptions().get("startingOffsets") or "" for stream in streams]
    except Exception as error:  # a Spark whose inner names differ
        log.debug("query.start_not_checked reason: %s", error)
        return None, []


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
    """Say whether an option has the noted offsets, perhaps among those of added partitions."""
    try:
        given = json.loads(starting)
    except ValueError:  # earliest, latest
        return False
    return all(
        given.get(topic, {}).get(partition) == offset
        for topic, partitions in json.loads(note).items()
        for partition, offset in partitions.items()
    )
