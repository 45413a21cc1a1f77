"""Classes derived from `txn.Consumer` and `txn.Producer` work with both engines."""

import abc
import pickle
from typing import Any

import pytest

import txn
import txn.otel
from support.clients import WAIT_S
from txn.client.engine import EngineName
from txn.client.native_consumer import NativeConsumer
from txn.testing import TestBroker


class Counting(txn.Consumer):
    """A consumer that counts its records."""

    count = 0

    def poll(self, timeout: float = -1) -> Any:
        message = super().poll(timeout)
        self.count += message is not None
        return message


class GivesItsEngine(txn.Consumer):
    """A consumer that gives the engine in its own `__init__`."""

    __slots__ = ("given",)

    def __init__(self, settings: dict[str, Any], engine_given: EngineName) -> None:
        self.given = engine_given
        super().__init__(settings, engine=engine_given)


class IsNative(txn.Consumer):
    """A consumer whose engine is native if none is given."""

    engine: EngineName = "native"


class Abstract(txn.Consumer, metaclass=abc.ABCMeta):
    """A consumer with another metaclass."""


class Upper(txn.Producer):
    """A producer that writes capital letters."""

    def produce(self, topic: str, value: Any = None, *more: Any, **others: Any) -> None:
        super().produce(topic, value.upper(), *more, **others)


@pytest.fixture
def topic(broker: TestBroker) -> str:
    """A topic that no other test has."""
    return broker.create_topic()


@pytest.fixture
def settings(broker: TestBroker, topic: str) -> dict[str, Any]:
    """The settings of a consumer, and a record for it."""
    broker.produce(topic, "1")
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }


def read_one(consumer: txn.Consumer, topic: str) -> bytes | None:
    """The value of the first record; closes the consumer."""
    with consumer:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
    assert message is not None
    return message.value()


def test_a_derived_consumer_reads_with_its_own_methods(
    settings: dict[str, Any], topic: str, engine: EngineName
) -> None:
    consumer = Counting(settings, engine=engine)
    assert read_one(consumer, topic) == b"1"
    assert consumer.count == 1
    assert isinstance(consumer, Counting)
    assert isinstance(consumer, NativeConsumer) == (engine == "native")
    assert consumer.engine == engine
    assert type(consumer).__name__ == "Counting"


def test_a_derived_consumer_may_give_the_engine_in_its_init(
    settings: dict[str, Any], topic: str, engine: EngineName
) -> None:
    """`__new__` did not get it, so the consumer was one of librdkafka."""
    consumer = GivesItsEngine(settings, engine)
    assert consumer.given == engine
    assert consumer.engine == engine
    assert isinstance(consumer, NativeConsumer) == (engine == "native")
    assert read_one(consumer, topic) == b"1"


def test_a_derived_class_sets_the_default_engine(settings: dict[str, Any], topic: str) -> None:
    """It was a consumer of librdkafka that called its engine native."""
    with IsNative(settings, engine="confluent-kafka") as other:
        assert other.engine == "confluent-kafka"
        assert not isinstance(other, NativeConsumer)
    consumer = IsNative(settings)
    assert isinstance(consumer, NativeConsumer)
    assert read_one(consumer, topic) == b"1"


def test_the_consumer_with_spans_has_either_engine(
    settings: dict[str, Any], topic: str, engine: EngineName
) -> None:
    consumer = txn.otel.Consumer(settings, engine=engine)
    assert isinstance(consumer, NativeConsumer) == (engine == "native")
    assert read_one(consumer, topic) == b"1"


def test_a_derived_native_consumer_commits_with_its_transaction(
    broker: TestBroker, settings: dict[str, Any], topic: str, engine: EngineName
) -> None:
    output = f"{topic}-out"
    with (
        Counting(settings, engine=engine) as consumer,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine=engine
        ) as producer,
    ):
        consumer.subscribe([topic])
        with producer.transaction(consumer) as t:
            message = consumer.poll(WAIT_S)
            t.produce(output, message.value())
    assert [record.value for record in broker.records(output)] == [b"1"]
    assert broker.unconsumed(topic, [topic]) == []


def test_a_class_is_made_once_and_is_neither_copied_nor_pickled(settings: dict[str, Any]) -> None:
    with Counting(settings, engine="native") as one, Counting(settings, engine="native") as other:
        assert type(one) is type(other)
        with pytest.raises(TypeError, match=r"txn\.Consumer"):
            pickle.dumps(one)


def test_a_class_with_another_metaclass_reads(settings: dict[str, Any], topic: str) -> None:
    assert read_one(Abstract(settings, engine="native"), topic) == b"1"


def test_a_class_that_cannot_be_combined_is_refused_with_the_reason(
    settings: dict[str, Any],
) -> None:
    class Strict(txn.Consumer):
        def __init_subclass__(cls, *, team: str) -> None:
            super().__init_subclass__()

    with pytest.raises(
        txn.ConfigError, match=r"Strict cannot have engine='native': .*team.* Derive it from"
    ):
        Strict(settings, engine="native")


def test_a_class_that_cannot_be_combined_names_the_other_engine(settings: dict[str, Any]) -> None:
    class Strict(txn.Consumer):
        engine: EngineName = "confluent-kafka"

        def __init_subclass__(cls, *, team: str) -> None:
            super().__init_subclass__()

    Strict(settings).close()


def test_a_class_of_native_consumers_has_no_other_engine(settings: dict[str, Any]) -> None:
    class Mine(NativeConsumer):
        pass

    with pytest.raises(txn.ConfigError, match=r"Mine cannot have engine='confluent-kafka'"):
        Mine(settings, engine="confluent-kafka")


def test_a_derived_producer_writes_with_its_own_methods(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    with Upper(bootstrap_servers=broker.bootstrap_servers, engine=engine) as producer:
        producer.produce(topic, b"plum")
    assert [record.value for record in broker.records(topic)] == [b"PLUM"]
