"""The usual guards of APIs, and the refusals that they share.

Operations, error codes and the resources that an answer leaves out are those of Apache Kafka 4.2
(KafkaApis, ControllerApis). Produce and Fetch are checked where they are answered, in
`rust/txn-net/src/access.rs`. A guard that is more than a `Need` asks for every resource that the
request names, hands the rest of the request on, and puts the refusals into the answer.
"""

from collections.abc import Callable, Coroutine
from typing import Final, NamedTuple

from txn.broker.apis.access import Access
from txn.broker.apis.api import Call, Request, Response, Service
from txn.broker.host import Context
from txn.security.acls import CLUSTER_NAME, Operation, ResourceType
from txn.wire.error_codes import ErrorCode

CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

MESSAGES: Final = {
    CLUSTER_FAILED: "Cluster authorization failed.",
    GROUP_FAILED: "Group authorization failed.",
    ID_FAILED: "Transactional Id authorization failed.",
    TOPIC_FAILED: "Topic authorization failed.",
}
"""Kafka's own texts."""

CLUSTER_REFUSED: Final = (CLUSTER_FAILED, MESSAGES[CLUSTER_FAILED])

Answering = Coroutine[object, None, Response | bytes]


class Need(NamedTuple):
    """One operation on one resource.

    `field` of a request names the resource; without one, it is the cluster.
    """

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    field: str | None = None

    def is_met(self, call: Call[Service, Request, Response]) -> bool:
        """Say whether the client of a request may do so; a refusal is written to the audit log."""
        name = CLUSTER_NAME if self.field is None else getattr(call.request, self.field)
        return call.access.may(self.operation, self.kind, name)

    def or_else(
        self, refusal: Response
    ) -> Callable[[Call[Service, Request, Response]], Answering[Response]]:
        """Return a guard: the handler answers a client that may, the refusal any other."""
        return self.or_by(lambda *_: refusal)

    def or_by(
        self, refuse: Callable[[Request, Context], Response]
    ) -> Callable[[Call[Service, Request, Response]], Answering[Response]]:
        """Return a guard as `or_else` does, where the refusal depends on the request."""

        async def refused(call: Call[Service, Request, Response]) -> Response:
            return refuse(call.request, call.context)

        def guard(call: Call[Service, Request, Response]) -> Answering[Response]:
            return call.proceed() if self.is_met(call) else refused(call)

        return guard


ALTER_CLUSTER: Final = Need(Operation.ALTER)
DESCRIBE_CLUSTER: Final = Need(Operation.DESCRIBE)
READ_GROUP: Final = Need(Operation.READ, ResourceType.GROUP, "group_id")
WRITE_ID: Final = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")


def for_everybody(call: Call[Service, Request, Response]) -> Answering[Response]:
    """Let the handler answer any client."""
    return call.proceed()


def cluster_operations(access: Access) -> int:
    """The allowed operations on the cluster; none for those who may not DESCRIBE it."""
    if not access.may_in_cluster(Operation.DESCRIBE):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
