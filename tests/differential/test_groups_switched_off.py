"""Share and streams groups beside an Apache Kafka that has both switched off."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import txn
from differential.access_arena import LISTENER, SETTINGS, log_in
from differential.side import Side
from harnesses.peers.jars import CONTROL, NODE_4_4
from harnesses.peers.kafka import KafkaNode
from support.wire_client import RawConnection

MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC_ID: Final = uuid.UUID(int=7)
OFF: Final = ("--feature", "share.version=0", "--feature", "streams.version=0")

STREAMS_MEMBER: Final = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "endpoint_information_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 1000,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "process_id": None,
    "user_endpoint": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
    "shutdown_application": False,
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ["t"],
                "source_topic_regex": ["t.*"],
                "state_changelog_topics": [
                    {
                        "name": "c",
                        "partitions": 1,
                        "replication_factor": 1,
                        "topic_configs": [{"key": "retention.ms", "value": "1"}],
                    }
                ],
                "repartition_sink_topics": ["r"],
                "repartition_source_topics": [],
                "copartition_groups": [
                    {
                        "source_topics": [0],
                        "source_topic_regex": [],
                        "repartition_source_topics": [],
                    }
                ],
            }
        ],
    },
}
A_FETCH: Final = {
    "group_id": "g",
    "member_id": MEMBER,
    "share_session_epoch": 0,
    "max_wait": 10,
    "min_bytes": 0,
    "max_bytes": 100,
    "max_records": 10,
    "batch_size": 10,
    "share_acquire_mode": 0,
    "is_renew_ack": False,
    "topics": [
        {
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition_index": 0,
                    "acknowledgement_batches": [
                        {"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]}
                    ],
                }
            ],
        }
    ],
    "forgotten_topics_data": [{"topic_id": TOPIC_ID, "partitions": [1]}],
}
AN_ACKNOWLEDGEMENT: Final = {
    "group_id": "g",
    "member_id": MEMBER,
    "share_session_epoch": 1,
    "is_renew_ack": False,
    "topics": A_FETCH["topics"],
}
A_SOURCE: Final = {
    "name": "source",
    "node_type": 1,
    "source_topics": ["t"],
    "sink_topic": None,
    "stores": [],
    "successors": ["processor"],
}
A_PROCESSOR: Final = {
    **A_SOURCE,
    "name": "processor",
    "node_type": 2,
    "source_topics": [],
    "stores": ["s"],
    "successors": [],
}

REQUESTS: Final[dict[str, tuple[int, int, dict[str, Any]]]] = {
    "ShareGroupHeartbeat": (
        76,
        1,
        {
            "group_id": "g",
            "member_id": MEMBER,
            "member_epoch": 0,
            "rack_id": None,
            "subscribed_topic_names": ["t"],
        },
    ),
    "ShareGroupDescribe": (
        77,
        1,
        {"group_ids": ["g", "h"], "include_authorized_operations": True},
    ),
    "ShareFetch 1": (78, 1, A_FETCH),
    "ShareFetch 2": (78, 2, A_FETCH),
    "ShareAcknowledge 1": (79, 1, AN_ACKNOWLEDGEMENT),
    "ShareAcknowledge 2": (79, 2, AN_ACKNOWLEDGEMENT),
    "StreamsGroupHeartbeat 0": (88, 0, STREAMS_MEMBER),
    "StreamsGroupHeartbeat 1": (88, 1, STREAMS_MEMBER),
    "StreamsGroupDescribe 0": (
        89,
        0,
        {"group_ids": ["g", "h"], "include_authorized_operations": True},
    ),
    "StreamsGroupDescribe 1": (
        89,
        1,
        {
            "group_ids": ["g", "h"],
            "include_authorized_operations": True,
            "include_topology_description": True,
        },
    ),
    "DescribeShareGroupOffsets 0": (
        90,
        0,
        {"groups": [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}]},
    ),
    "DescribeShareGroupOffsets 1": (90, 1, {"groups": [{"group_id": "g", "topics": None}]}),
    "AlterShareGroupOffsets": (
        91,
        0,
        {
            "group_id": "g",
            "topics": [
                {"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}
            ],
        },
    ),
    "DeleteShareGroupOffsets": (92, 0, {"group_id": "g", "topics": [{"topic_name": "t"}]}),
    "StreamsGroupTopologyDescriptionUpdate": (
        93,
        0,
        {
            "group_id": "g",
            "member_id": "m",
            "topology_epoch": 1,
            "topology_description": {
                "subtopologies": [{"subtopology_id": "0", "nodes": [A_SOURCE]}],
                "global_stores": [{"source": A_SOURCE, "processor": A_PROCESSOR}],
            },
        },
    ),
}

A_BATCH: Final = {"first_offset": 0, "last_offset": 1, "delivery_state": 0, "delivery_count": 1}
STATE: Final = {
    "state_epoch": 0,
    "leader_epoch": 0,
    "start_offset": 0,
    "delivery_complete_count": 0,
    "state_batches": [A_BATCH],
}
"""The state of a partition; most APIs ask with a part of it."""
STATE_VERSIONS: Final = ((83, 0), (84, 0), (85, 0), (85, 1), (86, 0), (87, 0), (87, 1))
STATE_TOPICS: Final[dict[str, tuple[str, list[tuple[int, list[int]]]]]] = {
    "a partition": ("g", [(7, [0])]),
    "no group": ("", [(7, [0])]),
    "no topic": ("g", []),
    "no topic id": ("g", [(0, [0])]),
    "a partition twice": ("g", [(7, [0, 0]), (7, [0, 1])]),
    "a topic without partitions": ("g", [(7, [0]), (8, [])]),
}
"""A group, and partitions of topics by their ids."""

PROTOCOLS: Final = frozenset({76, 77, 78, 79, *range(83, 94)})
"""API keys of share and streams groups."""

pytestmark = pytest.mark.peer


class Sides(NamedTuple):
    """Connections to txn and to Apache Kafka, of a super user and of nobody in particular."""

    users: tuple[Side, Side]
    strangers: tuple[Side, Side]


def as_stranger(servers: str) -> RawConnection:
    return log_in("ada", "127.0.0.1", servers)


@contextmanager
def both(directory: Path) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """The listeners of txn and of Apache Kafka, where ada has no rights."""
    theirs = {LISTENER: "SASL_PLAINTEXT"}
    ours = {
        **SETTINGS,
        "listeners": f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    with (
        KafkaNode(directory, SETTINGS, jars=NODE_4_4, listeners=theirs, format_options=OFF) as node,
        txn.Broker(properties=ours) as broker,
    ):
        yield broker.listeners, node.servers


@pytest.fixture(scope="module")
def both_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    if CONTROL is not NODE_4_4:
        pytest.skip("Apache Kafka 4.4 has these versions")
    with both(tmp_path_factory.mktemp("off")) as (ours, theirs):
        sides = Side(ours["PLAINTEXT"]), Side(theirs["PLAINTEXT"])
        strangers = Side(ours[LISTENER], as_stranger), Side(theirs[LISTENER], as_stranger)
        yield Sides(sides, strangers)
        for side in (*sides, *strangers):
            side.close()


@pytest.fixture
def sides(both_sides: Sides) -> tuple[Side, Side]:
    return both_sides.users


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_a_protocol_that_is_switched_off_is_answered_as_by_Kafka(
    name: str, sides: tuple[Side, Side]
) -> None:
    ours, theirs = (side.ask(*REQUESTS[name]) for side in sides)
    assert ours == theirs
    assert "unsupported_version" in str(ours)


@pytest.mark.parametrize("case", STATE_TOPICS)
@pytest.mark.parametrize(("key", "version"), STATE_VERSIONS)
def test_a_request_about_the_state_of_share_groups_is_answered_as_by_Kafka(
    key: int, version: int, case: str, both_sides: Sides
) -> None:
    group, topics = STATE_TOPICS[case]
    request = {
        "group_id": group,
        "topics": [
            {
                "topic_id": uuid.UUID(int=topic),
                "partitions": [{"partition": each, **STATE} for each in partitions],
            }
            for topic, partitions in topics
        ],
    }
    ours, theirs = (side.ask(key, version, request) for side in both_sides.users)
    assert ours == theirs
    ours, theirs = (side.ask(key, version, request) for side in both_sides.strangers)
    assert ours == theirs
    assert ("cluster_authorization_failed" in str(ours)) == bool(topics)


def test_the_announced_APIs_of_switched_off_protocols_are_those_of_Kafka(
    sides: tuple[Side, Side],
) -> None:
    asked = {"client_software_name": "a", "client_software_version": "1"}
    ours, theirs = (
        {
            each["api_key"]: (each["min_version"], each["max_version"])
            for each in side.ask(18, 4, asked)["api_keys"]
            if each["api_key"] in PROTOCOLS
        }
        for side in sides
    )
    assert ours == theirs
    asked_here = {(key, version) for key, version, _ in REQUESTS.values()} | {*STATE_VERSIONS}
    named = {key: sorted(version for k, version in asked_here if k == key) for key in ours}
    assert named == {key: list(range(low, high + 1)) for key, (low, high) in ours.items()}
