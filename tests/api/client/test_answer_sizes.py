"""A broker that announces an answer of more bytes than any client reads: nobody waits for them."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

import txn
from support.clients import WAIT_S
from txn.wire.api_keys import ApiKey

ANSWER_BYTES_MAX = 100 << 20
"""As in rust/txn-client/src/connection.rs and in its engine/link.rs."""


@dataclass
class Relay:
    """A relay to a broker that announces a size in place of each answer to one API.

    Attributes:
        size: The size.
        is_left: Set once a client has closed a connection with such an answer.
    """

    api_key: ApiKey
    size: int
    servers: str = ""
    is_left: threading.Event = field(default_factory=threading.Event)

    def talk(self, client: socket.socket, broker: socket.socket) -> None:
        """Relay requests and their answers, one after another."""
        while (request := _frame(client)) is not None:
            if struct.unpack_from(">h", request)[0] == self.api_key:
                client.sendall(struct.pack(">i", self.size))
                client.settimeout(WAIT_S)
                if client.recv(1) == b"":
                    self.is_left.set()
                return
            broker.sendall(struct.pack(">i", len(request)) + request)
            answer = _frame(broker)
            assert answer is not None
            client.sendall(struct.pack(">i", len(answer)) + answer)


def _frame(connection: socket.socket) -> bytes | None:
    """A frame without its size; None: the peer has closed."""
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return None
    return connection.recv(int.from_bytes(size), socket.MSG_WAITALL)


@contextmanager
def announcing(servers: str, api_key: ApiKey, size: int) -> Iterator[Relay]:
    relay = Relay(api_key, size)
    host, _, port = servers.rpartition(":")
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def talk(client: socket.socket) -> None:
        with (
            client,
            suppress(OSError),
            socket.create_connection((host, int(port))) as broker,
        ):
            open_sockets.append(broker)
            relay.talk(client, broker)

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            open_sockets.append(client)
            threads.append(threading.Thread(target=talk, args=(client,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        relay.servers = f"127.0.0.1:{server.getsockname()[1]}"
        acceptor = threading.Thread(target=serve)
        acceptor.start()
        try:
            yield relay
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for each in open_sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("size", [-1, 3, ANSWER_BYTES_MAX + 1, 2**31 - 1])
def test_an_administrator_does_not_wait_for_an_answer_that_is_too_large(
    servers: str, size: int
) -> None:
    with announcing(servers, ApiKey.METADATA, size) as relay:
        with (
            pytest.raises(txn.TxnError, match=r"a frame of \d+ bytes"),
            txn.admin.connect(relay.servers) as cluster,
        ):
            cluster.topics.list()
        assert relay.is_left.wait(WAIT_S)


@pytest.mark.parametrize("size", [-1, 3, ANSWER_BYTES_MAX + 1, 2**31 - 1])
def test_the_native_engine_does_not_wait_for_an_answer_that_is_too_large(
    servers: str, size: int
) -> None:
    with announcing(servers, ApiKey.METADATA, size) as relay:
        producer = txn.Producer(
            {"bootstrap.servers": relay.servers, "message.timeout.ms": 2_000}, engine="native"
        )
        producer.produce("orders", b"1")
        with pytest.raises(txn.RetriableError, match="not stored within"):
            producer.flush()
        with suppress(txn.TxnError):
            producer.close()
        assert relay.is_left.wait(WAIT_S)
