"""The commands that speak to a cluster, one after the other, as an operator has them."""

import json
import time
from typing import Any

from support.clients import WAIT_S
from support.command_line import run_txn


def told(*words: object, stdin: bytes = b"") -> Any:
    """The JSON that a command prints; it has to succeed without a word on standard error."""
    code, out, err = run_txn(*words, stdin=stdin)
    assert (code, err) == (0, ""), words
    return json.loads(out) if "--json" in words else out


def committed(topic: str, *ways: object) -> str:
    """The records of a commit. Apache Kafka answers it, and its markers come some time after."""
    deadline = time.monotonic() + WAIT_S
    while not (text := str(told("consume", topic, *ways))):
        assert time.monotonic() < deadline, "the commit's markers do not come"
    return text


def use_every_command(topic: str, *ways: object) -> None:
    """Make a topic, write, read, look, change and delete, by options that name a cluster."""
    made = told("topics", "create", topic, "--partitions", 2, "--json", *ways)
    assert made["created"]
    transaction = ("--transactional-id", topic, "--partition", 1)
    written = told("produce", topic, *transaction, "--json", *ways, stdin=b"1\n2\n")
    assert written["records"] == 2
    assert committed(topic, *ways) == "1\n2\n"
    assert told("consume", topic, "--group", topic, "-n", 1, *ways) == "1\n"
    described = told("groups", "describe", topic, "--json", *ways)
    assert (described["lag"], described["drained"]) == (1, False)
    (stable,) = {
        each["last_stable_offset"]
        for each in told("offsets", "list", f"{topic}-1", "--json", *ways)
    }
    assert stable == 3
    told(
        "groups",
        "reset-offsets",
        topic,
        "--topic",
        f"{topic}-1",
        "--to",
        "latest",
        "--execute",
        *ways,
    )
    assert told("groups", "describe", topic, "--json", *ways)["drained"]
    told("configs", "set", "retention.ms=3600000", "--topic", topic, *ways)
    assert "retention.ms=3600000" in told("configs", "describe", "--topic", topic, *ways)
    (look,) = told("top", "-n", 1, *ways).split("groups:")[:1]
    assert topic in look
    assert len(told("cluster", "describe", "--json", *ways)["brokers"]) == 1
    told("groups", "delete", topic, "--yes", *ways)
    told("topics", "delete", topic, "--yes", *ways)
    assert topic not in [each["topic"] for each in told("topics", "list", "--json", *ways)]
