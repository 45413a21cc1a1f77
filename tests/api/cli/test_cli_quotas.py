"""`txn quotas`: quotas are listed, set and removed through a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from support.command_line import run_txn


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        yield broker


def quotas(broker: txn.Broker, *arguments: str) -> tuple[int, str, str]:
    return run_txn("quotas", *arguments, "--bootstrap", broker.bootstrap_servers)


def as_json(broker: txn.Broker, *arguments: str) -> Any:
    code, out, err = quotas(broker, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_quota_that_is_set_is_listed_and_can_be_removed(broker: txn.Broker) -> None:
    entity = ["--user", "ada", "--default-client-id"]
    both = {"consumer_byte_rate": 1e6, "producer_byte_rate": 1024.0}
    expected = {"entity": {"client-id": None, "user": "ada"}, "quotas": both}
    values = ["producer_byte_rate=1024", "consumer_byte_rate=1e6"]
    assert as_json(broker, "set", *values, *entity) == expected
    assert as_json(broker, "list") == [expected]
    assert as_json(broker, "list", "--user", "ada") == [expected]
    assert as_json(broker, "list", "--user", "bob") == []
    gone = as_json(broker, "remove", "producer_byte_rate", *entity)
    assert gone["quotas"] == {"producer_byte_rate": 1024.0}
    code, out, _ = quotas(broker, "list")
    assert (code, out) == (0, "user ada, client-id <default>:  consumer_byte_rate=1000000\n")
    assert quotas(broker, "remove", *entity)[0] == 0
    code, _, err = quotas(broker, "remove", *entity)
    assert (code, "no such quota of user ada" in err) == (1, True)


def test_a_dry_run_sets_nothing(broker: txn.Broker) -> None:
    assert quotas(broker, "set", "producer_byte_rate=5", "--default-user", "--dry-run")[0] == 0
    assert as_json(broker, "list") == []


def test_the_brokers_refusal_is_told(broker: txn.Broker) -> None:
    code, _, err = quotas(broker, "set", "producer_byte_rate=0.5", "--user", "ada")
    assert (code, "cannot be a fractional value" in err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "producer_byte_rate", "--user", "ada"),
        ("set", "producer_byte_rate=many", "--user", "ada"),
        ("set", "producer_byte_rate=1", "--user", "ada", "--default-user"),
        ("remove",),
        ("remove", "producer_rate", "--user", "ada"),
    ],
)
def test_wrong_usage_is_told(broker: txn.Broker, arguments: tuple[str, ...]) -> None:
    assert quotas(broker, *arguments)[0] == 2
