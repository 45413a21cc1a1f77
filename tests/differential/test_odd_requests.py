"""Requests of administrators that name a thing twice, contradict themselves or have two faults.

Each is sent to both brokers, and nothing of the answers may differ but the texts for people.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from differential.access_arena import comparable
from differential.batches import idempotent
from differential.names import Name
from differential.pair import Pair
from differential.script import Talk
from differential.topics import make_topic
from txn.wire.api_keys import ApiKey

pytestmark = pytest.mark.peer

NODE: Final = 1
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = 0, 1, 2
FIRST: Final = Name("topic id", 1)
THIRD: Final = Name("topic id", 3)
STRANGE: Final = UUID(int=4711)
TRIAL: Final = {"timeout": 10_000, "validate_only": True}
NO_MEMBER: Final = {"member_id": "", "group_instance_id": None}
SMILES: Final = "\U0001f600" * 4_096
"""It has as many characters as a commit's metadata may have, and twice as many in UTF-16."""


class Asked(NamedTuple):
    """A request to both brokers."""

    api: ApiKey
    version: int
    fields: dict[str, Any]


Script = Callable[[Talk], Iterator[Asked]]


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
        for version in (3, 4, 5):
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
                    "topics": [{"name": talk.topic, "partitions": [oversized]}],
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
    groups,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_brokers_answer_alike(talk: Talk, script: Script) -> None:
    differences = [
        f"{asked}\n  txn   {ours}\n  Kafka {theirs}"
        for asked in script(talk)
        for ours, theirs in [_both(talk.pair, asked)]
        if ours != theirs
    ]
    assert not differences, "\n".join(differences)


def _both(pair: Pair, asked: Asked) -> tuple[Any, Any]:
    ours, theirs = (
        comparable(side.ask(asked.api, asked.version, asked.fields))
        for side in (pair.txn, pair.kafka)
    )
    return ours, theirs


def _assigned(brokers: list[list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": each} for index, each in enumerate(brokers)]


def _setting(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


def _altered(api: ApiKey, kind: int, name: str, configs: list[dict[str, Any]]) -> Asked:
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Asked(api, 1, {"resources": [resource], "validate_only": True})


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
