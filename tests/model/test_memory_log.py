"""The log in memory and the log on disk, under any history: whatever is asked, they agree."""

import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from txn import _core
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import Topic
from txn.storage.base import Marker, PartitionLog
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog
from txn.testing import MemoryLog

TOPIC = Topic("orders", uuid.UUID(int=5), 1)
PRODUCER = st.builds(ProducerIdAndEpoch, st.integers(0, 2), st.integers(0, 2))
Call = Callable[[PartitionLog], object]


class EitherLog(RuleBasedStateMachine):
    """Every call goes to both, and both have to answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="logs-"))
        self.native = self._opened()
        self.now_ms = 1_700_000_000_000
        self.memory = MemoryLog("orders", 0, now_ms=lambda: self.now_ms)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def _opened(self) -> NativeLog:
        storage = NativeStorage.load(self.directory, BrokerSettings({}), was_clean=False)
        return storage.open(TOPIC, 0)

    @rule(
        values=st.lists(st.binary(max_size=60), min_size=1, max_size=3),
        producer=st.none() | PRODUCER,
        later_ms=st.integers(-50, 50),
    )
    def broker_appends(
        self, values: list[bytes], producer: ProducerIdAndEpoch | None, later_ms: int
    ) -> None:
        self.now_ms += later_ms
        records = [(b"key", value) for value in values]
        self._agree(lambda log: log.append(records, timestamp_ms=self.now_ms, producer=producer))

    @rule(
        producer=PRODUCER,
        sequence=st.integers(-1, 3),
        version=st.sampled_from((1, 2)),
        is_transactional=st.booleans(),
    )
    def client_appends(
        self, producer: ProducerIdAndEpoch, sequence: int, version: int, is_transactional: bool
    ) -> None:
        name_hash = 7 if is_transactional else None
        batch = _core.encode_batch(
            [(None, b"value")], self.now_ms, *producer, sequence, is_transactional
        )
        stored = self.memory.client_append(
            producer,
            sequence,
            b"value",
            version,
            is_transactional=is_transactional,
            transactional_id_hash=name_hash,
        )
        assert self.native.log.append_of_client(batch, version, name_hash) == stored

    @rule(producer=PRODUCER)
    def partition_joins(self, producer: ProducerIdAndEpoch) -> None:
        for log in (self.memory, self.native):
            log.producer_state.allow_txn(*producer)

    @rule(producer=PRODUCER, is_commit=st.booleans(), coordinator_epoch=st.integers(0, 1))
    def transaction_ends(
        self, producer: ProducerIdAndEpoch, is_commit: bool, coordinator_epoch: int
    ) -> None:
        marker = Marker(*producer, coordinator_epoch, is_commit, self.now_ms)
        self._agree(lambda log: log.append_marker(marker))

    @rule(back=st.integers(-1, 4))
    def records_are_deleted(self, back: int) -> None:
        offset = self.memory.log_end_offset - back
        if offset >= 0:
            self._agree(lambda log: log.delete_records(offset))

    @rule(after_ms=st.integers(-100, 100), back=st.integers(0, 4))
    def times_are_searched(self, after_ms: int, back: int) -> None:
        end = max(self.memory.log_end_offset - back, 0)
        self._agree(lambda log: log.offset_for_timestamp(self.now_ms + after_ms, end))

    @rule(later=st.integers(0, 2))
    def another_epoch_begins(self, later: int) -> None:
        epoch = self.memory.leader_epoch + later
        self._agree(lambda log: log.lead(epoch))

    @rule()
    def logs_are_synced(self) -> None:
        self._agree(lambda log: log.sync())

    @invariant()
    def both_show_the_same(self) -> None:
        for name in ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset"):
            assert getattr(self.memory, name) == getattr(self.native, name), name
        assert list(self.memory.batches()) == list(self.native.batches())
        if self.memory.log_start_offset == 0:
            assert self.memory.synced_end == self.native.synced_end
        start, end = self.memory.log_start_offset, self.memory.log_end_offset
        named = self.memory.producer_state.aborted_in(start, end)
        assert named == self.native.log.aborted_in(start, end)
        for offset in range(start, end + 1):
            assert self.memory.epoch_of(offset) == self.native.epoch_of(offset), offset
        assert sorted(self.memory.producers()) == sorted(self.native.producers())

    def _agree(self, call: Call) -> None:
        assert answer(call, self.memory) == answer(call, self.native)


def answer(call: Call, log: PartitionLog) -> tuple[str, object]:
    """The result of a call, or the code of its refusal."""
    try:
        return "done", call(log)
    except StorageError as error:
        return "refused", error.code


TestEitherLog = EitherLog.TestCase
