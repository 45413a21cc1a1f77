"""The rule of DeleteTopics: whatever it did not ask for is not the handler's to delete."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from txn.broker.apis.api import Api
from txn.broker.apis.topic_deletion import APIS
from txn.security.acls import (
    Acl,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.metadata import (
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from txn.wire.error_codes import ErrorCode

ADA = "User:ada"


def test_a_topic_that_is_not_there_yet_is_not_handed_on() -> None:
    acl = Acl(
        ResourceType.TOPIC,
        "*",
        PatternType.LITERAL,
        ADA,
        "*",
        Operation.DESCRIBE,
        Permission.ALLOW,
    )
    authorizer = Authorizer()
    authorizer.load([acl])
    topics: dict[str, object] = {}
    ids: dict[UUID, str] = {}
    node: Any = SimpleNamespace(
        controller=SimpleNamespace(image=SimpleNamespace(topics=topics, names=ids))
    )
    handed_on = []

    async def handler(_: object, request: Any, __: object) -> DeleteTopicsResponse:
        topics["late"] = object()  # another client's, made while this request waits
        handed_on.extend(request.topics)
        return DeleteTopicsResponse([])

    context: Any = SimpleNamespace(
        session=SimpleNamespace(principal=ADA),
        client_host="10.0.0.1",
        api_key=ApiKey.DELETE_TOPICS,
        api_version=6,
    )
    guard: Any = APIS.apis[ApiKey.DELETE_TOPICS].guard
    api = Api(21, (6, 6), DeleteTopicsRequest, DeleteTopicsResponse, guard, handler)
    checked = api.bound(node, authorizer).answer
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name="late", topic_id=None),))
    answer: Any = asyncio.run(checked(request, context))
    assert handed_on == []
    (result,) = answer.responses
    assert isinstance(result, DeletedTopic)
    assert (result.name, result.error_code) == ("late", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
