"""Producer ids come from durable blocks, and hardly a producer waits for one (KIP-730)."""

import pytest

from txn.broker.producer_id_manager import NoProducerIdError, ProducerIdManager
from txn.errors import StorageError
from txn.testing import FakeHost


class Bench:
    """A manager whose blocks come when the test says."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.host.unfinished_allocations = []
        self.ids = ProducerIdManager(self.host)

    @property
    def asked_for(self) -> int:
        """Number of blocks on their way."""
        assert self.host.unfinished_allocations is not None
        return len(self.host.unfinished_allocations)

    def arrive(self, block: range | StorageError) -> None:
        assert self.host.unfinished_allocations is not None
        self.host.unfinished_allocations.pop(0)(block)

    def take(self, count: int) -> list[int]:
        return [self.ids.generate() for _ in range(count)]


def test_P7_no_id_is_given_out_before_its_block_has_come() -> None:
    bench = Bench()
    with pytest.raises(NoProducerIdError):
        bench.ids.generate()
    with pytest.raises(NoProducerIdError):
        bench.ids.generate()
    assert bench.asked_for == 1
    bench.arrive(range(50, 60))
    assert bench.take(2) == [50, 51]


def test_the_next_block_is_asked_for_before_the_last_id_is_taken() -> None:
    bench = Bench()
    with pytest.raises(NoProducerIdError):
        bench.ids.generate()
    bench.arrive(range(100))
    bench.take(90)
    assert bench.asked_for == 0
    bench.take(1)
    assert bench.asked_for == 1
    bench.arrive(range(100, 200))
    assert bench.take(10) == [*range(91, 101)]
    assert bench.asked_for == 0


def test_every_waiter_gets_an_id_of_its_own_however_many_there_are() -> None:
    """More wait than a block has ids: the others wait for the next."""

    bench = Bench()
    taken: list[int] = []

    def take(failure: StorageError | None = None) -> None:
        assert failure is None
        try:
            taken.append(bench.ids.generate())
        except NoProducerIdError:
            bench.ids.call_when_ready(take)

    for _ in range(15):
        take()
    assert bench.asked_for == 1
    bench.arrive(range(10))
    assert taken == [*range(10)]
    bench.arrive(range(10, 20))
    assert taken == [*range(15)]


def test_a_block_that_could_not_be_allocated_is_asked_for_again() -> None:
    bench = Bench()
    failures: list[StorageError | None] = []
    refusal = StorageError("the disk refuses")
    bench.ids.call_when_ready(failures.append)
    bench.arrive(refusal)
    bench.ids.call_when_ready(failures.append)
    bench.arrive(range(7, 9))
    assert failures == [refusal, None]
    assert bench.ids.generate() == 7


def test_a_start_takes_ids_without_waiting_for_the_loop() -> None:
    ids = ProducerIdManager(FakeHost())
    assert len({ids.generate_blocking() for _ in range(20)}) == 20


def test_a_waiter_that_fails_keeps_no_other_from_its_id() -> None:
    """The others, and the requests in line behind them, waited for ever."""
    bench = Bench()
    taken: list[int] = []

    def fail(_: StorageError | None) -> None:
        raise AssertionError("a request with a bug")

    bench.ids.call_when_ready(fail)
    bench.ids.call_when_ready(lambda _: taken.append(bench.ids.generate()))
    with pytest.raises(AssertionError, match="a request with a bug"):
        bench.arrive(range(50, 60))
    assert taken == [50]
