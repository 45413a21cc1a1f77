"""`write_arrow` of a native producer: columns become records, and no row is lost or doubled."""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import txn
from txn.client import arrow
from txn.testing import TestBroker

Open = Callable[..., txn.Producer]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=3)


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[Open]:
    made: list[txn.Producer] = []

    def open_one(*, engine: Any = "native", **settings: object) -> txn.Producer:
        more: dict[str, object] = {"transactional_id": uuid.uuid4().hex, **settings}
        producer = txn.Producer(
            {name.replace("_", "."): value for name, value in more.items() if value is not None},
            bootstrap_servers=broker.bootstrap_servers,
            engine=engine,
        )
        made.append(producer)
        return producer

    yield open_one
    for producer in made:
        producer.close()


def values_of(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [message.value for message in broker.records(topic)]


def test_a_row_has_its_key_value_headers_partition_and_time(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    at = datetime(2026, 11, 28, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", None, None]),
            "value": pa.array(["text", None, "z"]),
            "headers": pa.array([[("h", b"1"), ("g", None)], None, []], HEADERS),
            "partition": pa.array([2, 1, 1]),
            "timestamp": pa.array([at, at, None], pa.timestamp("us", "UTC")),
        }
    )
    with opened().transaction() as t:
        assert t.write_arrow(topic, batch) == 3
    first, second, third = sorted(broker.records(topic), key=lambda m: (-m.partition, m.offset))
    assert (first.partition, first.key, first.value) == (2, b"k", b"text")
    assert first.headers == (("h", b"1"), ("g", None))
    assert first.timestamp_ms == int(at.timestamp() * 1000)
    assert (second.partition, second.key, second.value) == (1, None, None)
    assert not second.headers
    assert third.timestamp_ms > int(at.timestamp() * 1000) - 1_000_000_000


def test_keys_go_where_produce_sends_them(broker: TestBroker, topic: str, opened: Open) -> None:
    keys = [f"key-{number}".encode() for number in range(200)]
    with opened().transaction() as t:
        t.write_arrow(topic, pa.table({"key": keys, "value": keys}))
        for key in keys:
            t.produce(topic, key, key=key)
    places: dict[bytes, set[int]] = {}
    for message in broker.records(topic):
        places.setdefault(message.key or b"", set()).add(message.partition)
    assert len(places) == len(keys)
    assert {len(found) for found in places.values()} == {1}
    assert {place for found in places.values() for place in found} == {0, 1, 2}


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"value": pa.array([b"a", b"b", b"c", b"d"]).slice(1)}),
        pa.table({"value": pa.array(["b", "c", "d"], pa.large_string())}),
        pa.table({"value": pa.array(["b", "c", "d"]).dictionary_encode()}),
        pa.table({"value": pa.chunked_array([["b"], [], ["c", "d"]])}),
        pa.table({"value": ["b", "c", "d"]}).to_pandas(),
    ],
    ids=["slice", "large", "dictionary", "chunks", "pandas"],
)
def test_every_layout_of_a_column_gives_the_same_records(
    table: Any, broker: TestBroker, topic: str, opened: Open
) -> None:
    with opened().transaction() as t:
        assert t.write_arrow(topic, table) == 3
    assert sorted(filter(None, values_of(broker, topic))) == [b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": [b"x"], "offset": [1]}, "offset"),
        ({"key": [b"x"]}, "no column value, only key"),
        ({"value": [1.5]}, "the column value is double"),
        ({"value": [b"x"], "partition": [-1]}, "partition -1"),
        ({"value": [b"x"], "partition": [1 << 40]}, "the column partition is int64"),
        ({"value": [b"x"], "timestamp": [0]}, "timestamp 0"),
        ({"value": [b"x"], "headers": pa.array([[(None, b"v")]], HEADERS)}, "have no key"),
    ],
)
def test_a_batch_that_cannot_be_written_is_refused_before_a_row_of_it_is(
    columns: dict[str, Any], says: str, broker: TestBroker, topic: str, opened: Open
) -> None:
    with opened().transaction() as t:
        with pytest.raises(txn.RejectedError, match=says):
            t.write_arrow(topic, pa.table(columns))
        t.produce(topic, b"after")
    assert values_of(broker, topic) == [b"after"]


def test_a_fault_in_the_last_slice_of_a_table_leaves_nothing_written(
    broker: TestBroker, topic: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "SLICE_ROWS", 2)
    table = pa.table({"value": [b"a", b"b", b"c", b"d", b"e"], "partition": [0, 0, 0, 0, -1]})
    with opened().transaction() as t:
        with pytest.raises(txn.RejectedError, match="partition -1"):
            t.write_arrow(topic, table)
        assert t.write_arrow(topic, table.slice(0, 4)) == 4
    assert values_of(broker, topic) == [b"a", b"b", b"c", b"d"]


def test_the_buffers_of_a_table_are_copied_slice_by_slice() -> None:
    batch = pa.record_batch({"value": pa.nulls(2 * arrow.SLICE_ROWS + 1, pa.binary())})
    for table in (batch, pa.Table.from_batches([batch])):
        rows = arrow.rows_of(table)
        first = next(rows)
        assert [first.count, *(each.count for each in rows)] == [131_072, 131_072, 1]
    assert list(arrow.rows_of(batch.slice(0, 0))) == []


def test_a_list_of_rows_is_refused_by_its_type(topic: str, opened: Open) -> None:
    rows: Any = [b"row"]
    with opened().transaction() as t, pytest.raises(TypeError, match="not list"):
        t.write_arrow(topic, rows)


def test_a_row_that_is_too_large_aborts_the_block(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    producer = opened(message_max_bytes=1000)
    table = pa.table({"value": [b"small", b"x" * 2000, b"small"]})
    with (
        pytest.raises(txn.RejectedError, match=r"message\.max\.bytes=1000"),
        producer.transaction() as t,
    ):
        try:
            t.write_arrow(topic, table)
        except txn.RejectedError:
            t.produce(topic, b"after")
    assert values_of(broker, topic) == []
    with producer.transaction() as t:
        t.produce(topic, b"next")
    assert values_of(broker, topic) == [b"next"]


def test_more_rows_than_the_buffer_holds_all_arrive_in_their_order(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    values = [b"%07d" % number * 20 for number in range(20_000)]
    table = pa.table({"value": values, "partition": pa.array([0] * len(values))})
    producer = opened(buffer_memory=200_000, batch_size=20_000, message_max_bytes=20_000)
    with producer.transaction() as t:
        assert t.write_arrow(topic, table) == len(values)
    assert values_of(broker, topic) == values


def test_rows_of_an_aborted_block_are_not_there(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    producer = opened()
    with pytest.raises(KeyError), producer.transaction() as t:
        t.write_arrow(topic, pa.table({"value": [b"x"] * 5000}))
        raise KeyError
    assert values_of(broker, topic) == []


def test_a_fenced_producer_says_so(broker: TestBroker, topic: str, opened: Open) -> None:
    old = opened(transactional_id=f"one-{topic}")
    with pytest.raises(txn.FencedError), old.transaction() as t:
        t.write_arrow(topic, pa.table({"value": [b"x"]}))
        opened(transactional_id=f"one-{topic}")
        t.write_arrow(topic, pa.table({"value": [b"y"]}))
    assert values_of(broker, topic) == []


def test_a_producer_without_transactions_writes_rows(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    producer = opened(transactional_id=None)
    assert producer.write_arrow(topic, pa.table({"value": [b"x", b"y"]})) == 2
    producer.flush()
    assert sorted(filter(None, values_of(broker, topic))) == [b"x", b"y"]


def test_a_transactional_producer_writes_rows_in_blocks_alone(topic: str, opened: Open) -> None:
    with pytest.raises(txn.RejectedError, match="outside a transaction"):
        opened().write_arrow(topic, pa.table({"value": [b"x"]}))


def test_the_other_engine_refuses_columns(topic: str, opened: Open) -> None:
    producer = opened(engine="confluent-kafka")
    with producer.transaction() as t, pytest.raises(txn.ConfigError, match="engine='native'"):
        t.write_arrow(topic, pa.table({"value": [b"x"]}))


def test_columns_are_read_changed_and_written_exactly_once(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, *(str(number) for number in range(300)))
    output = broker.create_topic(f"out-{topic}")
    producer = opened()
    with txn.Consumer(
        {"auto.offset.reset": "earliest"},
        bootstrap_servers=broker.bootstrap_servers,
        group_id=topic,
        engine="native",
    ) as consumer:
        consumer.subscribe([topic])
        rows = 0
        while rows < 300:
            with producer.transaction(consumer) as t:
                batch = consumer.poll_arrow(100, 10)
                if batch is not None:
                    rows += t.write_arrow(output, batch.select(["key", "value", "headers"]))
    found = sorted(int(value or b"") for value in values_of(broker, output))
    assert found == list(range(300))
    assert sum(offset for offset in broker.committed(topic).values() if offset > 0) == 300
