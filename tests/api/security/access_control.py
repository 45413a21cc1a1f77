"""Requests of the tests of access control, and a broker that lets a stranger do nothing.

Every client is `User:ANONYMOUS`; the address that it comes from tells the clients apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import txn
from support.wire_client import RawConnection
from txn.config import STANDARD_AUTHORIZER
from txn.security.acls import Operation, PatternType, Permission, ResourceType
from txn.wire.api_keys import ApiKey

ANONYMOUS = "User:ANONYMOUS"
ADMIN, STRANGER, CLIENT = "127.0.0.9", "127.0.0.2", "127.0.0.1"
TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, ID_FAILED = 29, 30, 31, 53
INVALID_REQUEST, POLICY_VIOLATION = 42, 44
TOKEN_REQUEST_NOT_ALLOWED = 64
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

Entry = tuple[ResourceType, str, Operation]


def ask(broker: txn.Broker, address: str, key: int, version: int, /, **fields: Any) -> Any:
    with RawConnection(broker.bootstrap_servers, address) as connection:
        return connection.ask(key, version, **fields)


def creations(host: str, permission: Permission, *entries: Entry) -> dict[str, Any]:
    return {
        "creations": [
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": PatternType.LITERAL,
                "principal": ANONYMOUS,
                "host": host,
                "operation": operation,
                "permission_type": permission,
            }
            for kind, name, operation in entries
        ]
    }


def allow(broker: txn.Broker, host: str, *entries: Entry) -> None:
    fields = creations(host, Permission.ALLOW, *entries)
    answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
    assert [int(one.error_code) for one in answer.results] == [0] * len(entries)


def secured(data: Path) -> txn.Broker:
    """A broker that lets ADMIN and CLIENT do everything, and STRANGER nothing."""
    broker = txn.Broker(
        data,
        durability="process",
        properties={
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    everything = [
        (TOPIC, "*", Operation.ALL),
        (GROUP, "*", Operation.ALL),
        (ResourceType.TRANSACTIONAL_ID, "*", Operation.ALL),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.ALL),
    ]
    allow(broker, ADMIN, *everything)
    allow(broker, CLIENT, *everything)
    return broker


class Refusal(NamedTuple):
    """A request of a stranger, and the codes in its answer."""

    key: ApiKey
    version: int
    fields: dict[str, Any]
    codes: Callable[[Any], list[int]]
    expected: list[int]


def partition_of(topic: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": topic, "partitions": [{"partition_index": 0, **fields}]}]


COMMITTED = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
PRODUCER = {"producer_id": 1, "producer_epoch": 0}

JOINING = {
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 1_000,
    "subscribed_topic_names": ["orders"],
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
}


def produce(connection: RawConnection, topic: str) -> int:
    """The error code of a Produce without records: INVALID_RECORD where it may be written."""
    answer = connection.ask(
        ApiKey.PRODUCE,
        9,
        transactional_id=None,
        acks=1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": None}]}],
    )
    return int(answer.responses[0].partition_responses[0].error_code)


INVALID_RECORD, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 87, 3, 100


def all_topics(broker: txn.Broker) -> list[tuple[UUID, str]]:
    """The id and the name of each topic that is not internal."""
    no = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    answer = ask(broker, ADMIN, ApiKey.METADATA, 12, topics=None, **no)
    return [(one.topic_id, one.name) for one in answer.topics if not one.is_internal]
