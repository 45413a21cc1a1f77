"""The state of share groups, which txn does not keep; answers have Apache Kafka's texts."""

from collections.abc import Iterator
from uuid import UUID

import pytest

import txn
from support.wire_client import ask
from txn.broker.apis.index import APIS_BY_MODULE
from txn.wire.api_keys import ApiKey

NOT_COORDINATOR = 16
TEXTS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "initialize share group state",
    ApiKey.READ_SHARE_GROUP_STATE: "read share group state",
    ApiKey.WRITE_SHARE_GROUP_STATE: "write share group state",
    ApiKey.DELETE_SHARE_GROUP_STATE: "delete share group state",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "read share group state summary",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey(key), version)
        for key, (first, last) in APIS_BY_MODULE["share_state"].items()
        for version in range(first, last + 1)
    ],
)
def test_each_partition_learns_that_its_coordinator_is_elsewhere(
    servers: str, key: ApiKey, version: int
) -> None:
    partition = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []}
    answer = ask(
        servers,
        key,
        version,
        group_id="g",
        topics=[
            {
                "topic_id": UUID(int=7),
                "partitions": [{"partition": each, **partition} for each in (1, 0, 1)],
            }
        ],
    )
    (topic,) = answer.results
    assert topic.topic_id == UUID(int=7)
    assert [
        (each.partition, int(each.error_code), each.error_message) for each in topic.partitions
    ] == [
        (each, NOT_COORDINATOR, f"Unable to {TEXTS[key]}: This is not the correct coordinator.")
        for each in (1, 0)
    ]
