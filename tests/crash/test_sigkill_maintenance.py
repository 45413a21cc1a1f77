"""SIGKILL while a broker compacts, removes and rolls segments as hard as it can.

    KILLS=500 SEED=7 pytest tests/crash/test_sigkill_maintenance.py

Transactions put and delete keys in a compacted topic, and a tenth of them abort; another topic
keeps its newest few segments only. The logs of both, and the coordinator's, are cut into tiny
segments. A kill comes at a random number of transactions, or in the moment when a file of a
compaction or of a removal is seen. The clients go on over it.

The seed chooses the records and the kills; the scheduler has its say too.
"""

import os
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_messages,
    transactional_producer,
)
from support.exploring import seed_of_run
from txn.inspect.verify import verify

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("KILLS", "15"))
SEED = seed_of_run()

SEGMENT_BYTES = "2000"
KEYS = 12
TRANSACTIONS_MAX = 60
"""Before a kill, or before files are looked for."""

MOMENTS = (".cleaned", ".swap", ".deleted", ".snapshot", None)
"""Files that tell of a compaction, its swap, a removal, a roll; or any moment."""

AS_HARD_AS_IT_CAN = (
    "log.cleaner.backoff.ms=0",
    "log.cleaner.min.cleanable.ratio=0",
    "log.cleaner.delete.retention.ms=0",
    "log.segment.delete.delay.ms=0",
    "log.initial.task.delay.ms=0",
    "log.retention.check.interval.ms=1",
    "log.flush.offset.checkpoint.interval.ms=20",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    f"transaction.state.log.segment.bytes={SEGMENT_BYTES}",
)
GOES_ON = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 20}


class RetryingWriter:
    """Writes until it is told to stop, through any fault of the broker."""

    def __init__(self, servers: str, draw: random.Random) -> None:
        self._draw = draw
        self._prices = transactional_producer(servers, "prices", **GOES_ON)
        self._events = plain_producer(servers, enable_idempotence=True, **GOES_ON)
        self.latest: dict[bytes, bytes] = {}
        """The records with which a reader of the compacted topic has to end up."""
        self.events = 0
        self.transactions = 0
        self.has_written = threading.Event()
        self._stopping = threading.Event()

    def begin(self) -> None:
        self._stopping.clear()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._write_one()
        except BaseException as failure:  # told by `end`
            self._failure = failure

    def _write_one(self) -> None:
        draw = self._draw
        is_commit = draw.random() < 0.9
        changes: dict[bytes, bytes | None] = {}
        self._prices.begin_transaction()
        for _ in range(draw.randint(1, 5)):
            key = b"key-%d" % draw.randrange(KEYS)
            value = b"%d " % self.transactions + b"v" * draw.randint(1, 300)
            changes[key] = None if draw.random() < 0.1 else value
            shown = changes[key] if is_commit else b"aborted"
            self._prices.produce("prices", key=key, value=shown, partition=0)
        if is_commit:
            self._prices.commit_transaction(WAIT_S)
            for key, new in changes.items():
                self.latest.pop(key, None)
                if new is not None:
                    self.latest[key] = new
        else:
            self._prices.abort_transaction(WAIT_S)
        self._events.produce("events", value=b"%d" % self.events + b"." * 200, partition=0)
        assert self._events.flush(WAIT_S) == 0
        self.events += 1
        self.transactions += 1
        self.has_written.set()


def kill_at(broker: BrokerProcess, writer: RetryingWriter, count: int, kind: str | None) -> None:
    """Kill after so many transactions, as soon as a file of a kind comes, if one is given."""
    end = writer.transactions + count
    while writer.transactions < end:
        writer.has_written.wait(WAIT_S)
        writer.has_written.clear()
    folders = [broker.data / name for name in ("prices-0", "events-0", "__transaction_state-0")]
    old = {name for folder in folders for name in _names(folder)}
    end += TRANSACTIONS_MAX
    while kind is not None and writer.transactions < end:
        fresh = (name for folder in folders for name in _names(folder) if name not in old)
        if any(kind in name for name in fresh):
            break
    broker.kill()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def last_values(servers: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for message in read_messages(servers, "prices"):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert value != b"aborted"
        found.pop(key, None)
        if isinstance(value, bytes):
            found[key] = value
    return found


def event_numbers(servers: str) -> list[int]:
    messages = read_messages(servers, "events")
    return [int((message.value() or b"").rstrip(b".")) for message in messages]


def test_P1_P4_P8_a_broker_killed_while_it_compacts_and_removes_loses_nothing(
    tmp_path: Path,
) -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")  # shown if it fails
    broker = BrokerProcess(tmp_path / "data", *AS_HARD_AS_IT_CAN)
    left_behind: Counter[str] = Counter()
    try:
        servers = broker.bootstrap_servers
        make = partial(create_topic, servers, internal_segment_bytes=SEGMENT_BYTES)
        make("prices", cleanup_policy="compact")
        make("events", retention_bytes="10000")
        writer = RetryingWriter(servers, draw)
        for _ in range(KILLS):
            writer.begin()
            kill_at(broker, writer, draw.randrange(TRANSACTIONS_MAX), draw.choice(MOMENTS))
            left_behind.update({path.suffix for path in broker.data.glob("*-0/*")})
            as_left = verify(broker.data)
            broker.restart()
            writer.end()

            assert as_left.findings == []
            assert last_values(servers) == writer.latest
            numbers = event_numbers(servers)
            assert numbers == list(range(writer.events - len(numbers), writer.events))
            assert numbers
    finally:
        code = broker.stop()

    assert code == 0
    assert verify(broker.data).findings == []
    print(f"{writer.transactions} transactions, {KILLS} kills; left behind: {dict(left_behind)}")
