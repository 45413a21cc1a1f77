"""Admission of a producer's batch, or of a marker, to a partition.

A batch is judged by the log's records of its producer id, from left to right:

    producer id          duplicate?    joined?   sequence (else 45)   then
    unknown              -             asked     0 or any, see below  in
    known, newer epoch   -             asked     0                    48 if a transaction is open
    known, same epoch    one of five   asked     the next one         48 if open and batch is not
    known, older epoch   -             -         -                    47

*Joined* is asked only of transactional client batches, and only while no transaction of that epoch
is open here. The coordinator must have added this partition to the producer's ongoing transaction,
and the batch must carry its transactional id. Otherwise the batch waits while the coordinator is
asked (`JOIN`). This keeps a late batch of a finished transaction from opening another one that no
client would ever end. Duplicates and epochs are checked before. A retry of a stored batch is
answered with its offset, even if its transaction is over, and changes nothing.

An unknown producer id may begin anywhere: its state may have expired, or its records may have been
deleted. In two cases it must begin at 0. Under transaction version 2 (TV2) every transaction starts
an epoch, and an epoch starts at 0. And a log that never held a record has forgotten no producer
(`begins_at_zero`). Without this rule a batch that overtakes the producer's first batch would be
stored in its place, and the first batch could never be stored.

A coordinator's batches carry no sequences, so only their epoch and their transaction are
checked. They would reset the sequences of a client's batches. But a partition gets batches from
clients or from a coordinator, never from both: internal topics refuse Produce.

Functions here return a verdict that refuses the batch, or None to admit and apply it.

Here Kafka differs. It mistakes a batch with a sequence that an abort left for a retry, and answers
with the offset of the aborted batch. So records of a committed transaction are lost (P3). In txn
such a batch is out of order. Kafka also lets a batch of a newer epoch continue a transaction that
an older epoch left open. Then a commit would show records of a fenced producer (P7), so txn refuses
the batch until a marker ends the old transaction. And a negative producer epoch is refused.

Pure; `refusal` is on the path of every idempotent batch.

Sources: KIP-98 (sequences, epochs), KIP-360 (unknown producers), KIP-679, KIP-890 (joining,
sequence 0 under TV2), KAFKA-14561 (the lowest waiting sequence), error codes of the protocol. Kafka
4.5 has sequence 0 in a log that never held a record, too (KAFKA-15591).
"""

from typing import Final, NamedTuple

from txn.partition.producer_state_entry import ProducerStateEntry, is_later


class AbortedTxn(NamedTuple):
    """An aborted transaction of a partition.

    `last_offset` is its marker, `last_stable_offset` the last stable offset behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


AdmitResult = tuple[int, int, AbortedTxn | None]
"""(kind, value, aborted transaction); the kinds follow. See `ProducerStateManager` in
`_core.pyi`.
"""

ADMIT: Final = 0
DUPLICATE: Final = 1
ASK_TO_JOIN: Final = 2
REFUSE: Final = 3

COORDINATOR: Final = 0
"""Origin of a coordinator's own batch: it carries an epoch and no sequences."""
CLIENT_V2: Final = 2
"""Origin of a client's batch under transaction version 2; 1 is one under version 1."""

# Verdicts are made once; their second value is the error code of the Kafka protocol.
JOIN: Final[AdmitResult] = (ASK_TO_JOIN, 0, None)
OUT_OF_ORDER_SEQUENCE: Final[AdmitResult] = (REFUSE, 45, None)
INVALID_PRODUCER_EPOCH: Final[AdmitResult] = (REFUSE, 47, None)
INVALID_TXN_STATE: Final[AdmitResult] = (REFUSE, 48, None)
COORDINATOR_FENCED: Final[AdmitResult] = (REFUSE, 52, None)
INVALID_RECORD: Final[AdmitResult] = (REFUSE, 87, None)


def refusal(
    state: ProducerStateEntry | None,
    origin: int,
    producer_epoch: int,
    base_sequence: int,
    last_sequence: int,
    is_transactional: bool,
    expected_epoch: int | None,
    is_unwritten: bool,
) -> AdmitResult | None:
    """Decide on a data batch.

    Args:
        state: The partition's entry of the producer id; None if there is none.
        origin: `COORDINATOR`, 1 (a client under TV1) or `CLIENT_V2`.
        producer_epoch: Of the batch, as are the sequences.
        base_sequence: Of the first record; -1 from the coordinator.
        last_sequence: Of the last record.
        is_transactional: Whether the batch belongs to a transaction.
        expected_epoch: Epoch of the ongoing transaction this partition is known to be in.
        is_unwritten: Whether this log never held a record.

    Returns:
        None to admit; else JOIN, a duplicate with its base offset, or an error.
    """
    if origin == COORDINATOR:
        return _refusal_to_coordinator(state, producer_epoch, is_transactional)
    if base_sequence < 0:
        return INVALID_RECORD
    if producer_epoch < 0:
        return INVALID_PRODUCER_EPOCH
    must_join = is_transactional and expected_epoch != producer_epoch
    if state is None:
        if must_join:
            return JOIN
        is_ahead = base_sequence and begins_at_zero(origin, is_transactional, is_unwritten)
        return OUT_OF_ORDER_SEQUENCE if is_ahead else None
    if producer_epoch < state.producer_epoch:
        return INVALID_PRODUCER_EPOCH
    if producer_epoch > state.producer_epoch:
        if must_join:
            return JOIN
        if base_sequence:
            return OUT_OF_ORDER_SEQUENCE
        return None if state.txn_first_offset < 0 else INVALID_TXN_STATE

    # The next sequence cannot be a duplicate: five batches never hold 2**31 records.
    is_next = base_sequence == state.next_sequence
    is_open = state.txn_first_offset >= 0
    if not is_next:
        base_offset = state.offset_of_stored(base_sequence, last_sequence)
        has_next = base_offset < state.txn_first_offset if is_open else not must_join
        if base_offset >= 0 and not (is_transactional and has_next):
            return DUPLICATE, base_offset, None
    if must_join and not is_open:
        return JOIN
    if not is_next:
        return OUT_OF_ORDER_SEQUENCE
    return INVALID_TXN_STATE if is_open and not is_transactional else None


def begins_at_zero(origin: int, is_transactional: bool, is_unwritten: bool) -> bool:
    """Return True if a client that is unknown here has stored nothing of its epoch, for sure."""
    return is_unwritten or (origin == CLIENT_V2 and is_transactional)


def _refusal_to_coordinator(
    state: ProducerStateEntry | None, producer_epoch: int, is_transactional: bool
) -> AdmitResult | None:
    """Decide on a batch without sequences, whose transaction the coordinator has checked itself."""
    if state is None:
        return None
    if producer_epoch < state.producer_epoch:
        return INVALID_PRODUCER_EPOCH
    if state.txn_first_offset < 0 or (is_transactional and producer_epoch == state.producer_epoch):
        return None
    return INVALID_TXN_STATE


def is_out_of_turn(
    waiting: tuple[int, int] | None, producer_epoch: int, base_sequence: int
) -> bool:
    """Return True if an earlier batch of this unknown producer was asked to join and is not here
    yet.

    A client sends ahead. If the coordinator turned its first batch away for the moment, the second
    must not take the first's place. Else the first could never be stored.

    Args:
        waiting: (producer_epoch, lowest sequence) of the batches asked to join, if any.
        producer_epoch: Of the batch, as is the sequence.
        base_sequence: Of its first record.
    """
    return (
        waiting is not None and waiting[0] == producer_epoch and is_later(base_sequence, waiting[1])
    )


def refusal_of_marker(
    state: ProducerStateEntry | None, producer_epoch: int, coordinator_epoch: int
) -> AdmitResult | None:
    """Decide on a marker; None to admit. One for a producer with nothing open ends nothing."""
    if state is None:
        return None
    if producer_epoch < state.producer_epoch:
        return INVALID_PRODUCER_EPOCH
    if coordinator_epoch < state.coordinator_epoch:
        return COORDINATOR_FENCED
    return None
