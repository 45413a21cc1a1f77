"""Requests of administrators that name a thing twice, contradict themselves or have two faults.

Each is sent to both brokers, and nothing of the answers may differ but the texts for people.
"""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest

from differential.asked import Asked, Script, differences
from differential.batches import idempotent
from differential.names import Name
from differential.script import Talk, versions
from differential.topics import make_topic
from harnesses.peers.jars import CONTROL, NODE_4_4
from txn.wire.api_keys import ApiKey

pytestmark = pytest.mark.peer

NODE: Final = 1
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FIRST: Final = Name("topic id", 1)
THIRD: Final = Name("topic id", 3)
STRANGE: Final = UUID(int=4711)
TRIAL: Final = {"timeout": 10_000, "validate_only": True}
NO_MEMBER: Final = {"member_id": "", "group_instance_id": None}
SMILES: Final = "\U0001f600" * 4_096
"""It has as many characters as a commit's metadata may have, and twice as many in UTF-16."""


def creations(talk: Talk) -> Iterator[Asked]:
    own = talk.pair.own

    def topics(*entries: dict[str, Any]) -> Asked:
        plain = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        return Asked(
            ApiKey.CREATE_TOPICS,
            7,
            {"topics": [{"name": own("new"), **plain, **entry} for entry in entries], **TRIAL},
        )

    default = {"num_partitions": -1, "replication_factor": -1}
    nobody: list[int] = []
    for brokers in ([[NODE], nobody], [[NODE, NODE]], [nobody], [[NODE], [NODE + 1]]):
        yield topics({**default, "assignments": _assigned(brokers)})
    bad = {"configs": [_setting("retention.ms", "soon")]}
    yield topics({**bad, "num_partitions": 0})
    yield topics({**bad, "replication_factor": 7})
    yield topics({**default, **bad, "assignments": _assigned([[]])})
    yield topics({"num_partitions": 0, "replication_factor": 0})
    yield topics({"num_partitions": 0, "replication_factor": 7})
    for values in ((None, "5000"), ("5000", None), (None, None), ("5000", "soon")):
        yield topics({"configs": [_setting("retention.ms", value) for value in values]})
    yield topics({"name": "__cluster_metadata"})
    many = {"num_partitions": 6_000}
    yield topics(many, {**many, "name": own("other")}, *({"name": talk.topic},) * 2)
    yield topics({"name": own("a.b/c"), "num_partitions": 0}, {"name": talk.topic, **bad})


def growths(talk: Talk) -> Iterator[Asked]:
    for count, brokers in (
        (3, []),
        (3, [[NODE], [NODE]]),
        (4, [[NODE]]),
        (4, [[NODE], []]),
        (4, [[NODE], [NODE, NODE]]),
        (2, [[NODE]]),
        (4, [[NODE], [NODE + 1]]),
    ):
        assignments = [{"broker_ids": each} for each in brokers]
        entry = {"name": talk.topic, "count": count, "assignments": assignments}
        yield Asked(ApiKey.CREATE_PARTITIONS, 3, {"topics": [entry], **TRIAL})


def deletions_of_topics(talk: Talk) -> Iterator[Asked]:
    first, second = talk.topic, make_topic(talk.pair, talk.pair.own("second"), 2)
    nowhere = talk.pair.own("nowhere")

    def by_name(version: int, *names: str) -> Asked:
        return Asked(ApiKey.DELETE_TOPICS, version, {"topic_names": names, "timeout": 10_000})

    def topics(*entries: tuple[str | None, Any]) -> Asked:
        asked = [{"name": name, "topic_id": topic_id} for name, topic_id in entries]
        return Asked(ApiKey.DELETE_TOPICS, 6, {"topics": asked, "timeout": 10_000})

    for version in (1, 5):
        yield by_name(version, first, first)
        yield by_name(version, first, first, first, nowhere, nowhere)
    yield topics((first, None), (first, None))
    yield topics((None, FIRST), (None, FIRST))
    yield topics((nowhere, None), (nowhere, None), (None, STRANGE), (None, STRANGE))
    yield topics((first, FIRST), (first, FIRST))
    yield topics((None, None), (None, None))
    yield topics((nowhere, FIRST), (first, STRANGE))
    yield topics((first, None), (None, FIRST))
    yield topics((None, FIRST), (first, None), (None, STRANGE))
    yield topics((None, FIRST), (None, FIRST), (first, None))
    yield topics((first, None), (first, None), (second, None))
    yield topics((first, None), (second, None))
    third = make_topic(talk.pair, talk.pair.own("third"), 3)
    yield topics((third, None), (third, None), (None, THIRD), (third, THIRD))
    yield topics((None, THIRD))


def deletions_of_records(talk: Talk) -> Iterator[Asked]:
    producer = talk.init(None)
    values = tuple(b"%d" % number for number in range(10))
    talk.produce({0: idempotent(producer.producer_id, 0, 0, values=values)})

    def entry(*offsets: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "offset": offset} for offset in offsets]
        return {"name": talk.topic, "partitions": partitions}

    for topics in ([entry(4), entry(2)], [entry(5, 3)], [entry()], [entry(), entry(4), entry()]):
        yield Asked(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 10_000})
    yield _earliest(talk.topic)


def metadata(talk: Talk) -> Iterator[Asked]:
    nowhere = talk.pair.own("nowhere")
    alike = talk.topic.replace("-", ".")

    def topics(version: int, *entries: tuple[str | None, Any]) -> Asked:
        return Asked(
            ApiKey.METADATA,
            version,
            {
                "topics": [{"name": name, "topic_id": topic_id} for name, topic_id in entries],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
                "include_cluster_authorized_operations": False,
            },
        )

    for version in (12, 13):
        yield topics(version, (None, FIRST), (nowhere, None))
        yield topics(version, (nowhere, FIRST), (talk.topic, None), (None, STRANGE))
        yield topics(version, (alike, None))
    for version in (10, 11):
        yield topics(version, (talk.topic, FIRST))
        yield topics(version, (talk.topic, None), (nowhere, FIRST))
        yield topics(version, (None, None), (talk.topic, None))
    for kind in (0, 1, 2, 3, -1):
        for version in (1, 2):
            fields = {
                "include_cluster_authorized_operations": False,
                "endpoint_type": kind,
                "include_fenced_brokers": False,
            }
            yield Asked(ApiKey.DESCRIBE_CLUSTER, version, fields)


def settings(talk: Talk) -> Iterator[Asked]:
    nowhere = talk.pair.own("nowhere")
    bad, good = _setting("retention.ms", "soon"), _setting("retention.ms", "5000")
    unknown = _setting("retention.mss", "5000")
    for kind, name, configs in (
        (TOPIC, "", [good]),
        (TOPIC, nowhere, [bad]),
        (TOPIC, nowhere, [good]),
        (TOPIC, nowhere, [unknown]),
        (TOPIC, "a/b", [bad]),
        (TOPIC, talk.topic, [unknown]),
        (TOPIC, nowhere, [good, good]),
        (TOPIC, nowhere, [_setting("retention.ms", None)]),
        (BROKER, "77", []),
    ):
        for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            yield _altered(api, kind, name, configs)
    for name in (talk.topic, nowhere):
        for operation, key in (
            (APPEND, "retention.ms"),
            (DELETE, "retention.ms"),
        ):
            configs = [_setting(key, "5000", operation)]
            yield _altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, TOPIC, name, configs)
    unwanted = _setting("no.such", None, DELETE)
    yield _altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, TOPIC, nowhere, [unwanted])
    for kinds in ((TOPIC, 77), (0,), (TOPIC, 0, BROKER)):
        resources = [
            {
                "resource_type": kind,
                "resource_name": talk.topic if kind == TOPIC else str(NODE),
                "configuration_keys": ["retention.ms"],
            }
            for kind in kinds
        ]
        fields = {"include_synonyms": False, "include_documentation": False}
        yield Asked(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, **fields})


def alterations_that_count(talk: Talk) -> Iterator[Asked]:
    """What is altered with an unknown name beside it, and lists with entries of no letter."""
    unwanted = _setting("no.such", None, DELETE)
    policy, replicas = "cleanup.policy", "leader.replication.throttled.replicas"
    for configs in (
        [unwanted, _setting("retention.ms", "5000")],
        [_setting("no.such", "1"), _setting("retention.ms", "6000")],
        [_setting("no.such", "1", APPEND)],
        [_setting("", None, DELETE)],
        *([_setting(policy, value, APPEND)] for value in ("", "compact", "", "compact", "wrong")),
        *([_setting(policy, value, SUBTRACT)] for value in ("", "wrong", "compact,delete")),
        [_setting(policy, "", APPEND)],
        *([_setting(policy, value)] for value in ("compact,", ",", "compact,,delete", "", " ")),
        [_setting(policy, None, DELETE)],
        *([_setting(replicas, value)] for value in ("*", "0:1,1:1", "x", "")),
        *([_setting(replicas, value, APPEND)] for value in ("", "1:1")),
        [_setting(replicas, "1:1", SUBTRACT)],
        [_setting(replicas, None, DELETE)],
    ):
        yield _altered(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, TOPIC, talk.topic, configs, validate_only=False
        )
        yield _described(TOPIC, talk.topic, "retention.ms", policy, replicas)


def throttles_of_brokers(talk: Talk) -> Iterator[Asked]:
    rates = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    unwanted = _setting("no.such", None, DELETE)
    threads = "log.cleaner.threads"
    if CONTROL is not NODE_4_4:
        pytest.skip("Apache Kafka 4.4 describes an altered rate as changeable")
    for name in (str(NODE), ""):
        for configs in (
            [unwanted, _setting(threads, "2")],
            [_setting(threads, None, DELETE)],
            [_setting("broker.id", None, DELETE)],
            *([_setting(rate, value)] for rate in rates for value in ("-1", "x", "", "0")),
            [_setting(rate, "1000") for rate in rates],
            [_setting(rate, None, DELETE) for rate in rates],
            [_setting(rate, None, DELETE) for rate in rates],
            [_setting("log.cleanup.policy", "", APPEND)],
            [_setting("log.cleanup.policy", "compact,")],
            [_setting("log.dirs", None, DELETE)],
            *([_setting(place, "/tmp/x")] for place in ("log.dirs", "log.dir")),
            *([_setting("log.dirs", "/tmp/x", operation)] for operation in (APPEND, SUBTRACT)),
        ):
            yield _altered(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, BROKER, name, configs, validate_only=False
            )
            yield _described(BROKER, name, *rates, threads, "log.cleanup.policy")


def offsets_of_groups_named_twice(talk: Talk) -> Iterator[Asked]:
    group, nobody = talk.group, talk.pair.own("nobody")
    yield _commit(group, talk.topic, _partition(0, "m"))

    def of(name: str, *indexes: int) -> dict[str, Any]:
        topics = [{"name": talk.topic, "topic_id": FIRST, "partition_indexes": indexes}]
        asked = {"topics": topics if indexes else None}
        return {"group_id": name, "member_id": None, "member_epoch": -1, **asked}

    for version in (8, 9, 10):
        for named in (
            [of(group, 0), of(group, 0)],
            [of(group, 0), of(group, 1)],
            [of(group), of(group, 1), of(nobody, 0)],
            [of(nobody, 0), of(group), of(nobody), of(group)],
        ):
            fields = {"groups": named, "require_stable": False}
            yield Asked(ApiKey.OFFSET_FETCH, version, fields)


def groups(talk: Talk) -> Iterator[Asked]:
    group, nobody = talk.group, talk.pair.own("nobody")
    committed = _partition(0, ""), _partition(1, "")
    yield _commit(group, talk.topic, *committed)
    oversized = _partition(0, "x" * 5_000)
    for partitions in ((oversized, _partition(1, "")), (oversized,), (_partition(0, SMILES),)):
        for asked_of in (group, nobody):
            for member in (NO_MEMBER, {**NO_MEMBER, "member_id": "m"}):
                yield _commit(asked_of, talk.topic, *partitions, **member)
    for name in (group, ""):
        for version in versions("TxnOffsetCommit"):
            yield Asked(
                ApiKey.TXN_OFFSET_COMMIT,
                version,
                {
                    "transactional_id": nobody,
                    "group_id": name,
                    "producer_id": 4_000_000_000_000,
                    "producer_epoch": 0,
                    "generation_id": -1,
                    **NO_MEMBER,
                    "topics": [{"name": talk.topic, "topic_id": FIRST, "partitions": [oversized]}],
                },
            )
    for name in ("", nobody):
        for protocol in (None, "range"):
            yield Asked(
                ApiKey.SYNC_GROUP,
                5,
                {
                    "group_id": name,
                    "generation_id": 1,
                    **NO_MEMBER,
                    "protocol_type": protocol and "consumer",
                    "protocol_name": protocol,
                    "assignments": [],
                },
            )
    for states in (["x", "x"], ["x", "Empty", "x"]):
        fields = {"state_filters": states, "producer_id_filters": [4_000_000_000_000]}
        yield Asked(ApiKey.LIST_TRANSACTIONS, 1, {**fields, "duration_filter": -1})
    yield Asked(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": [" classic "]})
    for name in ("", nobody):
        index = [{"partition_index": 0}]
        topics = [{"name": talk.topic, "partitions": index}]
        yield Asked(ApiKey.OFFSET_DELETE, 0, {"group_id": name, "topics": topics})
    yield Asked(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group, nobody, group, nobody]})


SCRIPTS: Final[tuple[Script, ...]] = (
    creations,
    growths,
    deletions_of_topics,
    deletions_of_records,
    metadata,
    settings,
    alterations_that_count,
    throttles_of_brokers,
    offsets_of_groups_named_twice,
    groups,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_brokers_answer_alike(talk: Talk, script: Script) -> None:
    found = differences(talk, script)
    assert not found, "\n".join(found)


def _assigned(brokers: list[list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": each} for index, each in enumerate(brokers)]


def _setting(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


def _altered(
    api: ApiKey,
    kind: int,
    name: str,
    configs: list[dict[str, Any]],
    *,
    validate_only: bool = True,
) -> Asked:
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Asked(api, 1, {"resources": [resource], "validate_only": validate_only})


def _described(kind: int, name: str, *keys: str) -> Asked:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    fields = {"include_synonyms": False, "include_documentation": False}
    return Asked(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], **fields})


def _partition(index: int, metadata: str) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }


def _commit(group: str, topic: str, *partitions: dict[str, Any], **member: Any) -> Asked:
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        **NO_MEMBER,
        "topics": [{"name": topic, "partitions": list(partitions)}],
    }
    return Asked(ApiKey.OFFSET_COMMIT, 9, {**fields, **member})


def _earliest(topic: str) -> Asked:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
    topics = [{"name": topic, "partitions": [partition]}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    return Asked(ApiKey.LIST_OFFSETS, 7, fields)
