"""P2 shared: a commit's cost on the disk falls with the number of concurrent commits.

Counted, not timed: how often a file was forced to the disk. The first syncs wait until everybody
has asked to commit, so that no scheduler decides which commits meet.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import txn
from support.clients import WAIT_S, create_topic, read_all, send, transactional_producer
from txn import _core
from txn.broker.local_host import LocalHost
from txn.broker.syncs import Failures
from txn.server.lifecycle import background
from txn.server.loop.scheduler import LoopScheduler
from txn.storage import checkpoints
from txn.storage.base import PartitionLog

PRODUCERS, PARTITIONS, STATE_PARTITIONS = 16, 2, 4
ALONE = PARTITIONS + 1
"""Syncs of a commit by itself: its data, and the decision."""


def test_P2_commits_that_wait_together_share_their_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, ask = LoopScheduler.sync_each, LocalHost.sync
    put_off: list[Callable[[], None]] = []
    asked = PRODUCERS

    def begin_when_all_are_here(
        scheduler: LoopScheduler,
        stores: Sequence[PartitionLog],
        done: Callable[[Failures], None],
    ) -> None:
        if asked < PRODUCERS:
            put_off.append(lambda: begin(scheduler, stores, done))
        else:
            begin(scheduler, stores, done)

    def count_and_ask(host: LocalHost, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        nonlocal asked
        asked += 1
        if asked == PRODUCERS:
            for begin_now in put_off:
                begin_now()
        return ask(host, stores)

    def commit(number: int) -> None:
        producers[number].commit_transaction(WAIT_S)

    settings = {"transaction.state.log.num.partitions": STATE_PARTITIONS}
    monkeypatch.setattr(LoopScheduler, "sync_each", begin_when_all_are_here)
    monkeypatch.setattr(LocalHost, "sync", count_and_ask)
    with txn.Broker(tmp_path, durability="commit", properties=settings) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", partitions=PARTITIONS)
        producers = [transactional_producer(servers, f"t{n}") for n in range(PRODUCERS)]
        for producer in producers:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                send(producer, "orders", [b"x"], partition)
        asked = 0
        before = _core.sync_count()
        with ThreadPoolExecutor(PRODUCERS) as pool:
            list(pool.map(commit, range(PRODUCERS)))
        # A producer that begins again has waited for the work behind the answer.
        for producer in producers:
            producer.begin_transaction()
            send(producer, "orders", [b"next"])
        syncs = _core.sync_count() - before
        monkeypatch.undo()
        found = read_all(servers, "orders")

    assert len(found) == PRODUCERS * PARTITIONS
    assert syncs <= PRODUCERS * ALONE / 3, f"{syncs} syncs for {PRODUCERS} commits"


def test_a_commit_goes_on_where_its_answer_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control loop was woken for the end of the wait, and the reactor for the answer."""
    settle = LoopScheduler.settle
    threads: list[str] = []

    def note_and_settle(scheduler: LoopScheduler) -> None:
        threads.append(threading.current_thread().name)
        settle(scheduler)

    monkeypatch.setattr(LoopScheduler, "settle", note_and_settle)
    with txn.Broker(tmp_path, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "t")
        threads.clear()
        for _ in range(10):  # the loop may be at work during one of them
            producer.begin_transaction()
            send(producer, "orders", [b"x"])
            producer.commit_transaction(WAIT_S)
    assert "txn-reactor-0" in threads


def test_P2_a_topic_is_made_with_one_force_and_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint was written, and forced twice, for each: most of the time a topic took."""
    written: list[Path] = []

    def note(path: Path, _: object, *, keeps_room: bool = False) -> None:
        written.append(path)

    monkeypatch.setattr(background, "TICK_MS", 3_600_000)
    monkeypatch.setattr(checkpoints, "write_checkpoint", note)
    with txn.Broker(tmp_path / "data", durability="commit") as broker:
        before = _core.sync_count()
        for number in range(5):
            create_topic(broker.bootstrap_servers, f"topic-{number}")
        forced = _core.sync_count() - before
        assert (forced, written) == (5, [])
