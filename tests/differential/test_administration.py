"""Requests of administrators that one node answers for itself, beside the same of Apache Kafka."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from differential.asked import Asked, Script, differences
from differential.names import Name
from differential.script import STRANGE_TOPIC_ID, Talk
from differential.side import Side
from differential.topics import make_topic
from harnesses.peers.jars import CONTROL, NODE_4_4
from support.wire_client import RawConnection
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.quorum import SAFE_DOWNGRADE, UPGRADE

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(CONTROL is not NODE_4_4, reason="Apache Kafka 4.4 answers so"),
]

NODE: Final = 1
TIMEOUT: Final = {"timeout": 10_000}
METADATA: Final = "__cluster_metadata"


def partitions_bit_by_bit(talk: Talk) -> Iterator[Asked]:
    first = talk.topic
    second = make_topic(talk.pair, talk.pair.own("u"), 2)
    nowhere = talk.pair.own("v")

    def asked(limit: int, cursor: tuple[str, int] | None, *names: str) -> Asked:
        at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        fields = {"topics": [{"name": name} for name in names], "response_partition_limit": limit}
        return Asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {**fields, "cursor": at})

    for limit in (-1, 0, 1, 2, 3, 4, 2000):
        for cursor in (None, (first, 0), (first, 1), (first, 2), (first, 9), (second, 1)):
            yield asked(limit, cursor, second, first, first)
            yield asked(limit, cursor, second, nowhere, first)
        yield asked(limit, None, nowhere, "a/b")
        yield asked(limit, (second, 0), first)
        yield asked(limit, (first, -1), first, second, first)
        yield asked(limit, (second, 1))


def clients_of_another_cluster(talk: Talk) -> Iterator[Asked]:
    """KIP-1242; the cluster ids of the two brokers differ, so a right one is a test of its own."""
    for software in ("x", "", "a b", "-a", "é"):
        for cluster_id, node_id in ((None, NODE), ("x", -1), ("x", NODE)):
            fields = {"client_software_name": software, "client_software_version": "1"}
            meant = {"cluster_id": cluster_id, "node_id": node_id}
            yield Asked(ApiKey.API_VERSIONS, 5, {**fields, **meant})


def groups_that_are_deleted(talk: Talk) -> Iterator[Asked]:
    producer = talk.init(None)
    assert producer
    talk.plain_offsets({0: 1}, 9)
    names = (talk.group, talk.pair.own("nobody"), talk.group, "")
    for version in range(4):
        yield Asked(ApiKey.DELETE_GROUPS, version, {"groups_names": names})


def directories(talk: Talk) -> Iterator[Asked]:
    topics = [{"topic": talk.topic, "partitions": [0, 1, 9]}]
    for version in range(1, 6):
        yield Asked(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})


def moves_to_other_directories(talk: Talk) -> Iterator[Asked]:
    nowhere = talk.pair.own("nowhere")
    for version in (1, 2):
        for path in ("/nowhere", "relative", ""):
            for names in ((talk.topic,), (nowhere, talk.topic, talk.topic), ()):
                topics = [{"name": name, "partitions": [0, 0, 9]} for name in names]
                yield Asked(
                    ApiKey.ALTER_REPLICA_LOG_DIRS,
                    version,
                    {"dirs": [{"path": path, "topics": topics}]},
                )
    yield Asked(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": []})


def elections(talk: Talk) -> Iterator[Asked]:
    nowhere = talk.pair.own("nowhere")
    named: tuple[tuple[str, list[int]], ...]
    for named in (
        ((talk.topic, [0, 7]), (nowhere, [0])),
        ((talk.topic, [0, 0]), (talk.topic, [1])),
        ((talk.topic, []),),
        (),
    ):
        topics = [{"topic": topic, "partitions": indexes} for topic, indexes in named]
        yield Asked(ApiKey.ELECT_LEADERS, 0, {"topic_partitions": topics, **TIMEOUT})
        for version in (1, 2):
            for kind in (0, 1, 2, -1):
                fields = {"topic_partitions": topics, "election_type": kind, **TIMEOUT}
                yield Asked(ApiKey.ELECT_LEADERS, version, fields)


def reassignments(talk: Talk) -> Iterator[Asked]:
    nowhere = talk.pair.own("nowhere")
    wanted: list[int] | None
    for wanted in ([1], None, [2], [1, 2], [2, 1], [1, 1], [], [-1], [3, 2, 2]):
        one = [{"partition_index": index, "replicas": wanted} for index in (0, 9)]
        topics = [{"name": name, "partitions": one} for name in (talk.topic, nowhere)]
        yield Asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": topics, **TIMEOUT})
        for allowed in (True, False):
            fields = {"topics": topics, "allow_replication_factor_change": allowed, **TIMEOUT}
            yield Asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, fields)
    listed = {"name": talk.topic, "partition_indexes": [0, 9]}
    asked: list[Any] | None
    for asked in (None, [], [listed], [{**listed, "name": nowhere}]):
        yield Asked(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": asked, **TIMEOUT})


def quorums(talk: Talk) -> Iterator[Asked]:
    """Of other partitions than the metadata log's, whose offsets are each broker's own."""
    for version in range(3):
        for named in ((("x", 0),), ((METADATA, 1),), (), (("x", 0), (METADATA, 0))):
            topics = [
                {"topic_name": topic, "partitions": [{"partition_index": index}]}
                for topic, index in named
            ]
            yield Asked(ApiKey.DESCRIBE_QUORUM, version, {"topics": topics})


def features(talk: Talk) -> Iterator[Asked]:
    """Only trials: the brokers stay as they are."""
    trial = {**TIMEOUT, "validate_only": True}
    updates = (
        *(("transaction.version", level, kind) for level in (-1, 0, 1, 2, 3) for kind in range(5)),
        *(("metadata.version", level, kind) for level in (-1, 0, 3, 10, 99) for kind in (1, 2, 3)),
        *(("nope", level, kind) for level in (-1, 0, 1) for kind in (1, 2)),
        ("", 1, 1),
    )
    for version in (1, 2):
        for name, level, kind in updates:
            update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
            sound = {"feature": "transaction.version", "max_version_level": 2}
            yield Asked(ApiKey.UPDATE_FEATURES, version, {"feature_updates": [update], **trial})
            both = [{**sound, "upgrade_type": 1}, update]
            yield Asked(ApiKey.UPDATE_FEATURES, version, {"feature_updates": both, **trial})
        yield Asked(ApiKey.UPDATE_FEATURES, version, {"feature_updates": [], **trial})
    for level, may_fall in ((2, False), (2, True), (1, False), (3, False)):
        update = {"feature": "transaction.version", "max_version_level": level}
        asked = [{**update, "allow_downgrade": may_fall}]
        yield Asked(ApiKey.UPDATE_FEATURES, 0, {"feature_updates": asked, **TIMEOUT})


def brokers_that_are_gone(talk: Talk) -> Iterator[Asked]:
    for broker in (7, -1):
        yield Asked(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": broker})


def delegation_tokens(talk: Talk) -> Iterator[Asked]:
    renewer = {"principal_type": "User", "principal_name": "x"}
    for version in (1, 2, 3):
        for owner in (None, "", "ada"):
            fields = {"renewers": [renewer], "max_lifetime": 1_000}
            own = {"owner_principal_type": "User", "owner_principal_name": owner}
            yield Asked(ApiKey.CREATE_DELEGATION_TOKEN, version, {**fields, **own})
        for owners in (None, [], [renewer]):
            yield Asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, {"owners": owners})
    for version in (1, 2):
        fields = {"hmac": b"abc", "renew_period": 1_000}
        yield Asked(ApiKey.RENEW_DELEGATION_TOKEN, version, fields)
        fields = {"hmac": b"abc", "expiry_time_period": 1_000}
        yield Asked(ApiKey.EXPIRE_DELEGATION_TOKEN, version, fields)


def offsets_in_a_transaction_by_topic_id(talk: Talk) -> Iterator[Asked]:
    producer = talk.init(talk.pair.own("x"))
    for name, topic_id in (("known", Name("topic id", 1)), ("strange", STRANGE_TOPIC_ID)):
        for generation, member in ((-1, ""), (0, ""), (1, "m"), (-1, "m")):
            partition = {"committed_offset": 1, "committed_metadata": None}
            partitions = [{"partition_index": index, **partition} for index in (0, 9)]
            yield Asked(
                ApiKey.TXN_OFFSET_COMMIT,
                6,
                {
                    "transactional_id": producer.transactional_id,
                    "group_id": talk.pair.own(name),
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "generation_id": generation,
                    "member_id": member,
                    "group_instance_id": None,
                    "topics": [{"topic_id": topic_id, "partitions": partitions}],
                },
            )


SCRIPTS: Final[tuple[Script, ...]] = (
    partitions_bit_by_bit,
    clients_of_another_cluster,
    groups_that_are_deleted,
    directories,
    moves_to_other_directories,
    elections,
    reassignments,
    quorums,
    features,
    brokers_that_are_gone,
    delegation_tokens,
    offsets_in_a_transaction_by_topic_id,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_brokers_answer_alike(talk: Talk, script: Script) -> None:
    found = differences(talk, script)
    assert not found, "\n".join(found)


def test_a_client_of_this_cluster_and_node_is_answered(talk: Talk) -> None:
    for side in (talk.pair.txn, talk.pair.kafka):
        told = side.ask(
            ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}
        )
        meant = {"cluster_id": told["cluster_id"], "node_id": NODE}
        software = {"client_software_name": "x", "client_software_version": "1"}
        assert side.ask(ApiKey.API_VERSIONS, 5, {**software, **meant})["error_code"] == "none"
        elsewhere = {**software, **meant, "node_id": NODE + 1}
        answer = side.ask(ApiKey.API_VERSIONS, 5, elsewhere)
        assert answer["error_code"] == "rebootstrap_required"


REFUSED_TOPICS: Final[tuple[dict[str, Any], ...]] = (
    {"num_partitions": 0},
    {"replication_factor": 0},
    {"name": ""},
    {"name": "a/b"},
    {"name": "."},
    {"assignments": [(0, [1])]},
    {"replication_factor": -1, "assignments": [(0, [1])]},
    *(
        {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}
        for assigned in (
            [(0, [2])],
            [(0, [1, 1])],
            [(0, list[int]())],
            [(1, [1])],
            [(0, [1]), (0, [1])],
        )
    ),
    *(
        {"configs": {name: value}}
        for name, value in (
            ("retention.ms", "x"),
            ("retention.ms", "-5"),
            ("retention.ms", None),
            ("segment.bytes", "1"),
            ("segment.bytes", "99999999999"),
            ("message.timestamp.type", "x"),
            ("no.such", "x"),
        )
    ),
    {"configs": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}},
)


@pytest.mark.parametrize("wanted", REFUSED_TOPICS, ids=str)
def test_a_refusal_of_a_topic_begins_with_kafkas_words(talk: Talk, wanted: dict[str, Any]) -> None:
    """Scripts look for them."""
    topic = {"name": talk.pair.own("new"), "num_partitions": 1, "replication_factor": 1, **wanted}
    assigned: list[tuple[int, list[int]]] = wanted.get("assignments", [])
    configs: dict[str, str | None] = wanted.get("configs", {})
    topic["assignments"] = [{"partition_index": at, "broker_ids": on} for at, on in assigned]
    topic["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
    ours, theirs = (_refusal(side.servers, topic) for side in (talk.pair.txn, talk.pair.kafka))
    assert theirs
    assert ours.startswith(theirs)


def _refusal(servers: str, topic: dict[str, Any]) -> str:
    with RawConnection(servers) as connection:
        fields = {"topics": [topic], **TIMEOUT, "validate_only": True}
        (told,) = connection.ask(ApiKey.CREATE_TOPICS, 7, **fields).topics
    return str(told.error_message or "")


def test_a_feature_that_is_switched_off_is_not_announced_and_comes_back_as_an_upgrade_alone(
    talk: Talk,
) -> None:
    """A feature at level 0 was announced, and a "downgrade" to a newer level was made."""
    name = "group.version"
    software = {"client_software_name": "x", "client_software_version": "1"}

    def update(side: Side, level: int, kind: int) -> str:
        asked = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        fields = {"feature_updates": [asked], **TIMEOUT, "validate_only": False}
        with RawConnection(side.servers) as connection:
            return str(connection.ask(ApiKey.UPDATE_FEATURES, 1, **fields).error_message)

    def announced(side: Side, kind: str) -> bool:
        told = side.ask(ApiKey.API_VERSIONS, 4, software)[f"{kind}_features"]
        return name in [feature["name"] for feature in told]

    sides = (talk.pair.txn, talk.pair.kafka)
    for side in sides:
        assert update(side, 0, SAFE_DOWNGRADE) == "None"
    talk.pair.until(lambda side: not announced(side, "finalized"))
    assert all(announced(side, "supported") for side in sides)
    ours, theirs = (update(side, 1, SAFE_DOWNGRADE) for side in sides)
    assert ours == theirs
    assert "Can't downgrade to a newer version." in ours
    for side in sides:
        assert update(side, 1, UPGRADE) == "None"
    talk.pair.until(lambda side: announced(side, "finalized"))


def test_each_node_is_the_only_voter_of_its_metadata_log(talk: Talk) -> None:
    asked = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
    for side in (talk.pair.txn, talk.pair.kafka):
        (topic,) = side.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": asked})["topics"]
        (partition,) = topic["partitions"]
        (voter,) = partition["current_voters"]
        assert partition["leader_id"] == voter["replica_id"] == NODE
        assert 0 < partition["high_watermark"] <= voter["log_end_offset"]
        assert partition["leader_epoch"] >= 0
        assert partition["observers"] == []
