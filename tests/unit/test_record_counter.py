"""Committed records behind an offset, held against a reading of the whole log."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from txn import _core
from txn.partition import ProducerStateManager

PRODUCERS = range(4)
KEYS = range(6)
LONG_S = 60.0
BURST = 90
"""More batches than a count looks at between two looks at the clock."""


def open_log(directory: Path) -> _core.PartitionLog:
    properties = {
        "segment.bytes": 6000,
        "index.interval.bytes": 300,
        "cleanup.policy": "compact,delete",
    }
    return _core.PartitionLog(str(directory / "orders-0"), ProducerStateManager(), properties)


def batch(keys: Sequence[int], producer_id: int = -1) -> bytes:
    records = [(b"key-%d" % key, b"value") for key in keys]
    if producer_id < 0:
        return _core.encode_batch(records, 1000)
    return _core.encode_batch(records, 1000, producer_id, 0, is_transactional=True)


def stored_offsets(log: _core.PartitionLog) -> list[int]:
    """The offsets of every data record in the log."""
    found: list[int] = []
    next_offset = log.log_start_offset
    while next_offset < log.log_end_offset:
        batches = _core.decode_batches(log.read(next_offset, 1 << 20))
        if not batches:
            break
        for _, _, _, _, kind, records in batches:
            if kind not in (2, 3):  # markers
                found += [offset for offset, *_ in records]
        next_offset = batches[-1][1] + 1
    return [offset for offset in found if offset >= log.log_start_offset]


class CounterMachine(RuleBasedStateMachine):
    """Any history of a log, asked now and then, with time and without."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.log = open_log(Path(self.place.name))
        self.counter = _core.RecordCounter(self.log)
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.cleaner = _core.Cleaner(map_bytes=1 << 20, load_factor=0.9, bytes_per_second=1e12)
        self.asked: list[int] = []

    def teardown(self) -> None:
        self.log.delete()
        self.place.cleanup()

    @initialize(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), bursts=st.integers(0, 3)
    )
    def begin(self, keys: list[int], bursts: int) -> None:
        for _ in range(bursts * BURST):
            self.log.append(batch(keys))

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=9))
    def produce(self, keys: list[int]) -> None:
        self.log.append(batch(keys))

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=9),
        producer=st.sampled_from(PRODUCERS),
        count=st.integers(1, 40),
    )
    def produce_in_transaction(self, keys: list[int], producer: int, count: int) -> None:
        for _ in range(count):
            first = self.log.append(batch(keys, producer))
            self.open.setdefault(producer, []).extend(range(first, first + len(keys)))

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        self.log.append_marker(producer, 0, 1, is_commit, 2000)
        offsets = self.open.pop(producer, [])
        if not is_commit:
            self.aborted.update(offsets)

    @rule()
    def compact(self) -> None:
        ends = [end for _, end, *_ in self.log.sealed_segments()]
        stable = [end for end in ends if end <= self.log.last_stable_offset]
        if stable:
            self.cleaner.clean(
                self.log,
                first_dirty_offset=self.log.log_start_offset,
                end=max(stable),
                delete_retention_ms=0,
                now_ms=10_000,
            )

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.delete_records(self._within(share), lambda _: None)

    @rule(shares=st.lists(st.floats(0, 1), max_size=4))
    def ask_without_time(self, shares: list[float]) -> None:
        self.asked = [self._within(share) for share in shares]
        end, counts = self.counter.count(self.asked, 0)
        assert end == self.log.last_stable_offset
        for offset, counted in zip(self.asked, counts, strict=True):
            assert counted in (None, self._expected(offset))

    @rule(shares=st.lists(st.floats(0, 1), max_size=4))
    def ask(self, shares: list[float]) -> None:
        self.asked += [self._within(share) for share in shares]
        self._ask_all()

    @invariant()
    def what_was_asked_for_stays_right(self) -> None:
        self._ask_all()

    def _ask_all(self) -> None:
        expected = [self._expected(offset) for offset in self.asked]
        assert self.counter.count(self.asked, LONG_S)[1] == expected
        fresh = _core.RecordCounter(self.log)  # it walks over all of it at once
        assert fresh.count(self.asked, LONG_S)[1] == expected

    def _within(self, share: float) -> int:
        return int(share * self.log.log_end_offset)

    def _expected(self, offset: int) -> int:
        stable = self.log.last_stable_offset
        return sum(
            offset <= at < stable and at not in self.aborted for at in stored_offsets(self.log)
        )


TestRecordCounter = CounterMachine.TestCase
TestRecordCounter.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_markers_and_aborted_records_are_no_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch([1, 2], 0))
    log.append_marker(0, 0, 1, True, 2000)
    log.append(batch([1, 2, 3], 1))
    log.append_marker(1, 0, 1, False, 2000)
    assert _core.RecordCounter(log).count([0, 1, 2, 3, 7], LONG_S) == (7, [2, 1, 0, 0, 0])


def test_records_of_an_open_transaction_and_behind_it_are_no_lag_yet(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch([1]))
    log.append(batch([1, 2], 0))
    log.append(batch([3]))
    counter = _core.RecordCounter(log)
    assert counter.count([0, 2], LONG_S) == (1, [1, 0])
    log.append_marker(0, 0, 1, True, 2000)
    assert counter.count([0, 2], LONG_S) == (5, [4, 2])


def test_a_count_without_time_is_told_as_unknown_and_goes_on_at_the_next_call(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    for _ in range(1000):
        log.append(batch([1]))
    counter = _core.RecordCounter(log)
    told = [counter.count([0], 0)[1][0] for _ in range(100)]
    assert told[0] is None
    assert told[-1] == 1000


def test_a_closed_log_tells_no_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch([1]))
    counter = _core.RecordCounter(log)
    log.close()
    with pytest.raises(_core.LogRefusedError, match="the log is closed"):
        counter.count([0], LONG_S)


def test_an_offset_that_was_not_reached_in_time_has_no_count(tmp_path: Path) -> None:
    """It got that of its whole segment, from the turn of the segment before."""
    log = open_log(tmp_path)
    for _ in range(200):
        log.append(batch([1]))
    counter = _core.RecordCounter(log)
    assert counter.count([0], LONG_S) == (200, [200])
    base = log.sealed_segments()[1][0]
    assert counter.count([0, base + 50], 0)[1][1] in (None, 150 - base)
