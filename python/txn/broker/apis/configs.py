"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources.

Topics and this broker have settings; loggers, client metrics and groups have none here.

Deviations from Kafka: DescribeConfigs answers a resource that is named several times once, with
the settings of all its entries. An unknown property that is to be set is refused with
INVALID_CONFIG; Kafka keeps that of a broker. The internal topics stay compacted.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from txn.broker.apis.api import Api
from txn.broker.apis.topics import published
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.config import (
    BROKER_PROPERTIES,
    LISTENER_PREFIX,
    TOPIC_PROPERTIES,
    BrokerSettings,
    ConfigType,
    as_text,
    fits,
    known_property,
    parse_property,
    parse_topic_settings,
    split_overrides,
    topic_setting,
)
from txn.errors import ConfigError, StorageError
from txn.metadata.configs import (
    Alteration,
    AlterOperation,
    Changes,
    ConfigSource,
    Described,
    Synonym,
    alter,
    describe_broker,
    describe_every_broker,
    describe_topic,
    replace,
)
from txn.metadata.image import COORDINATOR_TOPICS, name_fault
from txn.metadata.records import BROKER_RESOURCE, EVERY_BROKER, TOPIC_RESOURCE
from txn.security.listeners import is_address, listener_names
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.configs import (
    CLIENT_METRICS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlteredResource,
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries

ALTERATION_ITEMS = 10
"""Cost of altering one resource, in the items of `Turns`."""

KEYS_PER_ITEM = 20
"""Names of settings read at the cost of one item of `Turns`."""

DIRECTORIES: Final = ("log.dirs", "log.dir")
"""Kafka's names of the data directory. It is described by the first, and altered by neither."""

BROKER_LOGGER: Final = 8
LISTED_KINDS = frozenset({TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER, CLIENT_METRICS, 32})
"""Resource types of the request: topics, brokers, broker loggers, client metrics, groups."""


class _Fault(Exception):
    """Why a resource is refused."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def describe_configs(node: Node, request: DescribeConfigsRequest, context: Context) -> bytes:
    """Answer with the settings of topics and of the broker, and where they come from.

    Cost: a millisecond for each resource; others are served in between.
    """
    resources = await each_once(request.resources)
    results = await described_configs(node, resources, request, context)
    return join_entries(context.api_key, context.api_version, results)


Wanted = Mapping[tuple[int, str], Collection[str]]
"""Type and name of a resource → the names of the wanted settings; none: all."""


async def each_once(resources: Iterable[DescribeConfigsResource]) -> Wanted:
    """The resources of a request: 5 bytes that name one again would be answered with 20 KB."""
    turns = Turns()
    wanted: dict[tuple[int, str], set[str]] = {}
    in_full: set[tuple[int, str]] = set()
    for resource in resources:
        keys = resource.configuration_keys or ()
        await turns.next(1 + len(keys) // KEYS_PER_ITEM)
        place = (resource.resource_type, resource.resource_name)
        wanted.setdefault(place, set()).update(keys)
        if not keys:
            in_full.add(place)
    return {place: () if place in in_full else keys for place, keys in wanted.items()}


async def described_configs(
    node: Node, resources: Wanted, request: DescribeConfigsRequest, context: Context
) -> list[bytes]:
    """The encoded results, one for each resource; see `has_unknown_kind`."""
    results = []
    is_refused = has_unknown_kind(resources)
    for (kind, name), keys in resources.items():
        described = (
            _not_described(kind, name)
            if is_refused
            else _described(
                node,
                kind,
                name,
                keys,
                with_synonyms=request.include_synonyms,
                with_documentation=request.include_documentation,
            )
        )
        results.append(encode_entry(context.api_key, context.api_version, "results", described))
        await asyncio.sleep(0)
    return results


def has_unknown_kind(resources: Wanted) -> bool:
    """Say whether a type of resources is named that nobody knows: the request is refused then."""
    return any(kind not in LISTED_KINDS for kind, _ in resources)


def _not_described(kind: int, name: str) -> DescribeConfigsResult:
    known = ", ".join(map(str, sorted(LISTED_KINDS)))
    message = f"the request names a type of resources that is not there; known are {known}"
    return DescribeConfigsResult(ErrorCode.INVALID_REQUEST, message, kind, name)


def _described(
    node: Node,
    kind: int,
    name: str,
    keys: Collection[str],
    *,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResult:
    try:
        settings = _settings_of(node, kind, name)
    except _Fault as fault:
        return DescribeConfigsResult(fault.code, fault.message, kind, name)
    configs = [
        _entry(setting, with_synonyms=with_synonyms, with_documentation=with_documentation)
        for setting in settings
        if not keys or setting.name in keys
    ]
    return DescribeConfigsResult(ErrorCode.NONE, None, kind, name, configs)


def _settings_of(node: Node, kind: int, name: str) -> list[Described]:
    if kind == TOPIC_RESOURCE:
        _require_topic(node, name)
        return describe_topic(node.image.topics[name].settings, node.settings)
    _require_broker(node, kind, name)
    if name == EVERY_BROKER:
        return describe_every_broker(node.settings)
    settings = [*describe_broker(node.settings), *_directory(node)]
    return sorted(settings, key=lambda setting: setting.name)


def _directory(node: Node) -> list[Described]:
    """The data directory, as `log.dirs` names it; nothing while its disk cannot be read."""
    name, about = DIRECTORIES[0], "The data directory."
    try:
        path = node.space().directory
    except StorageError:
        return []
    source = Synonym(name, path, ConfigSource.GIVEN)
    return [Described(name, path, ConfigType.LIST, about, True, (source,))]


def _entry(setting: Described, *, with_synonyms: bool, with_documentation: bool) -> DescribedConfig:
    synonyms = setting.synonyms if with_synonyms else ()
    return DescribedConfig(
        setting.name,
        setting.value,
        setting.is_read_only,
        setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[ConfigSynonym(one.name, one.value, one.source) for one in synonyms],
        config_type=setting.kind,
        documentation=setting.about if with_documentation else None,
    )


def _require_topic_name(name: str) -> None:
    fault = name_fault(name)
    if fault is not None:
        raise _Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def _require_topic(node: Node, name: str) -> None:
    if name in node.image.topics:
        return
    _require_topic_name(name)
    raise _Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _require_broker(node: Node, kind: int, name: str) -> None:
    if kind != BROKER_RESOURCE:
        raise _Fault(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {kind} have no settings here; known are {TOPIC_RESOURCE} (topic) "
            f"and {BROKER_RESOURCE} (broker)",
        )
    if name not in (EVERY_BROKER, str(node.node_id)):
        raise _Fault(
            ErrorCode.INVALID_REQUEST,
            f"there is no broker {name!r}: this one is {node.node_id}, and an empty name stands "
            "for every broker",
        )


OwnChanges = Callable[[Mapping[str, str], str], Changes]
"""Maps a resource's own settings, and its kind, to the changes that a request makes."""

Resource = TypeVar("Resource", AlterConfigsResource, IncrementalAlterConfigsResource)


async def incremental_alter_configs(
    node: Node, request: IncrementalAlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    """Change some settings of a resource, all of them or none; they count at once."""

    def changes_by(resource: IncrementalAlterConfigsResource) -> OwnChanges:
        alterations = [
            Alteration(entry.name, _operation(entry.config_operation), entry.value or "")
            for entry in resource.configs
        ]
        tables = {"topic": TOPIC_PROPERTIES, "broker": BROKER_PROPERTIES}
        return lambda own, kind: alter(tables[kind], kind, own, alterations)

    return await _altered(
        node, request.resources, changes_by, context, validate_only=request.validate_only
    )


async def alter_configs(
    node: Node, request: AlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    """Replace all settings of a resource; settings not named get their defaults back."""

    def changes_by(resource: AlterConfigsResource) -> OwnChanges:
        values = {entry.name: entry.value or "" for entry in resource.configs}
        return lambda own, kind: replace(own, values)

    return await _altered(
        node, request.resources, changes_by, context, validate_only=request.validate_only
    )


def _operation(number: int) -> AlterOperation:
    try:
        return AlterOperation(number)
    except ValueError:
        known = ", ".join(f"{operation} ({operation.name})" for operation in AlterOperation)
        raise _Fault(
            ErrorCode.INVALID_REQUEST, f"there is no operation {number}; known are {known}"
        ) from None


def is_sound(node: Node, resource: Resource) -> bool:
    """Say whether a resource has none of the faults that nobody may make, whatever his rights."""
    try:
        _require_sound(node, resource)
    except _Fault:
        return False
    return True


def _require_sound(
    node: Node, resource: AlterConfigsResource | IncrementalAlterConfigsResource
) -> None:
    """Refuse a resource for faults that Kafka's brokers look for before anybody's rights."""
    _require_each_once(resource.configs)
    without = [
        entry.name for entry in resource.configs if entry.value is None and _needs_value(entry)
    ]
    if without:
        raise _Fault(ErrorCode.INVALID_REQUEST, f"a value is missing: {', '.join(without)}")
    kind = resource.resource_type
    is_logger = kind == BROKER_LOGGER and isinstance(resource, AlterConfigsResource)
    if kind == BROKER_RESOURCE or is_logger:
        _require_broker(node, kind, resource.resource_name)


def _needs_value(entry: AlterableConfig | IncrementalConfig) -> bool:
    is_deleted = (
        isinstance(entry, IncrementalConfig) and entry.config_operation == AlterOperation.DELETE
    )
    return not is_deleted


async def _altered(
    node: Node,
    resources: Sequence[Resource],
    changes_by: Callable[[Resource], OwnChanges],
    context: Context,
    *,
    validate_only: bool,
) -> AlterConfigsResponse:
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    turns = Turns()
    alterations: list[tuple[AlteredResource, Awaitable[None] | None, Changes]] = []
    for resource in resources:
        await turns.next(ALTERATION_ITEMS)
        place = (resource.resource_type, resource.resource_name)
        code, message, change = ErrorCode.NONE, None, None
        changes: Changes = {}
        try:
            if named[place] > 1:
                raise _Fault(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            _require_sound(node, resource)
            changes = _checked(node, *place, changes_by(resource))
            if changes and not validate_only:
                change = node.controller.alter_configs(*place, changes)
        except _Fault as fault:
            code, message = fault.code, fault.message
        alterations.append((AlteredResource(code, message, *place), change, changes))
    results = []
    for result, change, changes in alterations:
        altered = await published(result, change)
        if change is not None and altered.error_code is ErrorCode.NONE:
            kind = "TOPIC" if altered.resource_type == TOPIC_RESOURCE else "BROKER"
            names = ",".join(sorted(changes))  # no values: one may be a secret
            audit.acted(context, "settings.altered", kind, altered.resource_name, settings=names)
        results.append(altered)
    return AlterConfigsResponse(results)


def _require_each_once(configs: Iterable[AlterableConfig | IncrementalConfig]) -> None:
    named = Counter(entry.name for entry in configs)
    twice = sorted(name for name, times in named.items() if times > 1)
    if twice:
        raise _Fault(
            ErrorCode.INVALID_REQUEST, f"the request names settings twice: {', '.join(twice)}"
        )


def _checked(node: Node, kind: int, name: str, request: OwnChanges) -> Changes:
    """The changes of a request, checked against everything they could break."""
    if kind == TOPIC_RESOURCE:
        return _checked_for_topic(node, name, request)
    _require_broker(node, kind, name)
    own = node.controller.image.broker_settings.get(name, {})
    return _checked_for_broker(node.settings, own, request)


def _checked_for_topic(node: Node, name: str, request: OwnChanges) -> Changes:
    """Check the name, then the values, then whether there is such a topic, as Kafka does."""
    if not name:
        raise _Fault(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    _require_topic_name(name)
    topic = node.controller.image.topics.get(name)
    own = {} if topic is None else topic.settings
    try:
        changes = request(own, "topic")
        altered = {key: text for key, text in {**own, **changes}.items() if text is not None}
        parse_topic_settings(
            {key: text for key, text in altered.items() if key in changes or _is_fit(key, text)}
        )
    except ConfigError as error:
        raise _Fault(ErrorCode.INVALID_CONFIG, error.message) from error
    _require_topic(node, name)
    if (
        name in COORDINATOR_TOPICS
        and topic_setting("cleanup.policy", altered, node.settings) != "compact"
    ):
        raise _Fault(
            ErrorCode.INVALID_CONFIG, f"topic {name!r} is internal: its cleanup.policy is compact"
        )
    return changes


def _is_fit(name: str, text: str) -> bool:
    return name in TOPIC_PROPERTIES and fits(TOPIC_PROPERTIES[name], text)


def _checked_for_broker(
    settings: BrokerSettings, own: Mapping[str, str], request: OwnChanges
) -> Changes:
    try:
        changes = request(own, "broker")
        fixed = sorted(
            key
            for key in changes.keys() - own.keys()
            if not known_property(BROKER_PROPERTIES, "broker", key).is_dynamic
        )
    except ConfigError as error:
        if error.property not in DIRECTORIES:
            raise _Fault(ErrorCode.INVALID_CONFIG, error.message) from error
        fixed = [error.property]
    if fixed:
        remedy = "Give it at the start"
        if any(name.startswith("ssl.") or ".ssl." in name for name in fixed):
            remedy += (
                ". New certificates go into the files that it names: these are read again when "
                "they change, and at once by SIGHUP of `txn serve` or Broker.reload_certificates()"
            )
        raise _Fault(
            ErrorCode.INVALID_REQUEST,
            f"not to be changed while the broker runs: {', '.join(fixed)}. {remedy}",
        )
    try:
        for key, text in changes.items():
            if text is not None:
                value = parse_property(BROKER_PROPERTIES, "broker", key, text)
                _require_use(settings, key, value)
        _require_reachable(settings, changes)
    except ConfigError as error:
        raise _Fault(ErrorCode.INVALID_REQUEST, error.message) from error
    return changes


def _require_use(settings: BrokerSettings, key: str, value: object) -> None:
    """Refuse limits that count for nothing, or let nobody in. Raises ConfigError."""
    name = key
    if key.startswith(LISTENER_PREFIX):
        listener, _, name = key.removeprefix(LISTENER_PREFIX).partition(".")
        known = listener_names(settings)
        if listener.upper() not in known or listener != listener.lower():
            raise ConfigError(
                f"broker property {key} is of no listener: those are {', '.join(known)}, and are "
                "written here in lower case",
                property=key,
            )
    if name in ("max.connections", "max.connection.creation.rate") and value == 0:
        raise ConfigError(f"broker property {key} cannot be 0: it takes at least 1", property=key)
    if name == "max.connections.per.ip.overrides":
        names = [host for host in split_overrides(str(value)) if not is_address(host)]
        if names:
            raise ConfigError(
                f"broker property {key} names {', '.join(names)}: while the broker runs it takes "
                "IP addresses alone",
                property=key,
            )


def _require_reachable(settings: BrokerSettings, changes: Changes) -> None:
    """Refuse a limit for each address that lets nobody in. Raises ConfigError."""
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if limit in changes or overrides in changes:
        most, others = (changes.get(name, as_text(settings[name])) for name in (limit, overrides))
        if most is not None and int(most) == 0 and not others:
            raise ConfigError(
                f"broker property {limit} cannot be 0 without {overrides}: nobody could connect",
                property=limit,
            )


async def list_config_resources(
    node: Node, request: ListConfigResourcesRequest, context: Context
) -> ListConfigResourcesResponse:
    """List the resources that have settings. Client metrics, version 0's only type, have none."""
    kinds = set(request.resource_types) or LISTED_KINDS
    if not kinds <= LISTED_KINDS:
        return ListConfigResourcesResponse(ErrorCode.UNSUPPORTED_VERSION, [])
    there = [ConfigResource(name, TOPIC_RESOURCE) for name in sorted(node.image.topics)]
    there.append(ConfigResource(str(node.node_id), BROKER_RESOURCE))
    return ListConfigResourcesResponse(
        ErrorCode.NONE, [one for one in there if one.resource_type in kinds]
    )


APIS: Final[tuple[Api[Node], ...]] = (
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs,
    ),
    Api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, alter_configs),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest,
        AlterConfigsResponse,
        incremental_alter_configs,
    ),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        list_config_resources,
    ),
)
