"""Properties of the native engine: each has an effect, or is refused with the way out."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import txn
import txn.aio
from txn.client.engine import DEFAULT_ENGINE, EngineName
from txn.client.native_client import NativeClient
from txn.client.native_settings import CONSUMER, PRODUCER
from txn.client.settings import ALIASES, PROPERTIES
from txn.security.client_names import READ

PAGE = Path(__file__).parents[2] / "docs/python-client.md"
SERVERS = {"bootstrap.servers": "h:1"}
SECURED = {**SERVERS, "security.protocol": "SASL_SSL"}
OF_LIBRDKAFKA = PROPERTIES - ALIASES.keys()
OUT = r"set engine='confluent-kafka'"


def a_processor(engine: EngineName | None, settings: Mapping[str, Any]) -> None:
    more: dict[str, Any] = {} if engine is None else {"engine": engine}
    txn.Processor("in", str, "out", group_id="g", transactional_id="t", config=settings, **more)


def a_pool(engine: EngineName | None, settings: Mapping[str, Any]) -> None:
    more: dict[str, Any] = {} if engine is None else {"engine": engine}
    txn.ProducerPool("shop", 1, settings, **more)


@pytest.mark.parametrize("opened", [a_processor, a_pool])
def test_a_property_is_refused_before_a_client_is_opened(
    opened: Callable[[EngineName | None, Mapping[str, Any]], None],
) -> None:
    """The processor refused it in `run`, and the pool in its first block."""
    with pytest.raises(txn.ConfigError, match=rf"stats_cb, which the native engine.*{OUT}"):
        opened("native", {**SERVERS, "stats_cb": print})


def default_of(client: Callable[..., object]) -> object:
    return inspect.signature(client).parameters["engine"].default


def test_one_constant_is_the_default_of_all_clients() -> None:
    for client in (txn.Producer, txn.ProducerPool, txn.Processor):
        assert default_of(client) == DEFAULT_ENGINE
    assert txn.Consumer.engine == DEFAULT_ENGINE
    assert default_of(txn.Consumer) is None
    assert default_of(txn.aio.Producer) is None
    assert default_of(txn.aio.Consumer) is None


@pytest.mark.parametrize("name", sorted(OF_LIBRDKAFKA - PRODUCER.known))
def test_each_property_of_librdkafka_is_refused_by_a_native_producer(name: str) -> None:
    with pytest.raises(txn.ConfigError, match=f"{re.escape(name)}.*{OUT}") as raised:
        txn.Producer({**SECURED, name: "1"}, engine="native")
    assert raised.value.property == name


@pytest.mark.parametrize("name", sorted(OF_LIBRDKAFKA - CONSUMER.known))
def test_each_property_of_librdkafka_is_refused_by_a_native_consumer(name: str) -> None:
    with pytest.raises(txn.ConfigError, match=f"{re.escape(name)}.*{OUT}") as raised:
        txn.Consumer({**SECURED, name: "1"}, group_id="g", engine="native")
    assert raised.value.property == name


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("retries", 5, r"delivery\.timeout\.ms"),
        ("message.send.max.retries", "5", r"delivery\.timeout\.ms"),
        ("logger", print, r"logger txn\.client"),
        ("partitioner", "consistent_random", "as Java's producer"),
        ("partitioner", "murmur2", "without a key"),
        ("sasl.mechanism", "GSSAPI", "another mechanism"),
        ("queue.buffering.max.messages", 10, r"buffer\.memory"),
        ("group.id", "g", "property of consumers"),
        ("session.timeout.ms", 6000, "property of consumers"),
    ],
)
def test_a_setting_without_effect_in_a_native_producer_is_refused(
    name: str, value: object, told: str
) -> None:
    settings = {**SECURED, name: value}
    with pytest.raises(txn.ConfigError, match=f"{told}.*{OUT}"):
        txn.Producer(settings, engine="native")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("logger", print, r"logger txn\.client"),
        ("allow.auto.create.topics", True, "Create the topic"),
        ("check.crcs", False, "checks each batch"),
        ("sasl.mechanisms", "GSSAPI", "another mechanism"),
        ("linger.ms", 5, "property of producers"),
        ("transactional.id", "t", "property of producers"),
    ],
)
def test_a_setting_without_effect_in_a_native_consumer_is_refused(
    name: str, value: object, told: str
) -> None:
    settings = {**SECURED, name: value}
    with pytest.raises(txn.ConfigError, match=f"{told}.*{OUT}"):
        txn.Consumer(settings, group_id="g", engine="native")


def test_no_method_of_a_native_consumer_reaches_librdkafka() -> None:
    """`cluster_id` said that the consumer was closed."""
    of_librdkafka = {name for name in dir(confluent_kafka.Consumer) if not name.startswith("_")}
    assert of_librdkafka <= vars(NativeClient).keys()


@pytest.mark.parametrize("call", ["cluster_id", "set_sasl_credentials"])
def test_a_method_of_librdkafka_alone_says_what_to_use(call: str) -> None:
    with (
        txn.Consumer(SERVERS, group_id="g", engine="native") as consumer,
        pytest.raises(txn.ConfigError, match=rf"has no {call}\(\).* use .*{OUT}"),
    ):
        getattr(consumer, call)("ann", "secret")


def test_librdkafkas_own_defaults_may_be_given() -> None:
    settings = {**SERVERS, "retries": 2**31 - 1, "acks": "all", "enable.idempotence": True}
    txn.Producer(settings, engine="native").close()
    settings = {**SERVERS, "allow.auto.create.topics": False}
    txn.Consumer(settings, group_id="g", engine="native").close()


def test_the_page_lists_the_properties_of_both_clients() -> None:
    rows = dict(re.findall(r"^\| (both|producer|consumer) \| (`.*) \|$", PAGE.read_text(), re.M))
    listed = {kind: set(re.findall(r"`([^`]+)`", names)) for kind, names in rows.items()}
    for kind, client in (("producer", PRODUCER), ("consumer", CONSUMER)):
        known = client.known - READ - client.second_names.keys()
        usual = {"acks" if name == "request.required.acks" else name for name in known}
        assert listed[kind] | listed["both"] == usual
