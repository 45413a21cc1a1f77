"""A hostile client against a broker, attack by attack.

An attack is a generator: its first step makes ready, each further one is a strike. It has at most
one request under way, unless flooding is the point. So the broker is measured and not how two cores
are shared.
"""

import random
import resource
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaException

from hostile.bombs import CODECS, TIME_MS, bomb, compressed_batch, record
from hostile.frames import SERVED, arrays_of, frame, huge_body
from support.clients import create_topic
from support.wire_client import RawConnection
from support.wire_producer import WireProducer, identity
from txn import _core
from txn.wire.kio import load_request_schema
from txn.wire.messages import encode_request

Attack = Callable[[str], Iterator[None]]

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT = 0, 1, 2, 3, 8
INIT_PRODUCER_ID, ADD_PARTITIONS, WRITE_MARKERS = 22, 24, 27
JOIN_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, CREATE_PARTITIONS = 11, 14, 18, 19, 37
ANSWER_S: Final = 60.0
"""Time that an attacker waits for an answer; it is its neighbour that must not wait."""

PROBE_S: Final = 10.0
"""Time that a probe waits for its answer."""

MIB: Final = 1 << 20
MILLION: Final = 1_000_000


def request_frame(key: int, version: int, **fields: Any) -> bytes:
    return frame(key, version, encode_request(key, version, fields))


@contextmanager
def connected(servers: str) -> Iterator[RawConnection]:
    with RawConnection(servers) as connection:
        connection.socket.settimeout(ANSWER_S)
        yield connection


def exchange(connection: RawConnection, request: bytes) -> bytes:
    """Send a request; return the answer."""
    connection.send_raw(request)
    return connection.read_frame()


def strike(servers: str, request: bytes) -> None:
    """Send a request over a connection of its own; that it is refused or closed is one answer."""
    with suppress(ConnectionError, TimeoutError), connected(servers) as connection:
        exchange(connection, request)


def repeat(servers: str, *requests: bytes) -> Iterator[None]:
    """Send requests one after another, over and over."""
    yield
    while True:
        for request in requests:
            strike(servers, request)
            yield


# ---------------------------------------------------------------- the data path


def fetch_one_partition_many_times(servers: str) -> Iterator[None]:
    create_topic(servers, "watched")
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1,
    }
    return repeat(
        servers,
        request_frame(
            FETCH,
            4,
            replica_id=-1,
            max_wait=200,
            min_bytes=1,
            max_bytes=MIB,
            isolation_level=0,
            topics=[{"topic": "watched", "partitions": [partition] * 60_000}],
        ),
    )


def produce_to_one_partition_many_times(servers: str) -> Iterator[None]:
    create_topic(servers, "crowded")
    batch = _core.encode_batch([(None, b"x")], TIME_MS)
    partitions = [{"index": 0, "records": batch}] * 10_000
    unknown = [{"index": 7, "records": b""}] * 100_000
    return repeat(
        servers,
        *(
            request_frame(
                PRODUCE,
                9,
                transactional_id=None,
                acks=-1,
                timeout=1_000,
                topic_data=[{"name": "crowded", "partition_data": each}],
            )
            for each in (partitions, unknown)
        ),
    )


def list_offsets_by_time_in_compressed_batches(servers: str) -> Iterator[None]:
    partitions = 20
    create_topic(servers, "history", partitions)
    with connected(servers) as connection:
        for index in range(partitions):
            exchange(connection, _produce("history", _long_batch(), index))

    def asked(indexes: list[int]) -> bytes:
        return request_frame(
            LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=0,
            topics=[
                {
                    "name": "history",
                    "partitions": [
                        {
                            "partition_index": index,
                            "current_leader_epoch": -1,
                            "timestamp": TIME_MS + 1,
                        }
                        for index in indexes
                    ],
                }
            ],
        )

    return repeat(servers, asked([0] * 100), asked(list(range(partitions))))


@cache
def _long_batch() -> bytes:
    """Half a million records, of which the last alone is as young as it is asked for."""
    count = 500_000
    old = record(20) * (count - 1)
    return compressed_batch(old + record(20, after_ms=1), "gzip", count=count, after_ms=1)


def _produce(topic: str, batch: bytes, index: int = 0) -> bytes:
    return request_frame(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1_000,
        topic_data=[{"name": topic, "partition_data": [{"index": index, "records": batch}]}],
    )


def bombs(servers: str) -> Iterator[None]:
    """To a plain topic, and to one whose keys are looked for."""
    create_topic(servers, "bombed")
    create_topic(servers, "bombed-compacted", cleanup_policy="compact")
    opened = {"gzip": 400 * MIB, "snappy": 16 * MIB, "lz4": 64 * MIB, "zstd": 64 * MIB}
    return repeat(
        servers,
        *(
            _produce(topic, bomb(codec, opened[codec]))
            for codec in CODECS
            for topic in ("bombed-compacted", "bombed")
        ),
    )


# ---------------------------------------------------------------- the control path


def a_million_partitions(servers: str) -> Iterator[None]:
    create_topic(servers, "growing")
    topic = {"num_partitions": MILLION, "replication_factor": -1, "assignments": [], "configs": []}
    many = [{**topic, "name": f"many-{number}", "num_partitions": 20_000} for number in range(50)]
    growing = {"name": "growing", "count": MILLION, "assignments": None}
    return repeat(
        servers,
        *(
            request_frame(CREATE_TOPICS, 5, topics=each, timeout=1_000, validate_only=validate_only)
            for each in ([{**topic, "name": "million"}], many)
            for validate_only in (True, False)
        ),
        request_frame(CREATE_PARTITIONS, 1, topics=[growing], timeout=1_000, validate_only=False),
    )


def topics_made_by_asking_for_them(servers: str) -> Iterator[None]:
    """Some thousand, since each is made as it was asked for, by Apache Kafka too."""
    return repeat(
        servers,
        *(
            request_frame(
                METADATA,
                4,
                topics=[{"name": f"asked-{part}-{number}"} for number in range(5_000)],
                allow_auto_topic_creation=True,
            )
            for part in range(2)
        ),
    )


def arrays_of_millions(servers: str) -> Iterator[None]:
    """Every array of every API, in its oldest and its newest version, as long as 8 MiB hold."""
    kinds = []
    for key, (low, high) in sorted(SERVED.items()):
        for version in {max(low, 3) if key == PRODUCE else low, high}:
            schema = load_request_schema(key, version)
            kinds += [(key, version, schema, where) for where in arrays_of(schema)]
    random.Random(4).shuffle(kinds)
    yield
    for key, version, schema, where in kinds:
        request = frame(key, version, huge_body(schema, where, 8 * MIB))
        strike(servers, request)
        yield


def groups_with_large_metadata(servers: str) -> Iterator[None]:
    large = bytes(50 * MIB)
    join = request_frame(
        JOIN_GROUP,
        5,
        group_id="large",
        session_timeout=6_000,
        rebalance_timeout=6_000,
        member_id="",
        group_instance_id="static",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": large}],
    )
    sync = request_frame(
        SYNC_GROUP,
        3,
        group_id="large",
        generation_id=1,
        member_id="nobody",
        group_instance_id=None,
        assignments=[{"member_id": "nobody", "assignment": large}],
    )
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "x" * len(large),
    }
    commit = request_frame(
        OFFSET_COMMIT,
        8,
        group_id="large-offsets",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "orders", "partitions": [partition]}],
    )
    return repeat(servers, join, sync, commit)


# ---------------------------------------------------------------- transactions


def transactions_over_untouched_partitions(servers: str) -> Iterator[None]:
    """Begun and ended, without a record."""
    _create_once(servers, "untouched", 8_000)
    return _wide_transactions(servers, "untouched", 8_000)


def transactions_over_opened_partitions(servers: str) -> Iterator[None]:
    """Each partition has a log, and the first marker makes its files."""
    _create_once(servers, "opened", 1_000)
    with connected(servers) as connection:
        exchange(connection, _fetch_of_many("opened", 1_000))
    return _wide_transactions(servers, "opened", 1_000)


def _create_once(servers: str, topic: str, partitions: int) -> None:
    """Create a topic, unless an earlier try has."""
    with suppress(KafkaException):
        create_topic(servers, topic, partitions)


def _fetch_of_many(topic: str, count: int) -> bytes:
    partitions = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in range(count)
    ]
    return request_frame(
        FETCH,
        4,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        topics=[{"topic": topic, "partitions": partitions}],
    )


def _wide_transactions(servers: str, topic: str, count: int) -> Iterator[None]:
    with WireProducer(servers, f"wide-{topic}") as writer:
        writer.socket.settimeout(ANSWER_S)
        producer = identity(writer.start(two_phase=False))
        yield
        while True:
            for committed in (True, False):
                _add(writer, producer, topic, range(count))
                yield
                producer = identity(writer.end(producer, committed=committed))
                yield


def _add(
    writer: WireProducer, producer: tuple[int, int], topic: str, indexes: Iterable[int]
) -> None:
    answer = RawConnection.ask(
        writer,
        ADD_PARTITIONS,
        3,
        v3_and_below_transactional_id=writer.transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[{"name": topic, "partitions": list(indexes)}],
    )
    for added in answer.results_by_topic_v3_and_below[0].results_by_partition:
        assert int(added.partition_error_code) == 0, answer


def a_transaction_that_grows_by_one_partition(servers: str) -> Iterator[None]:
    """Each request is small, and its record has all partitions of the transaction."""
    count = 10_000
    _create_once(servers, "grown", count)
    with WireProducer(servers, "growing") as writer:
        writer.socket.settimeout(ANSWER_S)
        producer = identity(writer.start(two_phase=False))
        held = 8_000
        _add(writer, producer, "grown", range(held))
        yield
        for start in range(held, count, 100):
            for index in range(start, start + 100):
                _add(writer, producer, "grown", [index])
            yield


def markers_beside_many_transactional_ids(servers: str) -> Iterator[None]:
    """An operator's markers for thousands of partitions, of a producer that nobody knows."""
    count = 2_000
    _create_once(servers, "marked", count)
    with connected(servers) as connection:
        for number in range(5_000):
            exchange(
                connection,
                request_frame(
                    INIT_PRODUCER_ID,
                    1,
                    transactional_id=f"idle-{number}",
                    transaction_timeout=60_000,
                ),
            )
    marker = {
        "producer_id": MILLION,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "marked", "partition_indexes": list(range(count))}],
        "coordinator_epoch": 0,
    }
    return repeat(servers, request_frame(WRITE_MARKERS, 1, markers=[marker]))


# ---------------------------------------------------------------- connections


def pipelined_floods(servers: str) -> Iterator[None]:
    ask = frame(API_VERSIONS, 0, b"")
    flood = ask * 2_000
    yield
    while True:
        with connected(servers) as connection:
            connection.send_raw(flood)
            for _ in range(2_000):
                connection.read_frame()
        yield


def half_frames(servers: str) -> Iterator[None]:
    """Connections that begin a request and go on a byte at a time."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(servers)) for _ in range(200)]
        request = _produce("orders", bytes(1_000))
        for number, connection in enumerate(slow):
            connection.send_raw(request[: number % 60])
        yield
        for position in range(60, len(request) - 1):
            for connection in slow:
                connection.send_raw(request[position : position + 1])
            yield


def huge_announced_frames(servers: str) -> Iterator[None]:
    """Requests of 100 MiB that are announced, begun and never come; and impossible ones."""
    with ExitStack() as stack:
        yield
        while True:
            for size in [100_000_000] * 20 + [(1 << 31) - 1, -1, 0]:
                connection = stack.enter_context(connected(servers))
                connection.send_raw(struct.pack(">ihhi", size, PRODUCE, 9, 1)[:14])
            yield


def readers_that_never_read(servers: str) -> Iterator[None]:
    create_topic(servers, "unread")
    with connected(servers) as connection:
        for _ in range(8):
            exchange(
                connection, _produce("unread", _core.encode_batch([(None, bytes(900_000))], 0))
            )
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 * MIB}
    request = request_frame(
        FETCH,
        4,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=50 * MIB,
        isolation_level=0,
        topics=[{"topic": "unread", "partitions": [partition]}],
    )
    with ExitStack() as stack:
        yield
        for _ in range(100):
            connection = stack.enter_context(connected(servers))
            connection.send_raw(request * 20)
            yield


def connections_opened_and_closed(servers: str) -> Iterator[None]:
    host, _, port = servers.rpartition(":")
    yield
    while True:
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(socket.create_connection((host, int(port)), ANSWER_S))
        yield


def five_thousand_connections(servers: str) -> Iterator[None]:
    """Held all the time; at each strike a thousand leave at once, and as many come."""
    host, _, port = servers.rpartition(":")
    # The broker needs as many, and half of its own are for files.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    batch = min(1_000, hard // 20)

    def come(stack: ExitStack) -> None:
        for _ in range(batch):
            one = stack.enter_context(socket.create_connection((host, int(port)), ANSWER_S))
            one.sendall(frame(API_VERSIONS, 0, b"")[:9])

    stacks = [ExitStack() for _ in range(5)]
    try:
        for stack in stacks:
            come(stack)
        yield
        while True:
            for stack in stacks:
                stack.close()
                come(stack)
                yield
    finally:
        for stack in stacks:
            stack.close()


def dripped_bytes(servers: str) -> Iterator[None]:
    """Clients that send a request, or read an answer, a byte at a time."""
    ask = frame(API_VERSIONS, 3, b"\0\0\0") * 2_000
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(servers)) for _ in range(300)]
        for connection in slow[::2]:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.socket.setblocking(False)
            with suppress(BlockingIOError):
                connection.socket.send(ask)
        yield
        while True:
            for number, connection in enumerate(slow):
                with suppress(OSError):
                    if number % 2:
                        connection.send_raw(b"\0")
                    else:
                        connection.socket.recv(1)
            yield


def half_sent_http_requests(address: tuple[str, int]) -> Attack:
    """They come to the listener of probes. Each strike is a sound probe, to be answered."""

    def attack(_servers: str) -> Iterator[None]:
        with ExitStack() as stack:
            yield
            while True:
                for _ in range(50):
                    slow = stack.enter_context(socket.create_connection(address, ANSWER_S))
                    slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                for path in ("/healthz", "/readyz", "/metrics"):
                    with socket.create_connection(address, PROBE_S) as probe:
                        probe.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                        assert probe.recv(15) == b"HTTP/1.1 200 OK"
                yield

    return attack


def bytes_of_other_protocols(servers: str) -> Iterator[None]:
    tls_hello = bytes.fromhex("16030100a5010000a10303") + bytes(160)
    sasl = struct.pack(">ihhih5s", 15, 17, 0, 1, -1, b"PLAIN")
    http = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
    yield
    while True:
        for data in (tls_hello, sasl, http, b"\0" * 64, b"\xff" * 64, b"SSH-2.0-OpenSSH_9.0\r\n"):
            with connected(servers) as connection:
                connection.send_raw(data)
                connection.socket.settimeout(0.05)
                with suppress(ConnectionError, TimeoutError):  # closed, or it waits for the rest
                    connection.socket.recv(1)
        yield


ATTACKS: Final[tuple[Attack, ...]] = (
    fetch_one_partition_many_times,
    produce_to_one_partition_many_times,
    list_offsets_by_time_in_compressed_batches,
    bombs,
    a_million_partitions,
    topics_made_by_asking_for_them,
    arrays_of_millions,
    groups_with_large_metadata,
    transactions_over_untouched_partitions,
    transactions_over_opened_partitions,
    a_transaction_that_grows_by_one_partition,
    markers_beside_many_transactional_ids,
    pipelined_floods,
    half_frames,
    huge_announced_frames,
    readers_that_never_read,
    connections_opened_and_closed,
    five_thousand_connections,
    dripped_bytes,
    bytes_of_other_protocols,
)
