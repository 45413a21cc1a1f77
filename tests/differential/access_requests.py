"""Requests of every API that asks the authorizer, drawn at random.

A request that is allowed leaves the brokers as they were, or `RESTORED` has its API: the arena then
makes its topic or group again. So the answer to a request depends on the access control entries and
on nothing before it. Names come from a few words that begin alike, so that prefixed patterns and
literal ones meet.

Three requests are not drawn. Fetch with the id of a replica: txn has no followers and reads it as a
consumer's. FindCoordinator of share groups, which txn does not have. Metadata that makes a topic,
because Kafka makes it after its answer.
"""

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from differential.access_cluster import CLUSTER_REQUESTS
from differential.batches import TRANSACTIONAL, BatchSpec
from differential.names import Name
from harnesses.peers.jars import CONTROL, NODE_4_2
from support.acl_filters import any_acl
from txn.broker.apis.index import APIS_BY_MODULE
from txn.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from txn.wire.api_keys import ApiKey

TOPICS: Final = ("pay", "pays", "order", "p")
"""Topics that exist, with one partition and one record each."""
DOOMED: Final = "pay-doomed"
"""Exists too, and may be deleted."""
GONE: Final = ("none", "pay-none")
INTERNAL: Final = "__consumer_offsets"
GROUPS: Final = ("pay", "order")
"""Groups with committed offsets of `pay`, `order` and `p`."""
DOOMED_GROUP: Final = "pay-doomed"
IDS: Final = ("pay", "order")
"""Transactional ids; the transaction of `pay` is open on `pay` and `order`."""
NAMES: Final = ("pay", "pays", "order", "p", "none")
PRINCIPALS: Final = ("ada", "bob")
HOSTS: Final = ("127.0.0.2", "127.0.0.3")
NETWORKS: Final = () if CONTROL is NODE_4_2 else ("127.0.0.2/32", "127.0.0.3/32", "10.1.2.3/8")
NO_NETWORKS: Final = () if CONTROL is NODE_4_2 else ("10.0.0.0/33", "x/8", "10.0.0.1/", "::1/129")
"""Kafka 4.2 takes none of them for a network."""
UNUSED_PRINCIPAL: Final = "User:nobody"
"""Entries for it are added and removed between the others."""

STRANGE: Final = {"producer_id": 4711, "producer_epoch": 0}
"""A producer that no coordinator knows, so that no transaction begins or ends."""
TIMEOUT: Final = {"timeout": 10_000}

TOPIC_IDS: Final = {
    name: Name("topic id", n)
    for n, name in enumerate((*TOPICS, DOOMED, INTERNAL, "__transaction_state"), 1)
}
STRANGE_TOPIC_IDS: Final = {name: bytes([n]) * 16 for n, name in enumerate(GONE, 7)}

Fields = dict[str, Any]
Maker = Callable[[random.Random, int], Fields]
"""Draws the fields of a request of a version; fields that it does not have are not sent."""


def some(draw: random.Random, pool: Sequence[str], most: int = 4) -> list[str]:
    """One to `most` names, each once."""
    return draw.sample(pool, draw.randint(1, min(most, len(pool))))


def topic(name: str, /, **fields: Any) -> Fields:
    """A topic by name and by id; each version has the field that it knows."""
    return {
        "name": name,
        "topic": name,
        "topic_id": TOPIC_IDS.get(name) or STRANGE_TOPIC_IDS.get(name),
        **fields,
    }


def some_topics(draw: random.Random, **fields: Any) -> list[Fields]:
    return [topic(name, **fields) for name in some(draw, (*TOPICS, *GONE))]


# ---------------------------------------------------------------- records


def _produce(draw: random.Random, version: int) -> Fields:
    transactional_id = draw.choice([None, None, *NAMES])
    is_transactional = transactional_id is not None and draw.random() < 0.9
    producer_id = 4711 if is_transactional else draw.choice([-1, -1, 4711])
    batch = BatchSpec(
        attributes=TRANSACTIONAL if is_transactional else 0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        # Never stored, so that both keep the same records. The strange producer's is refused
        # before it is read.
        crc=None if is_transactional else 7,
    )
    partition = {"index": draw.choice([0, 0, 0, 9]), "records": batch.encode(producer_id)}
    pool = (*TOPICS, *GONE) if version >= 13 or is_transactional else (*TOPICS, *GONE, INTERNAL)
    return {
        "transactional_id": transactional_id,
        "acks": draw.choice([-1, 1]),
        **TIMEOUT,
        "topic_data": [topic(name, partition_data=[partition]) for name in some(draw, pool)],
    }


def _fetch(draw: random.Random, version: int) -> Fields:
    partition = {
        "partition": draw.choice([0, 0, 0, 9]),
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return {
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": draw.choice([0, 1]),
        "session_id": 0,
        "session_epoch": -1,
        "topics": some_topics(draw, partitions=[partition]),
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _list_offsets(draw: random.Random, version: int) -> Fields:
    timestamp = draw.choice([-1, -2])
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return {
        "replica_id": -1,
        "isolation_level": draw.choice([0, 1]),
        "topics": some_topics(draw, partitions=[partition]),
        **TIMEOUT,
    }


def _delete_records(draw: random.Random, version: int) -> Fields:
    partition = {"partition_index": draw.choice([0, 0, 9]), "offset": 0}
    return {"topics": some_topics(draw, partitions=[partition]), **TIMEOUT}


def _offset_for_leader_epoch(draw: random.Random, version: int) -> Fields:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -2, "topics": some_topics(draw, partitions=[partition])}


# ---------------------------------------------------------------- topics


def _metadata(draw: random.Random, version: int) -> Fields:
    told = {
        "allow_auto_topic_creation": draw.choice([True, False]),
        "include_topic_authorized_operations": draw.choice([True, False]),
        "include_cluster_authorized_operations": draw.choice([True, False]),
    }
    if draw.random() < 0.25:
        return {"topics": None if version else [], **told}
    is_by_id = version >= 12 and draw.random() < 0.5
    pool = (*TOPICS, *GONE) if is_by_id else (*TOPICS, *GONE, INTERNAL)
    topics = [
        topic(name, name=None) if is_by_id else topic(name, topic_id=None)
        for name in some(draw, pool)
    ]
    return {"topics": topics, **told}


def _create_topics(draw: random.Random, version: int) -> Fields:
    topics = [
        {
            "name": name,
            "num_partitions": draw.choice([1, 2, -1]),
            "replication_factor": 1,
            "assignments": [],
            "configs": draw.choice([[], [{"name": "retention.ms", "value": "777"}]]),
        }
        for name in some(draw, ("pay2", "order2", "p2", "none2", *TOPICS))
    ]
    return {"topics": topics, **TIMEOUT, "validate_only": True}


def _delete_topics(draw: random.Random, version: int) -> Fields:
    """Topics by name and by id, now and then twice, by both or by neither."""
    forms: tuple[Fields, ...] = ({"name": None}, {"topic_id": None})
    odd: tuple[Fields, ...] = (*forms, *forms, {}, {"name": None, "topic_id": None})
    names = some(draw, (DOOMED, *GONE))
    names += draw.choice([[], [], [draw.choice(names)]])
    return {
        "topic_names": names,
        "topics": [topic(name, **draw.choice(draw.choice([forms, odd]))) for name in names],
        **TIMEOUT,
    }


def _create_partitions(draw: random.Random, version: int) -> Fields:
    topics = [
        {"name": name, "count": draw.choice([1, 5]), "assignments": None}
        for name in some(draw, (*TOPICS, *GONE))
    ]
    return {"topics": topics, **TIMEOUT, "validate_only": True}


# ---------------------------------------------------------------- the cluster


def _describe_cluster(draw: random.Random, version: int) -> Fields:
    return {
        "include_cluster_authorized_operations": draw.choice([True, True, False]),
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    }


def _find_coordinator(draw: random.Random, version: int) -> Fields:
    keys = some(draw, NAMES)
    return {"key_type": draw.choice([0, 1]), "key": keys[0], "coordinator_keys": keys}


TOPIC_CONFIG, BROKER_CONFIG, LOGGER_CONFIG, METRICS_CONFIG, GROUP_CONFIG = 2, 4, 8, 16, 32


def _config_resources(draw: random.Random, kinds: Sequence[int]) -> list[tuple[int, str]]:
    found = []
    for kind in draw.sample(kinds, draw.randint(1, len(kinds))):
        if kind == TOPIC_CONFIG:
            found += [(kind, name) for name in some(draw, (*TOPICS, *GONE), 3)]
        elif kind == GROUP_CONFIG:
            found += [(kind, name) for name in some(draw, NAMES, 2)]
        else:
            found.append((kind, "1"))
    return found


def _describe_configs(draw: random.Random, version: int) -> Fields:
    keys = ["retention.ms", "num.partitions"]
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name in _config_resources(draw, (TOPIC_CONFIG, BROKER_CONFIG))
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _alter_configs(draw: random.Random, version: int) -> Fields:
    """AlterConfigs and IncrementalAlterConfigs have the same fields here."""
    setting = {"name": "retention.ms", "config_operation": 0, "value": "1000000"}
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [setting] if kind == TOPIC_CONFIG else [],
            }
            for kind, name in _config_resources(draw, (TOPIC_CONFIG, BROKER_CONFIG))
        ],
        "validate_only": True,
    }


def _list_config_resources(draw: random.Random, version: int) -> Fields:
    return {"resource_types": draw.choice([[TOPIC_CONFIG], [BROKER_CONFIG]])}


def _describe_log_dirs(draw: random.Random, version: int) -> Fields:
    return {"topics": [{"topic": name, "partitions": [0]} for name in some(draw, TOPICS)]}


def _describe_client_quotas(draw: random.Random, version: int) -> Fields:
    return {"components": [], "strict": False}


def _alter_client_quotas(draw: random.Random, version: int) -> Fields:
    entity = [{"entity_type": "user", "entity_name": draw.choice(NAMES)}]
    change = {"key": "producer_byte_rate", "value": 1.0, "remove": True}
    return {"entries": [{"entity": entity, "ops": [change]}], "validate_only": True}


def _describe_credentials(draw: random.Random, version: int) -> Fields:
    """Apache Kafka 4.2 never answers a refused request for all users, so users are named."""
    return {"users": [{"name": name} for name in some(draw, NAMES)]}


def _alter_credentials(draw: random.Random, version: int) -> Fields:
    """Deletes users that do not exist."""
    deletions = [{"name": name, "mechanism": 1} for name in some(draw, NAMES)]
    return {"deletions": deletions, "upsertions": []}


def _a_filter(draw: random.Random, principal: str) -> Fields:
    return any_acl(
        resource_type_filter=draw.choice([*ResourceType][1:6]),
        resource_name_filter=draw.choice([None, None, *NAMES]),
        pattern_type_filter=draw.choice([*PatternType][1:]),
        principal_filter=principal,
        host_filter=draw.choice([None, None, "*", *HOSTS]),
        operation=draw.choice([Operation.ANY, *[*Operation][1:]]),
        permission_type=draw.choice([*Permission][1:]),
    )


def _describe_acls(draw: random.Random, version: int) -> Fields:
    """Not of the entries that `_create_acls` adds: a broker learns of them a while later."""
    return _a_filter(draw, draw.choice([*(f"User:{name}" for name in PRINCIPALS), "User:*"]))


def _create_acls(draw: random.Random, version: int) -> Fields:
    """Entries without any effect on the other requests, and entries that are refused."""
    kind = draw.choice([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER])
    return {
        "creations": [
            {
                "resource_type": kind,
                "resource_name": draw.choice(["nothing", "", CLUSTER_NAME]),
                "resource_pattern_type": PatternType.LITERAL,
                "principal": UNUSED_PRINCIPAL,
                "host": draw.choice(["127.0.0.9", *NETWORKS, *NO_NETWORKS]),
                "operation": draw.choice([*Operation][2:]),
                "permission_type": Permission.ALLOW,
            }
        ]
    }


def _delete_acls(draw: random.Random, version: int) -> Fields:
    return {"filters": [_a_filter(draw, UNUSED_PRINCIPAL) for _ in range(draw.randint(1, 2))]}


# ---------------------------------------------------------------- transactions


def _init_producer_id(draw: random.Random, version: int) -> Fields:
    """A client has no id, or it shows a producer that is not its own."""
    transactional_id = draw.choice([None, None, *NAMES]) if version >= 3 else None
    shown = {"producer_id": -1, "producer_epoch": -1} if transactional_id is None else STRANGE
    return {"transactional_id": transactional_id, "transaction_timeout": 60_000, **shown}


def _add_partitions(draw: random.Random, version: int) -> Fields:
    names = some(draw, (*TOPICS, *GONE, INTERNAL))
    topics = [{"name": name, "partitions": [0]} for name in names]
    transactional_id = draw.choice(NAMES)
    return {
        "v3_and_below_transactional_id": transactional_id,
        **{f"v3_and_below_{name}": value for name, value in STRANGE.items()},
        "v3_and_below_topics": topics,
        "transactions": [
            {
                "transactional_id": transactional_id,
                **STRANGE,
                "verify_only": draw.choice([True, False]),
                "topics": topics,
            }
        ],
    }


def _add_offsets(draw: random.Random, version: int) -> Fields:
    return {
        "transactional_id": draw.choice(NAMES),
        "group_id": draw.choice(NAMES),
        **STRANGE,
    }


def _end_txn(draw: random.Random, version: int) -> Fields:
    return {
        "transactional_id": draw.choice(NAMES),
        "committed": draw.choice([True, False]),
        **STRANGE,
    }


def _write_markers(draw: random.Random, version: int) -> Fields:
    marker = {
        **STRANGE,
        "transaction_result": False,
        "topics": [{"name": name, "partition_indexes": [0]} for name in some(draw, GONE)],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


def _describe_producers(draw: random.Random, version: int) -> Fields:
    names = some(draw, (*TOPICS, *GONE))
    return {"topics": [{"name": name, "partition_indexes": [0]} for name in names]}


def _describe_transactions(draw: random.Random, version: int) -> Fields:
    return {"transactional_ids": some(draw, NAMES)}


def _list_transactions(draw: random.Random, version: int) -> Fields:
    return {
        "state_filters": draw.choice([[], ["Ongoing"], ["Empty"]]),
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }


# ---------------------------------------------------------------- groups


def _member(draw: random.Random) -> Fields:
    return {
        "group_id": draw.choice(NAMES),
        "generation_id": 1,
        "member_id": "m",
        "group_instance_id": None,
    }


def _join_group(draw: random.Random, version: int) -> Fields:
    """No broker takes the session timeout."""
    return {
        **_member(draw),
        "session_timeout": 1,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [],
        "reason": None,
    }


def _sync_group(draw: random.Random, version: int) -> Fields:
    return {
        **_member(draw),
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }


def _heartbeat(draw: random.Random, version: int) -> Fields:
    return _member(draw)


def _leave_group(draw: random.Random, version: int) -> Fields:
    leaving = {"member_id": "m", "group_instance_id": None, "reason": None}
    return {**_member(draw), "members": [leaving]}


COMMITTED: Final = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}


def commit_of(group: str, names: Sequence[str]) -> Fields:
    """OffsetCommit of somebody who is no member."""
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": datetime.timedelta(milliseconds=-1),
        "topics": [topic(name, partitions=[COMMITTED]) for name in names],
    }


def _offset_commit(draw: random.Random, version: int) -> Fields:
    """The group has committed these offsets already, or the member is refused."""
    group = draw.choice([*GROUPS, "none"])
    fields = commit_of(group, some(draw, ("pay", "order", "p", *GONE)))
    return fields if group in GROUPS else {**fields, "member_id": "m", **GENERATION}


GENERATION: Final = {"generation_id_or_member_epoch": 1}


def _txn_offset_commit(draw: random.Random, version: int) -> Fields:
    return {
        "transactional_id": draw.choice(NAMES),
        "group_id": draw.choice(NAMES),
        **STRANGE,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": some_topics(draw, partitions=[COMMITTED]),
    }


def _offset_fetch(draw: random.Random, version: int) -> Fields:
    def topics() -> list[Fields] | None:
        if version >= 2 and draw.random() < 0.4:
            return None
        return some_topics(draw, partition_indexes=[0])

    return {
        "group_id": draw.choice(NAMES),
        "topics": topics(),
        "groups": [
            {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics()}
            for name in some(draw, NAMES, 3)
        ],
        "require_stable": draw.choice([True, False]),
    }


def _offset_delete(draw: random.Random, version: int) -> Fields:
    return {
        "group_id": draw.choice([DOOMED_GROUP, "none"]),
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0}]}
            for name in some(draw, (*TOPICS, *GONE))
        ],
    }


def _describe_groups(draw: random.Random, version: int) -> Fields:
    return {
        "groups": some(draw, NAMES),
        "include_authorized_operations": draw.choice([True, True, False]),
    }


def _consumer_groups(draw: random.Random, version: int) -> Fields:
    return {
        "group_ids": some(draw, NAMES),
        "include_authorized_operations": draw.choice([True, True, False]),
    }


def _consumer_group_heartbeat(draw: random.Random, version: int) -> Fields:
    return {
        "group_id": draw.choice(NAMES),
        "member_id": "nobody",
        "member_epoch": 5,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": draw.choice([None, some(draw, NAMES)]),
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }


def _list_groups(draw: random.Random, version: int) -> Fields:
    return {"states_filter": draw.choice([[], ["Empty"], ["Stable"]]), "types_filter": []}


def _delete_groups(draw: random.Random, version: int) -> Fields:
    return {"groups_names": some(draw, (DOOMED_GROUP, "none", "pay-none"))}


REQUESTS: Final[Mapping[ApiKey, Maker]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_groups,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_credentials,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.LIST_CONFIG_RESOURCES: _list_config_resources,
    **CLUSTER_REQUESTS,
}
"""The request of each API."""

NOT_ASKED: Final = {
    ApiKey.API_VERSIONS: "answered to everybody",
    ApiKey.SASL_HANDSHAKE: "comes before the principal is known",
    ApiKey.SASL_AUTHENTICATE: "comes before the principal is known",
    **dict.fromkeys(
        (*APIS_BY_MODULE["other_groups"], *APIS_BY_MODULE["share_state"]),
        "switched off here: test_groups_switched_off.py asks them",
    ),
}
"""APIs that ask no authorizer, or that the arena's Kafka has and txn has not."""

RESTORED: Final = frozenset({ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE})
"""APIs whose requests may take away `DOOMED` or `DOOMED_GROUP`."""


# ---------------------------------------------------------------- access control entries

ACL_TYPES: Final = (
    *(ResourceType.TOPIC,) * 3,
    *(ResourceType.GROUP,) * 2,
    *(ResourceType.TRANSACTIONAL_ID,) * 2,
    *(ResourceType.CLUSTER,) * 2,
)
ACL_NAMES: Final = ("pay", "pays", "order", "p", "pa", "*", "n")


def acl(kind: ResourceType, name: str, principal: str, **changes: Any) -> Fields:
    """An entry of CreateAcls; allows everything from everywhere on one name unless told."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": principal,
        "host": "*",
        "operation": Operation.ALL,
        "permission_type": Permission.ALLOW,
        **changes,
    }


def drawn_acl(draw: random.Random) -> Fields:
    kind = draw.choice(ACL_TYPES)
    is_cluster = kind is ResourceType.CLUSTER
    patterns = [PatternType.LITERAL, PatternType.PREFIXED]
    sensible = [Operation.ALL, *OPERATIONS_OF[kind]]
    return acl(
        kind,
        CLUSTER_NAME if is_cluster else draw.choice(ACL_NAMES),
        draw.choice(["User:ada"] * 3 + ["User:bob"] * 2 + ["User:*"] * 2 + ["Group:ada"]),
        resource_pattern_type=PatternType.LITERAL if is_cluster else draw.choice(patterns),
        host=draw.choice(["*", "*", *HOSTS, *NETWORKS]),
        operation=draw.choice(sensible if draw.random() < 0.9 else [*Operation][2:]),
        permission_type=draw.choice([Permission.ALLOW] * 4 + [Permission.DENY]),
    )
