"""The audit log: one line for each refusal and for each administrative act.

A line names principal, host, operation and resource, and no content. A client can bring about
refusals at will, so at most `LINES_MAX` of them are written in a second. The next line says how
many were left out. Acts of administrators are all written. Every refusal is counted.
"""

import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Final

from txn.broker.host import Context
from txn.logs import EventLog, log
from txn.metadata.records import ClientQuotaRecord
from txn.security.acls import Acl, Operation, ResourceType
from txn.wire.api_keys import ApiKey

LINES_MAX: Final = 100
"""Refusals that are written in one second."""

NAME_MAX: Final = 256
"""The most characters of a resource's name in a line; a client's may have 32,767."""


class AuditLog:
    """Writes the lines of refusals and acts.

    Args:
        events: Takes the lines.
        clock: Seconds on a clock that never steps.
    """

    def __init__(self, events: EventLog = log, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._second = -1
        self._lines = 0
        self._left_out = 0
        self._lock = Lock()  # reactors ask too
        self._refusals: Counter[tuple[Operation, ResourceType]] = Counter()

    def refusals(self) -> dict[tuple[Operation, ResourceType], int]:
        """The number of refusals so far, by operation and type of resource."""
        with self._lock:
            return dict(self._refusals)

    def refused(
        self,
        principal: str,
        host: str,
        api_key: int,
        operation: Operation,
        kind: ResourceType,
        name: str,
    ) -> None:
        """A client was refused an operation on a resource."""
        with self._lock:
            self._refusals[operation, kind] += 1
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            self._left_out += 1
            return
        left_out = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        self._events.info(
            "access.refused",
            principal=principal,
            host=host,
            request=ApiKey(api_key).name,
            operation=operation.name,
            resource=f"{kind.name}:{_short(name)}",
            **left_out,
        )

    def acted(self, context: Context, event: str, kind: str, name: str, **facts: object) -> None:
        """An administrator changed a resource: a topic, a group, a broker or a user."""
        self._events.info(
            event,
            principal=context.session.principal,
            host=context.client_host,
            resource=f"{kind}:{_short(name)}",
            **{fact: _short(str(value)) for fact, value in facts.items()},
        )

    def administered(self, context: Context, event: str, acl: Acl) -> None:
        """An administrator added or removed an entry."""
        self._events.info(
            event,
            principal=context.session.principal,
            host=context.client_host,
            resource=f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}",
            entry=f"{acl.permission.name} {acl.principal} {acl.operation.name} from {acl.host}",
        )

    def altered_quota(self, context: Context, change: ClientQuotaRecord) -> None:
        """An administrator set a quota, or took it away."""
        named = (
            f"{kind}:{'<default>' if name is None else _short(name)}"
            for kind, name in change.entity
        )
        value = {} if change.value is None else {"value": change.value}
        self._events.info(
            "quota.removed" if change.value is None else "quota.set",
            principal=context.session.principal,
            host=context.client_host,
            resource=" ".join(named),
            quota=change.key,
            **value,
        )


def _short(name: str) -> str:
    return f"{name[:NAME_MAX]}{'…' * (len(name) > NAME_MAX)}"


audit: Final = AuditLog()
