"""Texts and sets that clients choose are not kept. These grew with a stranger's requests."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Final
from unittest.mock import Mock

from support.sessions import session
from txn.broker.client_quotas import ClientQuotas
from txn.broker.host import Context, Toll
from txn.broker.last_clients import LastClients
from txn.config import BrokerSettings
from txn.coordinator.transaction.records import decode_value, encode_key, encode_value
from txn.coordinator.transaction.states import Txn, TxnState
from txn.metadata.quotas import CONTROLLER_MUTATION_RATE
from txn.partition import ASK_TO_JOIN, ProducerStateManager

MIB: Final = 1 << 20
LONGEST: Final = 32_767
CREATE_TOPICS: Final = 19


def kept_bytes(act: Callable[[int], object], times: int) -> int:
    """The memory that is still held after an act was done some times."""
    act(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, times + 1):
            act(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def long_name(number: int) -> str:
    return f"{number:0{LONGEST}}"


def test_many_partitions_of_a_transaction_are_not_kept_when_it_is_over() -> None:
    """2.5 GB were, after 1,100 requests of 50 bytes."""
    partitions = frozenset(("t", index) for index in range(1_000))
    txn = Txn(7, 0, 60_000, TxnState.ONGOING, partitions, 1, 2)
    assert decode_value(encode_value(txn)).partitions == partitions
    is_kept = weakref.ref(partitions)
    del txn, partitions
    gc.collect()
    assert is_kept() is None


def test_keys_of_long_transactional_ids_are_not_kept() -> None:
    assert kept_bytes(lambda number: encode_key(long_name(number)), 200) < MIB


def test_the_last_clients_of_long_transactional_ids_have_a_bound() -> None:
    clients = LastClients(lambda: 5)

    def note(number: int) -> None:
        context = Context(26, 1, long_name(number), session())
        clients.note(long_name(number), context, "EndTxn")

    assert kept_bytes(note, 300) < 4 * MIB
    assert clients.get(long_name(300)) is not None
    assert clients.get(long_name(1)) is None


def test_buckets_of_long_client_ids_have_a_bound() -> None:
    quotas = ClientQuotas(BrokerSettings(), lambda: 0, Mock())
    quotas.publish({(("client-id", None),): {CONTROLLER_MUTATION_RATE: 1.0}})

    def ask(number: int) -> None:
        context = Context(CREATE_TOPICS, 7, f"{number}-{long_name(0)}", session(), Toll())
        quotas.mutations(context, strict_from=6).accept(1)

    assert kept_bytes(ask, 300) < MIB


def test_invented_producers_that_were_asked_to_join_have_a_bound() -> None:
    """Each left an entry until the next sweep, ten minutes later."""
    state = ProducerStateManager()

    def produce(number: int) -> None:
        assert state.admit(1, 0, number, 0, 0, 1, 1, True, None)[0] == ASK_TO_JOIN

    assert kept_bytes(produce, 60_000) < 4 * MIB
