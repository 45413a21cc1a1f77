"""Requests as bytes in, answers as bytes out, in every version that is announced."""

import asyncio
import datetime
import io
from collections.abc import Iterator
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from support.entities import entity_builder
from support.flights import TOPIC, coordinator_on, flights_host
from support.served import APIS, decode, versions_of
from support.sessions import session
from txn.broker.host import Context
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.states import TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_request_schema, load_response_schema
from txn.wire.messages import encode_response

INIT, ADD, ADD_OFFSETS, END, MARKERS, PRODUCERS, DESCRIBE, LIST = 22, 24, 25, 26, 27, 61, 65, 66


class TxnApis:
    """The handlers over a coordinator, spoken to in bytes."""

    def __init__(self) -> None:
        self.host = flights_host()
        self.coordinator = coordinator_on(self.host)
        self.coordinator.recover()

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        schema = load_request_schema(key, version)
        body = io.BytesIO()
        entity_writer(schema)(body, entity_builder(schema)(fields))
        request = decode(key, version, body.getvalue())
        context = Context(key, version, "test", session())

        async def handle() -> Any:
            return await APIS[key].handler(self.coordinator, request, context)

        answer = asyncio.run(handle())
        assert isinstance(answer, bytes | tuple)
        encoded = answer if isinstance(answer, bytes) else encode_response(key, version, answer)
        decoded, size = entity_reader(load_response_schema(key, version))(encoded, 0)
        assert size == len(encoded)
        return decoded

    def init(self, version: int = 5, **fields: Any) -> Any:
        return self.ask(
            INIT, version, **({"transactional_id": "pay", "transaction_timeout": 1_000} | fields)
        )

    def add(self, version: int, epoch: int, *partitions: tuple[str, int]) -> dict[Any, ErrorCode]:
        answer = self.ask(
            ADD,
            version,
            v3_and_below_transactional_id="pay",
            v3_and_below_producer_id=1_000,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                {"name": name, "partitions": [index]} for name, index in partitions
            ],
        )
        return {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    def end(self, version: int, epoch: int, *, committed: bool = True) -> Any:
        return self.ask(
            END,
            version,
            transactional_id="pay",
            producer_id=1_000,
            producer_epoch=epoch,
            committed=committed,
        )


@pytest.mark.parametrize("version", versions_of(INIT))
def test_a_producer_gets_its_id_in_every_version(version: int) -> None:
    answer = TxnApis().init(version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 0)


@pytest.mark.parametrize("version", versions_of(INIT))
def test_an_idempotent_producer_gets_its_id_in_every_version(version: int) -> None:
    answer = TxnApis().init(version, transactional_id=None, transaction_timeout=2**31 - 1)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 0)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_fenced_start_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = TxnApis()
    api.init()
    api.init()
    answer = api.init(version, producer_id=1_000, producer_epoch=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("shown", [(1_000, -1), (-1, 0)])
def test_half_an_identity_is_no_identity(shown: tuple[int, int]) -> None:
    answer = TxnApis().init(producer_id=shown[0], producer_epoch=shown[1])
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(version: int) -> None:
    api = TxnApis()
    api.init()
    assert api.add(version, 0, (TOPIC, 0), (TOPIC, 1)) == {(TOPIC, 0): 0, (TOPIC, 1): 0}


def test_a_partition_that_cannot_be_added_keeps_the_others_out() -> None:
    api = TxnApis()
    api.init()
    assert api.add(3, 0, (TOPIC, 0), (TOPIC, 9), ("nowhere", 0), (OFFSETS_TOPIC, 0)) == {
        (TOPIC, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (TOPIC, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (OFFSETS_TOPIC, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.state is TxnState.EMPTY


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_add_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = TxnApis()
    api.init()
    api.init()
    assert api.add(version, 0, (TOPIC, 0)) == {(TOPIC, 0): code}


@pytest.mark.parametrize("version", versions_of(ADD_OFFSETS))
def test_a_groups_partition_is_added_in_every_version(version: int) -> None:
    api = TxnApis()
    api.init()
    answer = api.ask(
        ADD_OFFSETS,
        version,
        transactional_id="pay",
        producer_id=1_000,
        producer_epoch=0,
        group_id="readers",
    )
    assert answer.error_code == ErrorCode.NONE
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.partitions == {api.coordinator.offsets_partition("readers")}


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_ends_without_a_bump_in_old_versions(version: int) -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    assert api.end(version, 0).error_code == ErrorCode.NONE
    assert api.end(version, 0).error_code == ErrorCode.NONE
    assert api.end(version, 0, committed=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_version_5_tells_the_epoch_to_go_on_with() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    answer = api.end(5, 0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 1)
    assert api.end(5, 0) == answer
    assert api.end(5, 0, committed=False).error_code == ErrorCode.INVALID_TXN_STATE
    assert api.end(5, 1).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.TRANSACTION_ABORTABLE),
        (1, ErrorCode.TRANSACTION_ABORTABLE),
        (2, ErrorCode.UNKNOWN_PRODUCER_ID),
        (3, ErrorCode.UNKNOWN_PRODUCER_ID),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_commit_that_the_broker_had_to_abort_is_abortable_in_every_version(
    version: int, code: ErrorCode
) -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    api.host.unopenable.add((TOPIC, 0))
    assert api.end(version, 0).error_code == code
    assert api.end(version, 0, committed=False).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_end_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = TxnApis()
    api.init()
    api.init()
    assert api.end(version, 0).error_code == code


def test_ends_of_unknown_ids_are_refused() -> None:
    assert TxnApis().end(5, 0).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transactions_are_described() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 1), (TOPIC, 0))
    known, unknown, empty = api.ask(
        DESCRIBE, 0, transactional_ids=["pay", "nobody", ""]
    ).transaction_states
    assert known.error_code == ErrorCode.NONE
    assert known.transaction_state == "Ongoing"
    assert known.transaction_timeout == datetime.timedelta(seconds=1)
    assert known.transaction_start_time.timestamp() * 1000 == api.host.now
    assert (known.producer_id, known.producer_epoch) == (1_000, 0)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(TOPIC, (0, 1))]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def names(answer: Any) -> list[str]:
    assert answer.error_code == ErrorCode.NONE
    return [found.transactional_id for found in answer.transaction_states]


@pytest.mark.parametrize("version", versions_of(LIST))
def test_transactions_are_listed_in_every_version(version: int) -> None:
    api = TxnApis()
    api.init()
    api.init(transactional_id="stock")
    api.add(3, 0, (TOPIC, 0))
    assert names(api.ask(LIST, version)) == ["pay", "stock"]
    assert names(api.ask(LIST, version, state_filters=["Ongoing"])) == ["pay"]
    assert names(api.ask(LIST, version, producer_id_filters=[1_001])) == ["stock"]


def test_a_state_that_is_unknown_is_named_and_matches_nothing() -> None:
    api = TxnApis()
    api.init()
    answer = api.ask(LIST, 0, state_filters=["Asleep"])
    assert names(answer) == []
    assert answer.unknown_state_filters == ("Asleep",)


def test_a_pattern_has_to_match_the_whole_id() -> None:
    api = TxnApis()
    api.init(transactional_id="pay-1")
    api.init(transactional_id="repay-1")
    assert names(api.ask(LIST, 2, transactional_id_pattern="pay-[0-9]+")) == ["pay-1"]
    refused = api.ask(LIST, 2, transactional_id_pattern="pay-[")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["pay-[", "a**", "(?=a)", r"(a)\1", "a{1001}"])
def test_what_is_no_pattern_is_said_to_be_none(pattern: str) -> None:
    api = TxnApis()
    api.init()
    answer = api.ask(LIST, 2, transactional_id_pattern=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_holds_up_the_broker() -> None:
    # Patterns were matched by Python's `re`, which goes back and tries again. This one takes it
    # 2**200 steps, and the control loop answers nobody else meanwhile.
    api = TxnApis()
    api.init(transactional_id="a" * 200 + "!")
    assert names(api.ask(LIST, 2, transactional_id_pattern="(a+)+$")) == []
    assert names(api.ask(LIST, 2, transactional_id_pattern="(a+)+!")) == ["a" * 200 + "!"]


def test_a_duration_leaves_out_what_began_lately() -> None:
    api = TxnApis()
    api.init(transaction_timeout=900_000)
    api.add(3, 0, (TOPIC, 0))
    api.host.advance(500)
    assert names(api.ask(LIST, 1, duration_filter=499)) == ["pay"]
    assert names(api.ask(LIST, 1, duration_filter=500)) == []


def test_producers_of_a_partition_are_described() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    producer = api.coordinator.transactions.get("pay")
    assert producer is not None
    api.host.store(TOPIC, 0).client_append(producer.producer, 0, b"a", 1)
    answer = api.ask(PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": [0, 9]}])
    found, missing = answer.topics[0].partitions
    (active,) = found.active_producers
    assert (active.producer_id, active.last_sequence, active.current_txn_start_offset) == (
        1_000,
        0,
        0,
    )
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message is None
    nowhere = api.ask(PRODUCERS, 0, topics=[{"name": "nowhere", "partition_indexes": [0]}])
    (unknown,) = nowhere.topics[0].partitions
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_message == "This server does not host this topic-partition."


# ---------------------------------------------------------------- many transactions at once


def add_batched(api: TxnApis, *partitions: tuple[str, int], epoch: int = 0, **fields: Any) -> Any:
    version = fields.pop("version", 5)
    wanted = {
        "transactional_id": "pay",
        "producer_id": 1_000,
        "producer_epoch": epoch,
        "verify_only": False,
        "topics": [{"name": name, "partitions": [index]} for name, index in partitions],
    }
    answer = api.ask(ADD, version, transactions=[wanted | fields])
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results_by_transaction
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_added_by_the_rules_of_version_2(version: int) -> None:
    api = TxnApis()
    api.init()
    assert add_batched(api, (TOPIC, 0), (OFFSETS_TOPIC, 1), version=version) == {
        (TOPIC, 0): ErrorCode.NONE,
        (OFFSETS_TOPIC, 1): ErrorCode.NONE,
    }
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert (txn.state, txn.client_version) == (TxnState.ONGOING, 2)


def test_a_partition_that_cannot_be_added_keeps_the_others_of_its_transaction_out() -> None:
    api = TxnApis()
    api.init()
    assert add_batched(api, (TOPIC, 0), ("nowhere", 0), ("__transaction_state", 0)) == {
        (TOPIC, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_transactions_of_one_request_are_answered_each() -> None:
    api = TxnApis()
    api.init()
    topics = [{"name": TOPIC, "partitions": [0]}]
    answer = api.ask(
        ADD,
        5,
        transactions=[
            {
                "transactional_id": transactional_id,
                "producer_id": 1_000,
                "producer_epoch": epoch,
                "verify_only": False,
                "topics": topics,
            }
            for transactional_id, epoch in (("pay", 0), ("pay", 9), ("nobody", 0), ("", 0))
        ],
    )
    assert [
        (one.transactional_id, one.topic_results[0].results_by_partition[0].partition_error_code)
        for one in answer.results_by_transaction
    ] == [
        ("pay", ErrorCode.NONE),
        ("pay", ErrorCode.PRODUCER_FENCED),
        ("nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", ErrorCode.INVALID_REQUEST),
    ]


def test_no_transaction_is_answered_too() -> None:
    answer = TxnApis().ask(ADD, 5, transactions=[])
    assert (answer.error_code, answer.results_by_transaction) == (0, ())


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified_and_nothing_is_changed(version: int) -> None:
    api = TxnApis()
    api.init()

    def verify(**fields: Any) -> Any:
        return add_batched(api, (TOPIC, 0), (TOPIC, 1), version=version, verify_only=True, **fields)

    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert verify() == dict.fromkeys([(TOPIC, 0), (TOPIC, 1)], abortable)
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.state is TxnState.EMPTY
    add_batched(api, (TOPIC, 0))
    assert verify() == {(TOPIC, 0): ErrorCode.NONE, (TOPIC, 1): abortable}
    assert set(verify(epoch=1).values()) == {ErrorCode.PRODUCER_FENCED}
    assert set(verify(producer_id=7).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert set(verify(transactional_id="").values()) == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("key", [ADD, ADD_OFFSETS, END])
def test_no_transactional_id_is_an_invalid_request(key: int) -> None:
    api = TxnApis()
    fields: dict[str, Any] = {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}
    if key == ADD:
        fields = {f"v3_and_below_{name}": value for name, value in fields.items()}
        topics = [{"name": TOPIC, "partitions": [0]}]
        answer = api.ask(key, 3, v3_and_below_topics=topics, **fields)
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert result.partition_error_code == ErrorCode.INVALID_REQUEST
        return
    more: dict[str, Any] = {"committed": True} if key == END else {"group_id": "g"}
    assert api.ask(key, 3, **fields, **more).error_code == ErrorCode.INVALID_REQUEST


# ---------------------------------------------------------------- an operator's markers


def write_marker(
    api: TxnApis, *partitions: tuple[str, int], version: int = 1, **fields: Any
) -> dict[tuple[str, int], ErrorCode]:
    wanted = {
        "producer_id": 1_000,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": name, "partition_indexes": [index]} for name, index in partitions],
    }
    answer = api.ask(MARKERS, version, markers=[wanted | fields])
    (result,) = answer.markers
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in result.topics
        for one in topic.partitions
    }


def hanging(transaction_version: int = 1) -> TxnApis:
    """A partition with a transaction of which the coordinator knows nothing."""
    api = TxnApis()
    store = api.host.store(TOPIC, 0)
    store.producer_state.allow_txn(1_000, 0)
    store.client_append(ProducerIdAndEpoch(1_000, 0), 0, b"a", transaction_version)
    assert store.producer_state.first_unstable_offset() == 0
    return api


@pytest.mark.parametrize("version", versions_of(MARKERS))
def test_P5_an_operator_ends_a_hanging_transaction(version: int) -> None:
    api = hanging()
    assert write_marker(api, (TOPIC, 0), version=version) == {(TOPIC, 0): ErrorCode.NONE}
    assert api.host.store(TOPIC, 0).producer_state.first_unstable_offset() == -1
    assert api.host.store(TOPIC, 0).committed() == []


@pytest.mark.parametrize(
    ("partition", "fields", "code"),
    [
        (("nowhere", 0), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, 9), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, 0), {"producer_id": -1}, ErrorCode.INVALID_REQUEST),
        ((TOPIC, 0), {"producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_markers_that_lead_nowhere_are_refused(
    partition: tuple[str, int], fields: dict[str, Any], code: ErrorCode
) -> None:
    assert write_marker(hanging(), partition, **fields) == {partition: code}


def test_P7_markers_of_earlier_producers_and_coordinators_are_refused() -> None:
    api = TxnApis()
    assert write_marker(api, (TOPIC, 0), producer_epoch=3, coordinator_epoch=5) == {(TOPIC, 0): 0}
    assert write_marker(api, (TOPIC, 0), producer_epoch=2, coordinator_epoch=5) == {
        (TOPIC, 0): ErrorCode.INVALID_PRODUCER_EPOCH
    }
    assert write_marker(api, (TOPIC, 0), producer_epoch=4, coordinator_epoch=4) == {
        (TOPIC, 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED
    }


def test_a_late_marker_cannot_end_the_next_transaction_of_version_2() -> None:
    """Source: KIP-1228. The marker of a transaction has the epoch of the next one's records."""
    api = hanging(transaction_version=2)
    late = {"version": 2, "transaction_version": 2}
    assert write_marker(api, (TOPIC, 0), **late) == {(TOPIC, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write_marker(api, (TOPIC, 0), producer_epoch=1, **late) == {(TOPIC, 0): 0}
    assert write_marker(api, (TOPIC, 0), producer_epoch=1, **late) == {(TOPIC, 0): 0}


def test_P3_an_operators_abort_of_a_part_aborts_the_whole_transaction() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0), (TOPIC, 1))
    for index in (0, 1):
        api.host.store(TOPIC, index).client_append(ProducerIdAndEpoch(1_000, 0), 0, b"a", 1)
    assert write_marker(api, (TOPIC, 0)) == {(TOPIC, 0): ErrorCode.NONE}
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.state is TxnState.COMPLETE_ABORT
    assert api.host.store(TOPIC, 1).producer_state.first_unstable_offset() == -1
    assert api.end(3, 0).error_code == ErrorCode.PRODUCER_FENCED


def test_P3_an_operators_commit_of_a_part_is_refused() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0), (TOPIC, 1))
    api.host.store(TOPIC, 0).client_append(ProducerIdAndEpoch(1_000, 0), 0, b"a", 1)
    assert write_marker(api, (TOPIC, 0), transaction_result=True) == {
        (TOPIC, 0): ErrorCode.INVALID_TXN_STATE
    }
    assert api.host.store(TOPIC, 0).producer_state.first_unstable_offset() == 0


def test_P3_no_marker_comes_between_a_decision_and_its_markers() -> None:
    api = TxnApis()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    store = api.host.store(TOPIC, 0)
    store.client_append(ProducerIdAndEpoch(1_000, 0), 0, b"a", 1)
    store.is_read_only = True
    api.end(3, 0)
    store.is_read_only = False
    assert write_marker(api, (TOPIC, 0)) == {(TOPIC, 0): ErrorCode.CONCURRENT_TRANSACTIONS}
    api.host.advance(1_000)
    assert store.committed() == [b"a"]


def test_nobody_writes_markers_into_the_coordinators_log() -> None:
    api = TxnApis()
    api.init()
    assert write_marker(api, ("__transaction_state", 0)) == {
        ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


def test_the_filters_of_a_listing_are_looked_up_and_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200,000 producer ids were compared with that of each transactional id, one by one."""
    apis = TxnApis()
    asked: list[Filter] = []

    def find(criteria: Filter) -> Iterator[None]:
        asked.append(criteria)
        return iter(())

    monkeypatch.setattr(apis.coordinator, "find", find)
    apis.ask(LIST, 0, state_filters=["Ongoing", "Ongoing"], producer_id_filters=[1, 2, 1])
    assert asked == [Filter(frozenset({TxnState.ONGOING}), frozenset({1, 2}))]
