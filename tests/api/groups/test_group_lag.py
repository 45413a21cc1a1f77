"""The lag of groups in committed records, of brokers that real clients use."""

import json
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

import txn
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_messages,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.compacted import ON_CALL, compact, fill
from txn.cluster.brokers import Brokers
from txn.server.lifecycle.broker import service_of
from txn.server.metrics.group_lag import GROUP_ID_MAX
from txn.wire.api_keys import ApiKey

LABELS = ("group", "topic", "partition")
Samples = dict[tuple[str, ...], float]
"""(metric, values of `LABELS`) → value."""


@pytest.fixture
def broker() -> Iterator[txn.Broker]:
    with txn.Broker(metrics="127.0.0.1:0", **ON_CALL) as broker:
        yield broker


def scraped(broker: txn.Broker) -> Samples:
    url = f"http://{broker.metrics_address}/metrics"
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        families = text_string_to_metric_families(response.read().decode())
    return {
        (one.name, *(one.labels[name] for name in LABELS if name in one.labels)): one.value
        for family in families
        if family.name.startswith("txn_")
        for one in family.samples
    }


def commit_offset(broker: txn.Broker, group: str, offset: int, topic: str = "orders") -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def lag_of(broker: txn.Broker, group: str, topic: str = "orders") -> float:
    return scraped(broker)["txn_group_lag_records", group, topic, "0"]


def committed_messages(broker: txn.Broker, topic: str = "orders") -> list[Message]:
    return read_messages(broker.bootstrap_servers, topic)


def fill_with_transactions(broker: txn.Broker) -> None:
    """Commits, aborts and plain records between them; the last transaction is aborted."""
    create_topic(broker.bootstrap_servers, "orders")
    plain = plain_producer(broker.bootstrap_servers)
    producer = transactional_producer(broker.bootstrap_servers, "writer")
    for number in range(12):
        producer.begin_transaction()
        send(producer, "orders", [b"%d" % record for record in range(number + 1)])
        send(plain, "orders", [b"plain"])
        if number % 3 == 0:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


def test_the_lag_is_the_number_of_records_that_a_reader_still_gets(broker: txn.Broker) -> None:
    fill_with_transactions(broker)
    offsets = [message.offset() or 0 for message in committed_messages(broker)]
    end = service_of(broker).node.partitions["orders"][0].log_end_offset
    for offset in range(0, end + 1, 7):
        commit_offset(broker, "shop", offset)
        assert lag_of(broker, "shop") == sum(each >= offset for each in offsets), offset


def test_a_group_that_read_everything_committed_is_drained_below_the_log_end(
    broker: txn.Broker,
) -> None:
    fill_with_transactions(broker)
    last = committed_messages(broker)[-1].offset() or 0
    commit_offset(broker, "shop", last)
    behind = scraped(broker)
    commit_offset(broker, "shop", last + 1)
    drained = scraped(broker)
    assert service_of(broker).node.partitions["orders"][0].log_end_offset > last + 1
    assert behind["txn_group_lag_records", "shop", "orders", "0"] == 1
    assert behind["txn_group_is_drained", "shop"] == 0
    assert drained["txn_group_lag_records", "shop", "orders", "0"] == 0
    assert drained["txn_group_is_drained", "shop"] == 1


def test_a_group_is_not_drained_while_it_has_no_offset_in_a_partition_with_records(
    broker: txn.Broker,
) -> None:
    create_topic(broker.bootstrap_servers, "orders", 3)
    producer = plain_producer(broker.bootstrap_servers)
    commit_offset(broker, "shop", 0)
    assert scraped(broker)["txn_group_is_drained", "shop"] == 1
    producer.produce("orders", b"apples", partition=2)
    producer.flush(WAIT_S)
    assert scraped(broker)["txn_group_is_drained", "shop"] == 0


@pytest.mark.parametrize("values", [[], [b"1"]])
def test_a_group_beyond_the_log_end_is_not_drained(broker: txn.Broker, values: list[bytes]) -> None:
    """Its topic was made anew; it was told as drained, and its consumers read all records."""
    create_topic(broker.bootstrap_servers, "orders")
    send(plain_producer(broker.bootstrap_servers), "orders", values)
    commit_offset(broker, "shop", 5)
    found = scraped(broker)
    assert ("txn_group_lag_records", "shop", "orders", "0") not in found
    assert (found["txn_group_is_drained", "shop"], found["txn_group_lag_uncounted",]) == (0, 1)


def test_records_of_an_open_transaction_are_lag_once_it_commits(broker: txn.Broker) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = transactional_producer(broker.bootstrap_servers, "writer")
    commit_offset(broker, "shop", 0)
    producer.begin_transaction()
    send(producer, "orders", [b"1", b"2"])
    assert lag_of(broker, "shop") == 0
    producer.commit_transaction(WAIT_S)
    assert lag_of(broker, "shop") == 2


def test_offsets_that_compaction_left_empty_are_no_lag(broker: txn.Broker) -> None:
    fill(broker, "orders")
    commit_offset(broker, "shop", 0)
    before = len(committed_messages(broker))
    assert lag_of(broker, "shop") == before
    assert compact(broker) > 0
    offsets = [message.offset() or 0 for message in committed_messages(broker)]
    assert len(offsets) < before
    for offset in (0, offsets[0], offsets[1], offsets[len(offsets) // 2] + 1, offsets[-1] + 1):
        commit_offset(broker, "shop", offset)
        assert lag_of(broker, "shop") == sum(each >= offset for each in offsets), offset


def test_a_group_of_a_deleted_topic_is_not_named(broker: txn.Broker) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    commit_offset(broker, "shop", 0)
    assert scraped(broker)["txn_group_is_drained", "shop"] == 1
    brokers = Brokers(broker.bootstrap_servers, timeout_s=WAIT_S)
    brokers.any().call(
        ApiKey.DELETE_TOPICS, range(1, 2), {"topic_names": ("orders",), "timeout": 10_000}
    )
    brokers.close()
    assert ("txn_group_is_drained", "shop") not in scraped(broker)


def commit_by_hand(broker: txn.Broker, groups: list[str]) -> None:
    """Commits of a client that names a group for each."""
    brokers = Brokers(broker.bootstrap_servers, timeout_s=WAIT_S)
    remote = brokers.any()
    for group in groups:
        offset = {
            "partition_index": 0,
            "committed_offset": 0,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        request = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": ({"name": "orders", "partitions": (offset,)},),
        }
        answer = remote.call(ApiKey.OFFSET_COMMIT, range(7, 8), request)
        assert answer.topics[0].partitions[0].error_code == 0
    brokers.close()


def test_a_client_that_makes_up_groups_costs_a_bounded_page() -> None:
    with txn.Broker(metrics="127.0.0.1:0", metrics_group_partitions_max=10) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"1"])
        commit_offset(broker, "shop", 0)
        assert lag_of(broker, "shop") == 1
        commit_by_hand(broker, [f"a{number}" for number in range(300)])
        commit_by_hand(broker, ["long" * GROUP_ID_MAX, 'quote " and\nline'])
        found = scraped(broker)
    named = [key for key in found if key[0] == "txn_group_lag_records"]
    assert len(named) == 10
    assert ("txn_group_lag_records", "shop", "orders", "0") in named, "it was there before them"
    assert found["txn_group_lag_left_out_groups",] == 293


def test_a_group_is_described_on_the_command_line(broker: txn.Broker) -> None:
    fill_with_transactions(broker)
    at = ("--bootstrap", broker.bootstrap_servers)
    offsets = [message.offset() or 0 for message in committed_messages(broker)]
    commit_offset(broker, "shop", offsets[2])
    code, out, _ = run_txn("groups", "describe", "shop", "--json", *at)
    told = json.loads(out)
    assert (code, told["state"], told["lag"], told["drained"]) == (
        0,
        "Empty",
        len(offsets) - 2,
        False,
    )
    assert run_txn("groups", "describe", "shop", "--drained", *at)[0] == 1
    commit_offset(broker, "shop", offsets[-1] + 1)
    code, out, _ = run_txn("groups", "describe", "shop", "--drained", *at)
    assert (code, out.splitlines()[0]) == (0, "shop: Empty, drained")
    assert json.loads(run_txn("groups", "list", "--json", *at)[1]) == [
        {"group": "shop", "state": "Empty", "protocol_type": "", "type": "classic"}
    ]


def test_a_group_that_is_not_there_is_wrong_usage(broker: txn.Broker) -> None:
    code, _, err = run_txn("groups", "describe", "shop", "--bootstrap", broker.bootstrap_servers)
    assert code == 2
    assert err.startswith("txn: there is no group 'shop'")
