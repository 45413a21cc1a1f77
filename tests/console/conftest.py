"""One broker with a story, and one console beside it, for each module."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

import txn
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    send,
    transactional_producer,
)
from support.console import ConsoleProcess

HOSTILE_ID = "ship <b>1</b>/x"
SCRIPT = b"<script>document.title='owned'</script>"
BIDI = "\u202eevil".encode()
NO_TEXT = b"\xff\xfe\x00bad"


@dataclass(frozen=True)
class Story:
    """`pay-3` committed orders 0 and 1 and aborted 2; then it holds orders and invoices open."""

    servers: str
    console: ConsoleProcess
    holder: Producer


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    data: Path = tmp_path_factory.mktemp("console") / "data"
    with txn.Broker(data, durability="process") as broker:
        servers = broker.bootstrap_servers
        holder = tell(servers)
        console = ConsoleProcess("--bootstrap", servers, "--write")
        yield Story(servers, console, holder)
        assert console.stop() == 0


def tell(servers: str) -> Producer:
    """Write the story; return the producer with the open transaction."""
    create_topic(servers, "orders", 2)
    create_topic(servers, "invoices")
    # It is open until the last test of a module, also on a slow machine.
    settings = {"client_id": "payments", "transaction_timeout_ms": 900_000}
    holder = transactional_producer(servers, "pay-3", **settings)
    commit_values(holder, "orders", [b'{"item":"apple"}', b"plain text"])
    holder.begin_transaction()
    send(holder, "orders", [b"taken back"])
    holder.abort_transaction()
    plain = plain_producer(servers)
    plain.produce("orders", SCRIPT, key=BIDI, headers={"<i>h</i>": SCRIPT}, partition=0)
    plain.produce("orders", NO_TEXT, partition=0)
    plain.flush()
    commit_values(transactional_producer(servers, HOSTILE_ID), "orders", [b"of the other"])
    holder.begin_transaction()
    send(holder, "orders", [b"not yet"])
    send(holder, "invoices", [b"not yet"])
    return holder
