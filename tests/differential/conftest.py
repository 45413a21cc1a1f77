"""txn's broker beside a real Apache Kafka, both for the whole run."""

import uuid
from collections.abc import Iterator

import pytest

import txn
from differential.pair import Pair
from differential.script import Talk
from differential.side import Side
from differential.topics import make_topic, wake
from harnesses.peers.kafka import ready_node


@pytest.fixture(scope="session")
def kafka_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node for this folder: its tests change what holds for the whole cluster."""
    with ready_node(tmp_path_factory.mktemp("kafka-peer")) as node:
        yield node.bootstrap_servers


@pytest.fixture(scope="session")
def pair(kafka_peer: str) -> Iterator[Pair]:
    with txn.Broker() as broker:
        pair = Pair(Side(broker.bootstrap_servers), Side(kafka_peer))
        wake(pair)
        yield pair
        pair.txn.close()
        pair.kafka.close()


@pytest.fixture
def talk(pair: Pair) -> Talk:
    """A topic of one's own on both brokers."""
    pair.begin(uuid.uuid4().hex[:8])
    return Talk(pair, make_topic(pair, pair.own("t")))
