"""The group coordinator on logs in memory: records, answers, and the state after a restart."""

import asyncio

import pytest

from support.group_host import TOPICS, GroupNode
from txn.broker.committed_offsets import Committer
from txn.broker.host import Durability
from txn.coordinator.group.classic.group import GroupState
from txn.coordinator.group.classic.requests import Leaver
from txn.coordinator.group.records import OffsetKey, OffsetValue, encode_offset_key
from txn.errors import StorageError
from txn.wire.error_codes import ErrorCode

MINUTE_MS = 60_000
RETENTION = {"offsets_retention_minutes": 10, "offsets_retention_check_interval_ms": MINUTE_MS}


# ---------------------------------------------------------------- offsets in transactions


def test_P3_offsets_of_a_transaction_count_only_once_it_is_committed() -> None:
    node = GroupNode()
    node.commit("g", 5)
    assert node.commit_in_transaction("g", 9) is ErrorCode.NONE
    assert (node.offset("g"), node.is_pending("g")) == (5, True)
    node.end_transaction("g", is_commit=True)
    assert (node.offset("g"), node.is_pending("g")) == (9, False)


def test_P3_offsets_of_an_aborted_transaction_never_count() -> None:
    node = GroupNode()
    node.commit("g", 5)
    node.commit_in_transaction("g", 9)
    node.end_transaction("g", is_commit=False)
    assert (node.offset("g"), node.is_pending("g")) == (5, False)


def test_P3_all_offsets_of_a_transaction_begin_to_count_together() -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 1, partition=0)
    node.commit_in_transaction("g", 2, partition=1)
    node.commit_in_transaction("g", 3, topic="payments")
    node.end_transaction("g", is_commit=True)
    offsets = {pair: stored.value.offset for pair, stored in node.offsets.committed("g").items()}
    assert offsets == {("orders", 0): 1, ("orders", 1): 2, ("payments", 0): 3}


def test_P3_crash_before_the_marker_leaves_the_offsets_pending() -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 9)
    node.restart()
    assert (node.offset("g"), node.is_pending("g")) == (None, True)
    node.end_transaction("g", is_commit=True)
    assert node.offset("g") == 9


@pytest.mark.parametrize("is_commit", [True, False])
def test_P8_crash_after_the_marker_finds_the_decision_again(is_commit: bool) -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 9)
    node.end_transaction("g", is_commit=is_commit)
    before = node.offset("g")
    node.restart()
    assert (node.offset("g"), node.is_pending("g")) == (before, False)


def test_P3_marker_of_one_producer_leaves_the_offsets_of_another() -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 1, producer_id=7)
    node.commit_in_transaction("g", 2, producer_id=8, partition=1)
    node.end_transaction("g", is_commit=True, producer_id=7)
    assert (node.offset("g"), node.offset("g", partition=1)) == (1, None)
    assert node.is_pending("g", partition=1)


def test_P8_later_commit_wins_whichever_became_visible_first() -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 1)
    node.commit("g", 2)
    node.end_transaction("g", is_commit=True)
    assert node.offset("g") == 2
    node.restart()
    assert node.offset("g") == 2


def test_P7_offsets_are_not_written_when_the_transaction_refuses_them() -> None:
    node = GroupNode()
    node.transactions.answer = ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.commit_in_transaction("g", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.log_of("g").log_end_offset == 0


def test_P7_offsets_of_a_member_that_was_left_behind_are_not_written() -> None:
    node = GroupNode()
    member = node.form("g")
    node.groups.leave("g", (Leaver(member.member_id),))
    node.form("g")
    end = node.log_of("g").log_end_offset
    assert node.commit_in_transaction("g", 1, committer=member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert node.log_of("g").log_end_offset == end


def test_P7_offsets_of_a_past_generation_are_not_written() -> None:
    node = GroupNode()
    member = node.form("g")
    stale = Committer("g", member.generation - 1, member.member_id)
    end = node.log_of("g").log_end_offset
    assert node.commit_in_transaction("g", 1, committer=stale) is ErrorCode.ILLEGAL_GENERATION
    assert node.log_of("g").log_end_offset == end


def test_transaction_is_asked_for_the_partition_of_the_group() -> None:
    node = GroupNode()
    node.commit_in_transaction("g", 1, producer_id=8)
    place = ("__consumer_offsets", node.groups.group_partition("g"))
    assert node.transactions.joined == [("t", 8, 0, 2, place)]


def test_P7_old_epoch_is_refused_by_the_log_even_if_the_transaction_consents() -> None:
    node = GroupNode()
    node.host.break_disk(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert node.commit_in_transaction("g", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not node.is_pending("g")


# ---------------------------------------------------------------- plain offsets


def test_commit_outside_any_group_makes_a_group_without_members() -> None:
    node = GroupNode()
    assert node.commit("g", 3) is ErrorCode.NONE
    group = node.groups.group("g")
    assert group is not None
    assert (group.state, group.protocol_type) == (GroupState.EMPTY, None)


def test_P1_committed_offsets_survive_a_restart() -> None:
    node = GroupNode()
    node.commit("g", 3)
    node.commit("g", 4, partition=2)
    node.commit("h", 5)
    node.restart()
    assert (node.offset("g"), node.offset("g", partition=2), node.offset("h")) == (3, 4, 5)
    assert {group.group_id for group in node.groups.groups()} == {"g", "h"}


def test_commit_that_cannot_be_written_does_not_count() -> None:
    node = GroupNode()
    node.commit("g", 3)
    node.host.break_disk()
    assert node.commit("g", 4) is ErrorCode.NOT_COORDINATOR
    assert node.offset("g") == 3


def test_commit_that_is_too_large_is_told_so() -> None:
    node = GroupNode()
    node.host.break_disk(ErrorCode.MESSAGE_TOO_LARGE)
    assert node.commit("g", 4) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def test_commit_prolongs_the_session_of_its_member() -> None:
    node = GroupNode()
    member = node.form("g")
    node.host.pass_time(9_000)
    key = OffsetKey("g", "orders", 0)
    node.offsets.commit(member, {key: node.value(1)}, knows_group_not_found=True)
    node.host.pass_time(9_000)
    assert node.groups.heartbeat("g", member.member_id, None, 1) is ErrorCode.NONE


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_session(step_ms: int) -> None:
    """A clock set forward by an hour removed every member of every group."""
    node = GroupNode()
    member = node.form("g")
    node.host.clock_step_ms = step_ms
    node.host.pass_time(9_000)
    assert node.groups.heartbeat("g", member.member_id, None, 1) is ErrorCode.NONE
    node.host.pass_time(11_000)
    refused = node.groups.heartbeat("g", member.member_id, None, 1)
    assert refused is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_time_at_which_a_group_came_to_its_state_is_a_time_of_day() -> None:
    node = GroupNode()
    node.host.clock_step_ms = 5_000_000
    node.form("g")
    group = node.groups.group("g")
    assert group is not None
    assert group.state_timestamp_ms == node.host.now_ms()


def test_durability_always_syncs_the_partition_of_the_group() -> None:
    node = GroupNode()
    node.host.durability = Durability.ALWAYS
    node.commit("g", 3)
    asyncio.run(node.coordinator.offsets.sync("g"))
    assert node.host.syncs == [[node.place_of("g")]]


@pytest.mark.parametrize(("transactional_id", "is_forced"), [("db", True), ("pay", False)])
def test_offsets_in_a_transaction_that_another_system_decides_on_are_synced(
    transactional_id: str, is_forced: bool
) -> None:
    node = GroupNode()
    node.host.durability = Durability.COMMIT
    node.transactions.two_phase.add("db")
    asyncio.run(node.coordinator.offsets.sync("g", transactional_id=transactional_id))
    assert node.host.syncs == ([[node.place_of("g")]] if is_forced else [])


def test_a_commit_that_cannot_be_synced_is_to_be_tried_again() -> None:
    # The error came up through the handler, and the client lost its connection without a word.
    node = GroupNode()
    node.host.durability = Durability.ALWAYS
    node.log_of("g").is_unsyncable = True
    node.commit("g", 3)
    assert asyncio.run(node.coordinator.offsets.sync("g")) is ErrorCode.NOT_COORDINATOR


def test_durability_commit_leaves_plain_commits_to_the_page_cache() -> None:
    node = GroupNode()
    node.host.durability = Durability.COMMIT
    node.commit("g", 3)
    asyncio.run(node.coordinator.offsets.sync("g"))
    assert node.host.syncs == []


# ---------------------------------------------------------------- deleting


def test_deleted_topic_takes_its_offsets_along() -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.commit("g", 2, topic="payments")
    node.commit_in_transaction("h", 3)
    node.host.delete_topic("orders")
    node.shards.on_topic_deleted("orders")
    node.end_transaction("h", is_commit=True)
    node.restart()
    assert (node.offset("g"), node.offset("h")) == (None, None)
    assert node.offset("g", topic="payments") == 2


def test_offset_of_a_deleted_topic_is_not_shown_for_a_new_one_of_its_name() -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.host.topic_ids["orders"] = TOPICS["payments"]
    assert node.offset("g") is None
    assert node.offsets.committed("g") == {}


def test_deleted_group_leaves_nothing_even_of_an_open_transaction() -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.commit_in_transaction("g", 2, partition=1)
    assert node.groups.delete_group("g") is ErrorCode.NONE
    node.end_transaction("g", is_commit=True)
    node.restart()
    assert node.groups.group("g") is None
    assert node.offsets.committed("g") == {}


def test_group_with_members_is_not_deleted() -> None:
    node = GroupNode()
    node.form("g")
    assert node.groups.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    assert node.groups.delete_group("h") is ErrorCode.GROUP_ID_NOT_FOUND


# ---------------------------------------------------------------- expiry


def test_offsets_outside_any_group_expire_after_their_last_commit() -> None:
    node = GroupNode(**RETENTION)
    node.commit("g", 1)
    node.host.pass_time(5 * MINUTE_MS)
    node.commit("g", 2, partition=1)
    node.host.pass_time(6 * MINUTE_MS)
    assert (node.offset("g"), node.offset("g", partition=1)) == (None, 2)
    node.host.pass_time(5 * MINUTE_MS)
    assert node.groups.group("g") is None
    node.restart()
    assert node.groups.group("g") is None


def test_offsets_of_a_group_expire_only_after_it_became_empty() -> None:
    node = GroupNode(**RETENTION)
    member = node.form("g")
    node.offsets.commit(
        member, {OffsetKey("g", "orders", 0): node.value(1)}, knows_group_not_found=True
    )
    node.stay_alive(member, 12 * MINUTE_MS)
    assert node.offset("g") == 1
    node.groups.leave("g", (Leaver(member.member_id),))
    node.host.pass_time(9 * MINUTE_MS)
    assert node.offset("g") == 1
    node.host.pass_time(2 * MINUTE_MS)
    assert node.groups.group("g") is None


def test_offset_that_a_transaction_holds_does_not_expire() -> None:
    node = GroupNode(**RETENTION)
    node.commit("g", 1)
    node.commit_in_transaction("g", 2)
    node.host.pass_time(20 * MINUTE_MS)
    assert node.offset("g") == 1
    node.end_transaction("g", is_commit=True)
    assert node.offset("g") == 2


def test_offset_with_an_expiry_of_its_own_follows_it() -> None:
    node = GroupNode(**RETENTION)
    expires_ms = node.host.now_ms() + 2 * MINUTE_MS
    value = OffsetValue(1, -1, "", node.host.now_ms(), expires_ms)
    node.offsets.commit(
        Committer("g"), {OffsetKey("g", "orders", 0): value}, knows_group_not_found=True
    )
    node.restart()
    node.host.pass_time(MINUTE_MS)
    assert node.offset("g") == 1
    node.host.pass_time(2 * MINUTE_MS)
    assert node.offset("g") is None


def test_group_that_was_made_but_never_used_is_cleaned_up() -> None:
    node = GroupNode(**RETENTION)
    node.join("g", version=4)
    assert node.groups.group("g") is not None
    node.host.pass_time(2 * MINUTE_MS)
    assert node.groups.group("g") is None


# ---------------------------------------------------------------- members and the disk


def test_P8_members_survive_a_restart_and_time_out_afterwards() -> None:
    node = GroupNode()
    member = node.form("g")
    node.restart()
    assert node.groups.heartbeat("g", member.member_id, None, 1) is ErrorCode.NONE
    node.host.pass_time(10_000)
    group = node.groups.group("g")
    assert group is not None
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


def test_join_that_cannot_be_written_is_refused_and_makes_no_group() -> None:
    node = GroupNode()
    node.host.break_disk()
    (answer,) = node.join("g")
    assert answer.error is ErrorCode.NOT_COORDINATOR
    assert node.groups.group("g") is None


def test_generation_that_cannot_be_written_is_not_handed_out() -> None:
    node = GroupNode()
    joined = node.join("g")
    node.host.pass_time(0)
    (answer,) = joined
    node.host.break_disk()
    (refused,) = node.sync("g", answer.member_id, answer.generation)
    assert refused.error is ErrorCode.NOT_COORDINATOR
    node.host.mend_disk()
    (assigned,) = node.sync("g", answer.member_id, answer.generation)
    assert assigned.assignment == b"all"


def test_group_that_cannot_be_written_as_empty_is_tried_again() -> None:
    node = GroupNode()
    member = node.form("g")
    node.host.break_disk()
    node.host.pass_time(10_000)
    group = node.groups.group("g")
    assert group is not None
    assert set(group.members) == {member.member_id}
    node.host.mend_disk()
    node.host.pass_time(1_000)
    group = node.groups.group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


# ---------------------------------------------------------------- damage


def test_P9_damaged_record_is_reported_by_partition_and_offset() -> None:
    node = GroupNode()
    node.commit("g", 1)
    store = node.log_of("g")
    key = encode_offset_key(OffsetKey("g", "orders", 0))
    offset = store.append([(key, b"\x00\x04\x00")], timestamp_ms=0)
    node.restart()
    assert list(node.host.refused) == [node.place_of("g")]
    assert (
        f"-{store.index} holds a damaged record at offset {offset}"
        in node.host.refused[node.place_of("g")]
    )


def damaged() -> tuple[GroupNode, Committer]:
    """A broker that cannot read the partition of group "g", and serves another group."""
    node = GroupNode()
    member = node.form("g")
    node.commit("g", 1)
    node.commit(OTHER_GROUP, 5)
    key = encode_offset_key(OffsetKey("g", "orders", 0))
    node.log_of("g").append([(key, b"\x00\x04\x00")], timestamp_ms=0)
    node.restart()
    return node, member


OTHER_GROUP = "h"
"""A group of another partition of `__consumer_offsets`."""


def test_P9_groups_of_a_damaged_partition_are_not_coordinated_here() -> None:
    """Their members would be told that they are unknown, and consume from the beginning."""
    node, member = damaged()
    assert node.commit("g", 2) is ErrorCode.NOT_COORDINATOR
    heartbeat = node.groups.heartbeat("g", member.member_id, None, 1)
    assert heartbeat is ErrorCode.NOT_COORDINATOR
    assert node.commit_in_transaction("g", 3) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(StorageError, match="which keeps group 'g'"):
        node.groups.leave("g", (Leaver(member.member_id),))
    with pytest.raises(StorageError, match="which keeps group 'g'"):
        node.groups.delete_group("g")
    assert node.groups.group("g") is None


def test_P9_groups_of_other_partitions_go_on_beside_a_damaged_one() -> None:
    node, _ = damaged()
    assert node.groups.group_partition(OTHER_GROUP) != node.groups.group_partition("g")
    assert node.offset(OTHER_GROUP) == 5
    assert node.commit(OTHER_GROUP, 6) is ErrorCode.NONE
    node.host.pass_time(20 * MINUTE_MS)
    assert node.offset(OTHER_GROUP) == 6


def test_records_of_other_protocols_are_passed_over() -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.log_of("g").append([(b"\x00\x11\x00\x01g", b"\x00\x00")], timestamp_ms=0)
    node.restart()
    assert node.offset("g") == 1


# ---------------------------------------------------------------- other protocols


def test_records_of_other_protocols_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A directory of Apache Kafka may hold many; there was a warning for each."""
    node = GroupNode()
    node.commit("g", 3)
    member_of_the_streams_protocol = b"\x00\x13\x00\x01g\x00\x01m"
    for _ in range(5):
        node.log_of("g").append([(member_of_the_streams_protocol, b"")], timestamp_ms=0)
    node.restart()
    assert node.offset("g") == 3
    assert [record.getMessage().split()[:2] for record in caplog.records] == [
        ["group.records_passed_over", "records=5"]
    ]
