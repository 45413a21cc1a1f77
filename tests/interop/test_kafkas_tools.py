"""Apache Kafka's tools for clusters, unchanged, against one node: features, quorum, elections,
reassignments. And the Java client's topics by id, and bit by bit.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import NODE_4_4, class_path, java_executable, run_java
from support.clients import create_topic

SECONDS_MAX = 120.0
TOOLS = "org.apache.kafka.tools"
TOPICS = Path(__file__).parent / "java" / "Topics.java"

pytestmark = [pytest.mark.java, pytest.mark.timeout(5 * SECONDS_MAX)]


def run(tool: str, servers: str, *arguments: str, exit_code: int = 0) -> str:
    """Run a tool of Kafka 4.4; return its output."""
    done = subprocess.run(
        [
            java_executable(),
            *("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"),
            *("-cp", class_path(NODE_4_4), f"{TOOLS}.{tool}"),
            *("--bootstrap-server", servers, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == exit_code, f"{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_kafka_features_describes_and_changes_them() -> None:
    with txn.Broker() as broker:
        _change_features(broker.bootstrap_servers)


def _change_features(servers: str) -> None:
    feature = ("--feature", "transaction.version=1")
    changed = run("FeatureCommand", servers, "downgrade", *feature)
    assert "transaction.version was downgraded to 1" in changed
    (told,) = (
        line.split()
        for line in run("FeatureCommand", servers, "describe").splitlines()
        if "transaction.version" in line
    )
    assert told[told.index("FinalizedVersionLevel:") + 1] == "1"
    unknown = ("upgrade", "--feature", "nope=2")
    refused = run("FeatureCommand", servers, *unknown, exit_code=1)
    assert "does not support this feature" in refused


def test_kafka_metadata_quorum_describes_the_one_voter(txn_broker: str) -> None:
    status = run("MetadataQuorumCommand", txn_broker, "describe", "--status")
    facts = dict(line.split(":", 1) for line in status.splitlines())
    assert facts["LeaderId"].strip() == "1"
    assert json.loads(facts["CurrentVoters"])[0]["id"] == 1
    rows = run("MetadataQuorumCommand", txn_broker, "describe", "--replication").splitlines()
    assert [row.split()[0] for row in rows if "Leader" in row.split()] == ["1"]


def test_kafka_leader_election_finds_every_leader_elected(
    txn_broker: str, unique: Callable[[str], str]
) -> None:
    topic = unique("led")
    create_topic(txn_broker, topic)
    preferred = ("--election-type", "preferred")
    told = run(
        "LeaderElectionCommand", txn_broker, *preferred, "--topic", topic, "--partition", "0"
    )
    assert f"Valid replica already elected for partitions {topic}-0" in told
    run("LeaderElectionCommand", txn_broker, *preferred, "--all-topic-partitions")


def test_kafka_reassign_partitions_takes_the_one_assignment(
    txn_broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("assigned")
    create_topic(txn_broker, topic)
    wanted = tmp_path / "wanted.json"
    partition = {"topic": topic, "partition": 0, "replicas": [1]}
    wanted.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    tool, file = "reassign.ReassignPartitionsCommand", ("--reassignment-json-file", str(wanted))
    begun = run(tool, txn_broker, *file, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in begun
    done = run(tool, txn_broker, *file, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in done
    assert "No partition reassignments found" in run(tool, txn_broker, "--list")


def test_the_java_client_describes_topics_by_id_and_bit_by_bit(
    txn_broker: str, unique: Callable[[str], str]
) -> None:
    topic = unique("described")
    create_topic(txn_broker, topic, partitions=5)
    told = json.loads(run_java(str(TOPICS), txn_broker, topic, jars=NODE_4_4))
    assert told == {
        "by id": {topic: 5},
        "by name, two at a time": {topic: 5},
        "an unknown id": "UnknownTopicIdException",
        "an unknown name": "UnknownTopicOrPartitionException",
    }
