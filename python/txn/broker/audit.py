"""The audit log: one line for each refusal and for each administrative act.

A line names principal, host, operation and resource, and no content. A client can cause refusals
at will, so at most `LINES_MAX` refusals are written in a second. Every refusal is counted.
A resource that a request names many times is one refusal.

Without an authorizer every client may act, and so may one with few permissions. Each kind of act
has lines of its own: `ACTS_AT_ONCE`, of which `ACTS_PER_SECOND` come back in a second. So a script
that makes a thousand topics has all its lines, and a flood of one kind hides no other. Changes of
access control entries are all written: they need an authorizer and ALTER on the cluster.

The next line of refusals, or of a kind of act, says how many were left out.
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

ACTS_AT_ONCE: Final = 1_000
ACTS_PER_SECOND: Final = 100
"""Acts of one kind that are written without a pause, and in a second in the long run."""

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
        self._acts: dict[str, Allowance] = {}
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
            resource=f"{kind.name}:{short(name)}",
            **left_out,
        )

    def acted(self, context: Context, event: str, kind: str, name: str, **facts: object) -> None:
        """An administrator changed a resource: a topic, a group, a broker or a user."""
        texts = {fact: short(str(value)) for fact, value in facts.items()}
        self._write_act(context, event, resource=f"{kind}:{short(name)}", **texts)

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
            f"{kind}:{'<default>' if name is None else short(name)}" for kind, name in change.entity
        )
        value = {} if change.value is None else {"value": change.value}
        event = "quota.removed" if change.value is None else "quota.set"
        self._write_act(context, event, resource=" ".join(named), quota=change.key, **value)

    def _write_act(self, context: Context, event: str, **facts: object) -> None:
        with self._lock:
            allowance = self._acts.setdefault(event, Allowance())
            is_written, left_out = allowance.admit(self._clock())
        if is_written:
            self._events.info(
                event,
                principal=context.session.principal,
                host=context.client_host,
                **facts,
                **({"left_out": left_out} if left_out else {}),
            )


class Allowance:
    """The lines that one kind of act or event may still write."""

    def __init__(self) -> None:
        self._lines = float(ACTS_AT_ONCE)
        self._counted_at = 0.0
        self._left_out = 0

    def admit(self, now: float) -> tuple[bool, int]:
        """Return whether a line may be written, and how many were left out before it."""
        earned = (now - self._counted_at) * ACTS_PER_SECOND
        self._lines = min(self._lines + earned, ACTS_AT_ONCE)
        self._counted_at = now
        if self._lines < 1:
            self._left_out += 1
            return False, 0
        self._lines -= 1
        left_out, self._left_out = self._left_out, 0
        return True, left_out


def short(name: str) -> str:
    """The beginning of a name, for a line; `…` says that there is more."""
    return f"{name[:NAME_MAX]}{'…' * (len(name) > NAME_MAX)}"


audit: Final = AuditLog()
