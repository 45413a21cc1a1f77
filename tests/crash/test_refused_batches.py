"""`txn produce` to a partition whose disk refuses batches: it ends at the first, with the reason.

It tried for 60 s, and then said "flush again", which nobody can do from a shell.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.brokers import BrokerProcess
from support.clients import create_topic, plain_producer, read_all, send
from support.command_line import run_txn
from txn.server.lifecycle.broker import service_of

pytestmark = pytest.mark.crash

BLOCK = ("--transactional-id", "loader")


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker with the topic `good`, and `bad` whose partition is refused."""
    with txn.Broker() as broker:
        for topic in ("bad", "good"):
            create_topic(broker.bootstrap_servers, topic)
            send(plain_producer(broker.bootstrap_servers), topic, [b"1"])
        service_of(broker).node.host.refuse_partition("bad", 0, "a marker is lost")
        yield broker.bootstrap_servers


@pytest.mark.parametrize("block", [(), BLOCK])
def test_a_refused_partition_is_named_at_once(servers: str, block: tuple[str, ...]) -> None:
    code, out, told = run_txn("produce", "bad", "--bootstrap", servers, *block, stdin=b"2\n")
    assert (code, out) == (1, "")
    assert "KAFKA_STORAGE_ERROR: the broker cannot write to bad-0" in told
    assert "flush again" not in told
    assert run_txn("produce", "good", "--bootstrap", servers, stdin=b"2\n")[0] == 0
    assert read_all(servers, "good") == [b"1", b"2"]


def test_a_full_disk_is_told_at_once_with_the_number_of_records_that_are_stored(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data")
    try:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"x" * 100_000])
        log = broker.data / "orders-0" / f"{0:020}.log"
        broker.limit_files(log.stat().st_size + 500)
        lines = b"y" * 2_000 + b"\n"
        code, _, told = run_txn("produce", "orders", "--bootstrap", servers, stdin=lines)
        assert code == 1
        assert "KAFKA_STORAGE_ERROR: the broker cannot write to orders-0" in told
        broker.limit_files()
        assert read_all(servers, "orders") == [b"x" * 100_000]
    finally:
        broker.stop()
