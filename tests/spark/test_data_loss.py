"""Records that a query has still to read and that are not there any more; on both brokers.

A stream is played without Spark. The reader gets the calls of a micro-batch execution, in its
order, and the offset log is a list. `test_source.py` has the tests that need a session.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from spark.jobs import put
from support import clients
from txn._core import KafkaClient
from txn.errors import ConfigError
from txn.spark import kafka
from txn.spark import reader as reader_module
from txn.spark.batch_reader import BatchReader
from txn.spark.errors import DataLossError
from txn.spark.mark import Mark
from txn.spark.options import source_settings
from txn.spark.selection import SelectedPartitions
from txn.spark.stream_reader import StreamReader

VALUE = StructType([StructField("value", BinaryType())])

Offset = dict[str, dict[str, Any]]


@pytest.fixture(params=["txn", pytest.param("kafka", marks=pytest.mark.peer)])
def cluster(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("servers" if request.param == "txn" else "kafka_peer")
    return found


@pytest.fixture
def name() -> str:
    return f"lost-{time.time_ns()}"


class RestartedQuery:
    """A streaming query and its checkpoint; a restart is another reader on the same log."""

    def __init__(self, servers: str, topic: str, **options: str) -> None:
        self.servers = servers
        self.options = {"subscribe": topic, "startingOffsets": "earliest", "columns": "value"}
        self.options |= options
        self.log: list[Offset] = []

    def reader(self, **options: str) -> StreamReader:
        settings = source_settings(
            {"kafka.bootstrap.servers": self.servers, **self.options, **options}
        )
        kafka.forget_client(settings.connection)  # a restart is another process
        return StreamReader(settings, VALUE)

    def run(
        self, options: dict[str, str] | None = None, *, available_now: bool = True
    ) -> list[bytes]:
        """Read the present records, batch by batch; return the rows."""
        reader = self.reader(**(options or {}))
        if available_now:
            reader.prepareForTriggerAvailableNow()
        if not self.log:
            self.log = [reader.initialOffset()]
        rows: list[bytes] = []
        limit: ReadLimit = reader.getDefaultReadLimit()
        while (end := planned(reader.latestOffset(self.log[-1], limit))) != self.log[-1]:
            rows += rows_of(reader, reader.partitions(self.log[-1], end))
            self.log.append(end)
        return rows


def planned(offset: Offset) -> Offset:
    """Offsets as Spark keeps them: text."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def rows_of(reader: StreamReader | BatchReader, parts: list[InputPartition]) -> list[bytes]:
    return [
        value
        for part in parts
        for batch in reader.read(part)
        for value in batch.column(0).to_pylist()
    ]


def make_anew(servers: str, topic: str, values: list[str], partitions: int = 1) -> None:
    delete(servers, topic)
    create(servers, topic, partitions)
    put(servers, topic, values)


def create(servers: str, topic: str, partitions: int = 1) -> None:
    """Make a topic; Kafka may still be about to delete the one before."""
    deadline = time.monotonic() + clients.WAIT_S
    while True:
        try:
            clients.create_topic(servers, topic, partitions)
            return
        except Exception as error:
            if "already exists" not in str(error) or time.monotonic() > deadline:
                raise


def delete(servers: str, topic: str) -> None:
    """Delete a topic, and wait for the broker: Kafka's controller answers before it knows of it."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(clients.WAIT_S)
    ends_s = time.monotonic() + clients.WAIT_S
    while topic in admin.list_topics(timeout=clients.WAIT_S).topics:
        assert time.monotonic() < ends_s, f"{topic} is listed still"
        time.sleep(0.01)


def delete_records(servers: str, topic: str, before: int, partition: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(topic, partition, before)
    admin.delete_records([place])[place].result(clients.WAIT_S)


def add_partition(servers: str, topic: str, values: list[str]) -> None:
    """Add partition 1, and write to it."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(clients.WAIT_S)
    put(servers, topic, values, 1)


triggers = pytest.mark.parametrize(
    "available_now", [True, False], ids=["AvailableNow", "ProcessingTime"]
)


@triggers
@pytest.mark.parametrize("again", [["x"], ["x", "y", "z"], ["u", "v", "x", "y", "z"]])
def test_topic_made_anew_ends_the_query_and_no_row_is_skipped_in_silence(
    cluster: str, name: str, available_now: bool, again: list[str]
) -> None:
    """AvailableNow took a smaller topic for one without news; a larger one went on in its middle.

    The rows of the new topic below the old place were never read, though failOnDataLoss=true.
    """
    create(cluster, name)
    put(cluster, name, ["a", "b", "c"])
    query = RestartedQuery(cluster, name)
    assert query.run(available_now=available_now) == [b"a", b"b", b"c"]
    make_anew(cluster, name, again)
    with pytest.raises(DataLossError, match=rf"topic '{name}' was deleted and made anew"):
        query.run(available_now=available_now)


@triggers
@pytest.mark.parametrize("again", [["x"], ["x", "y", "z"], ["u", "v", "x", "y", "z"]])
def test_lenient_query_starts_a_topic_made_anew_at_its_beginning(
    cluster: str,
    name: str,
    available_now: bool,
    again: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(cluster, name)
    put(cluster, name, ["a", "b", "c"])
    query = RestartedQuery(cluster, name, failOnDataLoss="false")
    query.run(available_now=available_now)
    make_anew(cluster, name, again)
    with caplog.at_level(logging.WARNING, "txn.spark"):
        assert query.run(available_now=available_now) == [value.encode() for value in again]
    assert f"topic '{name}' was deleted and made anew" in caplog.text
    assert query.run(available_now=available_now) == []


def test_rows_of_a_topic_made_anew_are_read_once_in_small_batches(cluster: str, name: str) -> None:
    create(cluster, name)
    put(cluster, name, ["a", "b", "c"])
    query = RestartedQuery(cluster, name, failOnDataLoss="false", maxOffsetsPerTrigger="2")
    query.run()
    make_anew(cluster, name, ["u", "v", "x", "y", "z"])
    assert query.run() == [b"u", b"v", b"x", b"y", b"z"]


@pytest.mark.parametrize("lenient", [False, True])
def test_checkpoint_without_ids_goes_on_and_gets_them(
    cluster: str, name: str, lenient: bool
) -> None:
    """Those of earlier versions, and of Spark's own Kafka source."""
    create(cluster, name)
    put(cluster, name, ["a", "b"])
    query = RestartedQuery(cluster, name, failOnDataLoss=str(not lenient).lower())
    query.log = [{name: {"0": 1}}]
    assert query.run() == [b"b"]
    assert query.log[-1][name] == {"0": 2}
    assert len(Mark.from_json(query.log[-1]).ids[name]) == 22


def test_checkpoint_without_ids_still_finds_a_topic_that_is_too_short(
    cluster: str, name: str
) -> None:
    create(cluster, name)
    put(cluster, name, ["x", "y"])
    query = RestartedQuery(cluster, name)
    query.log = [{name: {"0": 7}}]
    with pytest.raises(DataLossError, match=rf"{name}-0 ends at offset 2, and .* up to 7"):
        query.run()
    assert query.run({"failOnDataLoss": "false"}) == [b"x", b"y"]


@triggers
def test_deleted_topic_ends_the_query(cluster: str, name: str, available_now: bool) -> None:
    create(cluster, name)
    put(cluster, name, ["a"])
    query = RestartedQuery(cluster, name)
    query.run(available_now=available_now)
    delete(cluster, name)
    with pytest.raises(DataLossError, match=rf"partition {name}-0, .* up to offset 1, is gone"):
        query.run(available_now=available_now)


def test_lenient_query_goes_on_without_a_deleted_topic_and_with_it_when_it_is_back(
    cluster: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        create(cluster, topic)
        put(cluster, topic, ["a"])
    query = RestartedQuery(cluster, f"{name},{other}", failOnDataLoss="false")
    query.run()
    delete(cluster, name)
    put(cluster, other, ["b"])
    with caplog.at_level(logging.WARNING, "txn.spark"):
        assert query.run() == [b"b"]
    assert caplog.text.count(f"partition {name}-0") == 1
    create(cluster, name)
    put(cluster, name, ["x", "y"])
    assert query.run() == [b"x", b"y"]


def chosen_by(option: str, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Options that choose `name` and `name`-other, and such that choose only `name`."""
    other = f"{name}-other"
    both, one = {
        "subscribe": (f"{name},{other}", name),
        "subscribePattern": (f"^{name}", f"^{name}$"),
        "assign": (json.dumps({name: [0], other: [0]}), json.dumps({name: [0]})),
    }[option]
    return {option: both}, {option: one}


def choosing(servers: str, chosen: dict[str, str]) -> RestartedQuery:
    query = RestartedQuery(servers, "", **chosen)
    if "subscribe" not in chosen:
        del query.options["subscribe"]
    return query


@triggers
@pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "assign"])
def test_topic_that_the_options_do_not_choose_any_more_is_told_once_and_keeps_its_place(
    cluster: str, name: str, option: str, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start failed, with failOnDataLoss=false too.

    The topic was there, so a node counted as one that did not know it for a moment.
    """
    both, one = chosen_by(option, name)
    for topic in (name, f"{name}-other"):
        create(cluster, topic)
        put(cluster, topic, ["a"])
    query = choosing(cluster, both)
    assert query.run(available_now=available_now) == [b"a", b"a"]
    put(cluster, name, ["b"])
    put(cluster, f"{name}-other", ["c"])
    with pytest.raises(DataLossError, match=rf"do not choose partition {name}-other-0 any more"):
        query.run(one, available_now=available_now)
    with caplog.at_level(logging.WARNING, "txn.spark"):
        assert query.run({**one, "failOnDataLoss": "false"}, available_now=available_now) == [b"b"]
    assert caplog.text.count(f"do not choose partition {name}-other-0 any more") == 1
    put(cluster, name, ["d"])
    assert query.run(one, available_now=available_now) == [b"d"]
    assert query.run(both, available_now=available_now) == [b"c"]
    assert query.run(both, available_now=available_now) == []


def test_partition_that_assign_does_not_name_any_more_keeps_its_place(
    cluster: str, name: str
) -> None:
    create(cluster, name, 2)
    both, one = {"assign": json.dumps({name: [0, 1]})}, {"assign": json.dumps({name: [0]})}
    put(cluster, name, ["a"], 1)
    query = choosing(cluster, both)
    assert query.run() == [b"a"]
    put(cluster, name, ["b"], 1)
    with pytest.raises(DataLossError, match=rf"do not choose partition {name}-1 any more"):
        query.run(one)
    assert query.run({**one, "failOnDataLoss": "false"}) == []
    assert query.run(both) == [b"b"]


def test_topic_made_anew_while_the_options_did_not_choose_it_is_noticed(
    cluster: str, name: str
) -> None:
    both, one = chosen_by("subscribe", name)
    for topic in (name, f"{name}-other"):
        create(cluster, topic)
        put(cluster, topic, ["a"])
    query = choosing(cluster, both)
    query.run()
    query.run({**one, "failOnDataLoss": "false"})
    make_anew(cluster, f"{name}-other", ["x", "y"])
    assert query.run(one) == []
    with pytest.raises(DataLossError, match=rf"topic '{name}-other' was deleted and made anew"):
        query.run(both)
    assert query.run({**both, "failOnDataLoss": "false"}) == [b"x", b"y"]


def test_batch_planned_before_the_options_left_a_topic_out_is_replayed_with_it(
    cluster: str, name: str
) -> None:
    both, one = chosen_by("subscribe", name)
    for topic in (name, f"{name}-other"):
        create(cluster, topic)
        put(cluster, topic, ["a"])
    query = choosing(cluster, both)
    reader = query.reader()
    start = reader.initialOffset()
    end = planned(reader.latestOffset(start, ReadAllAvailable()))
    reader = query.reader(**one)
    assert rows_of(reader, reader.partitions(start, end)) == [b"a", b"a"]


def test_topic_made_anew_with_fewer_partitions_is_noticed(cluster: str, name: str) -> None:
    create(cluster, name, 3)
    put(cluster, name, ["a"], 2)
    query = RestartedQuery(cluster, name)
    assert query.run() == [b"a"]
    make_anew(cluster, name, ["x"], 1)
    with pytest.raises(DataLossError, match="made anew"):
        query.run()
    assert query.run({"failOnDataLoss": "false"}) == [b"x"]
    assert query.log[-1][name] == {"0": 1}


def test_records_deleted_between_batches_are_told_with_their_offsets(
    cluster: str, name: str
) -> None:
    create(cluster, name)
    put(cluster, name, ["a"])
    query = RestartedQuery(cluster, name)
    query.run()
    put(cluster, name, ["b", "c", "d"])
    delete_records(cluster, name, 3)
    with pytest.raises(DataLossError, match=rf"offsets 1 to 3 \(exclusive\) of {name}-0 were del"):
        query.run()
    assert query.run({"failOnDataLoss": "false"}) == [b"d"]


def test_added_partition_that_has_lost_its_first_records_ends_the_query(
    cluster: str, name: str
) -> None:
    """It was added and written to while the query was down, and retention came first.

    The query read it from its first record that was left, without a word.
    """
    create(cluster, name)
    put(cluster, name, ["a"])
    query = RestartedQuery(cluster, name)
    query.run()
    add_partition(cluster, name, ["x", "y", "z"])
    delete_records(cluster, name, 2, partition=1)
    with pytest.raises(DataLossError, match=rf"offsets 0 to 2 \(exclusive\) of {name}-1 were del"):
        query.run()
    assert query.run({"failOnDataLoss": "false"}) == [b"z"]
    put(cluster, name, ["zz"], 1)
    assert query.run() == [b"zz"]


def planned_beside(query: RestartedQuery, servers: str, topic: str) -> tuple[Offset, Offset]:
    """Run a query, add a partition of three records, and plan the batch that reads it."""
    query.run()
    add_partition(servers, topic, ["x", "y", "z"])
    return query.log[-1], planned(query.reader().latestOffset(query.log[-1], ReadAllAvailable()))


@pytest.mark.parametrize(("before", "left"), [(2, [b"z"]), (3, [])])
def test_planned_batch_of_an_added_partition_misses_its_first_records(
    cluster: str, name: str, before: int, left: list[bytes]
) -> None:
    """Spark's log has only the end of that batch, and its start had moved by the replay."""
    create(cluster, name)
    query = RestartedQuery(cluster, name)
    start, end = planned_beside(query, cluster, name)
    delete_records(cluster, name, before, partition=1)
    with pytest.raises(DataLossError, match=rf"offsets 0 to {before} .* of {name}-1 were deleted"):
        query.reader().partitions(start, end)
    reader = query.reader(failOnDataLoss="false")
    assert rows_of(reader, reader.partitions(start, end)) == left


@pytest.mark.parametrize("lenient", [False, True])
def test_planned_batch_of_a_topic_that_was_new_and_is_gone(
    cluster: str, name: str, lenient: bool
) -> None:
    """Its start was asked for, and the answer ended each replay, with failOnDataLoss=false too."""
    other = f"{name}-other"
    create(cluster, name)
    options = {"subscribePattern": f"^{name}", "failOnDataLoss": str(not lenient).lower()}
    query = RestartedQuery(cluster, name, **options)
    del query.options["subscribe"]
    query.run()
    create(cluster, other)
    put(cluster, other, ["x"])
    end = planned(query.reader().latestOffset(query.log[-1], ReadAllAvailable()))
    delete(cluster, other)
    if lenient:
        assert query.reader().partitions(query.log[-1], end) == []
    else:
        with pytest.raises(DataLossError, match=rf"offsets 0 to 1 .* of {other}-0 .* gone"):
            query.reader().partitions(query.log[-1], end)


@pytest.mark.parametrize(("start", "left"), [("earliest", [b"c"]), ("2", [b"c"]), ("latest", [])])
def test_new_query_starts_where_its_options_say_and_misses_nothing(
    cluster: str, name: str, start: str, left: list[bytes]
) -> None:
    create(cluster, name)
    put(cluster, name, ["a", "b", "c"])
    delete_records(cluster, name, 2)
    starting = at(name, int(start)) if start.isdigit() else start
    assert RestartedQuery(cluster, name, startingOffsets=starting).run() == left


@pytest.mark.parametrize("lenient", [False, True])
def test_planned_batch_of_a_topic_made_anew_is_not_read_from_the_new_one(
    cluster: str, name: str, lenient: bool
) -> None:
    """A batch that Spark has logged is planned again after a crash, from its offsets alone."""
    create(cluster, name)
    put(cluster, name, ["a", "b"])
    query = RestartedQuery(cluster, name, failOnDataLoss=str(not lenient).lower())
    reader = query.reader()
    start = reader.initialOffset()
    end = planned(reader.latestOffset(start, ReadAllAvailable()))
    make_anew(cluster, name, ["x", "y"])
    if lenient:
        assert query.reader().partitions(start, end) == []
        query.log = [end]
        assert query.run() == [b"x", b"y"]
    else:
        with pytest.raises(DataLossError, match=r"its topic was made anew"):
            query.reader().partitions(start, end)


@pytest.mark.parametrize("lenient", [False, True])
def test_task_gives_no_row_of_a_topic_made_anew_since_its_plan(
    cluster: str, name: str, lenient: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss=false it failed, too, at each attempt. That ended the query."""
    create(cluster, name)
    put(cluster, name, ["a"])
    query = RestartedQuery(cluster, name, failOnDataLoss=str(not lenient).lower())
    reader = query.reader()
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    make_anew(cluster, name, ["x"])
    story = f"topic '{name}' was deleted and made anew while it was read"
    if lenient:
        assert rows_of(reader, parts) == []
        assert story in caplog.text
    else:
        with pytest.raises(DataLossError, match=story):
            rows_of(reader, parts)


def test_open_transaction_is_no_loss_to_a_query_that_was_read_uncommitted(
    cluster: str, name: str
) -> None:
    """Its place is behind the last stable offset; nothing is missing."""
    create(cluster, name)
    put(cluster, name, ["a"])
    producer = clients.transactional_producer(cluster, name)
    producer.begin_transaction()
    clients.send(producer, name, [b"open"])
    query = RestartedQuery(cluster, name)
    assert query.run({"kafka.isolation.level": "read_uncommitted"}) == [b"a", b"open"]
    assert query.run() == []
    producer.abort_transaction(clients.WAIT_S)
    put(cluster, name, ["b"])
    while len(set(clients.ends(cluster, name))) > 1:
        pass  # Kafka answers an abort before its markers are written
    assert query.run() == [b"b"]


def test_start_behind_the_target_of_available_now_is_no_loss(cluster: str, name: str) -> None:
    """A query that starts at "latest" finds its start after the target was fixed."""
    create(cluster, name)
    put(cluster, name, ["a"])
    reader = RestartedQuery(cluster, name, startingOffsets="latest").reader()
    reader.prepareForTriggerAvailableNow()
    put(cluster, name, ["b"])
    start = reader.initialOffset()
    assert planned(reader.latestOffset(start, ReadMaxRows(5))) == start
    assert planned(reader.latestOffset(start, ReadMaxRows(5))) == start


def planned_task(query: RestartedQuery) -> tuple[StreamReader, list[InputPartition]]:
    reader = query.reader()
    start = reader.initialOffset()
    return reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))


@pytest.mark.parametrize("lenient", [False, True])
def test_topic_deleted_before_a_task_reads_it_is_told(
    cluster: str, name: str, lenient: bool
) -> None:
    create(cluster, name)
    put(cluster, name, ["a"])
    query = RestartedQuery(cluster, name, failOnDataLoss=str(not lenient).lower())
    reader, parts = planned_task(query)
    delete(cluster, name)
    kafka.forget_client(reader._settings.connection)
    if lenient:
        assert rows_of(reader, parts) == []
    else:
        with pytest.raises(DataLossError, match=r"offsets 0 to 1 .* the partition is gone"):
            rows_of(reader, parts)


def test_end_that_a_task_cannot_reach_is_told(servers: str, name: str) -> None:
    """A log that lost its last records after the batch was planned."""
    create(servers, name)
    put(servers, name, ["a"])
    for fails, left in (("true", None), ("false", [b"a"])):
        options = {"kafka.default.api.timeout.ms": "700", "failOnDataLoss": fails}
        reader, (part,) = planned_task(RestartedQuery(servers, name, **options))
        part.value = replace(part.value, end=3)
        if left is None:
            with pytest.raises(DataLossError, match=r"offsets 1 to 3 .* any more: it ends at 1"):
                rows_of(reader, [part])
        else:
            assert rows_of(reader, [part]) == left


def test_topic_that_a_node_did_not_know_for_a_moment_is_not_lost(
    servers: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(servers, name)
    put(servers, name, ["a"])
    query = RestartedQuery(servers, name)
    query.run()
    put(servers, name, ["b"])
    describe = SelectedPartitions.describe

    def impatient(
        self: SelectedPartitions, topics: Sequence[str], *, is_patient: bool = False
    ) -> dict[str, tuple[int, str | None]]:
        return describe(self, topics, is_patient=is_patient) if is_patient else {}

    monkeypatch.setattr(SelectedPartitions, "describe", impatient)
    assert query.run() == [b"b"]


class MeddledClient:
    """A client; something happens to the topics right before one of its requests."""

    def __init__(self, client: KafkaClient, deed: Callable[[], None], before: int) -> None:
        self._client = client
        self._deed = deed
        self.left = before
        """Requests until then."""

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._client, name)

        def asked(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._deed()
            return request(*arguments, **options)

        return asked


@pytest.mark.parametrize("again", [["x"], ["x", "y", "z"]])
def test_lenient_query_survives_a_topic_made_anew_before_any_of_its_requests(
    servers: str,
    name: str,
    again: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended: "the batch has to be planned again", though nobody plans a failed batch again."""
    other, requests, left = f"{name}-other", 0, 0
    for topic in (name, other):
        create(servers, topic)
    query = choosing(servers, {"subscribePattern": f"^{name}"})
    query.options |= {"failOnDataLoss": "false", "kafka.default.api.timeout.ms": "10000"}
    query.run(available_now=False)
    while left <= 0:
        requests += 1
        put(servers, name, ["c"])
        client = MeddledClient(
            KafkaClient(servers, timeout_ms=10_000),
            lambda: make_anew(servers, name, again),
            requests,
        )
        with monkeypatch.context() as patch:
            for module in (reader_module, kafka):
                patch.setattr(module, "shared_client", lambda _, client=client: client)
            rows = query.run(available_now=False)
        rows += query.run(available_now=False)
        left = client.left
        new = [] if left > 0 else [value.encode() for value in again]
        assert rows in (new, [b"c", *new]), f"before request {requests}"
    assert requests > 5


# ---------------------------------------------------------------- batch reads


def table(servers: str, topic: str, **options: str) -> list[bytes]:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "columns": "value"}
    reader = BatchReader(source_settings({**given, **options}), VALUE)
    return rows_of(reader, reader.partitions())


def at(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})


@pytest.mark.parametrize(
    ("start", "end", "story", "left"),
    [
        (0, 5, r"offsets 0 to 2 \(exclusive\) of \S+-0 were deleted", b"cde"),
        (1, -1, r"offsets 1 to 2 \(exclusive\) of \S+-0 were deleted", b"cde"),
        (3, 9, r"offsets 5 to 9 \(exclusive\) .* not there: it ends at 5", b"de"),
        (7, -1, r"offsets 5 to 7 \(exclusive\) .* not there: it ends at 5", b""),
        (6, 9, r"offsets 5 to 9 \(exclusive\) .* not there: it ends at 5", b""),
    ],
)
def test_batch_read_of_offsets_that_are_not_there(
    cluster: str, name: str, start: int, end: int, story: str, left: bytes
) -> None:
    """It waited a minute for records that nobody had written, or gave fewer rows in silence."""
    create(cluster, name)
    put(cluster, name, list("abcde"))
    delete_records(cluster, name, 2)
    options = {"startingOffsets": at(name, start), "endingOffsets": at(name, end)}
    with pytest.raises(DataLossError, match=story):
        table(cluster, name, **options)
    assert b"".join(table(cluster, name, **options, failOnDataLoss="false")) == left


@pytest.mark.parametrize(
    ("start", "end", "story"),
    [
        (3, 1, "startingOffsets begins .* at 3, behind endingOffsets, which ends it at 1"),
        (-1, -1, r"startingOffsets cannot be latest \(-1\) in a batch read"),
        (-2, -2, r"endingOffsets cannot be earliest \(-2\)"),
    ],
)
def test_batch_read_of_offsets_that_make_no_range(
    servers: str, name: str, start: int, end: int, story: str
) -> None:
    create(servers, name)
    with pytest.raises(ConfigError, match=story):
        table(servers, name, startingOffsets=at(name, start), endingOffsets=at(name, end))


def test_topic_made_anew_while_a_batch_read_runs_fails_its_task(cluster: str, name: str) -> None:
    create(cluster, name)
    put(cluster, name, ["a"])
    given = {"kafka.bootstrap.servers": cluster, "subscribe": name, "columns": "value"}
    reader = BatchReader(source_settings(given), VALUE)
    (part,) = reader.partitions()
    rows = reader.read(part)
    assert next(rows).column(0).to_pylist() == [b"a"]
    make_anew(cluster, name, ["x"])
    with pytest.raises(DataLossError, match="made anew while it was read"):
        next(rows)


# ---------------------------------------------------------------- topics by pattern


def test_pattern_leaves_out_progress_topics_and_kafkas_own(cluster: str, name: str) -> None:
    """A query on `.*` read the progress of its own sink, which every batch adds to, for ever."""
    configured = f"{name}-progress"
    client = KafkaClient(cluster)
    for topic in ("__txn_spark", configured, name):
        client.create_topic(topic, 1, {})
    client.close()
    put(cluster, name, ["a"])
    producer = clients.transactional_producer(cluster, name)  # makes __transaction_state
    producer.begin_transaction()
    producer.abort_transaction(clients.WAIT_S)
    options = {"subscribePattern": ".*", "txn.progress.topic": configured}
    query = RestartedQuery(cluster, name, **options)
    del query.options["subscribe"]
    topics = {topic for topic, _ in Mark.from_json(query.reader().initialOffset()).at}
    assert name in topics
    assert not topics & {"__txn_spark", configured, "__transaction_state", "__consumer_offsets"}
