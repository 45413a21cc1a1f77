"""Fetch and ListOffsets: the view of readers of either isolation level."""

from differential.batches import CREATED_MS, BatchSpec
from differential.names import Name
from differential.script import (
    ABORT,
    COMMIT,
    STRANGE_TOPIC_ID,
    TOPIC_ID,
    ScriptProducer,
    Talk,
    versions,
)


def _filled(talk: Talk) -> ScriptProducer:
    """Committed, aborted, plain, and a transaction left open on partition 0."""
    producer, other = talk.init(talk.pair.own("x")), talk.init(talk.pair.own("y"))
    talk.produce({0: BatchSpec(), 1: BatchSpec(timestamp_ms=CREATED_MS + 50)})
    talk.send(producer, 0, values=(b"a",) * 4, timestamp_ms=CREATED_MS + 10)
    talk.end(producer, COMMIT)
    talk.send(producer, 0, values=(b"b",) * 2, timestamp_ms=CREATED_MS + 5)
    talk.send(producer, 0, partition=1)
    talk.send(other, 0, timestamp_ms=CREATED_MS + 30)
    talk.end(producer, ABORT)
    talk.send(producer, 0, timestamp_ms=CREATED_MS + 40)
    return other


def every_version_and_isolation(talk: Talk) -> None:
    _filled(talk)
    for version in versions("Fetch"):
        for isolation in (0, 1):
            talk.fetch({0: 0, 1: 0}, version, isolation=isolation)
            talk.fetch({0: 7, 1: 2}, version, isolation=isolation)


def isolation_levels_that_do_not_exist(talk: Talk) -> None:
    talk.produce({0: BatchSpec()})
    for isolation in (2, -1, 127):
        for version in (4, 11, 18):
            talk.fetch({0: 0}, version, isolation=isolation)
        for version in (2, 11):
            talk.list_offsets({0: -1}, version, isolation=isolation)


def offsets_out_of_range(talk: Talk) -> None:
    _filled(talk)
    for version in (4, 11, 12, 13, 18):
        for isolation in (0, 1):
            for offset in (-1, -2, 12, 11, 13, 2**62):
                talk.fetch({0: offset}, version, isolation=isolation)
    talk.delete_records({0: 3})
    for offset in (0, 2, 3, 4):
        talk.fetch({0: offset})


def partitions_and_topics_that_are_not_there(talk: Talk) -> None:
    talk.produce({0: BatchSpec()})
    for version in versions("Fetch"):
        talk.fetch({0: 0, 9: 0, -1: 0}, version)
        talk.fetch({0: 0}, version, topic="nowhere", topic_id=STRANGE_TOPIC_ID)
        talk.fetch({0: 0}, version, topic="", topic_id=b"\0" * 16)
        talk.fetch({}, version)


def leader_epochs(talk: Talk) -> None:
    talk.produce({0: BatchSpec()})
    for epoch in (-1, 0, 1, 5, -2):
        for version in (9, 12, 18):
            talk.fetch({0: 0}, version, leader_epoch=epoch)
        for version in (4, 7, 11):
            talk.list_offsets({0: -1, 1: -2}, version, leader_epoch=epoch)


def limits(talk: Talk) -> None:
    for number in range(6):
        talk.produce({0: BatchSpec(values=(b"v" * 100 * number,)), 1: BatchSpec()})
    for version in (4, 11, 18):
        for limit in (0, 1, 70, 200, 300, 500, 900, -1, 2**31 - 1):
            talk.fetch({0: 0, 1: 0}, version, max_bytes=limit)
            talk.fetch({0: 0, 1: 0}, version, partition_max_bytes=limit)
            talk.fetch({0: 2}, version, partition_max_bytes=limit, max_bytes=limit)
        for least in (1, 100, 2**31 - 1, -1):
            talk.fetch({0: 0, 1: 0}, version, min_bytes=least, max_wait_ms=1)
            talk.fetch({0: 6}, version, min_bytes=least, max_wait_ms=1)


def from_the_middle_of_a_batch(talk: Talk) -> None:
    talk.produce({0: BatchSpec(values=(b"a",) * 5)})
    talk.produce({0: BatchSpec(values=(b"b",) * 5)})
    for start in range(11):
        talk.fetch({0: start})
        talk.fetch({0: start}, partition_max_bytes=1)


def sessions(talk: Talk) -> None:
    """KIP-227."""
    talk.produce({0: BatchSpec()})
    for version in (7, 12, 18):
        talk.fetch({0: 0, 1: 0}, version, session=(0, 0))
        talk.fetch({0: 0, 1: 0}, version, session=(0, -1))
        talk.fetch({0: 0}, version, session=(12345, 1))
        talk.fetch({}, version, session=(12345, 1))
        talk.fetch({0: 0}, version, session=(0, 5))
        talk.fetch({0: 0}, version, session=(12345, -1))
        talk.fetch({0: 0}, version, session=(12345, 0))
        talk.fetch({0: 0}, version, session=(0, -1), forgotten=(1,))


def list_offsets_by_time(talk: Talk) -> None:
    _filled(talk)
    wanted = (-1, -2, -3, -4, -5, -6, -7, 0, CREATED_MS - 1, CREATED_MS + 11, CREATED_MS + 10**6)
    for version in versions("ListOffsets"):
        for isolation in (0, 1):
            for timestamp in wanted:
                talk.list_offsets({0: timestamp, 1: timestamp}, version, isolation=isolation)
    for timestamp in range(CREATED_MS, CREATED_MS + 60, 5):
        for isolation in (0, 1):
            talk.list_offsets({0: timestamp, 1: timestamp}, isolation=isolation)


def list_offsets_of_nothing(talk: Talk) -> None:
    for version in versions("ListOffsets"):
        for timestamp in (-1, -2, -3, -4, -5, -6, 0, CREATED_MS):
            talk.list_offsets({0: timestamp, 9: timestamp}, version)
        talk.list_offsets({0: -1}, version, topic="nowhere")
        talk.list_offsets({0: -1}, version, topic="")
    talk.pair.ask(
        "ListOffsets",
        11,
        replica_id=-1,
        isolation_level=0,
        timeout=5_000,
        topics=[
            {
                "name": talk.topic,
                "partitions": [
                    {"partition_index": 0, "timestamp": -1},
                    {"partition_index": 0, "timestamp": -2},
                    {"partition_index": 1, "timestamp": -2},
                ],
            }
        ],
    )


def partitions_named_twice(talk: Talk) -> None:
    """The first place counts, and the last value; a topic may be named twice too."""
    for number in range(4):
        talk.produce({0: BatchSpec(values=(b"%d" % number,)), 1: BatchSpec()})
    where = {"topic": talk.topic, "topic_id": TOPIC_ID}
    for version in versions("Fetch"):
        for topics in (((0, 0), (0, 2)), ((0, 3), (1, 1), (0, 1)), ((1, 2),), ((0, 9), (0, 0))):
            partitions = [
                {
                    "partition": index,
                    "fetch_offset": offset,
                    "partition_max_bytes": 1 << 20,
                    "current_leader_epoch": -1,
                }
                for index, offset in topics
            ]
            talk.pair.ask(
                "Fetch",
                version,
                replica_id=-1,
                max_wait=0,
                min_bytes=0,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[where | {"partitions": partitions}],
                forgotten_topics_data=[],
                rack_id="",
            )


def the_last_stable_offset_of_an_open_transaction(talk: Talk) -> None:
    other = _filled(talk)
    for version in versions("Fetch"):
        talk.fetch({0: 8}, version)
    talk.end(other, COMMIT)
    talk.look()
    assert isinstance(other.producer_id, Name)
