"""The protocol against a cluster in memory: every row of the table of crashes, and any history."""

from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.fake_kafka import Crash, FakeKafka, Faulty, Hooked, Interleaving
from spark.fake_query import OUTPUT, TIMEOUT_MS, FakeQuery
from txn._core import KafkaError
from txn.errors import FencedError
from txn.spark.columns import one_record
from txn.spark.errors import LostError, NotPreparedError, RefusedError, ReplayError
from txn.spark.handout import Handout
from txn.spark.kafka import TransactionalClient
from txn.spark.progress import BatchStage, OnLost, Progress, SkipBatch, Slot, judge
from txn.spark.transactional_ids import driver_id, is_task_id

pytestmark = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def cluster(version: int) -> FakeKafka:
    return FakeKafka(version)


@pytest.fixture
def query(cluster: FakeKafka) -> FakeQuery:
    return FakeQuery(cluster)


def crash() -> None:
    raise Crash


def test_batches_come_out_once_each(query: FakeQuery) -> None:
    for _ in range(4):
        query.run_batch()
    assert query.written() == query.expected(4)


def test_crash_before_or_during_the_tasks_replays_the_batch(query: FakeQuery) -> None:
    query.run_batch()
    handout = query.driver().begin()
    query.attempt(query.cluster, handout, 0, [b"half"])
    query.restart()
    query.run_batch()
    assert query.written() == query.expected(2)


def test_open_transactions_of_a_dead_driver_are_aborted_at_once(query: FakeQuery) -> None:
    handout = query.driver().begin()
    query.attempt(query.cluster, handout, 0, [b"half"])
    query.driver().begin()
    assert query.cluster.list_transactions(["Ongoing"], "q.") == []
    stable, high = (
        query.cluster.end((OUTPUT, 0), read_committed=isolated) for isolated in (True, False)
    )
    assert stable == high


def test_decision_that_was_not_committed_is_no_decision(query: FakeQuery) -> None:
    """Killed between the decision's Produce and its EndTxn."""
    driver = query.driver()
    handout = driver.begin()
    slot = query.attempt(query.cluster, handout, 0, [b"x"])
    assert slot is not None
    # describe, then flush of the decision; after that the driver is gone
    with pytest.raises(Crash):
        query.driver(Faulty(query.cluster, 1, crash, after=True)).decide(
            handout, query.query, 0, [slot]
        )
    query.restart()
    assert query.driver().begin().progress is None
    query.run_batch()
    assert query.written() == query.expected(1)


def decided_but_not_committed(query: FakeQuery, batch: int = 0) -> None:
    """Killed right after the commit point."""
    handout = query.driver().begin()
    rows = query.rows(batch)
    slots = [query.attempt(query.cluster, handout, task, rows[task::2]) for task in range(2)]
    # describe, flush, add_offsets is not called without a group, end_txn
    with pytest.raises(Crash):
        query.driver(Faulty(query.cluster, 2, crash, after=True)).decide(
            handout, query.query, batch, [slot for slot in slots if slot is not None]
        )
    query.restart()


def test_crash_after_the_commit_point_is_finished_by_the_next_driver(query: FakeQuery) -> None:
    decided_but_not_committed(query)
    assert query.written() == []
    handout = query.driver().begin()
    assert query.written() == query.expected(1)
    assert handout.progress is not None
    assert handout.progress.state is BatchStage.DONE
    assert judge(handout.progress, query.query, 0) == SkipBatch()


def test_finishing_a_decision_again_changes_nothing(query: FakeQuery) -> None:
    """Killed after every transaction of the decision is committed, before that is written."""
    decided_but_not_committed(query)
    for call in range(20):
        with pytest.raises(Crash):
            query.driver(Faulty(query.cluster, call, crash, after=True)).begin()
        if query.driver().begin().progress is not None:
            break
    query.driver().begin()
    assert query.written() == query.expected(1)


def test_crash_before_sparks_commit_log_makes_the_tasks_skip(query: FakeQuery) -> None:
    query.run_batch()
    query.next_batch = 0
    query.restart()
    assert query.run_batch() is False
    assert query.written() == query.expected(1)


def test_attempts_that_lost_are_never_committed(query: FakeQuery) -> None:
    handout = query.driver().begin()
    winner = query.attempt(query.cluster, handout, 0, [b"row"])
    loser = query.attempt(query.cluster, handout, 0, [b"row"])
    assert winner is not None
    assert loser is not None
    assert winner.identity.transactional_id != loser.identity.transactional_id
    query.driver().decide(handout, query.query, 0, [winner])
    assert query.written() == [b"row"]
    assert query.cluster.list_transactions(["Ongoing"], "q.") == []


def test_driver_with_an_old_token_cannot_decide(query: FakeQuery) -> None:
    old = query.driver().begin()
    slot = query.attempt(query.cluster, old, 0, [b"old"])
    assert slot is not None
    new = query.driver().begin()
    with pytest.raises((FencedError, NotPreparedError)):
        query.driver().decide(old, query.query, 0, [slot])
    with pytest.raises(FencedError, match=r"another driver took over txn\.id 'q'"):
        query.driver().decide(old, query.query, 0, [])
    mine = query.attempt(query.cluster, new, 0, [b"new"])
    assert mine is not None
    query.driver().decide(new, query.query, 0, [mine])
    assert query.written() == [b"new"]


def test_tasks_of_a_replaced_driver_cannot_disturb_the_new_ones(query: FakeQuery) -> None:
    for _ in range(2):
        query.run_batch()
    old = query.driver().begin()
    workers = query.workers
    query.restart()
    new = query.driver().begin()
    slot = query.attempt(query.cluster, new, 0, query.rows(2))
    assert slot is not None
    query.workers = workers
    for _ in range(5):  # zombies that come too late, with every identity the old driver gave
        with suppress(KafkaError):
            query.attempt(query.cluster, old, 0, [b"zombie"])
    query.driver().decide(new, query.query, 2, [slot])
    query.driver().begin()
    assert query.written() == query.expected(3)


def test_transaction_that_timed_out_before_the_decision_is_noticed(query: FakeQuery) -> None:
    handout = query.driver().begin()
    slot = query.attempt(query.cluster, handout, 0, [b"x"])
    assert slot is not None
    query.cluster.expire()
    with pytest.raises(NotPreparedError, match="Nothing was decided; the batch will be replayed"):
        query.driver().decide(handout, query.query, 0, [slot])
    query.restart()
    query.run_batch()
    assert query.written() == query.expected(1)


def test_transaction_about_to_time_out_is_not_decided_on(query: FakeQuery) -> None:
    handout = query.driver().begin()
    slot = query.attempt(query.cluster, handout, 0, [b"x"])
    assert slot is not None
    query.cluster.now_ms += TIMEOUT_MS - 29_999
    with pytest.raises(NotPreparedError, match="times out in 29999 ms"):
        query.driver().decide(handout, query.query, 0, [slot])


def test_checkpoint_that_was_removed_is_refused(query: FakeQuery) -> None:
    query.run_batch()
    other = FakeQuery(query.cluster, query="query-2")
    says = r"this query is query-2, but .* query-1.* writes all rows a second time: .*reset\.py"
    with pytest.raises(RefusedError, match=says):
        other.run_batch()
    assert query.written() == query.expected(1)


def test_progress_topic_that_was_lost_is_refused(query: FakeQuery) -> None:
    query.run_batch()
    query.cluster.logs.pop(("__txn_spark", 0))
    query.cluster.sequences.clear()
    says = r"has 1 earlier batch, and the sink has no record of it: it is from format\(\"kafka\"\)"
    with pytest.raises(RefusedError, match=says):
        query.run_batch()


def test_checkpoint_ahead_of_the_progress_is_refused(query: FakeQuery) -> None:
    query.run_batch()
    query.next_batch = 5
    with pytest.raises(RefusedError, match="the last one on record is 0"):
        query.run_batch()


def test_decided_transactions_that_timed_out_are_named(query: FakeQuery) -> None:
    decided_but_not_committed(query)
    names = [n for n in query.cluster.producers if is_task_id("q", n)]
    query.cluster.expire(names[:1])
    with pytest.raises(LostError, match=rf"1 of its 2 transactions .*3 rows, {names[0]}"):
        query.driver().begin()
    with pytest.raises(LostError):  # and again, until somebody looked
        query.driver().begin()


def test_decided_transactions_of_a_two_phase_commit_are_never_lost(query: FakeQuery) -> None:
    query.cluster.allows_two_phase = True
    decided_but_not_committed(query)
    query.cluster.expire()
    query.driver().begin()
    assert query.written() == query.expected(1)


def test_lost_tasks_alone_are_replayed_when_asked_for(cluster: FakeKafka) -> None:
    query = FakeQuery(cluster, on_lost=OnLost.REPLAY)
    decided_but_not_committed(query)
    names = [n for n in cluster.producers if is_task_id("q", n)]
    cluster.expire(names[:1])
    handout = query.driver().begin()
    verdict = judge(handout.progress, query.query, 0)
    assert not isinstance(verdict, SkipBatch)
    assert [task for task in range(3) if verdict.includes(task)] == [0]
    slot = query.attempt(cluster, handout, 0, query.rows(0)[0::2])
    assert slot is not None
    query.driver().decide(handout, query.query, 0, [slot])
    assert query.written() == query.expected(1)
    query.next_batch = 1
    query.run_batch()
    assert query.written() == query.expected(2)


def lose_one_while_deciding(query: FakeQuery) -> list[str]:
    """Decide the next batch; its first task's transaction is gone before it is committed."""
    handout = query.driver().begin()
    rows = query.rows(query.next_batch)
    slots = [query.attempt(query.cluster, handout, task, rows[task::2]) for task in range(2)]
    slots_there = [slot for slot in slots if slot is not None]
    lost = slots_there[0].identity.transactional_id
    power_fails = Faulty(query.cluster, 2, lambda: query.cluster.expire([lost]), after=True)
    query.driver(cast(TransactionalClient, power_fails)).decide(
        handout, query.query, query.next_batch, slots_there
    )
    return [lost]


def test_loss_while_deciding_is_no_success(cluster: FakeKafka) -> None:
    """`decide` returned, so Spark counted the batch, and the lost rows never came again."""
    query = FakeQuery(cluster, on_lost=OnLost.REPLAY)
    with pytest.raises(ReplayError, match=r"1 of its 2 transactions .*task 0, 3 rows"):
        lose_one_while_deciding(query)
    progress = query.driver().begin().progress
    assert progress is not None
    assert (progress.state, [slot.task for slot in progress.slots]) == (BatchStage.LOST, [0])


@pytest.mark.parametrize("on_lost", [OnLost.FAIL, OnLost.ACCEPT])
def test_a_loss_is_accepted_by_a_start_alone(cluster: FakeKafka, on_lost: OnLost) -> None:
    query = FakeQuery(cluster, on_lost=on_lost)
    with pytest.raises(LostError, match=r"start the query once with txn\.on\.lost=accept"):
        lose_one_while_deciding(query)
    query.on_lost = OnLost.ACCEPT
    progress = query.driver().begin().progress
    assert progress is not None
    assert progress.state is BatchStage.DONE
    query.on_lost = OnLost.FAIL
    query.next_batch = 1
    query.run_batch()
    assert query.written() == sorted([*query.rows(0)[1::2], *query.rows(1)])


def test_a_loss_that_was_to_be_replayed_may_be_accepted(cluster: FakeKafka) -> None:
    query = FakeQuery(cluster, on_lost=OnLost.REPLAY)
    with pytest.raises(ReplayError):
        lose_one_while_deciding(query)
    query.on_lost = OnLost.ACCEPT
    progress = query.driver().begin().progress
    assert progress is not None
    assert (progress.state, progress.slots) == (BatchStage.DONE, ())


def test_commits_of_expired_ids_are_not_called_lost(cluster: FakeKafka) -> None:
    """They were replayed, and all their rows were in the output twice."""
    query = FakeQuery(cluster, on_lost=OnLost.REPLAY)
    decided_but_not_committed(query)
    for name in [name for name in cluster.producers if is_task_id("q", name)]:
        producer = cluster.producers[name]
        cluster.end_txn(name, producer.producer_id, producer.epoch, commit=True)
        cluster.forget([name])
    cluster.now_ms += 8 * 24 * 3_600_000
    with pytest.raises(LostError, match=r"does not know 2 of its 2 .*\(transactional\.id\.exp"):
        query.driver().begin()
    query.on_lost = OnLost.ACCEPT
    query.driver().begin()
    query.next_batch = 1
    query.run_batch()
    assert query.written() == query.expected(2)


def test_driver_that_was_replaced_is_told_so_and_settles_nothing(query: FakeQuery) -> None:
    """It took the batch of its successor for a time-out, and aborted it."""
    old = query.driver().begin()
    mine = query.attempt(query.cluster, old, 0, query.rows(0))
    assert mine is not None
    successor = query.driver().begin()
    theirs = query.attempt(query.cluster, successor, 0, query.rows(0))
    assert theirs is not None
    with pytest.raises(FencedError):
        query.driver().decide(old, query.query, 0, [mine])
    with pytest.raises(FencedError):
        query.driver().begin(old.token)
    query.driver().decide(successor, query.query, 0, [theirs])
    assert query.written() == query.expected(1)


def test_driver_settles_its_own_batch_without_a_takeover(query: FakeQuery) -> None:
    handout = query.driver().begin()
    query.attempt(query.cluster, handout, 0, [b"half"])
    query.driver().begin(handout.token)
    assert query.cluster.list_transactions(["Ongoing"], "q.") == []
    query.run_batch()
    assert query.written() == query.expected(1)


def test_batch_whose_end_cannot_be_noted_is_in_the_output(
    query: FakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """It failed, and a caller that saved the rows again had them twice."""
    handout = query.driver().begin()
    slot = query.attempt(query.cluster, handout, 0, query.rows(0))
    assert slot is not None

    def no_answer() -> None:
        raise KafkaError("node 1 did not answer", -1, True)

    silent = Hooked(query.cluster, list_transactions=no_answer)
    query.driver(cast(TransactionalClient, silent)).decide(handout, query.query, 0, [slot])
    assert "All its rows are in the output" in caplog.text
    assert query.written() == query.expected(1)
    query.next_batch = 1
    query.run_batch()
    assert query.written() == query.expected(2)


def test_producers_of_an_old_record_are_not_used_again(query: FakeQuery) -> None:
    """Their transactional ids may have expired, and then each attempt of a task failed."""
    query.run_batch()
    assert query.driver().begin().spares != ()
    query.cluster.now_ms += 11 * 60_000
    assert query.driver().begin().spares == ()


def test_fenced_driver_does_not_cry_loss(query: FakeQuery) -> None:
    """It stood still after its decision; its successor has finished that and gone on."""
    handout = query.driver().begin()
    slot = query.attempt(query.cluster, handout, 0, query.rows(0))
    assert slot is not None
    others = FakeQuery(query.cluster)
    others.workers = query.workers  # the producers live on and are used again

    def meanwhile() -> None:
        others.run_batch()
        others.run_batch()
        others.attempt(query.cluster, others.driver().begin(), 0, [b"open"])

    with pytest.raises(FencedError):
        query.driver(Faulty(query.cluster, 2, meanwhile, after=True)).decide(
            handout, query.query, 0, [slot]
        )
    others.run_batch()
    assert query.written() == query.expected(3)


def test_replaced_driver_aborts_nothing_that_its_successor_decided(query: FakeQuery) -> None:
    """It sees the successor's transactions open, and stands still until they are decided."""
    cluster = query.cluster
    old = query.driver().begin()
    mine = query.attempt(cluster, old, 0, query.rows(0))
    assert mine is not None
    theirs: list[tuple[Handout, Slot]] = []

    def successor_writes() -> None:
        handout = query.driver().begin()
        slot = query.attempt(cluster, handout, 0, query.rows(1))
        assert slot is not None
        theirs.append((handout, slot))

    def successor_decides() -> None:
        handout, slot = theirs[0]
        dies = Faulty(cluster, 2, crash, after=True)  # right after the commit point
        with suppress(Crash):
            query.driver(cast(TransactionalClient, dies)).decide(handout, query.query, 1, [slot])

    stalls = Hooked(cluster, list_transactions=successor_writes, abort=successor_decides)
    with pytest.raises(FencedError):
        query.driver(cast(TransactionalClient, stalls)).decide(old, query.query, 0, [mine])
    if "abort" not in stalls.called:
        successor_decides()
    query.driver().begin()
    assert query.written() == query.expected(2)


def test_hidden_decision_is_waited_for(query: FakeQuery) -> None:
    """Another query's driver died between writing and committing its decision, in front of ours."""
    query.run_batch()
    other = driver_id("other")
    producer = query.cluster.init_producer_id(other, 60_000)
    writer = query.cluster.writer(other, *producer)
    one_record(writer, "__txn_spark", b"other", b"{}")
    writer.flush()
    query.run_batch()  # our newest records lie behind the open transaction
    began_ms = query.cluster.now_ms

    def times_out(seconds: float) -> None:
        query.cluster.now_ms += int(seconds * 1000)
        if query.cluster.now_ms - began_ms >= 60_000:
            query.cluster.expire([other])

    driver = query.driver()
    driver._pause = times_out
    progress = driver.begin().progress
    assert progress is not None
    assert progress.batch == 1
    assert query.cluster.now_ms - began_ms >= 60_000


def test_open_decision_of_another_query_alone_is_not_waited_for(query: FakeQuery) -> None:
    query.run_batch()
    other = driver_id("other")
    producer = query.cluster.init_producer_id(other, 60_000)
    writer = query.cluster.writer(other, *producer)
    one_record(writer, "__txn_spark", b"other", b"{}")
    writer.flush()
    began_ms = query.cluster.now_ms
    progress = query.driver().begin().progress
    assert progress is not None
    assert (progress.batch, query.cluster.now_ms) == (0, began_ms)


def test_ids_that_begin_alike_leave_each_other_alone(cluster: FakeKafka) -> None:
    longer = FakeQuery(cluster, id="q.0123456789abcdef")
    handout = longer.driver().begin()
    slot = longer.attempt(cluster, handout, 0, longer.rows(0))
    assert slot is not None
    FakeQuery(cluster, id="q").driver().begin()
    longer.driver().decide(handout, longer.query, 0, [slot])
    assert longer.written() == longer.expected(1)


def test_source_offsets_commit_with_the_decision_or_not_at_all(query: FakeQuery) -> None:
    query.run_batch()
    assert query.cluster.group_offsets == {("g", "in", 0): 1}
    handout = query.driver().begin()
    with pytest.raises(Crash):
        query.driver(Faulty(query.cluster, 1, crash, after=True)).decide(
            handout, query.query, 1, [], group="g", source_offsets=[("in", 0, 2)]
        )
    query.driver().begin()
    assert query.cluster.group_offsets == {("g", "in", 0): 1}


def test_empty_batch_is_decided_without_tasks(query: FakeQuery) -> None:
    query.driver().decide(query.driver().begin(), query.query, 0, [])
    progress = query.driver().begin().progress
    assert progress is not None
    assert (progress.batch, progress.state, progress.slots) == (0, BatchStage.DONE, ())


def test_workers_get_their_producers_back(version: int, query: FakeQuery) -> None:
    query.has_losers = False
    for _ in range(6):
        query.run_batch()
    before = [name for name in query.cluster.producers if is_task_id("q", name)]
    query.run_batch()
    after = [name for name in query.cluster.producers if is_task_id("q", name)]
    assert after == before


def test_producers_of_dead_workers_are_dropped(query: FakeQuery) -> None:
    query.run_batch()
    dead = {name for name in query.cluster.producers if is_task_id("q", name)}
    query.restart()
    for _ in range(12):
        query.run_batch()
    spares = {spare.identity.transactional_id for spare in query.driver().begin().spares}
    assert not dead & spares


def test_records_survive_their_json(query: FakeQuery) -> None:
    query.run_batch()
    progress = query.driver().begin().progress
    assert progress is not None
    assert Progress.from_json(progress.to_json()) == progress


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_history_of_kills_loses_or_repeats_a_row(version: int, data: st.DataObject) -> None:
    """Kills at any request, before or after its effect, and drivers that stand still."""
    cluster = FakeKafka(version)
    query = FakeQuery(cluster, seed=data.draw(st.integers(0, 1000), "seed"))
    fate = st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from(["kill", "stall", "none"]))
    fates = data.draw(st.lists(fate, max_size=8), "fates")
    for call, after, what in fates:
        _suffer(query, call, after=after, what=what)
    batches = query.next_batch + 2
    while query.next_batch < batches:
        query.run_batch()
    assert query.written() == query.expected(batches)
    assert cluster.list_transactions(["Ongoing"], "q.driver") == []


ENOUGH = 200
"""More requests than an actor of the tests below ever makes."""


@settings(deadline=None, max_examples=400)
@given(
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), max_size=20).map(
        lambda runs: [actor for actor, count in runs for _ in range(count)]
    ),
    seed=st.integers(0, 1000),
)
def test_no_interleaving_of_drivers_loses_or_repeats_a_row(
    version: int, turns: list[int], seed: int
) -> None:
    """Three drivers of one query in one application, request by request in any order."""
    cluster = FakeKafka(version)
    query = FakeQuery(cluster, seed=seed)

    def run(client: TransactionalClient) -> None:
        with suppress(FencedError, NotPreparedError, KafkaError):
            while query.next_batch < 4:
                query.run_batch(client)

    Interleaving(cluster, turns).run([run, run, run])
    query.restart()
    while query.next_batch < 5:
        query.run_batch()
    assert query.written() == query.expected(5)


@pytest.mark.parametrize("first", range(45))
def test_driver_that_stands_still_anywhere_harms_nobody(version: int, first: int) -> None:
    """It stops before its n-th request, its successor before any of its own, and both go on.

    The actions of the one on tasks' transactions must not touch transactions that the other has
    prepared, nor those it has decided and not yet committed.
    """
    for second in range(first % 2, 45, 2):  # half of all pairs; each distance is there
        cluster = FakeKafka(version)
        query = FakeQuery(cluster, seed=second)
        query.run_batch()
        dead = query.driver().begin()
        for worker in query.workers:  # open transactions that both find
            worker.own.claim(cluster, dead, TIMEOUT_MS)
        query.attempt(cluster, dead, 0, [b"half"])

        def run(client: TransactionalClient, query: FakeQuery = query) -> None:
            with suppress(FencedError, NotPreparedError, KafkaError):
                query.run_batch(client)

        turns = [0] * first + [1] * second + [0] * ENOUGH
        still = Interleaving(cluster, turns)
        still.run([run, run])
        query.restart()
        batches = query.next_batch + 1
        while query.next_batch < batches:
            query.run_batch()
        assert query.written() == query.expected(batches), (first, second)


def _suffer(query: FakeQuery, call: int, *, after: bool, what: str) -> None:
    """Run one batch; it is killed at a request, or stands still there while another runs on."""

    def stand_still() -> None:
        other = FakeQuery(query.cluster, seed=call)
        other.next_batch = query.next_batch
        other.workers = query.workers
        other.run_batch()
        other.run_batch()
        query.next_batch = max(query.next_batch, other.next_batch)

    events: dict[str, Callable[[], None]] = {
        "kill": crash,
        "stall": stand_still,
        "none": lambda: None,
    }
    try:
        query.run_batch(Faulty(query.cluster, call, events[what], after=after))
    except Crash:
        query.restart()
    except (FencedError, NotPreparedError, KafkaError):
        if what != "stall":
            raise
