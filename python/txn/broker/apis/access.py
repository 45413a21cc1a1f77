"""Authorization of requests: the questions of a request to the authorizer, and the rules that ask.

A rule stands before the handler of an API. It asks for every resource that a request names, hands
the rest of the request on, and puts the refusals into the answer. `rules` has one rule for each
API; without an authorizer none of them is loaded, and no request is any slower.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Final, Generic, TypeVar

from txn.broker.apis.api import Reply, Service
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

    A refusal is written to the audit log, unless `is_told` is false. Then the client did not name
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
        self, operation: Operation, kind: ResourceType, name: str, *, is_told: bool = True
    ) -> bool:
        """Say whether an operation on a resource is allowed."""
        if self._authorizer.allows(self._requester, operation, kind, name):
            return True
        if is_told:
            self._tell(operation, kind, name)
        return False

    def may_in_cluster(self, operation: Operation, *, is_told: bool = True) -> bool:
        """Say whether an operation on the cluster is allowed."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_told=is_told)

    def may_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Say whether an operation is allowed on some resource of a type."""
        if self._authorizer.allows_any(self._requester, operation, kind):
            return True
        self._tell(operation, kind, "any")
        return False

    async def among(
        self,
        operation: Operation,
        kind: ResourceType,
        names: Iterable[str],
        *,
        is_told: bool = True,
    ) -> set[str]:
        """The names on which an operation is allowed."""
        turns = Turns()
        allowed = set()
        for name in dict.fromkeys(names):
            await turns.next()
            if self.may(operation, kind, name, is_told=is_told):
                allowed.add(name)
        return allowed

    def operations(self, kind: ResourceType, name: str) -> int:
        """The allowed operations on a resource, one bit each."""
        return self._authorizer.operations(self._requester, kind, name)

    def _tell(self, operation: Operation, kind: ResourceType, name: str) -> None:
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


Answer = Callable[[object, Context], Coroutine[object, None, Reply]]


class Proceed(Generic[Request, Response]):
    """Hands a request on to the handler."""

    __slots__ = ("_answer", "_context", "_response")

    def __init__(self, answer: Answer, context: Context, response: type[Response]) -> None:
        self._answer = answer
        self._context = context
        self._response = response

    async def __call__(self, allowed: Request) -> Response:
        """The response of the handler, of an API whose handler does not encode it."""
        reply = await self._answer(allowed, self._context)
        assert isinstance(reply, self._response), type(reply).__qualname__
        return reply

    async def reply(self, allowed: Request) -> Response | bytes:
        """The reply of the handler, encoded or not, to be passed on as it is."""
        reply = await self._answer(allowed, self._context)
        assert isinstance(reply, self._response | bytes), type(reply).__qualname__
        return reply


class Rule(Generic[Service]):
    """The rule of one API.

    Args:
        key: Kafka's number of the API.
        request: The class of its requests.
        response: The class of its responses.
        check: Answers a request by the service; its last argument hands a request on to the
            handler.
    """

    __slots__ = ("guarded", "key")

    def __init__(
        self,
        key: int,
        request: type[Request],
        response: type[Response],
        check: Callable[
            [
                Access,
                Service,
                Request,
                Context,
                Proceed[Request, Response],
            ],
            Coroutine[object, None, Response | bytes],
        ],
    ) -> None:
        self.key = key

        def guarded(authorizer: Authorizer, service: Service, answer: Answer) -> Answer:
            def checked(decoded: object, context: Context) -> Coroutine[object, None, Reply]:
                assert isinstance(decoded, request), f"api key {key}: {type(decoded).__qualname__}"

                proceed = Proceed[Request, Response](answer, context, response)
                return check(Access(authorizer, context), service, decoded, context, proceed)

            return checked

        self.guarded = guarded
