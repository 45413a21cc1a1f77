"""Classic groups of `txn.Consumer(engine="native")`, also with members on librdkafka."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import txn
from txn.testing import TestBroker

ALL = {0, 1, 2, 3}

Open = Callable[..., txn.Consumer]


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=4)


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[Open]:
    group = f"g-{uuid.uuid4().hex[:8]}"
    made: list[confluent_kafka.Consumer] = []

    def open_one(engine: str = "native", **settings: object) -> txn.Consumer:
        consumer = txn.Consumer(
            {
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            engine=engine,  # type: ignore[arg-type]  # one of the two names
        )
        made.append(consumer)
        return consumer

    yield open_one
    for consumer in made:
        consumer.close()


def places(consumer: confluent_kafka.Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def poll_until(is_so: Callable[[], bool], *consumers: txn.Consumer) -> None:
    for _ in range(600):
        if is_so():
            return
        for consumer in consumers:
            consumer.consume(10, 0.05)
    raise AssertionError([places(consumer) for consumer in consumers])


def are_shared(*consumers: txn.Consumer) -> bool:
    own = [places(consumer) for consumer in consumers]
    return all(own) and sum(map(len, own)) == 4 and set().union(*own) == ALL


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("leader", ["native", "confluent-kafka"])
def test_members_of_both_engines_share_the_partitions_of_a_group(
    topic: str, opened: Open, strategy: str, leader: str
) -> None:
    other = {"native": "confluent-kafka", "confluent-kafka": "native"}[leader]
    first = opened(leader, partition_assignment_strategy=strategy)
    first.subscribe([topic])
    poll_until(lambda: places(first) == ALL, first)
    second = opened(other, partition_assignment_strategy=strategy)
    second.subscribe([topic])
    poll_until(lambda: are_shared(first, second), first, second)
    first.close()
    poll_until(lambda: places(second) == ALL, second)


def told_by(consumer: txn.Consumer, topic: str) -> list[tuple[str, int]]:
    told: list[tuple[str, int]] = []

    def note(what: str) -> Callable[[object, list[TopicPartition]], None]:
        return lambda _, partitions: told.append((what, len(partitions)))

    consumer.subscribe(
        [topic], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost")
    )
    return told


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        ("range", [("assign", 4), ("revoke", 4), ("assign", 2)]),
        ("cooperative-sticky", [("assign", 4), ("revoke", 2)]),
    ],
)
def test_a_cooperative_member_gives_back_only_what_another_one_gets(
    topic: str, opened: Open, strategy: str, changes: list[tuple[str, int]]
) -> None:
    first, second = (opened(partition_assignment_strategy=strategy) for _ in range(2))
    told = told_by(first, topic)
    poll_until(lambda: places(first) == ALL, first)
    second.subscribe([topic])
    poll_until(lambda: are_shared(first, second), first, second)
    assert told == changes


def test_a_static_member_that_comes_back_has_its_partitions_without_a_rebalance(
    topic: str, opened: Open
) -> None:
    first, other = opened(group_instance_id="a"), opened(group_instance_id="b")
    first.subscribe([topic])
    told = told_by(other, topic)
    poll_until(lambda: are_shared(first, other), first, other)
    before, told_before = places(first), list(told)
    first.close()
    again = opened(group_instance_id="a")
    again.subscribe([topic])
    poll_until(lambda: places(again) != set(), again, other)
    assert (places(again), told) == (before, told_before)


def test_a_second_instance_of_a_static_member_fences_the_first(topic: str, opened: Open) -> None:
    first = opened(group_instance_id="a")
    first.subscribe([topic])
    poll_until(lambda: places(first) == ALL, first)
    second = opened(group_instance_id="a")
    second.subscribe([topic])
    poll_until(lambda: places(second) == ALL, second)
    with pytest.raises(txn.TxnError, match="82"):
        poll_until(lambda: False, first)


def test_a_member_that_does_not_poll_loses_its_partitions_and_joins_again(
    topic: str, opened: Open
) -> None:
    slow, other = opened(max_poll_interval_ms=6_000), opened()
    told = told_by(slow, topic)
    poll_until(lambda: places(slow) == ALL, slow)
    slow.poll(0.01)
    other.subscribe([topic])
    poll_until(lambda: places(other) == ALL, other)
    poll_until(lambda: are_shared(slow, other), slow, other)
    assert ("lost", 4) in told


def test_offsets_in_a_transaction_carry_the_generation_of_the_member(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, "v", partition=0)
    consumer = opened()
    consumer.subscribe([topic])
    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine="native"
        ) as producer,
        producer.transaction(consumer) as t,
    ):
        (message,) = consumer.consume(1, 30)
        t.produce(topic, message.value(), partition=1)
    assert consumer.memberid() != ""
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    assert committed.offset == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_assignment_strategy": "sticky"},
        {"group_remote_assignor": "uniform"},
    ],
)
def test_settings_that_do_not_fit_to_the_protocol_are_refused(
    opened: Open, settings: dict[str, object]
) -> None:
    name = [*settings][-1].replace("_", ".")
    with pytest.raises(txn.ConfigError, match=name):
        opened(**settings)


def test_sessions_of_members_are_not_for_groups_of_the_consumer_protocol(opened: Open) -> None:
    with pytest.raises(txn.ConfigError, match=r"which groups of group\.protocol=consumer"):
        opened(group_protocol="consumer")


def test_a_pattern_finds_topics_by_the_beginning_of_their_name_and_later_ones_too(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    other = broker.create_topic(f"not-{topic}", partitions=1)
    consumer = opened(metadata_max_age_ms=100)
    consumer.subscribe([f"^{topic[:-1]}", other])

    def is_assigned(*topics: str) -> bool:
        return {each.topic for each in consumer.assignment()} == {other, *topics}

    poll_until(lambda: is_assigned(topic), consumer)
    later = broker.create_topic(f"{topic}-later", partitions=1)
    poll_until(lambda: is_assigned(topic, later), consumer)
    consumer.subscribe([f"^{topic}$"])
    poll_until(lambda: {each.topic for each in consumer.assignment()} == {topic}, consumer)


def test_a_pattern_that_matches_everything_finds_no_topic_of_kafkas_own(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    consumer = opened()
    consumer.subscribe(["^.*"])
    poll_until(lambda: bool(places(consumer)), consumer)
    assert not [each for each in consumer.assignment() if each.topic.startswith("__")]
    assert topic in {each.topic for each in consumer.assignment()}


@pytest.mark.parametrize("pattern", ["^(", "^[a", "^**"])
def test_a_pattern_that_is_none_is_refused_by_name(opened: Open, pattern: str) -> None:
    with pytest.raises(txn.RejectedError, match="cannot be read") as told:
        opened().subscribe(["a", pattern])
    assert repr(pattern) in str(told.value)


def test_a_rebalance_waits_until_the_records_of_a_consume_are_handed_out(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    """It gave records twice in one call: behind the rebalance its partitions begin anew."""
    for partition in ALL:
        broker.produce(
            topic, *[b"%d-%d" % (partition, number) for number in range(5)], partition=partition
        )
    first = opened(partition_assignment_strategy="range")
    first.subscribe([topic])
    assert len(first.consume(1, 30)) == 1
    second = opened(partition_assignment_strategy="range")
    second.subscribe([topic])
    over = threading.Event()

    def join() -> None:
        while not over.is_set():
            second.consume(1, 0.1)

    joining = threading.Thread(target=join)
    joining.start()
    try:
        began_s = time.monotonic()
        values = [message.value() for message in first.consume(1_000, 20)]
        assert len(values) == len(set(values)) == 19
        assert time.monotonic() - began_s < 15
    finally:
        over.set()
        joining.join()
