"""One thing named again and again in a request: it is described once, and no stranger learns of it.

A Metadata request of 6 KB named a topic of 1,000 partitions 2,000 times. It was answered with
50 MiB, which took 340 MiB to make; DescribeConfigs and DescribeTransactions were as generous. And a
CreatePartitions that named a topic twice told anybody the number of its partitions.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import txn
from support.served import SERVED_IN_PYTHON
from support.wire_client import RawConnection
from support.worst_requests import arrays_of, with_many
from txn import _core
from txn.config import STANDARD_AUTHORIZER
from txn.security.acls import Operation, PatternType, Permission, ResourceType
from txn.wire.api_keys import ApiKey

ADMIN, STRANGER = "127.0.0.1", "127.0.0.2"
THING, SECRET, UNKNOWN = b"t", b"secret", b"nobody"
PARTITIONS = 300
PRODUCERS = 50
ITEMS = 400

BYTES_PER_BYTE = 64
"""Bytes of an answer for each byte that names a thing again. A name of two bytes, and a message."""

NUMBERS = (0, 1, 2, 5, 100_000)
"""Among them the types of topics and brokers, and a number of partitions that is too large."""

CHANGED_BY = frozenset({ApiKey.DELETE_TOPICS, ApiKey.WRITE_TXN_MARKERS})
"""APIs that would take away the thing that the others describe."""

ARRAYS = [
    pytest.param(key, version, array, id=f"{key}-{version}-{array}")
    for key, (low, high) in SERVED_IN_PYTHON.items()
    for version in {low, high}
    for array in range(arrays_of(key, version))
]


def everything(host: str, kind: ResourceType, name: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": Operation.ALL,
        "permission_type": Permission.ALLOW,
    }


def fill(servers: str) -> None:
    """Make topics, a transaction of one's name with all its partitions, and producers of one."""
    name = THING.decode()
    topic = {
        "num_partitions": PARTITIONS,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    topics = [topic | {"name": each.decode()} for each in (THING, SECRET)]
    with RawConnection(servers, ADMIN) as admin:
        made = admin.ask(
            ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=30_000, validate_only=False
        )
        assert [int(one.error_code) for one in made.topics] == [0, 0]
        producer = admin.ask(
            ApiKey.INIT_PRODUCER_ID, 2, transactional_id=name, transaction_timeout=600_000
        )
        added = admin.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": name, "partitions": [*range(PARTITIONS)]}],
        )
        results = added.results_by_topic_v3_and_below[0].results_by_partition
        assert {int(one.partition_error_code) for one in results} == {0}
        for producer_id in range(5_000, 5_000 + PRODUCERS):
            batch = _core.encode_batch([(None, b"")], 1_700_000_000_000, producer_id, 0, 0, False)
            written = admin.ask(
                ApiKey.PRODUCE,
                11,
                transactional_id=None,
                acks=-1,
                timeout=1_000,
                topic_data=[{"name": name, "partition_data": [{"index": 0, "records": batch}]}],
            )
            assert int(written.responses[0].partition_responses[0].error_code) == 0


@pytest.fixture(scope="module", params=["without-authorizer", "with-authorizer"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[txn.Broker]:
    properties: dict[str, Any] = {
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": False,
    }
    if request.param == "with-authorizer":
        properties |= {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": True,
        }
    data = tmp_path_factory.mktemp("repeated") / "data"
    with txn.Broker(data, durability="process", properties=properties) as broker:
        fill(broker.bootstrap_servers)
        if request.param == "with-authorizer":
            entries = [
                everything(ADMIN, kind, "kafka-cluster" if kind is ResourceType.CLUSTER else "*")
                for kind in (
                    ResourceType.TOPIC,
                    ResourceType.GROUP,
                    ResourceType.TRANSACTIONAL_ID,
                    ResourceType.CLUSTER,
                )
            ]
            with RawConnection(broker.bootstrap_servers, ADMIN) as admin:
                # The cluster last: from then on nobody else may make entries.
                admin.ask(ApiKey.CREATE_ACLS, 3, creations=entries)
        yield broker


def answer(broker: txn.Broker, address: str, key: int, version: int, body: bytes) -> bytes:
    """The answer to a request; nothing if it costs the connection."""
    with RawConnection(broker.bootstrap_servers, address) as connection:
        connection.send_body(key, version, body)
        connection.socket.settimeout(60)
        try:
            return connection.read_frame()
        except ConnectionError:
            return b""


@pytest.mark.parametrize(("key", "version", "array"), ARRAYS)
def test_a_thing_that_is_named_again_is_not_described_again(
    broker: txn.Broker, key: int, version: int, array: int
) -> None:
    text = b"n" if key in CHANGED_BY else THING
    for number in NUMBERS:
        once = with_many(key, version, array, 1, text=text, number=number)
        often = with_many(key, version, array, ITEMS, text=text, number=number)
        for address in (ADMIN, STRANGER):
            more = len(answer(broker, address, key, version, often)) - len(
                answer(broker, address, key, version, once)
            )
            assert more <= BYTES_PER_BYTE * (len(often) - len(once)), number


@pytest.mark.parametrize("broker", ["with-authorizer"], indirect=True)
@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize(("key", "version", "array"), ARRAYS)
def test_a_stranger_does_not_learn_whether_there_is_such_a_topic(
    broker: txn.Broker, key: int, version: int, array: int, items: int
) -> None:
    for number in NUMBERS:
        told, of_nothing = (
            answer(
                broker,
                STRANGER,
                key,
                version,
                with_many(key, version, array, items, text=name, number=number),
            )
            for name in (SECRET, UNKNOWN)
        )
        assert told.replace(SECRET, UNKNOWN) == of_nothing, number
