"""The native engine on Apache Kafka 4.2 and 4.4, under both versions of transactions.

`test_producer_api.py` and others run with the control alone, which is 4.4.
"""

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import pytest

import txn
from harnesses.peers.jars import NODE_4_2, NODE_4_4
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from support.clients import create_topic, plain_producer, read_all, send
from support.wire_client import RawConnection
from txn.wire.api_keys import ApiKey

pytestmark = pytest.mark.peer

WAIT_S: Final = 60.0

SETTINGS: Final = {
    **FEW_PARTITIONS,
    # Members learn of a rebalance, and a killed one is missed, within a second.
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000",
}
CLASSIC: Final[Mapping[str, object]] = {
    "group.protocol": "classic",
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 1_500,
}
MEMBERS: Final[Mapping[str, Mapping[str, object]]] = {
    "classic": CLASSIC,
    "consumer": {"group.protocol": "consumer"},
}
"""The settings of a member, by the protocol of its group."""

COPIES_AND_WAITS: Final = """\
import sys, time, txn

servers, source, sink, name = sys.argv[1:]
consumer = txn.Consumer(
    bootstrap_servers=servers, group_id=name, auto_offset_reset="earliest", engine="native",
    session_timeout_ms=1500, heartbeat_interval_ms=300,
)
consumer.subscribe([source])
producer = txn.Producer(bootstrap_servers=servers, transactional_id=name, engine="native")
for is_last in (False, True):
    with producer.transaction(consumer) as t:
        message = consumer.poll(60)
        t.send(sink, message.value()).result(60)
        if is_last:
            print("open", flush=True)
            time.sleep(600)
"""


@pytest.fixture(scope="module", params=[NODE_4_2, NODE_4_4], ids=["4.2", "4.4"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaNode]:
    with KafkaNode(tmp_path_factory.mktemp("native"), SETTINGS, jars=request.param) as running:
        yield running


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest, node: KafkaNode) -> int:
    """The version of transactions that the node has from now on."""
    level: int = request.param
    set_transaction_version(node.bootstrap_servers, level)
    return level


@pytest.fixture
def servers(node: KafkaNode) -> str:
    return node.bootstrap_servers


@pytest.fixture
def name(servers: str) -> str:
    """A name that no other test has, of a topic of two partitions too."""
    made = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(servers, made, partitions=2)
    return made


def set_transaction_version(servers: str, level: int) -> None:
    """Set the version of transactions, and wait until the node says so."""
    update = {"feature": "transaction.version", "max_version_level": level}
    with RawConnection(servers) as connection:
        if transaction_version(connection) == level:
            return
        kind = 1 if level == 2 else 2  # an upgrade, or a downgrade that loses nothing
        connection.ask(
            ApiKey.UPDATE_FEATURES,
            1,
            timeout=10_000,
            feature_updates=[{**update, "upgrade_type": kind}],
            validate_only=False,
        )
        deadline_s = time.monotonic() + WAIT_S
        while transaction_version(connection) != level:
            assert time.monotonic() < deadline_s, "the node keeps its version"
            time.sleep(0.05)


def transaction_version(connection: RawConnection) -> int:
    answer = connection.ask(
        ApiKey.API_VERSIONS, 3, client_software_name="test", client_software_version="1"
    )
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return int(levels.get("transaction.version", 0))


def producer_epoch(servers: str, transactional_id: str) -> int:
    """The epoch of a transactional id at its coordinator."""
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]
        )
    (state,) = answer.transaction_states
    return int(state.producer_epoch)


def values_in(servers: str, topic: str, count: int) -> list[bytes]:
    """The committed values of a topic, sorted. Kafka writes markers after it has answered."""
    deadline_s = time.monotonic() + WAIT_S
    while len(found := read_all(servers, topic)) < count:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    return sorted(value or b"" for value in found)


def test_blocks_commit_and_abort_and_version_2_has_an_epoch_for_each(
    servers: str, name: str, version: int
) -> None:
    with txn.Producer(
        bootstrap_servers=servers, transactional_id=name, engine="native"
    ) as producer:
        first = producer_epoch(servers, name)
        for number in range(4):
            with suppress(ZeroDivisionError), producer.transaction() as t:
                t.produce(name, b"%d" % number, partition=number % 2)
                if number % 2:
                    raise ZeroDivisionError
        last = producer_epoch(servers, name)
    assert values_in(servers, name, 2) == [b"0", b"2"]
    assert last - first == (4 if version == 2 else 0)


def test_a_producer_goes_on_while_its_cluster_changes_the_version(servers: str, name: str) -> None:
    set_transaction_version(servers, 1)
    sent: list[bytes] = []
    with txn.Producer(
        bootstrap_servers=servers, transactional_id=name, engine="native"
    ) as producer:
        for level in (1, 2, 1, 2):
            set_transaction_version(servers, level)
            for number in range(3):
                sent.append(b"%d-%d" % (len(sent), number))
                with producer.transaction() as t:
                    t.produce(name, sent[-1])
    assert values_in(servers, name, len(sent)) == sorted(sent)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_copies_exactly_once_over_aborts_and_a_rebalance(
    servers: str, name: str, version: int, protocol: str
) -> None:
    out = f"{name}-out"
    create_topic(servers, out)
    sent = [b"%02d" % number for number in range(20)]
    for partition in range(2):
        send(plain_producer(servers), name, sent[partition::2], partition=partition)
    members = [
        (
            txn.Consumer(
                MEMBERS[protocol],
                bootstrap_servers=servers,
                group_id=name,
                auto_offset_reset="earliest",
                engine="native",
            ),
            txn.Producer(
                bootstrap_servers=servers, transactional_id=f"{name}-{number}", engine="native"
            ),
        )
        for number in range(2)
    ]
    members[0][0].subscribe([name])
    copied = turns = 0
    active = members[:1]
    deadline_s = time.monotonic() + WAIT_S
    while copied < len(sent):
        assert time.monotonic() < deadline_s, copied
        if copied and active is not members:
            members[1][0].subscribe([name])
            active = members
        for consumer, producer in active:
            turns += 1
            with suppress(ZeroDivisionError, txn.AbortableError):
                with producer.transaction(consumer) as t:
                    messages = consumer.consume(3, 0.5)
                    for message in messages:
                        t.produce(out, message.value())
                    if messages and turns % 3 == 0:
                        raise ZeroDivisionError
                copied += len(messages)
    for consumer, producer in members:
        producer.close()
        consumer.close()
    assert values_in(servers, out, len(sent)) == sent


def test_a_successor_goes_on_after_a_sigkill_in_a_transaction(
    servers: str, name: str, version: int
) -> None:
    out = f"{name}-out"
    create_topic(servers, out)
    sent = [b"1", b"2", b"3"]
    send(plain_producer(servers), name, sent)
    words = [servers, name, out, name]
    with subprocess.Popen(
        [sys.executable, "-c", COPIES_AND_WAITS, *words], stdout=subprocess.PIPE
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"open\n"
        victim.send_signal(signal.SIGKILL)
    assert len(read_all(servers, out, isolation="read_uncommitted")) == 2
    copied = 0
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id=name, engine="native") as producer,
        txn.Consumer(
            CLASSIC,
            bootstrap_servers=servers,
            group_id=name,
            auto_offset_reset="earliest",
            engine="native",
        ) as consumer,
    ):
        consumer.subscribe([name])
        while copied < 2:
            with producer.transaction(consumer) as t:
                message = consumer.poll(WAIT_S)
                assert message is not None
                t.produce(out, message.value())
            copied += 1
    assert values_in(servers, out, 3) == sent
