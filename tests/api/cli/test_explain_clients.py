"""`txn explain` says whether the client of an open transaction has closed its connection."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import txn
from support.clients import create_topic
from support.command_line import run_txn
from support.processors import until

PROGRAM = """
import sys, txn
with txn.Producer(bootstrap_servers=sys.argv[1], transactional_id="pay-3") as producer:
    with producer.transaction() as t:
        t.send("orders", "7 apples").result(60)
        print("open", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker.bootstrap_servers


def explained(servers: str) -> tuple[str, bool]:
    """The text of `txn explain`, and `is_connected` of its JSON."""
    _, text, _ = run_txn("explain", "orders", "--bootstrap", servers)
    _, data, _ = run_txn("explain", "orders", "--bootstrap", servers, "--json")
    (told,) = json.loads(data)
    connected: bool = told["held_by"]["owner"]["client"]["is_connected"]
    return text, connected


def test_a_killed_client_is_shown_as_gone_and_a_live_one_is_not(servers: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "open\n"
            text, is_connected = explained(servers)
            assert is_connected
            assert "is closed" not in text
            assert "its client, by a commit or an abort; else the coordinator aborts it at" in text
        finally:
            program.kill()
    until(lambda: not explained(servers)[1])
    text, _ = explained(servers)
    assert "; the connection of this request is closed\n" in text
    assert "nobody ends it earlier, unless the client connects again" in text
    assert "txn transactions abort --transactional-id pay-3" in text
