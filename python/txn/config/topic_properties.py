"""The settings of a topic, and the broker settings that give their defaults.

`COMPRESSION` and `REPLICAS` are settings of topics and of brokers, under the same names.
"""

from collections.abc import Mapping
from typing import Any, Final

from txn.config.property import (
    HOUR_MS,
    INT32_MAX,
    INT64_MAX,
    ConfigType,
    Property,
    cleanup_policies,
    described,
    double,
    flag,
    integer,
    long,
    one_of,
    partition_replicas,
)

SEGMENT_BYTES_MIN: Final = 1 << 20
"""Smaller segments are for tests: `internal.segment.bytes`. Source: KIP-1030."""

SEGMENT_BYTES = integer(
    1 << 30,
    SEGMENT_BYTES_MIN,
    expects=f"a whole number from {SEGMENT_BYTES_MIN} to {INT32_MAX}; a topic for tests may "
    "have less by internal.segment.bytes",
)


def _gzip_level() -> Property:
    number = integer(-1, -1, 9, "a whole number from 1 to 9, or -1")

    def parse(text: str) -> Any:
        level = number.parse(text)
        if level == 0:
            raise ValueError(text)
        return level

    return number._replace(parse=parse)


COMPRESSION = {
    "compression.type": (
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The codec in which batches are stored; producer: unchanged.",
    ),
    "compression.gzip.level": (
        _gzip_level(),
        "Level of gzip, if compression.type is gzip; -1 is the codec's own.",
    ),
    "compression.lz4.level": (
        integer(9, 1, 17),
        "Level of lz4, if compression.type is lz4; every level uses the fast encoder here.",
    ),
    "compression.zstd.level": (
        integer(3, -131_072, 22),
        "Level of zstd, if compression.type is zstd.",
    ),
}
REPLICAS = {
    "min.insync.replicas": (
        integer(1, 1),
        "Replicas that acks=all waits for, or all of them if there are fewer; there is one.",
    ),
    "unclean.leader.election.enable": (
        flag(False),
        "Whether a replica that lags behind may lead; there is only one replica.",
    ),
}

DECOMPRESSED_BYTES: Final = integer(INT32_MAX - 8, 1, INT32_MAX - 8)
"""The default is the longest array of Java: no limit."""

_EXTERNAL: Final = {
    "cleanup.policy": (
        cleanup_policies(),
        "delete: old segments are removed. compact: the last record of each key stays. "
        "Neither: nothing is removed.",
    ),
    "delete.retention.ms": (
        long(86_400_000, 0),
        "How long compaction keeps the record that deletes a key.",
    ),
    "errors.deadletterqueue.group.enable": (
        flag(False),
        "Share groups may write records here that they could not process; there are none.",
    ),
    "file.delete.delay.ms": (
        long(60_000, 0),
        "How long a file renamed to .deleted stays on the disk.",
    ),
    "flush.messages": (long(INT64_MAX, 1), "Sync the log after this many records."),
    "flush.ms": (long(INT64_MAX, 0), "Sync the log when a record is this old."),
    "follower.replication.throttled.replicas": (
        partition_replicas(),
        "Followers to slow down; there are none.",
    ),
    "index.interval.bytes": (integer(4096, 0), "Bytes of log between two entries of an index."),
    "leader.replication.throttled.replicas": (
        partition_replicas(),
        "Leaders to slow down; no replica fetches from them.",
    ),
    "local.retention.bytes": (
        long(-2, -2),
        "Bytes of a log in tiered storage that are also kept here; -2: retention.bytes.",
    ),
    "local.retention.ms": (
        long(-2, -2),
        "How long records in tiered storage are kept here too; -2: retention.ms.",
    ),
    "max.compaction.lag.ms": (
        long(INT64_MAX, 1),
        "A record is compacted at the latest when it is this old.",
    ),
    "max.decompressed.message.bytes": (
        DECOMPRESSED_BYTES,
        "The largest record of a compressed batch, after decompression, that is accepted.",
    ),
    "max.message.bytes": (integer(1_048_588, 0), "The largest batch that is accepted."),
    "message.timestamp.after.max.ms": (
        long(HOUR_MS, 0),
        "How far a record's time may be ahead of the broker's.",
    ),
    "message.timestamp.before.max.ms": (
        long(INT64_MAX, 0),
        "How far a record's time may be behind the broker's.",
    ),
    "message.timestamp.type": (
        one_of("CreateTime", "LogAppendTime"),
        "A record's time: the producer's, or that of the append.",
    ),
    "min.cleanable.dirty.ratio": (
        double(0.5, 0, 1),
        "Compact when this part of the log has not been compacted yet.",
    ),
    "min.compaction.lag.ms": (
        long(0, 0),
        "A record is not removed by compaction before it is this old.",
    ),
    "preallocate": (flag(False), "Reserve the disk space of a segment when it is created."),
    "remote.copy.lag.bytes": (
        long(-1, -1),
        "How far tiered storage may be behind this log, in bytes; -1: local.retention.bytes.",
    ),
    "remote.copy.lag.ms": (
        long(0, -1),
        "How far tiered storage may be behind this log, in time; -1: local.retention.ms.",
    ),
    "remote.log.copy.disable": (flag(False), "Copy nothing more to tiered storage."),
    "remote.log.delete.on.disable": (
        flag(False),
        "Delete the records in tiered storage when it is switched off.",
    ),
    "remote.storage.enable": (
        Property(ConfigType.BOOLEAN, {"false": False}.__getitem__, False, "false"),
        "Tiered storage, which this broker does not have.",
    ),
    "retention.bytes": (
        long(-1, -1),
        "The oldest segments are removed while the log is larger than this; -1: no limit.",
    ),
    "retention.ms": (
        long(604_800_000, -1),
        "A segment is removed when its newest record is older than this; -1: never.",
    ),
    "segment.bytes": (SEGMENT_BYTES, "A new segment begins when one is this large."),
    "segment.index.bytes": (
        integer(10 << 20, 4),
        "A new segment begins when an index is this large.",
    ),
    "segment.jitter.ms": (
        long(0, 0),
        "The most by which segment.ms is reduced, at random, so that logs do not roll at once.",
    ),
    "segment.ms": (long(604_800_000, 1), "A new segment begins when one is this old."),
    **COMPRESSION,
    **REPLICAS,
}
TOPIC_PROPERTIES: Final[Mapping[str, Property]] = described(_EXTERNAL) | described(
    {"internal.segment.bytes": (integer(None, 1), "segment.bytes, for tests: any size.")},
    is_internal=True,
)
"""Topic settings; those not internal are the ones that DescribeConfigs lists."""

TOPIC_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.decompressed.message.bytes": ("max.decompressed.message.bytes",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "remote.copy.lag.bytes": ("log.remote.copy.lag.bytes",),
    "remote.copy.lag.ms": ("log.remote.copy.lag.ms",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""Topic setting → the broker settings it takes its default from; the first that is set counts."""
