"""DescribeConfigs and ListConfigResources.

Topics, groups, this broker and subscriptions to clients' metrics have settings; loggers have none
here.

Deviation from Kafka: DescribeConfigs answers a resource that is named several times once, with
the settings of all its entries.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from txn.broker.apis.access import Access
from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    CLUSTER_FAILED,
    GROUP_FAILED,
    MESSAGES,
    TOPIC_FAILED,
    Need,
)
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.config import (
    ConfigType,
)
from txn.errors import StorageError
from txn.metadata.client_metrics_configs import describe_client_metrics
from txn.metadata.configs import (
    ConfigSource,
    Described,
    Synonym,
    describe_broker,
    describe_every_broker,
    describe_topic,
)
from txn.metadata.group_configs import describe_group
from txn.metadata.image import name_fault
from txn.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    EVERY_BROKER,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.configs import (
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries

KEYS_PER_ITEM = 20
"""Names of settings read at the cost of one item of `Turns`."""

DIRECTORIES: Final = ("log.dirs", "log.dir")
"""Kafka's names of the data directory. It is described by the first, and altered by neither."""

BROKER_LOGGER: Final = 8
LISTED_KINDS = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)
"""Resource types of the request: topics, brokers, broker loggers, client metrics, groups."""


CLUSTER_RESOURCES: Final = frozenset({BROKER_RESOURCE, BROKER_LOGGER, CLIENT_METRICS_RESOURCE})
"""Resource types whose settings belong to the cluster."""


class ConfigFault(Exception):
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
    except ConfigFault as fault:
        return DescribeConfigsResult(fault.code, fault.message, kind, name)
    configs = [
        _entry(setting, with_synonyms=with_synonyms, with_documentation=with_documentation)
        for setting in settings
        if not keys or setting.name in keys
    ]
    return DescribeConfigsResult(ErrorCode.NONE, None, kind, name, configs)


def _settings_of(node: Node, kind: int, name: str) -> list[Described]:
    if kind == TOPIC_RESOURCE:
        require_topic(node, name)
        return describe_topic(node.image.topics[name].settings, node.settings)
    if kind == GROUP_RESOURCE:
        if not name:
            raise ConfigFault(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(node.image.group_settings.get(name, {}), node.settings)
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            message = "Client metrics subscription name must not be empty"
            raise ConfigFault(ErrorCode.INVALID_REQUEST, message)
        return describe_client_metrics(node.image.client_metrics.get(name, {}))
    require_broker(node, kind, name)
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


def require_topic_name(name: str) -> None:
    """Raise ConfigFault if no topic can have this name."""
    fault = name_fault(name)
    if fault is not None:
        raise ConfigFault(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def require_topic(node: Node, name: str) -> None:
    """Raise ConfigFault if there is no such topic."""
    if name in node.image.topics:
        return
    require_topic_name(name)
    raise ConfigFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def require_broker(node: Node, kind: int, name: str) -> None:
    """Raise ConfigFault if a resource is not this broker."""
    if kind != BROKER_RESOURCE:
        raise ConfigFault(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {kind} have no settings here; known are {TOPIC_RESOURCE} (topic), "
            f"{BROKER_RESOURCE} (broker), {CLIENT_METRICS_RESOURCE} (client metrics) and "
            f"{GROUP_RESOURCE} (group)",
        )
    if name not in (EVERY_BROKER, str(node.node_id)):
        raise ConfigFault(
            ErrorCode.INVALID_REQUEST,
            f"there is no broker {name!r}: this one is {node.node_id}, and an empty name stands "
            "for every broker",
        )


async def list_config_resources(
    node: Node, request: ListConfigResourcesRequest, context: Context
) -> ListConfigResourcesResponse:
    """List the resources that have settings. Version 0 asks for client metrics alone."""
    kinds = set(request.resource_types) or LISTED_KINDS
    if not kinds <= LISTED_KINDS:
        return ListConfigResourcesResponse(ErrorCode.UNSUPPORTED_VERSION, [])
    there = [ConfigResource(name, TOPIC_RESOURCE) for name in sorted(node.image.topics)]
    there.append(ConfigResource(str(node.node_id), BROKER_RESOURCE))
    there += [
        ConfigResource(name, CLIENT_METRICS_RESOURCE) for name in sorted(node.image.client_metrics)
    ]
    there += [ConfigResource(name, GROUP_RESOURCE) for name in sorted(node.image.group_settings)]
    return ListConfigResourcesResponse(
        ErrorCode.NONE, [one for one in there if one.resource_type in kinds]
    )


# ---------------------------------------------------------------- access


async def _guard_describe_configs(
    call: Call[Node, DescribeConfigsRequest, DescribeConfigsResponse],
) -> bytes:
    """DESCRIBE_CONFIGS on the topic, the group or the cluster."""
    context = call.context
    turns = Turns()
    allowed: dict[tuple[int, str], Collection[str]] = {}
    refused = []
    wanted = await each_once(call.request.resources)
    is_refused_anyhow = has_unknown_kind(wanted)
    for (kind, name), keys in wanted.items():
        await turns.next()
        code = None
        if not is_refused_anyhow:
            code = fault_of_config(call.access, Operation.DESCRIBE_CONFIGS, kind, name)
        if code is None:
            allowed[kind, name] = keys
            continue
        result = DescribeConfigsResult(code, MESSAGES[code], kind, name)
        refused.append(encode_entry(context.api_key, context.api_version, "results", result))
    described = await described_configs(call.service, allowed, call.request, context)
    return join_entries(context.api_key, context.api_version, [*described, *refused])


def fault_of_config(access: Access, operation: Operation, kind: int, name: str) -> ErrorCode | None:
    """The error that keeps the settings of a resource from a client."""
    if kind == TOPIC_RESOURCE:
        is_allowed = access.may(operation, ResourceType.TOPIC, name)
        return None if is_allowed else TOPIC_FAILED
    if kind == GROUP_RESOURCE:
        is_allowed = access.may(operation, ResourceType.GROUP, name)
        return None if is_allowed else GROUP_FAILED
    if kind in CLUSTER_RESOURCES:
        is_allowed = access.may_in_cluster(operation)
        return None if is_allowed else CLUSTER_FAILED
    return None  # there is no such type: the handler says so


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        (1, 4),
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        _guard_describe_configs,
        describe_configs,
    ),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        (0, 1),
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        Need(Operation.DESCRIBE_CONFIGS).or_else(ListConfigResourcesResponse(CLUSTER_FAILED, [])),
        list_config_resources,
    ),
)
