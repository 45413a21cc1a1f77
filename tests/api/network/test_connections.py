"""When a broker closes connections by itself."""

import socket
import subprocess
import sys
import threading

import pytest

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from txn.errors import BrokerFailedError
from txn.server.lifecycle.broker import service_of


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


HAS_IPV6 = _has_ipv6()

SERVE_WITH_A_BUG = """\
from threading import Thread

from txn.cli import main
from txn.server.lifecycle.broker import Broker, service_of

told = Broker.call_when_failed

def break_off(broker, call):
    told(broker, call)
    # The reactor's own thread runs it once. One of the two is refused, as a bug would be told.
    Thread(target=service_of(broker).run_reactor, args=[0], daemon=True).start()

Broker.call_when_failed = break_off
main()
"""


def connect(broker: txn.Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def test_a_connection_that_is_idle_for_connections_max_idle_ms_is_closed() -> None:
    with txn.Broker(connections_max_idle_ms=200) as broker, connect(broker) as idle:
        assert idle.recv(1) == b""


def test_a_broker_whose_reactor_broke_off_says_so_once_and_to_latecomers() -> None:
    """The story: a reactor's panic left half a broker, whose clients waited for ever."""
    heard, heard_late = threading.Event(), threading.Event()
    with txn.Broker() as broker:
        assert broker.failure is None
        broker.call_when_failed(heard.set)

        # The reactor's own thread runs it once. One of the two is refused, as a bug would be told.
        threading.Thread(target=service_of(broker).run_reactor, args=[0], daemon=True).start()

        assert heard.wait(WAIT_S)
        broker.call_when_failed(heard_late.set)
        assert heard_late.is_set()
        assert isinstance(broker.failure, BrokerFailedError)
        assert "each runs once" in broker.failure.message


def test_serve_ends_with_exit_code_1_when_a_bug_ends_its_service() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE_WITH_A_BUG, "serve", "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 1
    assert "txn: a bug ended the broker's service" in done.stderr


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
def test_an_ipv6_address_is_told_in_brackets_and_serves_clients() -> None:
    with txn.Broker(host="::1") as broker:
        host, _, _ = broker.bootstrap_servers.rpartition(":")
        assert host == "[::1]"
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a"])
        assert read_all(broker.bootstrap_servers, "orders") == [b"a"]
