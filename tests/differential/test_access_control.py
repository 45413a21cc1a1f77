"""Access control beside Apache Kafka's StandardAuthorizer: the same entries, the same answers.

Both brokers know every client as `User:ANONYMOUS`; the address that it comes from tells clients
apart. Each round has entries of its own, drawn at random, and asks every API from two addresses.
"""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from kio.serial import entity_reader

import txn
from differential.batches import BatchSpec
from differential.names import Names
from differential.plain import differences, plain
from harnesses.peers.kafka import KafkaNode
from support.acl_filters import any_acl
from support.response_schemas import response_schema
from support.wire_client import RawConnection
from txn.config import STANDARD_AUTHORIZER
from txn.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from txn.wire.api_keys import ApiKey

ADMIN: Final = "127.0.0.1"
CLIENTS: Final = ("127.0.0.2", "127.0.0.3")
ANONYMOUS: Final = "User:ANONYMOUS"
ROUNDS: Final = 12
SETTLE_S: Final = 20.0

SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
}
TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
NAMES: Final = ("pay", "pays", "order", "p", "*")
OWN: Final = {
    "host",
    "port",
    "cluster_id",
    "controller_id",
    "topic_id",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "error_message",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "partition_size",
    "member_id",
    "is_under_min_isr",
}
"""Fields whose values belong to one broker. Access control changes others."""


class Asked:
    """One broker, asked from several addresses."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._connections: dict[str, RawConnection] = {}

    def ask(self, source: str, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        connection = self._connections.get(source)
        if connection is None:
            connection = self._connections[source] = RawConnection(self._servers, source)
        try:
            connection.send(key, version, **fields)
            body = connection.receive_body(key, version)
        except ConnectionError:
            self._connections.pop(source).socket.close()
            return {"connection": "closed"}
        answer, _ = entity_reader(response_schema(key, version))(body, 0)
        return _without_own(plain(answer, Names()))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()


def _without_own(value: Any) -> Any:
    if value in (None, "", []):
        return None  # where there is nothing, the brokers differ in how they say so
    if isinstance(value, list):
        items = [_without_own(item) for item in value]
        return sorted(items, key=_resource)  # their order is left open
    if isinstance(value, dict):
        return {name: _without_own(item) for name, item in value.items() if name not in OWN}
    return value


def _resource(item: Any) -> str:
    is_of_one = isinstance(item, dict) and "resource_name" in item
    return f"{item['resource_type']} {item['resource_name']}" if is_of_one else ""


def an_acl(host: str, kind: ResourceType, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": ANONYMOUS,
        "host": host,
        "operation": Operation.ALL,
        "permission_type": Permission.ALLOW,
        **changes,
    }


EVERYTHING: Final = [
    an_acl(ADMIN, ResourceType.TOPIC, "*"),
    an_acl(ADMIN, ResourceType.GROUP, "*"),
    an_acl(ADMIN, ResourceType.TRANSACTIONAL_ID, "*"),
    an_acl(ADMIN, ResourceType.CLUSTER, CLUSTER_NAME),
]


def drawn(draw: random.Random) -> list[dict[str, Any]]:
    """Entries of a round."""
    entries = []
    for _ in range(draw.randint(1, 12)):
        kind = draw.choice(TYPES)
        is_cluster = kind is ResourceType.CLUSTER
        name = CLUSTER_NAME if is_cluster else draw.choice(NAMES)
        patterns = [PatternType.LITERAL, PatternType.PREFIXED]
        entries.append(
            an_acl(
                draw.choice([*CLIENTS, *CLIENTS, "*"]),
                kind,
                name,
                resource_pattern_type=PatternType.LITERAL if is_cluster else draw.choice(patterns),
                principal=draw.choice([ANONYMOUS, ANONYMOUS, "User:*", "User:ada"]),
                operation=draw.choice([*Operation][2:]),
                permission_type=draw.choice([Permission.ALLOW] * 3 + [Permission.DENY]),
            )
        )
    # The brokers of a Kafka speak to its controller from the administrator's address.
    return [one for one in entries if one["host"] != "*" or one["permission_type"] != 2]


PRODUCER: Final = {"producer_id": 4711, "producer_epoch": 0}
COMMITTED: Final = {
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}


def of_topics(*topics: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{"partition_index": 0, **fields}]} for name in topics]


BOTH: Final = ("pay", "order")
REQUESTS: Final[list[tuple[ApiKey, int, dict[str, Any]]]] = [
    *(
        (
            ApiKey.METADATA,
            version,
            {
                "topics": topics,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
                "include_cluster_authorized_operations": True,
            },
        )
        for version in (0, 8, 12)
        for topics in (
            [{"topic_id": None, "name": name} for name in (*BOTH, "pays", "none")],
            None if version else [],
        )
    ),
    (ApiKey.FIND_COORDINATOR, 3, {"key_type": 0, "key": "pay"}),
    (ApiKey.FIND_COORDINATOR, 3, {"key_type": 1, "key": "order"}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["pay", "order"]}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["pay", "order"]}),
    (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in ("pay2", "order2", "pay")
            ],
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["none", "nothing"], "timeout": 10_000}),
    (
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": "pay-none", "topic_id": None}], "timeout": 10_000},
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": name, "count": 5, "assignments": None} for name in BOTH],
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    (
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    (
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": of_topics(*BOTH, "none", current_leader_epoch=-1, timestamp=-1),
        },
    ),
    (
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": of_topics(*BOTH, offset=0), "timeout": 10_000},
    ),
    (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -2,
            "topics": [
                {
                    "topic": name,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
                for name in BOTH
            ],
        },
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configuration_keys": ["retention.ms", "num.partitions"],
                }
                for kind, name in ((2, "pay"), (2, "order"), (4, "1"))
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000000"}]
                    if kind == 2
                    else [],
                }
                for kind, name in ((2, "pay"), (2, "order"), (4, "1"))
            ],
            "validate_only": True,
        },
    ),
    (
        ApiKey.ALTER_CONFIGS,
        2,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": []} for name in BOTH
            ],
            "validate_only": True,
        },
    ),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
                }
            ],
            "validate_only": True,
        },
    ),
    (ApiKey.DESCRIBE_ACLS, 3, any_acl(host_filter="127.0.0.77")),
    (ApiKey.DELETE_ACLS, 3, {"filters": [any_acl(host_filter="127.0.0.77")]}),
    (
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": "pay", "transaction_timeout": 1000, **PRODUCER},
    ),
    (
        ApiKey.INIT_PRODUCER_ID,
        4,
        {
            "transactional_id": None,
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "pay",
            "v3_and_below_producer_id": 4711,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in (*BOTH, "none")],
        },
    ),
    (
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {"transactional_id": "pay", **PRODUCER, "group_id": "order"},
    ),
    (ApiKey.END_TXN, 3, {"transactional_id": "pay", **PRODUCER, "committed": True}),
    (
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    **PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": "none", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": name, "partition_indexes": [0]} for name in (*BOTH, "none")]},
    ),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["pay", "order"]}),
    (ApiKey.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []}),
    (
        ApiKey.JOIN_GROUP,
        7,
        {
            "group_id": "pay",
            "session_timeout": 1,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [],
        },
    ),
    (
        ApiKey.SYNC_GROUP,
        3,
        {
            "group_id": "pay",
            "generation_id": 1,
            "member_id": "m",
            "group_instance_id": None,
            "assignments": [],
        },
    ),
    (
        ApiKey.HEARTBEAT,
        3,
        {"group_id": "pay", "generation_id": 1, "member_id": "m", "group_instance_id": None},
    ),
    (
        ApiKey.LEAVE_GROUP,
        4,
        {"group_id": "pay", "members": [{"member_id": "m", "group_instance_id": None}]},
    ),
    (
        ApiKey.OFFSET_COMMIT,
        8,
        {
            "group_id": "pay",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": of_topics(*BOTH, "none", **COMMITTED),
        },
    ),
    (
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": "pay",
            "group_id": "order",
            **PRODUCER,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": of_topics(*BOTH, **COMMITTED),
        },
    ),
    *(
        (
            ApiKey.OFFSET_FETCH,
            version,
            {"group_id": "pay", "topics": topics, "require_stable": False},
        )
        for version in (1, 7)
        for topics in (
            [{"name": name, "partition_indexes": [0]} for name in BOTH],
            *([None] if version > 1 else []),
        )
    ),
    (
        ApiKey.OFFSET_FETCH,
        8,
        {
            "groups": [
                {
                    "group_id": "pay",
                    "topics": [{"name": name, "partition_indexes": [0]} for name in BOTH],
                },
                {"group_id": "order", "topics": None},
            ],
            "require_stable": False,
        },
    ),
    (ApiKey.OFFSET_DELETE, 0, {"group_id": "nobody", "topics": of_topics(*BOTH)}),
    (
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["pay", "order"], "include_authorized_operations": True},
    ),
    (ApiKey.LIST_GROUPS, 4, {"states_filter": []}),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["nobody", "p"]}),
    *(
        (
            ApiKey.PRODUCE,
            9,
            {
                "transactional_id": transactional_id,
                "acks": -1,
                "timeout": 10_000,
                "topic_data": [
                    {
                        "name": name,
                        "partition_data": [
                            {
                                "index": 0,
                                "records": BatchSpec(
                                    attributes=attributes,
                                    producer_id=producer,
                                    producer_epoch=0,
                                    base_sequence=0,
                                    crc=7,  # never stored, so that both keep the same records
                                ).encode(producer),
                            }
                        ],
                    }
                    for name in (*BOTH, "none")
                ],
            },
        )
        for transactional_id, attributes, producer in ((None, 0, -1), ("order", 0x10, 4711))
    ),
    (
        ApiKey.FETCH,
        12,
        {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": name,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": 0,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1000,
                        }
                    ],
                }
                for name in (*BOTH, "none")
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
    ),
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """txn and Apache Kafka with an authorizer each, the topics there, the administrator let in."""
    directory: Path = tmp_path_factory.mktemp("access")
    broker = txn.Broker(directory / "txn", durability="process", properties=SETTINGS)
    with broker, KafkaNode(directory / "kafka", SETTINGS) as kafka:
        sides = Asked(broker.bootstrap_servers), Asked(kafka.bootstrap_servers)
        for side in sides:
            give(side, EVERYTHING)
            topics: list[dict[str, Any]] = [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in (*BOTH, "pays")
            ]
            made = {"topics": topics, "timeout": 10_000, "validate_only": False}
            side.ask(ADMIN, ApiKey.CREATE_TOPICS, 5, made)
            until_alike(side)
        yield sides
        for side in sides:
            side.close()


def until_alike(side: Asked) -> None:
    """Wait until the coordinators of a broker have been loaded."""
    deadline = time.monotonic() + SETTLE_S
    wanted: list[tuple[ApiKey, int, dict[str, Any]]] = [
        (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["pay"]}),
        (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["pay"]}),
        (
            ApiKey.OFFSET_COMMIT,
            8,
            {
                "group_id": "pay",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": of_topics(*BOTH, **COMMITTED),
            },
        ),
        (
            ApiKey.INIT_PRODUCER_ID,
            4,
            {
                "transactional_id": "pay",
                "transaction_timeout": 1000,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        ),
    ]
    for key, version, fields in wanted:
        while "not_coordinator" in (told := str(side.ask(ADMIN, key, version, fields)).lower()) or (
            "coordinator_" in told or "unknown_topic" in told
        ):
            assert time.monotonic() < deadline, told
            time.sleep(0.1)


def give(side: Asked, entries: list[dict[str, Any]]) -> None:
    """Have a broker hold these entries for clients, and no others."""
    count = len({tuple(sorted(one.items())) for one in entries})
    if entries is not EVERYTHING:
        for host in (*CLIENTS, "*"):
            filters = {"filters": [any_acl(host_filter=host)]}
            side.ask(ADMIN, ApiKey.DELETE_ACLS, 3, filters)
        count += len(EVERYTHING)
    side.ask(ADMIN, ApiKey.CREATE_ACLS, 3, {"creations": entries})
    deadline = time.monotonic() + SETTLE_S
    while True:
        told = side.ask(ADMIN, ApiKey.DESCRIBE_ACLS, 3, any_acl())
        if sum(len(one["acls"] or ()) for one in (told["resources"] or ())) == count:
            return
        assert time.monotonic() < deadline, told


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_both_refuse_and_leave_out_the_same(pair: tuple[Asked, Asked], seed: int) -> None:
    draw = random.Random(seed)
    entries = drawn(draw)
    for side in pair:
        give(side, entries)
    found = []
    for source in CLIENTS:
        for key, version, fields in REQUESTS:
            ours, theirs = (side.ask(source, key, version, fields) for side in pair)
            found += [f"{source} {key.name} v{version}: {one}" for one in differences(ours, theirs)]
    assert not found, "\n".join([*found, "with", *map(str, entries)])


def test_equal_filters_of_deletions_are_told_the_same_by_both(pair: tuple[Asked, Asked]) -> None:
    entries = [an_acl(CLIENTS[0], ResourceType.TOPIC, name) for name in ("deleted", "deleted too")]
    wanted = any_acl(host_filter=CLIENTS[0])
    one = any_acl(host_filter=CLIENTS[0], resource_name_filter="deleted")
    for filters in ([wanted, wanted], [one, wanted, one]):
        for side in pair:
            give(side, entries)
        ours, theirs = (
            side.ask(ADMIN, ApiKey.DELETE_ACLS, 3, {"filters": filters}) for side in pair
        )
        told = [len(found["matching_acls"]) for found in ours["filter_results"]]
        assert told == [2 if each is wanted else 1 for each in filters]
        assert not [*differences(ours, theirs)]
