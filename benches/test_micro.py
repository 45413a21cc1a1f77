"""Micro-benchmarks of the work done once per batch, for pytest-benchmark.

`make micro` runs them and saves the run under `.benchmarks/`, named after the commit. To
compare two commits run it on both, then `.venv/bin/pytest-benchmark compare`.
"""

import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import txn
from txn import _core
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import Txn, TxnState
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ProducerStateManager
from txn.server.lifecycle.broker import service_of
from txn.server.loop.requests import decode_request
from txn.wire.bodies.txn import EndTxnRequest, EndTxnResponse
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition
from txn.wire.messages import encode_response

RECORDS_PER_BATCH = 600
BATCHES = 2000
ROWS = 50_000
TRANSACTIONAL_IDS = 100_000
CLIENT_V1 = 1
NOW_MS = 1_700_000_000_000


def test_admission_of_one_idempotent_header(benchmark: BenchmarkFixture) -> None:
    producer_state = ProducerStateManager()
    at = iter(range(10**9))

    def admit() -> Any:
        sequence = next(at)
        return producer_state.admit(CLIENT_V1, sequence, 7, 0, sequence, 1, NOW_MS, False)

    assert benchmark(admit)[0] == 0


def test_aborted_index_lookup_among_10000(benchmark: BenchmarkFixture) -> None:
    producer_state = ProducerStateManager()
    for number in range(10_000):
        producer_state.allow_txn(7, 0)
        producer_state.admit(CLIENT_V1, 2 * number, 7, 0, number, 1, NOW_MS, True)
        producer_state.admit_marker(2 * number + 1, 7, 0, 0, False, NOW_MS)

    found = benchmark(producer_state.aborted_in, 10_000, 10_040)

    assert len(found) == 20


@pytest.fixture(scope="module")
def many_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `TRANSACTIONAL_IDS` ids at rest, as their last end left them."""
    path = tmp_path_factory.mktemp("ids") / "data"
    resting = Txn(
        producer_id=0,
        producer_epoch=1,
        timeout_ms=60_000,
        state=TxnState.COMPLETE_COMMIT,
        partitions=frozenset(),
        start_ms=NOW_MS,
        updated_ms=NOW_MS,
        client_version=2,
    )
    with txn.Broker(path, durability="process") as broker:
        logs = service_of(broker).node.host.coordinator_partitions(TRANSACTIONS_TOPIC)
        for number in range(TRANSACTIONAL_IDS):
            name = f"payments-{number:08d}"
            value = encode_value(resting._replace(producer_id=number, updated_ms=NOW_MS + number))
            log = logs[coordinator_partition(name, len(logs))]
            log.append([(encode_key(name), value)], timestamp_ms=NOW_MS)
    return path


def test_loading_100000_transactional_ids(benchmark: BenchmarkFixture, many_ids: Path) -> None:
    """One batch for each id, as before compaction. `bytes_per_id` is the memory of an idle one."""
    with txn.Broker(many_ids, durability="process") as broker:

        def load() -> TransactionCoordinator:
            host = service_of(broker).node.host
            markers = LocalMarkerSender(host.partition, lambda *_: None, lambda *_: None)
            coordinator = TransactionCoordinator(host, markers)
            coordinator.recover()
            return coordinator

        loaded = benchmark.pedantic(load, rounds=3)
        assert len(loaded.transactions) == TRANSACTIONAL_IDS
        begun = time.process_time()
        load()
        benchmark.extra_info["cpu_s"] = round(time.process_time() - begun, 2)
        tracemalloc.start()
        kept = load()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        benchmark.extra_info["bytes_per_id"] = taken // len(kept.transactions)


def test_encoding_one_batch_of_600_records(benchmark: BenchmarkFixture) -> None:
    records = [(b"%08d" % number, b"v" * 100) for number in range(RECORDS_PER_BATCH)]
    assert benchmark(_core.encode_batch, records, NOW_MS)


def test_decoding_one_batch_of_600_records(benchmark: BenchmarkFixture) -> None:
    records = [(b"%08d" % number, b"v" * 100) for number in range(RECORDS_PER_BATCH)]
    batch = _core.encode_batch(records, NOW_MS)
    assert len(benchmark(_core.decode_batches, batch)) == 1


def test_decoding_an_end_txn_request(benchmark: BenchmarkFixture) -> None:
    body = b"\x00\x02t1" + (7).to_bytes(8) + (0).to_bytes(2) + b"\x01"
    assert benchmark(decode_request, EndTxnRequest, 26, 1, body).committed


def test_encoding_an_end_txn_answer(benchmark: BenchmarkFixture) -> None:
    response = EndTxnResponse(ErrorCode.NONE, 7, 1)
    assert benchmark(encode_response, 26, 5, response)


# ---------------------------------------------------------------- the log


def batch_of_64_kib() -> bytes:
    records = [(b"%08d" % number, b"v" * 100) for number in range(545)]
    return _core.encode_batch(records, NOW_MS)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[_core.PartitionLog]:
    opened = _core.PartitionLog(str(tmp_path / "log-0"), ProducerStateManager())
    yield opened
    opened.delete()


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_core.PartitionLog]:
    directory = tmp_path_factory.mktemp("long") / "log-0"
    opened = _core.PartitionLog(str(directory), ProducerStateManager())
    batch = batch_of_64_kib()
    for _ in range(BATCHES):
        opened.append(batch)
    yield opened
    opened.delete()


def test_appending_a_batch_of_64_kib(benchmark: BenchmarkFixture, log: _core.PartitionLog) -> None:
    batch = batch_of_64_kib()
    benchmark.pedantic(log.append, args=(batch,), rounds=2000, warmup_rounds=50)
    assert log.log_end_offset > 0


def test_appending_one_record(benchmark: BenchmarkFixture, log: _core.PartitionLog) -> None:
    batch = _core.encode_batch([(None, b"v" * 100)], NOW_MS)
    benchmark.pedantic(log.append, args=(batch,), rounds=20_000, warmup_rounds=50)
    assert log.log_end_offset > 0


def test_checksum_of_one_mebibyte(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """A sound batch is read from the page cache and checked; its record is not looked at."""
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(_core.encode_batch([(None, b"v" * (1 << 20))], NOW_MS))
    reader = _core.SegmentReader(str(segment))

    batches, damage, _ = benchmark(reader.batches, 0, 1 << 20)

    assert [batch[-1][1] for batch in batches] == [None]
    assert damage == []


def test_index_lookup_in_a_log_of_2000_batches(
    benchmark: BenchmarkFixture, long_log: _core.PartitionLog
) -> None:
    """From an offset in the middle to the first byte of its batch, and that batch read."""
    middle = long_log.log_end_offset // 2
    assert benchmark(long_log.read, middle, 1)


def test_recovery_scan_of_128_mib(
    benchmark: BenchmarkFixture, long_log: _core.PartitionLog
) -> None:
    """Opening a log that was not closed: every batch is read and its checksum compared."""

    def recover() -> _core.PartitionLog:
        return _core.PartitionLog(long_log.directory, ProducerStateManager(), was_clean=False)

    recovered = benchmark.pedantic(recover, rounds=5)
    assert recovered.log_end_offset == long_log.log_end_offset


# ---------------------------------------------------------------- rows as columns


@pytest.fixture(scope="module")
def client() -> Iterator[_core.KafkaClient]:
    with txn.Broker() as broker:
        client = _core.KafkaClient(broker.bootstrap_servers)
        client.create_topic("rows", 1, {})
        client.create_topic("written", 1, {})
        yield client
        client.close()


def write_rows(client: _core.KafkaClient, topic: str) -> int:
    offsets = struct.pack(f"<{ROWS + 1}i", *range(0, 100 * (ROWS + 1), 100))
    writer = client.writer(None, -1, -1)
    writer.write(topic, ROWS, None, (offsets, b"v" * (100 * ROWS), None))
    return writer.flush()


def test_encoding_50000_arrow_rows(benchmark: BenchmarkFixture, client: _core.KafkaClient) -> None:
    """From Arrow buffers to acknowledged batches, over loopback."""
    assert benchmark.pedantic(write_rows, args=(client, "written"), rounds=10) == ROWS


def test_decoding_50000_arrow_rows(benchmark: BenchmarkFixture, client: _core.KafkaClient) -> None:
    """From stored batches to Arrow buffers, over loopback."""
    write_rows(client, "rows")

    def read() -> int:
        chunks = client.fetch("rows", 0, 0, ROWS)
        return sum(int(str(chunk["rows"])) for chunk in chunks)

    assert benchmark.pedantic(read, rounds=10) == ROWS
