"""Requests about topics, settings and the cluster, with the answers that refuse them."""

from uuid import UUID

from api.security.access_control import (
    CLUSTER_FAILED,
    GROUP_FAILED,
    ID_FAILED,
    STRANGER,
    TOKEN_REQUEST_NOT_ALLOWED,
    TOPIC,
    TOPIC_FAILED,
    Refusal,
    creations,
    partition_of,
)
from support.acl_filters import any_acl
from txn.broker.apis.index import APIS_BY_MODULE
from txn.security.acls import Operation, Permission
from txn.wire.api_keys import ApiKey

SHARE_STATE = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0}

CLUSTER_REFUSALS = [
    *(
        Refusal(
            ApiKey(key),
            0,
            {
                "group_id": "g",
                "topics": [
                    {
                        "topic_id": UUID(int=7),
                        "partitions": [{**SHARE_STATE, "state_batches": []}],
                    }
                ],
            },
            lambda answer: [p.error_code for t in answer.results for p in t.partitions],
            [CLUSTER_FAILED],
        )
        for key in APIS_BY_MODULE["share_state"]
    ),
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
]
