"""`txn consume` beside access control: without a group it needs a right to none."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import txn
from support.command_line import run_txn
from txn.client.stored_records import StoredRecords
from txn.config import STANDARD_AUTHORIZER

ADMIN, READER = "admin", "ann"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Ways:
    """The options of each user's commands."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self._directory = directory

    def of(self, user: str) -> tuple[object, ...]:
        path = self._directory / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="pass";\n'
        )
        return "--bootstrap", self.servers, "--command-config", path


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """A broker whose reader may read the topic `orders`, and has no right to any group."""
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{ADMIN}"}
    with txn.Broker(properties=properties, users=dict.fromkeys((ADMIN, READER), "pass")) as broker:
        ways = Ways(broker.bootstrap_servers, tmp_path_factory.mktemp("ways"))
        admin = ways.of(ADMIN)
        for topic, right in (("orders", "Read"), ("seen", "Describe")):
            reader = ("--allow-principal", f"User:{READER}", "--operation", right)
            assert run_txn("topics", "create", topic, "--partitions", 2, *admin)[0] == 0
            assert run_txn("acls", "add", "--topic", topic, *reader, *admin)[0] == 0
            assert run_txn("produce", topic, *admin, stdin=b"1\n2\n")[0] == 0
        yield ways


@pytest.fixture
def refusals(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    """Say whether the broker has refused somebody a group's coordinator."""
    caplog.set_level(logging.INFO, "txn")
    return lambda: any("request=FIND_COORDINATOR" in line for line in caplog.messages)


def test_reading_without_a_group_goes_on_when_its_coordinator_is_refused(
    ways: Ways, refusals: Callable[[], bool]
) -> None:
    """librdkafka asks for one in any case, and `txn consume --follow` ended at the refusal."""
    settings = {
        "bootstrap.servers": ways.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": READER,
        "sasl.password": "pass",
    }
    reader = StoredRecords(settings, starts={("orders", 0): 0, ("orders", 1): 0})
    values: list[bytes | None] = []
    with closing(reader):
        batches = reader.batches()
        while len(values) < 2 or not refusals():
            values += [message.value() for message in next(batches)]
        assert run_txn("produce", "orders", *ways.of(ADMIN), stdin=b"3\n")[0] == 0
        while len(values) < 3:
            values += [message.value() for message in next(batches)]
    assert sorted(values, key=str) == [b"1", b"2", b"3"]


def test_a_command_without_a_group_needs_no_right_to_one(ways: Ways) -> None:
    code, _, err = run_txn("consume", "orders-0", "--to", "1", *ways.of(READER))
    assert (code, err) == (0, "")


def test_a_group_that_is_given_is_named_with_the_right_that_is_needed(ways: Ways) -> None:
    code, out, err = run_txn("consume", "orders", "--group", "shop", *ways.of(READER))
    assert (code, out) == (1, "")
    assert err == (
        "txn: group 'shop' cannot be read: GROUP_AUTHORIZATION_FAILED. Its user needs Read on the "
        "group\n"
    )


def test_a_topic_that_may_only_be_described_is_named_with_the_right_that_is_needed(
    ways: Ways,
) -> None:
    code, out, err = run_txn("consume", "seen", *ways.of(READER))
    assert (code, out) == (1, "")
    assert err == (
        "txn: topic 'seen' cannot be read: TOPIC_AUTHORIZATION_FAILED. Its user needs Read on the "
        "topic\n"
    )
