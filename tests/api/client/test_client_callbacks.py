"""A callback that raises takes nothing away from the outcome of a block."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

import txn
from txn.client.transaction import BlockResult
from txn.testing import TestBroker


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.create_topic("out", partitions=1)
        yield made


def raises_kafka(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def raises_its_own(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError("not delivered")


def exits(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise SystemExit(3)


def test_an_error_callback_that_raises_during_a_commit_does_not_hide_that_it_is_done(
    broker: TestBroker,
) -> None:
    """confluent-kafka raised it in place of the commit's answer, and the block said RETRY."""

    def raises(error: KafkaError) -> None:
        raise KafkaException(error)

    broker.produce("in", "a")
    consumer = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"])
    producer = txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="t",
        error_cb=raises,
        engine="confluent-kafka",
    )
    block = producer.transaction(consumer)
    lost = broker.lose_answer("TxnOffsetCommit")

    with pytest.raises(KafkaException) as caught, block as t:
        for message in consumer.consume(1, timeout=30):
            t.produce("out", message.value())
    consumer.close()
    producer.close()

    assert lost.happened
    assert caught.value.__notes__ == ["The transaction was committed before this was raised."]
    assert block.result is BlockResult.COMMITTED
    assert [record.value for record in broker.records("out")] == [b"a"]
    assert broker.committed("g") == {("in", 0): 1}


@pytest.mark.parametrize("callback", [raises_kafka, raises_its_own, exits])
def test_a_delivery_callback_that_raises_does_not_keep_a_block_from_aborting(
    broker: TestBroker,
    callback: Callable[[KafkaError | None, Message], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The abort reports the records it drops; the second exception made it give up."""
    monkeypatch.setattr("txn.client.block_end.ARRIVE_SECONDS_MAX", 0)
    producer = txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="t",
        on_delivery=callback,
        linger_ms=30_000,
        engine="confluent-kafka",
    )
    aborted = producer.transaction()

    with pytest.raises(ZeroDivisionError) as caught, aborted as t:
        for number in range(10):
            t.produce("out", b"%d" % number)
        raise ZeroDivisionError
    with producer.transaction() as t:
        t.produce("out", b"kept")
    producer.close()

    assert aborted.result is BlockResult.ABORTED
    assert "on_delivery raised" in caught.value.__notes__[0]
    assert [record.value for record in broker.records("out")] == [b"kept"]


def test_a_delivery_callback_that_raises_at_the_end_of_a_block_aborts_it(
    broker: TestBroker,
) -> None:
    failures = iter([RuntimeError("the program's own")])

    def raises_once(error: KafkaError | None, message: Message) -> None:
        for failure in failures:
            raise failure

    producer = txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="t",
        on_delivery=raises_once,
        engine="confluent-kafka",
    )
    block = producer.transaction()

    with pytest.raises(RuntimeError, match="the program's own"), block as t:
        t.produce("out", b"a")
    with producer.transaction() as t:
        t.produce("out", b"b")
    producer.close()

    assert block.result is BlockResult.ABORTED
    assert [record.value for record in broker.records("out")] == [b"b"]


def test_a_statistics_callback_that_raises_is_raised_by_the_next_call_that_waits(
    broker: TestBroker,
) -> None:
    """A KafkaException of the program's own was told as the producer's failure."""

    failures = iter([KafkaException(KafkaError(KafkaError.PRODUCER_FENCED))])

    def raises_once(_: str) -> None:
        for failure in failures:
            raise failure

    producer = txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        stats_cb=raises_once,
        statistics_interval_ms=1,
        engine="confluent-kafka",
    )
    producer.produce("out", b"a")

    with pytest.raises(KafkaException, match="PRODUCER_FENCED"):
        while True:
            producer.flush()
    producer.flush()
    producer.close()
