"""The options of `format("txn")`: names, values, defaults, and refusals.

Names that Spark's own Kafka source and sink have mean the same here, so `format("kafka")`
becomes `format("txn")` and nothing else changes.

| an option that | |
|---|---|
| tunes the Java client, or belongs to the other direction | is ignored, and told once per process |
| would change the rows read or written, and cannot be honoured | is refused with its reason |
| nobody knows | is refused, for silence about a misspelled option has lost data before |

Sources: Structured Streaming + Kafka Integration Guide, Spark 4.2; KafkaSourceProvider, Spark 4.2
(the options it refuses); ConsumerConfig and ProducerConfig, Apache Kafka 3.9.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.java_pattern import UnsupportedPatternError, of_names
from txn.security.client import PLAIN, SecuritySettings
from txn.security.client_names import READ as SECURITY_NAMES
from txn.security.client_reader import is_about_security, read_security
from txn.spark.logs import log
from txn.spark.progress import OnLost
from txn.spark.tokens import pickled

PROGRESS_TOPIC: Final = "__txn_spark"
"""Where sinks keep their progress unless `txn.progress.topic` says otherwise."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets that stand for a place, as Kafka's ListOffsets and Spark's JSON have them."""

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""Readable columns, in the order of Spark's Kafka source."""

ID_LENGTH_MAX: Final = 200

SMALL_BATCH_RECORDS: Final = 256
SMALL_BATCH_RECORDS_MAX: Final = 100_000
"""The rows pass through the driver, one by one on their way into Spark's block."""

FETCH_BYTES: Final = 4 << 20
"""Size of an answer with records; the source asks for one partition at a time."""

Positions = int | Mapping[str, Mapping[int, int]]
"""One number for all partitions, or one per topic and partition."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where reading starts or ends."""

    option: str
    """The option that says so, for errors."""
    at: Positions
    """Offsets, `EARLIEST` and `LATEST` among them; with `is_time` milliseconds since 1970."""
    is_time: bool = False
    """A time stands for the first record of that time or later."""
    may_be_latest: bool = False
    """A partition without such a record is read from its end, and is no error."""

    def names(self, symbol: int) -> bool:
        """Say whether a partition is placed at `EARLIEST` or `LATEST`."""
        if self.is_time:
            return False
        if isinstance(self.at, int):
            return self.at == symbol
        return any(symbol in partitions.values() for partitions in self.at.values())


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
    """The id was made up for one write, and nobody will come back to it."""


@dataclass(frozen=True, slots=True)
class _Option:
    parse: Callable[[str], Any]
    default: Any
    expects: str
    is_secret: bool = False


def _text(default: str | None = None) -> _Option:
    return _Option(str, default, "text")


def _whole(default: int | None, low: int, high: int = 2**63 - 1) -> _Option:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    bounds = f"from {low} to {high}" if high < 2**63 - 1 else f"of at least {low}"
    return _Option(parse, default, f"a whole number {bounds}")


def _flag(default: bool) -> _Option:
    words = {"true": True, "false": False}
    return _Option(lambda text: words[text.lower()], default, "true or false")


def _one_of(default: str, *others: str) -> _Option:
    words = {word: word for word in (default, *others)}
    return _Option(lambda text: words[text.lower()], default, ", ".join(words))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError(text)
    return names


def _servers(text: str) -> str:
    if not all(re.fullmatch(r".+:[0-9]+", part.strip()) for part in text.split(",")):
        raise ValueError(text)
    return text


def _topic(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _positions(text: str) -> Positions:
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    return words[word] if word in words else _by_partition(text, EARLIEST)


def _times(text: str) -> Positions:
    return _by_partition(text, 0)


def _by_partition(text: str, low: int) -> Mapping[str, Mapping[int, int]]:
    numbers = {
        topic: {int(partition): number for partition, number in partitions.items()}
        for topic, partitions in json.loads(text).items()
    }
    if any(
        type(number) is not int or number < low or partition < 0
        for partitions in numbers.values()
        for partition, number in partitions.items()
    ):
        raise ValueError(text)
    return numbers


_UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""The units of Spark's times."""


def _milliseconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([a-z]*)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS_US[match[2] or "ms"] // 1_000


def _assignment(text: str) -> Mapping[str, tuple[int, ...]]:
    assigned = {
        topic: tuple(sorted({int(partition) for partition in partitions}))
        for topic, partitions in json.loads(text).items()
    }
    if not assigned or any(not partitions or partitions[0] < 0 for partitions in assigned.values()):
        raise ValueError(text)
    return assigned


def _pattern(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    try:
        of_names(text.strip())
    except UnsupportedPatternError as error:
        raise ConfigError(
            f"option subscribePattern cannot be {text!r}: {error}. Write it otherwise, or name "
            "the topics by subscribe",
            option="subscribePattern",
            value=text,
        ) from None
    return text.strip()


def _columns(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in COLUMNS}
    chosen = {known[name.lower()] for name in _names(text)}
    return tuple(name for name in COLUMNS if name in chosen)


def _id(text: str) -> str:
    if not text or len(text) > ID_LENGTH_MAX or not text.isprintable():
        raise ValueError(text)
    return text


def _time(text: str) -> int:
    time = int(text)
    if time < 0:
        raise ValueError(text)
    return time


_TIME: Final = "milliseconds since 1970, as 1700000000000"
_TIMES: Final = 'JSON as {"topic": {"0": 1700000000000}}, in milliseconds since 1970'

_EVERYWHERE: Final[Mapping[str, _Option]] = {
    "kafka.bootstrap.servers": _Option(_servers, None, "HOST:PORT[,HOST:PORT…]"),
    "kafka.client.id": _text("txn-spark"),
    "kafka.default.api.timeout.ms": _whole(60_000, 1, 2**31 - 1),
    "txn.progress.topic": _Option(_topic, PROGRESS_TOPIC, "a topic's name"),
    "txn.token": _Option(pickled, None, "the text that txn.spark.token returns", is_secret=True),
}

_READ: Final[Mapping[str, _Option]] = {
    **_EVERYWHERE,
    "assign": _Option(_assignment, None, 'JSON as {"topic": [0, 1]}'),
    "columns": _Option(_columns, None, "names out of " + ", ".join(COLUMNS)),
    "endingOffsets": _Option(
        _positions, None, 'latest, or JSON as {"topic": {"0": 23, "1": -1}} (-1: latest)'
    ),
    "endingOffsetsByTimestamp": _Option(_times, None, _TIMES),
    "endingTimestamp": _Option(_time, None, _TIME),
    "failOnDataLoss": _flag(True),
    "fetch.batch.bytes": _whole(256 << 20, 1, 1 << 30),
    "fetch.bytes": _whole(None, 1, 1 << 30),
    "includeHeaders": _flag(False),
    "kafka.isolation.level": _one_of("read_committed", "read_uncommitted"),
    "kafka.max.partition.fetch.bytes": _whole(FETCH_BYTES, 1, 1 << 30),
    "maxOffsetsPerTrigger": _whole(None, 1),
    "maxRecordsPerPartition": _whole(None, 1),
    "maxTriggerDelay": _Option(_milliseconds, 900_000, "a time as 15m, 30s or 500ms"),
    "minOffsetsPerTrigger": _whole(None, 0),
    "minPartitions": _whole(None, 1, 1_000_000),
    "small.batch.records": _whole(SMALL_BATCH_RECORDS, 0, SMALL_BATCH_RECORDS_MAX),
    "startingOffsets": _Option(
        _positions,
        None,
        'earliest, latest, or JSON as {"topic": {"0": 23, "1": -2}} (-1: latest, -2: earliest)',
    ),
    "startingOffsetsByTimestamp": _Option(_times, None, _TIMES),
    "startingOffsetsByTimestampStrategy": _one_of("error", "latest"),
    "startingTimestamp": _Option(_time, None, _TIME),
    "subscribe": _Option(_names, None, "topic names, separated by commas"),
    "subscribePattern": _Option(_pattern, None, "a regular expression of Java"),
}

_WRITE: Final[Mapping[str, _Option]] = {
    **_EVERYWHERE,
    "batch.bytes": _whole(1 << 20, 1, 1 << 30),
    "checkpointLocation": _text(),
    "compression": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "queryName": _text(),
    "kafka.compression.type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "kafka.metadata.max.age.ms": _whole(300_000, 0, 2**31 - 1),
    "topic": _Option(_topic, None, "a topic's name"),
    "txn.batch": _whole(None, 0),
    "txn.group": _text(),
    "txn.id": _Option(_id, None, f"at most {ID_LENGTH_MAX} printable characters"),
    "txn.margin.ms": _whole(30_000, 0, 2**31 - 1),
    "txn.on.lost": _one_of(*(each.value for each in OnLost)),
    "txn.on.missing.progress": _one_of("fail", "trust-checkpoint"),
    "txn.query": _text(),
    "txn.timeout.ms": _whole(900_000, 1, 2**31 - 1),
    "txn.two.phase.commit": _one_of("auto", "true", "false"),
}
"""`txn.timeout.ms` is the longest that Apache Kafka's default transaction.max.timeout.ms allows."""

_REFUSED: Final[Mapping[str, str]] = {
    "asyncprogresstrackingenabled": (
        "with asynchronous progress tracking Spark writes a batch before it has noted what is in "
        "it, so a replay could have other rows under the same number. Remove the option"
    ),
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "an interceptor is Java, and could change rows",
    "kafka.key.deserializer": "keys are read as bytes. Cast the column key instead",
    "kafka.key.serializer": "keys are written as bytes. Cast the column key instead",
    "kafka.partitioner.class": (
        "a partitioner is Java. Rows go where Kafka's default puts them; give them a column "
        "partition to choose otherwise"
    ),
    "kafka.transaction.timeout.ms": "set txn.timeout.ms instead",
    "kafka.transactional.id": "the sink makes its own transactional ids from txn.id",
    "kafka.value.deserializer": "values are read as bytes. Cast the column value instead",
    "kafka.value.serializer": "values are written as bytes. Cast the column value instead",
}
"""Options that would change the rows read or written, as Spark's connector refuses them."""

_REFUSED_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "kafka.exclude.internal.topics": (
        "false",
        "Kafka's own topics are never read by subscribePattern. Name them by subscribe",
    ),
    "kafka.partitioner.ignore.keys": (
        "true",
        "rows with the same key go to the same partition. Leave the key out instead",
    ),
}

_TUNING: Final = frozenset(
    (
        *("fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix"),
        "kafkaconsumer.polltimeoutms",
    )
)
"""Options of Spark's guide; they tune a consumer that is not used here."""

_KAFKA: Final = frozenset(
    """acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
    batch.size buffer.memory check.crcs client.dns.lookup client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms
    delivery.timeout.ms enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms isolation.level linger.ms max.block.ms
    max.in.flight.requests.per.connection  max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
    retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms""".split()
)
"""Properties of Kafka's consumer and producer that change neither rows nor their order here."""

_OTHERS: Final = frozenset(
    name.lower() for name in _READ.keys() | _WRITE.keys() if name not in _EVERYWHERE
)
"""Options of both directions; one that the other direction has is without effect in this one."""

_ignored: set[tuple[str, str]] = set()
"""Warnings that this process has given: planner processes read the options of every batch."""


def source_settings(texts: Mapping[str, str]) -> SourceSettings:
    """Check the options of a reader.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(_READ, "reading", texts)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options[name]]
    if len(chosen) != 1:
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
        connection=_connection(options, texts),
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
    return None if options[option] is None else Boundary(option, options[option])


def _check_trigger(least: int | None, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most}). Lower "
            "the one or raise the other",
            option="minOffsetsPerTrigger",
        )


def sink_settings(texts: Mapping[str, str]) -> SinkSettings:
    """Check the options of a writer.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(_WRITE, "writing", texts)
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
        connection=_connection(options, texts),
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


def cluster_access(texts: Mapping[str, str]) -> ClusterAccess:
    """Check the options of a connection alone.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    return _connection(_parse(_EVERYWHERE, "a connection", texts), texts)


def _connection(options: Mapping[str, Any], texts: Mapping[str, str]) -> ClusterAccess:
    servers = options["kafka.bootstrap.servers"]
    if not servers:
        raise ConfigError("the option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]")
    kafkas = {
        name.lower().removeprefix("kafka."): text
        for name, text in texts.items()
        if _is_about_security(name)
    }
    return ClusterAccess(
        servers,
        options["kafka.client.id"],
        options["kafka.default.api.timeout.ms"],
        read_security(kafkas, prefix="kafka.", call=options["txn.token"]),
    )


def _is_about_security(name: str) -> bool:
    return name.lower().startswith("kafka.") and is_about_security(name[6:])


def _compression(options: Mapping[str, Any]) -> str:
    """Kafka's name for it, or the shorter one; the shorter one counts."""
    names: tuple[str, str] = (options["compression"], options["kafka.compression.type"])
    return names[0] if names[0] != "none" else names[1]


def _parse(table: Mapping[str, _Option], what: str, options: Mapping[str, str]) -> dict[str, Any]:
    known = {name.lower(): name for name in table}
    values = {name: option.default for name, option in table.items()}
    for spelled, text in options.items():
        name = known.get(spelled.lower())
        if name is not None:
            values[name] = _value(table[name], name, text)
        elif not _is_about_security(spelled):
            _pass_over(spelled, text, what, known)
    return values


def _pass_over(spelled: str, text: str, what: str, known: Mapping[str, str]) -> None:
    """Ignore an option that has no effect here.

    Raises:
        ConfigError: it would have one, or nobody knows it.
    """
    lower, word = spelled.lower(), text.strip().lower()
    if lower in _REFUSED:
        if lower.startswith("async") and word == "false":
            return
        raise ConfigError(f"the option {spelled} is refused: {_REFUSED[lower]}", option=spelled)
    if lower in _REFUSED_VALUES:
        refused, why = _REFUSED_VALUES[lower]
        if word == refused:
            raise ConfigError(f"the option {spelled}={text} is refused: {why}", option=spelled)
    if lower in _OTHERS:
        _ignore(spelled, f"it has no effect in {what}")
    elif lower in _TUNING or (lower[:6] == "kafka." and lower[6:] in _KAFKA):
        _ignore(spelled, "it tunes a Java client, which is not used here")
    else:
        _refuse_if_misspelled(spelled, lower, what, known)
        _ignore(spelled, "Kafka has no such property")


def _refuse_if_misspelled(spelled: str, lower: str, what: str, known: Mapping[str, str]) -> None:
    kafkas = {f"kafka.{name}": f"kafka.{name}" for name in _KAFKA | SECURITY_NAMES}
    names = {**kafkas, **known}
    hint = did_you_mean(lower, names.values())
    if hint or not lower.startswith("kafka."):
        raise ConfigError(f"unknown option {spelled!r} for {what}{hint}", option=spelled)


def _ignore(spelled: str, why: str) -> None:
    if (spelled, why) not in _ignored:
        _ignored.add((spelled, why))
        log.warning("option.ignored %s: %s", spelled, why)


def _value(option: _Option, name: str, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, KeyError, AttributeError, TypeError, re.error):
        if option.is_secret:
            raise ConfigError(
                f"option {name} has another value than it takes: {option.expects}", option=name
            ) from None
        raise ConfigError(
            f"option {name} cannot be {text!r}: it takes {option.expects}", option=name, value=text
        ) from None
