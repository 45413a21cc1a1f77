"""The settings of groups: a resource of their own in DescribeConfigs and IncrementalAlterConfigs.

Pure. A group has settings by its name alone, whether it has members or not. A value comes from the
group's own settings, then from the broker's setting of the same name with `group.` in front of it.
An alteration has to respect the broker's bounds, such as `group.consumer.min.session.timeout.ms`. A
stored value beyond bounds that were changed later counts as the nearest bound.

The settings of share and streams groups are stored and described too. Nothing reads them here, as
in a Kafka that has these protocols switched off. Their bounds are Kafka's defaults.

Sources: KIP-848, KIP-1263; the answers of Apache Kafka 4.4 (GroupConfig).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from txn.config import (
    BROKER_PROPERTIES,
    INT32_MAX,
    INT64_MAX,
    BrokerSettings,
    ConfigType,
    Property,
    as_text,
    fits,
    parse_property,
    split_list,
)
from txn.errors import ConfigError
from txn.metadata.configs import (
    ConfigSource,
    Described,
    Synonym,
    broker_synonyms,
)


def _number(
    default: int, low: int, about: str, *, kind: ConfigType = ConfigType.INT, internal: bool = False
) -> Property:
    high = INT32_MAX if kind is ConfigType.INT else INT64_MAX

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else low - 1
        if not low <= value <= high:
            raise ValueError(text)
        return value

    expects = f"a whole number from {low} to {high}"
    return Property(kind, parse, default, expects, about, is_internal=internal)


def _flag(default: bool, about: str, *, internal: bool = False) -> Property:
    words = {"true": True, "false": False}

    def parse(text: str) -> bool:
        return words[text.strip().lower()]

    return Property(
        ConfigType.BOOLEAN, parse, default, "true or false", about, is_internal=internal
    )


def _matching(default: str | None, pattern: str, expects: str, about: str) -> Property:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return Property(ConfigType.STRING, parse, default, expects, about)


def _tags(text: str) -> str:
    words = split_list(text)
    if len(set(words)) < len(words):
        raise ValueError(text)
    return ",".join(words)


_DURATION: Final = r"(?a:P(?=.)(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?)"
"""A duration of ISO 8601 as Java reads it, without a sign."""


def _of_protocol(protocol: str) -> dict[str, Property]:
    return {
        f"{protocol}.assignment.interval.ms": _number(
            1_000, 0, f"The shortest time between two assignments of a {protocol} group."
        ),
        f"{protocol}.assignor.offload.enable": _flag(
            True, f"Whether a {protocol} group is assigned beside its requests.", internal=True
        ),
        f"{protocol}.heartbeat.interval.ms": _number(
            5_000, 1, f"How often the members of a {protocol} group send heartbeats."
        ),
        f"{protocol}.session.timeout.ms": _number(
            45_000, 1, f"How long a member of a {protocol} group may be silent."
        ),
    }


GROUP_PROPERTIES: Final[Mapping[str, Property]] = {
    **_of_protocol("consumer"),
    **_of_protocol("share"),
    **_of_protocol("streams"),
    "errors.deadletterqueue.copy.record.enable": _flag(
        False, "Whether the dead-letter queue of a share group gets whole records."
    ),
    "errors.deadletterqueue.topic.name": _matching(
        "",
        r"(?!__).*",
        "a topic whose name begins with no '__'",
        "The dead-letter queue of a share group; empty: none.",
    ),
    "share.auto.offset.reset": _matching(
        "latest",
        f"latest|earliest|by_duration:{_DURATION}",
        "earliest, latest or by_duration:PnDTnHnMn.nS",
        "Where a share group begins to read.",
    ),
    "share.delivery.count.limit": _number(
        5, 2, "How often a record is delivered to a share group at most."
    ),
    "share.isolation.level": _matching(
        "read_uncommitted",
        "read_committed|read_uncommitted",
        "read_committed or read_uncommitted",
        "Which transactional records a share group reads.",
    ),
    "share.partition.max.record.locks": _number(
        2_000, 100, "The most records of a partition that a share group holds."
    ),
    "share.record.lock.duration.ms": _number(
        30_000, 1_000, "How long a member of a share group holds a record."
    ),
    "share.renew.acknowledge.enable": _flag(
        True, "Whether a member of a share group may hold a record for longer."
    ),
    "streams.acceptable.recovery.lag": _number(
        10_000,
        0,
        "The lag with which a streams client counts as caught up.",
        kind=ConfigType.LONG,
        internal=True,
    ),
    "streams.assignor.name": _matching(
        "sticky", "sticky", "sticky", "The assignor of the tasks of a streams group."
    ),
    "streams.initial.rebalance.delay.ms": _number(
        3_000, 0, "How long a new streams group waits for more clients."
    ),
    "streams.num.standby.replicas": _number(0, 0, "Standby replicas of each task."),
    "streams.num.warmup.replicas": _number(2, 0, "The most warm-up replicas.", internal=True),
    "streams.rack.aware.assignment.tags": Property(
        ConfigType.LIST,
        _tags,
        "",
        "a list without an entry twice",
        "Tags of clients over which standby tasks are spread.",
    ),
    "streams.task.offset.interval.ms": _number(
        60_000, 1, "How often the offsets of warm-up tasks are sent.", internal=True
    ),
}
"""Every setting of a group that Apache Kafka 4.4 knows."""

_WITHOUT_BROKER_SETTING: Final = frozenset(
    {
        *("errors.deadletterqueue.copy.record.enable", "errors.deadletterqueue.topic.name"),
        *("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"),
    }
)

_BOUNDS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    **{
        f"{protocol}.{name}": bounds
        for protocol in ("consumer", "share", "streams")
        for name, bounds in {
            "assignment.interval.ms": (0, 15_000),
            "heartbeat.interval.ms": (5_000, 15_000),
            "session.timeout.ms": (45_000, 60_000),
        }.items()
    },
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4_000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "streams.num.standby.replicas": (None, 2),
    "streams.num.warmup.replicas": (None, 20),
    "streams.task.offset.interval.ms": (15_000, None),
}
"""Least and most of a setting where the broker has no settings for them."""


class _Bounds(NamedTuple):
    low: int | None
    high: int | None

    def require(self, name: str, value: int) -> None:
        """Raise ConfigError for a value that is out of bounds."""
        low, high = self
        if (low is None or low <= value) and (high is None or value <= high):
            return
        if low is None:
            said = f"{name} must be less than or equal to {high}"
        elif high is None:
            said = f"{name} must be greater than or equal to {low}"
        else:
            said = f"{name} must be in the range {low} to {high} inclusive."
        raise ConfigError(said, property=name, value=value)

    def nearest(self, value: int) -> int:
        """The value, or the bound that it passes."""
        if self.low is not None and value < self.low:
            return self.low
        return self.high if self.high is not None and value > self.high else value


def _bounds(name: str, broker: BrokerSettings) -> _Bounds:
    protocol, _, rest = name.partition(".")
    low, high = _BOUNDS[name]
    names = (f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}")
    return _Bounds(
        *(
            broker[bound] if bound in BROKER_PROPERTIES else default
            for bound, default in zip(names, (low, high), strict=True)
        )
    )


def group_setting(name: str, own: Mapping[str, str], broker: BrokerSettings) -> Any:
    """The value of a group's setting that is in force, parsed.

    Args:
        name: One of `GROUP_PROPERTIES`.
        own: The group's own settings.
        broker: Gives the value that the group lacks, and the bounds of its own.
    """
    entry = GROUP_PROPERTIES[name]
    if name in own and fits(entry, own[name]):
        value = entry.parse(own[name])
        return _bounds(name, broker).nearest(value) if name in _BOUNDS else value
    of_broker = f"group.{name}"
    return broker[of_broker] if of_broker in BROKER_PROPERTIES else entry.default


def describe_group(own: Mapping[str, str], broker: BrokerSettings) -> list[Described]:
    """Every setting of a group, by name; of the internal ones those that the group has."""
    return [
        _described(name, entry, own, broker)
        for name, entry in sorted(GROUP_PROPERTIES.items())
        if not entry.is_internal or name in own
    ]


def _described(
    name: str, entry: Property, own: Mapping[str, str], broker: BrokerSettings
) -> Described:
    synonyms = _inherited(name, entry, broker)
    value = synonyms[0].value
    if name in own and fits(entry, own[name]):
        # As it is stored: Kafka, too, describes a value that is beyond the broker's bounds.
        value = as_text(entry.parse(own[name]))
        synonyms = (Synonym(name, value, ConfigSource.GROUP), *synonyms)
    return Described(name, value, entry.kind, entry.about, False, synonyms)


def _inherited(name: str, entry: Property, broker: BrokerSettings) -> tuple[Synonym, ...]:
    if name in _WITHOUT_BROKER_SETTING:
        return (Synonym(name, as_text(entry.default), ConfigSource.DEFAULT),)
    of_broker = "group.streams.assignors" if name == "streams.assignor.name" else f"group.{name}"
    if of_broker in BROKER_PROPERTIES:
        return broker_synonyms(of_broker, broker)
    return (Synonym(of_broker, as_text(entry.default), ConfigSource.DEFAULT),)


def check_group(values: Mapping[str, str], changed: Iterable[str], broker: BrokerSettings) -> None:
    """Check the settings that a group would have.

    A stored value that is unknown or no longer fits is not looked at, if it does not change.

    Raises:
        ConfigError: a name is unknown, a value does not fit or is beyond the broker's bounds, or a
            session is not longer than the time between two heartbeats; in Kafka's words.
    """
    looked_at = set(changed)
    names = [
        name
        for name, text in values.items()
        if name in looked_at or (name in GROUP_PROPERTIES and fits(GROUP_PROPERTIES[name], text))
    ]
    parsed = {name: parse_property(GROUP_PROPERTIES, "group", name, values[name]) for name in names}
    for name in sorted(parsed.keys() & _BOUNDS.keys() & looked_at):
        _bounds(name, broker).require(name, parsed[name])
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = (
            f"{protocol}.{name}" for name in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if looked_at.isdisjoint((session, heartbeat)):
            continue
        session_ms, heartbeat_ms = (
            parsed.get(name, group_setting(name, {}, broker)) for name in (session, heartbeat)
        )
        if session_ms <= heartbeat_ms:
            raise ConfigError(
                f"{session} must be greater than {heartbeat}", property=session, value=session_ms
            )
