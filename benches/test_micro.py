"""Micro-benchmarks of what happens once per batch, for pytest-benchmark.

`make bench` runs them; save a run with `--benchmark-save NAME` and compare two commits
with `pytest-benchmark compare`.
"""

from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from txn import _core
from txn.partition import Partition
from txn.wire.messages import decode_request, encode_response

RECORDS_PER_BATCH = 600
CLIENT_V1 = 1
NOW_MS = 1_700_000_000_000


def test_admission_of_one_idempotent_header(benchmark: BenchmarkFixture) -> None:
    gate = Partition()
    at = iter(range(10**9))

    def admit() -> Any:
        sequence = next(at)
        return gate.admit(CLIENT_V1, sequence, 7, 0, sequence, 1, NOW_MS, False)

    assert benchmark(admit)[0] == 0


def test_aborted_index_lookup_among_10000(benchmark: BenchmarkFixture) -> None:
    gate = Partition()
    for number in range(10_000):
        gate.expect(7, 0)
        gate.admit(CLIENT_V1, 2 * number, 7, 0, number, 1, NOW_MS, True)
        gate.admit_marker(2 * number + 1, 7, 0, 0, False, NOW_MS)

    found = benchmark(gate.aborted_in, 10_000, 10_040)

    assert len(found) == 20


def test_encoding_one_batch_of_600_records(benchmark: BenchmarkFixture) -> None:
    records = [(b"%08d" % number, b"v" * 100) for number in range(RECORDS_PER_BATCH)]
    assert benchmark(_core.encode_batch, records, NOW_MS)


def test_decoding_one_batch_of_600_records(benchmark: BenchmarkFixture) -> None:
    records = [(b"%08d" % number, b"v" * 100) for number in range(RECORDS_PER_BATCH)]
    batch = _core.encode_batch(records, NOW_MS)
    assert len(benchmark(_core.decode_batches, batch)) == 1


def test_decoding_an_end_txn_request(benchmark: BenchmarkFixture) -> None:
    body = b"\x00\x02t1" + (7).to_bytes(8) + (0).to_bytes(2) + b"\x01"
    assert benchmark(decode_request, 26, 1, body).committed


def test_encoding_an_end_txn_answer(benchmark: BenchmarkFixture) -> None:
    answer = {"error_code": 0, "producer_id": 7, "producer_epoch": 1}
    assert benchmark(encode_response, 26, 5, answer)
