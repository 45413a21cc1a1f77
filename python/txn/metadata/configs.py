"""Settings as clients see and alter them: the values in force and their sources.

Pure. A value comes from the first layer that has one: the topic's own, then the broker's
layers under the names of `TOPIC_SYNONYMS`. As in Kafka, a layer is known by the synonyms that lead
to it, and the list begins with the first synonym's own name. A `retention.ms` that comes from
`log.retention.hours` alone is a default without synonyms.

Sources: KIP-133, KIP-226 (synonyms and sources), KIP-339 (incremental alterations),
KIP-569 (types and documentation); the answers of Apache Kafka 4.2.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from txn.config import (
    BROKER_PROPERTIES,
    LISTENER_PREFIX,
    TOPIC_PROPERTIES,
    TOPIC_SYNONYMS,
    BrokerSettings,
    ConfigType,
    Property,
    as_text,
    fits,
    is_broker_property,
    known_property,
    split_list,
    topic_default,
)
from txn.errors import ConfigError


class ConfigSource(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    GIVEN = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A setting that a value comes from, or would come from were it not for those before it."""

    name: str
    value: str | None
    source: ConfigSource


class Described(NamedTuple):
    """One setting, as DescribeConfigs returns it."""

    name: str
    value: str | None
    kind: ConfigType
    about: str
    is_read_only: bool
    synonyms: tuple[Synonym, ...]
    is_sensitive: bool = False
    """A secret: `value` is None, and so are those of its synonyms."""

    @property
    def source(self) -> ConfigSource:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


def describe_topic(own: Mapping[str, str], broker: BrokerSettings) -> list[Described]:
    """Every setting of a topic, by name; of the internal ones those that the topic has."""
    return [
        _topic_setting(name, entry, own, broker)
        for name, entry in sorted(TOPIC_PROPERTIES.items())
        if not entry.is_internal or name in own
    ]


def describe_broker(broker: BrokerSettings) -> list[Described]:
    """Every setting of the broker, by name; of those of a listener the ones that may be altered.

    A stored setting that is unknown here is listed too, as in Kafka: a broker that was there
    before, or its plugin, may have known it. Its value may be a secret, so it is not shown.
    """
    names = {name for name, entry in BROKER_PROPERTIES.items() if not entry.is_internal}
    for layer in (broker.changed, broker.changed_everywhere, broker.given):
        of_listeners = (name for name in layer if name.startswith(LISTENER_PREFIX))
        names |= {name for name in of_listeners if _entry(name).is_dynamic}
    names |= broker.changed.keys() | broker.changed_everywhere.keys()
    kept = {*broker.kept, *broker.kept_everywhere}
    unknown = {name for name in kept if not is_broker_property(name)}
    described = [
        _broker_setting(name, broker[name], broker_synonyms(name, broker)) for name in names
    ]
    described += [_unknown_setting(name, broker) for name in unknown]
    return sorted(described, key=lambda entry: entry.name)


def describe_every_broker(broker: BrokerSettings) -> list[Described]:
    """Values stored for every broker of the cluster, also those that count for nothing here."""
    return [
        _broker_setting(name, value, (Synonym(name, value, ConfigSource.EVERY_BROKER),))
        if is_broker_property(name)
        else _unknown_setting(name, broker, everywhere_alone=True)
        for name, value in sorted(broker.kept_everywhere.items())
    ]


def _unknown_setting(
    name: str, broker: BrokerSettings, *, everywhere_alone: bool = False
) -> Described:
    layers = [(ConfigSource.EVERY_BROKER, broker.kept_everywhere)]
    if not everywhere_alone:
        layers.insert(0, (ConfigSource.BROKER, broker.kept))
    synonyms = tuple(Synonym(name, None, source) for source, layer in layers if name in layer)
    return Described(name, None, ConfigType.UNKNOWN, "", True, synonyms, is_sensitive=True)


def _topic_setting(
    name: str, entry: Property, own: Mapping[str, str], broker: BrokerSettings
) -> Described:
    synonyms = broker_synonyms(TOPIC_SYNONYMS[name][0], broker) if name in TOPIC_SYNONYMS else ()
    value = topic_default(name, broker)
    if name in own and fits(entry, own[name]):
        value = entry.parse(own[name])
        synonyms = (Synonym(name, as_text(value), ConfigSource.TOPIC), *synonyms)
    return Described(name, _text(value), entry.kind, entry.about, False, synonyms)


def _broker_setting(name: str, value: Any, synonyms: tuple[Synonym, ...]) -> Described:
    entry = _entry(name)
    if entry.kind is ConfigType.PASSWORD:
        hidden = tuple(one._replace(value=None) for one in synonyms)
        return Described(
            name, None, entry.kind, entry.about, not entry.is_dynamic, hidden, is_sensitive=True
        )
    is_read_only = not entry.is_dynamic
    return Described(name, _text(value), entry.kind, entry.about, is_read_only, synonyms)


def _entry(name: str) -> Property:
    return known_property(BROKER_PROPERTIES, "broker", name)


def _text(value: Any) -> str | None:
    return None if value is None else as_text(value)


_GROUPS: Final = {name: group for group in TOPIC_SYNONYMS.values() for name in group}
"""Broker setting → the ones that stand for the same setting of a topic."""


def broker_synonyms(name: str, broker: BrokerSettings) -> tuple[Synonym, ...]:
    """Sources of a broker setting, layer by layer; those before its own name are left out."""
    group = _GROUPS.get(name, (name,))
    if name.startswith(LISTENER_PREFIX):
        group = (name, name.removeprefix(LISTENER_PREFIX).partition(".")[2])
    synonyms = [
        Synonym(synonym, as_text(layer[synonym]), source)
        for source, layer in (
            (ConfigSource.BROKER, broker.changed),
            (ConfigSource.EVERY_BROKER, broker.changed_everywhere),
            (ConfigSource.GIVEN, broker.given),
            (
                ConfigSource.DEFAULT,
                {
                    synonym: BROKER_PROPERTIES[synonym].default
                    for synonym in group
                    if synonym in BROKER_PROPERTIES
                },
            ),
        )
        for synonym in group
        if layer.get(synonym) is not None
    ]
    first = next((at for at, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return tuple(synonyms[first:])


class AlterOperation(IntEnum):
    """Kinds of alterations, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One change of one setting; `value` is not looked at by DELETE."""

    name: str
    operation: AlterOperation
    value: str = ""


Changes = dict[str, str | None]
"""Setting → its new value; None takes it away. Settings that stay as they are, are not there."""


def alter(
    table: Mapping[str, Property],
    kind: str,
    own: Mapping[str, str],
    alterations: Iterable[Alteration],
) -> Changes:
    """Return the changes that alterations make to a resource's own settings.

    Args:
        table: `TOPIC_PROPERTIES`, `BROKER_PROPERTIES` or `GROUP_PROPERTIES`.
        kind: "topic", "broker" or "group", for messages.
        own: The settings the resource has.
        alterations: At most one for each setting.

    Raises:
        ConfigError: a name is unknown and not to be deleted, or the entries of a setting that is
            no list are altered.
    """
    changes = {change.name: _altered(table, kind, own, change) for change in alterations}
    return {name: value for name, value in changes.items() if own.get(name) != value}


def _altered(
    table: Mapping[str, Property], kind: str, own: Mapping[str, str], change: Alteration
) -> str | None:
    if change.operation is AlterOperation.DELETE:
        return None  # of any name: another broker may have known it
    entry = known_property(table, kind, change.name)
    match change.operation:
        case AlterOperation.SET:
            return change.value
        case _ if entry.kind is not ConfigType.LIST:
            raise ConfigError(
                f"Can't {change.operation.name} to key {change.name} because its type is not LIST. "
                "It can be set or deleted",
                property=change.name,
            )
    present = split_list(own.get(change.name, as_text(entry.default)))
    items = change.value.split(",")  # an empty one is appended as it is, and refused beside others
    if change.operation is AlterOperation.APPEND:
        return ",".join(dict.fromkeys([*present, *items]))
    return ",".join(word for word in present if word not in items)


def replace(own: Mapping[str, str], values: Mapping[str, str]) -> Changes:
    """Return the changes when a resource's own settings become the given ones and no others."""
    changes: Changes = {name: None for name in own if name not in values}
    changes |= values
    return {name: value for name, value in changes.items() if own.get(name) != value}
