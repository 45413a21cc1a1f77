"""Requests of transactions and groups, with the answers that refuse them."""

from api.security.access_control import (
    CLUSTER_FAILED,
    COMMITTED,
    GROUP_FAILED,
    ID_FAILED,
    JOINING,
    PRODUCER,
    TOPIC_FAILED,
    Refusal,
    partition_of,
)
from txn.wire.api_keys import ApiKey

TRANSACTION_REFUSALS = [
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
