"""Produce, sound and hostile, in every version."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from differential.batches import (
    CONTROL,
    CREATED_MS,
    TRANSACTIONAL,
    BatchSpec,
    idempotent,
    record,
    transactional,
)
from differential.names import Name
from differential.script import COMMIT, STRANGE_TOPIC_ID, Talk, versions
from differential.topics import make_topic

STRANGE_ID = 4_000_000_000_000


def every_version_stores_a_batch(talk: Talk) -> None:
    for version in versions("Produce"):
        talk.produce({0: BatchSpec(), 1: BatchSpec(values=(b"a", None, b""))}, version=version)
        talk.produce({0: BatchSpec(attributes=1)}, version=version)
    talk.look()


def acks(talk: Talk) -> None:
    for version in versions("Produce"):
        for wanted in (0, 1, -1, 2, -2, 32767):
            talk.produce({0: BatchSpec()}, version=version, acks=wanted)
        talk.produce({0: BatchSpec(crc=0)}, version=version, acks=0)
        talk.produce({9: BatchSpec()}, version=version, acks=0)
    talk.look()


PLAIN: Final = b"".join(record(n, b"key", b"value") for n in range(2))
"""Two records, the second of which ends with its header count."""


def _packed(content: bytes, **given: Any) -> BatchSpec:
    return BatchSpec(
        attributes=1, values=(b"value",) * 2, content=gzip.compress(content, mtime=0), **given
    )


BROKEN: Final[Mapping[str, BatchSpec | tuple[BatchSpec, ...] | bytes]] = {
    "with_a_wrong_checksum": BatchSpec(crc=0),
    "of_format_0": BatchSpec(magic=0),
    "of_format_1": BatchSpec(magic=1),
    "of_format_3": BatchSpec(magic=3),
    "of_format_minus_1": BatchSpec(magic=-1),
    "of_length_0": BatchSpec(length=0),
    "of_length_minus_1": BatchSpec(length=-1),
    "of_length_48": BatchSpec(length=48),
    "of_length_49": BatchSpec(length=49),
    "longer_than_its_bytes": BatchSpec(length=10_000),
    "that_counts_no_records": BatchSpec(record_count=0),
    "that_counts_minus_1_records": BatchSpec(record_count=-1),
    "that_counts_more_records": BatchSpec(record_count=2),
    "that_counts_more_records_and_offsets": BatchSpec(record_count=2, last_offset_delta=1),
    "without_records": BatchSpec(values=()),
    "whose_offsets_are_too_many": BatchSpec(last_offset_delta=5),
    "whose_offsets_are_negative": BatchSpec(last_offset_delta=-1),
    "with_a_base_offset": BatchSpec(base_offset=77),
    "with_a_negative_base_offset": BatchSpec(base_offset=-5),
    "of_codec_7": BatchSpec(attributes=7),
    "of_zstd_that_is_none": BatchSpec(attributes=4),
    "of_gzip_that_is_none": BatchSpec(attributes=1, values=(), record_count=1, after=b"x"),
    "of_gzip_that_is_whole": _packed(PLAIN),
    "of_gzip_that_is_cut": BatchSpec(attributes=1, content=gzip.compress(PLAIN, mtime=0)[:-12]),
    "of_gzip_that_is_not_gzip": BatchSpec(attributes=1, content=b"\xff" * 20),
    "of_snappy_that_is_not_snappy": BatchSpec(attributes=2, content=b"\xff" * 20),
    "of_lz4_that_is_not_lz4": BatchSpec(attributes=3, content=b"\xff" * 20),
    "of_zstd_that_is_not_zstd": BatchSpec(attributes=4, content=b"\xff" * 20),
    "of_gzip_that_counts_more": _packed(PLAIN, record_count=3, last_offset_delta=2),
    "of_gzip_that_counts_fewer": _packed(PLAIN, record_count=1, last_offset_delta=0),
    "of_gzip_with_minus_1_headers": _packed(PLAIN[:-1] + b"\1"),
    "of_gzip_with_a_header_too_many": _packed(PLAIN[:-1] + b"\2"),
    "with_minus_1_headers": BatchSpec(values=(b"value",) * 2, content=PLAIN[:-1] + b"\1"),
    "with_a_header_too_many": BatchSpec(values=(b"value",) * 2, content=PLAIN[:-1] + b"\2"),
    "with_append_time": BatchSpec(attributes=8),
    "with_a_delete_horizon": BatchSpec(attributes=0x40),
    "with_an_unknown_attribute": BatchSpec(attributes=0x80),
    "with_the_highest_attribute": BatchSpec(attributes=-0x8000),
    "whose_largest_timestamp_is_too_small": BatchSpec(max_timestamp_ms=5),
    "of_timestamp_minus_1": BatchSpec(timestamp_ms=-1),
    "of_timestamp_minus_2": BatchSpec(timestamp_ms=-2),
    "of_the_far_future": BatchSpec(timestamp_ms=2**62),
    "cut_after_its_header": BatchSpec(cut=61),
    "cut_in_its_header": BatchSpec(cut=60),
    "cut_before_its_format": BatchSpec(cut=16),
    "cut_in_its_records": BatchSpec(cut=70),
    "of_one_byte": BatchSpec(cut=1),
    "with_a_byte_behind_it": BatchSpec(after=b"x"),
    "with_bytes_behind_it": BatchSpec(after=b"\0" * 100),
    "without_a_key": BatchSpec(key=None),
    "of_no_bytes": b"",
    "of_two_batches": (BatchSpec(), BatchSpec()),
}


def _sends(name: str, batch: BatchSpec | tuple[BatchSpec, ...] | bytes) -> Callable[[Talk], None]:
    def script(talk: Talk) -> None:
        for version in (3, 8, 9, 12, 13):
            talk.produce({0: batch}, version=version)
            talk.produce({0: batch, 1: BatchSpec()}, version=version)
        talk.look()

    script.__name__ = f"a_batch_{name}"
    return script


GENERATED = [_sends(name, batch) for name, batch in BROKEN.items()]


def null_records(talk: Talk) -> None:
    """One version is enough: Kafka never answers."""
    talk.produce({0: None, 1: BatchSpec()}, version=13)


def control_bits(talk: Talk) -> None:
    """A client may not write markers."""
    producer = talk.init(talk.pair.own("x"))
    for version in (3, 11, 13):
        talk.add_partitions(producer, (0,))
        for attributes in (CONTROL, CONTROL | TRANSACTIONAL):
            talk.produce(
                {0: BatchSpec(attributes=attributes)}, producer.transactional_id, version=version
            )
            batch = transactional(
                producer.producer_id,
                producer.producer_epoch,
                0,
                attributes=attributes,
                key=b"\0\0\0\1",
                values=(b"\0\0\0\0\0\0",),
            )
            talk.produce({0: batch}, producer.transactional_id, version=version)
            talk.produce({0: batch}, None, version=version)
    talk.look()


def flags_and_ids_that_do_not_fit(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    identity = producer.identity
    name = producer.transactional_id
    for version in (3, 11, 12, 13):
        talk.produce({0: BatchSpec()}, name, version)
        talk.produce({0: idempotent(*identity, 0)}, name, version)
        talk.produce({0: transactional(*identity, 0)}, None, version)
        talk.produce({0: BatchSpec(producer_id=producer.producer_id)}, None, version)
        talk.produce({0: idempotent(producer.producer_id, 0, -1)}, None, version)
        talk.produce({0: idempotent(producer.producer_id, -1, 0)}, None, version)
        talk.produce({0: idempotent(-1, 3, 4)}, None, version)
        talk.produce({0: idempotent(-2, 3, 4)}, None, version)
        talk.produce(
            {0: transactional(*identity, 0), 1: transactional(STRANGE_ID, 0, 0)}, name, version
        )
        talk.produce({0: transactional(*identity, 0), 1: BatchSpec()}, name, version)
        talk.describe(name)
    talk.look()


def a_transactional_id_that_is_not_the_producers(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    for version in (3, 11, 12, 13):
        batch = transactional(*producer.identity, 0)
        talk.produce({0: batch}, talk.pair.own("other"), version)
        talk.produce({0: batch}, "", version)
        talk.describe(producer.transactional_id)
    talk.look()


def a_transactional_id_that_is_not_the_open_transactions(talk: Talk) -> None:
    """A partition in which the producer's transaction is open asks nobody whose it is."""
    for version in (3, 11, 12, 13):
        mine = talk.init(talk.pair.own(f"x{version}"))
        another = talk.init(talk.pair.own(f"y{version}"))
        if version < 12:
            talk.add_partitions(mine, (0,))
        talk.send(mine, 0, version=version)
        names = (talk.pair.own("nobody"), another.transactional_id, "")
        for sequence, name in enumerate(names, 1):
            talk.produce({0: transactional(*mine.identity, sequence)}, name, version)
            talk.produce({0: transactional(*mine.identity, sequence)}, name, version)
            talk.produce({1: transactional(*mine.identity, 0)}, name, version)
            talk.describe(mine.transactional_id, another.transactional_id)
        talk.look()
        talk.end(mine, COMMIT, 5 if version >= 12 else 4)
        talk.look()


def a_transactional_id_that_is_not_the_declared_transactions(talk: Talk) -> None:
    """The first batch that a partition gets of a transaction is verified, declared or not."""
    for version in (3, 11, 12, 13):
        mine = talk.init(talk.pair.own(f"x{version}"))
        another = talk.init(talk.pair.own(f"y{version}"))
        for partition, name in enumerate((another.transactional_id, "")):
            talk.add_partitions(mine, (partition,))
            batch = transactional(*mine.identity, 0)
            talk.produce({partition: batch}, name, version)
            talk.produce({partition: batch}, talk.pair.own("nobody"), version)
            talk.look()
            talk.produce({partition: batch}, mine.transactional_id, version)
            talk.look()
        talk.describe(mine.transactional_id, another.transactional_id)
        talk.end(mine, COMMIT, 4)
        talk.look()


def a_stranger_is_turned_away_from_an_open_transaction(talk: Talk) -> None:
    mine = talk.init(talk.pair.own("x"))
    talk.send(mine, 0)
    batch = transactional(mine.producer_id, mine.producer_epoch + 1, 0)
    talk.produce({0: batch}, talk.pair.own("nobody"))
    talk.look()
    talk.send(mine, 1)


def a_stranger_of_an_older_epoch_is_turned_away_by_an_old_produce(talk: Talk) -> None:
    another = talk.init(talk.pair.own("y"))
    older = talk.init(talk.pair.own("x"))
    mine = talk.init(older.transactional_id)
    talk.produce({0: transactional(*older.identity, 0)}, another.transactional_id, 6)
    talk.look()
    talk.send(mine, 1)


def a_retry_under_another_transactional_id(talk: Talk) -> None:
    """Once the transaction is over Kafka asks the coordinator, txn knows the batch."""
    for version in (3, 11, 12, 13):
        mine = talk.init(talk.pair.own(f"x{version}"))
        another = talk.init(talk.pair.own(f"y{version}"))
        if version < 12:
            talk.add_partitions(mine, (0,))
        talk.send(mine, 0, version=version)
        talk.end(mine, COMMIT, 4)
        for name in (talk.pair.own("nobody"), another.transactional_id, ""):
            talk.produce({0: transactional(*mine.identity, 0)}, name, version)
        talk.look()


def a_retry_of_who_has_a_successor(talk: Talk) -> None:
    for version in (3, 11, 12, 13):
        old = talk.init(talk.pair.own(f"x{version}"))
        if version < 12:
            talk.add_partitions(old, (0,))
        talk.send(old, 0, version=version)
        talk.end(old, COMMIT, 4)
        talk.init(old.transactional_id)
        talk.send(old, 0, version=version)
        talk.describe(old.transactional_id)
        talk.look()


def a_retry_beside_the_next_transaction(talk: Talk) -> None:
    """Ended without a new epoch, as TV2 clients do not: Kafka joins, then sees the duplicate."""
    producer = talk.init(talk.pair.own("x"))
    talk.send(producer, 0, 0)
    talk.send(producer, 0, 1)
    talk.end(producer, COMMIT, 4)
    talk.send(producer, 1, 0)
    talk.describe(producer.transactional_id)
    talk.send(producer, 0, 1)
    talk.describe(producer.transactional_id)


def a_transactional_batch_of_no_producer(talk: Talk) -> None:
    for version in (3, 11, 12, 13):
        talk.produce({0: transactional(-1, -1, -1)}, talk.pair.own("x"), version)


def an_idempotent_producer(talk: Talk) -> None:
    """Order, retries, gaps, new epochs; unknown producers may begin anywhere behind a record."""
    talk.produce({1: BatchSpec()})
    for version in (3, 11, 13):
        producer = talk.init(None)
        for sequence in (0, 1, 1, 0, 3, 2, 3, 4, 5, 6, 0, 1, 6):
            talk.produce({0: idempotent(producer.producer_id, 0, sequence)}, None, version)
        talk.produce({0: idempotent(producer.producer_id, 1, 5)}, None, version)
        talk.produce({0: idempotent(producer.producer_id, 1, 0)}, None, version)
        talk.produce({0: idempotent(producer.producer_id, 0, 7)}, None, version)
        talk.produce({1: idempotent(producer.producer_id, 0, 40)}, None, version)
        talk.describe_producers()
        stranger = talk.init(None)
        talk.produce({0: idempotent(stranger.producer_id, 0, 2**31 - 1)}, None, version)
        talk.produce(
            {0: idempotent(stranger.producer_id, 0, 0, values=(b"a", b"b"))}, None, version
        )
        two = idempotent(stranger.producer_id, 0, 2**31 - 1, values=(b"a", b"b"))
        talk.produce({1: two}, None, version)
        talk.produce({1: two}, None, version)
        talk.produce({1: idempotent(stranger.producer_id, 0, 1)}, None, version)
    talk.look()


def a_batch_overtakes_the_first_one_of_a_log(talk: Talk) -> None:
    producer = talk.init(None)
    talk.produce({0: idempotent(producer.producer_id, 0, 5)})


def an_idempotent_producer_without_an_epoch(talk: Talk) -> None:
    producer = talk.init(None)
    talk.produce({0: idempotent(producer.producer_id, -1, 0)})


def a_batch_is_retried_with_other_records(talk: Talk) -> None:
    producer = talk.init(None)
    talk.produce({0: idempotent(producer.producer_id, 0, 0, values=(b"a", b"b"))})
    talk.produce({0: idempotent(producer.producer_id, 0, 0, values=(b"c", b"d"))})
    talk.produce({0: idempotent(producer.producer_id, 0, 0, values=(b"a",))})
    talk.produce({0: idempotent(producer.producer_id, 0, 1, values=(b"b",))})
    talk.produce({0: idempotent(producer.producer_id, 0, 1, values=(b"b", b"c"))})
    talk.look()


def idempotent_and_transactional_mixed(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    for version in (11, 13):
        talk.add_partitions(producer, (0,))
        talk.send(producer, 0, version=version)
        talk.produce({0: idempotent(*producer.identity, 1)}, None, version)
        talk.produce({0: idempotent(*producer.identity, 1)}, producer.transactional_id, version)
        talk.look()
        talk.end(producer, COMMIT)
        talk.produce({0: idempotent(*producer.identity, 0)}, None, version)
        talk.send(producer, 1, version=13)
        talk.end(producer, COMMIT)
    talk.look()


def topics_that_are_not_there(talk: Talk) -> None:
    for version in versions("Produce"):
        talk.produce({0: BatchSpec()}, version=version, topic="nowhere", topic_id=STRANGE_TOPIC_ID)
        talk.produce({0: BatchSpec()}, version=version, topic="", topic_id=b"\0" * 16)
        talk.produce({2: BatchSpec(), -1: BatchSpec()}, version=version)
    for version in (9, 12):
        talk.produce({0: BatchSpec()}, version=version, topic="__consumer_offsets")
        talk.produce({0: BatchSpec()}, version=version, topic="__transaction_state")
        talk.produce({0: BatchSpec()}, version=version, topic="a/b")
        talk.produce({}, version=version)
        talk.pair.ask(
            "Produce", version, transactional_id=None, acks=-1, timeout=5_000, topic_data=[]
        )
    producer = talk.init(talk.pair.own("x"))
    for version in (11, 12, 13):
        talk.produce(
            {0: transactional(*producer.identity, 0)},
            producer.transactional_id,
            version,
            topic="nowhere",
            topic_id=STRANGE_TOPIC_ID,
        )


def batches_that_are_too_large(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    for version in (3, 12, 13):
        large = (b"x" * 1_100_000,)
        talk.produce({0: BatchSpec(values=large)}, version=version)
        talk.produce(
            {0: transactional(*producer.identity, 0, values=large)},
            producer.transactional_id,
            version,
        )
        # Exactly at max.message.bytes, and one byte beyond it.
        overhead = len(BatchSpec(values=(b"x" * 1_000_000,)).encode(-1)) - 1_000_000
        for spare in (0, -1, 1):
            value = b"x" * (1_048_588 - overhead - spare)
            talk.produce({1: BatchSpec(values=(value,))}, version=version)
    talk.describe(producer.transactional_id)
    for isolation in (0, 1):
        talk.list_offsets({0: -1, 1: -1}, isolation=isolation)


RULED: Final = {
    "cleanup_policy": "compact",
    "message_timestamp_before_max_ms": str(50 * 365 * 86_400_000),
}
"""Settings of a topic whose records need keys, and times of the last fifty years."""


def records_that_break_a_rule(talk: Talk) -> None:
    """Every bad record is named, the good ones beside it are not (KIP-467)."""
    ruled = make_topic(talk.pair, talk.pair.own("ruled"), 2, **RULED)
    far = 2**55
    for keys_and_times in (
        [(b"k", 0), (None, 0), (b"k", 0), (None, 0)],
        [(b"k", 0), (None, 0), (b"k", far)],
        [(b"k", 0), (None, far), (b"k", 0)],
        [(b"k", -CREATED_MS), (b"k", -CREATED_MS - 1), (b"k", -CREATED_MS - 9), (b"k", 0)],
        [(None, 0)] * 5,
    ):
        content = b"".join(
            record(number, key, b"value", time) for number, (key, time) in enumerate(keys_and_times)
        )
        values = (b"value",) * len(keys_and_times)
        plain = BatchSpec(values=values, content=content)
        packed = BatchSpec(values=values, content=gzip.compress(content, mtime=0), attributes=1)
        for version in (3, 7, 8, 9, 13):
            for batch in (plain, packed):
                talk.produce(
                    {0: batch, 1: BatchSpec()},
                    version=version,
                    topic=ruled,
                    topic_id=Name("topic id", 2),
                )
    stamped = make_topic(
        talk.pair, talk.pair.own("stamped"), 3, message_timestamp_type="LogAppendTime"
    )
    for version in (7, 8, 13):
        talk.produce(
            {0: BatchSpec(attributes=8, values=(b"a", b"b"))},
            version=version,
            topic=stamped,
            topic_id=Name("topic id", 3),
        )


def records_of_before_1970(talk: Talk) -> None:
    for version in (3, 13):
        for times in ((-5000,), (-3000, -2000), (-1, -2000), (1000, -9000, 500), (-9000, 700, 1)):
            first = times[0]
            content = b"".join(
                record(number, b"key", b"value", time - first) for number, time in enumerate(times)
            )
            values = (b"value",) * len(times)
            plain = BatchSpec(
                values, content=content, timestamp_ms=first, max_timestamp_ms=max(times)
            )
            packed = replace(plain, content=gzip.compress(content, mtime=0), attributes=1)
            talk.produce({0: plain}, version=version)
            talk.produce({1: packed}, version=version)
            for timestamp in (-10_000, -7, -3, -2, -1, 0, 1, 500, 700, 1000, 1001):
                talk.list_offsets({0: timestamp, 1: timestamp})
            talk.look()


def a_producer_after_a_record_that_was_refused_for_its_time(talk: Talk) -> None:
    """The refused batch keeps its sequence: the next one is out of order until that was sent."""
    timely = make_topic(
        talk.pair, talk.pair.own("timely"), 2, message_timestamp_after_max_ms="1000"
    )
    producer = talk.init(None)
    assert producer
    for sequence, timestamp_ms in (
        (0, CREATED_MS),
        (1, 2**55),
        (2, CREATED_MS),
        (1, CREATED_MS),
        (2, CREATED_MS),
        (2, 2**55),
        (3, 2**55),
    ):
        batch = idempotent(
            producer.producer_id, producer.producer_epoch, sequence, timestamp_ms=timestamp_ms
        )
        talk.produce({0: batch}, topic=timely, topic_id=Name("topic id", 2))
