"""Sessions: where a request came from, and on whose behalf."""

from typing import Any

import pytest

import txn
from support.clients import create_topic
from txn.broker.apis import topics
from txn.broker.host import Context

CREATE_TOPICS = 19


def test_a_handler_is_told_the_principal_the_listener_and_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Context] = []
    api = topics.APIS.apis[CREATE_TOPICS]
    handler = api.handler

    def note(node: Any, request: Any, context: Context) -> Any:
        seen.append(context)
        return handler(node, request, context)

    monkeypatch.setattr(api, "handler", note)
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
    session = seen[0].session
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert session.principal == "User:ANONYMOUS"
    assert session.listener.name == session.listener.security_protocol == "PLAINTEXT"
    assert session.listener.address == session.listener.advertised == (host, int(port))
    assert not session.listener.is_inter_broker
    assert session.client.host == "127.0.0.1"
    assert session.client.connection > 0
