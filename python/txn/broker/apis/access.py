"""Authorization of requests: the questions of a request to the authorizer.

The guards of APIs ask them. Without an authorizer no guard runs, and no request is any slower.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from txn.broker.audit import AuditLog, audit
from txn.broker.host import Context
from txn.broker.turns import Turns
from txn.security.acls import CLUSTER_NAME, Authorizer, Operation, Requester, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.encoding import Body

Request = TypeVar("Request")
Response = TypeVar("Response", bound=Body)


class Access:
    """The questions of one request.

    A refusal is written to the audit log, unless `is_logged` is false. Then the client did not name
    the resource, as with a list of all topics.
    """

    __slots__ = ("_audit", "_authorizer", "_context", "_requester")

    def __init__(
        self, authorizer: Authorizer, context: Context, audit_log: AuditLog = audit
    ) -> None:
        self._authorizer = authorizer
        self._context = context
        self._audit = audit_log
        self._requester = Requester(context.session.principal, context.client_host)

    def may(
        self, operation: Operation, kind: ResourceType, name: str, *, is_logged: bool = True
    ) -> bool:
        """Say whether an operation on a resource is allowed."""
        if self._authorizer.allows(self._requester, operation, kind, name):
            return True
        if is_logged:
            self._log_refusal(operation, kind, name)
        return False

    def may_in_cluster(self, operation: Operation, *, is_logged: bool = True) -> bool:
        """Say whether an operation on the cluster is allowed."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def may_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Say whether an operation is allowed on some resource of a type."""
        if self._authorizer.allows_any(self._requester, operation, kind):
            return True
        self._log_refusal(operation, kind, "any")
        return False

    async def among(
        self,
        operation: Operation,
        kind: ResourceType,
        names: Iterable[str],
        *,
        is_logged: bool = True,
    ) -> set[str]:
        """The names on which an operation is allowed."""
        turns = Turns()
        allowed = set()
        for name in dict.fromkeys(names):
            await turns.next()
            if self.may(operation, kind, name, is_logged=is_logged):
                allowed.add(name)
        return allowed

    def operations(self, kind: ResourceType, name: str) -> int:
        """The allowed operations on a resource, one bit each."""
        return self._authorizer.operations(self._requester, kind, name)

    def _log_refusal(self, operation: Operation, kind: ResourceType, name: str) -> None:
        principal, host = self._requester
        self._audit.refused(principal, host, self._context.api_key, operation, kind, name)


DATA_PATH: Final = {
    "read": (ApiKey.FETCH, Operation.READ, ResourceType.TOPIC),
    "write": (ApiKey.PRODUCE, Operation.WRITE, ResourceType.TOPIC),
    "write_by_id": (ApiKey.PRODUCE, Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
}
"""The questions of the reactors, which answer Produce and Fetch."""


def data_path_access(
    authorizer: Authorizer, audit_log: AuditLog = audit
) -> Callable[[str, str, str, str], bool]:
    """Return the function that answers the reactors' questions; any thread may call it."""

    def may(principal: str, host: str, action: str, name: str) -> bool:
        api_key, operation, kind = DATA_PATH[action]
        if authorizer.allows(Requester(principal, host), operation, kind, name):
            return True
        audit_log.refused(principal, host, api_key, operation, kind, name)
        return False

    return may
