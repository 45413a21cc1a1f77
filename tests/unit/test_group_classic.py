"""The classic group protocol, one rule at a time."""

import pytest

from support.group_rounds import REBALANCE_MS, SESSION_MS, Rounds
from txn.coordinator.group.classic.draft import NEW_MEMBER_JOIN_TIMEOUT_MS
from txn.coordinator.group.classic.group import Group, GroupState, Limits, group_value
from txn.coordinator.group.classic.refusals import commit_refusal
from txn.coordinator.group.classic.requests import JoinAnswer, Leaver, SyncAnswer
from txn.coordinator.group.classic.subscriptions import subscribed_topics
from txn.wire.error_codes import ErrorCode

S = GroupState
NO_ID = ""


# ---------------------------------------------------------------- the first member


def test_first_join_is_told_to_come_back_with_an_id() -> None:
    rounds = Rounds()
    ticket = rounds.join(version=4)
    assert rounds.joins[ticket] == JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert rounds.group.state is S.EMPTY
    assert set(rounds.group.pending) == {"m1"}


def test_new_group_is_recorded_as_empty_before_its_first_round() -> None:
    rounds = Rounds()
    rounds.join(version=4)
    (record,) = rounds.records
    assert (record.generation, record.protocol_type, record.members) == (0, "", ())


def test_join_before_version_4_takes_the_member_in_at_once() -> None:
    rounds = Rounds()
    ticket = rounds.join(version=3)
    rounds.pass_time(0)
    assert rounds.joins[ticket].generation == 1


def test_only_member_leads_its_generation_and_learns_who_is_in_it() -> None:
    rounds = Rounds()
    member_id, ticket = rounds.enter()
    rounds.pass_time(0)
    answer = rounds.joins[ticket]
    assert (answer.error, answer.leader, answer.protocol) == (ErrorCode.NONE, member_id, "range")
    assert answer.members == ((member_id, None, b"range of it"),)
    assert rounds.group.state is S.COMPLETING_REBALANCE


def test_leader_sync_makes_the_group_stable_and_records_the_generation() -> None:
    rounds = Rounds()
    member_id, _ = rounds.enter()
    rounds.pass_time(0)
    ticket = rounds.sync(member_id, {member_id: b"partition 0"})
    assert rounds.syncs[ticket] == SyncAnswer(ErrorCode.NONE, "consumer", "range", b"partition 0")
    assert rounds.group.state is S.STABLE
    assert rounds.records[-1] == group_value(rounds.group)
    assert rounds.records[-1].members[0].assignment == b"partition 0"


def test_join_with_an_id_nobody_gave_out_makes_no_group() -> None:
    rounds = Rounds()
    ticket = rounds.join("made up")
    assert rounds.joins[ticket] == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "made up")
    assert (rounds.found, rounds.records) == (None, [])


def test_join_without_protocols_makes_no_group() -> None:
    rounds = Rounds()
    ticket = rounds.join(protocols=())
    assert rounds.joins[ticket].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (rounds.found, rounds.records) == (None, [])


def test_id_that_was_given_out_lapses_after_the_session_timeout() -> None:
    rounds = Rounds()
    given = rounds.joins[rounds.join()].member_id
    rounds.pass_time(SESSION_MS)
    assert not rounds.group.pending
    assert rounds.joins[rounds.join(given)].error is ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------- rounds


def test_second_member_makes_the_first_join_again() -> None:
    rounds = Rounds()
    (first,) = rounds.form(1)
    _, second_ticket = rounds.enter()
    assert rounds.group.state is S.PREPARING_REBALANCE
    assert rounds.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    first_ticket = rounds.join(first)
    answers = [rounds.joins[first_ticket], rounds.joins[second_ticket]]
    assert [answer.generation for answer in answers] == [2, 2]
    assert [answer.leader for answer in answers] == [first, first]
    assert [len(answer.members) for answer in answers] == [2, 0]


def test_follower_waits_for_the_assignment_of_the_leader() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first)
    rounds.join(second)
    follower = rounds.sync(second)
    assert rounds.waiting == {follower}
    rounds.sync(first, {first: b"0", second: b"1"})
    assert rounds.syncs[follower].assignment == b"1"


def test_member_the_leader_forgot_gets_an_empty_assignment() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first)
    rounds.join(second)
    rounds.sync(first, {first: b"all"})
    assert rounds.syncs[rounds.sync(second)] == SyncAnswer(ErrorCode.NONE, "consumer", "range", b"")


def test_initial_delay_lets_members_that_start_together_share_the_first_generation() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=3_000))
    _, early = rounds.enter()
    rounds.pass_time(2_999)
    _, late = rounds.enter()
    assert rounds.waiting == {early, late}
    rounds.pass_time(3_001)
    assert (rounds.joins[early].generation, rounds.joins[late].generation) == (1, 1)


def test_initial_delay_ends_on_time_when_nobody_else_comes() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=3_000))
    _, ticket = rounds.enter()
    rounds.pass_time(2_999)
    assert rounds.waiting == {ticket}
    rounds.pass_time(1)
    assert rounds.joins[ticket].generation == 1


def test_initial_delay_is_not_prolonged_beyond_the_rebalance_timeout() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=3_000))
    tickets = [rounds.enter(rebalance_ms=4_000)[1]]
    rounds.pass_time(2_000)
    tickets.append(rounds.enter(rebalance_ms=4_000)[1])
    rounds.pass_time(1_500)
    tickets.append(rounds.enter(rebalance_ms=4_000)[1])
    rounds.pass_time(500)
    assert [rounds.joins[ticket].generation for ticket in tickets] == [1, 1, 1]


def test_member_that_does_not_join_in_time_is_left_behind() -> None:
    rounds = Rounds()
    first, second = rounds.form(2, session_ms=2 * REBALANCE_MS)
    ticket = rounds.join(first)
    rounds.pass_time(REBALANCE_MS - 1)
    assert rounds.waiting == {ticket}
    assert second in rounds.group.members
    rounds.pass_time(1)
    assert rounds.joins[ticket].generation == 2
    assert set(rounds.group.members) == {first}


def test_leader_that_does_not_join_in_time_is_replaced() -> None:
    rounds = Rounds()
    first, second = rounds.form(2, session_ms=2 * REBALANCE_MS)
    _, ticket = rounds.enter()
    second_ticket = rounds.join(second)
    rounds.pass_time(REBALANCE_MS)
    assert first not in rounds.group.members
    assert rounds.joins[second_ticket].leader == second
    assert rounds.joins[ticket].leader == second


def test_round_waits_for_a_member_that_was_just_given_its_id() -> None:
    rounds = Rounds()
    (first,) = rounds.form(1)
    rounds.join(session_ms=30_000)
    ticket = rounds.join(first)
    assert rounds.waiting == {ticket}
    rounds.pass_time(30_000)
    assert rounds.joins[ticket].generation == 2


def test_silent_member_is_expelled_when_its_session_ends() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.pass_time(SESSION_MS // 2)
    rounds.heartbeat(second)
    rounds.pass_time(SESSION_MS // 2)
    assert set(rounds.group.members) == {second}
    assert rounds.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rounds.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_waits_for_the_others_is_not_expelled() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first, session_ms=SESSION_MS)
    rounds.heartbeat(second)
    rounds.pass_time(SESSION_MS - 1)
    rounds.heartbeat(second)
    rounds.pass_time(SESSION_MS - 1)
    assert set(rounds.group.members) == {first, second}


def test_new_member_whose_client_is_gone_does_not_hold_the_round_for_ever() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS))
    ticket = rounds.join(version=3, rebalance_ms=4 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    rounds.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert rounds.joins[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_expelled() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first, session_ms=600_000)
    rounds.join(second, session_ms=600_000)
    follower = rounds.sync(second)
    rounds.pass_time(REBALANCE_MS)
    assert set(rounds.group.members) == {second}
    assert rounds.syncs[follower].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_never_fetches_its_assignment_is_expelled_from_a_stable_group() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first, session_ms=600_000)
    rounds.join(second, session_ms=600_000)
    rounds.sync(first, {first: b"0", second: b"1"})
    before = rounds.group.state
    rounds.pass_time(REBALANCE_MS)
    assert set(rounds.group.members) == {first}
    assert (before, rounds.group.state) == (S.STABLE, S.PREPARING_REBALANCE)


def test_round_begun_while_assignments_were_awaited_sends_everybody_back() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first)
    rounds.join(second)
    follower = rounds.sync(second)
    rounds.enter()
    assert rounds.syncs[follower] == SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    assert rounds.syncs[rounds.sync(first)].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_of_another_generation_is_refused() -> None:
    rounds = Rounds()
    (first,) = rounds.form(1)
    assert rounds.syncs[rounds.sync(first, generation=0)].error is ErrorCode.ILLEGAL_GENERATION


def test_sync_under_another_protocol_is_refused() -> None:
    rounds = Rounds()
    (first,) = rounds.form(1)
    ticket = rounds.sync(first, protocol="sticky")
    assert rounds.syncs[ticket].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_in_a_stable_group_repeats_the_assignment() -> None:
    rounds = Rounds()
    _, second = rounds.form(2)
    assert rounds.syncs[rounds.sync(second)].assignment == second.encode()
    assert not rounds.waiting


# ---------------------------------------------------------------- members that come back


def test_follower_that_joins_again_unchanged_learns_the_generation_at_once() -> None:
    rounds = Rounds()
    _, second = rounds.form(2)
    ticket = rounds.join(second)
    assert (rounds.joins[ticket].generation, rounds.group.state) == (1, S.STABLE)


def test_leader_that_joins_again_starts_a_round() -> None:
    rounds = Rounds()
    first, _ = rounds.form(2)
    ticket = rounds.join(first)
    assert rounds.waiting == {ticket}
    assert rounds.group.state is S.PREPARING_REBALANCE


def test_follower_that_changed_its_subscription_starts_a_round() -> None:
    rounds = Rounds()
    _, second = rounds.form(2)
    rounds.join(second, protocols=(("range", b"other topics"),))
    assert rounds.group.state is S.PREPARING_REBALANCE


def test_member_that_missed_its_join_answer_gets_it_again() -> None:
    rounds = Rounds()
    member_id, _ = rounds.enter()
    rounds.pass_time(0)
    again = rounds.joins[rounds.join(member_id)]
    assert (again.generation, len(again.members)) == (1, 1)
    assert rounds.group.state is S.COMPLETING_REBALANCE


def test_request_repeated_on_another_connection_answers_the_first() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    lost = rounds.join(first)
    rounds.join(first)
    assert rounds.joins[lost].error is ErrorCode.REBALANCE_IN_PROGRESS
    rounds.join(second)
    lost_sync = rounds.sync(second)
    rounds.sync(second)
    assert rounds.syncs[lost_sync].error is ErrorCode.REBALANCE_IN_PROGRESS


# ---------------------------------------------------------------- leaving


def test_last_member_leaves_an_empty_group_behind() -> None:
    rounds = Rounds()
    (first,) = rounds.form(1)
    assert rounds.leave(Leaver(first)) == (ErrorCode.NONE,)
    assert (rounds.group.state, rounds.group.generation) == (S.EMPTY, 2)
    assert rounds.records[-1] == group_value(rounds.group)
    assert (rounds.records[-1].protocol_type, rounds.records[-1].members) == ("consumer", ())


def test_several_members_leave_in_one_request() -> None:
    rounds = Rounds()
    first, second, third = rounds.form(3)
    codes = rounds.leave(Leaver(first), Leaver("nobody"), Leaver(second))
    assert codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
    assert set(rounds.group.members) == {third}
    assert rounds.group.leader == third
    assert rounds.group.state is S.PREPARING_REBALANCE


def test_member_that_leaves_while_it_waits_is_answered() -> None:
    rounds = Rounds()
    first, _ = rounds.form(2)
    ticket = rounds.join(first)
    rounds.leave(Leaver(first))
    assert rounds.joins[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.join(first)
    rounds.join(second)
    ticket = rounds.sync(second)
    rounds.leave(Leaver(second))
    assert rounds.syncs[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_that_leaves_starts_no_round() -> None:
    rounds = Rounds()
    rounds.form(1)
    given = rounds.joins[rounds.join()].member_id
    assert rounds.leave(Leaver(given)) == (ErrorCode.NONE,)
    assert rounds.group.state is S.STABLE


def test_leaving_a_group_that_is_not_there_names_nobody() -> None:
    rounds = Rounds()
    assert rounds.leave(Leaver("m")) == (ErrorCode.UNKNOWN_MEMBER_ID,)


# ---------------------------------------------------------------- static members


def stable_with_static_member(version: int = 9) -> tuple[Rounds, str, str]:
    """A Stable group led by a static member, with a dynamic follower."""
    rounds = Rounds()
    static = rounds.join(instance_id="i", version=version)
    rounds.pass_time(0)
    static_id = rounds.joins[static].member_id
    rounds.settle()
    follower_id, _ = rounds.enter()
    rounds.join(static_id, instance_id="i")
    rounds.settle()
    assert rounds.group.state is S.STABLE
    return rounds, static_id, follower_id


def test_static_member_needs_no_second_join() -> None:
    rounds = Rounds()
    ticket = rounds.join(instance_id="i", version=9)
    rounds.pass_time(0)
    assert rounds.joins[ticket].generation == 1


def test_static_member_that_restarts_keeps_its_place_without_a_round() -> None:
    rounds, static_id, _ = stable_with_static_member()
    answer = rounds.joins[rounds.join(instance_id="i")]
    assert (rounds.group.state, answer.generation) == (S.STABLE, 2)
    assert answer.member_id != static_id
    assert rounds.syncs[rounds.sync(answer.member_id)].assignment == static_id.encode()


def test_static_leader_that_restarts_leads_but_does_not_assign() -> None:
    rounds, _, _ = stable_with_static_member()
    answer = rounds.joins[rounds.join(instance_id="i", version=9)]
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2


def test_static_leader_of_an_old_version_does_not_see_itself_as_leader() -> None:
    rounds, static_id, _ = stable_with_static_member()
    answer = rounds.joins[rounds.join(instance_id="i", version=8)]
    assert (answer.leader, answer.members, answer.skip_assignment) == (static_id, (), False)


def test_P8_replaced_static_member_is_recorded_under_its_new_id() -> None:
    rounds, _, _ = stable_with_static_member()
    new_id = rounds.joins[rounds.join(instance_id="i")].member_id
    assert rounds.records[-1] == group_value(rounds.group)
    assert new_id in {member.member_id for member in rounds.records[-1].members}


def test_static_member_that_was_replaced_is_fenced_everywhere() -> None:
    rounds, static_id, _ = stable_with_static_member()
    rounds.join(instance_id="i")
    codes = {
        rounds.heartbeat(static_id, instance_id="i"),
        rounds.syncs[rounds.sync(static_id, instance_id="i")].error,
        rounds.joins[rounds.join(static_id, instance_id="i")].error,
        *rounds.leave(Leaver(static_id, "i")),
    }
    assert codes == {ErrorCode.FENCED_INSTANCE_ID}


def test_static_member_that_is_replaced_while_it_waits_is_told() -> None:
    rounds, static_id, _ = stable_with_static_member()
    waiting = rounds.join(static_id, instance_id="i")
    rounds.join(instance_id="i")
    assert rounds.joins[waiting] == JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, static_id)


def test_static_member_that_comes_back_with_other_protocols_starts_a_round() -> None:
    rounds, static_id, follower_id = stable_with_static_member()
    both = (("sticky", b""), ("range", b""))
    rounds.join(follower_id, protocols=both)
    rounds.join(static_id, instance_id="i", protocols=both)
    rounds.settle()
    assert rounds.group.protocol == "sticky"
    rounds.join(instance_id="i", protocols=(("range", b""),))
    assert rounds.group.state is S.PREPARING_REBALANCE


def test_static_member_that_restarts_during_a_round_makes_it_begin_again() -> None:
    rounds, static_id, follower_id = stable_with_static_member()
    rounds.join(static_id, instance_id="i")
    rounds.join(follower_id)
    waiting = rounds.sync(follower_id)
    rounds.join(instance_id="i")
    assert rounds.group.state is S.PREPARING_REBALANCE
    assert rounds.syncs[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_static_member_that_is_away_stays_until_its_session_ends() -> None:
    rounds, static_id, follower_id = stable_with_static_member()
    rounds.leave(Leaver(follower_id))
    rounds.pass_time(SESSION_MS - 1)
    assert set(rounds.group.members) == {static_id}
    rounds.pass_time(1)
    assert not rounds.group.members


def test_replaced_static_member_still_has_to_fetch_its_assignment() -> None:
    rounds = Rounds()
    (leader,) = rounds.form(1)
    rounds.join(instance_id="i")
    rounds.join(leader)
    rounds.sync(leader)
    new_id = rounds.joins[rounds.join(instance_id="i")].member_id
    assert (rounds.group.state, set(rounds.group.unsynced)) == (S.STABLE, {new_id})
    rounds.sync(new_id, instance_id="i")
    assert (rounds.group.unsynced, rounds.group.sync_deadline_ms) == (frozenset(), None)


def test_administrator_removes_a_static_member_by_its_instance_id() -> None:
    rounds, _, follower_id = stable_with_static_member()
    assert rounds.leave(Leaver(NO_ID, "i"), Leaver(NO_ID, "none")) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert set(rounds.group.members) == {follower_id}


# ---------------------------------------------------------------- protocols and size


def test_protocol_is_the_one_most_members_prefer_among_the_common_ones() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=10))
    rounds.enter(protocols=(("sticky", b""), ("range", b"")))
    rounds.enter(protocols=(("own", b""), ("range", b""), ("sticky", b"")))
    rounds.enter(protocols=(("range", b""), ("sticky", b"")))
    rounds.pass_time(20)
    assert rounds.group.protocol == "range"


def test_member_with_no_common_protocol_is_refused() -> None:
    rounds = Rounds()
    rounds.form(2)
    ticket = rounds.join(protocols=(("sticky", b""),))
    assert rounds.joins[ticket].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rounds.group.state is S.STABLE


def test_member_of_another_protocol_type_is_refused() -> None:
    rounds = Rounds()
    rounds.form(1)
    ticket = rounds.join(protocol_type="connect")
    assert rounds.joins[ticket].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_takes_nobody_else() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0, group_max_size=2))
    rounds.form(2)
    ticket = rounds.join()
    assert rounds.joins[ticket] == JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert rounds.group.state is S.STABLE


def test_in_a_round_the_places_go_to_those_who_join_first() -> None:
    rounds = Rounds()
    first, second, third = rounds.form(3)
    rounds.limits = Limits(initial_rebalance_delay_ms=0, group_max_size=2)
    rounds.join(first)
    rounds.join(second)
    late = rounds.join(third)
    assert rounds.joins[late].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rounds.group.state is S.COMPLETING_REBALANCE
    assert set(rounds.group.members) == {first, second}


# ---------------------------------------------------------------- commits


@pytest.mark.parametrize(
    ("generation", "member_id", "is_transactional", "expected"),
    [
        (1, "leader", False, ErrorCode.NONE),
        (1, "leader", True, ErrorCode.NONE),
        (0, "leader", False, ErrorCode.ILLEGAL_GENERATION),
        (0, "leader", True, ErrorCode.ILLEGAL_GENERATION),
        (1, "ghost", False, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, "ghost", True, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", False, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", True, ErrorCode.NONE),
    ],
)
def test_P7_only_members_of_this_generation_commit_offsets(
    generation: int, member_id: str, is_transactional: bool, expected: ErrorCode
) -> None:
    rounds = Rounds()
    leader, _ = rounds.form(2)
    refusal = commit_refusal(
        rounds.group,
        {"leader": leader}.get(member_id, member_id),
        None,
        generation,
        is_transactional=is_transactional,
        knows_group_not_found=True,
    )
    assert refusal is expected


def test_P7_replaced_static_member_commits_nothing() -> None:
    rounds, static_id, _ = stable_with_static_member()
    rounds.join(instance_id="i")
    refusal = commit_refusal(
        rounds.group, static_id, "i", 2, is_transactional=True, knows_group_not_found=True
    )
    assert refusal is ErrorCode.FENCED_INSTANCE_ID


def test_commit_while_assignments_are_awaited_is_put_off() -> None:
    rounds = Rounds()
    member_id, _ = rounds.enter()
    rounds.pass_time(0)
    refusal = commit_refusal(
        rounds.group, member_id, None, 1, is_transactional=False, knows_group_not_found=True
    )
    assert refusal is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("generation", "is_transactional", "knows_group_not_found", "expected"),
    [
        (-1, False, True, ErrorCode.NONE),
        (-1, True, False, ErrorCode.NONE),
        (3, False, True, ErrorCode.GROUP_ID_NOT_FOUND),
        (3, False, False, ErrorCode.ILLEGAL_GENERATION),
        (3, True, True, ErrorCode.GROUP_ID_NOT_FOUND),
        (3, True, False, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commit_to_a_group_that_is_not_there(
    generation: int, is_transactional: bool, knows_group_not_found: bool, expected: ErrorCode
) -> None:
    refusal = commit_refusal(
        None,
        "m",
        None,
        generation,
        is_transactional=is_transactional,
        knows_group_not_found=knows_group_not_found,
    )
    assert refusal is expected


def test_consumer_outside_the_group_commits_while_the_group_is_empty() -> None:
    refusal = commit_refusal(
        Group("g"), "", None, -1, is_transactional=False, knows_group_not_found=True
    )
    assert refusal is ErrorCode.NONE


# ---------------------------------------------------------------- restarts and subscriptions


def test_P8_members_and_assignments_survive_a_restart() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    before = group_value(rounds.group)
    rounds.pass_time(SESSION_MS // 2)
    rounds.restart()
    assert group_value(rounds.group) == before
    assert rounds.heartbeat(first) is ErrorCode.NONE
    assert rounds.syncs[rounds.sync(second)].assignment == second.encode()


def test_sessions_begin_again_after_a_restart() -> None:
    rounds = Rounds()
    first, second = rounds.form(2)
    rounds.pass_time(SESSION_MS - 1)
    rounds.restart()
    rounds.pass_time(SESSION_MS - 1)
    assert set(rounds.group.members) == {first, second}
    rounds.pass_time(1)
    assert rounds.group.state is S.EMPTY


def test_group_knows_which_topics_its_members_consume() -> None:
    subscription = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\xff\xff\xff\xff"
    rounds = Rounds()
    rounds.enter(protocols=(("range", subscription),))
    rounds.pass_time(0)
    assert subscribed_topics(rounds.group) == frozenset({"orders"})


def test_unreadable_subscription_counts_as_every_topic() -> None:
    rounds = Rounds()
    rounds.form(1)
    assert subscribed_topics(rounds.group) is None


def test_group_that_does_not_consume_topics_is_subscribed_to_none() -> None:
    rounds = Rounds()
    rounds.join(version=3, protocol_type="connect")
    rounds.pass_time(0)
    assert subscribed_topics(rounds.group) == frozenset()
