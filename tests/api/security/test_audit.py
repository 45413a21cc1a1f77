"""Acts of administrators in the audit log: principal, host and resource, and no content."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

import txn
from support.clients import WAIT_S, plain_producer, send

BY = "principal=User:ANONYMOUS host=127.0.0.1"


def wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(WAIT_S)


def test_each_act_is_one_line_and_a_failed_or_tried_one_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "txn")
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        wait(admin.create_topics([NewTopic("tried", 1)], validate_only=True))
        wait(admin.create_topics([NewTopic("pay", 2)]))
        with pytest.raises(KafkaException, match="already exists"):
            wait(admin.create_topics([NewTopic("pay", 2)]))
        wait(admin.create_partitions([NewPartitions("pay", 3)]))
        entry = ConfigEntry("retention.ms", "77777", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "pay", incremental_configs=[entry])
        wait(admin.incremental_alter_configs([resource]))
        send(plain_producer(servers), "pay", [b"pay-load"], partition=1)
        wait(admin.delete_records([TopicPartition("pay", 1, 1)]))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        upsertion = UserScramCredentialUpsertion("ada", info, b"s3cret")
        wait(admin.alter_user_scram_credentials([upsertion]))
        deletion = UserScramCredentialDeletion("ada", ScramMechanism.SCRAM_SHA_256)
        wait(admin.alter_user_scram_credentials([deletion]))
        offsets = ConsumerGroupTopicPartitions("shop", [TopicPartition("pay", 0, 0)])
        wait(admin.alter_consumer_group_offsets([offsets]))
        wait(admin.delete_consumer_groups(["shop"]))
        wait(admin.delete_topics(["pay"]))
    assert [line for line in caplog.messages if BY in line] == [
        f"topic.created {BY} resource=TOPIC:pay partitions=2",
        f"topic.grown {BY} resource=TOPIC:pay partitions=3",
        f"settings.altered {BY} resource=TOPIC:pay settings=retention.ms",
        f"records.deleted {BY} resource=TOPIC:pay partition=1 log_start=1",
        f"user.added {BY} resource=USER:ada mechanism=SCRAM-SHA-256",
        f"user.removed {BY} resource=USER:ada mechanism=SCRAM-SHA-256",
        f"group.deleted {BY} resource=GROUP:shop",
        f"topic.deleted {BY} resource=TOPIC:pay",
    ]
    assert "s3cret" not in caplog.text
    assert "pay-load" not in caplog.text
