"""`txn.ProducerPool` lends producers to the blocks of many threads, with both engines."""

import subprocess
import sys
import threading

import pytest

import txn
from txn.client.engine import EngineName
from txn.errors import Action
from txn.testing import TestBroker

WAIT_S = 30.0
PROGRAM_S = 120.0

IN_A_FORK = """\
import os, sys, txn

servers, engine, topic = sys.argv[1:]
pool = txn.ProducerPool("parent", 2, bootstrap_servers=servers, engine=engine)
with pool.transaction() as t:
    t.produce(topic, b"parent")
child = os.fork()
if child == 0:
    try:
        with pool.transaction() as t:
            t.produce(topic, b"of nobody")
    except txn.ForkedError:
        pool.close()
        with txn.ProducerPool("child", 1, bootstrap_servers=servers, engine=engine) as own:
            with own.transaction() as t:
                t.produce(topic, b"child")
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
with pool.transaction() as t:
    t.produce(topic, b"parent again")
pool.close()
"""


@pytest.fixture
def topic(broker: TestBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").rstrip("]")
    return broker.create_topic(name[-80:], partitions=1)


def open_pool(broker: TestBroker, engine: EngineName, prefix: str, size: int) -> txn.ProducerPool:
    return txn.ProducerPool(
        f"{prefix}-{engine}", size, bootstrap_servers=broker.bootstrap_servers, engine=engine
    )


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return sorted(record.value for record in broker.records(topic))  # type: ignore[type-var]


def test_threads_commit_through_a_pool_that_is_smaller_than_they_are(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            with pool.transaction() as t:
                t.produce(topic, b"%d-%d" % (number, turn))

    with open_pool(broker, engine, "threads", 2) as pool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert values(broker, topic) == sorted(b"%d-%d" % (n, t) for n in range(6) for t in range(5))


def test_a_quiet_pool_opens_one_producer_and_keeps_it(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    with open_pool(broker, engine, "quiet", 5) as pool:
        for _ in range(3):
            with pool.transaction() as t:
                t.produce(topic, b"x")
    ids = [name for name in broker.transactions() if name.startswith(f"quiet-{engine}")]
    assert ids == [f"quiet-{engine}-0"]


def test_a_block_that_finds_no_free_producer_in_time_hears_the_size_of_the_pool(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    with open_pool(broker, engine, "busy", 1) as pool, pool.transaction() as t:
        t.produce(topic, b"x")
        with (
            pytest.raises(txn.RetriableError, match="all 1 producers of the pool") as told,
            pool.transaction(timeout=0.05),
        ):
            pass
    assert told.value.size == 1
    assert values(broker, topic) == [b"x"]


def test_a_block_that_raises_aborts_and_gives_its_producer_back(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    with open_pool(broker, engine, "raises", 1) as pool:
        with pytest.raises(ZeroDivisionError), pool.transaction() as t:
            t.produce(topic, b"never")
            raise ZeroDivisionError
        with pool.transaction(timeout=WAIT_S) as t:
            t.produce(topic, b"x")
    assert values(broker, topic) == [b"x"]


def test_a_pool_commits_the_offsets_of_a_threads_consumer(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    broker.produce(topic, b"1")
    consumer = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    )
    consumer.subscribe([topic])
    with open_pool(broker, engine, "offsets", 2) as pool, pool.transaction(consumer):
        assert consumer.consume(1, WAIT_S)
    consumer.close()
    assert broker.committed(topic) == {(topic, 0): 1}


def test_a_producer_whose_commit_is_in_doubt_is_replaced(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    with open_pool(broker, engine, "doubt", 1) as pool:
        with pool.transaction() as t:
            t.produce(topic, b"1")
        held = broker.hold("EndTxn")
        with pytest.raises(txn.InDoubtError), pool.transaction(timeout=0.5) as t:
            t.produce(topic, b"2")
        held.release()
        with pool.transaction(timeout=WAIT_S) as t:
            t.produce(topic, b"3")
    assert values(broker, topic)[0] == b"1"
    assert values(broker, topic)[-1] == b"3"


def test_an_id_that_another_instance_has_taken_is_left_to_it(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    servers = broker.bootstrap_servers
    with open_pool(broker, engine, "taken", 2) as pool:
        with pytest.raises(txn.FencedError) as told, pool.transaction() as t:
            t.produce(topic, b"never")
            with txn.Producer(
                bootstrap_servers=servers, transactional_id=f"taken-{engine}-0"
            ) as other:
                pass
        assert told.value.action is Action.GIVE_UP
        with pool.transaction() as t:  # of the other id
            t.produce(topic, b"x")
        with pytest.raises(txn.FencedError), pool.transaction() as t:
            t.produce(topic, b"never")
            txn.Producer(bootstrap_servers=servers, transactional_id=f"taken-{engine}-1").close()
        with (
            pytest.raises(txn.FencedError, match="a prefix of its own") as all_taken,
            pool.transaction(),
        ):
            pass
    assert all_taken.value.action is Action.GIVE_UP
    assert other.transactional_id == f"taken-{engine}-0"
    assert values(broker, topic) == [b"x"]


def test_closing_waits_for_blocks_and_then_aborts_the_one_that_stays(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    pool = open_pool(broker, engine, "closing", 2)
    is_open, may_end = threading.Event(), threading.Event()
    told: list[txn.TxnError] = []

    def stay() -> None:
        try:
            with pool.transaction() as t:
                t.produce(topic, b"never")
                is_open.set()
                may_end.wait(WAIT_S)
        except txn.RejectedError as error:
            told.append(error)

    staying = threading.Thread(target=stay)
    staying.start()
    assert is_open.wait(WAIT_S)
    pool.close(timeout=0.1)
    may_end.set()
    staying.join()
    pool.close()
    assert len(told) == 1
    with pytest.raises(txn.RejectedError, match="is closed; open another"), pool.transaction():
        pass
    assert values(broker, topic) == []


def test_a_forked_child_opens_a_pool_of_its_own(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    command = [sys.executable, "-c", IN_A_FORK, broker.bootstrap_servers, engine, topic]
    subprocess.run(command, check=True, timeout=PROGRAM_S)
    assert values(broker, topic) == [b"child", b"parent", b"parent again"]


def test_a_pool_that_cannot_reach_its_cluster_says_so_for_each_block(engine: EngineName) -> None:
    with txn.ProducerPool(
        "far", 1, bootstrap_servers="127.0.0.1:1", connect_timeout=0, engine=engine
    ) as pool:
        for _ in range(2):
            with pytest.raises(txn.UnreachableError), pool.transaction():
                pass


@pytest.mark.parametrize(
    ("prefix", "size", "more", "told"),
    [
        ("", 1, {}, "is no name"),
        ("p", 0, {}, "no whole number from 1 on"),
        ("p", 1, {"transactional_id": "t"}, r"leave transactional\.id out"),
    ],
)
def test_a_pool_that_cannot_work_is_refused_with_the_reason(
    prefix: str, size: int, more: dict[str, object], told: str
) -> None:
    with pytest.raises(txn.ConfigError, match=told):
        txn.ProducerPool(prefix, size, bootstrap_servers="h:1", **more)  # type: ignore[arg-type]
