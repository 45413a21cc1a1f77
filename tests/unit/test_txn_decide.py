import uuid

import pytest

from txn.coordinator.transaction.decide import (
    TV1,
    TV2,
    AbortFirst,
    Done,
    End,
    Refuse,
    Write,
    complete,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    decide_verify,
)
from txn.coordinator.transaction.recovery_decisions import (
    decide_after_power_failure,
    result_of_hanging,
)
from txn.coordinator.transaction.states import (
    LastOffset,
    Txn,
    TxnResult,
    TxnState,
    UnsyncedMarker,
    is_move,
)
from txn.identifiers import ProducerIdAndEpoch
from txn.wire.error_codes import ErrorCode

ID, OTHER_ID, NEW_ID = 7, 8, 9
LAST_EPOCH = 32766
COMMIT, ABORT = TxnResult.COMMIT, TxnResult.ABORT
PARTITION = ("t", 0)
TOPIC_ID = uuid.UUID(int=1).bytes

EMPTY = Txn(
    producer_id=ID,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TxnState.EMPTY,
    partitions=frozenset(),
    start_ms=-1,
    updated_ms=100,
)
ONGOING = EMPTY._replace(state=TxnState.ONGOING, partitions=frozenset({PARTITION}), start_ms=200)
ONGOING_V2 = ONGOING._replace(client_version=TV2)


def new_id() -> int:
    return NEW_ID


def no_id() -> int:
    raise AssertionError("no producer id is needed")


def init(txn: Txn | None, shown: ProducerIdAndEpoch | None = None) -> Refuse | Write | AbortFirst:
    return decide_init(txn, shown, timeout_ms=9_000, now_ms=300, new_producer_id=new_id)


def end_v2(txn: Txn | None, epoch: int, outcome: TxnResult, producer_id: int = ID) -> object:
    return decide_end_and_bump(
        txn, ProducerIdAndEpoch(producer_id, epoch), outcome, now_ms=300, new_producer_id=new_id
    )


def ended(txn: Txn, outcome: TxnResult) -> Txn:
    """A transaction after EndTxn v5 and its markers."""
    decision = end_v2(txn, txn.producer_epoch, outcome)
    assert isinstance(decision, End)
    return complete(decision.prepare, now_ms=301)


FENCED = Refuse(ErrorCode.PRODUCER_FENCED)
INVALID_STATE = Refuse(ErrorCode.INVALID_TXN_STATE)
ABORTABLE = Refuse(ErrorCode.TRANSACTION_ABORTABLE)
CONCURRENT = Refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
UNKNOWN = Refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


# ---------------------------------------------------------------- InitProducerId


def test_an_unknown_id_gets_a_new_producer_id_and_epoch_0() -> None:
    decision = init(None)
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(NEW_ID, 0)
    assert decision.txn.timeout_ms == 9_000


def test_an_unknown_id_takes_no_notice_of_what_an_expired_producer_shows() -> None:
    decision = init(None, ProducerIdAndEpoch(ID, 5))
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(NEW_ID, 0)


def test_a_new_instance_gets_the_next_epoch() -> None:
    decision = init(EMPTY)
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(ID, 6)
    assert decision.txn.last_producer_epoch == -1


def test_a_producer_that_shows_its_epoch_goes_on_with_the_next() -> None:
    decision = init(EMPTY, ProducerIdAndEpoch(ID, 5))
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(ID, 6)


def test_a_producer_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    first = init(EMPTY, ProducerIdAndEpoch(ID, 5))
    assert isinstance(first, Write)
    again = init(first.txn, ProducerIdAndEpoch(ID, 5))
    assert isinstance(again, Write)
    assert again.txn.producer == ProducerIdAndEpoch(ID, 6)
    assert again.txn.last_producer_epoch == 5


def test_P7_a_producer_that_shows_an_epoch_a_new_instance_took_is_fenced() -> None:
    newer = init(EMPTY)
    assert isinstance(newer, Write)
    assert init(newer.txn, ProducerIdAndEpoch(ID, 5)) == FENCED


def test_a_producer_that_shows_another_producer_id_is_fenced() -> None:
    assert init(EMPTY, ProducerIdAndEpoch(OTHER_ID, 5)) == FENCED


def test_P7_an_open_transaction_is_aborted_under_a_later_epoch_first() -> None:
    decision = init(ONGOING)
    assert isinstance(decision, AbortFirst)
    assert decision.end.prepare.state is TxnState.PREPARE_ABORT
    assert decision.end.prepare.producer == ProducerIdAndEpoch(ID, 6)
    assert decision.end.prepare.partitions == ONGOING.partitions


def test_a_new_instance_is_one_epoch_above_the_one_that_fenced() -> None:
    decision = init(ONGOING)
    assert isinstance(decision, AbortFirst)
    then = init(decision.end.complete)
    assert isinstance(then, Write)
    assert then.txn.producer == ProducerIdAndEpoch(ID, 7)


def test_a_producer_that_aborts_by_initializing_gets_the_fencing_epoch_itself() -> None:
    decision = init(ONGOING, ProducerIdAndEpoch(ID, 5))
    assert isinstance(decision, AbortFirst)
    completed = decision.end.complete
    then = init(completed, ProducerIdAndEpoch(ID, 5))
    assert isinstance(then, Write)
    assert then.txn.producer == ProducerIdAndEpoch(ID, 6)
    assert init(then.txn, ProducerIdAndEpoch(ID, 5)) == then


def test_P7_a_fenced_producer_cannot_abort_its_successors_transaction() -> None:
    assert init(ONGOING, ProducerIdAndEpoch(ID, 4)) == FENCED


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_a_producer_waits_for_a_decision_that_is_not_finished(state: TxnState) -> None:
    assert init(ONGOING._replace(state=state)) == CONCURRENT


def test_a_producer_id_whose_epochs_are_used_up_is_replaced() -> None:
    decision = init(EMPTY._replace(producer_epoch=LAST_EPOCH))
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(NEW_ID, 0)
    assert decision.txn.previous_producer_id == ID


def test_a_lost_answer_about_a_replaced_producer_id_is_given_again() -> None:
    first = init(EMPTY._replace(producer_epoch=LAST_EPOCH), ProducerIdAndEpoch(ID, LAST_EPOCH))
    assert isinstance(first, Write)
    again = init(first.txn, ProducerIdAndEpoch(ID, LAST_EPOCH))
    assert isinstance(again, Write)
    assert again.txn == first.txn


def test_P7_the_replaced_producer_id_is_fenced_once_a_new_instance_came() -> None:
    first = init(EMPTY._replace(producer_epoch=LAST_EPOCH))
    assert isinstance(first, Write)
    assert init(first.txn, ProducerIdAndEpoch(ID, LAST_EPOCH)) == FENCED


def test_fencing_the_last_epoch_replaces_the_producer_id() -> None:
    decision = init(ONGOING._replace(producer_epoch=LAST_EPOCH))
    assert isinstance(decision, AbortFirst)
    assert decision.end.prepare.producer == ProducerIdAndEpoch(ID, LAST_EPOCH + 1)
    assert decision.end.complete.producer == ProducerIdAndEpoch(NEW_ID, 0)


# ---------------------------------------------------------------- joining


def add(txn: Txn | None, producer: ProducerIdAndEpoch, partition: tuple[str, int]) -> object:
    return decide_add(txn, producer, {partition}, client_version=TV1, now_ms=300)


@pytest.mark.parametrize(
    "state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT]
)
def test_the_first_partition_begins_a_transaction(state: TxnState) -> None:
    decision = add(EMPTY._replace(state=state), ProducerIdAndEpoch(ID, 5), PARTITION)
    assert isinstance(decision, Write)
    assert decision.txn.state is TxnState.ONGOING
    assert decision.txn.partitions == {PARTITION}
    assert decision.txn.start_ms == 300


def test_a_later_partition_leaves_the_time_of_the_beginning() -> None:
    decision = add(ONGOING, ProducerIdAndEpoch(ID, 5), ("t", 1))
    assert isinstance(decision, Write)
    assert decision.txn.partitions == {("t", 0), ("t", 1)}
    assert decision.txn.start_ms == 200


def test_a_partition_that_joined_before_writes_nothing() -> None:
    assert add(ONGOING, ProducerIdAndEpoch(ID, 5), PARTITION) == Done(ONGOING)


@pytest.mark.parametrize(
    ("producer", "refusal"),
    [
        (ProducerIdAndEpoch(OTHER_ID, 5), UNKNOWN),
        (ProducerIdAndEpoch(ID, 4), FENCED),
        (ProducerIdAndEpoch(ID, 6), FENCED),
    ],
)
def test_P7_only_the_current_producer_joins_partitions(
    producer: ProducerIdAndEpoch, refusal: Refuse
) -> None:
    assert add(ONGOING, producer, ("t", 1)) == refusal
    assert decide_verify(ONGOING, producer, PARTITION) == refusal


def test_nothing_joins_an_unknown_id() -> None:
    assert add(None, ProducerIdAndEpoch(ID, 5), PARTITION) == UNKNOWN


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_P3_nothing_joins_a_transaction_that_is_decided(state: TxnState) -> None:
    assert add(ONGOING._replace(state=state), ProducerIdAndEpoch(ID, 5), ("t", 1)) == CONCURRENT


def test_a_batch_outside_the_declared_partitions_is_refused() -> None:
    assert decide_verify(ONGOING, ProducerIdAndEpoch(ID, 5), ("t", 1)) == ABORTABLE
    assert decide_verify(EMPTY, ProducerIdAndEpoch(ID, 5), PARTITION) == ABORTABLE
    assert decide_verify(ONGOING, ProducerIdAndEpoch(ID, 5), PARTITION) == Done(ONGOING)


# ---------------------------------------------------------------- EndTxn v0-4


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (TxnState.EMPTY, INVALID_STATE, INVALID_STATE),
        (TxnState.PREPARE_COMMIT, CONCURRENT, INVALID_STATE),
        (TxnState.PREPARE_ABORT, INVALID_STATE, CONCURRENT),
        (TxnState.COMPLETE_COMMIT, "done", INVALID_STATE),
        (TxnState.COMPLETE_ABORT, INVALID_STATE, "done"),
    ],
)
def test_the_end_under_version_1_is_answered_by_the_state(
    state: TxnState, commit: Refuse | str, abort: Refuse | str
) -> None:
    txn = EMPTY._replace(state=state)
    answers = [
        decide_end(txn, ProducerIdAndEpoch(ID, 5), outcome, now_ms=300)
        for outcome in (COMMIT, ABORT)
    ]
    assert answers == [
        Done(txn) if expected == "done" else expected for expected in (commit, abort)
    ]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(COMMIT, TxnState.PREPARE_COMMIT), (ABORT, TxnState.PREPARE_ABORT)],
)
def test_the_end_under_version_1_keeps_the_epoch(outcome: TxnResult, state: TxnState) -> None:
    decision = decide_end(ONGOING_V2, ProducerIdAndEpoch(ID, 5), outcome, now_ms=300)
    prepare = ONGOING._replace(state=state, updated_ms=300)
    completed = complete(prepare, now_ms=300)
    assert decision == End(prepare, completed, ProducerIdAndEpoch(ID, 5))


@pytest.mark.parametrize("epoch", [4, 6])
def test_P7_any_other_epoch_is_fenced_under_version_1(epoch: int) -> None:
    assert decide_end(ONGOING, ProducerIdAndEpoch(ID, epoch), COMMIT, now_ms=300) == FENCED


@pytest.mark.parametrize("txn", [None, ONGOING])
def test_an_unknown_producer_id_cannot_end_anything(txn: Txn | None) -> None:
    assert decide_end(txn, ProducerIdAndEpoch(OTHER_ID, 5), COMMIT, now_ms=300) == UNKNOWN
    assert end_v2(txn, 5, COMMIT, OTHER_ID) == UNKNOWN


# ---------------------------------------------------------------- EndTxn v5


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(COMMIT, TxnState.COMPLETE_COMMIT), (ABORT, TxnState.COMPLETE_ABORT)],
)
def test_the_end_under_version_2_bumps_the_epoch(outcome: TxnResult, state: TxnState) -> None:
    txn = ended(ONGOING_V2, outcome)
    assert txn.state is state
    assert txn.producer == ProducerIdAndEpoch(ID, 6)
    assert txn.partitions == frozenset()


PREPARE_COMMIT = ONGOING_V2._replace(state=TxnState.PREPARE_COMMIT, producer_epoch=6)
PREPARE_ABORT = ONGOING_V2._replace(state=TxnState.PREPARE_ABORT, producer_epoch=6)
COMMITTED = ended(ONGOING_V2, COMMIT)
ABORTED = ended(ONGOING_V2, ABORT)
AGAIN, NOW = 5, 6


@pytest.mark.parametrize(
    ("txn", "epoch", "outcome", "answer"),
    [
        (EMPTY._replace(producer_epoch=6), AGAIN, ABORT, FENCED),
        (EMPTY._replace(producer_epoch=6), AGAIN, COMMIT, FENCED),
        (EMPTY._replace(producer_epoch=6), NOW, COMMIT, INVALID_STATE),
        (PREPARE_ABORT, AGAIN, ABORT, CONCURRENT),
        (PREPARE_ABORT, AGAIN, COMMIT, FENCED),
        (PREPARE_ABORT, NOW, ABORT, FENCED),
        (PREPARE_ABORT, NOW, COMMIT, FENCED),
        (PREPARE_COMMIT, AGAIN, ABORT, INVALID_STATE),
        (PREPARE_COMMIT, AGAIN, COMMIT, CONCURRENT),
        (PREPARE_COMMIT, NOW, ABORT, FENCED),
        (PREPARE_COMMIT, NOW, COMMIT, FENCED),
        (ABORTED, AGAIN, ABORT, Done(ABORTED)),
        (ABORTED, AGAIN, COMMIT, FENCED),
        (ABORTED, NOW, COMMIT, INVALID_STATE),
        (COMMITTED, AGAIN, ABORT, INVALID_STATE),
        (COMMITTED, AGAIN, COMMIT, Done(COMMITTED)),
        (COMMITTED, NOW, COMMIT, INVALID_STATE),
        (COMMITTED, 4, COMMIT, FENCED),
        (ONGOING_V2, 4, COMMIT, FENCED),
    ],
)
def test_the_end_under_version_2_is_answered_by_the_state_and_the_epochs(
    txn: Txn, epoch: int, outcome: TxnResult, answer: object
) -> None:
    assert end_v2(txn, epoch, outcome) == answer


@pytest.mark.parametrize("txn", [EMPTY._replace(producer_epoch=6), COMMITTED, ABORTED])
def test_an_abort_with_nothing_open_bumps_the_epoch(txn: Txn) -> None:
    decision = end_v2(txn, NOW, ABORT)
    assert isinstance(decision, End)
    assert decision.prepare.state is TxnState.PREPARE_ABORT
    assert decision.prepare.producer == ProducerIdAndEpoch(ID, 7)


def test_P7_a_producer_fenced_before_a_version_1_transaction_is_not_told_it_committed() -> None:
    txn = EMPTY._replace(state=TxnState.COMPLETE_COMMIT, client_version=TV1)
    assert end_v2(txn, 4, COMMIT) == FENCED


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    txn = ended(ONGOING_V2._replace(producer_epoch=LAST_EPOCH), COMMIT)
    assert txn.producer == ProducerIdAndEpoch(NEW_ID, 0)


def test_a_lost_answer_with_a_new_producer_id_is_given_again() -> None:
    txn = ended(ONGOING_V2._replace(producer_epoch=LAST_EPOCH), COMMIT)
    assert end_v2(txn, LAST_EPOCH, COMMIT) == Done(txn)


def test_a_producer_id_is_only_asked_for_when_the_epochs_are_used_up() -> None:
    decision = decide_end_and_bump(
        ONGOING_V2, ProducerIdAndEpoch(ID, 5), COMMIT, now_ms=300, new_producer_id=no_id
    )
    assert isinstance(decision, End)


# ---------------------------------------------------------------- the coordinator's own


def test_a_timed_out_commit_is_fenced_under_either_version() -> None:
    txn = decide_fence(ONGOING, now_ms=300, new_producer_id=no_id).complete
    assert decide_end(txn, ProducerIdAndEpoch(ID, 5), COMMIT, now_ms=302) == FENCED
    assert end_v2(txn, 5, COMMIT) == FENCED


def test_a_timed_out_abort_succeeds_under_version_2() -> None:
    txn = decide_fence(ONGOING, now_ms=300, new_producer_id=no_id).complete
    assert end_v2(txn, 5, ABORT) == Done(txn)


def test_a_timed_out_producer_goes_on_with_the_epoch_that_fenced_it() -> None:
    # One that asked for its next epoch by showing the one it had (KIP-360) was fenced, though
    # nobody had taken its id over. Apache Kafka 4.2 gives it the epoch that fenced it.
    txn = decide_fence(ONGOING, now_ms=300, new_producer_id=no_id).complete
    for _ in range(2):
        decision = init(txn, ProducerIdAndEpoch(ID, 5))
        assert isinstance(decision, Write)
        assert decision.txn.producer == ProducerIdAndEpoch(ID, 6)
        txn = decision.txn
    newer = init(txn)
    assert isinstance(newer, Write)
    assert init(newer.txn, ProducerIdAndEpoch(ID, 5)) == FENCED


def test_a_lost_answer_to_an_end_may_be_asked_for_with_a_start() -> None:
    decision = init(ended(ONGOING_V2, COMMIT), ProducerIdAndEpoch(ID, 5))
    assert isinstance(decision, Write)
    assert decision.txn.producer == ProducerIdAndEpoch(ID, 6)
    last = ONGOING_V2._replace(producer_epoch=LAST_EPOCH)
    for _ in range(2):
        decision = init(ended(last, COMMIT), ProducerIdAndEpoch(ID, LAST_EPOCH))
        assert isinstance(decision, Write)
        assert decision.txn.producer == ProducerIdAndEpoch(NEW_ID, 0)


def after_power_failure(txn: Txn, *, is_behind: bool = False) -> Txn:
    fenced = decide_after_power_failure(
        txn, is_behind=is_behind, now_ms=400, new_producer_id=new_id
    )
    assert is_move(txn, fenced)
    return fenced


def test_P3_a_power_failure_aborts_what_was_open() -> None:
    assert after_power_failure(ONGOING).state is TxnState.PREPARE_ABORT


@pytest.mark.parametrize("txn", [EMPTY, COMMITTED, ABORTED, EMPTY._replace(client_version=TV2)])
def test_P3_after_a_power_failure_no_producer_goes_on_as_if_nothing_was_lost(txn: Txn) -> None:
    fenced = after_power_failure(txn)
    assert add(fenced, txn.producer, PARTITION) == FENCED
    assert end_v2(fenced, txn.producer_epoch, COMMIT) == FENCED
    assert decide_end(fenced, txn.producer, COMMIT, now_ms=401) == FENCED


@pytest.mark.parametrize("txn", [EMPTY, COMMITTED, ABORTED, ONGOING, ONGOING_V2])
def test_P6_where_epochs_may_have_been_lost_the_next_producer_has_a_new_id(txn: Txn) -> None:
    """Partitions knew later epochs: its batches were refused, or taken for a repetition."""
    fenced = after_power_failure(txn, is_behind=True)
    if txn.state is TxnState.ONGOING:
        assert fenced.producer == ProducerIdAndEpoch(ID, LAST_EPOCH + 1)
        fenced = complete(fenced, now_ms=401)
    assert fenced.producer == ProducerIdAndEpoch(NEW_ID, 0)
    assert isinstance(add(fenced, txn.producer, PARTITION), Refuse)


def test_where_epochs_may_have_been_lost_the_last_end_is_known_nevertheless() -> None:
    fenced = after_power_failure(COMMITTED, is_behind=True)
    assert end_v2(fenced, AGAIN, COMMIT) == Done(fenced)


def test_a_power_failure_does_not_forget_how_the_last_transaction_ended() -> None:
    fenced = after_power_failure(COMMITTED)
    assert end_v2(fenced, AGAIN, COMMIT) == Done(fenced)
    assert end_v2(fenced, AGAIN, ABORT) == INVALID_STATE


def test_a_power_failure_forgets_it_where_its_repetition_could_be_another_end() -> None:
    txn = EMPTY._replace(state=TxnState.COMPLETE_COMMIT, client_version=TV1)
    fenced = after_power_failure(txn)
    assert fenced.state is TxnState.EMPTY
    assert decide_end(fenced, txn.producer, COMMIT, now_ms=401) == FENCED


def test_a_new_producer_id_survives_a_power_failure_with_its_repetition() -> None:
    txn = ended(ONGOING_V2._replace(producer_epoch=LAST_EPOCH), COMMIT)
    fenced = after_power_failure(txn)
    assert fenced.producer == ProducerIdAndEpoch(NEW_ID, 1)
    assert end_v2(fenced, LAST_EPOCH, COMMIT) == Done(fenced)
    assert end_v2(fenced, 0, COMMIT, NEW_ID) == FENCED


def test_no_power_failure_uses_up_the_last_epoch() -> None:
    """The owner of a lost answer was once given epoch 32767, which no client may hold."""
    committed = ended(ONGOING_V2._replace(producer_epoch=LAST_EPOCH - 1), COMMIT)
    assert committed.producer == ProducerIdAndEpoch(ID, LAST_EPOCH)
    fenced = after_power_failure(committed)
    assert fenced.producer == ProducerIdAndEpoch(NEW_ID, 0)
    assert end_v2(fenced, LAST_EPOCH - 1, COMMIT) == Done(fenced)
    assert end_v2(fenced, LAST_EPOCH, COMMIT) == UNKNOWN


def test_a_lost_first_answer_survives_a_power_failure_at_the_last_epoch() -> None:
    first = init(
        EMPTY._replace(producer_epoch=LAST_EPOCH - 1), ProducerIdAndEpoch(ID, LAST_EPOCH - 1)
    )
    assert isinstance(first, Write)
    fenced = after_power_failure(first.txn)
    again = init(fenced, ProducerIdAndEpoch(ID, LAST_EPOCH - 1))
    assert isinstance(again, Write)
    assert again.txn.producer == ProducerIdAndEpoch(NEW_ID, 0)
    assert init(fenced, ProducerIdAndEpoch(ID, LAST_EPOCH)) == FENCED


@pytest.mark.parametrize(
    ("txn", "epoch", "outcome"),
    [
        (None, 5, ABORT),
        (COMMITTED, 5, COMMIT),
        (COMMITTED, 6, ABORT),
        (ABORTED, 5, ABORT),
        (ONGOING_V2, 5, ABORT),
        (COMMITTED._replace(client_version=TV1), 5, ABORT),
    ],
)
def test_an_orphan_commits_only_if_the_epochs_say_so(
    txn: Txn | None, epoch: int, outcome: TxnResult
) -> None:
    assert result_of_hanging(txn, ProducerIdAndEpoch(ID, epoch)) is outcome


def test_a_prepare_can_only_be_completed_as_it_says() -> None:
    assert not is_move(PREPARE_COMMIT, ABORTED)
    assert not is_move(PREPARE_ABORT, COMMITTED)
    assert not is_move(PREPARE_COMMIT, ONGOING_V2)
    assert is_move(PREPARE_COMMIT, COMMITTED)


def test_nothing_open_is_ever_forgotten() -> None:
    assert not is_move(ONGOING, None)
    assert not is_move(PREPARE_ABORT, None)
    assert is_move(COMMITTED, None)


# ---------------------------------------------------------------- fields that are carried on


FULL = Txn(
    producer_id=ID,
    producer_epoch=5,
    timeout_ms=60_001,
    state=TxnState.ONGOING,
    partitions=frozenset({PARTITION}),
    start_ms=201,
    updated_ms=101,
    previous_producer_id=OTHER_ID,
    last_producer_epoch=3,
    client_version=TV2,
    last_offsets=(LastOffset(TOPIC_ID, 0, 0, 11),),
    unsynced_markers=(UnsyncedMarker(TOPIC_ID, 0, 6, OTHER_ID, 5, is_commit=True),),
)
"""Every field, but those of a producer id to come, has a value that is not its default."""


def changed(before: Txn, after: Txn) -> set[str]:
    return {name for name in Txn._fields if getattr(before, name) != getattr(after, name)}


def test_a_decision_changes_no_field_but_its_own() -> None:
    """States are built from all fields in order: a new one would fall back to its default."""
    to_come = {"next_producer_id", "next_producer_epoch"}
    defaults = Txn._field_defaults.items()
    assert {name for name, default in defaults if getattr(FULL, name) == default} == to_come
    begun = add(FULL, FULL.producer, ("t", 1))
    assert isinstance(begun, Write)
    forgotten = {"previous_producer_id", "last_producer_epoch"}
    assert changed(FULL, begun.txn) == {"partitions", "updated_ms", "client_version", *forgotten}

    decision = end_v2(FULL, 5, COMMIT)
    assert isinstance(decision, End)
    assert changed(FULL, decision.prepare) == {"producer_epoch", "state", "updated_ms", *forgotten}

    full = FULL._replace(state=TxnState.PREPARE_COMMIT)
    assert changed(full, complete(full, now_ms=301)) == {
        *("state", "partitions", "updated_ms", "last_offsets")
    }
