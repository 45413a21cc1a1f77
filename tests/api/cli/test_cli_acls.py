"""`txn acls`: entries are listed, added and removed through a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from support.command_line import run_txn
from txn.config import STANDARD_AUTHORIZER

ANONYMOUS = "User:ANONYMOUS"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    with txn.Broker(tmp_path / "data", durability="process", properties=properties) as broker:
        yield broker


def acls(broker: txn.Broker, *arguments: str) -> Any:
    code, out, err = run_txn("acls", *arguments, "--bootstrap", broker.bootstrap_servers, "--json")
    assert code == 0, err
    return json.loads(out)


def test_an_added_entry_is_listed_and_can_be_removed(broker: txn.Broker) -> None:
    entry = {
        "resource_type": "GROUP",
        "resource_name": "shop-",
        "pattern_type": "PREFIXED",
        "principal": "User:ada",
        "host": "10.0.0.7",
        "operation": "READ",
        "permission": "ALLOW",
    }
    options = ["--group", "shop-", "--resource-pattern-type", "prefixed", "--operation", "Read"]
    options += ["--allow-principal", "User:ada", "--allow-host", "10.0.0.7"]
    assert acls(broker, "add", *options) == [entry]
    assert acls(broker, "list") == [entry]
    assert acls(broker, "remove", *options) == [entry]
    assert acls(broker, "list") == []


def test_a_list_for_a_topic_has_every_entry_that_names_it(broker: txn.Broker) -> None:
    add = ["add", "--allow-principal", "User:ada"]
    acls(broker, *add, "--topic", "*")
    acls(broker, *add, "--topic", "pay", "--operation", "Read", "--operation", "Write")
    acls(broker, *add, "--topic", "p", "--resource-pattern-type", "prefixed")
    acls(broker, *add, "--topic", "other")
    listed = acls(broker, "list", "--topic", "pay")
    assert [one["resource_name"] for one in listed] == ["*", "p", "pay", "pay"]
    literal = acls(broker, "list", "--topic", "pay", "--resource-pattern-type", "literal")
    assert [one["operation"] for one in literal] == ["READ", "WRITE"]


def test_without_principals_every_entry_of_the_name_is_removed(broker: txn.Broker) -> None:
    acls(broker, "add", "--topic", "pay", "--allow-principal", "User:ada")
    acls(broker, "add", "--topic", "pay", "--deny-principal", "User:eve")
    acls(broker, "add", "--cluster", "--operation", "Alter", "--allow-principal", "User:ada")
    assert len(acls(broker, "remove", "--topic", "pay")) == 2
    assert [one["resource_type"] for one in acls(broker, "list")] == ["CLUSTER"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "--topic", "pay"], "somebody"),
        (["add", "--allow-principal", "User:ada"], "give a resource"),
        (["add", "--topic", "pay", "--allow-principal", "ada"], "no colon"),
        (["add", "--topic", "pay", "--allow-host", "10.0.0.1"], "without a principal"),
        (["remove", "--allow-principal", "User:ada"], "give a resource"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(arguments: list[str], reason: str) -> None:
    code, _, err = run_txn("acls", *arguments, "--bootstrap", "127.0.0.1:1")
    assert (code, reason in err) == (2, True), err


def test_a_broker_without_an_authorizer_refuses_with_advice() -> None:
    with txn.Broker() as broker:
        code, _, err = run_txn("acls", "list", "--bootstrap", broker.bootstrap_servers)
    assert code == 1
    assert "SECURITY_DISABLED" in err
    assert "authorizer.class.name" in err
