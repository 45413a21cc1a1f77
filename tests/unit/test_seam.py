"""The seam breaks public rules alone, wherever they are used, and mends them afterwards."""

import pytest

from support.seam import Seam
from txn.broker import node
from txn.broker.local_host import LocalHost
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.states import Txn, TxnState
from txn.coordinator.transaction.timeouts import has_deadline, is_timed_out

OPEN = Txn(
    producer_id=1,
    producer_epoch=0,
    timeout_ms=10,
    state=TxnState.ONGOING,
    partitions=frozenset(),
    start_ms=0,
    updated_ms=0,
)


def test_a_rule_is_broken_where_it_is_used_and_mended_at_the_end() -> None:
    with Seam() as seam:
        seam.instead_of(has_deadline)(lambda txn: False)
        assert not is_timed_out(OPEN, begun_ms=0, now_ms=10)
    assert is_timed_out(OPEN, begun_ms=0, now_ms=10)
    assert timeouts.has_deadline is has_deadline


def test_a_broken_rule_may_call_the_one_that_it_breaks() -> None:
    with Seam() as seam:
        seam.instead_of(has_deadline)(lambda txn: not has_deadline(txn))
        assert not timeouts.has_deadline(OPEN)


def test_a_part_of_the_broker_gives_way_to_its_subclass() -> None:
    with Seam() as seam:

        @seam.instead_of(LocalHost)
        class Other(LocalHost):
            pass

        assert vars(node)["LocalHost"] is Other
    assert vars(node)["LocalHost"] is LocalHost


def test_a_part_of_the_broker_gives_way_to_no_other_class() -> None:
    with Seam() as seam, pytest.raises(AssertionError, match="is no LocalHost"):
        seam.instead_of(LocalHost)(LocalMarkerSender)  # type: ignore[arg-type]


def test_a_method_is_no_public_rule() -> None:
    with Seam() as seam, pytest.raises(AssertionError, match="is not public"):
        seam.instead_of(TransactionCoordinator.end)(TransactionCoordinator.end)


def test_a_rule_that_nothing_uses_cannot_be_broken() -> None:
    with Seam() as seam, pytest.raises(AssertionError, match="nothing uses"):
        seam.instead_of(test_a_method_is_no_public_rule)(lambda: None)
