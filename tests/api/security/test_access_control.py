"""Access control on a running broker: every API asks, and a change counts at once.

Every client is `User:ANONYMOUS`; the address that it comes from tells the clients apart.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

import txn
from support.acl_filters import any_acl
from support.clients import create_topic, plain_producer, read_all, send
from support.served import APIS
from support.wire_client import RawConnection
from support.wire_producer import WireProducer
from txn.broker.apis.guards import for_everybody
from txn.broker.apis.index import APIS_BY_MODULE
from txn.broker.audit import audit
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    with secured(tmp_path_factory.mktemp("secured") / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a"])
        yield broker


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

REFUSALS = [
    Refusal(
        ApiKey.METADATA,
        12,
        {
            "topics": [{"topic_id": None, "name": "orders"}, {"topic_id": None, "name": "new"}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        },
        lambda answer: [t.error_code for t in answer.topics],
        [TOPIC_FAILED, TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "orders"}, {"name": "new"}]},
        lambda answer: [t.error_code for t in answer.topics],
        [TOPIC_FAILED, TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": []},
        lambda answer: [len(answer.topics)],
        [0],
    ),
    Refusal(
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "orders", "partitions": [0]}]},
        lambda answer: [
            answer.error_code,
            *(p.error_code for t in answer.replica_election_results for p in t.partition_result),
        ],
        [CLUSTER_FAILED, CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]}]},
        lambda answer: [
            answer.error_code,
            *(p.error_code for t in answer.responses for p in t.partitions),
        ],
        [CLUSTER_FAILED, CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": None},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/", "topics": [{"name": "orders", "partitions": [0]}]}]},
        lambda answer: [p.error_code for t in answer.results for p in t.partitions],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_QUORUM,
        2,
        {"topics": []},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.UPDATE_FEATURES,
        2,
        {"feature_updates": []},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.UNREGISTER_BROKER,
        0,
        {"broker_id": 7},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.CREATE_DELEGATION_TOKEN,
        2,
        {"renewers": [], "max_lifetime": 1000},
        lambda answer: [answer.error_code],
        [TOKEN_REQUEST_NOT_ALLOWED],
    ),
    Refusal(
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 0, "coordinator_keys": ["g"]},
        lambda answer: [one.error_code for one in answer.coordinators],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.FIND_COORDINATOR,
        3,
        {"key_type": 1, "key": "t"},
        lambda answer: [answer.error_code],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": "mine",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": 1000,
            "validate_only": False,
        },
        lambda answer: [one.error_code for one in answer.topics],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DELETE_TOPICS,
        6,
        {
            "topics": [
                {"name": "orders", "topic_id": None},
                {"name": "absent", "topic_id": None},
            ],
            "timeout": 1000,
        },
        lambda answer: [one.error_code for one in answer.responses],
        [TOPIC_FAILED, TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": "orders", "count": 9, "assignments": None}],
            "timeout": 1000,
            "validate_only": False,
        },
        lambda answer: [one.error_code for one in answer.results],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_CLUSTER,
        2,
        {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
        lambda answer: [answer.error_code, answer.cluster_authorized_operations],
        [0, 0],
    ),
    Refusal(
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": partition_of("orders", current_leader_epoch=-1, timestamp=-1),
        },
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": partition_of("orders", offset=1), "timeout": 1000},
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -2,
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        },
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "orders", "configuration_keys": None},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
        lambda answer: [one.error_code for one in answer.results],
        [TOPIC_FAILED, CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ALTER_CONFIGS,
        2,
        {
            "resources": [{"resource_type": 2, "resource_name": "orders", "configs": []}],
            "validate_only": False,
        },
        lambda answer: [one.error_code for one in answer.responses],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "orders", "configs": []},
                {"resource_type": 4, "resource_name": "", "configs": []},
                {"resource_type": 32, "resource_name": "g", "configs": []},
            ],
            "validate_only": False,
        },
        lambda answer: [one.error_code for one in answer.responses],
        [TOPIC_FAILED, CLUSTER_FAILED, GROUP_FAILED],
    ),
    Refusal(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        {"resource_types": []},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        {"topics": None},
        lambda answer: [answer.error_code, len(answer.results)],
        [CLUSTER_FAILED, 0],
    ),
    Refusal(
        ApiKey.CREATE_ACLS,
        3,
        creations(STRANGER, Permission.ALLOW, (TOPIC, "*", Operation.ALL)),
        lambda answer: [one.error_code for one in answer.results],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_ACLS, 3, any_acl(), lambda answer: [answer.error_code], [CLUSTER_FAILED]
    ),
    Refusal(
        ApiKey.DELETE_ACLS,
        3,
        {"filters": [any_acl()]},
        lambda answer: [one.error_code for one in answer.filter_results],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": None},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "ada", "mechanism": 1}], "upsertions": []},
        lambda answer: [one.error_code for one in answer.results],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [], "strict": False},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": None}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        lambda answer: [one.error_code for one in answer.entries],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": "t", "transaction_timeout": 1000, **PRODUCER},
        lambda answer: [answer.error_code, answer.producer_id],
        [ID_FAILED, -1],
    ),
    Refusal(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {
            "transactional_id": None,
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        lambda answer: [answer.error_code, answer.producer_id],
        [CLUSTER_FAILED, -1],
    ),
    Refusal(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
        },
        lambda answer: [
            p.partition_error_code
            for t in answer.results_by_topic_v3_and_below
            for p in t.results_by_partition
        ],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        {"transactions": []},
        lambda answer: [answer.error_code],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        {"transactional_id": "t", **PRODUCER, "group_id": "g"},
        lambda answer: [answer.error_code],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.END_TXN,
        4,
        {"transactional_id": "t", **PRODUCER, "committed": True},
        lambda answer: [answer.error_code],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    **PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": "orders", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        lambda answer: [
            p.error_code for m in answer.markers for t in m.topics for p in t.partitions
        ],
        [CLUSTER_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [TOPIC_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["t"]},
        lambda answer: [one.error_code for one in answer.transaction_states],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.LIST_TRANSACTIONS,
        0,
        {"state_filters": [], "producer_id_filters": []},
        lambda answer: [answer.error_code, len(answer.transaction_states)],
        [0, 0],
    ),
    Refusal(
        ApiKey.JOIN_GROUP,
        7,
        {
            "group_id": "g",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [],
        },
        lambda answer: [answer.error_code, answer.generation_id],
        [GROUP_FAILED, -1],
    ),
    Refusal(
        ApiKey.SYNC_GROUP,
        3,
        {
            "group_id": "g",
            "generation_id": 1,
            "member_id": "m",
            "group_instance_id": None,
            "assignments": [],
        },
        lambda answer: [answer.error_code],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.HEARTBEAT,
        3,
        {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None},
        lambda answer: [answer.error_code],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.LEAVE_GROUP,
        4,
        {"group_id": "g", "members": []},
        lambda answer: [answer.error_code],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.OFFSET_COMMIT,
        8,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": partition_of("orders", **COMMITTED),
        },
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.TXN_OFFSET_COMMIT,
        4,
        {
            "transactional_id": "t",
            "group_id": "g",
            **PRODUCER,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": partition_of("orders", **COMMITTED),
        },
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [ID_FAILED],
    ),
    Refusal(
        ApiKey.OFFSET_FETCH,
        8,
        {
            "groups": [{"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}],
            "require_stable": False,
        },
        lambda answer: [one.error_code for one in answer.groups],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.OFFSET_FETCH,
        1,
        {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": "g", "topics": partition_of("orders")},
        lambda answer: [answer.error_code],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {"group_id": "g", **JOINING},
        lambda answer: [answer.error_code],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["g"], "include_authorized_operations": True},
        lambda answer: [one.error_code for one in answer.groups],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["g"], "include_authorized_operations": True},
        lambda answer: [(one.error_code) for one in answer.groups],
        [GROUP_FAILED],
    ),
    Refusal(
        ApiKey.LIST_GROUPS,
        4,
        {"states_filter": []},
        lambda answer: [answer.error_code, len(answer.groups)],
        [0, 0],
    ),
    Refusal(
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["g"]},
        lambda answer: [one.error_code for one in answer.results],
        [GROUP_FAILED],
    ),
]


@pytest.mark.parametrize(
    "refusal", REFUSALS, ids=lambda refusal: f"{refusal.key.name}-{refusal.version}"
)
def test_a_stranger_is_refused(broker: txn.Broker, refusal: Refusal) -> None:
    answer = ask(broker, STRANGER, refusal.key, refusal.version, **refusal.fields)
    assert refusal.codes(answer) == refusal.expected


def test_every_api_but_these_refuses_a_stranger() -> None:
    """Those of delegation tokens give nothing to anybody: there are none."""
    everybodys = {key for key, api in APIS.items() if api.guard is for_everybody}
    assert everybodys == {
        *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        *(ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN),
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        *APIS_BY_MODULE["other_groups"],
    }
    assert APIS.keys() - everybodys == {refusal.key for refusal in REFUSALS}


# ---------------------------------------------------------------- produce and fetch


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


def test_a_change_counts_for_the_next_request_of_an_open_connection(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "pay")
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED,) * 2
            allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED, 0)
            allow(broker, STRANGER, (TOPIC, "pay", Operation.WRITE))
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (INVALID_RECORD, 0)
            denied = creations(STRANGER, Permission.DENY, (TOPIC, "pay", Operation.ALL))
            ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **denied)
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED,) * 2
            deleted = any_acl(permission_type=Permission.DENY)
            ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[deleted])
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (INVALID_RECORD, 0)


def test_a_topic_that_is_not_there_is_refused_as_one_that_is(broker: txn.Broker) -> None:
    with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
        assert (produce(stranger, "none"), stranger.fetch_code("none")) == (TOPIC_FAILED,) * 2
    with RawConnection(broker.bootstrap_servers, ADMIN) as admin:
        assert (produce(admin, "none"), admin.fetch_code("none")) == (UNKNOWN_TOPIC,) * 2


def transactional_batch() -> bytes:
    """The header of an empty transactional batch; it is looked at before it is checked."""
    batch = bytearray(61)
    batch[8:12] = (49).to_bytes(4, "big")
    batch[16] = 2  # magic
    batch[21:23] = (0x10).to_bytes(2, "big")
    return bytes(batch)


def test_a_transactional_produce_needs_its_transactional_id(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "pay")
        allow(broker, STRANGER, (TOPIC, "pay", Operation.WRITE))
        records = {"index": 0, "records": transactional_batch()}
        answer = ask(
            broker,
            STRANGER,
            ApiKey.PRODUCE,
            9,
            transactional_id="t",
            acks=1,
            timeout=1000,
            topic_data=[{"name": "pay", "partition_data": [records]}],
        )
    assert int(answer.responses[0].partition_responses[0].error_code) == ID_FAILED


def test_a_denial_by_host_is_of_ipv4_clients_on_a_socket_of_ipv6_too(tmp_path: Path) -> None:
    every_topic = (TOPIC, "*", Operation.ALL)
    with txn.Broker(
        tmp_path / "data",
        host="::ffff:127.0.0.1",
        durability="process",
        properties={
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
        },
    ) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with RawConnection(f"127.0.0.1:{port}", ADMIN) as admin:
            for host, permission in (("*", Permission.ALLOW), (STRANGER, Permission.DENY)):
                admin.ask(ApiKey.CREATE_ACLS, 3, **creations(host, permission, every_topic))
            assert (produce(admin, "none"), admin.fetch_code("none")) == (UNKNOWN_TOPIC,) * 2
        with RawConnection(f"127.0.0.1:{port}", STRANGER) as stranger:
            assert (produce(stranger, "none"), stranger.fetch_code("none")) == (TOPIC_FAILED,) * 2


# ---------------------------------------------------------------- an id and a name


def metadata_of(broker: txn.Broker, address: str, *topics: tuple[UUID, str]) -> list[Any]:
    """The topics of an answer to a Metadata request that may make them: code and name of each."""
    answer = ask(
        broker,
        address,
        ApiKey.METADATA,
        12,
        topics=[{"topic_id": topic_id, "name": name} for topic_id, name in topics],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return [(int(one.error_code), one.name or None) for one in answer.topics]


def test_a_name_beside_an_id_neither_shows_nor_makes_a_topic(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "hidden")
        asked = [(uuid4(), "hidden"), (uuid4(), "made")]
        assert metadata_of(broker, STRANGER, *asked) == [(UNKNOWN_TOPIC_ID, None)] * 2
        assert {one for _, one in all_topics(broker)} == {"hidden"}


def test_the_name_of_a_hidden_topic_is_not_told_for_its_id(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "hidden")
        ((hidden, _),) = all_topics(broker)
        assert metadata_of(broker, STRANGER, (hidden, "x")) == [(TOPIC_FAILED, None)]
        assert metadata_of(broker, ADMIN, (hidden, "x")) == [(0, "hidden")]


def test_a_client_that_may_not_make_topics_has_no_coordinator_topic_made(tmp_path: Path) -> None:
    """Where creation was not wanted nobody asked for CREATE, and the topic was made anyhow."""
    name = "__transaction_state"
    told = []
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, name, Operation.DESCRIBE))
        for may_make in (False, True):
            answer = ask(
                broker,
                STRANGER,
                ApiKey.METADATA,
                12,
                topics=[{"topic_id": None, "name": name}],
                allow_auto_topic_creation=may_make,
                include_topic_authorized_operations=False,
            )
            told += [(int(one.error_code), one.is_internal) for one in answer.topics]
        made = [*(tmp_path / "data").glob(f"{name}-*")]
    assert told == [(UNKNOWN_TOPIC, True), (TOPIC_FAILED, True)]
    assert not made


def all_topics(broker: txn.Broker) -> list[tuple[UUID, str]]:
    """The id and the name of each topic that is not internal."""
    no = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    answer = ask(broker, ADMIN, ApiKey.METADATA, 12, topics=None, **no)
    return [(one.topic_id, one.name) for one in answer.topics if not one.is_internal]


# ---------------------------------------------------------------- left out


def test_lists_leave_out_the_resources_that_may_not_be_seen(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "seen")
        create_topic(broker.bootstrap_servers, "hidden")
        allow(broker, STRANGER, (TOPIC, "seen", Operation.READ))
        wanted = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        answer = ask(broker, STRANGER, ApiKey.METADATA, 12, topics=None, **wanted)
    may = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert [(one.name, one.topic_authorized_operations) for one in answer.topics] == [("seen", may)]


def test_committed_offsets_of_unseen_topics_are_left_out(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        for topic in ("seen", "hidden"):
            create_topic(broker.bootstrap_servers, topic)
        committed = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": partition_of("seen", **COMMITTED) + partition_of("hidden", **COMMITTED),
        }
        ask(broker, ADMIN, ApiKey.OFFSET_COMMIT, 8, **committed)
        allow(broker, STRANGER, (GROUP, "g", Operation.READ), (TOPIC, "seen", Operation.READ))
        answer = ask(broker, STRANGER, ApiKey.OFFSET_COMMIT, 8, **committed)
        codes = [int(topic.partitions[0].error_code) for topic in answer.topics]
        fields = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
        fetched = ask(broker, STRANGER, ApiKey.OFFSET_FETCH, 8, **fields)
    assert codes == [0, TOPIC_FAILED]
    assert [topic.name for topic in fetched.groups[0].topics] == ["seen"]


# ---------------------------------------------------------------- the entries themselves


def described(broker: txn.Broker, **changes: Any) -> set[tuple[Any, ...]]:
    answer = ask(broker, ADMIN, ApiKey.DESCRIBE_ACLS, 3, **any_acl(**changes))
    assert int(answer.error_code) == 0
    return {
        (one.resource_name, acl.host, acl.operation) for one in answer.resources for acl in one.acls
    }


def test_entries_outlive_a_restart_and_are_there_once(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ), (TOPIC, "pay", Operation.READ))
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
        before = described(broker)
    with secured(tmp_path / "data") as broker:
        assert described(broker) == before
        assert described(broker, host_filter=STRANGER) == {("pay", STRANGER, Operation.READ)}
        deleted = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[any_acl(host_filter=STRANGER)])
        assert [len(one.matching_acls) for one in deleted.filter_results] == [1]
        assert described(broker, host_filter=STRANGER) == set()


def test_an_entry_that_means_nothing_is_refused_alone(broker: txn.Broker) -> None:
    good = (TOPIC, "other", Operation.READ)
    bad = (ResourceType.CLUSTER, "other", Operation.ALL)
    fields = creations(ADMIN, Permission.ALLOW, good, bad)
    answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
    assert [int(one.error_code) for one in answer.results] == [0, 42]


def test_the_number_of_an_unknown_part_costs_the_connection(broker: txn.Broker) -> None:
    with RawConnection(broker.bootstrap_servers, ADMIN) as admin:
        admin.send(ApiKey.DESCRIBE_ACLS, 3, **any_acl(operation=0))
        assert admin.is_closed_by_peer()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("resource_type", "Invalid resourceType UNKNOWN"),
        ("resource_pattern_type", "Invalid patternType UNKNOWN"),
        ("operation", "Invalid operation UNKNOWN"),
        ("permission_type", "Invalid permissionType UNKNOWN"),
    ],
)
def test_of_a_number_that_kafka_does_not_know_no_entry_is_made(
    broker: txn.Broker, part: str, said: str
) -> None:
    """It cost the connection, and none of the other entries was made."""
    fields = creations(ADMIN, Permission.ALLOW, *[(TOPIC, part, Operation.READ)] * 2)
    fields["creations"][0][part] = 77
    answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
    assert [(int(one.error_code), one.error_message) for one in answer.results] == [
        (INVALID_REQUEST, said),
        (0, None),
    ]
    assert described(broker, resource_name_filter=part) == {(part, ADMIN, Operation.READ)}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("resource_type_filter", "Unknown patternFilter."),
        ("pattern_type_filter", "Unknown patternFilter."),
        ("operation", "Unknown entryFilter."),
        ("permission_type", "Unknown entryFilter."),
    ],
)
def test_a_number_that_kafka_does_not_know_selects_no_entry(
    tmp_path: Path, part: str, said: str
) -> None:
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
        assert described(broker, **{part: 77}) == set()
        filters = [any_acl(**{part: -1}), any_acl(host_filter=STRANGER)]
        answer = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=filters)
    assert [
        (int(one.error_code), one.error_message, len(one.matching_acls))
        for one in answer.filter_results
    ] == [(INVALID_REQUEST, said, 0), (0, None, 1)]


def test_a_request_changes_10_000_entries_at_most(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        many = [(TOPIC, f"t{n}", Operation.READ) for n in range(10_001)]
        fields = creations(STRANGER, Permission.ALLOW, *many)
        answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
        assert {(int(one.error_code), one.error_message) for one in answer.results} == {
            (POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        }
        assert described(broker, host_filter=STRANGER) == set()
        allow(broker, STRANGER, *many[1:])
        allow(broker, STRANGER, many[0])
        deleted = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[any_acl(host_filter=STRANGER)])
        assert [(int(one.error_code), one.error_message) for one in deleted.filter_results] == [
            (
                INVALID_REQUEST,
                "Cannot remove more than 10000 acls in a single delete operation.",
            )
        ]
        assert len(described(broker, host_filter=STRANGER)) == 10_001


@pytest.mark.parametrize("key", [ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS])
def test_without_an_authorizer_entries_are_refused(tmp_path: Path, key: ApiKey) -> None:
    fields = {
        ApiKey.CREATE_ACLS: creations("*", Permission.ALLOW, (TOPIC, "pay", Operation.READ)),
        ApiKey.DESCRIBE_ACLS: any_acl(),
        ApiKey.DELETE_ACLS: {"filters": [any_acl()]},
    }[key]
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        answer = ask(broker, CLIENT, key, 3, **fields)
    results = getattr(answer, "results", None) or getattr(answer, "filter_results", None)
    (refused,) = results or [answer]
    is_described = key == ApiKey.DESCRIBE_ACLS
    said = f"No Authorizer is configured{' on the broker' if is_described else '.'}"
    assert (int(refused.error_code), refused.error_message) == (54, said)


def test_an_authorizer_that_is_not_here_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(txn.ConfigError, match="no other authorizer runs in this broker"):
        txn.Broker(tmp_path / "data", properties={"authorizer.class.name": "com.acme.Guard"})


def test_a_super_user_needs_no_entry(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    with txn.Broker(tmp_path / "data", durability="process", properties=properties) as broker:
        create_topic(broker.bootstrap_servers, "pay")
        with RawConnection(broker.bootstrap_servers, STRANGER) as anybody:
            assert (produce(anybody, "pay"), anybody.fetch_code("pay")) == (INVALID_RECORD, 0)


# ---------------------------------------------------------------- the audit log


def test_refusals_and_acts_of_administrators_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "txn")
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "seen", Operation.READ))
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            produce(stranger, "pay")
        ask(broker, STRANGER, ApiKey.DELETE_ACLS, 3, filters=[any_acl()])
    assert (
        f"acl.added principal={ANONYMOUS} host={ADMIN} resource=TOPIC:LITERAL:seen "
        f'entry="ALLOW {ANONYMOUS} READ from {STRANGER}"' in caplog.text
    )
    assert (
        f"access.refused principal={ANONYMOUS} host={STRANGER} request=PRODUCE operation=WRITE "
        "resource=TOPIC:pay" in caplog.text
    )
    assert (
        f"access.refused principal={ANONYMOUS} host={STRANGER} request=DELETE_ACLS operation=ALTER "
        "resource=CLUSTER:kafka-cluster" in caplog.text
    )


def test_a_topic_that_a_request_names_many_times_is_one_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The story: each of its 199,000 places in one Fetch was asked for and written, on the thread of
    # the reactor. A client without any permission held up the others for seconds.
    caplog.set_level(logging.INFO, "txn")
    with secured(tmp_path / "data") as broker:
        before = audit.refusals()
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            batches = [{"name": "pay", "partition_data": [{"index": 0, "records": None}]}] * 1_000
            fields = {"transactional_id": None, "acks": 1, "timeout": 1_000}
            answer = stranger.ask(ApiKey.PRODUCE, 9, **fields, topic_data=batches)
        after = audit.refusals()
    codes = {int(one.partition_responses[0].error_code) for one in answer.responses}
    assert (len(answer.responses), codes) == (1_000, {TOPIC_FAILED})
    of_topic = (Operation.WRITE, TOPIC)
    assert after[of_topic] - before.get(of_topic, 0) == 1
    assert caplog.text.count("access.refused") == 1


def test_a_client_with_every_right_sees_no_difference(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "paid")
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="shop") as producer,
        producer.transaction() as transaction,
    ):
        transaction.produce("paid", b"7 apples")
    with WireProducer(servers, "wired") as wired:
        started = wired.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id="wired",
            transaction_timeout=1000,
            producer_id=-1,
            producer_epoch=-1,
        )
        owner = {"producer_id": started.producer_id, "producer_epoch": started.producer_epoch}
        of_txn = {"transactional_id": "wired", **owner}
        added = wired.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **of_txn, group_id="g")
        ended = wired.ask(ApiKey.END_TXN, 3, **of_txn, committed=True)
    assert read_all(servers, "paid") == [b"7 apples"]
    assert (int(added.error_code), int(ended.error_code)) == (0, 0)


def test_a_filter_of_deletions_that_is_repeated_finds_the_same_as_in_kafka(tmp_path: Path) -> None:
    """What is told is bounded: an entry counts for each filter that selects it."""
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "a", Operation.READ), (TOPIC, "b", Operation.READ))
        of_stranger = any_acl(host_filter=STRANGER)
        too_many = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[of_stranger] * 5_001)
        answer = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[of_stranger] * 3)
    assert {int(found.error_code) for found in too_many.filter_results} == {INVALID_REQUEST}
    assert [len(found.matching_acls) for found in answer.filter_results] == [2, 2, 2]
