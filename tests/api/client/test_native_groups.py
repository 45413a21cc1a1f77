"""Groups of KIP-848 of `txn.Consumer(engine="native")`: rebalances, transactions, lost members."""

import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import txn
from txn.client.engine import EngineName
from txn.testing import TestBroker

WAIT_S = 30.0

Open = Callable[..., txn.Consumer]


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=4)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def opened(broker: TestBroker, group: str) -> Iterator[Open]:
    made: list[txn.Consumer] = []

    def open_one(**settings: object) -> txn.Consumer:
        consumer = txn.Consumer(
            {
                "group.protocol": "consumer",
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            engine="native",
        )
        made.append(consumer)
        return consumer

    yield open_one
    for consumer in made:
        consumer.close()


def places(consumer: txn.Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def poll_until(is_so: Callable[[], bool], *consumers: txn.Consumer) -> list[bytes]:
    """Poll the consumers in turn; return the values that they handed out."""
    values: list[bytes] = []
    for _ in range(600):
        if is_so():
            return values
        for consumer in consumers:
            for message in consumer.consume(10, 0.05):
                values.append(message.value() or b"")
    raise AssertionError([places(consumer) for consumer in consumers])


def test_two_members_share_the_partitions_and_one_that_leaves_gives_its_own(
    topic: str, opened: Open
) -> None:
    told: list[tuple[str, set[int]]] = []

    def note(what: str) -> Callable[[object, list[TopicPartition]], None]:
        return lambda _, partitions: told.append((what, {p.partition for p in partitions}))

    first, second = opened(), opened()
    first.subscribe([topic], on_assign=note("assign"), on_revoke=note("revoke"))
    poll_until(lambda: places(first) == {0, 1, 2, 3}, first)
    second.subscribe([topic])
    poll_until(lambda: len(places(first)) == 2 == len(places(second)), first, second)
    assert places(first) | places(second) == {0, 1, 2, 3}
    second.close()
    poll_until(lambda: places(first) == {0, 1, 2, 3}, first)
    assert [what for what, _ in told] == ["assign", "revoke", "assign"]
    assert told[1][1] == told[2][1]


def test_partitions_are_given_back_before_another_has_them(topic: str, opened: Open) -> None:
    owners: dict[int, confluent_kafka.Consumer] = {}

    def taken(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            assert owners.setdefault(each.partition, consumer) is consumer

    def given(_: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del owners[each.partition]

    members = [opened() for _ in range(3)]
    for member in members:
        member.subscribe([topic], on_assign=taken, on_revoke=given)
    poll_until(lambda: len(owners) == 4 and all(map(places, members)), *members)
    assert {p: owner for owner in members for p in places(owner)} == owners


def test_a_pattern_finds_topics_by_their_whole_name(
    broker: TestBroker, opened: Open, topic: str
) -> None:
    broker.create_topic(f"{topic}-not", partitions=1)
    consumer = opened()
    consumer.subscribe([f"^{topic[:-1]}."])
    poll_until(lambda: len(consumer.assignment()) == 4, consumer)
    assert {each.topic for each in consumer.assignment()} == {topic}


@pytest.mark.parametrize("of_producer", ["native", "confluent-kafka"])
def test_records_are_copied_exactly_once_over_aborts_and_a_rebalance(
    broker: TestBroker, topic: str, opened: Open, of_producer: EngineName
) -> None:
    out = broker.create_topic(f"{topic}-out", partitions=1)
    sent = [b"%d" % number for number in range(40)]
    for number, value in enumerate(sent):
        broker.produce(topic, value, partition=number % 4)
    servers = broker.bootstrap_servers
    copied = 0
    members: list[tuple[txn.Consumer, txn.Producer]] = []
    for number in range(2):
        name = f"{topic}-{of_producer}-{number}"
        producer = txn.Producer(
            bootstrap_servers=servers, transactional_id=name, engine=of_producer
        )
        members.append((opened(), producer))
    members[0][0].subscribe([topic])
    turns = 0
    while copied < len(sent):
        turns += 1
        assert turns < 300, copied
        if turns == 4:
            members[1][0].subscribe([topic])
        for consumer, producer in members[: 1 if turns < 4 else 2]:
            try:
                with producer.transaction(consumer) as t:
                    messages = consumer.consume(5, 0.2)
                    for message in messages:
                        t.produce(out, message.value())
                    if turns % 3 == 0:
                        raise ZeroDivisionError
                copied += len(messages)
            except (ZeroDivisionError, txn.AbortableError):
                pass
    for _, producer in members:
        producer.close()
    assert sorted(record.value or b"" for record in broker.records(out)) == sorted(sent)


def test_a_member_that_does_not_poll_loses_its_partitions_and_joins_again(
    topic: str, opened: Open
) -> None:
    lost: list[object] = []
    slow, other = opened(max_poll_interval_ms=500), opened()
    slow.subscribe([topic], on_lost=lambda _, partitions: lost.extend(partitions))
    poll_until(lambda: len(places(slow)) == 4, slow)
    other.subscribe([topic])
    poll_until(lambda: len(places(other)) == 4, other)
    poll_until(lambda: len(places(slow)) == 2, slow, other)
    assert len(lost) == 4


def test_a_static_member_that_comes_back_has_its_partitions_again(topic: str, opened: Open) -> None:
    first = opened(group_instance_id="a")
    other = opened(group_instance_id="b")
    first.subscribe([topic])
    other.subscribe([topic])
    poll_until(lambda: len(places(first)) == 2 == len(places(other)), first, other)
    before = places(first)
    first.close()
    again = opened(group_instance_id="a")
    again.subscribe([topic])
    poll_until(lambda: places(again) != set(), again)
    assert places(again) == before


def test_a_subscription_to_no_topic_is_an_error(opened: Open) -> None:
    consumer = opened()
    consumer.subscribe(["there-is-none"])
    with pytest.raises(txn.RetriableError, match="there-is-none"):
        consumer.poll(WAIT_S)


def test_a_lost_answer_of_a_heartbeat_changes_no_assignment(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, "v", partition=0)
    broker.lose_answer("ConsumerGroupHeartbeat")
    consumer = opened()
    consumer.subscribe([topic])
    assert b"v" in poll_until(lambda: len(places(consumer)) == 4, consumer) + [
        message.value() for message in consumer.consume(1, 0.5)
    ]
