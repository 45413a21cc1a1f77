"""Quotas of clients: the entity that binds, the values that are refused, the filters."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.metadata.image import Image
from txn.metadata.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaFault,
    alteration,
    binding,
    creation_rates,
    entity_of,
    filter_of,
    names_without_address,
)
from txn.metadata.records import ClientQuotaRecord, Entity
from txn.wire.error_codes import ErrorCode

ADA: Entity = (("user", "ada"),)
RATE = PRODUCER_BYTE_RATE

LEVELS: list[dict[str, str | None]] = [
    {"user": "ada", "client-id": "shop"},
    {"user": "ada", "client-id": None},
    {"user": "ada"},
    {"user": None, "client-id": "shop"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "shop"},
    {"client-id": None},
]
"""The eight levels in the order of Kafka's documentation."""

OTHERS: list[dict[str, str | None]] = [{"user": "bob"}, {"client-id": "pay"}, {"ip": None}]


def entity(parts: Mapping[str, str | None]) -> Entity:
    return entity_of(parts.items())


@given(st.sets(st.integers(0, len(LEVELS) - 1)))
def test_the_most_specific_of_the_eight_levels_binds(levels: set[int]) -> None:
    quotas = {entity(LEVELS[level]): {RATE: 1.0} for level in levels}
    quotas |= {entity(parts): {RATE: 1.0} for parts in OTHERS}
    expected = entity(LEVELS[min(levels)]) if levels else None
    assert binding(quotas, RATE, "ada", "shop") == expected


def test_each_key_has_a_binding_entity_of_its_own() -> None:
    quotas = {ADA: {RATE: 1.0}, (("client-id", None),): {CONSUMER_BYTE_RATE: 1.0}}
    assert binding(quotas, RATE, "ada", "shop") == ADA
    assert binding(quotas, CONSUMER_BYTE_RATE, "ada", "shop") == (("client-id", None),)


def test_a_client_without_an_id_is_bound_by_the_default() -> None:
    default: Entity = (("client-id", None),)
    assert binding({default: {RATE: 1.0}}, RATE, "ada", "") == default


def test_only_changes_make_records() -> None:
    quotas = {ADA: {RATE: 5.0}}
    changes = {RATE: 5.0, CONSUMER_BYTE_RATE: 7.0, REQUEST_PERCENTAGE: None}
    assert alteration(quotas, ADA, changes) == [ClientQuotaRecord(ADA, CONSUMER_BYTE_RATE, 7.0)]
    assert alteration(quotas, ADA, {RATE: None}) == [ClientQuotaRecord(ADA, RATE, None)]


@pytest.mark.parametrize(
    ("parts", "key", "value", "said"),
    [
        ({}, RATE, 1.0, "Invalid empty client quota entity"),
        ({"group": "g"}, RATE, 1.0, "Unhandled client quota entity type: group"),
        ({"user": ""}, RATE, 1.0, "Empty user not supported"),
        ({"user": "ada", "ip": None}, RATE, 1.0, "Invalid quota entity combination"),
        ({"ip": "10.0.0"}, CONNECTION_CREATION_RATE, 1.0, "not a valid IP or resolvable host"),
        ({"ip": "fe80::1%eth0"}, CONNECTION_CREATION_RATE, 1.0, "not a valid IP or resolvable"),
        ({"ip": "10.0.0.1"}, RATE, 1.0, "Invalid configuration key producer_byte_rate"),
        ({"user": "ada"}, CONNECTION_CREATION_RATE, 1.0, "Invalid configuration key"),
        ({"user": "ada"}, RATE, 0.0, "must be greater than 0"),
        ({"user": "ada"}, RATE, -1.0, "must be greater than 0"),
        ({"user": "ada"}, RATE, float("nan"), "must be greater than 0"),
        ({"user": "ada"}, RATE, 1e19, "too large for a LONG"),
        ({"user": "ada"}, RATE, 1.5, "cannot be a fractional value"),
        ({"user": "ada"}, REQUEST_PERCENTAGE, float("inf"), "must be finite"),
        ({"ip": None}, CONNECTION_CREATION_RATE, 2.0**31, "too large for an INT"),
    ],
)
def test_a_wrong_alteration_is_refused(
    parts: dict[str, str | None], key: str, value: float, said: str
) -> None:
    with pytest.raises(QuotaFault, match=said) as refused:
        alteration({}, entity(parts), {key: value})
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "code", "said"),
    [
        ([("", 0, "a")], 42, "Invalid empty entity type"),
        ([("user", 0, "a"), ("user", 2, None)], 42, "cannot appear more than once"),
        ([("group", 0, "a")], 35, "Unsupported entity type group"),
        ([("user", 0, None)], 42, "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", 1, "a")], 42, "MATCH_TYPE_DEFAULT, but also"),
        ([("user", 2, "a")], 42, "MATCH_TYPE_SPECIFIED, but also"),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        ([("ip", 2, None), ("user", 2, None)], 42, "Invalid entity filter component"),
    ],
)
def test_a_wrong_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: int, said: str
) -> None:
    with pytest.raises(QuotaFault, match=said) as refused:
        filter_of(components, is_strict=False)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("components", "is_strict", "selected"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([], True, []),
        ([("user", 0, "ada")], False, [0, 1, 2]),
        ([("user", 0, "ada")], True, [2]),
        ([("user", 1, None)], False, [3, 4, 5]),
        ([("client-id", 2, None)], True, [6, 7]),
        ([("user", 2, None), ("client-id", 0, "shop")], False, [0, 3]),
    ],
)
def test_a_filter_selects_by_name_default_and_type(
    components: list[tuple[str, int, str | None]], is_strict: bool, selected: list[int]
) -> None:
    wanted = filter_of(components, is_strict=is_strict)
    assert [n for n, parts in enumerate(LEVELS) if wanted.selects(entity(parts))] == selected


def test_an_entity_without_quotas_is_gone_and_a_fork_keeps_its_own() -> None:
    image = Image()
    image.apply(ClientQuotaRecord(ADA, RATE, 5.0))
    fork = image.fork()
    fork.apply(ClientQuotaRecord(ADA, CONSUMER_BYTE_RATE, 6.0))
    image.apply(ClientQuotaRecord(ADA, RATE, None))
    assert image.client_quotas == {}
    assert fork.client_quotas == {ADA: {RATE: 5.0, CONSUMER_BYTE_RATE: 6.0}}


def test_stored_names_that_are_no_address_count_for_nothing_and_can_be_taken_away() -> None:
    """Apache Kafka stores host names and zones; the sockets refuse both, which ended the start."""
    names = ("localhost", "fe80::1%eth0", "10.0.0.1")
    quotas = {entity({"ip": name}): {CONNECTION_CREATION_RATE: 5.0} for name in names}
    assert creation_rates(quotas) == (None, {"10.0.0.1": 5.0})
    assert names_without_address(quotas) == ["localhost", "fe80::1%eth0"]
    host = entity({"ip": "localhost"})
    removal = ClientQuotaRecord(host, CONNECTION_CREATION_RATE, None)
    assert alteration(quotas, host, {CONNECTION_CREATION_RATE: None}) == [removal]
    with pytest.raises(QuotaFault):
        alteration(quotas, host, {CONNECTION_CREATION_RATE: 6.0})
    with pytest.raises(QuotaFault):
        alteration({}, host, {CONNECTION_CREATION_RATE: None})


@pytest.mark.parametrize("rate", [0.0, -5.0, math.nan])
def test_stored_creation_rates_that_are_not_above_0_count_for_nothing(rate: float) -> None:
    """A rate below 0 ended the broker with its first connection."""
    default, other = entity({"ip": None}), entity({"ip": "10.0.0.1"})
    quotas = {default: {CONNECTION_CREATION_RATE: rate}, other: {CONNECTION_CREATION_RATE: rate}}
    assert creation_rates(quotas) == (None, {})
