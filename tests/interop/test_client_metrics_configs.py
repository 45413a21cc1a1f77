"""Subscriptions to clients' metrics as Apache Kafka 4.4 tells, takes and refuses them (KIP-714)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import CONTROL, NODE_4_4, run_java
from support.config_requests import APPEND, DELETE, SET, Resources

KIND = 16
INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(CONTROL is not NODE_4_4, reason="Apache Kafka 4.4 answers so"),
]


@pytest.fixture(scope="module")
def ours() -> Iterator[Resources]:
    with txn.Broker() as broker:
        yield Resources(broker.bootstrap_servers, KIND)


@pytest.fixture(scope="module")
def theirs(kafka_peer: str) -> Resources:
    return Resources(kafka_peer, KIND)


def test_a_subscription_is_described_and_listed_as_by_Kafka(
    ours: Resources, theirs: Resources
) -> None:
    assert ours.describe("") == theirs.describe("")
    assert ours.describe("unknown") == theirs.describe("unknown")
    for entries in (
        [(INTERVAL, SET, "1000"), (METRICS, SET, "*"), (MATCH, SET, "client_id=a.*")],
        [(METRICS, SET, "")],
        [(INTERVAL, DELETE, None)],
    ):
        for side in (ours, theirs):
            assert side.alter("told", *entries) == (0, "")
        theirs.await_description("told", ours.describe("told"))
    assert "told" in ours.names()
    for side in (ours, theirs):
        assert side.alter("told", (METRICS, DELETE, None), (MATCH, DELETE, None)) == (0, "")
    assert "told" not in ours.names()
    theirs.await_description("told", ours.describe("told"))


@pytest.mark.parametrize(
    "entry",
    [
        *((INTERVAL, SET, text) for text in ("1", "0", "x", "", "99", "100", "3600000", "3600001")),
        *((METRICS, SET, text) for text in ("", "a,b", "*")),
        *(
            (MATCH, SET, text)
            for text in (
                "client_id=[a",
                "nobody=1",
                "x",
                "",
                "client_id=a,client_id=b",
                "client_id=",
            )
        ),
        *((MATCH, SET, f"client_{name}=a|b") for name in ("source_address", "software_name")),
        ("no.such", SET, "1"),
        ("no.such", DELETE, None),
    ],
    ids=str,
)
def test_an_alteration_of_a_subscription_is_taken_or_refused_as_by_Kafka(
    ours: Resources, theirs: Resources, entry: tuple[str, int, str | None]
) -> None:
    assert ours.alter("tried", entry) == theirs.alter("tried", entry)


def test_no_list_of_a_subscription_is_appended_to_and_none_is_without_a_name(
    ours: Resources, theirs: Resources
) -> None:
    for name, entry in (("tried", (METRICS, APPEND, "a")), ("", (INTERVAL, SET, "1000"))):
        code, message = theirs.alter(name, entry)
        assert code in (40, 42)
        told = ours.alter(name, entry)
        assert told[0] == code
        assert told[1].startswith(message.rstrip("."))


def test_subscriptions_outlast_a_restart_and_are_shown_by_Kafkas_tool(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data") as broker:
        resources = Resources(broker.bootstrap_servers, KIND)
        assert resources.alter("kept", (INTERVAL, SET, "5000")) == (0, "")
    with txn.Broker(tmp_path / "data") as broker:
        shown = run_java(
            "org.apache.kafka.tools.ClientMetricsCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--name", "kept"),
            jars=NODE_4_4,
        )
    assert "interval.ms=5000" in shown
