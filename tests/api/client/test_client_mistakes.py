"""Mistakes of a first day with the Python client: each is named for its real cause, at once."""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.aio import AIOConsumer

import txn
from txn.client.engine import EngineName
from txn.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker(auto_create_topics_enable="false") as made:
        made.create_topic("in", partitions=1)
        yield made


@pytest.mark.parametrize("is_own", [True, False])
def test_a_consumer_of_asyncio_is_refused_in_words(
    broker: TestBroker, producer: txn.Producer, is_own: bool
) -> None:
    """It said that a coroutine is not iterable, and warned of four that were never awaited."""

    async def use() -> None:
        consumer: Any = AIOConsumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        )
        try:
            with producer.transaction(consumer if is_own else None) as t:
                t.send_offsets([], consumer)
        finally:
            await consumer.close()

    with pytest.raises(TypeError, match=r"cannot use AIOConsumer.*txn\.aio\.Consumer"):
        asyncio.run(use())


def test_servers_may_be_a_list(broker: TestBroker) -> None:
    """The text of the list was taken for a host, which did not resolve."""
    servers = [broker.bootstrap_servers, broker.bootstrap_servers]
    with txn.Producer(bootstrap_servers=servers) as producer:
        producer.produce("in", b"1")
    with txn.Producer({"bootstrap.servers": servers}) as producer:
        producer.produce("in", b"2")
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="lists", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"])
    messages = consumer.consume(2, 30)
    consumer.close()

    assert [message.value() for message in messages] == [b"1", b"2"]


@pytest.mark.parametrize("keyword", ["config", "conf"])
@pytest.mark.parametrize("client", [txn.Producer, txn.Consumer])
def test_a_configuration_by_keyword_is_refused_with_its_place(
    client: Callable[..., object], keyword: str
) -> None:
    """It said that bootstrap.servers is missing."""
    with pytest.raises(txn.ConfigError, match=f"{keyword}= is no property.*first argument"):
        client(**{keyword: {"bootstrap.servers": "h:1", "group.id": "g"}})


def test_a_transaction_that_was_not_entered_is_not_called_over(
    producer: txn.Producer, broker: TestBroker
) -> None:
    consumer = txn.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    with pytest.raises(txn.RejectedError, match="has not begun; do it inside its block, `with"):
        producer.transaction().produce("in", b"1")
    with pytest.raises(txn.RejectedError, match="cannot send offsets: the transaction has not beg"):
        producer.transaction().send_offsets([], consumer)
    consumer.close()
    with producer.transaction() as t:
        pass
    with pytest.raises(txn.RejectedError, match="the transaction is over"):
        t.produce("in", b"1")


@pytest.mark.parametrize("client", [txn.Producer, txn.Consumer])
def test_a_login_without_a_mechanism_names_the_setting(
    client: Callable[..., object], engine: EngineName
) -> None:
    """It told of GSSAPI, and of recompiling librdkafka."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "a", "sasl.password": "b"}
    group = {"group.id": "g"} if client is txn.Consumer else {}
    with pytest.raises(txn.ConfigError, match=r"sasl\.mechanism.* set it to PLAIN") as told:
        client({**login, "bootstrap.servers": "h:1", **group}, engine=engine)
    assert told.value.property == "sasl.mechanism"


@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_missing_topic_is_named_as_the_cause(broker: TestBroker, is_transactional: bool) -> None:
    """It took 30 s, and the advice was to produce again."""
    servers = broker.bootstrap_servers
    with (
        pytest.raises(txn.TxnError, match=r"'ordres'.* There is no such topic, and the cluster ma"),
        txn.Producer(
            bootstrap_servers=servers, transactional_id="m" if is_transactional else None
        ) as producer,
    ):
        if not is_transactional:
            producer.produce("ordres", b"1")
            producer.flush()
        with producer.transaction() as t:
            t.produce("ordres", b"1")


def test_an_address_without_a_broker_shows_one_traceback() -> None:
    """The time-out of librdkafka came first, with a traceback of its own."""
    with pytest.raises(txn.UnreachableError) as told:
        txn.Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t", connect_timeout=0)
    shown = "".join(traceback.format_exception(told.value))

    assert shown.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("poll", "txn.Producer has no 'poll': it polls by itself"),
        ("commit", "its end commits"),
        ("abort", "an exception inside it aborts"),
    ],
)
def test_a_method_of_another_client_is_told_with_its_replacement(
    producer: txn.Producer, name: str, told: str
) -> None:
    with pytest.raises(AttributeError, match=told):
        getattr(producer, name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("commit", "a transaction has no 'commit': the end of the block commits"),
        ("abort", "raise an exception inside the block, which aborts"),
        ("colour", "a transaction has no 'colour'$"),
    ],
)
def test_a_call_that_a_block_does_by_itself_is_told_so(
    producer: txn.Producer, name: str, told: str
) -> None:
    with pytest.raises(AttributeError, match=told), producer.transaction() as t:
        getattr(t, name)


def test_an_async_with_is_told_to_use_the_clients_for_asyncio(
    broker: TestBroker, producer: txn.Producer
) -> None:
    consumer = txn.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")

    async def use(thing: Any) -> None:
        async with thing:
            pass

    for thing in (producer, producer.transaction(), consumer):
        with pytest.raises(TypeError, match=r"has no coroutines: use `with`.*txn\.aio\.Producer"):
            asyncio.run(use(thing))
    consumer.close()


def test_a_serializer_is_told_where_its_value_goes(engine: EngineName) -> None:
    with pytest.raises(txn.ConfigError, match=r"no value\.serializer: keys and values are bytes"):
        txn.Producer(bootstrap_servers="h:1", value_serializer=str, engine=engine)
    with pytest.raises(
        txn.ConfigError, match=r"value\.deserializer: .* hand message\.value\(\) to"
    ):
        txn.Consumer(bootstrap_servers="h:1", group_id="g", value_deserializer=str, engine=engine)


def test_a_closed_consumer_is_refused_when_its_block_begins(
    broker: TestBroker, producer: txn.Producer
) -> None:
    """It was told at the end of the block, as one that was closed inside."""
    consumer = txn.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    consumer.close()
    with (
        pytest.raises(txn.RejectedError, match="is closed; open another"),
        producer.transaction(consumer),
    ):
        pytest.fail("the block was entered")


def test_a_transaction_timeout_beyond_the_brokers_names_both_settings(broker: TestBroker) -> None:
    with pytest.raises(
        txn.ConfigError,
        match=r"transaction\.timeout\.ms=900001, more .* transaction\.max\.timeout\.ms is 900000",
    ) as told:
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="long",
            transaction_timeout_ms=900_001,
        )
    assert (told.value.property, told.value.value) == ("transaction.timeout.ms", 900_001)


def test_a_session_that_ends_between_two_heartbeats_is_refused() -> None:
    """The group took the consumer for dead again and again, and it returned no record."""
    with pytest.raises(
        txn.ConfigError, match=r"session\.timeout\.ms=100 .* more than heartbeat\.interval\.ms=3000"
    ):
        txn.Consumer(bootstrap_servers="h:1", group_id="g", session_timeout_ms=100)
    more: dict[str, Any] = {"session_timeout_ms": 100, "heartbeat_interval_ms": 30}
    txn.Consumer(bootstrap_servers="h:1", group_id="g", **more).close()


def test_a_session_that_the_broker_refuses_names_its_settings() -> None:
    with TestBroker(group_min_session_timeout_ms=6000) as strict:
        strict.create_topic("in")
        consumer = txn.Consumer(
            bootstrap_servers=strict.bootstrap_servers, group_id="g", session_timeout_ms=5000
        )
        consumer.subscribe(["in"])
        with pytest.raises(
            txn.ConfigError, match=r"group\.min\.session\.timeout\.ms and group\.max"
        ):
            consumer.poll(60)
        consumer.close()


def test_a_timestamp_in_microseconds_is_told_by_its_unit(
    broker: TestBroker, producer: txn.Producer
) -> None:
    with (
        pytest.raises(
            txn.RejectedError, match=r"counts milliseconds since 1970, no seconds or mic"
        ),
        producer.transaction() as t,
    ):
        t.produce("in", b"1", timestamp=int(time.time() * 1e6))
