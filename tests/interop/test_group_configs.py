"""Settings of groups as Apache Kafka 4.4 tells, takes and refuses them, and by Kafka's own tool."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from harnesses.peers.jars import CONTROL, NODE_4_4, run_java
from support.wire_client import ask

DESCRIBE, ALTER, INCREMENTAL_ALTER, LIST = 32, 33, 44, 74
GROUP = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(CONTROL is not NODE_4_4, reason="Apache Kafka 4.4 answers so"),
]


@pytest.fixture(scope="module")
def txn_broker() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


def described(servers: str, group: str, names: list[str] | None = None) -> Any:
    answer = ask(
        servers,
        DESCRIBE,
        4,
        resources=[{"resource_type": GROUP, "resource_name": group, "configuration_keys": names}],
        include_synonyms=True,
        include_documentation=False,
    )
    result = answer.results[0]
    return result.error_code, result.error_message or "", sorted(map(str, result.configs))


def altered(servers: str, group: str, *entries: tuple[str, int, str | None]) -> tuple[int, str]:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in entries
    ]
    answer = ask(
        servers,
        INCREMENTAL_ALTER,
        1,
        resources=[{"resource_type": GROUP, "resource_name": group, "configs": configs}],
        validate_only=False,
    )
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def replaced(servers: str, group: str, **values: str) -> int:
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
    answer = ask(
        servers,
        ALTER,
        2,
        resources=[{"resource_type": GROUP, "resource_name": group, "configs": configs}],
        validate_only=False,
    )
    return int(answer.responses[0].error_code)


def listed(servers: str) -> set[str]:
    answer = ask(servers, LIST, 1, resource_types=[GROUP])
    return {resource.resource_name for resource in answer.config_resources}


def both(txn_broker: str, kafka_peer: str, group: str) -> tuple[Any, Any]:
    """The descriptions; Kafka's broker learns of a change behind the answer."""
    ours = described(txn_broker, group)
    for _ in range(200):
        if described(kafka_peer, group) == ours:
            break
    return ours, described(kafka_peer, group)


def test_every_setting_of_a_group_is_told_as_by_Kafka(txn_broker: str, kafka_peer: str) -> None:
    group = uuid.uuid4().hex
    ours, theirs = both(txn_broker, kafka_peer, group)
    assert ours == theirs
    values = [(SESSION, SET, "50000"), ("share.auto.offset.reset", SET, "earliest")]
    values.append(("consumer.assignor.offload.enable", SET, "false"))
    for servers in (txn_broker, kafka_peer):
        assert altered(servers, group, *values) == (0, "")
    ours, theirs = both(txn_broker, kafka_peer, group)
    assert ours == theirs
    assert described(txn_broker, "") == described(kafka_peer, "")


def test_alterations_of_a_group_are_taken_or_refused_as_by_Kafka(
    txn_broker: str, kafka_peer: str
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
        ours = altered(txn_broker, group, *entries)
        assert ours == altered(kafka_peer, group, *entries), entries
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
        code, message = altered(txn_broker, group, *entries)
        kafkas, words = altered(kafka_peer, group, *entries)
        assert code == kafkas, entries
        # A value that is not set is refused for any resource, in our own words.
        assert code == 42 or (entries[0][0] in message and entries[0][0] in words)
    for servers in (txn_broker, kafka_peer):
        assert altered(servers, "", (SESSION, SET, "50000"))[0] == 42
    assert altered(txn_broker, "", (SESSION, SET, "50000")) == altered(
        kafka_peer, "", (SESSION, SET, "50000")
    )


def test_groups_with_settings_are_listed_as_by_Kafka(txn_broker: str, kafka_peer: str) -> None:
    group = uuid.uuid4().hex
    for servers in (txn_broker, kafka_peer):
        assert replaced(servers, group, consumer_session_timeout_ms="46000", nope="1") == 40
        assert replaced(servers, group, consumer_session_timeout_ms="46000") == 0
        while group not in listed(servers):
            pass
        assert replaced(servers, group) == 0
        while group in listed(servers):
            pass


def test_Kafkas_tool_sets_shows_and_removes_the_settings_of_a_group(txn_broker: str) -> None:
    def kafka_configs(*arguments: str) -> str:
        command = ("--bootstrap-server", txn_broker, "--entity-type", "groups", *arguments)
        return run_java("org.apache.kafka.tools.ConfigCommand", *command, jars=NODE_4_4)

    of_group = ("--entity-name", "tool")
    kafka_configs(*of_group, "--alter", "--add-config", f"{SESSION}=55000")
    assert f"{SESSION}=55000" in kafka_configs(*of_group, "--describe")
    assert "tool" in kafka_configs("--describe")
    kafka_configs(*of_group, "--alter", "--delete-config", SESSION)
    assert SESSION not in kafka_configs(*of_group, "--describe")


def test_settings_of_a_group_outlast_a_restart(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        assert altered(broker.bootstrap_servers, "g", (SESSION, SET, "50000"))[0] == 0
    with txn.Broker(tmp_path) as broker:
        assert listed(broker.bootstrap_servers) == {"g"}
        _, _, (told,) = described(broker.bootstrap_servers, "g", [SESSION])
        assert "50000" in told
