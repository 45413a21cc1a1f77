"""A client that leaves in the middle of an answer, in a program that lets SIGPIPE end it."""

import subprocess
import sys
from typing import Final

import pytest

from support.brokers import TESTS, environment

FETCHED: Final = """
import signal, socket, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as programs do whose output goes to `head`
import txn
from hostile.attacks import request_frame
from support.clients import create_topic, plain_producer, read_all, send

def fetch():
    partition = dict(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1,
        partition_max_bytes=1 << 26,
    )
    return request_frame(
        1, 5, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1 << 26, isolation_level=0,
        topics=[dict(topic="t", partitions=[partition])],
    )

with txn.Broker() as broker:
    servers = broker.bootstrap_servers
    create_topic(servers, "t")
    send(plain_producer(servers), "t", [bytes(900_000)] * 30)
    host, port = servers.split(":")
    for number in range(100):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(fetch())
            client.shutdown(socket.SHUT_WR)  # then the kernel says EPIPE, and not ECONNRESET
            client.recv(1)
            time.sleep(number % 5 / 1000)
    assert len(read_all(servers, "t")) == 30
print("served")
"""


SCRAPED: Final = """
import signal, socket, struct
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
import txn

with txn.Broker(metrics="127.0.0.1:0") as broker:
    host, port = broker.metrics_address.split(":")
    for _ in range(100):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
            client.shutdown(socket.SHUT_WR)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /healthz HTTP/1.1\\r\\n\\r\\n")
        assert client.recv(15).startswith(b"HTTP/1.1 200")
print("served")
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("program", [FETCHED, SCRAPED], ids=["fetch", "scrape"])
def test_a_client_that_leaves_an_answer_ends_no_process(program: str) -> None:
    """The story: sendfile raises SIGPIPE, and has no flag against it as the other calls have."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=TESTS,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout == "served\n"
