"""A producer that its program forgot to close loses no record without a word."""

import gc
import logging
import subprocess
import sys
from contextlib import suppress

import pytest

import txn
from txn.client.engine import EngineName
from txn.testing import TestBroker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the client has logged; a broker of this process may log, too."""
    return [record.getMessage() for record in caplog.records if record.name == "txn.client"]


def run(program: str, servers: str, engine: EngineName) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, servers, engine]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_the_end_of_a_program_flushes_a_producer_that_was_not_closed(
    broker: TestBroker, engine: EngineName
) -> None:
    """Its records were gone, and the exit code was 0."""
    topic = broker.create_topic(f"at-exit-{engine}", partitions=1)
    program = """
import sys, txn

producer = txn.Producer(bootstrap_servers=sys.argv[1], engine=sys.argv[2], linger_ms=500)
for number in range(1000):
    producer.produce("at-exit-" + sys.argv[2], b"%d" % number)
"""
    ended = run(program, broker.bootstrap_servers, engine)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(broker, topic) == [b"%d" % number for number in range(1000)]


def test_the_end_of_a_program_with_its_broker_flushes_first(engine: EngineName) -> None:
    """The broker of the same process is closed behind its producers, whichever came first."""
    program = """
import sys, txn

broker = txn.Broker()
servers, engine = broker.bootstrap_servers, sys.argv[2]
producer = txn.Producer(bootstrap_servers=servers, engine=engine, linger_ms=500)
producer.produce("orders", b"7 apples")
"""
    ended = run(program, "", engine)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_end_of_a_program_tells_the_number_of_records_that_it_lost(engine: EngineName) -> None:
    program = """
import sys, txn

producer = txn.Producer(bootstrap_servers=sys.argv[1], engine=sys.argv[2], connect_timeout=0)
producer.produce("orders", b"7 apples")
producer.produce("orders", b"3 pears")
"""
    ended = run(program, "127.0.0.1:1", engine)

    assert "the producer was never closed, and 2 of its records are not known to be" in ended.stderr
    assert "refuses connections" in ended.stderr


def test_a_producer_that_is_dropped_sends_its_records(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = broker.create_topic(f"dropped-{engine}", partitions=1)
    servers = broker.bootstrap_servers
    ended = run(
        """
import gc, sys, txn

producer = txn.Producer(bootstrap_servers=sys.argv[1], engine=sys.argv[2], linger_ms=500)
producer.produce("dropped-" + sys.argv[2], b"7 apples")
del producer
gc.collect()
""",
        servers,
        engine,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(broker, topic) == [b"7 apples"]


def test_a_producer_that_is_collected_tells_the_number_of_records_that_it_lost(
    broker: TestBroker, caplog: pytest.LogCaptureFixture, engine: EngineName
) -> None:
    """Their reports had come while it produced others, and nothing raised them."""
    topic = broker.create_topic(f"small-{engine}", partitions=1, max_message_bytes=1000)
    producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0, engine=engine)
    delivery = producer.send(topic, b"x" * 2000)
    while not delivery.done():  # each call may collect them, and this record is never sent
        with suppress(txn.RejectedError):
            producer.produce(topic, b"x" * 2_000_000)
    with caplog.at_level(logging.ERROR, logger="txn.client"):
        del producer, delivery  # which keeps its producer
        gc.collect()

    [line] = lines(caplog)
    assert "the producer was never closed, and 1 of its records is not known" in line
    assert "MSG_SIZE_TOO_LARGE" in line


def test_a_producer_that_is_collected_after_its_records_were_stored_is_silent(
    broker: TestBroker, caplog: pytest.LogCaptureFixture, engine: EngineName
) -> None:
    topic = broker.create_topic(f"stored-{engine}", partitions=1)
    producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine=engine)
    producer.produce(topic, b"7 apples")
    producer.flush()
    del producer
    gc.collect()

    assert lines(caplog) == []


def test_a_producer_that_closes_with_records_does_not_call_them_on_their_way(
    engine: EngineName,
) -> None:
    """It advised to flush again, which a closed producer cannot."""
    producer = txn.Producer(bootstrap_servers="127.0.0.1:1", connect_timeout=60, engine=engine)
    producer.produce("orders", b"7 apples")
    with pytest.raises(txn.RetriableError, match=r"1 records .* are given up: the producer is clo"):
        producer.close(timeout=0)
