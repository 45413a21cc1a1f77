"""Brokers that are older than the requests of the native engine: librdkafka reaches them."""

import struct
import threading
import time
from collections.abc import Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from confluent_kafka import TopicPartition

import txn

VERSIONS = 18
OFFERED = [(0, 0, 7), (1, 0, 10), (2, 0, 4), (3, 0, 7), (8, 0, 6), (9, 0, 5), (10, 0, 2)]
OFFERED += [(11, 0, 4), (12, 0, 2), (13, 0, 2), (14, 0, 2), (18, 0, 2), (22, 0, 1), (24, 0, 1)]
"""Kafka 2.1: API key, first version, last version."""

TOLD = r"Kafka 3\.0 or newer.*engine='confluent-kafka'"
PROMPT_S = 10.0


class Old(StreamRequestHandler):
    """A broker that answers ApiVersions, and closes the connection at every other request."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(int.from_bytes(size))
            api, version, correlation_id = struct.unpack(">hhi", request[:8])
            if api != VERSIONS:
                return
            code = 0 if version == 0 else 35
            listed = b"".join(struct.pack(">hhh", *each) for each in OFFERED)
            answer = struct.pack(">ihi", correlation_id, code, len(OFFERED)) + listed
            self.wfile.write(len(answer).to_bytes(4) + answer)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    ThreadingTCPServer.daemon_threads = True
    with ThreadingTCPServer(("127.0.0.1", 0), Old) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def prompt() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PROMPT_S


def test_a_transactional_producer_is_told_that_the_broker_is_too_old(servers: str) -> None:
    with pytest.raises(txn.RejectedError, match=TOLD):
        txn.Producer(
            bootstrap_servers=servers, transactional_id="shop", timeout=60, engine="native"
        )


def test_a_plain_producer_is_told_that_the_broker_is_too_old(servers: str) -> None:
    producer = txn.Producer(bootstrap_servers=servers, engine="native")
    producer.produce("orders", "7 apples")
    with pytest.raises(txn.RejectedError, match=r"Kafka 3\.0 or newer"):
        producer.flush(60)


def test_a_member_of_a_group_is_told_that_the_broker_is_too_old(servers: str) -> None:
    """`poll` returned None for ever."""
    with txn.Consumer(bootstrap_servers=servers, group_id="shop", engine="native") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(txn.RejectedError, match=TOLD):
            consumer.poll(60)


def test_a_consumer_without_a_group_is_told_that_the_broker_is_too_old(servers: str) -> None:
    with txn.Consumer(bootstrap_servers=servers, group_id="shop", engine="native") as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        with pytest.raises(txn.RejectedError, match=TOLD):
            consumer.poll(60)
