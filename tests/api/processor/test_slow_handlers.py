"""A handler that takes long, a back-off, a rebalance and a stop: nothing is lost or doubled."""

import signal
import subprocess
import sys
import threading
import time

from support.processors import WAIT_S, MakeProcessor, running, until, values
from txn.client.engine import EngineName
from txn.processor import Record
from txn.testing import TestBroker

Topics = dict[str, str]

HURRIED = {
    "consumer_config": {
        "session.timeout.ms": 6_000,
        "max.poll.interval.ms": 6_000,
        "heartbeat.interval.ms": 500,
    },
    "producer_config": {"transaction.timeout.ms": 1_000},
}


def test_a_slow_handler_keeps_its_partitions_and_holds_no_reader_back(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    """The handler takes longer than max.poll.interval.ms and transaction.timeout.ms."""
    calls = []
    is_slow = threading.Event()

    def handle(record: Record) -> bytes | None:
        calls.append(record.value)
        if record.value == b"slow":
            is_slow.set()
            time.sleep(7)  # the time that the handler takes is what is tested
        return record.value

    shared.produce(topics["in"], "slow", "1", partition=0)
    processor = make(handle, **HURRIED)
    with running(processor) as errors:
        assert is_slow.wait(WAIT_S)
        states = shared.transactions()
        assert states.get(f"id-{topics['in']}-0") != "Ongoing"
        shared.wait_for_records(topics["out"], 2, timeout=WAIT_S)
    assert errors == []
    assert set(calls) == {b"1", b"slow"}
    assert len(calls) == 2
    assert processor.metrics().aborted == 0


def test_a_back_off_keeps_the_partitions_too(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    attempts = []

    def handle(record: Record) -> bytes | None:
        attempts.append(time.monotonic())
        if len(attempts) == 1:
            raise ValueError
        return record.value

    shared.produce(topics["in"], "1", partition=0)
    processor = make(handle, backoff=(14.0, 14.0), **HURRIED)
    processor.run_until_caught_up(WAIT_S)
    assert attempts[1] - attempts[0] > 6.5
    assert processor.metrics().aborted == 0
    assert values(shared, topics["out"]) == [b"1"]


def test_a_rebalance_while_the_handler_runs_doubles_nothing(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    handled: list[bytes | None] = []
    may_end = threading.Event()

    def handle(record: Record) -> bytes | None:
        handled.append(record.value)
        assert may_end.wait(WAIT_S)
        return record.value

    for index in range(2):
        shared.produce(topics["in"], f"a{index}", f"b{index}", partition=index)
    first = make(handle, attempts=1)
    second = make(handle, attempts=1, transactional_id=f"other-{topics['in']}")
    with running(first) as errors:
        until(lambda: len(handled) > 0)
        with running(second) as others:
            until(lambda: len(shared.members(f"group-{topics['in']}")) == 2)
            until(lambda: len(handled) > 1)
            may_end.set()
            shared.wait_for_records(topics["out"], 4, timeout=WAIT_S)
            until(lambda: shared.unconsumed(f"group-{topics['in']}", [topics["in"]]) == [])
    assert (errors, others) == ([], [])
    assert values(shared, topics["out"]) == [b"a0", b"a1", b"b0", b"b1"]
    assert first.metrics().aborted == 1


def test_the_results_of_an_aborted_transaction_are_not_computed_again(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    handled: list[bytes | None] = []

    def handle(record: Record) -> bytes | None:
        handled.append(record.value)
        return record.value

    shared.produce(topics["in"], *"123", partition=0)
    shared.refuse_next_append(topics["out"])
    processor = make(handle)
    processor.run_until_caught_up(WAIT_S)
    assert processor.metrics().aborted >= 1
    assert values(shared, topics["out"]) == [b"1", b"2", b"3"]
    assert handled == [b"1", b"2", b"3"]


PROGRAM = """
import sys, time
import txn

def handle(record):
    print("handling", flush=True)
    time.sleep(float(sys.argv[4]))
    return record.value

txn.Processor(
    sys.argv[2], handle, sys.argv[3], group_id=sys.argv[2], transactional_id=sys.argv[2],
    bootstrap_servers=sys.argv[1], stop_timeout=float(sys.argv[5]), engine=sys.argv[6],
).run()
print("done", flush=True)
"""


def start(
    broker: TestBroker, topics: Topics, engine: EngineName, handler_s: float, stop_s: float
) -> subprocess.Popen[str]:
    times = [str(handler_s), str(stop_s)]
    words = [broker.bootstrap_servers, topics["in"], topics["out"], *times, engine]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "handling\n"
    return process


def test_sigterm_lets_the_batch_under_way_commit_and_ends_with_0(
    shared: TestBroker, topics: Topics, engine: EngineName
) -> None:
    shared.produce(topics["in"], "1", partition=0)
    process = start(shared, topics, engine, 1.5, 30)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=WAIT_S)[0] == "done\n"
    assert process.returncode == 0
    assert values(shared, topics["out"]) == [b"1"]
    assert shared.unconsumed(topics["in"], [topics["in"]]) == []


def test_a_handler_that_outlives_stop_timeout_is_left_and_its_batch_comes_again(
    shared: TestBroker, topics: Topics, engine: EngineName
) -> None:
    shared.produce(topics["in"], "1", partition=0)
    process = start(shared, topics, engine, 600, 0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WAIT_S)[0] == "done\n"
    assert process.returncode == 0
    assert values(shared, topics["out"]) == []
    assert shared.unconsumed(topics["in"], [topics["in"]]) != []
