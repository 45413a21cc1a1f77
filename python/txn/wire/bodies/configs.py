"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

CLIENT_METRICS: Final = 16
"""The only kind of resource that ListConfigResources 0 asks for."""


@request_body
class DescribeConfigsResource:
    """A topic or broker, and the names of wanted settings; none or null: all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = ()


@request_body
class DescribeConfigsRequest:
    """Asks for settings."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class ConfigSynonym(NamedTuple):
    """One place that gives a setting its value."""

    name: str
    value: str | None
    source: int


class DescribedConfig(NamedTuple):
    """One setting."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[ConfigSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsResult(NamedTuple):
    """The settings of one resource."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribedConfig] = ()


class DescribeConfigsResponse(NamedTuple):
    """Settings by resource."""

    results: Sequence[DescribeConfigsResult]


@request_body
class AlterableConfig:
    """A setting and its new value."""

    name: str
    value: str | None


@request_body
class AlterConfigsResource:
    """All own settings that a resource is to have."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@request_body
class AlterConfigsRequest:
    """Replaces the settings of resources."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@request_body
class IncrementalConfig:
    """A setting, an operation and its operand."""

    name: str
    config_operation: int
    value: str | None


@request_body
class IncrementalAlterConfigsResource:
    """Operations on the settings of one resource."""

    resource_type: int
    resource_name: str
    configs: tuple[IncrementalConfig, ...]


@request_body
class IncrementalAlterConfigsRequest:
    """Changes some settings of resources."""

    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: bool = False


class AlteredResource(NamedTuple):
    """The result for one resource."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponse(NamedTuple):
    """Results by resource, of AlterConfigs and of IncrementalAlterConfigs."""

    responses: Sequence[AlteredResource]


@request_body
class ListConfigResourcesRequest:
    """Asks for resources that have settings; no type asks for all types."""

    resource_types: tuple[int, ...] = (CLIENT_METRICS,)


class ConfigResource(NamedTuple):
    """One resource that has settings."""

    resource_name: str
    resource_type: int


class ListConfigResourcesResponse(NamedTuple):
    """Resources that have settings."""

    error_code: ErrorCode
    config_resources: Sequence[ConfigResource]
