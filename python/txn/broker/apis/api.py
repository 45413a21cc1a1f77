"""The declaration of an API: its key, versions and types, its guard, and the handler that answers.

An area has the APIs of one module. `index` has the versions of all, so that a start loads none.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from txn.broker.apis.access import Access
from txn.broker.apis.table import Answerer, Reply, Versions
from txn.broker.host import Context
from txn.wire.encoding import Body

if TYPE_CHECKING:
    from txn.broker.node import Node
    from txn.security.acls import Authorizer

Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response", bound=Body)


class Call(Generic[Service, Request, Response]):
    """A request on its way to its handler, as the guard before the handler sees it."""

    __slots__ = ("_handler", "access", "context", "request", "service")

    def __init__(
        self,
        access: Access,
        service: Service,
        request: Request,
        context: Context,
        handler: "Handler[Service, Request, Response]",
    ) -> None:
        self.access = access
        self.service = service
        self.request = request
        self.context = context
        self._handler = handler

    def proceed(self) -> Coroutine[object, None, Response | bytes]:
        """The reply of the handler to the request as it is."""
        return self._handler(self.service, self.request, self.context)

    async def proceed_with(self, allowed: Request) -> Response:
        """The response of the handler, which must not encode it, to a part of the request."""
        response = await self._handler(self.service, allowed, self.context)
        assert not isinstance(response, bytes), f"api key {self.context.api_key}"
        return response


Handler = Callable[[Service, Request, Context], Coroutine[object, None, Response | bytes]]
"""Answers a request by the service of its area: the node, or one of its coordinators."""

Guard = Callable[[Call[Service, Request, Response]], Coroutine[object, None, Response | bytes]]
"""Answers a request where an authorizer is: by its handler as far as the client is allowed to ask,
else by a refusal. `guards` has the usual ones."""


class Api(Generic[Service]):
    """One API. A type checker sees that guard and handler are for its request and response.

    Args:
        key: Kafka's number of the API.
        versions: First and last version that is answered.
        request: The class of its requests, see `txn.wire.requests`.
        response: The class of its responses, see `txn.wire.encoding`.
        guard: Stands before the handler where an authorizer is.
        handler: Answers a request by a service: the node, or one of its coordinators.
    """

    __slots__ = ("guard", "handler", "key", "request", "response", "versions")

    def __init__(
        self,
        key: int,
        versions: Versions,
        request: type[Request],
        response: type[Response],
        guard: Guard[Service, Request, Response],
        handler: Handler[Service, Request, Response],
    ) -> None:
        self.key = key
        self.versions = versions
        self.request: type = request
        self.response: type = response
        # A request's class is checked where it is decoded.
        self.guard = cast("Guard[Service, object, Body]", guard)
        self.handler = cast("Handler[Service, object, Body]", handler)

    def bound(self, service: Service, authorizer: "Authorizer | None") -> Answerer:
        """The API, answered by a service; with an authorizer behind its guard."""
        guard, handler = self.guard, self.handler
        if authorizer is None:
            return Answerer(self.request, self.response, partial(handler, service))

        def guarded(request: object, context: Context) -> Coroutine[object, None, Reply]:
            return guard(Call(Access(authorizer, context), service, request, context, handler))

        return Answerer(self.request, self.response, guarded)


class Area(Generic[Service]):
    """The APIs of one module.

    Args:
        service: The part of a node that answers them.
        apis: Their declarations.
    """

    def __init__(self, service: "Callable[[Node], Service]", *apis: Api[Service]) -> None:
        self._service = service
        self.apis: Final = {api.key: api for api in apis}
        """The APIs by their keys."""

    def answerer(self, key: int, node: "Node") -> Answerer:
        """An API, answered by a node."""
        return self.apis[key].bound(self._service(node), node.authorizer)
