"""Tagged fields that nobody knows, at any level of a request, change no answer (KIP-482)."""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

import txn
from support.clients import create_topic, plain_producer, read_all, send
from support.served import SERVED_IN_PYTHON, each_version
from support.tagged import NO_TAGS, UNKNOWN_TAGS, encode, example
from support.wire_client import RawConnection, request
from txn._core import encode_batch
from txn.broker.apis.table import SERVED_BY_REACTORS
from txn.wire.api_keys import ApiKey

TOO_LONG: Final = b"\x01\x63\x7fx"
"""A tagged field of 127 bytes, where less is left."""

FLEXIBLE = list(each_version(SERVED_IN_PYTHON | SERVED_BY_REACTORS, is_flexible=True))

UNCHANGING: Final[dict[int, Mapping[str, Any]]] = {
    ApiKey.METADATA: {"allow_auto_topic_creation": False},
    ApiKey.CREATE_TOPICS: {"validate_only": True},
    ApiKey.CREATE_PARTITIONS: {"validate_only": True},
    ApiKey.ALTER_CONFIGS: {"validate_only": True},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"validate_only": True},
    ApiKey.INIT_PRODUCER_ID: {"transactional_id": ""},
    ApiKey.JOIN_GROUP: {"group_id": ""},
}
"""Fields that keep a request from changing something, so that it can be asked twice."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    switch = {"transaction.two.phase.commit.enable": True}
    data = tmp_path_factory.mktemp("broker") / "data"
    with txn.Broker(data, durability="process", properties=switch) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a", b"b"])
        yield broker


def frame(key: int, version: int, body: bytes, tags: bytes) -> bytes:
    """A request with its header, which has these tagged fields."""
    return struct.pack(">hhihs", key, version, 7, 1, b"c") + tags + body


def answer(broker: txn.Broker, payload: bytes) -> bytes:
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send_frame(payload)
        return connection.read_frame()


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_unknown_tags_change_no_answer(
    broker: txn.Broker, key: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs("/")
    monkeypatch.setattr(os, "statvfs", lambda _: disk)  # others write to it meanwhile
    asked = example(request(key, version), UNCHANGING.get(key, {"isolation_level": 1}))
    plain = answer(broker, frame(key, version, encode(asked), NO_TAGS))
    body = encode(asked, UNKNOWN_TAGS)
    assert answer(broker, frame(key, version, body, NO_TAGS)) == plain
    assert answer(broker, frame(key, version, body, UNKNOWN_TAGS)) == plain


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_malformed_tags_cost_the_connection(broker: txn.Broker, key: int, version: int) -> None:
    asked = example(request(key, version), UNCHANGING.get(key, {"isolation_level": 1}))
    body = encode(asked, NO_TAGS)
    for payload in (
        frame(key, version, body[:-1] + TOO_LONG, NO_TAGS),
        frame(key, version, b"", TOO_LONG),
    ):
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.send_frame(payload)
            assert connection.is_closed_by_peer()


def test_a_batch_and_its_fetch_with_unknown_tags(broker: txn.Broker) -> None:
    create_topic(broker.bootstrap_servers, "tagged")
    records = encode_batch([(None, b"value")], 1_700_000_000_000)
    named = {"transactional_id": None, "acks": -1, "name": "tagged", "index": 0, "records": records}
    once = _only_one_item(example(request(ApiKey.PRODUCE, 9), named))
    answer(broker, frame(ApiKey.PRODUCE, 9, encode(once, UNKNOWN_TAGS), UNKNOWN_TAGS))
    assert read_all(broker.bootstrap_servers, "tagged") == [b"value"]

    wanted = {"topic": "tagged", "partition": 0, "fetch_offset": 0, "isolation_level": 0}
    limits = {"partition_max_bytes": 1000, "max_bytes": 1000, "session_epoch": -1, "session_id": 0}
    epochs = {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    fetch = example(request(ApiKey.FETCH, 12), wanted | limits | epochs)
    body = encode(fetch, UNKNOWN_TAGS)
    assert b"value" in answer(broker, frame(ApiKey.FETCH, 12, body, UNKNOWN_TAGS))


def test_20_bytes_do_not_end_the_broker(broker: txn.Broker) -> None:
    """An array that announces four billion items had kio reserve memory for them, and abort."""
    four_billion = b"\xff\xff\xff\xff\x0f"
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send_frame(frame(65, 0, four_billion, NO_TAGS))
        assert connection.is_closed_by_peer()
    assert read_all(broker.bootstrap_servers, "orders") == [b"a", b"b"]


def _only_one_item(produce: Any) -> Any:
    (topic, _) = produce.topic_data
    one = replace(topic, partition_data=topic.partition_data[:1])
    return replace(produce, topic_data=(one,))
