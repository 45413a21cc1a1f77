"""The group APIs in every version, from request bytes to response bytes."""

import asyncio
import datetime
import uuid
from typing import Any

import pytest
from kio.serial import entity_reader

from support.group_host import TOPICS, GroupNode
from support.requests import request_of
from support.served import APIS, versions_of
from support.sessions import session
from txn.broker.host import Context, Durability
from txn.broker.turns import ITEMS_PER_TURN
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_response_schema
from txn.wire.messages import encode_response

NO_ID = uuid.UUID(int=99)
RANGE = [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x01\x00\x06orders"}]


def versions(api_key: int, since: int = 0) -> list[int]:
    return [version for version in versions_of(api_key) if version >= since]


def ask(node: GroupNode, api_key: int, version: int, **fields: Any) -> Any:
    """Send a request of a version as bytes; return the response that its bytes say."""
    request = request_of(api_key, version, **fields)
    context = Context(api_key, version, "client", session())
    answer = asyncio.run(_answered(node, api_key, request, context))
    data = encode_response(api_key, version, answer)
    response, size = entity_reader(load_response_schema(api_key, version))(data, 0)
    assert size == len(data)
    return response


async def _answered(node: GroupNode, api_key: int, request: Any, context: Context) -> Any:
    answer = APIS[api_key].handler(node.coordinator, request, context)
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    node.host.pass_time(0)
    return await waiting


def join(node: GroupNode, version: int, **fields: Any) -> Any:
    given: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "reason": None,
    }
    return ask(node, ApiKey.JOIN_GROUP, version, **given | fields)


def sync(node: GroupNode, version: int, member_id: str, **fields: Any) -> Any:
    given: dict[str, Any] = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"all"}],
    }
    return ask(node, ApiKey.SYNC_GROUP, version, **given | fields)


def offsets_of(topic: str, *partitions: tuple[int, int], metadata: str = "") -> dict[str, Any]:
    """A topic to commit: (partition, offset) pairs."""
    return {
        "name": topic,
        "topic_id": TOPICS.get(topic, NO_ID),
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": 4,
                "committed_metadata": metadata,
            }
            for index, offset in partitions
        ],
    }


def commit(node: GroupNode, version: int, *topics: dict[str, Any], **fields: Any) -> Any:
    given: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topics,
    }
    return ask(node, ApiKey.OFFSET_COMMIT, version, **given | fields)


def commit_in_transaction(node: GroupNode, version: int, *topics: dict[str, Any]) -> Any:
    return ask(
        node,
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id="t",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=topics,
    )


def fetch(
    node: GroupNode, version: int, topics: list[tuple[str, list[int]]] | None, *, stable: bool
) -> Any:
    """Fetch from version 8 on: the answer for group "g"."""
    asked = (
        None
        if topics is None
        else [
            {"name": name, "topic_id": TOPICS.get(name, NO_ID), "partition_indexes": indexes}
            for name, indexes in topics
        ]
    )
    group = {"group_id": "g", "topics": asked}
    response = ask(node, ApiKey.OFFSET_FETCH, version, groups=[group], require_stable=stable)
    return response.groups[0]


def codes(response: Any) -> list[ErrorCode]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


# ---------------------------------------------------------------- members


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP, since=4))
def test_join_from_version_4_gives_an_id_first(version: int) -> None:
    node = GroupNode()
    told = join(node, version)
    joined = join(node, version, member_id=told.member_id)
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("client-")
    assert (joined.generation_id, joined.leader) == (1, told.member_id)
    assert [member.member_id for member in joined.members] == [told.member_id]


@pytest.mark.parametrize("version", range(4))
def test_join_before_version_4_takes_the_member_at_once(version: int) -> None:
    joined = join(GroupNode(), version)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert joined.protocol_name == "range"


def test_join_version_0_has_its_session_timeout_for_the_rebalance_too() -> None:
    node = GroupNode()
    join(node, 0)
    group = node.groups.group("g")
    assert group is not None
    assert group.rebalance_timeout_ms == 10_000


def test_member_is_recorded_with_its_address_as_java_prints_it() -> None:
    node = GroupNode()
    join(node, 0)
    group = node.groups.group("g")
    assert group is not None
    assert [member.client_host for member in group.members.values()] == ["/127.0.0.1"]


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_refused_join_names_no_protocol(version: int, name: str | None) -> None:
    refused = join(GroupNode(), version, member_id="made up")
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.protocol_name == name


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 32_001}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_instance_id": "i" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_join_that_can_never_succeed_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    node = GroupNode()
    assert join(node, 9, **fields).error_code == code
    assert list(node.groups.groups()) == []


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_answers_with_the_assignment(version: int) -> None:
    node = GroupNode()
    member_id = join(node, 3).member_id
    synced = sync(node, version, member_id)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")


def test_sync_from_version_5_has_to_name_its_protocol() -> None:
    node = GroupNode()
    member_id = join(node, 3).member_id
    refused = sync(node, 5, member_id, protocol_name=None)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat_tells_members_from_strangers(version: int) -> None:
    node = GroupNode()
    member = node.form("g")
    fields: dict[str, Any] = {"group_id": "g", "generation_id": 1}
    known = ask(node, ApiKey.HEARTBEAT, version, member_id=member.member_id, **fields)
    stranger = ask(node, ApiKey.HEARTBEAT, version, member_id="stranger", **fields)
    assert (known.error_code, stranger.error_code) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )


@pytest.mark.parametrize("version", range(3))
def test_leave_before_version_3_tells_the_error_at_the_top(version: int) -> None:
    node = GroupNode()
    member = node.form("g")
    left = ask(node, ApiKey.LEAVE_GROUP, version, group_id="g", member_id=member.member_id)
    again = ask(node, ApiKey.LEAVE_GROUP, version, group_id="g", member_id=member.member_id)
    assert (left.error_code, again.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP, since=3))
def test_leave_from_version_3_tells_each_member_its_error(version: int) -> None:
    node = GroupNode()
    member = node.form("g")
    members = [
        {"member_id": name, "group_instance_id": None, "reason": "test"}
        for name in (member.member_id, "stranger")
    ]
    left = ask(node, ApiKey.LEAVE_GROUP, version, group_id="g", members=members)
    assert left.error_code == ErrorCode.NONE
    assert [entry.error_code for entry in left.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_requests_without_a_group_id_are_refused() -> None:
    node = GroupNode()
    beat = ask(node, ApiKey.HEARTBEAT, 4, group_id="", generation_id=1, member_id="m")
    left = ask(node, ApiKey.LEAVE_GROUP, 5, group_id="", members=[])
    synced = sync(node, 5, "m", group_id="")
    assert {beat.error_code, left.error_code, synced.error_code} == {ErrorCode.INVALID_GROUP_ID}


# ---------------------------------------------------------------- offsets


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(version: int) -> None:
    node = GroupNode()
    response = commit(node, version, offsets_of("orders", (0, 5), (2, 6)))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (node.offset("g"), node.offset("g", partition=2)) == (5, 6)


def test_each_partition_tells_why_its_offset_was_not_stored() -> None:
    node = GroupNode(offset_metadata_max_bytes=3)
    response = commit(
        node,
        9,
        offsets_of("orders", (0, 5), (3, 6)),
        offsets_of("nowhere", (0, 7)),
        offsets_of("payments", (0, 8), metadata="long"),
    )
    assert codes(response) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert list(node.offsets.committed("g")) == [("orders", 0)]


def test_commit_by_topic_id_tells_which_ids_are_unknown() -> None:
    node = GroupNode()
    response = commit(node, 10, offsets_of("nowhere", (0, 1)), offsets_of("orders", (0, 2)))
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert [topic.topic_id for topic in response.topics] == [NO_ID, TOPICS["orders"]]


def test_error_of_the_group_is_told_for_every_partition() -> None:
    node = GroupNode()
    node.form("g")
    response = commit(node, 9, offsets_of("orders", (0, 5), (9, 5)))
    assert codes(response) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.offset("g") is None


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_member_of_a_group_that_is_not_there_commits_nothing(version: int, code: ErrorCode) -> None:
    response = commit(
        GroupNode(),
        version,
        offsets_of("orders", (0, 5)),
        generation_id_or_member_epoch=1,
        member_id="m",
    )
    assert codes(response) == [code]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH, since=8))
def test_fetch_answers_group_by_group_from_version_8(version: int) -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5), metadata="note"))
    group = fetch(node, version, [("orders", [0, 1])], stable=False)
    known, unknown = group.topics[0].partitions
    assert (known.committed_offset, known.metadata, known.committed_leader_epoch) == (5, "note", 4)
    assert (unknown.committed_offset, unknown.error_code) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_before_version_8_answers_for_one_group(version: int) -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5)))
    topics = [{"name": "orders", "partition_indexes": [0, 1]}]
    response = ask(node, ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)
    assert [p.committed_offset for p in response.topics[0].partitions] == [5, -1]


@pytest.mark.parametrize("version", range(2, 8))
def test_fetch_without_topics_before_version_8_answers_with_all_there_are(version: int) -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5)), offsets_of("payments", (1, 6)))
    response = ask(node, ApiKey.OFFSET_FETCH, version, group_id="g", topics=None)
    assert [topic.partitions[0].committed_offset for topic in response.topics] == [5, 6]


def test_commit_whose_expiry_is_beyond_64_bits_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with the longest retention time failed with a traceback in the log."""
    node = GroupNode()
    monkeypatch.setattr(type(node.host), "now_ms", lambda _: (1 << 63) - 1000)
    commit(node, 2, offsets_of("orders", (0, 5)), retention_time=datetime.timedelta(days=1))
    stored = node.offsets.committed("g")["orders", 0]
    assert stored is not None
    assert stored.value.expire_timestamp_ms == (1 << 63) - 1


@pytest.mark.parametrize("version", [2, 3, 4])
def test_commit_with_a_retention_time_has_an_expiry_of_its_own(version: int) -> None:
    node = GroupNode()
    day = datetime.timedelta(days=1)
    commit(node, version, offsets_of("orders", (0, 5)), retention_time=day)
    stored = node.offsets.committed("g")["orders", 0]
    assert stored is not None
    assert stored.value.expire_timestamp_ms == node.host.now_ms() + 86_400_000


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH, since=8))
def test_fetch_without_topics_answers_with_all_there_are(version: int) -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5)), offsets_of("payments", (1, 6)))
    group = fetch(node, version, None, stable=False)
    assert [topic.partitions[0].committed_offset for topic in group.topics] == [5, 6]


def test_fetch_by_topic_id_tells_which_ids_are_unknown() -> None:
    group = fetch(GroupNode(), 10, [("nowhere", [0])], stable=False)
    assert codes(group) == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH, since=8))
def test_P3_stable_fetch_is_held_back_while_a_transaction_has_offsets(version: int) -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5), (1, 6)))
    commit_in_transaction(node, 5, offsets_of("orders", (0, 9)))
    held = fetch(node, version, [("orders", [0, 1])], stable=True)
    assert codes(held) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]
    free = fetch(node, version, [("orders", [0])], stable=False)
    assert free.topics[0].partitions[0].committed_offset == 5
    node.end_transaction("g", is_commit=True)
    after = fetch(node, version, [("orders", [0])], stable=True)
    assert after.topics[0].partitions[0].committed_offset == 9


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_transactional_offsets_join_under_the_version_of_the_request(version: int) -> None:
    node = GroupNode()
    response = commit_in_transaction(node, version, offsets_of("orders", (0, 5), (8, 5)))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    ((_, producer_id, _, transaction_version, _),) = node.transactions.joined
    assert (producer_id, transaction_version) == (7, 2 if version >= 5 else 1)
    assert node.is_pending("g")


def test_transaction_is_left_alone_when_no_offset_can_be_stored() -> None:
    node = GroupNode()
    commit_in_transaction(node, 5, offsets_of("nowhere", (0, 5)))
    assert node.transactions.joined == []


@pytest.mark.parametrize(
    ("version", "refused", "told"),
    [
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (3, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_P7_refused_transactional_offsets_tell_what_the_version_knows(
    version: int, refused: ErrorCode, told: ErrorCode
) -> None:
    node = GroupNode()
    node.transactions.answer = refused
    assert codes(commit_in_transaction(node, version, offsets_of("orders", (0, 5)))) == [told]
    assert not node.is_pending("g")


def test_offset_delete_spares_topics_that_members_consume() -> None:
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5)), offsets_of("payments", (0, 6)))
    node.form("g")
    topics = [
        {"name": name, "partitions": [{"partition_index": 0}]}
        for name in ("orders", "payments", "nowhere")
    ]
    response = ask(node, ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert codes(response) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert list(node.offsets.committed("g")) == [("orders", 0)]


def test_P2_offset_delete_spares_a_member_that_joined_meanwhile() -> None:
    """The request looked at the members, gave way, and deleted the commit of a new member."""
    node = GroupNode()
    commit(node, 9, offsets_of("orders", (0, 5)), offsets_of("payments", (0, 6)))
    many = [{"partition_index": index} for index in range(3 * ITEMS_PER_TURN)]
    topics = [{"name": name, "partitions": many} for name in ("orders", "payments")]
    request = request_of(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    context = Context(ApiKey.OFFSET_DELETE, 0, "client", session())
    deletion = APIS[ApiKey.OFFSET_DELETE].handler(node.coordinator, request, context)
    deletion.send(None)  # it gives way for the first time
    node.form("g")
    answer = _rest(deletion)
    assert (answer.topics[0].partitions[0], answer.topics[1].partitions[0]) == (
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (0, ErrorCode.NONE),
    )
    assert list(node.offsets.committed("g")) == [("orders", 0)]


def _rest(request: Any) -> Any:
    """The answer to a request under way that waits for nothing but its next turn."""
    try:
        while True:
            request.send(None)
    except StopIteration as end:
        return end.value


def test_offset_delete_of_an_unknown_group_is_told_at_the_top() -> None:
    response = ask(GroupNode(), ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[])
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_stable_group_is_described_with_its_assignments(version: int) -> None:
    node = GroupNode()
    member = node.form("g")
    response = ask(
        node,
        ApiKey.DESCRIBE_GROUPS,
        version,
        groups=["g"],
        include_authorized_operations=True,
    )
    (group,) = response.groups
    (described,) = group.members
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert (described.member_id, described.member_assignment) == (member.member_id, b"all")
    assert getattr(group, "authorized_operations", 3400) == 3400


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_unknown_group_is_described_as_dead(version: int, code: ErrorCode) -> None:
    fields = {"groups": ["g"], "include_authorized_operations": False}
    (group,) = ask(GroupNode(), ApiKey.DESCRIBE_GROUPS, version, **fields).groups
    assert (group.group_state, group.error_code) == ("Dead", code)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_in_every_version(version: int) -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.form("h")
    response = ask(node, ApiKey.LIST_GROUPS, version)
    assert {(group.group_id, group.protocol_type) for group in response.groups} == {
        ("g", ""),
        ("h", "consumer"),
    }


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        (["stable"], [], ["h"]),
        (["EMPTY", "Stable"], [], ["g", "h"]),
        (["Dead"], [], []),
        ([], ["Classic"], ["g", "h"]),
        ([], ["consumer"], []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    states: list[str], types: list[str], listed: list[str]
) -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.form("h")
    response = ask(node, ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
    assert [group.group_id for group in response.groups] == listed


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_groups_are_deleted_each_by_itself(version: int) -> None:
    node = GroupNode()
    node.commit("g", 1)
    node.form("h")
    response = ask(node, ApiKey.DELETE_GROUPS, version, groups_names=["g", "h", "nowhere"])
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("g", ErrorCode.NONE),
        ("h", ErrorCode.NON_EMPTY_GROUP),
        ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert not node.offsets.committed("g")


@pytest.mark.parametrize("is_transactional", [False, True])
def test_offsets_that_cannot_be_synced_are_refused_in_the_answer(is_transactional: bool) -> None:
    node = GroupNode()
    node.host.durability = Durability.ALWAYS
    for log in node.host.offsets:
        log.is_unsyncable = True
    offsets = offsets_of("orders", (0, 5))
    respond = commit_in_transaction if is_transactional else commit
    assert codes(respond(node, 3, offsets)) == [ErrorCode.NOT_COORDINATOR]
