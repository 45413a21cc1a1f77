"""Entries of access control: they outlive a restart, and each is sound or refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from api.security.access_control import (
    ADMIN,
    INVALID_REQUEST,
    POLICY_VIOLATION,
    STRANGER,
    TOPIC,
    allow,
    ask,
    creations,
    secured,
)
from support.acl_filters import any_acl
from support.clients import create_topic, plain_producer, send
from support.wire_client import RawConnection
from txn.security.acls import Operation, Permission, ResourceType
from txn.wire.api_keys import ApiKey


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    with secured(tmp_path_factory.mktemp("secured") / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a"])
        yield broker


def described(broker: txn.Broker, **changes: Any) -> set[tuple[Any, ...]]:
    answer = ask(broker, ADMIN, ApiKey.DESCRIBE_ACLS, 3, **any_acl(**changes))
    assert int(answer.error_code) == 0
    return {
        (one.resource_name, acl.host, acl.operation) for one in answer.resources for acl in one.acls
    }


def test_entries_outlive_a_restart_and_are_there_once(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ), (TOPIC, "pay", Operation.READ))
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
        before = described(broker)
    with secured(tmp_path / "data") as broker:
        assert described(broker) == before
        assert described(broker, host_filter=STRANGER) == {("pay", STRANGER, Operation.READ)}
        deleted = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[any_acl(host_filter=STRANGER)])
        assert [len(one.matching_acls) for one in deleted.filter_results] == [1]
        assert described(broker, host_filter=STRANGER) == set()


def test_an_entry_that_means_nothing_is_refused_alone(broker: txn.Broker) -> None:
    good = (TOPIC, "other", Operation.READ)
    bad = (ResourceType.CLUSTER, "other", Operation.ALL)
    fields = creations(ADMIN, Permission.ALLOW, good, bad)
    answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
    assert [int(one.error_code) for one in answer.results] == [0, 42]


def test_the_number_of_an_unknown_part_costs_the_connection(broker: txn.Broker) -> None:
    with RawConnection(broker.bootstrap_servers, ADMIN) as admin:
        admin.send(ApiKey.DESCRIBE_ACLS, 3, **any_acl(operation=0))
        assert admin.is_closed_by_peer()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("resource_type", "Invalid resourceType UNKNOWN"),
        ("resource_pattern_type", "Invalid patternType UNKNOWN"),
        ("operation", "Invalid operation UNKNOWN"),
        ("permission_type", "Invalid permissionType UNKNOWN"),
    ],
)
def test_of_a_number_that_kafka_does_not_know_no_entry_is_made(
    broker: txn.Broker, part: str, said: str
) -> None:
    """It cost the connection, and none of the other entries was made."""
    fields = creations(ADMIN, Permission.ALLOW, *[(TOPIC, part, Operation.READ)] * 2)
    fields["creations"][0][part] = 77
    answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
    assert [(int(one.error_code), one.error_message) for one in answer.results] == [
        (INVALID_REQUEST, said),
        (0, None),
    ]
    assert described(broker, resource_name_filter=part) == {(part, ADMIN, Operation.READ)}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("resource_type_filter", "Unknown patternFilter."),
        ("pattern_type_filter", "Unknown patternFilter."),
        ("operation", "Unknown entryFilter."),
        ("permission_type", "Unknown entryFilter."),
    ],
)
def test_a_number_that_kafka_does_not_know_selects_no_entry(
    tmp_path: Path, part: str, said: str
) -> None:
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
        assert described(broker, **{part: 77}) == set()
        filters = [any_acl(**{part: -1}), any_acl(host_filter=STRANGER)]
        answer = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=filters)
    assert [
        (int(one.error_code), one.error_message, len(one.matching_acls))
        for one in answer.filter_results
    ] == [(INVALID_REQUEST, said, 0), (0, None, 1)]


def test_a_request_changes_10_000_entries_at_most(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        many = [(TOPIC, f"t{n}", Operation.READ) for n in range(10_001)]
        fields = creations(STRANGER, Permission.ALLOW, *many)
        answer = ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **fields)
        assert {(int(one.error_code), one.error_message) for one in answer.results} == {
            (POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        }
        assert described(broker, host_filter=STRANGER) == set()
        allow(broker, STRANGER, *many[1:])
        allow(broker, STRANGER, many[0])
        deleted = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[any_acl(host_filter=STRANGER)])
        assert [(int(one.error_code), one.error_message) for one in deleted.filter_results] == [
            (
                INVALID_REQUEST,
                "Cannot remove more than 10000 acls in a single delete operation.",
            )
        ]
        assert len(described(broker, host_filter=STRANGER)) == 10_001


def test_a_filter_of_deletions_that_is_repeated_finds_the_same_as_in_kafka(tmp_path: Path) -> None:
    """What is told is bounded: an entry counts for each filter that selects it."""
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "a", Operation.READ), (TOPIC, "b", Operation.READ))
        of_stranger = any_acl(host_filter=STRANGER)
        too_many = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[of_stranger] * 5_001)
        answer = ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[of_stranger] * 3)
    assert {int(found.error_code) for found in too_many.filter_results} == {INVALID_REQUEST}
    assert [len(found.matching_acls) for found in answer.filter_results] == [2, 2, 2]
