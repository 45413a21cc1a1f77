"""Requests as bytes in, answers as bytes out, in every version that is announced."""

import datetime
import io
from collections.abc import Mapping
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from txn.broker.apis.transactions import HANDLERS, VERSIONS
from txn.broker.host import Context
from txn.broker.transactions import OFFSETS_TOPIC, TransactionCoordinator
from txn.coordinator.transaction.states import TxnState
from txn.wire.messages import decode_request, encode_response, entity_builder
from txn_host import TOPIC, MemoryHost

INIT, ADD, ADD_OFFSETS, END, PRODUCERS, DESCRIBE, LIST = 22, 24, 25, 26, 61, 65, 66


class Api:
    """The handlers over a coordinator, spoken to in bytes."""

    def __init__(self) -> None:
        self.host = MemoryHost()
        self.coordinator = TransactionCoordinator(self.host)

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        schema = load_request_schema(key, version)
        body = io.BytesIO()
        entity_writer(schema)(body, entity_builder(schema)(fields))
        request = decode_request(key, version, body.getvalue())
        answer = HANDLERS[key](
            self.coordinator, request, Context(key, version, "test", "127.0.0.1", connection=1)
        )
        assert isinstance(answer, Mapping)
        encoded = encode_response(key, version, answer)
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


def versions_of(key: int) -> range:
    first, last = VERSIONS[key]
    return range(first, last + 1)


@pytest.mark.parametrize("version", versions_of(INIT))
def test_a_producer_gets_its_id_in_every_version(version: int) -> None:
    answer = Api().init(version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 0)


@pytest.mark.parametrize("version", versions_of(INIT))
def test_an_idempotent_producer_gets_its_id_in_every_version(version: int) -> None:
    answer = Api().init(version, transactional_id=None, transaction_timeout=2**31 - 1)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 0)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.invalid_producer_epoch),
        (4, ErrorCode.producer_fenced),
        (5, ErrorCode.producer_fenced),
    ],
)
def test_a_fenced_start_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = Api()
    api.init()
    api.init()
    answer = api.init(version, producer_id=1_000, producer_epoch=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("shown", [(1_000, -1), (-1, 0)])
def test_half_an_identity_is_no_identity(shown: tuple[int, int]) -> None:
    answer = Api().init(producer_id=shown[0], producer_epoch=shown[1])
    assert answer.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions_of(ADD))
def test_partitions_are_added_in_every_version(version: int) -> None:
    api = Api()
    api.init()
    assert api.add(version, 0, (TOPIC, 0), (TOPIC, 1)) == {(TOPIC, 0): 0, (TOPIC, 1): 0}


def test_a_partition_that_cannot_be_added_keeps_the_others_out() -> None:
    api = Api()
    api.init()
    assert api.add(3, 0, (TOPIC, 0), (TOPIC, 9), ("nowhere", 0), (OFFSETS_TOPIC, 0)) == {
        (TOPIC, 0): ErrorCode.operation_not_attempted,
        (TOPIC, 9): ErrorCode.unknown_topic_or_partition,
        ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
        (OFFSETS_TOPIC, 0): ErrorCode.topic_authorization_failed,
    }
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.state is TxnState.EMPTY


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)],
)
def test_a_fenced_add_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = Api()
    api.init()
    api.init()
    assert api.add(version, 0, (TOPIC, 0)) == {(TOPIC, 0): code}


@pytest.mark.parametrize("version", versions_of(ADD_OFFSETS))
def test_a_groups_partition_is_added_in_every_version(version: int) -> None:
    api = Api()
    api.init()
    answer = api.ask(
        ADD_OFFSETS,
        version,
        transactional_id="pay",
        producer_id=1_000,
        producer_epoch=0,
        group_id="readers",
    )
    assert answer.error_code is ErrorCode.none
    txn = api.coordinator.transactions.get("pay")
    assert txn is not None
    assert txn.partitions == {api.coordinator.offsets_partition("readers")}


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_ends_without_a_bump_in_old_versions(version: int) -> None:
    api = Api()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    assert api.end(version, 0).error_code is ErrorCode.none
    assert api.end(version, 0).error_code is ErrorCode.none
    assert api.end(version, 0, committed=False).error_code is ErrorCode.invalid_txn_state


def test_version_5_tells_the_epoch_to_go_on_with() -> None:
    api = Api()
    api.init()
    api.add(3, 0, (TOPIC, 0))
    answer = api.end(5, 0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1_000, 1)
    assert api.end(5, 0) == answer
    assert api.end(5, 0, committed=False).error_code is ErrorCode.invalid_txn_state
    assert api.end(5, 1).error_code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)],
)
def test_a_fenced_end_is_told_in_words_its_version_knows(version: int, code: int) -> None:
    api = Api()
    api.init()
    api.init()
    assert api.end(version, 0).error_code == code


def test_ends_of_unknown_ids_are_refused() -> None:
    assert Api().end(5, 0).error_code is ErrorCode.invalid_producer_id_mapping


def test_transactions_are_described() -> None:
    api = Api()
    api.init()
    api.add(3, 0, (TOPIC, 1), (TOPIC, 0))
    known, unknown, empty = api.ask(
        DESCRIBE, 0, transactional_ids=["pay", "nobody", ""]
    ).transaction_states
    assert known.error_code is ErrorCode.none
    assert known.transaction_state == "Ongoing"
    assert known.transaction_timeout == datetime.timedelta(seconds=1)
    assert known.transaction_start_time.timestamp() * 1000 == api.host.now
    assert (known.producer_id, known.producer_epoch) == (1_000, 0)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(TOPIC, (0, 1))]
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request


def names(answer: Any) -> list[str]:
    assert answer.error_code is ErrorCode.none
    return [found.transactional_id for found in answer.transaction_states]


@pytest.mark.parametrize("version", versions_of(LIST))
def test_transactions_are_listed_in_every_version(version: int) -> None:
    api = Api()
    api.init()
    api.init(transactional_id="stock")
    api.add(3, 0, (TOPIC, 0))
    assert names(api.ask(LIST, version)) == ["pay", "stock"]
    assert names(api.ask(LIST, version, state_filters=["Ongoing"])) == ["pay"]
    assert names(api.ask(LIST, version, producer_id_filters=[1_001])) == ["stock"]


def test_a_state_that_is_unknown_is_named_and_matches_nothing() -> None:
    api = Api()
    api.init()
    answer = api.ask(LIST, 0, state_filters=["Asleep"])
    assert names(answer) == []
    assert answer.unknown_state_filters == ("Asleep",)


def test_a_pattern_has_to_match_the_whole_id() -> None:
    api = Api()
    api.init(transactional_id="pay-1")
    api.init(transactional_id="repay-1")
    assert names(api.ask(LIST, 2, transactional_id_pattern="pay-[0-9]+")) == ["pay-1"]
    refused = api.ask(LIST, 2, transactional_id_pattern="pay-[")
    assert refused.error_code is ErrorCode.invalid_regular_expression


def test_a_duration_leaves_out_what_began_lately() -> None:
    api = Api()
    api.init(transaction_timeout=900_000)
    api.add(3, 0, (TOPIC, 0))
    api.host.advance(500)
    assert names(api.ask(LIST, 1, duration_filter=499)) == ["pay"]
    assert names(api.ask(LIST, 1, duration_filter=500)) == []


def test_producers_of_a_partition_are_described() -> None:
    api = Api()
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
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


def test_every_announced_version_exists_in_the_protocol() -> None:
    assert {key: load_request_schema(key, last) for key, (_, last) in VERSIONS.items()}.keys() == (
        HANDLERS.keys()
    )
