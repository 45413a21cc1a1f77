"""The broker's and the topics' settings, by Kafka's own property names.

A setting that is not in these tables is refused, with the closest known name; a value
that does not fit is refused with what would. Settings that differ from Apache Kafka's
defaults: `group.initial.rebalance.delay.ms` is 0 (Kafka: 3000), since a broker inside a
program or a test has no fleet of consumers to wait for.

Source: Apache Kafka 4.2 documentation, broker and topic configs.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Property:
    """One setting: how its text is read, and its default."""

    parse: Callable[[str], Any]
    default: Any
    expects: str


def _integer(default: int, low: int, high: int = INT64_MAX) -> Property:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return Property(parse, default, f"a whole number from {low} to {high}")


def _flag(default: bool) -> Property:
    return Property({"true": True, "false": False}.__getitem__, default, "true or false")


def _one_of(default: str, *others: str) -> Property:
    words = {word: word for word in (default, *others)}
    return Property(words.__getitem__, default, " or ".join(words))


def _words(default: str, *allowed: str) -> Property:
    """A comma-separated list of some of the allowed words."""

    def parse(text: str) -> str:
        if not text or not set(text.split(",")) <= set(allowed):
            raise ValueError(text)
        return text

    return Property(parse, default, "a comma-separated list of " + ", ".join(allowed))


def _text(default: str | None, expects: str) -> Property:
    return Property(str, default, expects)


TOPIC_PROPERTIES: Final[Mapping[str, Property]] = {
    "cleanup.policy": _words("delete", "delete", "compact"),
    "compression.type": _one_of("producer"),
    "delete.retention.ms": _integer(86_400_000, 0),
    "file.delete.delay.ms": _integer(60_000, 0),
    "flush.messages": _integer(INT64_MAX, 1),
    "flush.ms": _integer(INT64_MAX, 0),
    "index.interval.bytes": _integer(4096, 0, INT32_MAX),
    "max.compaction.lag.ms": _integer(INT64_MAX, 1),
    "max.message.bytes": _integer(1_048_588, 0, INT32_MAX),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": Property(float, 0.5, "a number from 0 to 1"),
    "min.compaction.lag.ms": _integer(0, 0),
    "min.insync.replicas": _integer(1, 1, 1),
    "preallocate": _flag(False),
    "retention.bytes": _integer(-1, -1),
    "retention.ms": _integer(604_800_000, -1),
    "segment.bytes": _integer(1 << 30, 14, INT32_MAX),
    "segment.index.bytes": _integer(10 << 20, 4, INT32_MAX),
    "segment.jitter.ms": _integer(0, 0),
    "segment.ms": _integer(604_800_000, 1),
    "unclean.leader.election.enable": _flag(False),
}
"""Topic settings. The broker acts on index.interval.bytes, max.message.bytes,
message.timestamp.type and segment.bytes; the others are kept and reported."""

BROKER_PROPERTIES: Final[Mapping[str, Property]] = {
    "advertised.listeners": _text(None, "PLAINTEXT://HOST:PORT"),
    "auto.create.topics.enable": _flag(True),
    "durability": _one_of("commit", "process", "always"),
    "group.initial.rebalance.delay.ms": _integer(0, 0, INT32_MAX),
    "group.max.session.timeout.ms": _integer(1_800_000, 1, INT32_MAX),
    "group.max.size": _integer(INT32_MAX, 1, INT32_MAX),
    "group.min.session.timeout.ms": _integer(6_000, 1, INT32_MAX),
    "log.index.interval.bytes": _integer(4096, 0, INT32_MAX),
    "log.message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "log.segment.bytes": _integer(1 << 30, 14, INT32_MAX),
    "max.connections": _integer(INT32_MAX, 1, INT32_MAX),
    "message.max.bytes": _integer(1_048_588, 0, INT32_MAX),
    "node.id": _integer(1, 0, INT32_MAX),
    "num.network.threads": _integer(2, 1, 256),
    "num.partitions": _integer(1, 1, 100_000),
    "offset.metadata.max.bytes": _integer(4096, 0, INT32_MAX),
    "offsets.retention.check.interval.ms": _integer(600_000, 1),
    "offsets.retention.minutes": _integer(10_080, 1, INT32_MAX),
    "offsets.topic.num.partitions": _integer(50, 1, 10_000),
    "producer.id.expiration.check.interval.ms": _integer(600_000, 1, INT32_MAX),
    "producer.id.expiration.ms": _integer(86_400_000, 1, INT32_MAX),
    "socket.request.max.bytes": _integer(104_857_600, 1, INT32_MAX),
    "transaction.max.timeout.ms": _integer(900_000, 1, INT32_MAX),
    "transaction.state.log.num.partitions": _integer(50, 1, 10_000),
    "transactional.id.expiration.ms": _integer(604_800_000, 1, INT32_MAX),
}
"""Broker settings. `durability` is txn's own: see design promise P2."""

TOPIC_DEFAULTS_FROM_BROKER: Final[Mapping[str, str]] = {
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "segment.bytes": "log.segment.bytes",
}
"""Topic setting → the broker setting it takes its default from."""


def parse_property(table: Mapping[str, Property], kind: str, name: str, text: str) -> Any:
    """Read one setting's value.

    Args:
        table: `BROKER_PROPERTIES` or `TOPIC_PROPERTIES`.
        kind: "broker" or "topic", for the message.
        name: Kafka's property name.
        text: The value as text.

    Raises:
        ConfigError: the name is unknown, or the value does not fit.
    """
    entry = table.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, table, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"unknown {kind} property {name!r}{hint}", property=name)
    try:
        return entry.parse(text)
    except (ValueError, KeyError):
        raise ConfigError(
            f"{kind} property {name} cannot be {text!r}: it takes {entry.expects}",
            property=name,
            value=text,
        ) from None


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class BrokerSettings:
    """The broker's settings: what was given, over the defaults."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.given = {
            name: parse_property(BROKER_PROPERTIES, "broker", name, _as_text(value))
            for name, value in (given or {}).items()
        }

    def __getitem__(self, name: str) -> Any:
        if name in self.given:
            return self.given[name]
        return BROKER_PROPERTIES[name].default


def parse_topic_settings(given: Mapping[str, str | None]) -> dict[str, str]:
    """Check a topic's settings; return them as text, without those set to null.

    Raises:
        ConfigError: a name is unknown, or a value does not fit.
    """
    settings = {name: text for name, text in given.items() if text is not None}
    for name, text in settings.items():
        parse_property(TOPIC_PROPERTIES, "topic", name, text)
    return settings


def topic_setting(name: str, topic: Mapping[str, str], broker: BrokerSettings) -> Any:
    """The value in force: the topic's own, else the broker's default for topics."""
    if name in topic:
        return TOPIC_PROPERTIES[name].parse(topic[name])
    inherited = TOPIC_DEFAULTS_FROM_BROKER.get(name)
    return broker[inherited] if inherited else TOPIC_PROPERTIES[name].default
