"""The settings of a broker, all in `BROKER_PROPERTIES`, and those of one listener.

The default of a topic's setting is a setting of the broker; its property is made from the topic's.
A listener has settings of its own under `listener.name.NAME.`, and one of its mechanisms under
`listener.name.NAME.MECHANISM.`; `broker_property` finds the property behind each such name.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from txn.config.property import (
    DOUBLE_MAX,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ConfigType,
    Property,
    described,
    double,
    flag,
    integer,
    list_of,
    long,
    number,
    one_of,
    split_address,
    split_overrides,
)
from txn.config.security_properties import SECURITY_PROPERTIES, STORE_PROPERTIES
from txn.config.topic_properties import (
    COMPRESSION,
    REPLICAS,
    SEGMENT_BYTES_MIN,
    TOPIC_PROPERTIES,
    TOPIC_SYNONYMS,
)


def _overrides() -> Property:
    def parse(text: str) -> str:
        split_overrides(text)
        return text

    return Property(ConfigType.STRING, parse, "", "a comma-separated list of HOST:NUMBER")


def _address() -> Property:
    def parse(text: str) -> str:
        split_address(text)
        return text.strip()

    return Property(ConfigType.STRING, parse, None, "HOST:PORT with a port from 0 to 65535")


_FIXED: Final = {
    "auto.create.topics.enable": (flag(True), "Create a topic when a client asks for it."),
    "connections.max.idle.ms": (
        long(600_000, INT64_MIN),
        "A connection without progress for this time is closed; negative: never.",
    ),
    "controller.quota.window.num": (
        integer(11, 1),
        "Number of samples; a client may use the partitions of all of them at once.",
    ),
    "controller.quota.window.size.seconds": (integer(1, 1), "The time of each of these samples."),
    "default.replication.factor": (integer(1, 1, 1), "Replicas of a topic; only 1 is possible."),
    "durability": (
        one_of("commit", "process", "always"),
        "What survives a power failure: committed transactions and prepared ones, nothing "
        "of the last moments, or every acks=all answer. txn's own.",
    ),
    "group.consumer.assignors": (
        list_of("uniform,range", "uniform|range", "a comma-separated list of uniform, range"),
        "The assignors of consumer groups; the first one serves members that name none.",
    ),
    "group.consumer.heartbeat.interval.ms": (
        integer(5_000, 1),
        "How often the members of a consumer group send heartbeats.",
    ),
    "group.consumer.max.assignment.interval.ms": (
        integer(15_000, 0),
        "The longest consumer.assignment.interval.ms that counts for a group.",
    ),
    "group.consumer.max.heartbeat.interval.ms": (
        integer(15_000, 1),
        "The longest consumer.heartbeat.interval.ms that counts for a group.",
    ),
    "group.consumer.max.session.timeout.ms": (
        integer(60_000, 1),
        "The longest consumer.session.timeout.ms that counts for a group.",
    ),
    "group.consumer.max.size": (
        integer(INT32_MAX, 1),
        "The most members of one group of the consumer protocol.",
    ),
    "group.consumer.migration.policy": (
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a group with members may change from the classic protocol to the consumer "
        "protocol (upgrade), and back (downgrade). An empty group always may.",
    ),
    "group.consumer.min.assignment.interval.ms": (
        integer(0, 0),
        "The shortest consumer.assignment.interval.ms that counts for a group.",
    ),
    "group.consumer.min.heartbeat.interval.ms": (
        integer(5_000, 1),
        "The shortest consumer.heartbeat.interval.ms that counts for a group.",
    ),
    "group.consumer.min.session.timeout.ms": (
        integer(45_000, 1),
        "The shortest consumer.session.timeout.ms that counts for a group.",
    ),
    "group.consumer.session.timeout.ms": (
        integer(45_000, 1),
        "How long a member of a consumer group may be silent before it is removed.",
    ),
    "group.initial.rebalance.delay.ms": (
        integer(0, 0),
        "How long a new group waits for more members.",
    ),
    "group.max.session.timeout.ms": (
        integer(1_800_000, 1),
        "The longest session a member of a group may ask for.",
    ),
    "group.max.size": (integer(INT32_MAX, 1), "The most members of one group."),
    "group.min.session.timeout.ms": (
        integer(6_000, 1),
        "The shortest session a member of a group may ask for.",
    ),
    "log.cleaner.enable": (flag(True), "Compact topics with cleanup.policy=compact."),
    "log.flush.offset.checkpoint.interval.ms": (
        integer(60_000, 0),
        "How often the recovery points are written.",
    ),
    "log.flush.scheduler.interval.ms": (
        long(INT64_MAX, 1),
        "flush.ms of topics, when log.flush.interval.ms is not set.",
    ),
    "log.flush.start.offset.checkpoint.interval.ms": (
        integer(60_000, 0),
        "How often the log start offsets are written.",
    ),
    "log.retention.check.interval.ms": (
        long(300_000, 1),
        "How often retention is applied to the logs.",
    ),
    "log.retention.hours": (
        integer(168, -1),
        "retention.ms of topics in hours, when neither minutes nor ms are set.",
    ),
    "log.retention.minutes": (
        integer(None, -1),
        "retention.ms of topics in minutes, when ms is not set.",
    ),
    "log.roll.hours": (integer(168, 1), "segment.ms of topics in hours, when ms is not set."),
    "log.roll.jitter.hours": (
        integer(0, 0),
        "segment.jitter.ms of topics in hours, when ms is not set.",
    ),
    "max.incremental.fetch.session.cache.slots": (
        integer(1_000, 0),
        "Fetch sessions at a time; consumers beyond them name all partitions each time.",
    ),
    "max.partitions": (
        integer(1_000_000, 1),
        "The most partitions this broker takes, of all topics together: each has its "
        "place in memory and in every start. txn's own.",
    ),
    "max.request.partition.size.limit": (
        integer(2000, 1),
        "The most partitions in one answer to DescribeTopicPartitions.",
    ),
    "metrics.allow.remote": (
        flag(False),
        "Whether metrics may be served on an address that other machines reach. txn's own.",
    ),
    "metrics.group.partitions.max": (
        integer(1000, 0, 1_000_000),
        "The most committed offsets of groups whose lag is measured and named. txn's own.",
    ),
    "metrics.listener": (
        _address(),
        "The address of GET /metrics, /healthz and /readyz; none by default. txn's own.",
    ),
    "node.id": (integer(1, 0), "This node's number."),
    "num.network.threads": (integer(2, 1, 256), "Threads that serve connections."),
    "num.partitions": (
        integer(1, 1, 100_000),
        "Partitions of a topic that is created without a number.",
    ),
    "offset.metadata.max.bytes": (integer(4096, 0), "The longest note beside a committed offset."),
    "offsets.retention.check.interval.ms": (
        long(600_000, 1),
        "How often expired committed offsets are removed.",
    ),
    "offsets.retention.minutes": (
        integer(10_080, 1),
        "How long the offsets of a group without members are kept.",
    ),
    "offsets.topic.num.partitions": (integer(50, 1, 10_000), "Partitions of __consumer_offsets."),
    "offsets.topic.replication.factor": (
        number(ConfigType.SHORT, 1, 1, 1),
        "Replicas of __consumer_offsets; only 1 is possible.",
    ),
    "offsets.topic.segment.bytes": (
        integer(100 << 20, 1),
        "segment.bytes of __consumer_offsets, when it is created.",
    ),
    "queued.max.request.bytes": (
        long(-1, INT64_MIN),
        "While requests on their way in, and answers on their way out, have as many bytes, "
        "connections wait with others; at least socket.request.max.bytes, or -1: no limit.",
    ),
    "quota.window.num": (integer(11, 1), "Number of samples of a client's rate."),
    "quota.window.size.seconds": (integer(1, 1), "The time of each of these samples."),
    "replica.high.watermark.checkpoint.interval.ms": (
        long(5_000, 1),
        "Without effect: the high watermarks are written with the recovery points.",
    ),
    "socket.request.max.bytes": (integer(104_857_600, 1), "The largest request that is accepted."),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        integer(10_000, 1),
        "Without effect: a transaction is aborted at the moment of its timeout.",
    ),
    "transaction.max.timeout.ms": (
        integer(900_000, 1),
        "The longest timeout a transaction may ask for.",
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        integer(3_600_000, 1),
        "How often expired transactional ids are removed.",
    ),
    "transaction.state.log.min.isr": (integer(1, 1), "min.insync.replicas of __transaction_state."),
    "transaction.state.log.num.partitions": (
        integer(50, 1, 10_000),
        "Partitions of __transaction_state.",
    ),
    "transaction.state.log.replication.factor": (
        number(ConfigType.SHORT, 1, 1, 1),
        "Replicas of __transaction_state; only 1 is possible.",
    ),
    "transaction.state.log.segment.bytes": (
        integer(100 << 20, 1),
        "segment.bytes of __transaction_state, when it is created.",
    ),
    "transaction.two.phase.commit.enable": (
        flag(False),
        "Whether producers may ask for transactions that never time out, for another "
        "system to decide on. They survive a power failure, except if durability=process.",
    ),
    "transactional.id.expiration.ms": (
        integer(604_800_000, 1),
        "How long an idle transactional id is remembered.",
    ),
}
"""Settings that do not change while the broker runs."""

_DYNAMIC: Final = {
    "group.consumer.assignment.interval.ms": (
        integer(1_000, 0),
        "The shortest time between two assignments of a consumer group.",
    ),
    "log.cleaner.backoff.ms": (
        long(15_000, 0),
        "How long compaction waits when there is nothing to compact.",
    ),
    "log.cleaner.dedupe.buffer.size": (
        long(128 << 20, SEGMENT_BYTES_MIN + 1),
        "Memory for the keys of logs being compacted, of all threads together.",
    ),
    "log.cleaner.io.buffer.load.factor": (
        double(0.9, 0, 1),
        "How full the memory for keys may get.",
    ),
    "log.cleaner.io.buffer.size": (
        integer(512 << 10, 0),
        "Without effect: compaction sizes its buffers itself.",
    ),
    "log.cleaner.io.max.bytes.per.second": (
        double(DOUBLE_MAX, 0, DOUBLE_MAX),
        "Compaction reads and writes at most this much.",
    ),
    "log.cleaner.threads": (integer(1, 0), "Threads that compact."),
    "max.connection.creation.rate": (
        integer(INT32_MAX, 0),
        "The most new connections a second; further ones wait. Also of one listener.",
    ),
    "max.connections": (
        integer(INT32_MAX, 0),
        "The most connections at a time; further ones wait. Also of one listener.",
    ),
    "max.connections.per.ip": (
        integer(INT32_MAX, 0),
        "The most connections of one address at a time; further ones are closed.",
    ),
    "max.connections.per.ip.overrides": (
        _overrides(),
        "HOST:NUMBER of single addresses that may have more or fewer.",
    ),
    "num.recovery.threads.per.data.dir": (
        integer(2, 1),
        "Threads that recover logs at the start and close them at the end.",
    ),
    "producer.id.expiration.ms": (
        integer(86_400_000, 1),
        "How long a partition remembers an idle producer.",
    ),
    **COMPRESSION,
    **REPLICAS,
}
"""Settings that may change while the broker runs."""

_INTERNAL: Final = described(
    {
        "group.consumer.regex.refresh.interval.ms": (
            integer(600_000, 10_000),
            "How often the topics of subscribed patterns are looked up anew.",
        ),
        "log.initial.task.delay.ms": (
            long(30_000, 0),
            "How long after the start the first look for what may go comes, at the latest.",
        ),
        "producer.id.expiration.check.interval.ms": (
            integer(600_000, 1),
            "How often partitions are looked through for idle producers.",
        ),
    },
    is_internal=True,
) | described(
    {
        name: (long(INT64_MAX, 0), "Kept for tools that throttle; there is nobody to slow down.")
        for name in (
            "follower.replication.throttled.rate",
            "leader.replication.throttled.rate",
            "replica.alter.log.dirs.io.max.bytes.per.second",
        )
    },
    is_dynamic=True,
    is_internal=True,
)


def _defaults_of_topics() -> Iterator[tuple[str, Property]]:
    """The first synonym of each topic setting: a property with the topic setting's form.

    It has no default if another synonym comes after it, because the default would hide that one.
    """
    for topic_name, (name, *others) in TOPIC_SYNONYMS.items():
        entry = TOPIC_PROPERTIES[topic_name]
        default = None if others else entry.default
        yield (
            name,
            entry._replace(default=default, about=f"{topic_name} of topics.", is_dynamic=True),
        )


BROKER_PROPERTIES: Final[Mapping[str, Property]] = {
    **STORE_PROPERTIES,
    **SECURITY_PROPERTIES,
    **described(_FIXED),
    **dict(_defaults_of_topics()),
    **described(_DYNAMIC, is_dynamic=True),
    **_INTERNAL,
}
"""Broker settings. `durability` is txn's own: see design promise P2."""


LISTENER_PREFIX: Final = "listener.name."

_JAAS: Final = Property(
    ConfigType.STRING,
    str,
    None,
    "a login module",
    "The users of a mechanism, as Kafka writes them.",
)

_OF_LISTENERS: Final = re.compile(
    r"sasl\.enabled\.mechanisms|sasl\.oauthbearer\..*|connections\.max\.reauth\.ms|ssl\..*|"
    r"max\.connections|max\.connection\.creation\.rate"
)
"""Broker settings that a listener may have of its own."""

_OF_MECHANISMS: Final = re.compile(
    r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer)\.(connections\.max\.reauth\.ms)|"
    r"oauthbearer\.(sasl\.oauthbearer\..*)|"
    r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer)\.(sasl\.jaas\.config)"
)
"""Broker settings that a mechanism of a listener may have of its own."""


def listener_property(name: str) -> Property | None:
    """The setting behind `listener.name.NAME.`, and behind a mechanism there."""
    _, dot, own = name.removeprefix(LISTENER_PREFIX).partition(".")
    if not dot:
        return None
    of_mechanism = _OF_MECHANISMS.fullmatch(own)
    if of_mechanism is not None:
        behind = of_mechanism[of_mechanism.lastindex or 0]
        return _JAAS if behind == "sasl.jaas.config" else BROKER_PROPERTIES.get(behind)
    return BROKER_PROPERTIES.get(own) if _OF_LISTENERS.fullmatch(own) else None


def broker_property(name: str) -> Property | None:
    """The property of a broker's setting, perhaps of one listener; None if it is unknown."""
    if name.startswith(LISTENER_PREFIX):
        return listener_property(name)
    return BROKER_PROPERTIES.get(name)
