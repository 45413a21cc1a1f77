"""Fetch sessions (KIP-227), step by step: the partitions of each answer, and each error."""

from typing import Any, Final

from differential.batches import CREATED_MS, BatchSpec
from differential.names import Name
from differential.script import COMMIT, STRANGE_TOPIC_ID, Talk, versions
from differential.topics import make_topic, remove_topic

BY_NAME: Final = (7, 9, 11, 12)
BY_ID: Final = (13, 15, 16, 18)


def _open(talk: Talk, version: int, **options: Any) -> Any:
    return talk.fetch({0: 0, 1: 0}, version, session=(0, 0), **options)["session_id"]


def a_session_in_every_version(talk: Talk) -> None:
    """Only changed partitions are told; a position that does not move gets its records again."""
    for round_, version in enumerate((*BY_NAME, *BY_ID)):
        session = _open(talk, version)
        ends = {0: round_, 1: round_}
        talk.fetch(ends, version, session=(session, 1))
        talk.fetch({}, version, session=(session, 2))
        talk.produce({1: BatchSpec()})
        talk.fetch({}, version, session=(session, 3))
        talk.fetch({}, version, session=(session, 4))
        talk.fetch({1: round_ + 1}, version, session=(session, 5))
        talk.produce({0: BatchSpec()})
        talk.fetch({}, version, session=(session, 6), forgotten=(0,))
        talk.fetch({0: round_}, version, session=(session, 7))
        talk.fetch({}, version, session=(session, -1))
        talk.fetch({}, version, session=(session, 8))


def session_errors(talk: Talk) -> None:
    talk.produce({0: BatchSpec()})
    for version in (*BY_NAME, *BY_ID):
        session = _open(talk, version)
        other_way = 13 if version < 13 else 12
        talk.fetch({0: 1}, version, session=(session, 2))
        talk.fetch({0: 1}, version, session=(session, -2))
        talk.fetch({}, other_way, session=(session, 1))
        talk.fetch({}, version, session=(session, 1))
        talk.fetch({}, version, session=(session, 1))
        talk.fetch({0: 0}, version, session=(session, 0))
        talk.fetch({}, version, session=(session, 2))


def forgotten_partitions(talk: Talk) -> None:
    """The last one closes the session; those that are not in it are passed over."""
    talk.produce({0: BatchSpec(), 1: BatchSpec()})
    for version in (7, 12, 13, 18):
        session = _open(talk, version)
        talk.fetch({}, version, session=(session, 1), forgotten=(1, 1, 9))
        talk.fetch({}, version, session=(session, 2))
        talk.fetch({1: 0}, version, session=(session, 3))
        talk.fetch({0: 0}, version, session=(session, 4), forgotten=(0,))
        talk.fetch({}, version, session=(session, 5), forgotten=(1,))
        talk.fetch({}, version, session=(session, 6))
        empty = talk.fetch({}, version, session=(0, 0))["session_id"]
        talk.fetch({0: 0}, version, session=(empty, 1))
        empty = talk.fetch({}, version, session=(0, 0))["session_id"]
        talk.fetch({}, version, session=(empty, 1))
        talk.fetch({}, version, session=(empty, 2))


def partitions_take_turns(talk: Talk) -> None:
    """One that got records goes behind the others, so that none starves under max_bytes."""
    for _ in range(3):
        talk.produce({0: BatchSpec(), 1: BatchSpec()})
    for version in (11, 18):
        session = _open(talk, version, max_bytes=1)
        for epoch in range(1, 6):
            talk.fetch({}, version, session=(session, epoch), max_bytes=1)
        talk.fetch({0: 1}, version, session=(session, 6), max_bytes=1)
        talk.fetch({1: 2}, version, session=(session, 7), max_bytes=1)
        talk.fetch({}, version, session=(session, 8), max_bytes=1)


def errors_within_a_session(talk: Talk) -> None:
    """An error is told each time, and the partition once more when it is over."""
    talk.produce({0: BatchSpec()})
    for version in (9, 12, 13, 18):
        session = _open(talk, version)
        talk.fetch({0: 7, 9: 0}, version, session=(session, 1))
        talk.fetch({}, version, session=(session, 2))
        talk.fetch({0: 1}, version, session=(session, 3), forgotten=(9,))
        talk.fetch({}, version, session=(session, 4))
        talk.fetch({1: 0}, version, session=(session, 5), leader_epoch=3)
        talk.fetch({}, version, session=(session, 6))
        talk.fetch({1: 0}, version, session=(session, 7), leader_epoch=0)
        talk.fetch({}, version, session=(session, 8))


def unknown_topics_within_a_session(talk: Talk) -> None:
    talk.produce({0: BatchSpec()})
    for version in (11, 13, 18):
        where: dict[str, Any] = {"topic": "nowhere", "topic_id": STRANGE_TOPIC_ID}
        session = talk.fetch({0: 0}, version, session=(0, 0), **where)["session_id"]
        talk.fetch({}, version, session=(session, 1))
        talk.fetch({0: 1}, version, session=(session, 2))
        talk.fetch({}, version, session=(session, 3))
        talk.fetch({}, version, session=(session, 4), forgotten=(0,))


def offsets_that_change_without_records(talk: Talk) -> None:
    """The log start, and the offsets of a reader who may not see an open transaction."""
    talk.produce({0: BatchSpec(values=(b"a",) * 3)})
    for version in (7, 18):
        for isolation in (0, 1):
            producer = talk.init(talk.pair.own(f"x{version}{isolation}"))
            end = talk.fetch({0: 0}, version)["responses"][0]["partitions"][0]["high_watermark"]
            session = _open(talk, version, isolation=isolation)
            talk.fetch({0: end}, version, session=(session, 1), isolation=isolation)
            talk.send(producer, 0, timestamp_ms=CREATED_MS)
            talk.fetch({}, version, session=(session, 2), isolation=isolation)
            talk.fetch({}, version, session=(session, 3), isolation=isolation)
            talk.end(producer, COMMIT)
            talk.fetch({}, version, session=(session, 4), isolation=isolation)
            talk.fetch({0: end + 2}, version, session=(session, 5), isolation=isolation)
            talk.delete_records({0: end})
            talk.fetch({}, version, session=(session, 6), isolation=isolation)
            talk.fetch({}, version, session=(session, 7), isolation=isolation)


def a_topic_that_goes_and_comes_again_within_a_session(talk: Talk) -> None:
    for number, version in enumerate((12, 13, 18)):
        name = talk.pair.own(f"again{version}")
        ids = 10 + 2 * number
        make_topic(talk.pair, name, ids)
        where: dict[str, Any] = {"topic": name, "topic_id": Name("topic id", ids)}
        talk.produce({0: BatchSpec()}, **where)
        session = talk.fetch({0: 0}, version, session=(0, 0), **where)["session_id"]
        talk.fetch({0: 1}, version, session=(session, 1), **where)
        remove_topic(talk.pair, name)
        talk.fetch({}, version, session=(session, 2))
        talk.fetch({}, version, session=(session, 3))
        make_topic(talk.pair, name, ids + 1)
        talk.fetch({}, version, session=(session, 4))
        talk.fetch({}, version, session=(session, 5))
        if version >= 13:
            other: dict[str, Any] = {"topic": name, "topic_id": Name("topic id", ids + 1)}
            talk.fetch({0: 0}, version, session=(session, 6), **other)
            talk.fetch({}, version, session=(session, 7))


def the_epoch_of_the_last_record(talk: Talk) -> None:
    """A reader whose log went on where this one did not is told where its epoch ended here."""
    talk.produce({0: BatchSpec(values=(b"a",) * 3)})
    for version in (12, 18):
        for epoch in (-1, 0, 1):
            for offset in (0, 3, 4):
                talk.fetch({0: offset}, version, last_fetched_epoch=epoch)


def where_a_leader_epoch_ends(talk: Talk) -> None:
    """OffsetForLeaderEpoch: of epochs that were, are and are not, as fenced clients ask it."""
    talk.produce({0: BatchSpec(values=(b"a",) * 3)})
    for version in versions("OffsetForLeaderEpoch"):
        for current in (-1, 0, 1, -2):
            for topic in (talk.topic, "nowhere"):
                partitions = [
                    {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
                    for index, epoch in ((0, 0), (1, 0), (0, 1), (0, -1), (0, 5), (9, 0))
                ]
                for one in partitions:
                    talk.pair.ask(
                        "OffsetForLeaderEpoch",
                        version,
                        replica_id=-1,
                        topics=[{"topic": topic, "partitions": [one]}],
                    )
