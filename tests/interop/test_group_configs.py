"""Settings of groups as Apache Kafka 4.4 tells, takes and refuses them, and by Kafka's own tool."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import CONTROL, NODE_4_4, run_java
from support.config_requests import APPEND, DELETE, SET, Resources

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(CONTROL is not NODE_4_4, reason="Apache Kafka 4.4 answers so"),
]


@pytest.fixture(scope="module")
def ours() -> Iterator[Resources]:
    with txn.Broker() as broker:
        yield Resources(broker.bootstrap_servers, GROUP)


@pytest.fixture(scope="module")
def theirs(kafka_peer: str) -> Resources:
    return Resources(kafka_peer, GROUP)


def test_every_setting_of_a_group_is_told_as_by_Kafka(ours: Resources, theirs: Resources) -> None:
    group = uuid.uuid4().hex
    theirs.await_description(group, ours.describe(group))
    values = [(SESSION, SET, "50000"), ("share.auto.offset.reset", SET, "earliest")]
    values.append(("consumer.assignor.offload.enable", SET, "false"))
    for side in (ours, theirs):
        assert side.alter(group, *values) == (0, "")
    theirs.await_description(group, ours.describe(group))
    assert ours.describe("") == theirs.describe("")


def test_alterations_of_a_group_are_taken_or_refused_as_by_Kafka(
    ours: Resources, theirs: Resources
) -> None:
    group = uuid.uuid4().hex
    for entries in (
        [(SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")],
        [(SESSION, SET, "1000")],
        [(SESSION, SET, "100000")],
        [(ASSIGNMENT, SET, "15001")],
        [(HEARTBEAT, SET, "4999")],
        [(SESSION, DELETE, None), ("nope", DELETE, None)],
        [("streams.num.standby.replicas", SET, "3")],
    ):
        assert ours.alter(group, *entries) == theirs.alter(group, *entries), entries
    for entries in (
        [(SESSION, SET, "long")],
        [(SESSION, SET, "")],
        [(SESSION, SET, None)],
        [("nope", SET, "1")],
        [(SESSION, APPEND, "1")],
        [("share.auto.offset.reset", SET, "now")],
        [("streams.assignor.name", SET, "mine")],
        [("errors.deadletterqueue.topic.name", SET, "__dead")],
    ):
        code, message = ours.alter(group, *entries)
        kafkas, words = theirs.alter(group, *entries)
        assert code == kafkas, entries
        # A value that is not set is refused for any resource, in our own words.
        assert code == 42 or (entries[0][0] in message and entries[0][0] in words)
    refused = ours.alter("", (SESSION, SET, "50000"))
    assert refused[0] == 42
    assert refused == theirs.alter("", (SESSION, SET, "50000"))


def test_groups_with_settings_are_listed_as_by_Kafka(ours: Resources, theirs: Resources) -> None:
    group = uuid.uuid4().hex
    for side in (ours, theirs):
        assert side.replace(group, consumer_session_timeout_ms="46000", nope="1") == 40
        assert side.replace(group, consumer_session_timeout_ms="46000") == 0
        while group not in side.names():
            pass
        assert side.replace(group) == 0
        while group in side.names():
            pass


def test_Kafkas_tool_sets_shows_and_removes_the_settings_of_a_group(ours: Resources) -> None:
    def kafka_configs(*arguments: str) -> str:
        command = ("--bootstrap-server", ours.servers, "--entity-type", "groups", *arguments)
        return run_java("org.apache.kafka.tools.ConfigCommand", *command, jars=NODE_4_4)

    of_group = ("--entity-name", "tool")
    kafka_configs(*of_group, "--alter", "--add-config", f"{SESSION}=55000")
    assert f"{SESSION}=55000" in kafka_configs(*of_group, "--describe")
    assert "tool" in kafka_configs("--describe")
    kafka_configs(*of_group, "--alter", "--delete-config", SESSION)
    assert SESSION not in kafka_configs(*of_group, "--describe")


def test_settings_of_a_group_outlast_a_restart(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        groups = Resources(broker.bootstrap_servers, GROUP)
        assert groups.alter("g", (SESSION, SET, "50000")) == (0, "")
    with txn.Broker(tmp_path) as broker:
        groups = Resources(broker.bootstrap_servers, GROUP)
        assert groups.names() == {"g"}
        assert groups.describe("g").entries[SESSION].value == "50000"
