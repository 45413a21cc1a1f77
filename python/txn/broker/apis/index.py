"""The APIs that each module declares, with their versions, for a start that loads none of them.

`make fmt` writes this file from the declarations.
"""

from collections.abc import Mapping
from typing import Final

from txn.wire.api_keys import ApiKey

APIS_BY_MODULE: Final[Mapping[str, Mapping[int, tuple[int, int]]]] = {
    "acls": {
        ApiKey.DESCRIBE_ACLS: (1, 3),
        ApiKey.CREATE_ACLS: (1, 3),
        ApiKey.DELETE_ACLS: (1, 3),
    },
    "config_changes": {
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    },
    "configs": {
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    },
    "consumer_groups": {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    },
    "delegation_tokens": {
        ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    },
    "group_offset_fetch": {
        ApiKey.OFFSET_FETCH: (1, 10),
    },
    "group_offsets": {
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.TXN_OFFSET_COMMIT: (0, 6),
        ApiKey.OFFSET_DELETE: (0, 0),
    },
    "groups": {
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.DELETE_GROUPS: (0, 3),
    },
    "log_dirs": {
        ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    },
    "metadata": {
        ApiKey.METADATA: (0, 13),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
    },
    "offsets": {
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    },
    "other_groups": {
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.SHARE_FETCH: (1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    },
    "quorum": {
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.UPDATE_FEATURES: (0, 2),
        ApiKey.UNREGISTER_BROKER: (0, 0),
    },
    "quotas": {
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    },
    "replicas": {
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    },
    "sasl": {
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    },
    "share_state": {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
        ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
    },
    "topic_deletion": {
        ApiKey.DELETE_TOPICS: (1, 6),
    },
    "topic_partitions": {
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    },
    "topics": {
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.CREATE_PARTITIONS: (0, 3),
    },
    "txn": {
        ApiKey.INIT_PRODUCER_ID: (0, 6),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
    },
    "txn_tools": {
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 2),
    },
    "versions": {
        ApiKey.API_VERSIONS: (0, 5),
    },
}
