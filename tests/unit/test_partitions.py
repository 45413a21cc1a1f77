"""Partitions are opened when they are first touched, and once."""

import threading
import uuid

import pytest

from txn.broker.partitions import RETRY_MS, TopicPartitions
from txn.errors import CorruptLogError, StorageError, TxnError
from txn.metadata.image import Topic
from txn.testing import MemoryLog


class FakeOpener:
    """Opens partitions in memory, unless there is a fault, and counts."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.fault: TxnError | None = None
        self.time_ms = 0
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, topic: Topic, index: int) -> MemoryLog:
        self.opened.append(index)
        self.has_begun.set()
        self.may_go_on.wait(timeout=10)
        if self.fault is not None:
            raise self.fault
        return MemoryLog(topic.name, index)


def partitions_of(topic: Topic, opener: FakeOpener) -> TopicPartitions:
    return TopicPartitions(topic, opener, lambda: opener.time_ms)


def orders(count: int = 3) -> Topic:
    return Topic("orders", uuid.UUID(int=7), count)


def test_a_partition_is_opened_when_it_is_first_touched_and_never_again() -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    assert (len(partitions), partitions.opened()) == (3, [])
    store = partitions[2]
    assert partitions[2] is store
    assert (partitions.opened(), opener.opened) == ([store], [2])


def test_threads_that_touch_a_partition_together_get_the_same() -> None:
    opener = FakeOpener()
    opener.may_go_on.clear()
    partitions = partitions_of(orders(), opener)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(partitions[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    opener.may_go_on.set()
    for thread in threads:
        thread.join()
    assert found == [partitions[0]] * 4
    assert opener.opened == [0]


def test_what_changes_meanwhile_reaches_a_partition_that_is_being_opened() -> None:
    """Settings are changed, then given to the open partitions: one that was being opened with the
    old ones must be among them."""
    opener = FakeOpener()
    opener.may_go_on.clear()
    partitions = partitions_of(orders(), opener)
    opening = threading.Thread(target=lambda: partitions[1])
    opening.start()
    assert opener.has_begun.wait(timeout=10)
    told: list[object] = []
    telling = threading.Thread(target=lambda: told.extend(partitions.opened()))
    telling.start()
    opener.may_go_on.set()
    opening.join()
    telling.join()
    assert told == [partitions[1]]


def test_a_deleted_topic_opens_nothing_any_more() -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    store = partitions[0]
    assert partitions.close_for_good() == [store]
    with pytest.raises(IndexError):
        partitions[1]
    assert opener.opened == [0]


def test_a_topic_that_grows_keeps_what_is_open() -> None:
    topic = orders(1)
    partitions = partitions_of(topic, FakeOpener())
    store = partitions[0]
    topic.partition_count = 3
    partitions.grow()
    assert (len(partitions), partitions[0]) == (3, store)
    assert partitions[2].index == 2


def test_what_cannot_be_opened_is_left_alone_for_a_while_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    opener.fault = StorageError("EIO")
    for opener.time_ms in (0, RETRY_MS - 1, RETRY_MS, 2 * RETRY_MS - 1):
        with pytest.raises(StorageError, match="EIO") as refused:
            partitions[2]
        assert (refused.value.code, vars(refused.value)["partition"]) == (56, 2)
    assert opener.opened == [2, 2]
    assert caplog.text.count("partition.not_opened") == 1


def test_P9_what_is_damaged_stays_shut_and_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A later attempt, under other rules than those of a start, would find it sound."""
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    opener.fault = CorruptLogError("its CRC-32C is wrong", path="orders-2/0.log", position=70)
    for opener.time_ms in (0, 10 * RETRY_MS):
        with pytest.raises(StorageError, match="CRC-32C") as refused:
            partitions[2]
        assert (refused.value.code, vars(refused.value)["partition"]) == (56, 2)
        opener.fault = None
    assert opener.opened == [2]
    assert not partitions.is_untouched(2)
    assert caplog.text.count("log.damaged") == 1
    assert 'topic=orders partition=2 path=orders-2/0.log position=70 reason="its' in caplog.text


def test_what_is_withdrawn_is_refused_and_closed_with_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    first, second = partitions[0], partitions[1]

    partitions.withdraw(1, CorruptLogError("a transaction is open that was committed"))

    with pytest.raises(StorageError, match="open that was committed") as refused:
        partitions[1]
    assert refused.value.code == 56
    assert (partitions.opened(), partitions.withdrawn()) == ([first], [second])
    assert partitions.has_failures(are_final=True)
    assert not partitions.has_failures(are_final=False)
    assert not partitions.is_untouched(1)
    assert "log.damaged" in caplog.text
    assert partitions.close_for_good() == [first, second]


def test_what_can_be_opened_again_is_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    opener.fault = StorageError("EIO")
    with pytest.raises(StorageError, match="EIO"):
        partitions[2]
    opener.fault = None
    opener.time_ms = RETRY_MS

    store = partitions[2]

    assert (store.index, partitions[2]) == (2, store)
    assert caplog.text.count("partition.opened_again") == 1


def test_a_clock_that_is_set_back_does_not_keep_a_partition_shut() -> None:
    opener = FakeOpener()
    partitions = partitions_of(orders(), opener)
    opener.time_ms, opener.fault = 1_000_000, StorageError("EIO")
    with pytest.raises(StorageError, match="EIO"):
        partitions[2]
    opener.time_ms, opener.fault = 0, None
    assert partitions[2].index == 2
