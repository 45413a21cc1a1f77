"""Access control entries go along with a data directory, from txn to Apache Kafka and back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import txn
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from support.command_line import run_txn
from txn.config import STANDARD_AUTHORIZER

pytestmark = [pytest.mark.peer, pytest.mark.timeout(180)]

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
SETTLE_S = 20.0
OF_TXN = (
    ("--topic", "pay", "--operation", "Read", "--allow-principal", "User:ada"),
    ("--topic", "*", "--operation", "All", "--deny-principal", "User:bob"),
    ("--group", "shop", "--operation", "Read", "--allow-principal", "User:ada"),
)
OF_KAFKA = ("--topic", "orders", "--operation", "Write", "--allow-principal", "User:eve")


def acls(servers: str, *words: str) -> Any:
    code, out, err = run_txn("acls", *words, "--json", "--bootstrap", servers)
    assert (code, err) == (0, "")
    return json.loads(out)


def entries(servers: str) -> list[str]:
    return sorted(json.dumps(entry, sort_keys=True) for entry in acls(servers, "list"))


def test_each_broker_has_the_entries_of_the_other(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, properties=SETTINGS) as broker:
        for words in OF_TXN:
            acls(broker.bootstrap_servers, "add", *words)
        of_txn = entries(broker.bootstrap_servers)
    assert len(of_txn) == len(OF_TXN)
    with KafkaNode(tmp_path, {**FEW_PARTITIONS, **SETTINGS}) as node:
        assert entries(node.bootstrap_servers) == of_txn
        acls(node.bootstrap_servers, "add", *OF_KAFKA)
        deadline = time.monotonic() + SETTLE_S  # Kafka answers before its broker knows
        while len(of_both := entries(node.bootstrap_servers)) == len(OF_TXN):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert set(of_both) > set(of_txn)
    with txn.Broker(data, properties=SETTINGS) as broker:
        assert entries(broker.bootstrap_servers) == of_both
