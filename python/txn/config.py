"""The broker's and the topics' settings, by Kafka's own property names.

An unknown setting is refused with the closest known name. A value out of range is refused with the
range, or with the values that fit. A topic's setting is the topic's own, else the broker's default
for topics (`TOPIC_SYNONYMS`). A broker's setting is the first there is: altered for this broker,
altered for every broker, given at the start, the default.

Deviations from Apache Kafka 4.2:

- `group.initial.rebalance.delay.ms` is 0 (Kafka: 3000), since a broker inside a program or a
  test has no fleet of consumers to wait for; `num.network.threads` is 2 (Kafka: 3), since a
  reactor does the work of many of Kafka's threads.
- A setting that one node without tiered storage cannot honour is refused: more than one replica,
  `remote.storage.enable`.
- Kafka's settings for features that txn lacks (replication between brokers, …) are unknown
  here.

Source: Apache Kafka 4.2, its definitions of broker and topic configs; KIP-226 (layers).
"""

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from txn.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

SECURITY_PROTOCOLS: Final = (
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
)
"""The default of `listener.security.protocol.map`, as Kafka writes it."""

_STRENGTHS: Final = ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256")
CIPHER_SUITES: Final = (
    *(f"TLS_{strength}" for strength in _STRENGTHS),
    *(f"TLS_ECDHE_{key}_WITH_{strength}" for key in ("ECDSA", "RSA") for strength in _STRENGTHS),
)
"""Those of TLS 1.3 and then of TLS 1.2 that rustls has, by the names of IANA and Java."""

SEGMENT_BYTES_MIN: Final = 1 << 20
"""Smaller segments are for tests: `internal.segment.bytes`. Source: KIP-1030."""


class ConfigType(IntEnum):
    """The type of a property's value, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Property(NamedTuple):
    """One setting: the parser of its text, its default, and its purpose.

    `is_dynamic`: of a broker's property, whether it may change while the broker runs.
    `is_internal`: for tests and tools, or for the authorizer alone; taken, but not described. One
    of the broker's that was altered is described.
    `is_dense`: a list that takes no empty entry; one that is stored already is passed over.
    """

    kind: ConfigType
    parse: Callable[[str], Any]
    default: Any
    expects: str
    about: str = ""
    is_dynamic: bool = False
    is_internal: bool = False
    is_dense: bool = False


_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
"""The sizes of whole numbers."""


class _UnfitError(ValueError):
    """A value does not fit; the text says it in Kafka's words, which scripts know."""


def whole_number(kind: ConfigType, text: str) -> int:
    """A whole number as every setting has it; it may have a sign.

    Raises ValueError in Kafka's words: it is none, or has more bits than its kind.
    """
    limit = 1 << _BITS[kind] - 1
    value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text) else None
    if value is None or not -limit <= value < limit:
        raise _UnfitError(f"Not a number of type {kind.name}")
    return value


def _number(
    kind: ConfigType, default: int | None, low: int, high: int, expects: str = ""
) -> Property:
    def parse(text: str) -> int:
        value = whole_number(kind, text)
        if value < low:
            raise _UnfitError(f"Value must be at least {low}")
        if value > high:
            raise _UnfitError(f"Value must be no more than {high}")
        return value

    return Property(kind, parse, default, expects or f"a whole number from {low} to {high}")


def _int(default: int | None, low: int, high: int = INT32_MAX, expects: str = "") -> Property:
    return _number(ConfigType.INT, default, low, high, expects)


def _long(default: int | None, low: int) -> Property:
    return _number(ConfigType.LONG, default, low, INT64_MAX)


def _double(default: float, low: float, high: float) -> Property:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high or math.isnan(value):
            raise ValueError(text)
        return value

    return Property(ConfigType.DOUBLE, parse, default, f"a number from {low:g} to {high:g}")


def _flag(default: bool) -> Property:
    words = {"true": True, "false": False}
    return Property(
        ConfigType.BOOLEAN, lambda text: words[text.strip().lower()], default, "true or false"
    )


def _one_of(default: str, *others: str) -> Property:
    words = {word: word for word in (default, *others)}
    *firsts, last = words
    expects = f"{', '.join(firsts)} or {last}" if firsts else last

    def parse(text: str) -> str:
        if text not in words:
            raise _UnfitError(f"String must be one of: {', '.join(words)}")
        return text

    return Property(ConfigType.STRING, parse, default, expects)


def split_list(text: str) -> list[str]:
    """The entries of a list as Kafka writes it, in order; without blanks and empty ones."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _list(default: str, pattern: str, expects: str) -> Property:
    """A comma-separated list whose entries match a pattern, none of them twice."""

    def parse(text: str) -> str:
        words = split_list(text)
        if not all(re.fullmatch(pattern, word) for word in words):
            raise ValueError(text)
        return ",".join(dict.fromkeys(words))

    return Property(ConfigType.LIST, parse, default, expects)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address may be in brackets. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(text)
    return host.strip("[]"), int(port)


def split_overrides(text: str) -> dict[str, int]:
    """The number of each host in a list of HOST:NUMBER; an IPv6 address has no brackets. Raises
    ValueError.
    """
    found = {}
    for entry in split_list(text):
        host, colon, number = entry.rpartition(":")
        if not colon or not host.strip() or not re.fullmatch(r"\s*[0-9]{1,10}\s*", number):
            raise ValueError(entry)
        found[host.strip()] = int(number)
        if found[host.strip()] > INT32_MAX:
            raise ValueError(entry)
    return found


def _overrides() -> Property:
    def parse(text: str) -> str:
        split_overrides(text)
        return text

    return Property(ConfigType.STRING, parse, "", "a comma-separated list of HOST:NUMBER")


def _secret() -> Property:
    """A text that is never shown."""
    return Property(ConfigType.PASSWORD, str, None, "a text")


def _text(expects: str) -> Property:
    return Property(ConfigType.STRING, str.strip, None, expects)


def _address() -> Property:
    def parse(text: str) -> str:
        split_address(text)
        return text.strip()

    return Property(ConfigType.STRING, parse, None, "HOST:PORT with a port from 0 to 65535")


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _authorizer() -> Property:
    words = {"": "", STANDARD_AUTHORIZER: STANDARD_AUTHORIZER}
    return Property(
        ConfigType.STRING,
        lambda text: words[text.strip()],
        "",
        f"empty or {STANDARD_AUTHORIZER}: no other authorizer runs in this broker",
    )


def _principals() -> Property:
    """Principals, parted by semicolons: a name from a certificate has commas in it."""

    def parse(text: str) -> str:
        for user in text.split(";"):
            kind, _, name = user.strip().partition(":")
            if user.strip() and not (kind and name):
                raise ValueError(user)
        return text

    return Property(ConfigType.STRING, parse, "", "principals as User:NAME, parted by semicolons")


def _policies() -> Property:
    policies = _list("delete", "delete|compact", "a comma-separated list of delete, compact")
    return policies._replace(is_dense=True)


def _replicas() -> Property:
    expects = "* or a comma-separated list of PARTITION:BROKER"
    return _list("", r"[0-9]+:[0-9]+|\*", expects)


def _about(
    table: Mapping[str, tuple[Property, str]],
    *,
    is_dynamic: bool = False,
    is_internal: bool = False,
) -> dict[str, Property]:
    return {
        name: entry._replace(about=about, is_dynamic=is_dynamic, is_internal=is_internal)
        for name, (entry, about) in table.items()
    }


_SEGMENT_BYTES = _int(
    1 << 30,
    SEGMENT_BYTES_MIN,
    expects=f"a whole number from {SEGMENT_BYTES_MIN} to {INT32_MAX}; a topic for tests may "
    "have less by internal.segment.bytes",
)


def _gzip_level() -> Property:
    number = _int(-1, -1, 9, "a whole number from 1 to 9, or -1")

    def parse(text: str) -> Any:
        level = number.parse(text)
        if level == 0:
            raise ValueError(text)
        return level

    return number._replace(parse=parse)


_COMPRESSION = {
    "compression.type": (
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The codec in which batches are stored; producer: unchanged.",
    ),
    "compression.gzip.level": (
        _gzip_level(),
        "Level of gzip, if compression.type is gzip; -1 is the codec's own.",
    ),
    "compression.lz4.level": (
        _int(9, 1, 17),
        "Level of lz4, if compression.type is lz4; every level uses the fast encoder here.",
    ),
    "compression.zstd.level": (
        _int(3, -131_072, 22),
        "Level of zstd, if compression.type is zstd.",
    ),
}
_REPLICAS = {
    "min.insync.replicas": (
        _int(1, 1),
        "Replicas that acks=all waits for, or all of them if there are fewer; there is one.",
    ),
    "unclean.leader.election.enable": (
        _flag(False),
        "Whether a replica that lags behind may lead; there is only one replica.",
    ),
}

_STORE_TYPE: Final = _one_of("PEM", "PKCS12", "JKS")

_DECOMPRESSED_BYTES: Final = _int(INT32_MAX - 8, 1, INT32_MAX - 8)
"""The default is the longest array of Java: no limit."""

TOPIC_PROPERTIES: Final[Mapping[str, Property]] = _about(
    {
        "cleanup.policy": (
            _policies(),
            "delete: old segments are removed. compact: the last record of each key stays. "
            "Neither: nothing is removed.",
        ),
        "delete.retention.ms": (
            _long(86_400_000, 0),
            "How long compaction keeps the record that deletes a key.",
        ),
        "errors.deadletterqueue.group.enable": (
            _flag(False),
            "Share groups may write records here that they could not process; there are none.",
        ),
        "file.delete.delay.ms": (
            _long(60_000, 0),
            "How long a file renamed to .deleted stays on the disk.",
        ),
        "flush.messages": (_long(INT64_MAX, 1), "Sync the log after this many records."),
        "flush.ms": (_long(INT64_MAX, 0), "Sync the log when a record is this old."),
        "follower.replication.throttled.replicas": (
            _replicas(),
            "Followers to slow down; there are none.",
        ),
        "index.interval.bytes": (_int(4096, 0), "Bytes of log between two entries of an index."),
        "leader.replication.throttled.replicas": (
            _replicas(),
            "Leaders to slow down; no replica fetches from them.",
        ),
        "local.retention.bytes": (
            _long(-2, -2),
            "Bytes of a log in tiered storage that are also kept here; -2: retention.bytes.",
        ),
        "local.retention.ms": (
            _long(-2, -2),
            "How long records in tiered storage are kept here too; -2: retention.ms.",
        ),
        "max.compaction.lag.ms": (
            _long(INT64_MAX, 1),
            "A record is compacted at the latest when it is this old.",
        ),
        "max.decompressed.message.bytes": (
            _DECOMPRESSED_BYTES,
            "The largest record of a compressed batch, after decompression, that is accepted.",
        ),
        "max.message.bytes": (_int(1_048_588, 0), "The largest batch that is accepted."),
        "message.timestamp.after.max.ms": (
            _long(HOUR_MS, 0),
            "How far a record's time may be ahead of the broker's.",
        ),
        "message.timestamp.before.max.ms": (
            _long(INT64_MAX, 0),
            "How far a record's time may be behind the broker's.",
        ),
        "message.timestamp.type": (
            _one_of("CreateTime", "LogAppendTime"),
            "A record's time: the producer's, or that of the append.",
        ),
        "min.cleanable.dirty.ratio": (
            _double(0.5, 0, 1),
            "Compact when this part of the log has not been compacted yet.",
        ),
        "min.compaction.lag.ms": (
            _long(0, 0),
            "A record is not removed by compaction before it is this old.",
        ),
        "preallocate": (_flag(False), "Reserve the disk space of a segment when it is created."),
        "remote.copy.lag.bytes": (
            _long(-1, -1),
            "How far tiered storage may be behind this log, in bytes; -1: local.retention.bytes.",
        ),
        "remote.copy.lag.ms": (
            _long(0, -1),
            "How far tiered storage may be behind this log, in time; -1: local.retention.ms.",
        ),
        "remote.log.copy.disable": (_flag(False), "Copy nothing more to tiered storage."),
        "remote.log.delete.on.disable": (
            _flag(False),
            "Delete the records in tiered storage when it is switched off.",
        ),
        "remote.storage.enable": (
            Property(ConfigType.BOOLEAN, {"false": False}.__getitem__, False, "false"),
            "Tiered storage, which this broker does not have.",
        ),
        "retention.bytes": (
            _long(-1, -1),
            "The oldest segments are removed while the log is larger than this; -1: no limit.",
        ),
        "retention.ms": (
            _long(604_800_000, -1),
            "A segment is removed when its newest record is older than this; -1: never.",
        ),
        "segment.bytes": (_SEGMENT_BYTES, "A new segment begins when one is this large."),
        "segment.index.bytes": (
            _int(10 << 20, 4),
            "A new segment begins when an index is this large.",
        ),
        "segment.jitter.ms": (
            _long(0, 0),
            "The most by which segment.ms is reduced, at random, so that logs do not roll at once.",
        ),
        "segment.ms": (_long(604_800_000, 1), "A new segment begins when one is this old."),
        **_COMPRESSION,
        **_REPLICAS,
    }
) | _about(
    {"internal.segment.bytes": (_int(None, 1), "segment.bytes, for tests: any size.")},
    is_internal=True,
)
"""Topic settings; those not internal are the ones that DescribeConfigs lists."""

STORE_PROPERTIES: Final[dict[str, Property]] = _about(
    {
        "ssl.key.password": (_secret(), "The password of an encrypted private key."),
        "ssl.keystore.certificate.chain": (
            _secret(),
            "The certificate chain as PEM, instead of a file.",
        ),
        "ssl.keystore.key": (_secret(), "The private key as PEM, instead of a file."),
        "ssl.keystore.location": (
            _text("the path of a file of PEM or PKCS12"),
            "A file with the certificate chain and the private key.",
        ),
        "ssl.keystore.password": (_secret(), "The password of a keystore of PKCS12."),
        "ssl.keystore.type": (_STORE_TYPE, "Without effect: the content of the file decides."),
        "ssl.truststore.certificates": (
            _secret(),
            "The issuers of client certificates as PEM, instead of a file.",
        ),
        "ssl.truststore.location": (
            _text("the path of a file of PEM or PKCS12"),
            "A file with the issuers of client certificates.",
        ),
        "ssl.truststore.password": (_secret(), "The password of a truststore of PKCS12."),
        "ssl.truststore.type": (_STORE_TYPE, "Without effect: the content of the file decides."),
    },
    is_dynamic=True,
)
"""The certificates of listeners. AlterConfigs changes those of one listener, which it names."""

BROKER_PROPERTIES: Final[Mapping[str, Property]] = (
    STORE_PROPERTIES
    | _about(
        {
            "advertised.listeners": (
                Property(ConfigType.LIST, str, None, "a list of NAME://HOST:PORT"),
                "The addresses that clients of each listener get, if not the listener's own.",
            ),
            "authorizer.class.name": (
                _authorizer(),
                "Kafka's StandardAuthorizer: access control lists decide. Empty: any client may do "
                "everything.",
            ),
            "auto.create.topics.enable": (_flag(True), "Create a topic when a client asks for it."),
            "connection.failed.authentication.delay.ms": (
                _int(100, 0),
                "How long a client that failed to authenticate waits for the answer.",
            ),
            "connections.max.idle.ms": (
                _long(600_000, INT64_MIN),
                "A connection without progress for this time is closed; negative: never.",
            ),
            "connections.max.reauth.ms": (
                _long(0, INT64_MIN),
                "How long an authentication is valid; 0: as long as the connection.",
            ),
            "controller.quota.window.num": (
                _int(11, 1),
                "Number of samples; a client may use the partitions of all of them at once.",
            ),
            "controller.quota.window.size.seconds": (
                _int(1, 1),
                "The time of each of these samples.",
            ),
            "default.replication.factor": (
                _int(1, 1, 1),
                "Replicas of a topic; only 1 is possible.",
            ),
            "durability": (
                _one_of("commit", "process", "always"),
                "What survives a power failure: committed transactions and prepared ones, nothing "
                "of the last moments, or every acks=all answer. txn's own.",
            ),
            "early.start.listeners": (
                Property(ConfigType.LIST, str, None, "a comma-separated list of listeners"),
                "Without effect: every listener starts once all access control lists are known.",
            ),
            "group.consumer.assignors": (
                _list("uniform,range", "uniform|range", "a comma-separated list of uniform, range"),
                "The assignors of consumer groups; the first one serves members that name none.",
            ),
            "group.consumer.heartbeat.interval.ms": (
                _int(5_000, 1),
                "How often the members of a consumer group send heartbeats.",
            ),
            "group.consumer.max.assignment.interval.ms": (
                _int(15_000, 0),
                "The longest consumer.assignment.interval.ms that counts for a group.",
            ),
            "group.consumer.max.heartbeat.interval.ms": (
                _int(15_000, 1),
                "The longest consumer.heartbeat.interval.ms that counts for a group.",
            ),
            "group.consumer.max.session.timeout.ms": (
                _int(60_000, 1),
                "The longest consumer.session.timeout.ms that counts for a group.",
            ),
            "group.consumer.max.size": (
                _int(INT32_MAX, 1),
                "The most members of one group of the consumer protocol.",
            ),
            "group.consumer.migration.policy": (
                _one_of("bidirectional", "upgrade", "downgrade", "disabled"),
                "Whether a group with members may change from the classic protocol to the consumer "
                "protocol (upgrade), and back (downgrade). An empty group always may.",
            ),
            "group.consumer.min.assignment.interval.ms": (
                _int(0, 0),
                "The shortest consumer.assignment.interval.ms that counts for a group.",
            ),
            "group.consumer.min.heartbeat.interval.ms": (
                _int(5_000, 1),
                "The shortest consumer.heartbeat.interval.ms that counts for a group.",
            ),
            "group.consumer.min.session.timeout.ms": (
                _int(45_000, 1),
                "The shortest consumer.session.timeout.ms that counts for a group.",
            ),
            "group.consumer.session.timeout.ms": (
                _int(45_000, 1),
                "How long a member of a consumer group may be silent before it is removed.",
            ),
            "group.initial.rebalance.delay.ms": (
                _int(0, 0),
                "How long a new group waits for more members.",
            ),
            "group.max.session.timeout.ms": (
                _int(1_800_000, 1),
                "The longest session a member of a group may ask for.",
            ),
            "group.max.size": (_int(INT32_MAX, 1), "The most members of one group."),
            "group.min.session.timeout.ms": (
                _int(6_000, 1),
                "The shortest session a member of a group may ask for.",
            ),
            "inter.broker.listener.name": (
                Property(ConfigType.STRING, str.strip, None, "the name of a listener"),
                "The listener that other brokers use.",
            ),
            "listener.security.protocol.map": (
                Property(ConfigType.STRING, str, SECURITY_PROTOCOLS, "a list of NAME:PROTOCOL"),
                "The security protocol of each listener.",
            ),
            "listeners": (
                Property(ConfigType.LIST, str, None, "a list of NAME://HOST:PORT"),
                "The sockets to listen on; without a host, every address.",
            ),
            "log.cleaner.enable": (_flag(True), "Compact topics with cleanup.policy=compact."),
            "log.flush.offset.checkpoint.interval.ms": (
                _int(60_000, 0),
                "How often the recovery points are written.",
            ),
            "log.flush.scheduler.interval.ms": (
                _long(INT64_MAX, 1),
                "flush.ms of topics, when log.flush.interval.ms is not set.",
            ),
            "log.flush.start.offset.checkpoint.interval.ms": (
                _int(60_000, 0),
                "How often the log start offsets are written.",
            ),
            "log.retention.check.interval.ms": (
                _long(300_000, 1),
                "How often retention is applied to the logs.",
            ),
            "log.retention.hours": (
                _int(168, -1),
                "retention.ms of topics in hours, when neither minutes nor ms are set.",
            ),
            "log.retention.minutes": (
                _int(None, -1),
                "retention.ms of topics in minutes, when ms is not set.",
            ),
            "log.roll.hours": (_int(168, 1), "segment.ms of topics in hours, when ms is not set."),
            "log.roll.jitter.hours": (
                _int(0, 0),
                "segment.jitter.ms of topics in hours, when ms is not set.",
            ),
            "metrics.allow.remote": (
                _flag(False),
                "Whether metrics may be served on an address that other machines reach. txn's own.",
            ),
            "metrics.group.partitions.max": (
                _int(1000, 0, 1_000_000),
                "The most committed offsets of groups whose lag is measured and named. txn's own.",
            ),
            "metrics.listener": (
                _address(),
                "The address of GET /metrics, /healthz and /readyz; none by default. txn's own.",
            ),
            "node.id": (_int(1, 0), "This node's number."),
            "num.network.threads": (_int(2, 1, 256), "Threads that serve connections."),
            "num.partitions": (
                _int(1, 1, 100_000),
                "Partitions of a topic that is created without a number.",
            ),
            "offset.metadata.max.bytes": (
                _int(4096, 0),
                "The longest note beside a committed offset.",
            ),
            "offsets.retention.check.interval.ms": (
                _long(600_000, 1),
                "How often expired committed offsets are removed.",
            ),
            "offsets.retention.minutes": (
                _int(10_080, 1),
                "How long the offsets of a group without members are kept.",
            ),
            "offsets.topic.num.partitions": (
                _int(50, 1, 10_000),
                "Partitions of __consumer_offsets.",
            ),
            "offsets.topic.replication.factor": (
                _number(ConfigType.SHORT, 1, 1, 1),
                "Replicas of __consumer_offsets; only 1 is possible.",
            ),
            "offsets.topic.segment.bytes": (
                _int(100 << 20, 1),
                "segment.bytes of __consumer_offsets, when it is created.",
            ),
            "replica.high.watermark.checkpoint.interval.ms": (
                _long(5_000, 1),
                "Without effect: the high watermarks are written with the recovery points.",
            ),
            "max.partitions": (
                _int(1_000_000, 1),
                "The most partitions this broker takes, of all topics together: each has its "
                "place in memory and in every start. txn's own.",
            ),
            "max.incremental.fetch.session.cache.slots": (
                _int(1_000, 0),
                "Fetch sessions at a time; consumers beyond them name all partitions each time.",
            ),
            "max.request.partition.size.limit": (
                _int(2000, 1),
                "The most partitions in one answer to DescribeTopicPartitions.",
            ),
            "quota.window.num": (
                _int(11, 1),
                "Number of samples of a client's rate.",
            ),
            "quota.window.size.seconds": (_int(1, 1), "The time of each of these samples."),
            "queued.max.request.bytes": (
                _long(-1, INT64_MIN),
                "While requests on their way in, and answers on their way out, have as many bytes, "
                "connections wait with others; at least socket.request.max.bytes, or -1: no limit.",
            ),
            "sasl.enabled.mechanisms": (
                _list("", r"[A-Z0-9_-]+", "a comma-separated list of SASL mechanisms"),
                "The mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
                "OAUTHBEARER. Kafka's default, GSSAPI, is not spoken here.",
            ),
            "sasl.mechanism.inter.broker.protocol": (
                Property(ConfigType.STRING, str, "GSSAPI", "the name of a mechanism"),
                "Without effect: the broker connects to no other.",
            ),
            "sasl.oauthbearer.allow.unverified.audience": (
                _flag(False),
                "Whether a token may be for any audience, whatever audience is expected.",
            ),
            "sasl.oauthbearer.allow.unverified.issuer": (
                _flag(False),
                "Whether a token may be of any issuer whose key is known, whatever is expected.",
            ),
            "sasl.oauthbearer.clock.skew.seconds": (
                _int(30, 0),
                "How far the clock of a token's issuer may be off.",
            ),
            "sasl.oauthbearer.expected.audience": (
                Property(ConfigType.LIST, str, "", "a list of audiences"),
                "A token has to name one of these audiences; by default it must not name any.",
            ),
            "sasl.oauthbearer.expected.issuer": (
                Property(ConfigType.STRING, str, None, "the name of an issuer"),
                "The issuer of every token; by default any issuer whose key is known.",
            ),
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": (
                _long(3_600_000, 1),
                "How long the issuer's keys are used before they are fetched again.",
            ),
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (
                _long(10_000, 1),
                "The shortest time between two fetches for tokens with an unknown key.",
            ),
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (
                _long(100, 0),
                "Without effect: a failed fetch is repeated when a client needs it.",
            ),
            "sasl.oauthbearer.jwks.endpoint.url": (
                Property(ConfigType.STRING, str, None, "a URL of https or file"),
                "The issuer's keys, a JSON Web Key Set.",
            ),
            "sasl.oauthbearer.scope.claim.name": (
                Property(ConfigType.STRING, str, "scope", "the name of a claim"),
                "The claim of a token that has its scopes.",
            ),
            "sasl.oauthbearer.sub.claim.name": (
                Property(ConfigType.STRING, str, "sub", "the name of a claim"),
                "The claim of a token that names the principal.",
            ),
            "sasl.server.max.receive.size": (
                _int(524_288, 1),
                "The largest request of a client that has not authenticated.",
            ),
            "socket.request.max.bytes": (
                _int(104_857_600, 1),
                "The largest request that is accepted.",
            ),
            "ssl.cipher.suites": (
                _list("", "|".join(CIPHER_SUITES), f"a list of {', '.join(CIPHER_SUITES)}"),
                "The cipher suites of TLS listeners; empty: all.",
            ),
            "ssl.allow.dn.changes": (
                _flag(False),
                "Whether an alteration may give a listener a certificate of another subject.",
            ),
            "ssl.allow.san.changes": (
                _flag(False),
                "Whether an alteration may give a listener a certificate without names of before.",
            ),
            "ssl.client.auth": (
                _one_of("none", "requested", "required"),
                "Whether clients are asked for a certificate, or refused without one.",
            ),
            "ssl.enabled.protocols": (
                _list("TLSv1.2,TLSv1.3", r"TLSv1\.[23]", "a list of TLSv1.2, TLSv1.3"),
                "The versions of TLS.",
            ),
            "ssl.principal.mapping.rules": (
                Property(ConfigType.STRING, str, "DEFAULT", "a list of rules"),
                "Rules that make a principal of a client certificate's subject.",
            ),
            "transaction.max.timeout.ms": (
                _int(900_000, 1),
                "The longest timeout a transaction may ask for.",
            ),
            "transaction.state.log.min.isr": (
                _int(1, 1),
                "min.insync.replicas of __transaction_state.",
            ),
            "transaction.state.log.num.partitions": (
                _int(50, 1, 10_000),
                "Partitions of __transaction_state.",
            ),
            "transaction.state.log.replication.factor": (
                _number(ConfigType.SHORT, 1, 1, 1),
                "Replicas of __transaction_state; only 1 is possible.",
            ),
            "transaction.state.log.segment.bytes": (
                _int(100 << 20, 1),
                "segment.bytes of __transaction_state, when it is created.",
            ),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
                _int(10_000, 1),
                "Without effect: a transaction is aborted at the moment of its timeout.",
            ),
            "transaction.remove.expired.transaction.cleanup.interval.ms": (
                _int(3_600_000, 1),
                "How often expired transactional ids are removed.",
            ),
            "transaction.two.phase.commit.enable": (
                _flag(False),
                "Whether producers may ask for transactions that never time out, for another "
                "system to decide on. They survive a power failure, except if durability=process.",
            ),
            "transactional.id.expiration.ms": (
                _int(604_800_000, 1),
                "How long an idle transactional id is remembered.",
            ),
        }
    )
    | _about(
        {
            "log.cleaner.backoff.ms": (
                _long(15_000, 0),
                "How long compaction waits when there is nothing to compact.",
            ),
            "log.cleaner.dedupe.buffer.size": (
                _long(128 << 20, SEGMENT_BYTES_MIN + 1),
                "Memory for the keys of logs being compacted, of all threads together.",
            ),
            "log.cleaner.delete.retention.ms": (
                _long(86_400_000, 0),
                "delete.retention.ms of topics.",
            ),
            "log.cleaner.io.buffer.load.factor": (
                _double(0.9, 0, 1),
                "How full the memory for keys may get.",
            ),
            "log.cleaner.io.buffer.size": (
                _int(512 << 10, 0),
                "Without effect: compaction sizes its buffers itself.",
            ),
            "log.cleaner.io.max.bytes.per.second": (
                _double(DOUBLE_MAX, 0, DOUBLE_MAX),
                "Compaction reads and writes at most this much.",
            ),
            "log.cleaner.max.compaction.lag.ms": (
                _long(INT64_MAX, 1),
                "max.compaction.lag.ms of topics.",
            ),
            "log.cleaner.min.cleanable.ratio": (
                _double(0.5, 0, 1),
                "min.cleanable.dirty.ratio of topics.",
            ),
            "log.cleaner.min.compaction.lag.ms": (
                _long(0, 0),
                "min.compaction.lag.ms of topics.",
            ),
            "log.cleaner.threads": (_int(1, 0), "Threads that compact."),
            "log.cleanup.policy": (_policies(), "cleanup.policy of topics."),
            "log.flush.interval.messages": (_long(INT64_MAX, 1), "flush.messages of topics."),
            "log.flush.interval.ms": (_long(None, 0), "flush.ms of topics."),
            "log.index.interval.bytes": (_int(4096, 0), "index.interval.bytes of topics."),
            "log.index.size.max.bytes": (_int(10 << 20, 4), "segment.index.bytes of topics."),
            "log.local.retention.bytes": (_long(-2, -2), "local.retention.bytes of topics."),
            "log.local.retention.ms": (_long(-2, -2), "local.retention.ms of topics."),
            "log.remote.copy.lag.bytes": (_long(-1, -1), "remote.copy.lag.bytes of topics."),
            "log.remote.copy.lag.ms": (_long(0, -1), "remote.copy.lag.ms of topics."),
            "log.message.timestamp.after.max.ms": (
                _long(HOUR_MS, 0),
                "message.timestamp.after.max.ms of topics.",
            ),
            "log.message.timestamp.before.max.ms": (
                _long(INT64_MAX, 0),
                "message.timestamp.before.max.ms of topics.",
            ),
            "log.message.timestamp.type": (
                _one_of("CreateTime", "LogAppendTime"),
                "message.timestamp.type of topics.",
            ),
            "log.preallocate": (_flag(False), "preallocate of topics."),
            "log.retention.bytes": (_long(-1, -1), "retention.bytes of topics."),
            "log.retention.ms": (_long(None, -1), "retention.ms of topics."),
            "log.roll.jitter.ms": (_long(None, 0), "segment.jitter.ms of topics."),
            "log.roll.ms": (_long(None, 1), "segment.ms of topics."),
            "log.segment.bytes": (_SEGMENT_BYTES, "segment.bytes of topics."),
            "log.segment.delete.delay.ms": (_long(60_000, 0), "file.delete.delay.ms of topics."),
            "max.connection.creation.rate": (
                _int(INT32_MAX, 0),
                "The most new connections a second; further ones wait. Also of one listener.",
            ),
            "max.connections": (
                _int(INT32_MAX, 0),
                "The most connections at a time; further ones wait. Also of one listener.",
            ),
            "max.connections.per.ip": (
                _int(INT32_MAX, 0),
                "The most connections of one address at a time; further ones are closed.",
            ),
            "max.connections.per.ip.overrides": (
                _overrides(),
                "HOST:NUMBER of single addresses that may have more or fewer.",
            ),
            "max.decompressed.message.bytes": (
                _DECOMPRESSED_BYTES,
                "max.decompressed.message.bytes of topics.",
            ),
            "message.max.bytes": (_int(1_048_588, 0), "max.message.bytes of topics."),
            "num.recovery.threads.per.data.dir": (
                _int(2, 1),
                "Threads that recover logs at the start and close them at the end.",
            ),
            "producer.id.expiration.ms": (
                _int(86_400_000, 1),
                "How long a partition remembers an idle producer.",
            ),
            **_COMPRESSION,
            **_REPLICAS,
        },
        is_dynamic=True,
    )
    | _about(
        {
            name: (
                _long(INT64_MAX, 0),
                "Kept for tools that throttle; there is nobody to slow down.",
            )
            for name in (
                "follower.replication.throttled.rate",
                "leader.replication.throttled.rate",
                "replica.alter.log.dirs.io.max.bytes.per.second",
            )
        },
        is_dynamic=True,
        is_internal=True,
    )
    | _about(
        {
            "group.consumer.assignment.interval.ms": (
                _int(1_000, 0),
                "The shortest time between two assignments of a consumer group.",
            ),
        },
        is_dynamic=True,
    )
    | _about(
        {
            "allow.everyone.if.no.acl.found": (
                _flag(False),
                "Everything is allowed on a resource that no access control list names.",
            ),
            "group.consumer.regex.refresh.interval.ms": (
                _int(600_000, 10_000),
                "How often the topics of subscribed patterns are looked up anew.",
            ),
            "log.initial.task.delay.ms": (
                _long(30_000, 0),
                "How long after the start the first look for what may go comes, at the latest.",
            ),
            "producer.id.expiration.check.interval.ms": (
                _int(600_000, 1),
                "How often partitions are looked through for idle producers.",
            ),
            "super.users": (_principals(), "Principals that may do everything."),
        },
        is_internal=True,
    )
)
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


def _broker_property(name: str) -> Property | None:
    if name.startswith(LISTENER_PREFIX):
        return listener_property(name)
    return BROKER_PROPERTIES.get(name)


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

_UNIT_MS: Final[Mapping[str, int]] = {
    "log.retention.hours": HOUR_MS,
    "log.retention.minutes": MINUTE_MS,
    "log.roll.hours": HOUR_MS,
    "log.roll.jitter.hours": HOUR_MS,
}
"""Broker settings that are not in the milliseconds of their topic setting."""


def parse_property(table: Mapping[str, Property], kind: str, name: str, text: str) -> Any:
    """Read one setting's value.

    Args:
        table: `BROKER_PROPERTIES`, `TOPIC_PROPERTIES` or `GROUP_PROPERTIES`.
        kind: "broker", "topic" or "group", for the message.
        name: Kafka's property name.
        text: The value as text.

    Raises:
        ConfigError: the name is unknown, or the value does not fit.
    """
    entry = known_property(table, kind, name)
    try:
        if entry.is_dense and text.strip():
            _require_dense(text)
        return entry.parse(text)
    except (ValueError, KeyError) as error:
        said, fault = f"{kind} property {name} cannot be {text!r}", f"it takes {entry.expects}"
        if kind != "broker":  # it is told to clients, whose scripts know Kafka's words
            said = f"Invalid value {text} for configuration {name}"
            if isinstance(error, _UnfitError):
                is_word = entry.kind is ConfigType.STRING
                fault = str(error) if is_word else f"{error}; {fault}"
        raise ConfigError(f"{said}: {fault}", property=name, value=text) from None


def _require_dense(text: str) -> None:
    """Raise ValueError for an empty entry of a list."""
    if not all(part.strip() for part in text.split(",")):
        raise ValueError(text)


def known_property(table: Mapping[str, Property], kind: str, name: str) -> Property:
    """Find a property; raises ConfigError, with a name that is close if there is one."""
    entry = _broker_property(name) if table is BROKER_PROPERTIES else table.get(name)
    if entry is None:
        from txn.hints import did_you_mean  # only a mistake needs it

        said = f"unknown {kind} property {name!r}"
        if kind != "broker":
            said = f"Unknown {kind} config name: {name}"
        raise ConfigError(f"{said}{did_you_mean(name, table)}", property=name)
    return entry


def is_broker_property(name: str) -> bool:
    """Return True if a broker has a property of this name, perhaps one of a listener."""
    return _broker_property(name) is not None


def as_text(value: object) -> str:
    """A parsed value as Kafka writes it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(value).replace("e+", "E").replace("e", "E")
        case _:
            return str(value)


class BrokerSettings:
    """The broker's settings, in layers: a layer counts for the names that the layers before it
    lack.

    `changed` holds the values altered for this broker alone while it ran, `changed_everywhere`
    those altered for every broker of the cluster. `given` holds the values of the start.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.changed: dict[str, Any] = {}
        self.changed_everywhere: dict[str, Any] = {}
        self.kept: Mapping[str, str] = {}
        """All values stored for this broker alone, with those that count for nothing here."""
        self.kept_everywhere: Mapping[str, str] = {}
        """All values stored for every broker."""
        self._topic_defaults: dict[str, Any] | None = None
        self._when_changed: list[Callable[[], object]] = []
        self.given = {
            name: parse_property(BROKER_PROPERTIES, "broker", name, as_text(value))
            for name, value in (given or {}).items()
        }
        queued, largest = self["queued.max.request.bytes"], self["socket.request.max.bytes"]
        if 0 < queued < largest:
            raise ConfigError(
                f"broker property queued.max.request.bytes cannot be {queued}: it takes at least "
                f"socket.request.max.bytes, {largest}, or -1 for no limit",
                property="queued.max.request.bytes",
                value=queued,
            )
        self._require_authorizer()
        self._require_delay_below_idle()
        self._require_reachable()

    def _require_delay_below_idle(self) -> None:
        """Refuse a delay that outlasts the connection."""
        name = "connection.failed.authentication.delay.ms"
        delay_ms, idle_ms = self[name], self["connections.max.idle.ms"]
        if 0 <= idle_ms <= delay_ms:
            raise ConfigError(
                f"broker property {name} cannot be {delay_ms}: it takes less than "
                f"connections.max.idle.ms, {idle_ms}",
                property=name,
                value=delay_ms,
            )

    def _require_reachable(self) -> None:
        """Refuse limits under which no client can connect."""
        if not (self["max.connections.per.ip"] or self["max.connections.per.ip.overrides"]):
            raise ConfigError(
                "broker property max.connections.per.ip is 0, and nobody can connect: give "
                "max.connections.per.ip.overrides, or another number",
                property="max.connections.per.ip",
            )

    def _require_authorizer(self) -> None:
        """Refuse super users where everybody is one."""
        if self["super.users"] and not self["authorizer.class.name"]:
            raise ConfigError(
                "broker property super.users stands without authorizer.class.name, and everybody "
                f"may do everything then: give authorizer.class.name={STANDARD_AUTHORIZER}",
                property="super.users",
            )

    def change(self, *, here: Mapping[str, str], everywhere: Mapping[str, str]) -> None:
        """Replace the altered values, for this broker and for every broker.

        Another broker may have stored settings that are unknown, may not change or do not fit; they
        count for nothing.
        """
        before = self.changed, self.changed_everywhere
        self.changed = _dynamic(here)
        self.changed_everywhere = _dynamic(everywhere)
        self.kept, self.kept_everywhere = dict(here), dict(everywhere)
        if (self.changed, self.changed_everywhere) != before:
            self._topic_defaults = None
        for call in self._when_changed:
            call()

    def when_changed(self, call: Callable[[], object]) -> None:
        """Make a call after each change from now on; it raises nothing."""
        self._when_changed.append(call)

    def listener_settings(self) -> list[tuple[str, str]]:
        """The names of listeners with settings of their own, as they are given, and the settings.

        A setting has its mechanism in front of it.
        """
        names = (name for name in self.given if name.startswith(LISTENER_PREFIX))
        parts = (name.removeprefix(LISTENER_PREFIX).partition(".") for name in names)
        return sorted((listener, setting) for listener, _, setting in parts)

    def topic_defaults(self) -> Mapping[str, Any]:
        """The settings of a topic that has none of its own; worked out once between changes.

        A thousand partitions are opened in milliseconds, and each asks.
        """
        if self._topic_defaults is None:
            self._topic_defaults = {
                name: topic_default(name, self)
                for name, entry in TOPIC_PROPERTIES.items()
                if not entry.is_internal
            }
        return self._topic_defaults

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Any:
        """The value of a setting for a listener, and for one of its SASL mechanisms."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for own in (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}"):
            for layer in (self.changed, self.changed_everywhere, self.given):
                if own in layer:
                    return layer[own]
        return None if name not in BROKER_PROPERTIES else self[name]

    def __getitem__(self, name: str) -> Any:
        for layer in (self.changed, self.changed_everywhere, self.given):
            if name in layer:
                return layer[name]
        return BROKER_PROPERTIES[name].default


def fits(entry: Property, text: str) -> bool:
    """Return True if a property can have a value."""
    try:
        entry.parse(text)
    except (ValueError, KeyError):
        return False
    return True


def _dynamic(settings: Mapping[str, str]) -> dict[str, Any]:
    entries = {name: _broker_property(name) for name in settings}
    return {
        name: entry.parse(settings[name])
        for name, entry in entries.items()
        if entry is not None and entry.is_dynamic and fits(entry, settings[name])
    }


def parse_topic_settings(texts: Mapping[str, str | None]) -> dict[str, str]:
    """Check a topic's settings; return them as they are.

    Raises:
        ConfigError: a name is unknown, a value is null or does not fit, or two contradict.
    """
    settings = {name: text for name, text in texts.items() if text is not None}
    nulls = [name for name in texts if name not in settings]
    if nulls:
        said = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise ConfigError(said, property=nulls[0])
    parsed = {
        name: parse_property(TOPIC_PROPERTIES, "topic", name, text)
        for name, text in settings.items()
    }
    low = parsed.get("min.compaction.lag.ms", 0)
    high = parsed.get("max.compaction.lag.ms", INT64_MAX)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms "
            f"({high})",
            property="min.compaction.lag.ms",
        )
    return settings


def topic_default(name: str, broker: BrokerSettings) -> Any:
    """The value of a topic setting that the topic leaves out."""
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker[synonym]
        if value is not None:
            return value * _UNIT_MS[synonym] if synonym in _UNIT_MS and value > 0 else value
    return TOPIC_PROPERTIES[name].default


def topic_setting(name: str, topic: Mapping[str, str], broker: BrokerSettings) -> Any:
    """The value in force: the topic's own, else the broker's default for topics.

    A stored value that does not fit, as another broker may have written it, counts for nothing.
    """
    if name == "segment.bytes" and "internal.segment.bytes" in topic:
        name = "internal.segment.bytes"
    if name in topic and fits(TOPIC_PROPERTIES[name], topic[name]):
        return TOPIC_PROPERTIES[name].parse(topic[name])
    return topic_default(name, broker)


def topic_settings(topic: Mapping[str, str], broker: BrokerSettings) -> dict[str, Any]:
    """Every topic setting's value in force, by Kafka's names."""
    settings = dict(broker.topic_defaults())
    for name in topic.keys() & settings.keys():
        settings[name] = topic_setting(name, topic, broker)
    if "internal.segment.bytes" in topic:
        settings["segment.bytes"] = topic_setting("segment.bytes", topic, broker)
    return settings
