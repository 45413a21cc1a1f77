"""The options of `format("txn")`: names, defaults, and the ones that are refused or ignored.

Sources: Structured Streaming + Kafka Integration Guide, Spark 4.2; KafkaSourceProvider, Spark 4.2
(the options it refuses); ConsumerConfig and ProducerConfig, Apache Kafka 3.9.
"""

from collections.abc import Mapping
from typing import Final

from txn.security.client_names import READ as SECURITY_NAMES
from txn.spark.option_values import (
    COLUMNS,
    FETCH_BYTES,
    ID_LENGTH_MAX,
    PROGRESS_TOPIC,
    SMALL_BATCH_RECORDS,
    SMALL_BATCH_RECORDS_MAX,
    Option,
    assignment,
    chosen_columns,
    flag,
    milliseconds,
    names,
    one_of,
    pattern,
    positions,
    servers,
    some_text,
    time,
    times,
    topic,
    txn_id,
    whole,
)
from txn.spark.progress import OnLost

_TIME: Final = "milliseconds since 1970, as 1700000000000"
_TIMES: Final = 'JSON as {"topic": {"0": 1700000000000}}, in milliseconds since 1970'

READING: Final = "reading"
WRITING: Final = "writing"

EVERYWHERE: Final[Mapping[str, Option]] = {
    "kafka.bootstrap.servers": Option(servers, None, "HOST:PORT[,HOST:PORT…]"),
    "kafka.client.id": some_text("txn-spark"),
    "kafka.default.api.timeout.ms": whole(60_000, 1, 2**31 - 1),
    "txn.progress.topic": Option(topic, PROGRESS_TOPIC, "a topic's name"),
    "txn.strict.options": flag(False),
    "txn.token": some_text(),
}

_PATIENCE: Final = {"kafka.default.api.timeout.ms": whole(180_000, 1, 2**31 - 1)}
"""A query outlives an outage of some minutes, as with Spark's source, which asks several times."""

READ: Final[Mapping[str, Option]] = {
    **EVERYWHERE,
    **_PATIENCE,
    "assign": Option(assignment, None, 'JSON as {"topic": [0, 1]}'),
    "columns": Option(chosen_columns, None, "names out of " + ", ".join(COLUMNS)),
    "endingOffsets": Option(
        positions,
        None,
        'latest, or JSON as {"topic": {"0": 23, "1": -1}, "other": "latest"} (-1: latest)',
    ),
    "endingOffsetsByTimestamp": Option(times, None, _TIMES),
    "endingTimestamp": Option(time, None, _TIME),
    "failOnDataLoss": flag(True),
    "fetch.batch.bytes": whole(256 << 20, 1, 1 << 30),
    "fetch.bytes": whole(None, 1, 1 << 30),
    "includeHeaders": flag(False),
    "kafka.isolation.level": one_of("read_committed", "read_uncommitted"),
    "kafka.max.partition.fetch.bytes": whole(FETCH_BYTES, 1, 1 << 30),
    "maxOffsetsPerTrigger": whole(None, 1),
    "maxRecordsPerPartition": whole(None, 1),
    "maxTriggerDelay": Option(milliseconds, 900_000, "a time as 15m, 30s or 500ms"),
    "minOffsetsPerTrigger": whole(None, 0),
    "minPartitions": whole(None, 1, 1_000_000),
    "small.batch.records": whole(SMALL_BATCH_RECORDS, 0, SMALL_BATCH_RECORDS_MAX),
    "startingOffsets": Option(
        positions,
        None,
        'earliest, latest, or JSON as {"topic": {"0": 23, "1": -2}, "other": "earliest"} '
        "(-1: latest, -2: earliest)",
    ),
    "startingOffsetsByTimestamp": Option(times, None, _TIMES),
    "startingOffsetsByTimestampStrategy": one_of("error", "latest"),
    "startingTimestamp": Option(time, None, _TIME),
    "subscribe": Option(names, None, "topic names, separated by commas"),
    "subscribePattern": Option(pattern, None, "a regular expression of Java"),
}

WRITE: Final[Mapping[str, Option]] = {
    **EVERYWHERE,
    **_PATIENCE,
    "batch.bytes": whole(1 << 20, 1, 1 << 30),
    "checkpointLocation": some_text(),
    "compression": one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "queryName": some_text(),
    "kafka.compression.type": one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "kafka.metadata.max.age.ms": whole(300_000, 0, 2**31 - 1),
    "topic": Option(topic, None, "a topic's name"),
    "txn.batch": whole(None, 0),
    "txn.group": some_text(),
    "txn.id": Option(txn_id, None, f"at most {ID_LENGTH_MAX} printable characters"),
    "txn.margin.ms": whole(30_000, 0, 2**31 - 1),
    "txn.on.lost": one_of(*(each.value for each in OnLost)),
    "txn.on.missing.progress": one_of("fail", "trust-checkpoint"),
    "txn.query": some_text(),
    "txn.timeout.ms": whole(900_000, 1, 2**31 - 1),
    "txn.two.phase.commit": one_of("auto", "true", "false"),
}
"""`txn.timeout.ms` is the longest that Apache Kafka's default transaction.max.timeout.ms allows."""

_INTERCEPTORS: Final = {
    "kafka.interceptor.classes": "an interceptor is Java, and could change rows",
}

REFUSED_READING: Final[Mapping[str, str]] = {
    **_INTERCEPTORS,
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.key.deserializer": "keys are read as bytes. Cast the column key instead",
    "kafka.value.deserializer": "values are read as bytes. Cast the column value instead",
    "provider": (
        "this is CREATE TABLE, and Spark would give the table none of its OPTIONS. Use CREATE TEMP "
        "VIEW ... USING txn OPTIONS (...)"
    ),
}

REFUSED_WRITING: Final[Mapping[str, str]] = {
    **_INTERCEPTORS,
    "asyncprogresstrackingenabled": (
        "with asynchronous progress tracking Spark writes a batch before it has noted what is in "
        "it, so a replay could have other rows under the same number. Remove the option"
    ),
    "kafka.key.serializer": "keys are written as bytes. Cast the column key instead",
    "kafka.partitioner.class": (
        "a partitioner is Java. Rows go where Kafka's default puts them; give them a column "
        "partition to choose otherwise"
    ),
    "kafka.transaction.timeout.ms": "set txn.timeout.ms instead",
    "kafka.transactional.id": "the sink makes its own transactional ids from txn.id",
    "kafka.value.serializer": "values are written as bytes. Cast the column value instead",
}
"""Options that would change the rows read or written, as Spark's connector refuses them."""

REFUSED_VALUES: Final[Mapping[str, tuple[str, str, str]]] = {
    "kafka.exclude.internal.topics": (
        READING,
        "false",
        "Kafka's own topics are never read by subscribePattern. Name them by subscribe",
    ),
    "kafka.partitioner.ignore.keys": (
        WRITING,
        "true",
        "rows with the same key go to the same partition. Leave the key out instead",
    ),
}

TUNING: Final = frozenset(
    (
        *("fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix"),
        "kafkaconsumer.polltimeoutms",
    )
)
"""Options of Spark's guide; they tune a consumer that is not used here."""

KAFKA: Final = frozenset(
    """acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
    batch.size buffer.memory check.crcs client.dns.lookup client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms
    delivery.timeout.ms enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms isolation.level linger.ms max.block.ms
    max.in.flight.requests.per.connection  max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
    retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms""".split()
)
"""Properties of Kafka's consumer and producer that change neither rows nor their order here."""

KAFKAS_NAMES: Final = frozenset(
    f"kafka.{name}" for name in (*KAFKA, *SECURITY_NAMES, "bootstrap.servers", "client.id")
) | frozenset(
    name for name in REFUSED_READING.keys() | REFUSED_WRITING.keys() if name.startswith("kafka.")
)
"""Properties of Kafka with the prefix that Spark's options have."""

OTHERS: Final = frozenset(
    name.lower()
    for name in READ.keys() | WRITE.keys() | REFUSED_READING.keys() | REFUSED_WRITING.keys()
    if name not in EVERYWHERE
)
"""Options of both directions; one that the other direction has is without effect in this one."""
