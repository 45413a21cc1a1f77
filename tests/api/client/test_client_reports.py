"""`txn.Consumer` raises the errors that confluent-kafka hands out as messages.

The value of such a message is the text of the error. The README's block committed "SUBSCRIBED
TOPIC NOT AVAILABLE: …" as a record.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

import txn
from txn.client.engine import EngineName
from txn.errors import AbortableError, Action, FencedError, RejectedError, RetriableError
from txn.testing import TestBroker

WAIT_S = 30

HURRIED: dict[str, Any] = {
    "session_timeout_ms": 500,
    "heartbeat_interval_ms": 50,
    "max_poll_interval_ms": 500,
}


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker(group_min_session_timeout_ms=100) as made:
        made.create_topic("in", partitions=1)
        made.create_topic("out", partitions=1)
        made.produce("in", *"012345")
        yield made


def open_consumer(
    broker: TestBroker,
    topics: list[str],
    *,
    engine: EngineName = "confluent-kafka",
    **more: object,
) -> txn.Consumer:
    settings: dict[str, object] = {"auto_offset_reset": "earliest", **more}
    consumer = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        engine=engine,
        **settings,  # type: ignore[arg-type]
    )
    consumer.subscribe(topics)
    return consumer


def copy(consumer: txn.Consumer, producer: txn.Producer, count: int) -> int:
    """The README's block."""
    with producer.transaction(consumer) as t:
        messages = consumer.consume(count, timeout=WAIT_S)
        for message in messages:
            t.produce("out", (message.value() or b"").upper())
    return len(messages)


def values(broker: TestBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("out")]


def test_a_topic_that_is_not_there_is_raised_and_no_record_of_the_output(
    broker: TestBroker, engine: EngineName, producer: txn.Producer
) -> None:
    consumer = open_consumer(broker, ["ordres"], engine=engine)

    with pytest.raises(RetriableError, match=r"ordres.*(Unknown topic|UNKNOWN_TOPIC)") as caught:
        copy(consumer, producer, 1)
    consumer.close()

    assert caught.value.name == "UNKNOWN_TOPIC_OR_PART"
    assert values(broker) == []


def test_a_missing_offset_is_raised_by_poll_with_its_remedy(
    broker: TestBroker, engine: EngineName, producer: txn.Producer
) -> None:
    consumer = open_consumer(broker, ["in"], engine=engine, auto_offset_reset="error")

    with pytest.raises(RejectedError, match=r"set auto\.offset\.reset") as caught:
        consumer.poll(WAIT_S)
    consumer.close()

    assert caught.value.action is Action.GIVE_UP


def test_an_error_among_records_is_raised_by_the_call_after_them(
    broker: TestBroker, engine: EngineName, producer: txn.Producer
) -> None:
    consumer = open_consumer(broker, ["in", "ordres"], engine=engine)

    copied = copy(consumer, producer, 7)  # librdkafka hands out six records and the error
    with pytest.raises(RetriableError, match="ordres"):
        copy(consumer, producer, 1)
    broker.produce("in", "6")
    copy(consumer, producer, 1)
    consumer.close()

    assert copied == 6
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_member_whose_place_another_instance_took_gives_up(broker: TestBroker) -> None:
    """It was told to open another, which took the place in turn."""
    members = [open_consumer(broker, ["in"], group_instance_id="one")]
    while not members[0].assignment():
        assert members[0].poll(0.1) is None or members[0].assignment()
    members.append(open_consumer(broker, ["in"], group_instance_id="one"))

    with pytest.raises(FencedError, match=r"close this one\.\n") as caught:
        poll_in_turn(members)
    with pytest.raises(FencedError, match=r"close this one\.\n"):  # it returned None from then on
        members[0].poll(0)
    with pytest.raises(FencedError, match=r"close this one\.\n"):
        members[0].consume(1, 0)
    for member in members:
        member.close()

    assert caught.value.action is Action.GIVE_UP


def poll_in_turn(members: list[txn.Consumer]) -> None:
    ends_s = time.monotonic() + 2 * WAIT_S
    while time.monotonic() < ends_s:
        for member in members:
            member.poll(0.1)


def test_the_end_of_a_partition_is_a_message(broker: TestBroker) -> None:
    consumer = open_consumer(broker, ["in"], enable_partition_eof=True)

    errors = [message.error() for message in consumer.consume(7, WAIT_S)]
    consumer.close()

    assert errors[:6] == [None] * 6
    assert errors[6] is not None
    assert errors[6].code() == KafkaError._PARTITION_EOF


def stand_still(broker: TestBroker) -> None:
    """Poll nothing until the consumer has left its group for that."""
    while broker.members("g"):
        pass


def test_a_pause_between_blocks_that_cost_the_partitions_disturbs_nothing(
    broker: TestBroker, producer: txn.Producer
) -> None:
    consumer = open_consumer(broker, ["in"], **HURRIED)

    copy(consumer, producer, 6)
    stand_still(broker)
    broker.produce("in", "6")
    copied = copy(consumer, producer, 1)
    consumer.close()

    assert copied == 1
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_pause_in_a_block_that_cost_the_partitions_aborts_it(
    broker: TestBroker, producer: txn.Producer
) -> None:
    consumer = open_consumer(broker, ["in"], **HURRIED)

    with pytest.raises(AbortableError, match="it lost in-0"), producer.transaction(consumer) as t:
        for message in consumer.consume(6, WAIT_S):
            t.produce("out", message.value())
        stand_still(broker)
        consumer.poll(0)
    copied = copy(consumer, producer, 6)
    consumer.close()

    assert copied == 6
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_second_instance_of_a_static_member_is_refused_while_the_first_goes_on(
    broker: TestBroker,
) -> None:
    """In groups of KIP-848 the first instance keeps its place."""
    settings: dict[str, Any] = {"group_instance_id": "one", "group_protocol": "consumer"}
    settings["engine"] = "native"
    first = open_consumer(broker, ["in"], **settings)
    assert first.consume(6, WAIT_S)
    second = open_consumer(broker, ["in"], **settings)

    with pytest.raises(RejectedError, match="UNRELEASED_INSTANCE_ID"):
        second.poll(WAIT_S)
    broker.produce("in", "6")
    [message] = first.consume(1, WAIT_S)
    for member in (first, second):
        member.close()

    assert message.value() == b"6"


def test_settings_that_the_native_engine_does_not_have_are_refused_by_name(
    broker: TestBroker,
) -> None:
    for name in ("statistics_interval_ms", "socket_keepalive_enable"):
        settings: dict[str, Any] = {name: 1, "engine": "native"}
        with pytest.raises(txn.ConfigError, match=name.replace("_", r"\.")):
            open_consumer(broker, ["in"], **settings)
