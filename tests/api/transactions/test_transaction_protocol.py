"""Requests that no client sends for transactions yet, or not on purpose: as bytes over a socket."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.wire_producer import TV1_PRODUCE, TV2_PRODUCE, WireProducer, identity

ADD, WRITE_MARKERS = 24, 27
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66
NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, FENCED, ABORTABLE = 0, 47, 48, 90, 120
INVALID_PRODUCER_ID_MAPPING = 49
OUT_OF_ORDER = 45
TWO_PHASE = "transaction.two.phase.commit.enable"


Connect = Callable[..., WireProducer]


@pytest.fixture
def connect() -> Iterator[Callable[..., WireProducer]]:
    """Makes connections that are closed with the test."""
    with ExitStack() as connections:

        def connect(servers: str, transactional_id: str = "pay") -> WireProducer:
            return connections.enter_context(WireProducer(servers, transactional_id))

        yield connect


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", f"{TWO_PHASE}=true")
    try:
        create_topic(process.bootstrap_servers, "orders")
        yield process
    finally:
        assert process.stop() == 0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with txn.Broker(
        tmp_path / "data", durability="process", properties={TWO_PHASE: "true"}
    ) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker.bootstrap_servers


# ---------------------------------------------------------------- two-phase commit


@pytest.mark.parametrize(("committed", "seen"), [(True, [b"mine"]), (False, [])])
def test_P3_a_prepared_transaction_waits_for_its_decision_over_kills(
    process: BrokerProcess, connect: Connect, committed: bool, seen: list[bytes]
) -> None:
    first = connect(process.bootstrap_servers)
    prepared = identity(first.start())
    assert first.produce(prepared, 0, b"mine") == NONE
    process.kill()
    process.restart()

    second = connect(process.bootstrap_servers)
    answer = second.start(keep=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == prepared
    process.kill()
    process.restart()

    third = connect(process.bootstrap_servers)
    (described,) = third.ask(DESCRIBE, 0, transactional_ids=("pay",)).transaction_states
    assert described.transaction_state == "Ongoing"
    assert (described.producer_id, described.producer_epoch) == prepared
    assert third.produce(prepared, 1, b"late") == INVALID_PRODUCER_EPOCH
    assert int(third.end(prepared).error_code) == FENCED
    following = identity(third.end(identity(answer), committed=committed))
    assert read_all(process.bootstrap_servers, "orders") == seen
    assert third.produce(following, 0, b"next") == NONE
    assert int(third.end(following).error_code) == NONE
    assert read_all(process.bootstrap_servers, "orders") == [*seen, b"next"]


def test_clients_of_the_versions_before_know_nothing_of_it(servers: str) -> None:
    producer = transactional_producer(servers, "plain")
    commit_values(producer, "orders", [b"a"])
    assert read_all(servers, "orders") == [b"a"]


# ---------------------------------------------------------------- joining, late and lost


def test_a_batch_of_version_1_that_was_not_announced_is_told_what_its_version_knows(
    servers: str, connect: Connect
) -> None:
    wire = connect(servers)
    producer = identity(wire.start())
    assert wire.produce(producer, 0, b"a", 10) == INVALID_TXN_STATE
    assert wire.produce(producer, 0, b"a", TV1_PRODUCE) == ABORTABLE


@pytest.mark.parametrize("version", [TV1_PRODUCE, TV2_PRODUCE])
def test_a_declared_partition_takes_no_first_batch_under_another_transactional_id(
    servers: str, connect: Connect, version: int
) -> None:
    """It did, since AddPartitionsToTxn had told it to expect the producer."""
    owner, stranger = connect(servers, "pay"), connect(servers, "ship")
    producer = identity(owner.start(two_phase=False))
    stranger.start(two_phase=False)
    assert add(owner, producer) == NONE
    assert stranger.produce(producer, 0, b"a", version) == INVALID_PRODUCER_ID_MAPPING
    assert owner.produce(producer, 0, b"a", version) == NONE


@pytest.mark.parametrize("version", [TV1_PRODUCE, TV2_PRODUCE])
def test_P5_a_batch_whose_client_is_gone_leaves_nothing_that_hangs(
    servers: str, connect: Connect, version: int
) -> None:
    """Requests are sent and their connections cut before the partition has joined."""
    wire = connect(servers)
    producer = identity(wire.start(two_phase=False))
    if version == TV1_PRODUCE:
        add(wire, producer)
    for sequence in range(20):
        gone = connect(servers)
        cut_off_after_sending(gone, producer, sequence, version)
    identity(wire.start(two_phase=False))
    assert wire.produce(producer, 99, b"late", version) == INVALID_PRODUCER_EPOCH
    assert open_transactions(wire) == []
    send(plain_producer(servers), "orders", [b"behind"])
    assert read_all(servers, "orders") == [b"behind"]


def test_P7_a_late_batch_of_an_ended_transaction_opens_nothing(
    servers: str, connect: Connect
) -> None:
    wire = connect(servers)
    producer = identity(wire.start())
    assert wire.produce(producer, 0, b"a") == NONE
    following = identity(wire.end(producer))
    assert wire.produce(producer, 1, b"late") == INVALID_PRODUCER_EPOCH
    assert int(wire.end(following, committed=False).error_code) == NONE
    assert open_transactions(wire) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_P3_a_sequence_used_again_after_an_abort_is_not_acknowledged_unstored(
    process: BrokerProcess, connect: Connect, is_killed: bool
) -> None:
    # librdkafka gives up batches that its abort found unanswered, and their sequences go to the
    # next records. The first batch may be stored, its answer lost. Found by the black box.
    wire = connect(process.bootstrap_servers)
    producer = identity(wire.start(two_phase=False))
    add(wire, producer)
    assert wire.produce(producer, 0, b"given up", TV1_PRODUCE) == NONE
    assert int(wire.end(producer, committed=False, version=4).error_code) == NONE
    add(wire, producer)
    if is_killed:
        process.kill()
        process.restart()
        wire = connect(process.bootstrap_servers)
    assert wire.produce(producer, 0, b"another", TV1_PRODUCE) == OUT_OF_ORDER
    following = identity(wire.start(two_phase=False, shown=producer))
    add(wire, following)
    assert wire.produce(following, 0, b"another", TV1_PRODUCE) == NONE
    assert int(wire.end(following, version=4).error_code) == NONE
    assert read_all(process.bootstrap_servers, "orders") == [b"another"]


@pytest.mark.parametrize("version", [TV1_PRODUCE, TV2_PRODUCE])
def test_P6_a_batch_that_overtook_the_first_one_of_a_partition_is_refused_until_that_is_stored(
    servers: str, connect: Connect, version: int
) -> None:
    """The second batch was stored, and the first one then out of order for ever."""
    wire = connect(servers)
    producer = identity(wire.start(two_phase=False))
    add(wire, producer)
    assert wire.produce(producer, 1, b"second", version) == OUT_OF_ORDER
    assert wire.produce(producer, 0, b"first", version) == NONE
    assert wire.produce(producer, 1, b"second", version) == NONE
    assert int(wire.end(producer).error_code) == NONE
    assert read_all(servers, "orders") == [b"first", b"second"]


def test_a_producer_goes_on_in_a_topic_that_was_made_anew(servers: str, connect: Connect) -> None:
    """librdkafka ends by a fatal error where its next sequence is out of order."""
    wire = connect(servers)
    producer = identity(wire.start(two_phase=False))
    add(wire, producer)
    assert wire.produce(producer, 0, b"before", TV1_PRODUCE) == NONE
    assert int(wire.end(producer, version=4).error_code) == NONE
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)
    create_topic(servers, "orders")
    add(wire, producer)
    assert wire.produce(producer, 1, b"after", TV1_PRODUCE) == NONE
    assert int(wire.end(producer, version=4).error_code) == NONE
    assert read_all(servers, "orders") == [b"after"]


def test_partitions_join_by_the_request_that_brokers_use(servers: str, connect: Connect) -> None:
    wire = connect(servers)
    producer = identity(wire.start())
    assert add(wire, producer, verify_only=True) == ABORTABLE
    assert add(wire, producer) == NONE
    assert add(wire, producer, verify_only=True) == NONE
    assert wire.produce(producer, 0, b"a", TV1_PRODUCE) == NONE
    assert int(wire.end(producer).error_code) == NONE
    assert read_all(servers, "orders") == [b"a"]


# ---------------------------------------------------------------- a client whose time was up


@pytest.mark.parametrize("produce_version", [TV1_PRODUCE, TV2_PRODUCE])
def test_a_producer_goes_on_after_its_transaction_timed_out(
    servers: str, connect: Connect, produce_version: int
) -> None:
    # One that asked for its next epoch by showing the one it had (KIP-360) was fenced, though
    # nobody had taken its id over. Apache Kafka 4.2 gives it the epoch that fenced it.
    wire = connect(servers)
    producer = identity(wire.start(two_phase=False, timeout_ms=300))
    add(wire, producer)
    assert wire.produce(producer, 0, b"abandoned", produce_version) == NONE
    send(plain_producer(servers), "orders", [b"behind it"])
    assert next_committed(servers) == b"behind it"

    assert wire.produce(producer, 1, b"too late", produce_version) == INVALID_PRODUCER_EPOCH
    following = identity(wire.start(two_phase=False, shown=producer))
    add(wire, following)
    assert wire.produce(following, 0, b"next", produce_version) == NONE
    assert int(wire.end(following).error_code) == NONE
    assert read_all(servers, "orders") == [b"behind it", b"next"]


# ---------------------------------------------------------------- operators


def test_P3_an_operators_abort_ends_the_whole_transaction(servers: str, connect: Connect) -> None:
    wire = connect(servers)
    producer = identity(wire.start())
    assert wire.produce(producer, 0, b"a") == NONE
    marker = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": False,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    (result,) = wire.ask(WRITE_MARKERS, 2, markers=[marker]).markers
    assert int(result.topics[0].partitions[0].error_code) == NONE
    assert int(wire.end(producer).error_code) == FENCED
    assert open_transactions(wire) == []


def test_a_pattern_that_others_never_finish_is_matched_at_once(
    servers: str, connect: Connect
) -> None:
    wire = connect(servers, "a" * 100 + "!")
    wire.start()
    filters: dict[str, Any] = {
        "state_filters": (),
        "producer_id_filters": (),
        "duration_filter": -1,
    }
    answer = wire.ask(LIST, 2, transactional_id_pattern="(a+)+$", **filters)
    assert (int(answer.error_code), answer.transaction_states) == (NONE, ())


# ---------------------------------------------------------------- helpers


def add(wire: WireProducer, producer: tuple[int, int], *, verify_only: bool = False) -> int:
    wanted = {
        "transactional_id": wire.transactional_id,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "verify_only": verify_only,
        "topics": [{"name": "orders", "partitions": [0]}],
    }
    (result,) = wire.ask(ADD, 5, transactions=[wanted]).results_by_transaction
    return int(result.topic_results[0].results_by_partition[0].partition_error_code)


def cut_off_after_sending(
    wire: WireProducer, producer: tuple[int, int], sequence: int, version: int
) -> None:
    """Send a Produce and close the connection instead of reading the answer."""

    def close() -> bytes:
        wire.socket.close()
        raise ConnectionAbortedError

    wire.read_frame = close  # type: ignore[method-assign]
    with pytest.raises(ConnectionAbortedError):
        wire.produce(producer, sequence, b"x", version)


def next_committed(servers: str) -> bytes | None:
    """Wait for the first record that a read_committed consumer is shown."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    (message,) = consumer.consume(1, timeout=WAIT_S)
    consumer.close()
    return message.value()


def open_transactions(wire: WireProducer) -> list[int]:
    """The producers that hold the partition's last stable offset back."""
    topic = {"name": "orders", "partition_indexes": [0]}
    answer = wire.ask(DESCRIBE_PRODUCERS, 0, topics=[topic])
    return [
        active.producer_id
        for active in answer.topics[0].partitions[0].active_producers
        if active.current_txn_start_offset >= 0
    ]
