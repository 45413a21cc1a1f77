"""The settings that the options of `format("txn")` ask for, and the refusal of wrong ones.

Names that Spark's own Kafka source and sink have mean the same here, so `format("kafka")`
becomes `format("txn")` and nothing else changes.

| an option that | |
|---|---|
| tunes the Java client, or belongs to the other direction | is ignored, and logged once |
| would change the rows read or written, and cannot be honoured | is refused with its reason |
| is close to a known one | is refused, for silence about a misspelled option has lost data before |
| is unknown, or is Kafka's without `kafka.` | is ignored as by Spark, and logged once |

`option_tables` has their names, `option_values` their values.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client import PLAIN, SecuritySettings
from txn.security.client_reader import read_security
from txn.security.given_settings import is_about_security
from txn.spark.logs import log
from txn.spark.option_tables import (
    EVERYWHERE,
    KAFKA,
    KAFKAS_NAMES,
    OTHERS,
    READ,
    READING,
    REFUSED_READING,
    REFUSED_VALUES,
    REFUSED_WRITING,
    TUNING,
    WRITE,
    WRITING,
)
from txn.spark.option_values import (
    COLUMNS,
    EARLIEST,
    LATEST,
    PROGRESS_TOPIC,
    Option,
    Positions,
    PositionsByTopic,
)
from txn.spark.progress import OnLost
from txn.spark.tokens import NO_TOKENS, Tokens, token_named

__all__ = [
    "COLUMNS",
    "EARLIEST",
    "LATEST",
    "PROGRESS_TOPIC",
    "Boundary",
    "ClusterAccess",
    "SinkSettings",
    "SourceSettings",
    "TopicSelection",
    "cluster_access",
    "option_texts",
    "sink_settings",
    "source_settings",
]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where reading starts or ends."""

    option: str
    """The option that says so, for errors."""
    at: Positions
    """Offsets, `EARLIEST` and `LATEST` among them; with `is_time` milliseconds since 1970."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Topics whose partitions are all at `EARLIEST` or `LATEST`."""
    is_time: bool = False
    """A time stands for the first record of that time or later."""
    may_be_latest: bool = False
    """A partition without such a record is read from its end, and is no error."""

    def of(self, place: tuple[str, int]) -> int:
        """The offset, symbol or time of a partition that it names."""
        topic, partition = place
        if isinstance(self.at, int):
            return self.at
        return self.topics[topic] if topic in self.topics else self.at[topic][partition]

    def names(self, symbol: int) -> bool:
        """Return True if a partition is placed at `EARLIEST` or `LATEST`."""
        if self.is_time:
            return False
        if isinstance(self.at, int):
            return self.at == symbol
        by_partition = any(symbol in partitions.values() for partitions in self.at.values())
        return by_partition or symbol in self.topics.values()


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Which partitions to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Access to the cluster."""

    bootstrap_servers: str
    client_id: str
    timeout_ms: int
    security: SecuritySettings = PLAIN


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The options of a reader."""

    connection: ClusterAccess
    topics: TopicSelection
    starting: Boundary | None
    ending: Boundary | None
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    """Applies only with `offsets_per_trigger_min`."""
    partitions_min: int | None
    records_per_partition_max: int | None
    fails_on_data_loss: bool
    read_committed: bool
    columns: tuple[str, ...]
    fetch_bytes: int
    fetch_batch_bytes: int
    small_batch_records: int
    """A micro-batch of at most so many offsets is planned with its rows; 0: none."""
    progress_topic: str
    """Options of a sink; subscribePattern leaves it out."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The options of a writer."""

    connection: ClusterAccess
    id: str | None
    """`txn.id`; None: the query's own id, from its checkpoint."""
    name: str | None
    """The query's name, which stands for its id when no checkpoint can be read."""
    topic: str | None
    batch: int | None
    """Set by `txn.spark.sink`: the micro-batch that a batch write carries."""
    query: str | None
    checkpoint: str | None
    timeout_ms: int
    margin_ms: int
    is_two_phase: bool | None
    """None: where the cluster allows it."""
    progress_topic: str
    group: str | None
    on_lost: OnLost
    trusts_checkpoint: bool
    batch_bytes: int
    compression: str
    metadata_max_age_ms: int
    """A task that meets an output topic asks for its partitions again after this time."""
    is_disposable: bool = False
    """The id was made up for one write, and no later write uses it."""


NO_OPTIONS: Final = (
    "Spark has given no options: it keeps none for a table of the catalog. Use CREATE TEMP VIEW "
    "... USING txn OPTIONS (...), or give them with the statement: FROM table WITH (...), "
    "spark.read.options(...).table(...)"
)

_ignored: set[tuple[str, str]] = set()
"""Warnings that this process has given: planner processes read the options of every batch."""


def source_settings(texts: Mapping[str, str], tokens: Tokens = NO_TOKENS) -> SourceSettings:
    """Check the options of a reader.

    Args:
        texts: Names in any case, and texts, as Spark gives them.
        tokens: The functions that `txn.token` may name.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(READ, READING, texts)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options[name]]
    if len(chosen) != 1:
        _check_given(texts)
        hint = ""
        if not chosen and any(name.lower() == "topic" for name in texts):
            hint = ". The option topic is for writing; to read, set subscribe"
        raise ConfigError(
            "exactly one of subscribe, subscribePattern and assign says what to read; "
            f"given: {', '.join(chosen) or 'none'}{hint}"
        )
    _check_trigger(options["minOffsetsPerTrigger"], options["maxOffsetsPerTrigger"])
    headers = options["includeHeaders"]
    return SourceSettings(
        connection=_connection(options, texts, tokens),
        topics=TopicSelection(
            options["subscribe"] or (), options["subscribePattern"], options["assign"] or None
        ),
        starting=_boundary(options, "starting", options["startingOffsetsByTimestampStrategy"]),
        ending=_boundary(options, "ending", "latest"),
        offsets_per_trigger_max=options["maxOffsetsPerTrigger"],
        offsets_per_trigger_min=options["minOffsetsPerTrigger"],
        trigger_delay_ms_max=options["maxTriggerDelay"],
        partitions_min=options["minPartitions"],
        records_per_partition_max=options["maxRecordsPerPartition"],
        fails_on_data_loss=options["failOnDataLoss"],
        read_committed=options["kafka.isolation.level"] == "read_committed",
        columns=options["columns"] or (COLUMNS if headers else COLUMNS[:-1]),
        fetch_bytes=options["fetch.bytes"] or options["kafka.max.partition.fetch.bytes"],
        fetch_batch_bytes=options["fetch.batch.bytes"],
        small_batch_records=options["small.batch.records"],
        progress_topic=options["txn.progress.topic"],
    )


def _boundary(options: Mapping[str, Any], which: str, strategy: str) -> Boundary | None:
    """The option that counts, if several are given: a time for all, times, then offsets."""
    for option in (f"{which}Timestamp", f"{which}OffsetsByTimestamp"):
        if options[option] is not None:
            may_be_latest = strategy == "latest"
            return Boundary(option, options[option], is_time=True, may_be_latest=may_be_latest)
    option = f"{which}Offsets"
    given: PositionsByTopic | None = options[option]
    if given is None or isinstance(given, int):
        return None if given is None else Boundary(option, given)
    at = {topic: each for topic, each in given.items() if not isinstance(each, int)}
    topics = {topic: each for topic, each in given.items() if isinstance(each, int)}
    return Boundary(option, at, topics)


def _check_trigger(least: int | None, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most}). Lower "
            "the one or raise the other",
            option="minOffsetsPerTrigger",
        )


def sink_settings(texts: Mapping[str, str], tokens: Tokens = NO_TOKENS) -> SinkSettings:
    """Check the options of a writer.

    Args:
        texts: Names in any case, and texts, as Spark gives them.
        tokens: The functions that `txn.token` may name.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(WRITE, WRITING, texts)
    if options["txn.margin.ms"] >= options["txn.timeout.ms"]:
        raise ConfigError(
            f"txn.margin.ms ({options['txn.margin.ms']}) has to be less than txn.timeout.ms "
            f"({options['txn.timeout.ms']}): no batch could ever be committed"
        )
    if options["topic"] == options["txn.progress.topic"]:
        raise ConfigError(
            f"the topic {options['topic']!r} is the sink's own progress topic. Write to another "
            "one, or set txn.progress.topic",
            option="topic",
        )
    return SinkSettings(
        connection=_connection(options, texts, tokens),
        id=options["txn.id"],
        name=options["queryName"],
        topic=options["topic"],
        batch=options["txn.batch"],
        query=options["txn.query"],
        checkpoint=options["checkpointLocation"],
        timeout_ms=options["txn.timeout.ms"],
        margin_ms=options["txn.margin.ms"],
        is_two_phase={"auto": None, "true": True, "false": False}[options["txn.two.phase.commit"]],
        progress_topic=options["txn.progress.topic"],
        group=options["txn.group"],
        on_lost=OnLost(options["txn.on.lost"]),
        trusts_checkpoint=options["txn.on.missing.progress"] == "trust-checkpoint",
        batch_bytes=options["batch.bytes"],
        compression=_compression(options),
        metadata_max_age_ms=options["kafka.metadata.max.age.ms"],
    )


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Python's keywords have them, as Spark has them: `_` is `.`, None is left out."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def cluster_access(texts: Mapping[str, str], tokens: Tokens = NO_TOKENS) -> ClusterAccess:
    """Check the options of a connection alone.

    Args:
        texts: Names in any case, and texts, as Spark gives them.
        tokens: The functions that `txn.token` may name.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    return _connection(_parse(EVERYWHERE, "a connection", texts), texts, tokens)


def _connection(
    options: Mapping[str, Any], texts: Mapping[str, str], tokens: Tokens
) -> ClusterAccess:
    servers = options["kafka.bootstrap.servers"]
    if not servers:
        _check_given(texts)
        bare = any(name.lower().startswith("bootstrap") for name in texts)
        raise ConfigError(
            "the option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]"
            + (". The name begins with kafka." if bare else "")
        )
    name_of_token = options["txn.token"]
    call = None if name_of_token is None else token_named(name_of_token, tokens)
    kafkas = {
        name.lower().removeprefix("kafka."): text
        for name, text in texts.items()
        if _is_about_security(name)
    }
    return ClusterAccess(
        servers,
        options["kafka.client.id"],
        options["kafka.default.api.timeout.ms"],
        read_security(kafkas, prefix="kafka.", call=call),
    )


def _check_given(texts: Mapping[str, str]) -> None:
    if not texts:
        raise ConfigError(NO_OPTIONS)


def _is_about_security(name: str) -> bool:
    return name.lower().startswith("kafka.") and is_about_security(name[6:])


def _compression(options: Mapping[str, Any]) -> str:
    """Kafka's name for it, or the shorter one; the shorter one counts."""
    names: tuple[str, str] = (options["compression"], options["kafka.compression.type"])
    return names[0] if names[0] != "none" else names[1]


def _parse(table: Mapping[str, Option], what: str, options: Mapping[str, str]) -> dict[str, Any]:
    known = {name.lower(): name for name in table}
    values = {name: option.default for name, option in table.items()}
    others = []
    for spelled, text in options.items():
        name = known.get(spelled.lower())
        if name is not None:
            values[name] = _value(table[name], name, text)
        elif not _is_about_security(spelled):
            others.append(spelled)
    for spelled in others:
        _pass_over(spelled, options[spelled], what, known, is_strict=values["txn.strict.options"])
    return values


NO_GROUP: Final = "the source joins no group; see txn.group"

_REFUSED: Final[Mapping[str, Mapping[str, str]]] = {
    READING: REFUSED_READING,
    WRITING: REFUSED_WRITING,
}


def _pass_over(
    spelled: str, text: str, what: str, known: Mapping[str, str], *, is_strict: bool
) -> None:
    """Ignore an option that has no effect here.

    Raises:
        ConfigError: it would have one, it is a misspelled one, or it is unknown and that is not
            allowed.
    """
    lower, word = spelled.lower(), text.strip().lower()
    refused = _REFUSED.get(what, {})
    if lower in refused:
        if lower.startswith("async") and word == "false":
            return
        raise ConfigError(f"the option {spelled} is refused: {refused[lower]}", option=spelled)
    if lower in REFUSED_VALUES:
        where, value, why = REFUSED_VALUES[lower]
        if (where, value) == (what, word):
            raise ConfigError(f"the option {spelled}={text} is refused: {why}", option=spelled)
    if lower in OTHERS:
        _ignore(spelled, f"it has no effect in {what}")
    elif lower in ("kafka.group.id", "groupidprefix"):
        _ignore(spelled, NO_GROUP)
    elif lower in TUNING or (lower[:6] == "kafka." and lower[6:] in KAFKA):
        _ignore(spelled, "it tunes a Java client, which is not used here")
    else:
        _ignore_unknown(spelled, what, known, is_strict=is_strict)


def _ignore_unknown(spelled: str, what: str, known: Mapping[str, str], *, is_strict: bool) -> None:
    lower = spelled.lower()
    prefixed = f"kafka.{lower}"
    if prefixed == "kafka.group.id" and not is_strict:
        _ignore(spelled, NO_GROUP)
        return
    if prefixed in KAFKAS_NAMES and not is_strict:
        _ignore(spelled, f"a property of Kafka has its prefix here: {prefixed}")
        return
    # A name without the prefix is not taken for one of Kafka's: Spark hands none on to it.
    near = [name for name in known.values() if not name.startswith("kafka.")]
    hint = did_you_mean(lower, KAFKAS_NAMES if lower.startswith("kafka.") else near)
    if hint or is_strict or lower.startswith("txn."):
        raise ConfigError(f"unknown option {spelled!r} for {what}{hint}", option=spelled)
    if lower.startswith("kafka."):
        _ignore(spelled, "Kafka has no such property")
    else:
        _ignore(spelled, f"{what} has no such option; txn.strict.options=true refuses it")


def _ignore(spelled: str, why: str) -> None:
    if (spelled, why) not in _ignored:
        _ignored.add((spelled, why))
        log.warning("option.ignored %s: %s", spelled, why)


def _value(option: Option, name: str, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, KeyError, AttributeError, TypeError, re.error):
        raise ConfigError(
            f"option {name} cannot be {text!r}: it takes {option.expects}", option=name, value=text
        ) from None
