"""One request of each API about the cluster, for tests of access control; none changes anything."""

import random
from collections.abc import Mapping
from typing import Any, Final

from txn.wire.api_keys import ApiKey

Fields = dict[str, Any]

TOPICS: Final = ("pay", "pays", "order", "none")
TIMEOUT: Final = {"timeout": 10_000}


def _described_partitions(draw: random.Random, version: int) -> Fields:
    names = draw.choice([[], draw.sample(TOPICS, 2), draw.sample(TOPICS, 3)])
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": draw.choice([1, 2000]),
        "cursor": None,
    }


def _elections(draw: random.Random, version: int) -> Fields:
    topics = [{"topic": topic, "partitions": [0]} for topic in draw.sample(TOPICS, 2)]
    return {"topic_partitions": topics, "election_type": 0, **TIMEOUT}


def _reassignments(draw: random.Random, version: int) -> Fields:
    one = [{"partition_index": 0, "replicas": draw.choice([None, [1], [2]])}]
    topics = [{"name": topic, "partitions": one} for topic in draw.sample(TOPICS, 2)]
    return {"topics": topics, "allow_replication_factor_change": True, **TIMEOUT}


def _listed_reassignments(draw: random.Random, version: int) -> Fields:
    named = [{"name": draw.choice(TOPICS), "partition_indexes": [0]}]
    return {"topics": draw.choice([None, named]), **TIMEOUT}


def _moves(draw: random.Random, version: int) -> Fields:
    topics = [{"name": topic, "partitions": [0]} for topic in draw.sample(TOPICS, 2)]
    return {"dirs": [{"path": "/nowhere", "topics": topics}]}


def _quorum(draw: random.Random, version: int) -> Fields:
    return {"topics": [{"topic_name": "x", "partitions": [{"partition_index": 0}]}]}


def _features(draw: random.Random, version: int) -> Fields:
    update = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
    update["allow_downgrade"] = False
    return {"feature_updates": [update], "validate_only": True, **TIMEOUT}


def _gone_broker(draw: random.Random, version: int) -> Fields:
    return {"broker_id": 7}


def _new_token(draw: random.Random, version: int) -> Fields:
    owner = draw.choice([None, "ada", "bob"])
    own = {"owner_principal_type": owner and "User", "owner_principal_name": owner}
    return {"renewers": [], "max_lifetime": 1_000, **own}


def _token(draw: random.Random, version: int) -> Fields:
    return {"hmac": b"abc", "renew_period": 1_000, "expiry_time_period": 1_000}


def _tokens(draw: random.Random, version: int) -> Fields:
    return {"owners": draw.choice([None, [{"principal_type": "User", "principal_name": "bob"}]])}


CLUSTER_REQUESTS: Final[Mapping[ApiKey, Any]] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: _moves,
    ApiKey.CREATE_DELEGATION_TOKEN: _new_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _tokens,
    ApiKey.ELECT_LEADERS: _elections,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _listed_reassignments,
    ApiKey.DESCRIBE_QUORUM: _quorum,
    ApiKey.UPDATE_FEATURES: _features,
    ApiKey.UNREGISTER_BROKER: _gone_broker,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _described_partitions,
}
"""The request of each API."""

MAY_PASS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""APIs that refuse everybody before they ask for rights, or leave out topics of a list of all."""
