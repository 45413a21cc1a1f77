"""The declaration of an API: its types, and the handler that answers it.

`table.py` has its versions.
"""

from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar, cast

from txn.broker.host import Context
from txn.wire.encoding import Body

Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response", bound=Body)

Reply = Body | bytes
"""A response, or its body already encoded."""

Answer = Callable[[Service, object, Context], Coroutine[object, None, Reply]]
"""Answers a request of the API's class by a service."""


class Api(Generic[Service]):
    """One API. Its request and response types are those of its handler; a type checker sees so.

    Args:
        key: Kafka's number of the API.
        request: The class of its requests, see `txn.wire.requests`.
        response: The class of its responses, see `txn.wire.encoding`.
        handler: Answers a request by a service: the node, or one of its coordinators.
    """

    __slots__ = ("answer", "key", "request", "response")

    def __init__(
        self,
        key: int,
        request: type[Request],
        response: type[Response],
        handler: Callable[[Service, Request, Context], Coroutine[object, None, Response | bytes]],
    ) -> None:
        self.key = key
        self.request: type = request
        self.response: type = response
        # A request's class is checked where it is decoded.
        self.answer = cast("Answer[Service]", handler)
