"""`queued.max.request.bytes`: how much memory clients can make a broker hold by large requests."""

import re
import selectors
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from support.brokers import BrokerProcess
from support.clients import create_topic
from support.wire_client import WAIT_S, RawConnection
from txn.wire.messages import encode_request

MIB = 1 << 20
CLIENTS = 48
PRODUCE, VERSION = 0, 9
TO_NOWHERE = {
    "acks": -1,
    "timeout": 1000,
    "topic_data": [
        {"name": "unknown", "partition_data": [{"index": 0, "records": bytes(4 * MIB)}]},
    ],
}
REQUEST = struct.pack(">hhihx", PRODUCE, VERSION, 7, -1) + encode_request(
    PRODUCE, VERSION, TO_NOWHERE
)
FRAME = struct.pack(">i", len(REQUEST)) + REQUEST
SLICE_BYTES = 64 << 10


def send_slowly(sockets: Sequence[socket.socket]) -> list[bytes]:
    """Send a large request on each, a slice at a time in turns; return the answer to each."""
    left = {client: memoryview(FRAME) for client in sockets}
    answers = dict.fromkeys(sockets, b"")
    with selectors.DefaultSelector() as selector:
        for client in sockets:
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while selector.get_map():
            ready = selector.select(WAIT_S)
            assert ready, "nobody can go on"
            for key, events in ready:
                assert isinstance(key.fileobj, socket.socket)
                client = key.fileobj
                if events & selectors.EVENT_WRITE and left[client]:
                    left[client] = left[client][client.send(left[client][:SLICE_BYTES]) :]
                if not left[client]:
                    selector.modify(client, selectors.EVENT_READ)
                if events & selectors.EVENT_READ:
                    answers[client] = client.recv(SLICE_BYTES)
                    selector.unregister(client)
    return list(answers.values())


def most_memory(pid: int) -> int:
    """The most bytes a process has had in memory."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_many_large_requests_that_come_slowly_are_answered_within_the_limit(tmp_path: Path) -> None:
    """They were all read at once, and took 140 MiB."""
    broker = BrokerProcess(
        tmp_path / "data",
        f"socket.request.max.bytes={8 * MIB}",
        f"queued.max.request.bytes={8 * MIB}",
    )
    before = most_memory(broker.pid)
    with ExitStack() as stack:
        address = ("127.0.0.1", broker.port)
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
        answers = send_slowly(clients)
    grown = most_memory(broker.pid) - before
    assert broker.stop() == 0
    assert all(struct.unpack_from(">i", answer, 4) == (7,) for answer in answers)
    assert grown < 40 * MIB


TOPICS, PARTITIONS = 12, 10_000
SILENT = 150
METADATA, ALL_TOPICS = 3, struct.pack(">i", -1)
PATIENCE_S = 60.0
"""The answers before have to be given up, on a slow machine too."""


def test_answers_that_nobody_takes_are_within_the_limit_and_others_are_served(
    tmp_path: Path,
) -> None:
    """Each of many clients made the broker hold an answer of a megabyte, and read none of it."""
    broker = BrokerProcess(
        tmp_path / "data",
        f"socket.request.max.bytes={4 * MIB}",
        f"queued.max.request.bytes={4 * MIB}",
    )
    servers = broker.bootstrap_servers
    for number in range(TOPICS):
        create_topic(servers, f"wide-{number}", PARTITIONS)
    with RawConnection(servers) as first:
        first.send_body(METADATA, 1, ALL_TOPICS)
        answer = first.read_frame()
    before = most_memory(broker.pid)
    with ExitStack() as stack:
        for _ in range(SILENT):
            silent = stack.enter_context(RawConnection(servers))
            for _ in range(3):
                silent.send_body(METADATA, 1, ALL_TOPICS)
        other = stack.enter_context(RawConnection(servers, "127.0.0.2"))
        other.socket.settimeout(PATIENCE_S)
        other.send_body(METADATA, 1, ALL_TOPICS)
        assert other.read_frame() == answer
    grown = most_memory(broker.pid) - before
    assert broker.stop() == 0
    assert len(answer) > 2 * MIB
    assert grown < SILENT * len(answer) // 4
