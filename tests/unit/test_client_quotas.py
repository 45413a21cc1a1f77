"""Buckets of controller mutations: Kafka's token bucket, and their bound."""

from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.sessions import session
from txn.broker.client_quotas import BUCKETS_MAX, WAIT_MS_MAX, ClientQuotas
from txn.broker.host import Context, Toll
from txn.config import BrokerSettings
from txn.metadata.quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from txn.metadata.records import Entity

EVERYBODY: Entity = (("client-id", None),)
CREATE_TOPICS, STRICT_FROM = 19, 6


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def quotas_of(clock: Clock, rate: float, entity: Entity = EVERYBODY) -> ClientQuotas:
    """Quotas of one rate, over two samples of a second."""
    settings = BrokerSettings({"controller.quota.window.num": "2"})
    quotas = ClientQuotas(settings, clock, Mock())
    quotas.publish({entity: {CONTROLLER_MUTATION_RATE: rate}})
    return quotas


def ask(
    quotas: ClientQuotas, partitions: int, *, client_id: str = "shop", version: int = 7
) -> tuple[bool, int]:
    """Whether a request may go on, and the milliseconds that its client is throttled for."""
    toll = Toll()
    context = Context(CREATE_TOPICS, version, client_id, session(), toll)
    is_accepted = quotas.mutations(context, strict_from=STRICT_FROM).accept(partitions)
    return is_accepted, toll.throttle_ms


def test_a_full_bucket_may_be_overdrawn_once_and_fills_with_time() -> None:
    clock = Clock()
    quotas = quotas_of(clock, 5.0)  # room for ten
    assert ask(quotas, 30) == (True, 0)
    assert ask(quotas, 1) == (False, 4_000)
    clock.now_ms = 3_000
    assert ask(quotas, 1) == (False, 1_000)
    clock.now_ms = 4_000
    assert ask(quotas, 1) == (True, 0)
    clock.now_ms = 3_600_000
    assert [ask(quotas, 10), ask(quotas, 1), ask(quotas, 1)] == [(True, 0), (True, 0), (False, 200)]


def test_earlier_versions_are_throttled_and_carried_out() -> None:
    quotas = quotas_of(Clock(), 5.0)
    assert [ask(quotas, 30, version=5), ask(quotas, 5, version=5)] == [(True, 4_000), (True, 5_000)]


def test_client_ids_have_buckets_of_their_own_and_a_user_has_one() -> None:
    quotas = quotas_of(Clock(), 5.0)
    assert [ask(quotas, 30, client_id=one)[0] for one in ("a", "b", "a")] == [True, True, False]
    quotas = quotas_of(Clock(), 5.0, (("user", None),))
    assert [ask(quotas, 30, client_id=one)[0] for one in ("a", "b", "a")] == [True, False, False]


def test_the_number_of_buckets_is_bounded() -> None:
    quotas = quotas_of(Clock(), 5.0)
    for n in range(BUCKETS_MAX + 10):
        ask(quotas, 30, client_id=f"invented-{n}")
    assert ask(quotas, 1, client_id="invented-10") == (False, 4_000)
    assert ask(quotas, 1, client_id="invented-9") == (True, 0)  # forgotten, and full again


@given(
    st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False), st.integers(0, 2**31 - 1)
)
def test_any_rate_gives_a_time_of_32_bits(rate: float, partitions: int) -> None:
    quotas = quotas_of(Clock(), rate)
    for version in (7, 7, 5):
        assert 0 <= ask(quotas, partitions, version=version)[1] <= WAIT_MS_MAX


@pytest.mark.parametrize("stored", [0.0, -1.0, float("nan")])
def test_a_number_that_another_broker_stored_binds_nobody(stored: float) -> None:
    catalog: Any = Mock()
    quotas = ClientQuotas(BrokerSettings(), Clock(), catalog)
    quotas.publish({EVERYBODY: {CONTROLLER_MUTATION_RATE: stored, PRODUCER_BYTE_RATE: stored}})
    assert ask(quotas, 1_000_000) == (True, 0)
    catalog.publish_quotas.assert_called_once_with([], samples=11, length_s=1)


def test_without_such_quotas_no_request_has_a_toll() -> None:
    quotas = quotas_of(Clock(), 5.0)
    assert quotas.takes_toll
    quotas.publish({EVERYBODY: {PRODUCER_BYTE_RATE: 5.0}})
    assert not quotas.takes_toll
