"""The sink for `foreachBatch`: every output mode, and the only way to update mode.

Each micro-batch is written by one batch write of `format("txn")`, which gets the batch's number
and its query. So there is one implementation of the protocol, and pandas is not needed. A batch
that is in the output already is still run to its end, which stateful operators need.
"""

from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from txn.errors import ConfigError
from txn.spark import checkpoint
from txn.spark.options import option_texts, sink_settings
from txn.spark.tokens import registered


@dataclass(frozen=True, slots=True)
class ForeachBatchSink:
    """The result of `txn.spark.sink`; call it with a micro-batch."""

    options: dict[str, str] = field(repr=False)  # some are secrets

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a micro-batch exactly once."""
        query = self._query(batch.sparkSession)
        options = {**self.options, "txn.batch": str(batch_id), "txn.query": query}
        batch.write.format("txn").options(**options).mode("append").save()

    def _query(self, session: SparkSession) -> str:
        """The id in the checkpoint of the query that runs, to be compared with the progress."""
        location = self.options.get("checkpointLocation")
        running = _running_query(session)
        stored = checkpoint.query_id(location) if location is not None else None
        if running is not None and stored is not None and running != stored:
            raise ConfigError(
                f"the checkpoint {location} is that of query {stored}, but {running} runs: give "
                "txn.spark.sink the checkpointLocation of this query",
                option="checkpoint",
            )
        query = running or stored
        if query is None:
            raise ConfigError(
                "the id of the query cannot be found out: give txn.spark.sink the query's "
                "checkpointLocation, checkpoint='...', on a path that this process can read",
                option="checkpoint",
            )
        return query


def sink(
    bootstrap_servers: str,
    topic: str | None = None,
    *,
    id: str,
    checkpoint: str | Path | None = None,
    **options: object,
) -> ForeachBatchSink:
    """Return a function for `foreachBatch` that writes every micro-batch exactly once.

    Args:
        bootstrap_servers: HOST:PORT, or several with commas.
        topic: Where rows go; None: each row has a column `topic`.
        id: A name that only this query has and that stays the same over its restarts.
        checkpoint: The query's checkpointLocation; needed for `txn_group`, and under Spark Connect
            in a session with more than one query.
        options: Those of `format("txn")`, with `_` for `.`, or in a `**{...}`.

    Raises:
        ConfigError: an option is unknown or does not fit.
    """
    texts = option_texts(
        {
            **options,
            "kafka.bootstrap.servers": bootstrap_servers,
            "txn.id": id,
            "topic": topic,
            "checkpointLocation": checkpoint,
        }
    )
    for name in ("txn.batch", "txn.query"):
        if name in texts:
            raise ConfigError(f"{name} is set for each micro-batch, not here", option=name)
    sink_settings(texts, registered)
    return ForeachBatchSink(texts)


def _running_query(session: SparkSession) -> str | None:
    """The query whose micro-batch runs on this thread; None where that is not known."""
    try:
        context = session.sparkContext
    except Exception:  # Connect has no SparkContext, and says so with an error of its own
        return _only_query(session)
    query: str | None = context.getLocalProperty("sql.streaming.queryId")
    return query


def _only_query(session: SparkSession) -> str | None:
    """The query of a session under Spark Connect, if it has no other: this one runs."""
    running = session.streams.active
    return str(running[0].id) if len(running) == 1 else None
