"""IncrementalAlterConfigs and AlterConfigs.

Topics, groups, this broker and subscriptions to clients' metrics have settings; loggers have none
here.

Deviation from Kafka: an unknown property that is to be set is refused with INVALID_CONFIG; Kafka
keeps that of a broker. The internal topics stay compacted.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.configs import (
    BROKER_LOGGER,
    DIRECTORIES,
    ConfigFault,
    fault_of_config,
    require_broker,
    require_topic,
    require_topic_name,
)
from txn.broker.apis.guards import (
    MESSAGES,
)
from txn.broker.apis.topics import published
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.config import (
    BROKER_PROPERTIES,
    LISTENER_PREFIX,
    STORE_PROPERTIES,
    TOPIC_PROPERTIES,
    BrokerSettings,
    as_text,
    fits,
    known_property,
    parse_property,
    parse_topic_settings,
    split_overrides,
    topic_setting,
)
from txn.errors import ConfigError
from txn.metadata.client_metrics_configs import (
    CLIENT_METRICS_PROPERTIES,
    IntervalError,
    check_client_metrics,
)
from txn.metadata.configs import (
    Alteration,
    AlterOperation,
    Changes,
    alter,
    replace,
)
from txn.metadata.group_configs import GROUP_PROPERTIES, check_group
from txn.metadata.image import COORDINATOR_TOPICS
from txn.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    EVERY_BROKER,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from txn.security.acls import Operation
from txn.security.listeners import is_address, listener_names
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

PROPERTIES: Final = {
    "topic": TOPIC_PROPERTIES,
    "broker": BROKER_PROPERTIES,
    "group": GROUP_PROPERTIES,
    "client metrics": CLIENT_METRICS_PROPERTIES,
}
"""The settings of each kind of resource."""

KINDS: Final = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    CLIENT_METRICS_RESOURCE: "CLIENT_METRICS",
    GROUP_RESOURCE: "GROUP",
}
"""What the audit calls each kind of resource."""

ALTERATION_ITEMS = 10
"""Cost of altering one resource, in the items of `Turns`."""

OwnChanges = Callable[[Mapping[str, str], str], Changes]
"""Maps a resource's own settings, and its kind, to the changes that a request makes."""

AlterRequest = TypeVar("AlterRequest", AlterConfigsRequest, IncrementalAlterConfigsRequest)
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
        return lambda own, kind: alter(PROPERTIES[kind], kind, own, alterations)

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
        raise ConfigFault(
            ErrorCode.INVALID_REQUEST, f"there is no operation {number}; known are {known}"
        ) from None


def is_sound(node: Node, resource: Resource) -> bool:
    """Say whether a resource has none of the faults that nobody may make, whatever his rights."""
    try:
        _require_sound(node, resource)
    except ConfigFault:
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
        raise ConfigFault(ErrorCode.INVALID_REQUEST, f"a value is missing: {', '.join(without)}")
    kind = resource.resource_type
    is_logger = kind == BROKER_LOGGER and isinstance(resource, AlterConfigsResource)
    if kind == BROKER_RESOURCE or is_logger:
        require_broker(node, kind, resource.resource_name)


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
                raise ConfigFault(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            _require_sound(node, resource)
            changes = _checked(node, *place, changes_by(resource))
            if node.certificates is not None and _is_of_certificates(resource, changes):
                own = node.controller.image.broker_settings.get(resource.resource_name, {})
                node.certificates.require(own, changes)
                if not validate_only:
                    node.certificates.check()  # the same path may have another file by now
            if changes and not validate_only:
                change = node.controller.alter_configs(*place, changes)
        except ConfigFault as fault:
            code, message = fault.code, fault.message
        except ConfigError as error:
            code, message = ErrorCode.INVALID_REQUEST, error.message
        alterations.append((AlteredResource(code, message, *place), change, changes))
    results = []
    for result, change, changes in alterations:
        altered = await published(result, change)
        if change is not None and altered.error_code is ErrorCode.NONE:
            kind = KINDS[altered.resource_type]
            names = ",".join(sorted(changes))  # no values: one may be a secret
            audit.acted(context, "settings.altered", kind, altered.resource_name, settings=names)
        results.append(altered)
    return AlterConfigsResponse(results)


def _is_of_certificates(
    resource: AlterConfigsResource | IncrementalAlterConfigsResource, changes: Changes
) -> bool:
    """Say whether a request names or drops a setting of certificates, of a broker or a listener.

    AlterConfigs drops the settings that it does not name.
    """
    names = {*(entry.name for entry in resource.configs), *changes}
    return resource.resource_type == BROKER_RESOURCE and any(
        _name_of_store(name) is not None for name in names
    )


def _name_of_store(key: str) -> str | None:
    """The setting of certificates that a key means for a listener or all; None: it is another."""
    name = key
    if key.startswith(LISTENER_PREFIX):
        name = key.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return name if name in STORE_PROPERTIES else None


def _require_listeners_own(name: str, changes: Changes) -> None:
    """Refuse certificates for every broker or every listener, as Kafka does. Raises ConfigFault."""
    of_stores = sorted(key for key in changes if _name_of_store(key) is not None)
    of_all = [key for key in of_stores if not key.startswith(LISTENER_PREFIX)]
    text = None
    if name == EVERY_BROKER and of_stores:
        text = "Cannot update these configs at default cluster level, broker id must be specified"
    elif of_all:
        text = (
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix"
        )
    if text is not None:
        refused = ", ".join(of_all or of_stores)
        raise ConfigFault(ErrorCode.INVALID_REQUEST, f"{text}: [{refused}]")


def _require_each_once(configs: Iterable[AlterableConfig | IncrementalConfig]) -> None:
    named = Counter(entry.name for entry in configs)
    twice = sorted(name for name, times in named.items() if times > 1)
    if twice:
        raise ConfigFault(
            ErrorCode.INVALID_REQUEST, f"the request names settings twice: {', '.join(twice)}"
        )


def _checked(node: Node, kind: int, name: str, request: OwnChanges) -> Changes:
    """The changes of a request, checked against everything they could break."""
    if kind == TOPIC_RESOURCE:
        return _checked_for_topic(node, name, request)
    if kind == GROUP_RESOURCE:
        return _checked_for_group(node, name, request)
    if kind == CLIENT_METRICS_RESOURCE:
        return _checked_for_client_metrics(node, name, request)
    require_broker(node, kind, name)
    own = node.controller.image.broker_settings.get(name, {})
    changes = _checked_for_broker(node.settings, own, request)
    _require_listeners_own(name, changes)
    return changes


def _checked_for_topic(node: Node, name: str, request: OwnChanges) -> Changes:
    """Check the name, then the values, then whether there is such a topic, as Kafka does."""
    if not name:
        raise ConfigFault(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    require_topic_name(name)
    topic = node.controller.image.topics.get(name)
    own = {} if topic is None else topic.settings
    try:
        changes = request(own, "topic")
        altered = {key: text for key, text in {**own, **changes}.items() if text is not None}
        parse_topic_settings(
            {key: text for key, text in altered.items() if key in changes or _is_fit(key, text)}
        )
    except ConfigError as error:
        raise ConfigFault(ErrorCode.INVALID_CONFIG, error.message) from error
    require_topic(node, name)
    if (
        name in COORDINATOR_TOPICS
        and topic_setting("cleanup.policy", altered, node.settings) != "compact"
    ):
        raise ConfigFault(
            ErrorCode.INVALID_CONFIG, f"topic {name!r} is internal: its cleanup.policy is compact"
        )
    return changes


def _checked_for_group(node: Node, name: str, request: OwnChanges) -> Changes:
    if not name:
        raise ConfigFault(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    own = node.controller.image.group_settings.get(name, {})
    try:
        changes = request(own, "group")
        altered = {key: text for key, text in {**own, **changes}.items() if text is not None}
        check_group(altered, changes.keys() & altered.keys(), node.settings)
    except ConfigError as error:
        raise ConfigFault(ErrorCode.INVALID_CONFIG, error.message) from error
    return changes


def _checked_for_client_metrics(node: Node, name: str, request: OwnChanges) -> Changes:
    if not name:
        raise ConfigFault(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    own = node.controller.image.client_metrics.get(name, {})
    try:
        changes = request(own, "client metrics")
        altered = {key: text for key, text in {**own, **changes}.items() if text is not None}
        check_client_metrics(altered)
    except IntervalError as error:
        raise ConfigFault(ErrorCode.INVALID_REQUEST, error.message) from error
    except ConfigError as error:
        if error.property not in CLIENT_METRICS_PROPERTIES:
            message = f"Unknown client metrics configuration: {error.property}"
            raise ConfigFault(ErrorCode.INVALID_REQUEST, message) from error
        raise ConfigFault(ErrorCode.INVALID_CONFIG, error.message) from error
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
            raise ConfigFault(ErrorCode.INVALID_CONFIG, error.message) from error
        fixed = [error.property]
    if fixed:
        raise ConfigFault(
            ErrorCode.INVALID_REQUEST,
            f"not to be changed while the broker runs: {', '.join(fixed)}. Give it at the start",
        )
    try:
        for key, text in changes.items():
            if text is not None:
                value = parse_property(BROKER_PROPERTIES, "broker", key, text)
                _require_use(settings, key, value)
        _require_reachable(settings, changes)
    except ConfigError as error:
        raise ConfigFault(ErrorCode.INVALID_REQUEST, error.message) from error
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


async def _guard_alter_configs(
    call: Call[Node, AlterRequest, AlterConfigsResponse],
) -> AlterConfigsResponse:
    """ALTER_CONFIGS on the topic, the group or the cluster."""
    request = call.request
    turns = Turns()
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    refused: list[AlteredResource] = []
    allowed = []
    for resource in request.resources:
        await turns.next()
        kind, name = resource.resource_type, resource.resource_name
        code = None
        # Else the handler refuses it anyhow.
        if named[kind, name] == 1 and is_sound(call.service, resource):
            code = fault_of_config(call.access, Operation.ALTER_CONFIGS, kind, name)
        if code is None:
            allowed.append(resource)
        else:
            refused.append(AlteredResource(code, MESSAGES[code], kind, name))
    response: AlterConfigsResponse = await call.proceed_with(
        changed(request, resources=tuple(allowed))
    )
    return AlterConfigsResponse([*refused, *response.responses])


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.ALTER_CONFIGS,
        (0, 2),
        AlterConfigsRequest,
        AlterConfigsResponse,
        _guard_alter_configs,
        alter_configs,
    ),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (0, 1),
        IncrementalAlterConfigsRequest,
        AlterConfigsResponse,
        _guard_alter_configs,
        incremental_alter_configs,
    ),
)
