"""Conclusions from facts about open transactions: verdicts, timelines, and looking twice."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Never

import pytest

from txn.cluster.facts import (
    Completion,
    LastClient,
    LoggedBatch,
    OpenTransaction,
    Owner,
    PartitionOffsets,
    StateRecord,
)
from txn.cluster.groups import assigned_partitions
from txn.cluster.source import ClusterSource
from txn.coordinator.transaction.states import NO_TIMEOUT_MS, Txn, TxnState
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.explain.questions import (
    Timeline,
    WaitingRecords,
    count_waiting,
    explain,
    findings,
    held_open,
    held_where_allowed,
    listed,
    partitions_of,
    timeline_of,
)
from txn.explain.timeline import Event, in_order, newest_transaction
from txn.explain.verdict import GRACE_MS, Standing, judge
from txn.identifiers import TopicPartition
from txn.inspect.segments import SegmentBatch
from txn.moments import distance, duration, moment, parse_duration, relative
from txn.wire.transaction_descriptions import decode_descriptions, with_extras

ORDERS = "orders", 0
BEGUN_MS = 1_000_000
TIMEOUT_MS = 60_000
DUE_MS = BEGUN_MS + TIMEOUT_MS

HELD = OpenTransaction(ORDERS, 7, 3, 17, BEGUN_MS + 5, 0)
OWNER = Owner("pay-3", TxnState.ONGOING, 7, 3, TIMEOUT_MS, BEGUN_MS, frozenset({ORDERS}))


def standing(
    owner: Owner | None, *, now_ms: int = BEGUN_MS, held: OpenTransaction = HELD
) -> Standing:
    return judge(held, owner, now_ms=now_ms, is_running=True).standing


# ---------------------------------------------------------------- verdicts


def test_what_is_open_at_its_coordinator_ends_by_its_client_or_its_timeout() -> None:
    verdict = judge(HELD, OWNER, now_ms=BEGUN_MS, is_running=True)
    assert (verdict.standing, verdict.ends_ms) == (Standing.RUNNING, DUE_MS)
    assert verdict.command == "txn transactions abort --transactional-id pay-3"


def test_without_its_client_it_ends_by_its_timeout_alone_and_by_a_restart_of_the_program() -> None:
    client = LastClient("billing", "10.0.0.7", BEGUN_MS, "EndTxn", is_connected=False)
    verdict = judge(HELD, replace(OWNER, client=client), now_ms=BEGUN_MS, is_running=True)
    assert (verdict.standing, verdict.ends_ms) == (Standing.RUNNING, DUE_MS)
    assert verdict.ended_by(lambda _: "noon") == (
        "its coordinator, which aborts it at noon. The connection of its client is closed: nobody "
        "ends it earlier, unless the client connects again"
    )
    assert verdict.command == "txn transactions abort --transactional-id pay-3"


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(DUE_MS + GRACE_MS, Standing.RUNNING), (DUE_MS + GRACE_MS + 1, Standing.OVERDUE)],
)
def test_a_coordinator_that_is_late_by_more_than_its_sweep_is_a_finding(
    now_ms: int, expected: Standing
) -> None:
    assert standing(OWNER, now_ms=now_ms) is expected


@pytest.mark.parametrize(
    "owner",
    [
        None,
        replace(OWNER, state=TxnState.EMPTY, partitions=frozenset()),
        replace(OWNER, state=TxnState.COMPLETE_COMMIT, partitions=frozenset(), producer_epoch=5),
        replace(OWNER, partitions=frozenset({("orders", 1)})),
        replace(OWNER, producer_epoch=4),
        replace(OWNER, producer_id=8),
    ],
)
def test_what_no_coordinator_knows_as_open_there_hangs(owner: Owner | None) -> None:
    verdict = judge(HELD, owner, now_ms=BEGUN_MS, is_running=True)
    assert verdict.standing is Standing.HANGING
    assert verdict.standing.is_finding
    assert verdict.command == (
        "txn transactions abort --topic-partition orders-0 --start-offset 17"
    )


@pytest.mark.parametrize("epoch", [3, 4])
def test_P2_what_its_coordinator_committed_is_never_to_be_aborted(epoch: int) -> None:
    """It was advised, the producer went on, and an acknowledged commit was hidden for good."""
    owner = replace(
        OWNER,
        state=TxnState.COMPLETE_COMMIT,
        partitions=frozenset(),
        producer_epoch=epoch,
        updated_ms=DUE_MS,
    )
    verdict = judge(HELD, owner, now_ms=BEGUN_MS, is_running=True)
    assert (verdict.standing, verdict.command, verdict.ends_ms) == (
        Standing.COMPLETED,
        None,
        DUE_MS,
    )
    assert verdict.standing.is_finding
    ended_by = verdict.ended_by(lambda _: "noon")
    assert "completed it as COMMIT at noon with this producer epoch" in ended_by
    assert verdict.advice.startswith("do not abort it")
    assert "txn log verify" in verdict.advice


def test_what_its_coordinator_aborted_may_be_aborted_here() -> None:
    owner = replace(OWNER, state=TxnState.COMPLETE_ABORT, partitions=frozenset())
    verdict = judge(HELD, owner, now_ms=BEGUN_MS, is_running=True)
    assert verdict.standing is Standing.COMPLETED
    assert verdict.command == (
        "txn transactions abort --topic-partition orders-0 --start-offset 17"
    )


def test_what_an_unread_log_of_the_coordinator_may_have_decided_is_not_to_be_aborted() -> None:
    unread = ["__transaction_state-12"]
    verdict = judge(HELD, None, now_ms=BEGUN_MS, is_running=True, unread=unread)
    assert (verdict.standing, verdict.command) == (Standing.UNREAD, None)
    assert "__transaction_state-12 cannot be read" in verdict.ended_by()


@pytest.mark.parametrize("state", [TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.EMPTY])
def test_P2_an_owner_whose_log_is_unread_may_have_decided_since(state: TxnState) -> None:
    """The damaged record may be its commit, and the advice was to abort."""
    owner = replace(OWNER, state=state)
    verdict = judge(HELD, owner, now_ms=2 * DUE_MS, is_running=False, unread=["log-12"])
    assert (verdict.standing, verdict.command) == (Standing.UNREAD, None)
    assert verdict.advice.startswith("do not abort it")
    assert verdict.ended_by() == (
        f"not known: log-12, which has the records of {OWNER.transactional_id!r}, cannot be read"
    )


def test_a_transactional_id_may_hold_percent_signs() -> None:
    """The id went into a text that was formatted, and the command ended with a TypeError."""
    completed = Completion("load-100%s", False, DUE_MS)
    verdict = judge(HELD, None, now_ms=BEGUN_MS, is_running=False, completed=completed)
    assert verdict.ended_by(lambda _: "noon").startswith(
        "nothing: 'load-100%s' completed it as ABORT at noon with"
    )


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
@pytest.mark.parametrize("epoch", [3, 4])
def test_what_is_decided_waits_for_its_marker_and_is_never_to_be_aborted(
    state: TxnState, epoch: int
) -> None:
    """A Prepare of transaction version 2 has the epoch after that of the records."""
    owner = replace(OWNER, state=state, producer_epoch=epoch, updated_ms=BEGUN_MS)
    soon = judge(HELD, owner, now_ms=BEGUN_MS + GRACE_MS, is_running=True)
    late = judge(HELD, owner, now_ms=BEGUN_MS + GRACE_MS + 1, is_running=True)
    assert (soon.standing, soon.command) == (Standing.ENDING, None)
    assert (late.standing, late.command) == (Standing.STUCK, None)


def test_a_prepare_of_unknown_age_is_no_finding() -> None:
    owner = replace(OWNER, state=TxnState.PREPARE_ABORT, updated_ms=None)
    assert standing(owner, now_ms=DUE_MS * 2) is Standing.ENDING


def test_two_phase_commit_never_times_out_and_is_not_to_be_aborted() -> None:
    owner = replace(OWNER, timeout_ms=NO_TIMEOUT_MS)
    verdict = judge(HELD, owner, now_ms=BEGUN_MS * 1000, is_running=True)
    assert (verdict.standing, verdict.ends_ms, verdict.command) == (Standing.RUNNING, None, None)


def test_in_a_stopped_directory_time_is_not_overdue() -> None:
    """The start ends it; only a transaction that no coordinator knows needs somebody."""
    running = judge(HELD, OWNER, now_ms=DUE_MS * 2, is_running=False)
    hanging = judge(HELD, None, now_ms=DUE_MS * 2, is_running=False)
    assert (running.standing, hanging.standing) == (Standing.RUNNING, Standing.HANGING)


def test_a_name_goes_into_a_command_as_a_shell_takes_it() -> None:
    owner = replace(OWNER, transactional_id="pay; rm -rf")
    verdict = judge(HELD, owner, now_ms=BEGUN_MS, is_running=True)
    assert verdict.command == "txn transactions abort --transactional-id 'pay; rm -rf'"


# ---------------------------------------------------------------- a source in memory


@dataclass
class FakeFacts:
    """Facts as a test has them; `looks` are the results of each look at the partitions."""

    looks: list[list[OpenTransaction]] = field(default_factory=list)
    known: list[Owner] = field(default_factory=list)
    logs: Mapping[TopicPartition, Sequence[LoggedBatch]] = field(default_factory=dict)
    records: Sequence[StateRecord] = ()
    names: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"orders": [0, 1]})
    time_ms: int = BEGUN_MS
    is_running: bool = True
    options: str = "--bootstrap test:1"
    unread_logs: list[str] = field(default_factory=list)
    left_out: Mapping[TopicPartition, str] = field(default_factory=dict)
    secret: Collection[TopicPartition] = ()

    def now_ms(self) -> int:
        return self.time_ms

    def topics(self) -> Mapping[str, Sequence[int]]:
        return self.names

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        return {partition: PartitionOffsets(0, 17, 20) for partition in partitions}

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        for partition, why in self.refused(partitions).items():
            raise RejectedError(f"{why} for {partition}")
        found = self.looks[0] if len(self.looks) == 1 else self.looks.pop(0)
        return [each for each in found if each.partition in partitions]

    def refused(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        return {each: "no right" for each in partitions if each in self.secret}

    def owners(self, producer_ids: Collection[int] | None = None) -> list[Owner]:
        return [
            each for each in self.known if producer_ids is None or each.producer_id in producer_ids
        ]

    def transactional_ids(self) -> list[str]:
        return sorted(each.transactional_id for each in self.known)

    def owner(self, transactional_id: str) -> Owner | None:
        return next((e for e in self.known if e.transactional_id == transactional_id), None)

    def history(self, transactional_id: str) -> list[StateRecord]:
        return list(self.records)

    def batches(self, partition: TopicPartition, first_offset: int) -> Iterator[LoggedBatch]:
        for each in self.logs.get(partition, ()):
            if each.batch.last_offset >= first_offset:
                yield each

    def unread(self, transactional_id: str | None = None) -> list[str]:
        return self.unread_logs if transactional_id is None else []

    def at_start(self, held: OpenTransaction) -> None:
        return None

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        found = (
            each.batch.base_offset
            for each in self.logs.get(partition, ())
            if each.batch.max_timestamp_ms >= timestamp_ms
        )
        return next(found, None)


def batch(
    offset: int,
    records: int = 1,
    *,
    producer_id: int = -1,
    marker: str | None = None,
    at_ms: int = BEGUN_MS,
) -> LoggedBatch:
    transactional, control = 1 << 4, 1 << 5
    attributes = (transactional if producer_id >= 0 else 0) | (control if marker else 0)
    last = offset + records - 1
    found = SegmentBatch(
        0, 100, offset, last, records, 0, attributes, producer_id, 3, 0, at_ms, at_ms, 0, None
    )
    return LoggedBatch(found, marker)


def test_what_hangs_at_both_looks_is_a_finding() -> None:
    assert [held.open for held in findings(FakeFacts([[HELD]]), [ORDERS])] == [HELD]


def test_P2_an_earlier_commit_is_found_in_the_records_of_its_coordinator() -> None:
    """By now the id has another transaction open, and its state tells of that alone."""
    later = replace(OWNER, producer_epoch=9, partitions=frozenset({("orders", 1)}))
    facts = FakeFacts([[HELD]], [later], records=COMMITTED)
    (held,) = findings(facts, [ORDERS])
    assert (held.verdict.standing, held.verdict.command) == (Standing.COMPLETED, None)
    assert held.verdict.ends_ms == BEGUN_MS + 4


def test_P2_the_owner_of_a_producer_id_that_was_used_up_is_found_in_a_directory() -> None:
    later = replace(OWNER, producer_id=8, producer_epoch=0, partitions=frozenset())
    facts = FakeFacts([[HELD]], [later], records=COMMITTED, is_running=False)
    (held,) = findings(facts, [ORDERS])
    assert (held.verdict.standing, held.verdict.command) == (Standing.COMPLETED, None)


def test_what_ends_between_the_two_looks_is_none() -> None:
    """Its marker came after the partition was asked and before its coordinator was."""
    assert findings(FakeFacts([[HELD], []]), [ORDERS]) == []


def test_another_transaction_of_the_same_producer_at_the_second_look_is_none() -> None:
    later = replace(HELD, first_offset=30)
    assert findings(FakeFacts([[HELD], [later]]), [ORDERS]) == []


def test_what_its_coordinator_knows_at_the_second_look_is_no_finding() -> None:
    facts = FakeFacts([[HELD]])
    looks = iter(([], [OWNER]))
    facts.owners = lambda producer_ids=None: next(looks)  # type: ignore[method-assign]
    (held,) = held_open(facts, [ORDERS])
    assert held.verdict.standing is Standing.RUNNING


def test_the_age_of_a_prepare_is_looked_up_where_the_coordinator_does_not_say() -> None:
    """Apache Kafka's DescribeTransactions has no time of the last change."""
    prepared = replace(OWNER, state=TxnState.PREPARE_COMMIT)
    records = [state(TxnState.ONGOING), state(TxnState.PREPARE_COMMIT, at_ms=BEGUN_MS + 1)]
    facts = FakeFacts([[HELD]], [prepared], records=records, time_ms=BEGUN_MS + GRACE_MS + 2)
    (held,) = findings(facts, [ORDERS])
    assert held.verdict.standing is Standing.STUCK


def test_what_waits_is_told_by_kind() -> None:
    log = [
        batch(16, producer_id=7),  # of the transaction before
        batch(17, 2, producer_id=7),
        batch(19, producer_id=8),  # of a transaction that ended
        batch(20, producer_id=8, marker="commit"),
        batch(21, 1),
        batch(22, 4, producer_id=8),
        batch(26, 5, producer_id=9),
        batch(31, producer_id=9, marker="commit"),
        batch(32, 7),  # came after the end was asked for
    ]
    other = replace(HELD, producer_id=8, first_offset=22)
    facts = FakeFacts([[HELD, other]], [OWNER], {ORDERS: log})
    waiting = count_waiting(facts, PartitionOffsets(0, 17, 32), held_open(facts, [ORDERS]))
    assert (waiting.own, waiting.plain, waiting.others_open, waiting.decided) == (2, 1, 4, 6)
    assert (waiting.records, waiting.offsets, waiting.is_whole) == (13, 15, True)


def test_a_partition_without_a_leader_may_be_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeFacts, "ends", lambda *_: {})
    with pytest.raises(RetriableError, match="no broker leads orders-0 at the moment"):
        explain(FakeFacts([[]]), [ORDERS])


def test_without_the_right_to_read_what_is_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may let a user describe topics that the user may not read."""

    def refuse(*_: object) -> Never:
        raise RejectedError("TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(FakeFacts, "batches", lambda *_: map(refuse, [0]))
    monkeypatch.setattr(FakeFacts, "history", refuse)
    prepared = replace(OWNER, state=TxnState.PREPARE_COMMIT)
    (told,) = explain(FakeFacts([[HELD]], [prepared]), [ORDERS])
    assert told.held[0].verdict.standing is Standing.ENDING
    assert told.waiting == WaitingRecords(3, 0, 0, 0, 0, is_whole=False)
    assert told.timeline == Timeline(
        (),
        (
            "__transaction_state could not be read, so its records are not shown",
            "no records of it were found in orders-0",
        ),
    )


def test_of_a_long_log_only_a_part_is_counted_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txn.explain.questions.SCAN_BYTES_MAX", 250)
    log = [batch(17 + nth, producer_id=7) for nth in range(10)]
    facts = FakeFacts([[HELD]], [OWNER], {ORDERS: log})
    waiting = count_waiting(facts, PartitionOffsets(0, 17, 27), held_open(facts, [ORDERS]))
    assert (waiting.records, waiting.offsets, waiting.is_whole) == (3, 10, False)


def test_open_transactions_are_listed_first_and_the_oldest_of_them() -> None:
    young = replace(OWNER, transactional_id="a", start_ms=BEGUN_MS + 10)
    resting = replace(OWNER, transactional_id="b", state=TxnState.COMPLETE_COMMIT)
    facts = FakeFacts(known=[resting, young, OWNER], time_ms=BEGUN_MS + 15)
    assert listed(facts) == [OWNER, young, resting]
    assert listed(facts, longer_than_ms=5) == [OWNER]
    assert listed(facts, states=[TxnState.COMPLETE_COMMIT]) == [resting]
    assert listed(facts, prefix="pay") == [OWNER]


@pytest.mark.parametrize(
    ("name", "index", "expected"),
    [
        ("orders", None, [("orders", 0), ("orders", 1)]),
        ("orders-1", None, [("orders", 1)]),
        ("orders", 1, [("orders", 1)]),
        ("by-day-7", None, [("by-day-7", 0)]),
        ("by-day-7-0", None, [("by-day-7", 0)]),
    ],
)
def test_a_name_is_a_topic_or_one_of_its_partitions(
    name: str, index: int | None, expected: list[TopicPartition]
) -> None:
    facts = FakeFacts(names={"orders": [0, 1], "by-day-7": [0]})
    assert partitions_of(facts, name, index) == expected


def test_a_name_that_means_two_things_is_asked_back() -> None:
    facts = FakeFacts(names={"orders": [0, 1], "orders-1": [0]})
    with pytest.raises(ConfigError, match="--partition"):
        partitions_of(facts, "orders-1", None)
    assert partitions_of(facts, "orders-1", 0) == [("orders-1", 0)]


@pytest.mark.parametrize(
    ("name", "index", "said"),
    [
        ("orders-7", None, "topic 'orders' has no partition 7; it has partitions 0 to 2"),
        ("orders", 7, "topic 'orders' has no partition 7; it has partitions 0 to 2"),
        ("one-1", None, "topic 'one' has no partition 1; it has partition 0 alone"),
        ("x", None, "there is no topic 'x'; there is one, orders"),
    ],
)
def test_a_name_of_no_partition_is_answered_with_those_there_are(
    name: str, index: int | None, said: str
) -> None:
    """It read: there is no 'orders-7'. There is orders …"""
    with pytest.raises(ConfigError) as refused:
        partitions_of(FakeFacts(names={"orders": [0, 1, 2], "one": [0]}), name, index)
    assert refused.value.message == said


def test_an_unknown_name_is_answered_with_those_like_it() -> None:
    with pytest.raises(ConfigError, match="did you mean orders"):
        partitions_of(FakeFacts(), "order", None)


# ---------------------------------------------------------------- timelines


def state(kind: TxnState, *, at_ms: int = BEGUN_MS, producer_id: int = 7) -> StateRecord:
    is_joined = kind in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
    partitions = frozenset({ORDERS}) if is_joined else frozenset()
    txn = Txn(producer_id, 3, TIMEOUT_MS, kind, partitions, BEGUN_MS, at_ms)
    return StateRecord(12, 0, at_ms, txn)


BEFORE = [
    state(TxnState.EMPTY, at_ms=BEGUN_MS - 9),
    state(TxnState.ONGOING, at_ms=BEGUN_MS - 8),
    state(TxnState.PREPARE_ABORT, at_ms=BEGUN_MS - 7),
    state(TxnState.COMPLETE_ABORT, at_ms=BEGUN_MS - 6),
]
COMMITTED = [
    state(TxnState.ONGOING),
    state(TxnState.ONGOING, at_ms=BEGUN_MS + 1),
    state(TxnState.PREPARE_COMMIT, at_ms=BEGUN_MS + 4),
    state(TxnState.COMPLETE_COMMIT, at_ms=BEGUN_MS + 4),
]


def test_the_newest_transaction_is_taken_from_a_history() -> None:
    again = state(TxnState.EMPTY, at_ms=BEGUN_MS - 1)
    assert newest_transaction([*BEFORE, *COMMITTED]) == COMMITTED
    assert newest_transaction([*BEFORE, again, *COMMITTED]) == [again, *COMMITTED]
    assert newest_transaction(BEFORE[:1]) == BEFORE[:1]
    assert newest_transaction([]) == []


def test_a_timeline_has_what_the_coordinator_wrote_and_what_the_partitions_got() -> None:
    """In the order of their times, which for records are the client's."""
    log = [
        batch(10, producer_id=7, at_ms=BEGUN_MS - 8),
        batch(11, producer_id=7, at_ms=BEGUN_MS - 7, marker="abort"),
        batch(12, 2, producer_id=7, at_ms=BEGUN_MS - 1),  # the client's clock
        batch(14, 2, producer_id=8),
        batch(16, 3, producer_id=7, at_ms=BEGUN_MS + 3),
        batch(19, producer_id=7, marker="commit", at_ms=BEGUN_MS + 4),
    ]
    owner = replace(OWNER, state=TxnState.COMPLETE_COMMIT, partitions=frozenset())
    facts = FakeFacts([[]], [owner], {ORDERS: log}, [*BEFORE, *COMMITTED])
    timeline = timeline_of(facts, owner, [])
    assert [event.kind for event in timeline.events] == [
        "records",
        "open",
        "open",
        "decision",
        "marker",
        "end",
    ]
    records, marker = timeline.events[0], timeline.events[4]
    assert (records.what, records.first_offset, records.last_offset, records.until_ms) == (
        "5 records in 2 batches",
        12,
        18,
        BEGUN_MS + 3,
    )
    assert (marker.what, marker.first_offset) == ("commit marker", 19)
    assert timeline.notes == ()


@pytest.mark.parametrize("owner", [None, replace(OWNER, partitions=frozenset())])
def test_a_timeline_of_what_hangs_has_the_records_alone(owner: Owner | None) -> None:
    """Its id's records are the story of another transaction."""
    resting = owner and replace(owner, state=TxnState.COMPLETE_COMMIT)
    facts = FakeFacts([[HELD]], [], {ORDERS: [batch(17, producer_id=7)]}, [*BEFORE, *COMMITTED])
    timeline = timeline_of(facts, resting, [HELD])
    assert [event.kind for event in timeline.events] == ["records"]
    assert timeline.notes == ()


def test_a_timeline_of_what_has_ended_leaves_out_what_came_in_behind_it() -> None:
    log = [
        batch(12, producer_id=7),
        batch(13, producer_id=7, marker="commit"),
        batch(14, producer_id=7),  # it hangs
    ]
    owner = replace(OWNER, state=TxnState.COMPLETE_COMMIT, partitions=frozenset())
    timeline = timeline_of(FakeFacts([[]], [owner], {ORDERS: log}, COMMITTED), owner, [])
    offsets = [each.first_offset for each in timeline.events if each.log == "orders-0"]
    assert offsets == [12, 13]


def test_a_prepared_transaction_that_is_kept_says_for_whom() -> None:
    """Its records keep their producer epoch; the client that may end it has a later one."""
    kept = state(TxnState.ONGOING, at_ms=BEGUN_MS + 2)
    assert kept.txn is not None
    kept = replace(kept, txn=kept.txn._replace(next_producer_id=7, next_producer_epoch=4))
    facts = FakeFacts([[HELD]], [OWNER], {ORDERS: [batch(17, producer_id=7)]}, [COMMITTED[0], kept])
    *_, last = timeline_of(facts, OWNER, [HELD]).events
    assert last.what == "kept open for producer 7, epoch 4"


def test_a_timeline_tells_of_an_abort_past_the_timeout() -> None:
    late = state(TxnState.PREPARE_ABORT, at_ms=BEGUN_MS + TIMEOUT_MS + 300)
    owner = replace(OWNER, state=TxnState.COMPLETE_ABORT, partitions=frozenset())
    timeline = timeline_of(FakeFacts([[]], [owner], {}, [state(TxnState.ONGOING), late]), owner, [])
    (told,) = (event.what for event in timeline.events if event.kind == "decision")
    assert told == (
        f"decided to abort after {(TIMEOUT_MS + 300) / 1000:.1f} s, longer than "
        f"transaction.timeout.ms={TIMEOUT_MS}: producer 7, epoch 3"
    )


def test_a_timeline_tells_why_a_prepared_commit_was_aborted() -> None:
    undone = state(TxnState.PREPARE_ABORT, at_ms=BEGUN_MS + TIMEOUT_MS + 300)
    history = [state(TxnState.ONGOING), state(TxnState.PREPARE_COMMIT), undone]
    owner = replace(OWNER, state=TxnState.COMPLETE_ABORT, partitions=frozenset())
    timeline = timeline_of(FakeFacts([[]], [owner], {}, history), owner, [])
    assert [event.what for event in timeline.events if event.kind == "decision"] == [
        "decided to commit: producer 7, epoch 3",
        "decided to abort, as its records did not get to the disk; nobody was told of a commit: "
        "producer 7, epoch 3",
    ]


def test_a_timeline_names_the_partitions_that_the_user_may_not_read() -> None:
    """The history of an ended transaction was refused as a whole."""
    owner = replace(OWNER, state=TxnState.COMPLETE_COMMIT, partitions=frozenset())
    facts = FakeFacts([[]], [owner], {}, COMMITTED, secret=[ORDERS])
    timeline = timeline_of(facts, owner, [])
    assert timeline.notes == ("orders-0 was left out: no right for ('orders', 0)",)
    assert any(each.kind == "decision" for each in timeline.events)


def test_a_refusal_that_is_not_about_partitions_is_raised() -> None:
    facts = FakeFacts([[]], secret=[("other", 0)])
    with pytest.raises(RejectedError, match="no right"):
        held_where_allowed(_Refusing([[]]), [ORDERS])
    assert held_where_allowed(facts, [("other", 0)]) == ([], {("other", 0): "no right"})


class _Refusing(FakeFacts):
    """A source that refuses each question, as one that may not list transactional ids."""

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        raise RejectedError("no right")


def test_a_timeline_says_what_compaction_took() -> None:
    owner = replace(OWNER, state=TxnState.COMPLETE_COMMIT, partitions=frozenset())
    timeline = timeline_of(FakeFacts([[]], [owner], {}, COMMITTED[2:]), owner, [])
    assert timeline.notes == (
        "compaction has taken the beginning from __transaction_state",
        "no records of it were found in orders-0",
    )


# ---------------------------------------------------------------- words and bytes


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (252_000, "4 min 12 s"),
        (7_260_000, "2 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_largest_units(length_ms: int, text: str) -> None:
    assert duration(length_ms) == text


def test_moments_are_told_in_utc_and_from_now() -> None:
    assert moment(1_795_280_002_088) == "2026-11-21 16:53:22.088 UTC"
    assert moment(2**62) == f"{2**62} ms"
    assert (relative(5_000, 65_000), relative(65_000, 5_000)) == ("1 min 0 s ago", "in 1 min 0 s")


def test_distances_are_told_finely_near_the_beginning() -> None:
    """Records may carry any time their client gave them, years away too."""
    far_ms = 400 * 86_400_000
    assert [distance(each) for each in (17, -1_500, far_ms, -far_ms)] == [
        "+0.017 s",
        "-1.500 s",
        "+400 d 0 h",
        "-400 d 0 h",
    ]


def test_durations_are_read_with_their_units() -> None:
    assert [parse_duration(text) for text in ("250ms", "90s", "15m", "2h", "1d", "7")] == [
        250,
        90_000,
        900_000,
        7_200_000,
        86_400_000,
        7_000,
    ]
    for text in ("soon", "9" * 5_000):
        with pytest.raises(ConfigError, match="90s"):
            parse_duration(text)


def test_numbers_that_python_refuses_to_read_are_none() -> None:
    """Python reads at most 4,300 digits; more ended in a traceback."""
    digits = "9" * 5_000
    with pytest.raises(ConfigError, match="HOST:PORT"):
        ClusterSource(f"localhost:{digits}")
    with pytest.raises(ConfigError, match="has no partition"):
        partitions_of(FakeFacts(names={"orders": [0]}), f"orders-{digits}", None)


def test_a_description_is_read_without_and_with_what_txn_adds() -> None:
    """Tagged fields of states and topics that are not known are passed over (KIP-482)."""
    unknown_tag = b"\x01\x05\x02hi"
    topic = b"\x07orders\x03" + bytes(4) + b"\0\0\0\1" + unknown_tag
    fixed = (60_000).to_bytes(4) + (2**64 - 1).to_bytes(8) + (7).to_bytes(8) + (3).to_bytes(2)
    body = bytes(4) + b"\x02" + b"\0\0\x06pay-3\x08Ongoing" + fixed + b"\x02" + topic
    body += unknown_tag + b"\0"
    (described,), extras = decode_descriptions(body)
    assert (described.transactional_id, described.start_ms, described.producer_epoch) == (
        "pay-3",
        -1,
        3,
    )
    assert (sorted(described.partitions), extras) == ([("orders", 0), ("orders", 1)], {})
    told = {"pay-3": {"client_id": "billing" * 40}}
    assert decode_descriptions(with_extras(body, told)) == ([described], told)


ASSIGNMENT = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\1" + b"\0\0\0\0"


def test_an_assignment_names_its_partitions_whatever_later_versions_add() -> None:
    assert assigned_partitions(ASSIGNMENT + b"\xff" * 9) == [("t", 0), ("t", 1)]


@pytest.mark.parametrize(
    "assignment",
    [b"", b"all", ASSIGNMENT[:-1], ASSIGNMENT.replace(b"t", b"\xff"), b"\xff" * 40, b"\x7f" * 40],
)
def test_an_assignment_that_cannot_be_read_names_no_partition(assignment: bytes) -> None:
    assert list(assigned_partitions(assignment)) == []


def test_events_of_the_same_time_stand_in_the_order_of_their_log() -> None:
    """An InitProducerId stood before the abort that it came behind."""
    state = "__transaction_state-3"
    events = [
        Event(5, "producer", "InitProducerId", state, 8, 8),
        Event(5, "end", "aborted", state, 7, 7),
        Event(5, "decision", "decided to abort", state, 6, 6),
        Event(5, "marker", "abort marker", "orders-0", 2, 2),
        Event(5, "records", "2 records", "orders-0", 0, 1),
        Event(4, "open", "begun, with orders-0", state, 5, 5),
    ]
    assert [each.kind for each in in_order(events)] == [
        "open",
        "records",
        "decision",
        "marker",
        "end",
        "producer",
    ]
