"""The id of a query or a write, and what its checkpoint says.

An id that a later run comes back to is stable over restarts: `txn.id`, the id in the checkpoint, or
the name. Every other write has an id that no later run uses.
"""

from dataclasses import replace

from txn.errors import ConfigError
from txn.spark import checkpoint
from txn.spark.options import SinkSettings


def is_nameless(settings: SinkSettings) -> bool:
    """Return True if a query has neither a name nor a checkpoint of its own.

    Spark puts its checkpoint into another directory at every start, under that of the session's
    configuration. So no later run can continue it, and each batch has an id of its own.
    """
    return settings.id is None and settings.name is None and settings.checkpoint is None


def for_one_batch(settings: SinkSettings, id: str) -> SinkSettings:
    """The settings of one batch of a query that no later run continues. Raises ConfigError."""
    return replace(disposable(settings, id), trusts_checkpoint=True)


def disposable(settings: SinkSettings, id: str) -> SinkSettings:
    """The settings of a write under an id that no later run uses.

    Its transactions have to time out: after a kill nothing else would end them.

    Raises:
        ConfigError: a two-phase commit is asked for, whose transactions never time out.
    """
    if settings.is_two_phase:
        raise ConfigError(
            "txn.two.phase.commit=true needs a name to come back to: its transactions never time "
            "out, and after a kill the next start of the same name ends them. Set txn.id, or leave "
            "the option out",
            option="txn.two.phase.commit",
            value="true",
        )
    return replace(settings, id=id, is_disposable=True, is_two_phase=False)


def sink_id(settings: SinkSettings) -> str:
    """`txn.id`, else the id in the checkpoint, else the query's name.

    The name stands in where the checkpoint is not on this machine. It also does where the
    checkpoint is set in the session's configuration, which a data source does not see. Two queries
    of one name are found out by their ids, which are in their records.
    """
    if settings.id is not None:
        return settings.id
    if settings.checkpoint is None or checkpoint.local_path(settings.checkpoint) is None:
        return settings.name or query_id_of(settings, "txn.id is not set")
    return query_id_of(settings, "txn.id is not set")


def query_id_of(settings: SinkSettings, because: str = "the query's id is needed") -> str:
    """The id of the query, from its checkpoint. Raises ConfigError: it cannot be read there."""
    query = checkpoint.query_id(settings.checkpoint) if settings.checkpoint else None
    if query is None:
        raise ConfigError(
            f"{because}, and it cannot be read from the checkpoint "
            f"({settings.checkpoint or 'the option checkpointLocation is not set'}). Set the "
            "option checkpointLocation to an absolute path on this machine; or name the query by "
            "queryName(...), or set txn.id, to a name that only this query has and that stays the "
            "same over its restarts",
            option="txn.id",
        )
    return query


def check_that_it_does_not_feed_itself(settings: SinkSettings) -> None:
    """Check that the query does not read the progress that each of its batches writes.

    Raises:
        ConfigError: it does, as far as its checkpoint shows.
    """
    if settings.checkpoint is None:
        return
    if settings.progress_topic in checkpoint.source_topics(settings.checkpoint):
        raise ConfigError(
            f"the query reads {settings.progress_topic!r}, where its own sink keeps its progress, "
            "so every batch would make another one. Leave the topic out of subscribe; "
            "subscribePattern leaves it out when the source has the same txn.progress.topic",
            option="txn.progress.topic",
        )


def source_offsets_of(settings: SinkSettings, batch: int) -> list[tuple[str, int, int]]:
    """(topic, partition, end offset) of a batch for `txn.group`; empty without that option.

    Raises:
        ConfigError: the query has no checkpoint.
    """
    if settings.group is None:
        return []
    if settings.checkpoint is None:
        raise ConfigError(
            "txn.group needs the query's checkpoint: set checkpointLocation as an option of the "
            "sink, or checkpoint=... in txn.spark.sink",
            option="txn.group",
        )
    return checkpoint.source_offsets(settings.checkpoint, batch)
