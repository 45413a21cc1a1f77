"""The options of `format("txn")`: names, values, defaults, and refusals.

Names that Spark's own Kafka source and sink have mean the same here, so `format("kafka")`
becomes `format("txn")` and nothing else changes. An option that is unknown, or known but
without effect here, is refused: silence about a misspelled option has lost data before.

Source: Structured Streaming + Kafka Integration Guide, Spark 4.2.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn.errors import ConfigError

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
"""What can be read, in the order of Spark's Kafka source."""

ID_LENGTH_MAX: Final = 200

Positions = int | Mapping[str, Mapping[int, int]]
"""`EARLIEST`, `LATEST`, or per topic and partition an offset (which may again be one of them)."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster."""

    bootstrap_servers: str
    client_id: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the reader was asked for."""

    connection: Connection
    topics: Topics
    starting: Positions | None
    ending: Positions | None
    offsets_per_trigger_max: int | None
    partitions_min: int | None
    fails_on_data_loss: bool
    read_committed: bool
    columns: tuple[str, ...]
    fetch_bytes: int


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What the writer was asked for."""

    connection: Connection
    id: str | None
    """`txn.id`; None: the query's own id, from its checkpoint."""
    topic: str | None
    batch: int | None
    """Set by `txn.spark.sink`: the micro-batch that a batch write carries."""
    query: str | None
    checkpoint: str | None
    timeout_ms: int
    margin_ms: int
    progress_topic: str
    group: str | None
    replays_lost: bool
    trusts_checkpoint: bool
    batch_bytes: int
    compression: str
    is_disposable: bool = False
    """The id was made up for one write, and nobody will come back to it."""


@dataclass(frozen=True, slots=True)
class _Option:
    parse: Callable[[str], Any]
    default: Any
    expects: str


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
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError(text)
    return names


def _positions(text: str) -> Positions:
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    offsets = {
        topic: {int(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in json.loads(text).items()
    }
    if any(
        type(offset) is not int or offset < EARLIEST or partition < 0
        for partitions in offsets.values()
        for partition, offset in partitions.items()
    ):
        raise ValueError(text)
    return offsets


def _assignment(text: str) -> Mapping[str, tuple[int, ...]]:
    assigned = {
        topic: tuple(sorted({int(partition) for partition in partitions}))
        for topic, partitions in json.loads(text).items()
    }
    if not assigned or any(not partitions or partitions[0] < 0 for partitions in assigned.values()):
        raise ValueError(text)
    return assigned


def _pattern(text: str) -> str:
    re.compile(text)
    return text


def _columns(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in COLUMNS}
    chosen = {known[name.lower()] for name in _names(text)}
    return tuple(name for name in COLUMNS if name in chosen)


def _id(text: str) -> str:
    if not text or len(text) > ID_LENGTH_MAX or not text.isprintable():
        raise ValueError(text)
    return text


_EVERYWHERE: Final[Mapping[str, _Option]] = {
    "kafka.bootstrap.servers": _text(),
    "kafka.client.id": _text("txn-spark"),
    "kafka.default.api.timeout.ms": _whole(60_000, 1, 2**31 - 1),
    "kafka.security.protocol": _one_of("plaintext"),
}

_READ: Final[Mapping[str, _Option]] = {
    **_EVERYWHERE,
    "assign": _Option(_assignment, None, 'JSON as {"topic": [0, 1]}'),
    "columns": _Option(_columns, None, "names out of " + ", ".join(COLUMNS)),
    "endingOffsets": _Option(
        _positions, None, 'latest, or JSON as {"topic": {"0": 23, "1": -1}} (-1: latest)'
    ),
    "failOnDataLoss": _flag(True),
    "fetch.bytes": _whole(4 << 20, 1, 1 << 30),
    "includeHeaders": _flag(False),
    "kafka.isolation.level": _one_of("read_committed", "read_uncommitted"),
    "maxOffsetsPerTrigger": _whole(None, 1),
    "minPartitions": _whole(None, 1, 1_000_000),
    "startingOffsets": _Option(
        _positions,
        None,
        'earliest, latest, or JSON as {"topic": {"0": 23, "1": -2}} (-1: latest, -2: earliest)',
    ),
    "subscribe": _Option(_names, None, "topic names, separated by commas"),
    "subscribePattern": _Option(_pattern, None, "a regular expression"),
}

_WRITE: Final[Mapping[str, _Option]] = {
    **_EVERYWHERE,
    "batch.bytes": _whole(1 << 20, 1, 1 << 30),
    "checkpointLocation": _text(),
    "compression": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "includeHeaders": _flag(True),
    "queryName": _text(),
    "topic": _text(),
    "txn.batch": _whole(None, 0),
    "txn.group": _text(),
    "txn.id": _Option(_id, None, f"at most {ID_LENGTH_MAX} printable characters"),
    "txn.margin.ms": _whole(30_000, 0, 2**31 - 1),
    "txn.on.lost": _one_of("fail", "replay"),
    "txn.on.missing.progress": _one_of("fail", "trust-checkpoint"),
    "txn.progress.topic": _text("__txn_spark"),
    "txn.query": _text(),
    "txn.timeout.ms": _whole(900_000, 1, 2**31 - 1),
}
"""`txn.timeout.ms` is the longest that Apache Kafka's default transaction.max.timeout.ms allows."""

_REFUSED: Final[Mapping[str, str]] = {
    "asyncprogresstrackingenabled": (
        "with asynchronous progress tracking Spark writes a batch before it has noted what is in "
        "it, so a replay could have other rows under the same number. Remove the option"
    ),
    "kafka.transactional.id": "the sink makes its own transactional ids from txn.id",
    "kafka.transaction.timeout.ms": "set txn.timeout.ms instead",
    "kafka.compression.type": "set compression instead",
    "kafka.group.id": "the source reads without a consumer group",
    "groupidprefix": "the source reads without a consumer group",
}


def source_settings(given: Mapping[str, str]) -> SourceSettings:
    """Check the options of a reader.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(_READ, "reading", given)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options[name]]
    if len(chosen) != 1:
        raise ConfigError(
            "exactly one of subscribe, subscribePattern and assign says what to read; "
            f"given: {', '.join(chosen) or 'none'}"
        )
    if options["endingOffsets"] == EARLIEST:
        raise ConfigError("endingOffsets cannot be earliest: there would be nothing to read")
    headers = options["includeHeaders"]
    return SourceSettings(
        connection=_connection(options),
        topics=Topics(
            options["subscribe"] or (), options["subscribePattern"], options["assign"] or None
        ),
        starting=options["startingOffsets"],
        ending=options["endingOffsets"],
        offsets_per_trigger_max=options["maxOffsetsPerTrigger"],
        partitions_min=options["minPartitions"],
        fails_on_data_loss=options["failOnDataLoss"],
        read_committed=options["kafka.isolation.level"] == "read_committed",
        columns=options["columns"] or (COLUMNS if headers else COLUMNS[:-1]),
        fetch_bytes=options["fetch.bytes"],
    )


def sink_settings(given: Mapping[str, str]) -> SinkSettings:
    """Check the options of a writer.

    Raises:
        ConfigError: an option is unknown, does not fit, is missing, or contradicts another.
    """
    options = _parse(_WRITE, "writing", given)
    if options["txn.margin.ms"] >= options["txn.timeout.ms"]:
        raise ConfigError(
            f"txn.margin.ms ({options['txn.margin.ms']}) has to be less than txn.timeout.ms "
            f"({options['txn.timeout.ms']}): no batch could ever be committed"
        )
    return SinkSettings(
        connection=_connection(options),
        id=options["txn.id"],
        topic=options["topic"],
        batch=options["txn.batch"],
        query=options["txn.query"],
        checkpoint=options["checkpointLocation"],
        timeout_ms=options["txn.timeout.ms"],
        margin_ms=options["txn.margin.ms"],
        progress_topic=options["txn.progress.topic"],
        group=options["txn.group"],
        replays_lost=options["txn.on.lost"] == "replay",
        trusts_checkpoint=options["txn.on.missing.progress"] == "trust-checkpoint",
        batch_bytes=options["batch.bytes"],
        compression=options["compression"],
    )


def _connection(options: Mapping[str, Any]) -> Connection:
    servers = options["kafka.bootstrap.servers"]
    if not servers:
        raise ConfigError("the option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]")
    return Connection(servers, options["kafka.client.id"], options["kafka.default.api.timeout.ms"])


def _parse(table: Mapping[str, _Option], what: str, given: Mapping[str, str]) -> dict[str, Any]:
    known = {name.lower(): name for name in table}
    values = {name: option.default for name, option in table.items()}
    for spelled, text in given.items():
        lower = spelled.lower()
        if lower in _REFUSED and not (lower.startswith("async") and text.lower() == "false"):
            raise ConfigError(f"the option {spelled} is refused: {_REFUSED[lower]}", option=spelled)
        if lower in _REFUSED:
            continue
        name = known.get(lower)
        if name is None:
            close = difflib.get_close_matches(lower, known, n=1, cutoff=0)
            hint = f"; the closest one is {known[close[0]]}" if close else ""
            raise ConfigError(f"unknown option {spelled!r} for {what}{hint}", option=spelled)
        values[name] = _value(table[name], name, text)
    return values


def _value(option: _Option, name: str, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, KeyError, AttributeError, TypeError, re.error):
        if name == "kafka.security.protocol":
            raise ConfigError(
                f"kafka.security.protocol={text} is not supported yet: only PLAINTEXT is",
                option=name,
                value=text,
            ) from None
        raise ConfigError(
            f"option {name} cannot be {text!r}: it takes {option.expects}", option=name, value=text
        ) from None
