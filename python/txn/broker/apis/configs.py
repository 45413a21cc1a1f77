"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources.

Topics and this broker have settings; loggers, client metrics and groups have none here.

Deviations from Kafka: an unknown broker property is refused with INVALID_CONFIG (Kafka keeps
it), also when it is to be deleted; the internal topics stay compacted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from txn.broker.apis.metadata import promised
from txn.broker.host import Answer, Context
from txn.broker.node import Node, is_reserved
from txn.broker.turns import Turns
from txn.config import (
    BROKER_PROPERTIES,
    TOPIC_PROPERTIES,
    fits,
    known_property,
    parse_property,
    parse_topic_settings,
    topic_setting,
)
from txn.errors import ConfigError, StorageError
from txn.metadata.configs import (
    Alteration,
    Changes,
    Described,
    Operation,
    alter,
    describe_broker,
    describe_every_broker,
    describe_topic,
    replace,
)
from txn.metadata.image import name_fault
from txn.metadata.records import BROKER_RESOURCE, EVERY_BROKER, TOPIC_RESOURCE
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 33, 44, 74

ALTERATION_ITEMS = 10
"""What the settings of a resource count as things, see `Turns`."""

LISTED_KINDS = frozenset({TOPIC_RESOURCE, BROKER_RESOURCE, 8, 16, 32})
"""What may be asked for: topics, brokers, and broker loggers, client metrics and groups."""


class _Fault(Exception):
    """Why a resource is refused."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def describe_configs(node: Node, request: Any, context: Context) -> Answer:
    """Answer with the settings of topics and of the broker, and where they come from.

    Cost: a millisecond for each resource; others are served in between.
    """
    results = []
    for resource in request.resources:
        described = _described(
            node,
            resource,
            with_synonyms=request.include_synonyms,
            with_documentation=getattr(request, "include_documentation", False),
        )
        results.append(encode_entry(context.api_key, context.api_version, "results", described))
        await asyncio.sleep(0)
    return join_entries(context.api_key, context.api_version, results)


def _described(
    node: Node, resource: Any, *, with_synonyms: bool, with_documentation: bool
) -> dict[str, Any]:
    kind, name = resource.resource_type, resource.resource_name
    answer = {"resource_type": kind, "resource_name": name, "error_message": None, "configs": ()}
    try:
        found = _settings_of(node, kind, name)
    except _Fault as fault:
        return answer | {"error_code": fault.code, "error_message": fault.message}
    wanted = resource.configuration_keys or [setting.name for setting in found]
    configs = [
        _entry(setting, with_synonyms=with_synonyms, with_documentation=with_documentation)
        for setting in found
        if setting.name in wanted
    ]
    return answer | {"error_code": ErrorCode.none, "configs": configs}


def _settings_of(node: Node, kind: int, name: str) -> list[Described]:
    if kind == TOPIC_RESOURCE:
        _require_topic(node, name)
        return describe_topic(node.image.topics[name].settings, node.settings)
    _require_broker(node, kind, name)
    if name == EVERY_BROKER:
        return describe_every_broker(node.settings)
    return describe_broker(node.settings)


def _entry(setting: Described, *, with_synonyms: bool, with_documentation: bool) -> dict[str, Any]:
    synonyms = setting.synonyms if with_synonyms else ()
    return {
        "name": setting.name,
        "value": setting.value,
        "read_only": setting.is_read_only,
        "config_source": setting.source,
        "is_sensitive": False,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in synonyms
        ],
        "config_type": setting.kind,
        "documentation": setting.about if with_documentation else None,
    }


def _require_topic(node: Node, name: str) -> None:
    if name in node.image.topics:
        return
    fault = name_fault(name)
    if fault is not None:
        raise _Fault(ErrorCode.invalid_topic_exception, fault)
    raise _Fault(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")


def _require_broker(node: Node, kind: int, name: str) -> None:
    if kind != BROKER_RESOURCE:
        raise _Fault(
            ErrorCode.invalid_request,
            f"resources of type {kind} have no settings here; known are {TOPIC_RESOURCE} (topic) "
            f"and {BROKER_RESOURCE} (broker)",
        )
    if name not in (EVERY_BROKER, str(node.node_id)):
        raise _Fault(
            ErrorCode.invalid_request,
            f"there is no broker {name!r}: this one is {node.node_id}, and an empty name stands "
            "for every broker",
        )


Request = Callable[[Mapping[str, str], str], Changes]
"""What a request makes of a resource's own settings; the second argument names their kind."""


async def incremental_alter_configs(node: Node, request: Any, context: Context) -> Answer:
    """Change some settings of a resource, all of them or none; they count at once."""

    def changes_by(resource: Any) -> Request:
        alterations = [
            Alteration(entry.name, _operation(entry.config_operation), entry.value or "")
            for entry in resource.configs
        ]
        _require_values(
            entry for entry in resource.configs if entry.config_operation != Operation.DELETE
        )
        tables = {"topic": TOPIC_PROPERTIES, "broker": BROKER_PROPERTIES}
        return lambda own, kind: alter(tables[kind], kind, own, alterations)

    return await _altered(node, request, changes_by)


async def alter_configs(node: Node, request: Any, context: Context) -> Answer:
    """Replace all settings of a resource; what is not named goes back to its default."""

    def changes_by(resource: Any) -> Request:
        _require_values(resource.configs)
        given = {entry.name: entry.value for entry in resource.configs}
        return lambda own, kind: replace(own, given)

    return await _altered(node, request, changes_by)


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        known = ", ".join(f"{operation} ({operation.name})" for operation in Operation)
        raise _Fault(
            ErrorCode.invalid_request, f"there is no operation {number}; known are {known}"
        ) from None


def _require_values(entries: Iterable[Any]) -> None:
    without = [entry.name for entry in entries if entry.value is None]
    if without:
        raise _Fault(ErrorCode.invalid_request, f"a value is missing: {', '.join(without)}")


async def _altered(node: Node, request: Any, changes_by: Callable[[Any], Request]) -> Answer:
    named = Counter(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    turns = Turns()
    responses: list[dict[str, Any]] = []
    for resource in request.resources:
        await turns.next(ALTERATION_ITEMS)
        place = (resource.resource_type, resource.resource_name)
        code, message = ErrorCode.none, None
        try:
            if named[place] > 1:
                raise _Fault(ErrorCode.invalid_request, "the request names the resource twice")
            _require_each_once(resource)
            changes = _checked(node, *place, changes_by(resource))
            if changes and not request.validate_only:
                node.change_settings(*place, changes)
        except _Fault as fault:
            code, message = fault.code, fault.message
        except StorageError as error:
            code, message = ErrorCode(error.code), error.message
        responses.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": place[0],
                "resource_name": place[1],
            }
        )
    return {"responses": await promised(node, responses)}


def _require_each_once(resource: Any) -> None:
    named = Counter(entry.name for entry in resource.configs)
    twice = sorted(name for name, times in named.items() if times > 1)
    if twice:
        raise _Fault(
            ErrorCode.invalid_request, f"the request names settings twice: {', '.join(twice)}"
        )


def _checked(node: Node, kind: int, name: str, request: Request) -> Changes:
    """What a request changes, checked against everything it could break."""
    if kind == TOPIC_RESOURCE:
        return _checked_for_topic(node, name, request)
    _require_broker(node, kind, name)
    return _checked_for_broker(node.image.broker_settings.get(name, {}), request)


def _checked_for_topic(node: Node, name: str, request: Request) -> Changes:
    _require_topic(node, name)
    own = node.image.topics[name].settings
    try:
        changes = request(own, "topic")
        altered = {key: text for key, text in {**own, **changes}.items() if text is not None}
        parse_topic_settings(
            {key: text for key, text in altered.items() if key in changes or _is_fit(key, text)}
        )
    except ConfigError as error:
        raise _Fault(ErrorCode.invalid_config, error.message) from error
    if is_reserved(name) and topic_setting("cleanup.policy", altered, node.settings) != "compact":
        raise _Fault(
            ErrorCode.invalid_config, f"topic {name!r} is internal: its cleanup.policy is compact"
        )
    return changes


def _is_fit(name: str, text: str) -> bool:
    return name in TOPIC_PROPERTIES and fits(TOPIC_PROPERTIES[name], text)


def _checked_for_broker(own: Mapping[str, str], request: Request) -> Changes:
    try:
        changes = request(own, "broker")
        for key in changes.keys() - own.keys():
            known_property(BROKER_PROPERTIES, "broker", key)
    except ConfigError as error:
        raise _Fault(ErrorCode.invalid_config, error.message) from error
    fixed = sorted(
        key for key in changes.keys() - own.keys() if not BROKER_PROPERTIES[key].is_dynamic
    )
    if fixed:
        raise _Fault(
            ErrorCode.invalid_request,
            f"not to be changed while the broker runs: {', '.join(fixed)}. Give it at the start",
        )
    try:
        for key, text in changes.items():
            if text is not None:
                parse_property(BROKER_PROPERTIES, "broker", key, text)
    except ConfigError as error:
        raise _Fault(ErrorCode.invalid_request, error.message) from error
    return changes


async def list_config_resources(node: Node, request: Any, context: Context) -> Answer:
    """Answer with what has settings; version 0 asks for client metrics, of which there are none."""
    wanted = set(getattr(request, "resource_types", (16,))) or LISTED_KINDS
    if not wanted <= LISTED_KINDS:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
    there = [(TOPIC_RESOURCE, name) for name in sorted(node.image.topics)]
    there.append((BROKER_RESOURCE, str(node.node_id)))
    return {
        "error_code": ErrorCode.none,
        "config_resources": [
            {"resource_type": kind, "resource_name": name} for kind, name in there if kind in wanted
        ],
    }


VERSIONS = {
    DESCRIBE_CONFIGS: (1, 4),
    ALTER_CONFIGS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    LIST_CONFIG_RESOURCES: (0, 1),
}
HANDLERS = {
    DESCRIBE_CONFIGS: describe_configs,
    ALTER_CONFIGS: alter_configs,
    INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    LIST_CONFIG_RESOURCES: list_config_resources,
}
