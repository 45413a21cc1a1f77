"""Reads, sets and removes settings of topics, brokers and groups of a running cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from txn.admin.cluster import RunningCluster
from txn.admin.refusals import NO_RIGHTS, require
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode


class ConfigKind(IntEnum):
    """The kinds of things that have settings, by their numbers on the wire (KIP-133, KIP-848)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


TOPIC: Final = ConfigKind.TOPIC
BROKER: Final = ConfigKind.BROKER
GROUP: Final = ConfigKind.GROUP

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs (KIP-339)."""

SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file of the broker",
    5: "default",
    8: "group",
}
"""Kafka's numbers of the source of a value (KIP-226, KIP-848)."""

OVERRIDES: Final[Mapping[ConfigKind, frozenset[int]]] = {
    TOPIC: frozenset({1}),
    BROKER: frozenset({2, 3, 4}),
    GROUP: frozenset({8}),
}
"""Sources of a value that somebody set for this very thing."""

NEEDED: Final[Mapping[ConfigKind, str]] = {
    TOPIC: "on the topic",
    BROKER: "on the cluster",
    GROUP: "on the group",
}

ConfigResource = tuple[ConfigKind, str]
"""The kind of a thing with settings, and its name. No name: all brokers."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting with its value; None: it has none, or the broker keeps it secret."""

    name: str
    value: str | None
    source: str
    is_override: bool
    is_sensitive: bool
    is_read_only: bool


def name_of(resource: ConfigResource) -> str:
    """Return a resource as a message names it: `topic 'orders'`."""
    kind, name = resource
    if kind is BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{kind.name.lower()} {name!r}"


def described_configs(
    cluster: RunningCluster, resources: Sequence[ConfigResource]
) -> list[list[ConfigEntry]]:
    """Read all settings of some resources, each list sorted by name.

    Raises:
        ConfigError: there is no broker with an id.
        RejectedError: a resource is not there, or its user may not.
    """
    alone = [each for each in resources if _is_one_broker(each)]
    others = [each for each in resources if not _is_one_broker(each)]
    found: dict[ConfigResource, list[ConfigEntry]] = {}
    for asked in [*([each] for each in alone), *([others] if others else [])]:
        request = {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                for kind, name in asked
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = _asked(cluster, asked[0], ApiKey.DESCRIBE_CONFIGS, range(1, 5), request)
        for result in answer.results:
            resource = ConfigKind(result.resource_type), result.resource_name
            refused = f"settings of {name_of(resource)} cannot be read"
            needs = f"DescribeConfigs {NEEDED[resource[0]]}"
            if resource[0] is GROUP and result.error_code == ErrorCode.INVALID_REQUEST:
                raise RejectedError(f"{refused}: no group of this cluster has settings of its own")
            require(result.error_code, result.error_message, refused, needs=needs)
            entries = (_entry(resource[0], each) for each in result.configs)
            found[resource] = sorted(entries, key=lambda entry: entry.name)
    return [found.get(each, []) for each in resources]


def _entry(kind: ConfigKind, told: Any) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        None if told.is_sensitive else told.value,
        SOURCES.get(told.config_source, "unknown"),
        told.config_source in OVERRIDES[kind],
        told.is_sensitive,
        told.read_only,
    )


def alter_configs(
    cluster: RunningCluster,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    *,
    is_dry_run: bool,
) -> None:
    """Set settings; None removes a setting, so that the next wider one applies.

    Raises:
        ConfigError: a name is near a known one, or is not among those of the resource.
        RejectedError: a value does not fit, or its user may not.
    """
    kind, name = resource
    # The default of all brokers tells only of settings that were set; one broker tells of all.
    known_to = (BROKER, str(cluster.node_ids[0])) if resource == (BROKER, "") else resource
    require_names(resource, _entries_if_allowed(cluster, known_to), changes)
    configs = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in changes.items()
    ]
    request = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": is_dry_run,
    }
    answer = _asked(cluster, resource, ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), request)
    (result,) = answer.responses
    refused = f"settings of {name_of(resource)} are not changed"
    needs = f"AlterConfigs {NEEDED[kind]}"
    require(result.error_code, result.error_message, refused, needs=needs)


def _entries_if_allowed(cluster: RunningCluster, resource: ConfigResource) -> list[ConfigEntry]:
    """Read the settings of a resource; none where its user may not: changing is another right."""
    try:
        (entries,) = described_configs(cluster, [resource])
    except RejectedError as error:
        if error.code not in NO_RIGHTS:
            raise
        return []
    return entries


def require_names(
    resource: ConfigResource, entries: Sequence[ConfigEntry], names: Iterable[str]
) -> None:
    """Check that a resource may have settings of these names.

    Some brokers list only settings that were set, although they have others. So a name that
    resembles no known one is left for them to check, except for a topic.

    Raises ConfigError: there is no such setting; the message has the nearest name.
    """
    known = {entry.name for entry in entries}
    for name in names:
        hint = did_you_mean(name, known)
        if known and name not in known and (hint or resource[0] is TOPIC):
            raise ConfigError(f"{name_of(resource)} has no setting {name!r}{hint}", property=name)


def _asked(
    cluster: RunningCluster,
    resource: ConfigResource,
    api_key: ApiKey,
    versions: range,
    request: Any,
) -> Any:
    """Ask the broker itself about its settings, and any broker about others."""
    if _is_one_broker(resource):
        _, name = resource
        if not name.isdigit():
            raise ConfigError(f"a broker is named by its id, a number: not {name!r}")
        return cluster.ask_node(int(name), api_key, versions, request)
    return cluster.ask(api_key, versions, request)


def _is_one_broker(resource: ConfigResource) -> bool:
    return resource[0] is BROKER and resource[1] != ""
