"""Sessions: where a request came from, and on whose behalf."""

from typing import Any

import pytest

import txn
from support.clients import create_topic
from support.group_host import GroupNode
from txn.broker.apis import topics
from txn.broker.host import Context
from txn.coordinator.group.consumer.beat import Beat
from txn.security.sessions import ANONYMOUS, Listener, Peer, Session

CREATE_TOPICS = 19


@pytest.mark.parametrize(
    ("principal", "host", "owner"),
    [
        ("User:alice", "10.0.0.1", "User:alice"),
        (ANONYMOUS, "10.0.0.1", "10.0.0.1"),
        (ANONYMOUS, "::ffff:10.0.0.1", "10.0.0.1"),
        (ANONYMOUS, "2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        (ANONYMOUS, "2001:db8:0:1:ffff::", "2001:db8:0:1::/64"),
        (ANONYMOUS, "fe80::1%eth0", "fe80::/64"),
        (ANONYMOUS, "internal", "internal"),
    ],
)
def test_a_client_takes_turns_by_its_principal_or_else_by_its_network(
    principal: str, host: str, owner: str
) -> None:
    """An IPv6 client has as many addresses as it likes, and had as many turns."""
    listener = Listener("PLAINTEXT", ("::1", 1), ("::1", 1))
    assert Session(principal, listener, Peer(host, 1)).owner == owner


def test_patterns_take_the_turns_of_the_client_that_sends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members of one principal came from many addresses, and each had turns of its own."""
    node = GroupNode()
    owners: list[str] = []
    make_call = node.host.in_side_thread

    async def note(owner: str, call: Any) -> None:
        owners.append(owner)
        await make_call(owner, call)

    monkeypatch.setattr(node.host, "in_side_thread", note)
    beat = Beat("a", 0, "client", "/10.0.0.1", rebalance_timeout_ms=1, pattern="o.*", owned={})
    node.answers_to(node.coordinator.consumer.heartbeat("g", beat, None, "User:alice"))
    assert owners == ["User:alice"] * 2


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
