"""AlterClientQuotas and DescribeClientQuotas on a running broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.client_quotas import alter, alteration, describe, described, set_quota
from support.served import versions_of
from txn.wire.api_keys import ApiKey

INVALID_REQUEST, POLICY_VIOLATION = 42, 44
RATE = "producer_byte_rate"
EXACT = 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        yield broker


@pytest.mark.parametrize("version", versions_of(ApiKey.ALTER_CLIENT_QUOTAS))
def test_what_is_set_is_described(broker: txn.Broker, version: int) -> None:
    servers, ada = broker.bootstrap_servers, {"user": "ada", "client-id": None}
    changes = alteration(ada, {RATE: 5.0, "request_percentage": 12.5})
    assert alter(servers, changes, version=version) == [(ada, 0, None)]
    answer = describe(servers, [("user", EXACT, "ada")], version=version)
    (entry,) = answer.entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == ada
    assert {one.key: one.value for one in entry.values} == {RATE: 5.0, "request_percentage": 12.5}
    alter(servers, alteration(ada, {RATE: None, "request_percentage": None}), version=version)
    assert described(servers) == []


def test_quotas_outlive_a_restart(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        set_quota(broker.bootstrap_servers, {"user": "ada"}, producer_byte_rate=5.0)
        set_quota(broker.bootstrap_servers, {"ip": None}, connection_creation_rate=7.0)
        set_quota(broker.bootstrap_servers, {"user": None}, consumer_byte_rate=9.0)
        set_quota(broker.bootstrap_servers, {"user": None}, consumer_byte_rate=None)
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        assert described(broker.bootstrap_servers) == [
            ({"ip": None}, {"connection_creation_rate": 7.0}),
            ({"user": "ada"}, {RATE: 5.0}),
        ]


def test_an_address_with_a_zone_is_refused(broker: txn.Broker) -> None:
    """It was stored, and the request was never answered. The next start failed."""
    zoned = {"ip": "fe80::1%eth0"}
    results = alter(broker.bootstrap_servers, alteration(zoned, {"connection_creation_rate": 5.0}))
    said = "fe80::1%eth0 is not a valid IP or resolvable host."
    assert results == [(zoned, INVALID_REQUEST, said)]
    assert described(broker.bootstrap_servers) == []


def test_validate_only_changes_nothing_and_tells_faults(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    entries = [alteration({"user": "ada"}, {RATE: 5.0}), alteration({"user": "bob"}, {RATE: 0.5})]
    results = alter(servers, *entries, validate_only=True)
    assert [(entity, code) for entity, code, _ in results] == [
        ({"user": "ada"}, 0),
        ({"user": "bob"}, INVALID_REQUEST),
    ]
    assert described(servers) == []


def test_one_entity_is_refused_and_the_others_are_altered(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    wrong = alteration({"user": "bob"}, {"consumer_byte_rate": 5.0, "no_such_rate": 1.0})
    results = alter(servers, alteration({"user": "ada"}, {RATE: 5.0}), wrong)
    assert [code for _, code, _ in results] == [0, INVALID_REQUEST]
    assert results[1][2] == "Invalid configuration key no_such_rate"
    assert described(servers) == [({"user": "ada"}, {RATE: 5.0})]


def test_of_an_entity_named_twice_the_first_changes_stand(broker: txn.Broker) -> None:
    servers, ada = broker.bootstrap_servers, {"user": "ada"}
    results = alter(servers, alteration(ada, {RATE: 5.0}), alteration(ada, {RATE: 6.0}))
    said = "Ignoring duplicate entity ClientQuotaEntity(entries={user=ada})"
    assert results == [(ada, INVALID_REQUEST, said)]
    assert described(servers) == [(ada, {RATE: 5.0})]


def test_a_request_with_very_many_changes_is_refused_as_a_whole(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    entries = [alteration({"user": f"u{n}"}, {RATE: 5.0}) for n in range(10_001)]
    assert {code for _, code, _ in alter(servers, *entries)} == {POLICY_VIOLATION}
    assert described(servers) == []


def test_a_wrong_filter_is_told(broker: txn.Broker) -> None:
    answer = describe(broker.bootstrap_servers, [("group", EXACT, "g")])
    assert (answer.error_code, answer.error_message, answer.entries) == (
        35,
        "Unsupported entity type group",
        None,
    )


def test_changes_are_in_the_audit_log(broker: txn.Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ada = {"user": "ada", "client-id": None}
    set_quota(broker.bootstrap_servers, ada, producer_byte_rate=5.0)
    set_quota(broker.bootstrap_servers, ada, producer_byte_rate=None)
    lines = [text for text in caplog.messages if text.startswith("quota.")]
    assert "resource='client-id:<default> user:ada'" in lines[0].replace('"', "'")
    assert "value=5.0" in lines[0]
    assert [line.split()[0] for line in lines] == ["quota.set", "quota.removed"]


def test_a_long_name_is_cut_in_the_audit_log(
    broker: txn.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    set_quota(broker.bootstrap_servers, {"user": "a" * 32_000}, producer_byte_rate=5.0)
    (line,) = (text for text in caplog.messages if text.startswith("quota."))
    assert f"user:{'a' * 256}… " in line
