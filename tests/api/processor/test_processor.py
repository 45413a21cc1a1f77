"""`txn.Processor` handles records, isolates those that fail, and delays their retries."""

import asyncio
import threading

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

import txn
from support.processors import WAIT_S, MakeProcessor, running, until, values
from txn.processor import Record
from txn.processor.letters import letter_of
from txn.testing import TestBroker

Topics = dict[str, str]


def refuse_seven(record: Record) -> bytes | None:
    if record.value == b"7":
        raise ValueError("seven is not sold")
    return record.value


def test_outputs_and_offsets_are_committed_together(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    shared.produce(topics["in"], ("key", "a"), ("other", "b"))
    processor = make(lambda record: record.value.upper())
    processor.run_until_caught_up(WAIT_S)
    found = {(record.key, record.value) for record in shared.records(topics["out"])}
    assert found == {(b"key", b"A"), (b"other", b"B")}
    assert len(shared.records(topics["out"])) == 2
    assert shared.unconsumed(f"group-{topics['in']}", [topics["in"]]) == []
    metrics = processor.metrics()
    assert (metrics.handled, metrics.failed, metrics.lag) == (2, 0, 0)


def test_a_handler_returns_nothing_one_value_an_output_or_several(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    other = shared.create_topic()
    answers = {
        b"none": None,
        b"text": "as text",
        b"other": txn.Output(other, b"elsewhere", "k", [("h", b"1")]),
        b"list": [b"first", txn.Output(other, None)],
    }
    shared.produce(topics["in"], *answers, partition=0)
    make(lambda record: answers[record.value]).run_until_caught_up(WAIT_S)
    assert values(shared, topics["out"]) == [b"as text", b"first"]
    elsewhere, tombstone = shared.records(other)
    assert (elsewhere.value, elsewhere.key, elsewhere.headers) == (
        b"elsewhere",
        b"k",
        (("h", b"1"),),
    )
    assert tombstone.value is None


def test_a_failed_record_becomes_a_dead_letter_with_its_origin_and_error(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    shared.produce(topics["in"], "6", ("seven", "7"), "8", partition=1)
    make(refuse_seven, attempts=2).run_until_caught_up(WAIT_S)
    assert values(shared, topics["out"]) == [b"6", b"8"]
    (dead,) = shared.records(f"{topics['in']}-dead")
    assert (dead.key, dead.value) == (b"seven", b"7")
    letter = letter_of(dead.headers)
    assert (letter.topic, letter.partition, letter.offset) == (topics["in"], 1, 1)
    assert (letter.error_class, letter.error_message) == ("ValueError", "seven is not sold")
    assert letter.error_where is not None
    assert letter.error_where.startswith("test_processor.py:")
    assert letter.error_where.endswith("in refuse_seven")
    assert (letter.attempts, letter.group) == (2, f"group-{topics['in']}")
    assert letter.timestamp_ms is not None


def test_a_failed_record_of_a_batch_handler_is_found_by_bisection(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    sizes = []

    def handle(records: list[Record]) -> list[bytes]:
        sizes.append(len(records))
        return [refuse_seven(record) or b"" for record in records]

    shared.produce(topics["in"], *"0123456789abcdef", partition=0)
    processor = make(handle_batch=handle, attempts=1)
    processor.run_until_caught_up(WAIT_S)
    assert values(shared, topics["out"]) == [c.encode() for c in "012345689abcdef"]
    assert values(shared, f"{topics['in']}-dead") == [b"7"]
    assert sizes[0] == 16
    assert sizes[1] == 8
    assert 1 in sizes
    assert processor.metrics().transactions >= 4


def test_an_output_that_the_broker_rejects_is_isolated_too(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    small = shared.create_topic(max_message_bytes=2_000)

    def enlarge(record: Record) -> bytes:
        return b"x" * 5_000 if record.value == b"7" else record.value or b""

    shared.produce(topics["in"], *"56789", partition=0)
    make(enlarge, output=small).run_until_caught_up(WAIT_S)
    assert values(shared, small) == [b"5", b"6", b"8", b"9"]
    (dead,) = shared.records(f"{topics['in']}-dead")
    assert dead.value == b"7"
    assert letter_of(dead.headers).error_class == "txn.errors.RejectedError"


def test_without_a_topic_of_dead_letters_the_error_names_the_record(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    shared.produce(topics["in"], "6", "7", partition=1)
    with pytest.raises(
        txn.RejectedError, match=rf"{topics['in']}-1 offset 1: ValueError"
    ) as raised:
        make(refuse_seven, dead_letter=None).run_until_caught_up(WAIT_S)
    assert isinstance(raised.value.__cause__, ValueError)
    assert (raised.value.topic, raised.value.partition) == (topics["in"], 1)
    assert values(shared, topics["out"]) == []


def test_only_exceptions_that_are_retried_are_tried_again(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    calls: list[bytes | None] = []

    def handle(record: Record) -> None:
        calls.append(record.value)
        raise KeyError if record.value == b"key" else OSError

    shared.produce(topics["in"], "key", "os", partition=0)
    make(handle, attempts=3, retried=OSError).run_until_caught_up(WAIT_S)
    assert calls == [b"key", b"os", b"os", b"os"]


def test_an_outage_makes_no_dead_letter(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    failures = iter([ConnectionError] * 6)

    def handle(record: Record) -> bytes | None:
        if (error := next(failures, None)) is not None:
            raise error
        return record.value

    shared.produce(topics["in"], "1", partition=0)
    make(handle, attempts=2, outage=ConnectionError).run_until_caught_up(WAIT_S)
    assert values(shared, topics["out"]) == [b"1"]
    assert shared.records(f"{topics['in']}-dead") == []


def test_a_coroutine_function_handles_several_records_at_a_time(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    running_now: set[bytes | None] = set()
    most = []

    async def handle(record: Record) -> bytes | None:
        running_now.add(record.value)
        most.append(len(running_now))
        await asyncio.sleep(0.01)
        running_now.discard(record.value)
        return refuse_seven(record)

    shared.produce(topics["in"], *"0123456789", partition=0)
    make(handle, concurrency=4, attempts=1).run_until_caught_up(WAIT_S)
    assert values(shared, topics["out"]) == [c.encode() for c in "012345689"]
    assert values(shared, f"{topics['in']}-dead") == [b"7"]
    assert max(most) == 4


def test_a_delayed_retry_waits_for_its_due_time(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    now = [1_000_000.0]
    seen: list[tuple[str, int, int]] = []

    def handle(record: Record) -> bytes | None:
        if record.value == b"7":
            seen.append((record.topic, record.offset, record.attempts))
            if len(seen) < 3:
                raise ValueError("not yet")
        return record.value

    shared.produce(topics["in"], "6", "7", partition=1)
    processor = make(handle, attempts=1, retry=[30, 300], clock=lambda: now[0])
    retry = f"group-{topics['in']}-retry-30s"
    with running(processor) as errors:
        until(lambda: processor.metrics().retried == 1)
        shared.produce(topics["in"], "8", partition=1)  # it does not wait behind the retry
        shared.wait_for_records(topics["out"], 2, timeout=WAIT_S)
        assert len(seen) == 1
        now[0] += 31
        until(lambda: processor.metrics().retried == 2)
        now[0] += 31
        assert len(seen) == 2  # the second delay is 5 minutes
        now[0] += 300
        shared.wait_for_records(topics["out"], 3, timeout=WAIT_S)
    assert errors == []
    assert seen == [(topics["in"], 1, attempts) for attempts in (0, 1, 2)]
    assert len(shared.records(retry)) == 1
    assert shared.records(f"{topics['in']}-dead") == []


def partitions_held(broker: TestBroker, group: str) -> list[int]:
    """The number of partitions of each member of a stable group.

    A member that has just joined is counted before it has any. A worker that still holds both
    partitions then reads all records, and waits in vain for the other one.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    if described.state is not ConsumerGroupState.STABLE:
        return []
    return [len(member.assignment.topic_partitions) for member in described.members]


def test_workers_share_the_partitions_and_have_ids_of_their_own(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    threads = set()
    both = threading.Barrier(2)

    def handle(record: Record) -> bytes | None:
        if threading.current_thread().name not in threads:
            threads.add(threading.current_thread().name)
            both.wait(WAIT_S)
        return record.value

    processor = make(handle, parallel=2)
    with running(processor) as errors:
        until(lambda: partitions_held(shared, f"group-{topics['in']}") == [1, 1])
        for index in range(2):
            shared.produce(topics["in"], "a", "b", partition=index)
        shared.wait_for_records(topics["out"], 4, timeout=WAIT_S)
    assert errors == []
    assert len(threads) == 2
    ids = {f"id-{topics['in']}-0", f"id-{topics['in']}-1"}
    assert ids <= shared.transactions().keys()


def test_a_fenced_worker_ends_the_processor(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    processor = make(lambda record: record.value)
    with running(processor) as errors:
        shared.produce(topics["in"], "1", partition=0)
        shared.wait_for_records(topics["out"], 1, timeout=WAIT_S)
        shared.fence(f"id-{topics['in']}-0")
        shared.produce(topics["in"], "2", partition=0)
        until(lambda: bool(errors))
    assert [type(error) for error in errors] == [txn.FencedError]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size=0 does not fit"),
        ({"group_id": ""}, "group_id is empty"),
        ({"retry": [30, 30]}, "a delay twice"),
        ({"retry": [0]}, "retry=0 does not fit"),
        ({"consumer_config": {"enable.auto.commit": True}}, "enable.auto.commit"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_sent(
    make: MakeProcessor, options: dict[str, object], words: str
) -> None:
    with pytest.raises(txn.ConfigError, match=words):
        make(refuse_seven, **options)


def test_a_result_that_cannot_be_produced_ends_the_processor(
    shared: TestBroker, topics: Topics, make: MakeProcessor
) -> None:
    shared.produce(topics["in"], "1", partition=0)
    with pytest.raises(txn.RejectedError, match="the handler returned dict"):
        make(lambda record: {"a": 1}).run_until_caught_up(WAIT_S)
