"""Requests about the settings of resources, and the parts of the answers that tests compare."""

import time
from typing import Any, Final, NamedTuple

from support.clients import POLL_S
from support.wire_client import WAIT_S, ask
from txn.wire.api_keys import ApiKey

SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_TOPIC: Final = 3

Entry = tuple[str, int, str | None]
"""A setting, the operation on it, and its value."""


class Description(NamedTuple):
    """The answer about one resource: the error, and the settings without their documentation."""

    code: int
    message: str
    entries: dict[str, Any]


class Resources(NamedTuple):
    """The resources of one kind at a broker."""

    servers: str
    kind: int

    def describe(self, name: str) -> Description:
        """Everything about the settings of a resource but the prose."""
        resource = self._resource(name) | {"configuration_keys": None}
        answer = ask(
            self.servers,
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[resource],
            include_synonyms=True,
            include_documentation=False,
        )
        (result,) = answer.results
        entries = {entry.name: entry for entry in result.configs}
        return Description(int(result.error_code), result.error_message or "", entries)

    def describe_known(self, name: str) -> Description:
        """Like `describe`. Kafka's broker learns of a new topic after its creation is answered."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.describe(name)).code == UNKNOWN_TOPIC:
            assert time.monotonic() < deadline, found.message
            time.sleep(POLL_S)
        return found

    def await_description(self, name: str, expected: Description) -> None:
        """Wait until a resource is described so. Kafka's broker learns of a change later."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.describe(name)) != expected:
            if time.monotonic() > deadline:
                assert found == expected
            time.sleep(POLL_S)

    def alter(self, name: str, *entries: Entry) -> tuple[int, str]:
        """Send IncrementalAlterConfigs; return the error code and its text."""
        configs = [
            {"name": setting, "config_operation": operation, "value": value}
            for setting, operation, value in entries
        ]
        return self._altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, name, configs)

    def replace(self, name: str, **values: str) -> int:
        """Send AlterConfigs; return the error code. An underscore stands for a dot in names."""
        configs = [
            {"name": setting.replace("_", "."), "value": value} for setting, value in values.items()
        ]
        return self._altered(ApiKey.ALTER_CONFIGS, 2, name, configs)[0]

    def names(self) -> set[str]:
        """The names of the resources that have settings."""
        answer = ask(self.servers, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[self.kind])
        return {resource.resource_name for resource in answer.config_resources}

    def _altered(
        self, api: int, version: int, name: str, configs: list[dict[str, Any]]
    ) -> tuple[int, str]:
        resource = self._resource(name) | {"configs": configs}
        answer = ask(self.servers, api, version, resources=[resource], validate_only=False)
        (result,) = answer.responses
        return int(result.error_code), result.error_message or ""

    def _resource(self, name: str) -> dict[str, Any]:
        return {"resource_type": self.kind, "resource_name": name}
