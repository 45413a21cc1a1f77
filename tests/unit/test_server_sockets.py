"""The sockets below the broker: every version of Produce and Fetch, and requests that no client
would send.

kio writes the requests and reads the answers, so both sides of the wire format are checked by
code that is not ours. Further promises of the server are tested in `rust/txn-net/tests/sockets/`.
"""

import datetime
import importlib
import select
import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.static.primitive import i32Timedelta

from support.wire_client import WAIT_S, RawConnection
from txn import _core
from txn.broker.apis.table import SERVED_BY_REACTORS
from txn.partition import ProducerStateManager
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

PRODUCE_VERSIONS = SERVED_BY_REACTORS[ApiKey.PRODUCE]
FETCH_VERSIONS = SERVED_BY_REACTORS[ApiKey.FETCH]
TOPIC = "pay"
TOPIC_ID = uuid.UUID(int=7)
MAX_REQUEST_BYTES = 1 << 20


class Sockets:
    """A server with one topic of two partitions, and its reactors."""

    def __init__(self, directory: Path) -> None:
        self.server = _core.Server(
            [("PLAINTEXT", "127.0.0.1", 0, None)],
            _core.Durability(1),
            reactors=2,
            max_request_bytes=MAX_REQUEST_BYTES,
            max_queued_bytes=-1,
            max_connections=100,
            max_idle_ms=-1,
            sync_acks_all=False,
        )
        self.logs = [
            _core.PartitionLog(str(directory / f"{TOPIC}-{index}"), ProducerStateManager())
            for index in range(2)
        ]
        self.asked: list[int] = []
        self.fault: ErrorCode | None = None
        self.server.add_topic(TOPIC, TOPIC_ID.bytes, 2, self._log_of, is_internal=False)
        self._threads = [
            threading.Thread(target=self.server.run_reactor, args=(index,)) for index in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def _log_of(self, index: int) -> _core.PartitionLog | int:
        self.asked.append(index)
        return self.logs[index] if self.fault is None else self.fault

    def connect(self) -> RawConnection:
        [(host, port)] = self.server.addresses
        return RawConnection(f"{host}:{port}")

    def take_request(self) -> "_core.ClientRequest":
        waiting = select.poll()
        waiting.register(self.server.wakeup_fd, select.POLLIN)
        readable = waiting.poll(WAIT_S * 1000)
        assert readable, "no request came for Python"
        (request,) = self.server.take()
        return request

    def close(self) -> None:
        self.server.stop()
        for thread in self._threads:
            thread.join()
        for log in self.logs:
            log.close()


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Sockets]:
    running = Sockets(tmp_path)
    yield running
    running.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sockets]:
    """A request for tests that only ask whether the server lives."""
    running = Sockets(tmp_path_factory.mktemp("shared"))
    yield running
    running.close()


def ms(value: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=value))


def topic_key(is_by_id: bool, name: str = "name") -> dict[str, Any]:
    return {"topic_id": TOPIC_ID} if is_by_id else {name: TOPIC}


def produce(version: int, *batches: bytes | None, acks: int = -1) -> Any:
    """Batches for partitions 0, 1, …"""
    schema: Any = importlib.import_module(f"kio.schema.produce.v{version}.request")
    parts = tuple(
        schema.PartitionProduceData(index=index, records=batch)
        for index, batch in enumerate(batches)
    )
    topic = schema.TopicProduceData(**topic_key(version >= 13), partition_data=parts)
    return schema.ProduceRequest(acks=acks, timeout=ms(1000), topic_data=(topic,))


def fetch(version: int, start: int, *, isolation: int = 0) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    part = schema.FetchPartition(partition=0, fetch_offset=start, partition_max_bytes=1 << 20)
    topic = schema.FetchTopic(**topic_key(version >= 13, "topic"), partitions=(part,))
    given_before_15 = {"replica_id": -1} if version < 15 else {}
    since_7 = {"forgotten_topics_data": ()} if version >= 7 else {}
    since_11 = {"rack_id": "here"} if version >= 11 else {}
    return schema.FetchRequest(
        max_wait=ms(0),
        min_bytes=1,
        isolation_level=isolation,
        topics=(topic,),
        **given_before_15,
        **since_7,
        **since_11,
    )


def one_batch(value: bytes = b"value") -> bytes:
    return _core.encode_batch([(b"key", value)], 1_700_000_000_000)


def produced(answer: Any) -> list[tuple[ErrorCode, int]]:
    (topic,) = answer.responses
    return [(part.error_code, part.base_offset) for part in topic.partition_responses]


def fetched(answer: Any) -> Any:
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


def still_serves(sockets: Sockets) -> bool:
    with sockets.connect() as connection:
        ((error, _),) = produced(connection.call(produce(9, one_batch())))
        return error == ErrorCode.NONE


# ---------------------------------------------------------------- every version


@pytest.mark.parametrize("version", range(PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[1] + 1))
def test_another_codec_agrees_on_every_version_of_produce(sockets: Sockets, version: int) -> None:
    with sockets.connect() as connection:
        answer = connection.call(produce(version, one_batch(), one_batch()[:-1]))
    assert produced(answer) == [(ErrorCode.NONE, 0), (ErrorCode.INVALID_RECORD, -1)]
    (topic,) = answer.responses
    assert vars_of(topic).items() >= topic_key(version >= 13).items()
    assert [log.log_end_offset for log in sockets.logs] == [1, 0]


@pytest.mark.parametrize("version", range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1))
def test_another_codec_agrees_on_every_version_of_fetch(sockets: Sockets, version: int) -> None:
    sockets.logs[0].append(one_batch(b"first"))
    sockets.logs[0].append(one_batch(b"second"))
    with sockets.connect() as connection:
        answer = connection.call(fetch(version, 1, isolation=1))
        plain = connection.call(fetch(version, 2))
        outside = connection.call(fetch(version, 3))
    (topic,) = answer.responses
    assert vars_of(topic).items() >= topic_key(version >= 13, "topic").items()
    found = fetched(answer)
    assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 2)
    assert (found.last_stable_offset, found.aborted_transactions) == (2, ())
    assert bytes(found.records) == sockets.logs[0].read(1, 1)
    assert fetched(plain).aborted_transactions is None
    assert not fetched(plain).records
    assert fetched(outside).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def vars_of(entity: Any) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in entity.__dataclass_fields__}


def test_a_log_is_asked_for_when_a_request_first_names_its_partition(sockets: Sockets) -> None:
    assert sockets.asked == []
    with sockets.connect() as connection:
        connection.call(produce(9, one_batch()))
        connection.call(produce(9, one_batch()))
        connection.call(fetch(12, 0))
    assert sockets.asked == [0]


@pytest.mark.parametrize(
    "fault", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_a_partition_without_a_log_is_answered_with_the_reason_until_it_has_one(
    sockets: Sockets, fault: ErrorCode
) -> None:
    sockets.fault = fault
    with sockets.connect() as connection:
        refused = produced(connection.call(produce(9, one_batch())))
        unread = fetched(connection.call(fetch(12, 0))).error_code
        sockets.fault = None
        stored = produced(connection.call(produce(9, one_batch())))
    assert refused == [(fault, -1)]
    assert unread == fault
    assert stored == [(ErrorCode.NONE, 0)]


def test_aborted_transactions_are_named_in_the_layout_of_every_client(sockets: Sockets) -> None:
    log = sockets.logs[0]
    records: list[tuple[bytes | None, bytes | None]] = [(None, b"mine")]
    log.append(_core.encode_batch(records, 0, 5, 0, 0, is_transactional=True))
    log.append_marker(5, 0, 0, False, 0)
    with sockets.connect() as connection:
        old = fetched(connection.call(fetch(4, 0, isolation=1)))
        new = fetched(connection.call(fetch(18, 0, isolation=1)))
    aborted = [
        [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        for found in (old, new)
    ]
    assert aborted == [[(5, 0)], [(5, 0)]]


# ---------------------------------------------------------------- requests for Python


def test_a_request_for_python_keeps_its_header_and_body(sockets: Sockets) -> None:
    with sockets.connect() as connection:
        connection.send_frame(struct.pack(">hhih", 60, 0, 42, 2) + b"me" + b"\x00" + b"body")
        token, *request, presence = sockets.take_request()
        principal = "User:ANONYMOUS"
        assert request == [60, 0, 42, "me", b"body", "127.0.0.1", 0, principal, 1]
        assert isinstance(presence, _core.ClientPresence)
        assert not presence.has_left()
        sockets.server.reply(token, True, b"answer")
        assert connection.read_frame() == struct.pack(">ib", 42, 0) + b"answer"


def test_a_client_id_may_be_null(sockets: Sockets) -> None:
    with sockets.connect() as connection:
        connection.send_frame(struct.pack(">hhih", 3, 0, 1, -1))
        _, _, _, _, client_id, body, *_ = sockets.take_request()
        assert (client_id, body) == (None, b"")


def test_connections_are_numbered_in_the_order_they_are_accepted(sockets: Sockets) -> None:
    connections = [sockets.connect() for _ in range(4)]
    numbers = []
    for connection in reversed(connections):
        connection.send_frame(struct.pack(">hhih", 3, 0, 1, -1))
        numbers.append(sockets.take_request()[-2])
        connection.socket.close()
    assert numbers == [4, 3, 2, 1]


def test_a_disconnect_costs_the_connection_alone(sockets: Sockets) -> None:
    with sockets.connect() as connection:
        connection.send_frame(struct.pack(">hhih", 3, 0, 1, -1))
        sockets.server.disconnect(sockets.take_request()[0])
        assert connection.is_closed_by_peer()
    assert still_serves(sockets)


def test_numbers_that_are_no_tokens_are_harmless(sockets: Sockets) -> None:
    for number in (0, 2**63 - 1):  # a small one may be the token of a first connection
        sockets.server.reply(number, False, b"")
        sockets.server.resume(number, [(TOPIC, 0, 3)])
        sockets.server.disconnect(number)
    assert still_serves(sockets)


# ---------------------------------------------------------------- input no client would send


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1) + b"x",
        struct.pack(">i", MAX_REQUEST_BYTES + 1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 12345, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 99, 1, -1),
        struct.pack(">ihhihi", 14, 1, 4, 1, -1, -1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
    ids=[
        "negative length",
        "2 GB",
        "one byte above the limit",
        "no header",
        "no such API",
        "no such version",
        "cut Fetch",
        "HTTP",
        "TLS",
    ],
)
def test_what_is_no_request_costs_its_connection_alone(sockets: Sockets, data: bytes) -> None:
    with sockets.connect() as bystander, sockets.connect() as connection:
        connection.send_raw(data)
        assert connection.is_closed_by_peer()
        assert produced(bystander.call(produce(9, one_batch()))) == [(ErrorCode.NONE, 0)]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=200), is_framed=st.booleans())
def test_no_bytes_stop_the_server(shared: Sockets, data: bytes, is_framed: bool) -> None:
    with shared.connect() as connection:
        (connection.send_frame if is_framed else connection.send_raw)(data)
    assert still_serves(shared)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    key_and_version=st.one_of(
        st.tuples(st.just(0), st.integers(*PRODUCE_VERSIONS)),
        st.tuples(st.just(1), st.integers(*FETCH_VERSIONS)),
    ),
    body=st.binary(max_size=200),
)
def test_no_body_of_produce_or_fetch_stops_the_server(
    shared: Sockets, key_and_version: tuple[int, int], body: bytes
) -> None:
    key, version = key_and_version
    is_flexible = version >= (9 if key == 0 else 12)
    header = struct.pack(">hhih", key, version, 1, -1) + (b"\x00" if is_flexible else b"")
    with shared.connect() as connection:
        connection.send_frame(header + body)
    assert still_serves(shared)
