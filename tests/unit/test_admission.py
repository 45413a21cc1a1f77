"""One decision each: the batches that a partition admits, by its entry of the producer."""

import pytest

from txn.partition.admission import (
    CLIENT_V2,
    COORDINATOR,
    COORDINATOR_FENCED,
    DUPLICATE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TXN_STATE,
    JOIN,
    OUT_OF_ORDER_SEQUENCE,
    AdmitResult,
    is_out_of_turn,
    refusal,
    refusal_of_marker,
)
from txn.partition.producer_state_entry import ProducerStateEntry

CLIENT_V1 = 1
LARGEST_SEQUENCE = 2**31 - 1
ADMITTED = None


def producer(
    *, epoch: int = 4, batches: int = 1, first_sequence: int = 0, txn_first_offset: int = -1
) -> ProducerStateEntry:
    """A producer that stored batches of ten records, one after another, from offset 1000."""
    state = ProducerStateEntry()
    for n in range(batches):
        base = first_sequence + 10 * n
        state.append(epoch, base, base + 9, 1000 + 10 * n, 1009 + 10 * n, 1)
    state.producer_epoch = epoch
    state.txn_first_offset = txn_first_offset
    return state


def decide(
    state: ProducerStateEntry | None,
    sequences: tuple[int, int],
    *,
    epoch: int = 4,
    origin: int = CLIENT_V1,
    transactional: bool = False,
    expected: int | None = None,
    unwritten: bool = False,
) -> AdmitResult | None:
    base_sequence, last_sequence = sequences
    return refusal(
        state, origin, epoch, base_sequence, last_sequence, transactional, expected, unwritten
    )


# ---------------------------------------------------------------- sequences


def test_the_next_sequence_is_admitted() -> None:
    assert decide(producer(), (10, 19)) is ADMITTED


def test_P6_a_gap_is_refused() -> None:
    assert decide(producer(), (11, 20)) is OUT_OF_ORDER_SEQUENCE


def test_P6_a_retried_batch_is_answered_with_the_offset_it_has() -> None:
    assert decide(producer(), (0, 9)) == (DUPLICATE, 1000, None)


def test_P6_the_fifth_newest_batch_is_still_a_duplicate() -> None:
    assert decide(producer(batches=6), (10, 19)) == (DUPLICATE, 1010, None)


def test_P6_a_batch_older_than_five_is_refused_not_stored() -> None:
    assert decide(producer(batches=6), (0, 9)) is OUT_OF_ORDER_SEQUENCE


def test_P6_a_batch_that_only_overlaps_a_stored_one_is_refused() -> None:
    assert decide(producer(), (0, 4)) is OUT_OF_ORDER_SEQUENCE


def test_the_sequence_after_the_largest_is_zero() -> None:
    state = producer(first_sequence=LARGEST_SEQUENCE - 9)
    assert decide(state, (0, 9)) is ADMITTED


def test_P6_a_batch_that_wraps_around_is_recognised_when_it_is_retried() -> None:
    state = ProducerStateEntry()
    state.append(4, LARGEST_SEQUENCE, 3, 50, 54, 1)
    assert decide(state, (LARGEST_SEQUENCE, 3)) == (DUPLICATE, 50, None)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert decide(None, (70, 79)) is ADMITTED


def test_P6_in_a_log_that_never_held_a_record_an_unknown_producer_begins_at_zero() -> None:
    assert decide(None, (70, 79), unwritten=True) is OUT_OF_ORDER_SEQUENCE
    assert decide(None, (0, 9), unwritten=True) is ADMITTED


def test_a_producer_known_by_its_marker_alone_begins_at_zero() -> None:
    assert decide(producer(batches=0), (0, 9)) is ADMITTED


def test_P6_a_producer_known_by_its_marker_alone_cannot_begin_later() -> None:
    assert decide(producer(batches=0), (10, 19)) is OUT_OF_ORDER_SEQUENCE


def test_a_client_batch_without_sequence_is_an_invalid_record() -> None:
    assert decide(None, (-1, -1)) is INVALID_RECORD


def test_a_client_batch_without_epoch_has_an_invalid_one() -> None:
    assert decide(None, (0, 9), epoch=-1) is INVALID_PRODUCER_EPOCH


# ---------------------------------------------------------------- epochs


def test_P7_an_older_epoch_is_fenced() -> None:
    assert decide(producer(), (10, 19), epoch=3) is INVALID_PRODUCER_EPOCH


def test_P7_an_older_epoch_is_fenced_even_when_its_sequences_are_stored() -> None:
    assert decide(producer(), (0, 9), epoch=3) is INVALID_PRODUCER_EPOCH


def test_P7_an_older_epoch_is_fenced_before_it_may_ask_to_join() -> None:
    refused = decide(producer(), (10, 19), epoch=3, transactional=True)
    assert refused is INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    assert decide(producer(), (0, 9), epoch=5) is ADMITTED


def test_a_newer_epoch_cannot_begin_later() -> None:
    assert decide(producer(), (10, 19), epoch=5) is OUT_OF_ORDER_SEQUENCE


# ---------------------------------------------------------------- transactions


@pytest.mark.parametrize("expected", [None, 3, 5])
def test_P7_a_transactional_batch_of_an_epoch_that_is_not_expected_has_to_join(
    expected: int | None,
) -> None:
    assert decide(producer(), (10, 19), transactional=True, expected=expected) is JOIN


def test_an_expected_transactional_batch_is_admitted() -> None:
    assert decide(producer(), (10, 19), transactional=True, expected=4) is ADMITTED


def test_a_batch_of_the_open_transaction_needs_no_expectation() -> None:
    state = producer(txn_first_offset=1000)
    assert decide(state, (10, 19), transactional=True) is ADMITTED


def test_P6_a_retry_of_a_finished_transaction_is_a_duplicate_and_joins_nothing() -> None:
    assert decide(producer(), (0, 9), transactional=True) == (DUPLICATE, 1000, None)


def test_P3_a_sequence_of_a_finished_transaction_is_no_retry_in_the_next() -> None:
    """librdkafka uses sequences again that were stored, but not answered before the abort.

    The batch was taken for a retry: acknowledged, and missing in the commit that followed.
    """
    verdict = decide(producer(), (0, 9), transactional=True, expected=4)
    assert verdict is OUT_OF_ORDER_SEQUENCE


def test_P3_such_a_sequence_is_none_behind_the_next_transaction_s_first_batch_either() -> None:
    state = producer(batches=2, txn_first_offset=1010)
    assert decide(state, (0, 9), transactional=True, expected=4) is OUT_OF_ORDER_SEQUENCE


def test_P6_a_retry_within_the_open_transaction_is_a_duplicate() -> None:
    state = producer(batches=3, txn_first_offset=1010)
    assert decide(state, (10, 19), transactional=True, expected=4) == (DUPLICATE, 1010, None)


def test_an_unknown_producer_has_to_join_before_its_sequence_is_judged() -> None:
    assert decide(None, (7, 9), transactional=True, origin=CLIENT_V2) is JOIN


def test_an_unknown_producer_under_version_2_begins_at_zero() -> None:
    verdict = decide(None, (0, 9), transactional=True, origin=CLIENT_V2, expected=4)
    assert verdict is ADMITTED


def test_an_unknown_producer_under_version_2_cannot_begin_later() -> None:
    verdict = decide(None, (10, 19), transactional=True, origin=CLIENT_V2, expected=4)
    assert verdict is OUT_OF_ORDER_SEQUENCE


def test_an_unknown_producer_under_version_1_may_begin_anywhere() -> None:
    assert decide(None, (10, 19), transactional=True, expected=4) is ADMITTED


def test_an_unknown_producer_without_transaction_may_begin_anywhere_under_version_2() -> None:
    assert decide(None, (10, 19), origin=CLIENT_V2) is ADMITTED


def test_a_plain_batch_inside_an_open_transaction_is_refused() -> None:
    assert decide(producer(txn_first_offset=1000), (10, 19)) is INVALID_TXN_STATE


def test_P7_a_newer_epoch_cannot_continue_the_transaction_of_an_older_one() -> None:
    state = producer(txn_first_offset=1000)
    verdict = decide(state, (0, 9), epoch=5, transactional=True, expected=5)
    assert verdict is INVALID_TXN_STATE


# ---------------------------------------------------------------- coordinators


def test_a_coordinators_batch_has_no_sequence_to_check() -> None:
    assert decide(producer(), (-1, -1), origin=COORDINATOR, transactional=True) is ADMITTED


def test_a_coordinators_batch_for_an_unknown_producer_is_admitted() -> None:
    assert decide(None, (-1, -1), origin=COORDINATOR, transactional=True) is ADMITTED


def test_a_coordinators_batch_continues_the_open_transaction() -> None:
    state = producer(txn_first_offset=1000)
    assert decide(state, (-1, -1), origin=COORDINATOR, transactional=True) is ADMITTED


def test_P7_a_coordinators_batch_of_an_older_epoch_is_fenced() -> None:
    refused = decide(producer(), (-1, -1), origin=COORDINATOR, transactional=True, epoch=3)
    assert refused is INVALID_PRODUCER_EPOCH


def test_P7_a_coordinators_batch_cannot_continue_the_transaction_of_an_older_epoch() -> None:
    state = producer(txn_first_offset=1000)
    refused = decide(state, (-1, -1), origin=COORDINATOR, transactional=True, epoch=5)
    assert refused is INVALID_TXN_STATE


# ---------------------------------------------------------------- waiting to join


def test_a_batch_sent_ahead_of_one_that_waits_to_join_is_out_of_turn() -> None:
    assert is_out_of_turn((4, 0), 4, 10)


def test_the_batch_that_waits_is_in_turn() -> None:
    assert not is_out_of_turn((4, 0), 4, 0)


def test_a_batch_from_before_the_wrap_is_not_out_of_turn() -> None:
    assert not is_out_of_turn((4, 3), 4, LARGEST_SEQUENCE)


def test_a_batch_of_another_epoch_is_in_turn() -> None:
    assert not is_out_of_turn((4, 0), 5, 10)


# ---------------------------------------------------------------- markers


def coordinated(*, producer_epoch: int, coordinator_epoch: int) -> ProducerStateEntry:
    state = ProducerStateEntry()
    state.end_transaction(producer_epoch, coordinator_epoch, 1)
    return state


@pytest.mark.parametrize("producer_epoch", [4, 5])
def test_a_marker_of_the_same_or_a_newer_epoch_is_admitted(producer_epoch: int) -> None:
    state = coordinated(producer_epoch=4, coordinator_epoch=2)
    assert refusal_of_marker(state, producer_epoch, 2) is ADMITTED


def test_a_marker_for_an_unknown_producer_is_admitted() -> None:
    assert refusal_of_marker(None, 4, 2) is ADMITTED


def test_P7_a_marker_of_an_older_epoch_is_fenced() -> None:
    state = coordinated(producer_epoch=4, coordinator_epoch=2)
    assert refusal_of_marker(state, 3, 2) is INVALID_PRODUCER_EPOCH


def test_P7_a_marker_of_an_older_coordinator_is_fenced() -> None:
    state = coordinated(producer_epoch=4, coordinator_epoch=2)
    assert refusal_of_marker(state, 4, 1) is COORDINATOR_FENCED
