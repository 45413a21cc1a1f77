"""Messages that scripts look for: the same words from txn and from Apache Kafka."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from support.clients import WAIT_S, create_topic

Unique = Callable[[str], str]


def said(futures: Mapping[Any, "Future[Any]"]) -> str:
    """The message with which the only one of them was refused."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as raised:
        future.result(WAIT_S)
    message: str = raised.value.args[0].str()
    return message


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    """A topic of three partitions."""
    name = unique("there")
    create_topic(bootstrap, name, partitions=3)
    return name


def test_a_topic_that_exists(admin: AdminClient, topic: str) -> None:
    message = said(admin.create_topics([NewTopic(topic, 1, 1)]))
    assert message == f"Topic '{topic}' already exists."


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "the empty string is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        (
            "bad name",
            "'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
    ],
)
def test_a_topic_with_an_invalid_name(admin: AdminClient, name: str, fault: str) -> None:
    message = said(admin.create_topics([NewTopic(name, 1, 1)]))
    assert message == f"Topic name is invalid: {fault}"


def test_a_topic_whose_name_collides(admin: AdminClient, bootstrap: str, unique: Unique) -> None:
    name = unique("a").replace("-", "_")
    create_topic(bootstrap, f"{name}.b")
    message = said(admin.create_topics([NewTopic(f"{name}_b", 1, 1)]))
    assert message == f"Topic '{name}_b' collides with existing topic: {name}.b"


@pytest.mark.parametrize(
    ("partitions", "replicas", "message"),
    [
        (0, 1, "Number of partitions was set to an invalid non-positive value."),
        (1, 0, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            1,
            3,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all "
            "their log directories cordoned.",
        ),
    ],
)
def test_a_topic_of_impossible_size(
    admin: AdminClient, unique: Unique, partitions: int, replicas: int, message: str
) -> None:
    assert said(admin.create_topics([NewTopic(unique("a"), partitions, replicas)])) == message


def test_partitions_that_are_no_more_than_there_are(admin: AdminClient, topic: str) -> None:
    same = said(admin.create_partitions([NewPartitions(topic, 3)]))
    fewer = said(admin.create_partitions([NewPartitions(topic, 2)]))
    assert same == "Topic already has 3 partition(s)."
    assert fewer == (f"The topic {topic} currently has 3 partition(s); 2 would not be an increase.")


@pytest.mark.parametrize(
    ("name", "value", "begin"),
    [
        ("retention.msx", "1", "Unknown topic config name: retention.msx"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: "),
        ("cleanup.policy", "burn", "Invalid value burn for configuration cleanup.policy: "),
    ],
)
def test_a_setting_that_does_not_fit(
    admin: AdminClient, topic: str, unique: Unique, name: str, value: str, begin: str
) -> None:
    created = said(admin.create_topics([NewTopic(unique("a"), 1, 1, config={name: value})]))
    altered = said(admin.incremental_alter_configs([setting(topic, name, value)]))
    assert created.startswith(begin)
    assert altered.startswith(begin)


def test_an_operation_for_lists_alone(admin: AdminClient, topic: str) -> None:
    change = setting(topic, "retention.ms", "1", AlterConfigOpType.APPEND)
    message = said(admin.incremental_alter_configs([change]))
    assert message.startswith("Can't APPEND to key retention.ms because its type is not LIST.")


def test_settings_of_a_topic_that_is_not_there(admin: AdminClient, unique: Unique) -> None:
    name = unique("nobody")
    message = said(admin.incremental_alter_configs([setting(name, "retention.ms", "1")]))
    assert message == f"The topic '{name}' does not exist."


def setting(
    topic: str, name: str, value: str, operation: AlterConfigOpType = AlterConfigOpType.SET
) -> ConfigResource:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
