"""The client that last acted for an id is remembered, for as many ids as fit."""

import pytest

from support.sessions import session
from txn.broker.host import Context
from txn.broker.last_clients import LastClient, LastClients


@pytest.fixture
def clients() -> LastClients:
    return LastClients(lambda: 5)


def note(clients: LastClients, transactional_id: str, client_id: str = "billing") -> None:
    context = Context(api_key=26, api_version=1, client_id=client_id, session=session("10.0.0.7"))
    clients.note(transactional_id, context, "EndTxn")


def test_the_last_one_is_told(clients: LastClients) -> None:
    note(clients, "pay-3", "first")
    note(clients, "pay-3", "second")
    assert clients.get("pay-3") == LastClient("second", "10.0.0.7", 5, "EndTxn", is_connected=True)
    assert clients.get("pay-4") is None


def test_a_closed_connection_is_told_until_the_client_uses_another(clients: LastClients) -> None:
    left: list[str] = []
    gone = session("10.0.0.7", has_left=lambda: bool(left))
    clients.note("pay-3", Context(26, 1, "billing", gone), "EndTxn")
    last = clients.get("pay-3")
    assert last is not None
    assert last.is_connected
    left.append("closed")
    last = clients.get("pay-3")
    assert last is not None
    assert not last.is_connected
    note(clients, "pay-3")
    last = clients.get("pay-3")
    assert last is not None
    assert last.is_connected


def test_an_id_that_expired_is_forgotten(clients: LastClients) -> None:
    note(clients, "pay-3")
    clients.forget("pay-3")
    clients.forget("pay-4")
    assert clients.get("pay-3") is None


def test_those_acted_for_last_are_remembered(
    clients: LastClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txn.broker.last_clients.IDS_MAX", 2)
    for transactional_id in ("a", "b", "a", "c"):
        note(clients, transactional_id)
    assert [clients.get(each) is not None for each in ("a", "b", "c")] == [True, False, True]
