"""The settings in force: the broker's in their layers, and a topic's own over the broker's.

A value that is given is checked before it is stored. A value in the metadata log may come from
another broker: if it does not fit, it counts for nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from txn.config.broker_properties import BROKER_PROPERTIES, LISTENER_PREFIX, broker_property
from txn.config.property import (
    HOUR_MS,
    INT64_MAX,
    MINUTE_MS,
    ConfigType,
    Property,
    UnfitError,
    as_text,
    fits,
)
from txn.config.security_properties import STANDARD_AUTHORIZER
from txn.config.topic_properties import TOPIC_PROPERTIES, TOPIC_SYNONYMS
from txn.errors import ConfigError

_UNIT_MS: Final[Mapping[str, int]] = {
    "log.retention.hours": HOUR_MS,
    "log.retention.minutes": MINUTE_MS,
    "log.roll.hours": HOUR_MS,
    "log.roll.jitter.hours": HOUR_MS,
}
"""Broker settings that are not in the milliseconds of their topic setting."""


def parse_property(table: Mapping[str, Property], kind: str, name: str, text: str) -> Any:
    """Read one setting's value.

    Args:
        table: `BROKER_PROPERTIES`, `TOPIC_PROPERTIES` or `GROUP_PROPERTIES`.
        kind: "broker", "topic" or "group", for the message.
        name: Kafka's property name.
        text: The value as text.

    Raises:
        ConfigError: the name is unknown, or the value does not fit.
    """
    entry = known_property(table, kind, name)
    try:
        if entry.is_dense and text.strip():
            _require_dense(text)
        return entry.parse(text)
    except (ValueError, KeyError) as error:
        said, fault = f"{kind} property {name} cannot be {text!r}", f"it takes {entry.expects}"
        if kind != "broker":  # it is told to clients, whose scripts know Kafka's words
            said = f"Invalid value {text} for configuration {name}"
            if isinstance(error, UnfitError):
                is_word = entry.kind is ConfigType.STRING
                fault = str(error) if is_word else f"{error}; {fault}"
        raise ConfigError(f"{said}: {fault}", property=name, value=text) from None


def _require_dense(text: str) -> None:
    """Raise ValueError for an empty entry of a list."""
    if not all(part.strip() for part in text.split(",")):
        raise ValueError(text)


def known_property(table: Mapping[str, Property], kind: str, name: str) -> Property:
    """Find a property; raises ConfigError, with a name that is close if there is one."""
    entry = broker_property(name) if table is BROKER_PROPERTIES else table.get(name)
    if entry is None:
        from txn.hints import did_you_mean  # only a mistake needs it

        said = f"unknown {kind} property {name!r}"
        if kind != "broker":
            said = f"Unknown {kind} config name: {name}"
        raise ConfigError(f"{said}{did_you_mean(name, table)}", property=name)
    return entry


def is_broker_property(name: str) -> bool:
    """Return True if a broker has a property of this name, perhaps one of a listener."""
    return broker_property(name) is not None


class BrokerSettings:
    """The broker's settings, in layers: a layer counts for the names that the layers before it
    lack.

    `changed` holds the values altered for this broker alone while it ran, `changed_everywhere`
    those altered for every broker of the cluster. `given` holds the values of the start.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.changed: dict[str, Any] = {}
        self.changed_everywhere: dict[str, Any] = {}
        self.kept: Mapping[str, str] = {}
        """All values stored for this broker alone, with those that count for nothing here."""
        self.kept_everywhere: Mapping[str, str] = {}
        """All values stored for every broker."""
        self._topic_defaults: dict[str, Any] | None = None
        self._when_changed: list[Callable[[], object]] = []
        self.given = {
            name: parse_property(BROKER_PROPERTIES, "broker", name, as_text(value))
            for name, value in (given or {}).items()
        }
        queued, largest = self["queued.max.request.bytes"], self["socket.request.max.bytes"]
        if 0 < queued < largest:
            raise ConfigError(
                f"broker property queued.max.request.bytes cannot be {queued}: it takes at least "
                f"socket.request.max.bytes, {largest}, or -1 for no limit",
                property="queued.max.request.bytes",
                value=queued,
            )
        self._require_authorizer()
        self._require_delay_below_idle()
        self._require_reachable()

    def _require_delay_below_idle(self) -> None:
        """Refuse a delay that outlasts the connection."""
        name = "connection.failed.authentication.delay.ms"
        delay_ms, idle_ms = self[name], self["connections.max.idle.ms"]
        if 0 <= idle_ms <= delay_ms:
            raise ConfigError(
                f"broker property {name} cannot be {delay_ms}: it takes less than "
                f"connections.max.idle.ms, {idle_ms}",
                property=name,
                value=delay_ms,
            )

    def _require_reachable(self) -> None:
        """Refuse limits under which no client can connect."""
        if not (self["max.connections.per.ip"] or self["max.connections.per.ip.overrides"]):
            raise ConfigError(
                "broker property max.connections.per.ip is 0, and nobody can connect: give "
                "max.connections.per.ip.overrides, or another number",
                property="max.connections.per.ip",
            )

    def _require_authorizer(self) -> None:
        """Refuse super users where everybody is one."""
        if self["super.users"] and not self["authorizer.class.name"]:
            raise ConfigError(
                "broker property super.users stands without authorizer.class.name, and everybody "
                f"may do everything then: give authorizer.class.name={STANDARD_AUTHORIZER}",
                property="super.users",
            )

    def change(self, *, here: Mapping[str, str], everywhere: Mapping[str, str]) -> None:
        """Replace the altered values, for this broker and for every broker.

        Another broker may have stored settings that are unknown, may not change or do not fit; they
        count for nothing.
        """
        before = self.changed, self.changed_everywhere
        self.changed = _dynamic(here)
        self.changed_everywhere = _dynamic(everywhere)
        self.kept, self.kept_everywhere = dict(here), dict(everywhere)
        if (self.changed, self.changed_everywhere) != before:
            self._topic_defaults = None
        for call in self._when_changed:
            call()

    def when_changed(self, call: Callable[[], object]) -> None:
        """Make a call after each change from now on; it raises nothing."""
        self._when_changed.append(call)

    def listener_settings(self) -> list[tuple[str, str]]:
        """The names of listeners with settings of their own, as they are given, and the settings.

        A setting has its mechanism in front of it.
        """
        names = (name for name in self.given if name.startswith(LISTENER_PREFIX))
        parts = (name.removeprefix(LISTENER_PREFIX).partition(".") for name in names)
        return sorted((listener, setting) for listener, _, setting in parts)

    def topic_defaults(self) -> Mapping[str, Any]:
        """The settings of a topic that has none of its own; worked out once between changes.

        A thousand partitions are opened in milliseconds, and each asks.
        """
        if self._topic_defaults is None:
            self._topic_defaults = {
                name: topic_default(name, self)
                for name, entry in TOPIC_PROPERTIES.items()
                if not entry.is_internal
            }
        return self._topic_defaults

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Any:
        """The value of a setting for a listener, and for one of its SASL mechanisms."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for own in (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}"):
            for layer in (self.changed, self.changed_everywhere, self.given):
                if own in layer:
                    return layer[own]
        return None if name not in BROKER_PROPERTIES else self[name]

    def __getitem__(self, name: str) -> Any:
        for layer in (self.changed, self.changed_everywhere, self.given):
            if name in layer:
                return layer[name]
        return BROKER_PROPERTIES[name].default


def _dynamic(settings: Mapping[str, str]) -> dict[str, Any]:
    entries = {name: broker_property(name) for name in settings}
    return {
        name: entry.parse(settings[name])
        for name, entry in entries.items()
        if entry is not None and entry.is_dynamic and fits(entry, settings[name])
    }


def parse_topic_settings(texts: Mapping[str, str | None]) -> dict[str, str]:
    """Check a topic's settings; return them as they are.

    Raises:
        ConfigError: a name is unknown, a value is null or does not fit, or two contradict.
    """
    settings = {name: text for name, text in texts.items() if text is not None}
    nulls = [name for name in texts if name not in settings]
    if nulls:
        said = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise ConfigError(said, property=nulls[0])
    parsed = {
        name: parse_property(TOPIC_PROPERTIES, "topic", name, text)
        for name, text in settings.items()
    }
    low = parsed.get("min.compaction.lag.ms", 0)
    high = parsed.get("max.compaction.lag.ms", INT64_MAX)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms "
            f"({high})",
            property="min.compaction.lag.ms",
        )
    return settings


def topic_default(name: str, broker: BrokerSettings) -> Any:
    """The value of a topic setting that the topic leaves out."""
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker[synonym]
        if value is not None:
            return value * _UNIT_MS[synonym] if synonym in _UNIT_MS and value > 0 else value
    return TOPIC_PROPERTIES[name].default


def topic_setting(name: str, topic: Mapping[str, str], broker: BrokerSettings) -> Any:
    """The value in force: the topic's own, else the broker's default for topics.

    A stored value that does not fit, as another broker may have written it, counts for nothing.
    """
    if name == "segment.bytes" and "internal.segment.bytes" in topic:
        name = "internal.segment.bytes"
    if name in topic and fits(TOPIC_PROPERTIES[name], topic[name]):
        return TOPIC_PROPERTIES[name].parse(topic[name])
    return topic_default(name, broker)


def topic_settings(topic: Mapping[str, str], broker: BrokerSettings) -> dict[str, Any]:
    """Every topic setting's value in force, by Kafka's names."""
    settings = dict(broker.topic_defaults())
    for name in topic.keys() & settings.keys():
        settings[name] = topic_setting(name, topic, broker)
    if "internal.segment.bytes" in topic:
        settings["segment.bytes"] = topic_setting("segment.bytes", topic, broker)
    return settings
