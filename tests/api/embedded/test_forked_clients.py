"""A forked child can neither use nor close its parent's producers and consumers."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import txn
from api.embedded.forked import CHILD_S, WAIT_S, in_child, produce_committed
from support.clients import read_all
from txn.client.engine import EngineName


def test_a_child_is_told_that_a_producer_is_its_parents(engine: EngineName) -> None:
    """The story: librdkafka's threads are not in the child, and the first flush never came back."""
    with (
        txn.Broker() as broker,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="a", engine=engine
        ) as producer,
    ):

        def work() -> None:
            with pytest.raises(txn.ForkedError, match="producer 'a' was opened in process"):
                producer.transaction().__enter__()
            producer.close()

        assert in_child(work) == 0
        with producer.transaction() as t:
            t.produce("orders", b"1")


def test_a_child_that_ends_in_a_transaction_leaves_it_to_the_parent(engine: EngineName) -> None:
    with (
        txn.Broker() as broker,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="a", engine=engine
        ) as producer,
    ):
        with producer.transaction() as t:
            t.produce("orders", b"1")

            def work() -> None:
                with pytest.raises(txn.ForkedError):
                    t.produce("orders", b"2")
                with pytest.raises(txn.ForkedError):
                    t.__exit__(None, None, None)

            assert in_child(work) == 0
        assert read_all(broker.bootstrap_servers, "orders") == [b"1"]


def test_a_child_that_exits_within_a_block_ends_with_the_code_it_gave(engine: EngineName) -> None:
    """ForkedError took the place of `sys.exit(0)`, and the child ended with 1."""
    with (
        txn.Broker() as broker,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="a", engine=engine
        ) as producer,
        txn.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", engine=engine
        ) as consumer,
    ):
        with producer.transaction() as t:
            t.produce("orders", b"1")

            def exit_from_all() -> None:
                with pytest.raises(SystemExit), ExitStack() as open_ones:
                    for each in (broker, producer, consumer, t):
                        open_ones.push(each)
                    sys.exit(0)

            assert in_child(exit_from_all) == 0
        assert read_all(broker.bootstrap_servers, "orders") == [b"1"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_is_not_copied_and_the_error_says_what_to_do(
    copied: Callable[[object], object], engine: EngineName
) -> None:
    with (
        txn.Broker() as broker,
        txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine=engine) as producer,
        txn.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", engine=engine
        ) as consumer,
    ):
        for client in (producer, consumer):
            with pytest.raises(TypeError, match=r"cannot be copied or pickled: .* Open another"):
                copied(client)


COLLECT_IN_THE_CHILD = """\
import gc, os
os.register_at_fork(after_in_child=gc.collect)  # as any hook may that makes objects
import txn

class Cycle:
    pass

def drop(servers):
    cycle = Cycle()
    cycle.itself = cycle
    cycle.client = {open}
    {then}

gc.disable()
with txn.Broker() as broker:
    for _ in range(3):
        drop(broker.bootstrap_servers)
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
print("done")
"""

OPEN_PRODUCER = {
    "confluent-kafka": (
        "txn.Producer({'on_delivery': lambda *_: cycle}, bootstrap_servers=servers, "
        "engine='confluent-kafka')"
    ),
    "native": "txn.Producer(bootstrap_servers=servers, engine='native')",
}

OPEN_CONSUMER = (
    "txn.Consumer({'error_cb': lambda _: cycle, 'group.id': 'g'}, bootstrap_servers=servers, "
    "engine='ENGINE')"
)
OPENED = {
    "producer": OPEN_PRODUCER,
    "consumer": {name: OPEN_CONSUMER.replace("ENGINE", name) for name in OPEN_PRODUCER},
}

USE = "cycle.client.produce('orders', b'1'); cycle.client.flush()"

FAIL = f"""
    {USE}
    try:
        cycle.client.produce('orders', b'x' * 2_000_000)
    except txn.RejectedError as error:
        cycle.error = error  # its traceback names the engine
    cycle.client.close()
    del cycle.client
"""


@pytest.mark.parametrize(
    ("made", "then"),
    [
        ("producer", USE),
        ("producer", FAIL.strip()),
        ("consumer", "cycle.client.subscribe(['orders'])"),
    ],
    ids=["producer", "closed producer", "consumer"],
)
def test_a_child_that_collects_its_parents_dropped_clients_goes_on(
    made: str, then: str, engine: EngineName
) -> None:
    """It died by SIGSEGV: librdkafka waited there for threads that are not in it."""
    program = COLLECT_IN_THE_CHILD.format(open=OPENED[made][engine], then=then)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD_S
    )
    assert done.stdout == "done\n", done.stderr


def test_a_child_is_told_that_a_consumer_is_its_parents(engine: EngineName) -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        produce_committed(servers, b"1")
        consumer = txn.Consumer(
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            engine=engine,
        )
        consumer.subscribe(["orders"])

        def work() -> None:
            with pytest.raises(txn.ForkedError, match="consumer of group 'g' was opened in"):
                consumer.poll(1)
            consumer.close()

        assert in_child(work) == 0
        assert [message.value() for message in consumer.consume(1, WAIT_S)] == [b"1"]
        consumer.close()


def test_a_child_ends_in_order_though_its_parents_clients_are_open() -> None:
    program = """\
import os, sys, txn
with txn.Broker() as broker:
    servers = broker.bootstrap_servers
    producer = txn.Producer(bootstrap_servers=servers, transactional_id="a")
    consumer = txn.Consumer(bootstrap_servers=servers, group_id="g")
    if os.fork() == 0:
        del producer, consumer
        sys.exit(0)
    print(os.wait()[1])
    consumer.close()
    producer.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
