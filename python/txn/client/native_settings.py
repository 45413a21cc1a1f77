"""The settings of clients on the native engine, by Kafka's names.

A property that this engine does not have is refused, and never passed over: the message says why,
and what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from txn.client.settings import BYTES, PARTITIONER, PROPERTIES
from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client_names import READ


@dataclass(frozen=True)
class NativeProperties:
    """The properties that a kind of client has.

    Attributes:
        numbers: Those with a number: the argument of the client in `_core`, and the default.
        from_one: Those of them that cannot be 0.
        second_names: Other names of properties.
        fixed: Others that are read, or that say what this engine does in any case.
        others: Properties that this client does not have: why, and what to do.
    """

    numbers: Mapping[str, tuple[str, int]]
    from_one: frozenset[str]
    second_names: Mapping[str, str]
    fixed: frozenset[str]
    others: Mapping[str, str]

    @property
    def known(self) -> frozenset[str]:
        """The names of all properties that the client has."""
        return READ.union(self.numbers, self.second_names, self.fixed)

    def require_known(self, settings: Mapping[str, object], whose: str) -> None:
        """Refuse a property that only the other engine has. Raises ConfigError."""
        known = self.known
        for name in settings:
            if name not in known:
                raise self._unknown(name, whose, known)
        if str(settings.get("retries", FOREVER)) != str(FOREVER):
            raise ConfigError(
                f"{whose} has retries={settings['retries']}, and the native engine repeats a "
                "request until delivery.timeout.ms is over. Set that, and leave retries out, "
                f"{OR_LIBRDKAFKA}",
                property="retries",
            )
        for name in ("sasl.mechanism", "sasl.mechanisms"):
            if str(settings.get(name)).upper() == "GSSAPI":
                raise ConfigError(
                    f"{whose} has {name}=GSSAPI, which the native engine does not have. Log in by "
                    f"another mechanism, {OR_LIBRDKAFKA}; that needs a librdkafka built with it",
                    property=name,
                )

    def _unknown(self, name: str, whose: str, known: frozenset[str]) -> ConfigError:
        if name in self.others:
            why = f"has {name}, which the native engine does not have: {self.others[name]}, "
            return ConfigError(f"{whose} {why}{OR_LIBRDKAFKA}", property=name)
        if name.endswith(("serializer", "deserializer")):
            return ConfigError(f"{whose} knows no {name}: {BYTES}", property=name)
        if name in PROPERTIES:
            why = f"has {name}, which the native engine does not have. Leave it out, "
            return ConfigError(f"{whose} {why}{OR_LIBRDKAFKA}", property=name)
        return ConfigError(
            f"{whose} knows no property {name!r}{did_you_mean(name, known)}; more of librdkafka's "
            "are known with engine='confluent-kafka'",
            property=name,
        )

    def by_first_names(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return settings without second names of properties."""
        return {self.second_names.get(name, name): value for name, value in settings.items()}

    def numbers_of(self, given: Mapping[str, object]) -> dict[str, int]:
        """Return the arguments of the client that are numbers. Raises ConfigError."""
        return {
            argument: self._number(name, given.get(name, default))
            for name, (argument, default) in self.numbers.items()
        }

    def _number(self, name: str, value: object) -> int:
        least = 1 if name in self.from_one else 0
        try:
            number = int(float(str(value)))
        except (ValueError, OverflowError):
            number = -1
        if not least <= number < 2**31:
            raise ConfigError(f"{name}={value} is no whole number from {least} on", property=name)
        return number


OR_LIBRDKAFKA: Final = "or set engine='confluent-kafka'"

FOREVER: Final = 2**31 - 1
"""The value of `retries` that says what the engine does: it repeats without a count."""

OF_BOTH: Final[Mapping[str, str]] = {
    "logger": "its lines go to the logger txn.client of `logging`. Leave it out",
    "stats_cb": "it has no statistics. Leave it out; txn.Processor has metrics",
    "statistics.interval.ms": "it has no statistics. Leave it out; txn.Processor has metrics",
    "throttle_cb": "a broker over its quota answers later by itself. Leave it out",
}

OF_CONSUMERS: Final = dict.fromkeys(
    """
    auto.commit.interval.ms auto.offset.reset check.crcs client.rack default.api.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.batch.bytes
    fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes fetch.wait.max.ms
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    isolation.level max.partition.fetch.bytes max.poll.interval.ms on_commit
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms
    """.split(),
    "it is a property of consumers. Leave it out",
)

OF_PRODUCERS: Final = dict.fromkeys(
    """
    batch.num.messages batch.size buffer.memory compression.codec compression.level
    compression.type delivery.report.only.error delivery.timeout.ms enable.idempotence linger.ms
    max.in.flight.requests.per.connection max.request.size message.max.bytes message.timeout.ms
    on_delivery partitioner queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms request.required.acks retries transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id transactional.timeout.ms
    """.split(),
    "it is a property of producers. Leave it out",
)

PRODUCER: Final = NativeProperties(
    numbers={
        "transaction.timeout.ms": ("transaction_timeout_ms", 60_000),
        "linger.ms": ("linger_ms", 5),
        "batch.size": ("batch_size", 1_000_000),
        "buffer.memory": ("buffer_memory", 256 << 20),
        "message.max.bytes": ("max_request_size", 1_000_000),
        "delivery.timeout.ms": ("delivery_timeout_ms", 120_000),
        "request.timeout.ms": ("request_timeout_ms", 30_000),
        "max.in.flight.requests.per.connection": ("max_in_flight", 5),
        "retry.backoff.ms": ("retry_backoff_ms", 20),
        "metadata.max.age.ms": ("metadata_max_age_ms", 300_000),
        "topic.metadata.propagation.max.ms": ("unknown_topic_max_ms", 10_000),
    },
    from_one=frozenset(
        """
        transaction.timeout.ms batch.size buffer.memory message.max.bytes delivery.timeout.ms
        request.timeout.ms max.in.flight.requests.per.connection
        """.split()
    ),
    second_names={
        "max.request.size": "message.max.bytes",
        "message.timeout.ms": "delivery.timeout.ms",
        "queue.buffering.max.ms": "linger.ms",
        "compression.codec": "compression.type",
        "transactional.timeout.ms": "transaction.timeout.ms",
    },
    fixed=frozenset(
        """
    bootstrap.servers client.id transactional.id compression.type partitioner
    allow.auto.create.topics enable.idempotence request.required.acks retries oauth_cb
    transaction.two.phase.commit.enable
    """.split()
    ),
    others={
        **OF_BOTH,
        **OF_CONSUMERS,
        "on_delivery": "give on_delivery= to send(), which also returns a delivery to wait for",
        "error_cb": "a call raises the errors that concern it. Leave it out",
        "queue.buffering.max.messages": "buffer.memory has the limit, in bytes. Set that",
        "queue.buffering.max.kbytes": "buffer.memory has the limit, in bytes. Set that",
        "batch.num.messages": "batch.size has the limit, in bytes. Set that",
    },
)
"""The properties of a producer."""

CONSUMER: Final = NativeProperties(
    numbers={
        "max.poll.interval.ms": ("max_poll_interval_ms", 300_000),
        "session.timeout.ms": ("session_timeout_ms", 45_000),
        "heartbeat.interval.ms": ("heartbeat_interval_ms", 3_000),
        "request.timeout.ms": ("request_timeout_ms", 30_000),
        "retry.backoff.ms": ("retry_backoff_ms", 20),
        "metadata.max.age.ms": ("metadata_max_age_ms", 300_000),
        "topic.metadata.propagation.max.ms": ("unknown_topic_max_ms", 1_000),
        "default.api.timeout.ms": ("api_timeout_ms", 60_000),
        "fetch.wait.max.ms": ("fetch_wait_ms", 500),
        "fetch.min.bytes": ("fetch_min_bytes", 1),
        "fetch.max.bytes": ("fetch_max_bytes", 52_428_800),
        "max.partition.fetch.bytes": ("partition_fetch_bytes", 1_048_576),
        "queued.max.messages.kbytes": ("queued_kbytes", 65_536),
        "fetch.batch.bytes": ("batch_bytes", 1 << 30),
    },
    from_one=frozenset(
        """
        max.poll.interval.ms session.timeout.ms heartbeat.interval.ms default.api.timeout.ms
        request.timeout.ms fetch.max.bytes max.partition.fetch.bytes
        queued.max.messages.kbytes fetch.batch.bytes
        """.split()
    ),
    second_names={
        "fetch.message.max.bytes": "max.partition.fetch.bytes",
        "fetch.max.wait.ms": "fetch.wait.max.ms",
    },
    fixed=frozenset(
        """
    bootstrap.servers client.id group.id group.instance.id group.protocol group.remote.assignor
    partition.assignment.strategy auto.offset.reset isolation.level enable.auto.commit
    enable.auto.offset.store enable.partition.eof check.crcs allow.auto.create.topics
    oauth_cb error_cb on_commit
    """.split()
    ),
    others={
        **OF_BOTH,
        **OF_PRODUCERS,
        "client.rack": "it reads from the leaders of partitions alone. Leave it out",
        "auto.commit.interval.ms": "transactions commit, or commit(). Leave it out",
    },
)
"""The properties of a consumer."""

ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky")
"""The assignors of classic groups, by Kafka's names."""

IN_PLACE_OF_STICKY: Final = (
    ". In place of sticky set cooperative-sticky in all members; as librdkafka, it has no sticky"
)

OF_PROTOCOL: Final[Mapping[str, frozenset[str]]] = {
    "consumer": frozenset({"group.remote.assignor"}),
    "classic": frozenset(
        {"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"}
    ),
}
"""Values of group.protocol, and the properties that only the groups of one of them have."""

RESETS: Final[Mapping[str, str]] = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "error",
    "none": "error",
}
"""Values of auto.offset.reset, librdkafka's and Java's, and what they mean."""


def is_true(value: object) -> bool:
    """Return a setting's value as librdkafka reads it."""
    return str(value).lower() in ("true", "t", "1")


def require_native_producer(settings: Mapping[str, object], whose: str) -> None:
    """Refuse settings that only the other engine has. Raises ConfigError."""
    PRODUCER.require_known(settings, whose)
    partitioner = str(settings.get("partitioner", PARTITIONER))
    if partitioner != PARTITIONER:
        raise ConfigError(
            f"partitioner={partitioner} is librdkafka's: the native engine places a key as Java's "
            f"producer does, and a record without a key anywhere. Leave it out, {OR_LIBRDKAFKA}",
            property="partitioner",
        )


def require_native_consumer(settings: Mapping[str, object], whose: str) -> None:
    """Refuse settings that only the other engine has. Raises ConfigError."""
    CONSUMER.require_known(settings, whose)
    _require_protocol(settings, whose)
    if is_true(settings.get("allow.auto.create.topics", False)):
        raise ConfigError(
            f"{whose} has allow.auto.create.topics=true, and the native engine creates no topic "
            f"that it reads. Create the topic, and leave the property out, {OR_LIBRDKAFKA}",
            property="allow.auto.create.topics",
        )
    if not is_true(settings.get("check.crcs", True)):
        raise ConfigError(
            "check.crcs=false does not fit: the native engine checks each batch. Leave it out, "
            f"{OR_LIBRDKAFKA}",
            property="check.crcs",
        )
    reset = str(settings.get("auto.offset.reset", "latest"))
    if reset not in RESETS:
        raise ConfigError(
            f"auto.offset.reset={reset} is none of earliest, latest and error",
            property="auto.offset.reset",
        )


def protocol_of(settings: Mapping[str, object]) -> str:
    """Return classic or consumer, as group.protocol says; classic without it, as Kafka does."""
    return str(settings.get("group.protocol", "classic")).strip().lower()


def _require_protocol(settings: Mapping[str, object], whose: str) -> None:
    protocol = protocol_of(settings)
    if protocol not in OF_PROTOCOL:
        raise ConfigError(
            f"group.protocol={protocol} does not fit: set it to classic, or to consumer (KIP-848)",
            property="group.protocol",
        )
    for other, names in OF_PROTOCOL.items():
        for name in settings.keys() & names if other != protocol else ():
            raise ConfigError(
                f"{whose} has {name}, which groups of group.protocol={protocol} do not have. "
                f"Leave it out, or set group.protocol={other}",
                property=name,
            )
    assignors_of(settings)


def assignors_of(settings: Mapping[str, object]) -> list[str] | None:
    """Return the assignors of a member of a classic group; None if the group is one of KIP-848.

    Raises:
        ConfigError: partition.assignment.strategy names no assignor, or one of librdkafka alone.
    """
    if protocol_of(settings) == "consumer":
        return None
    text = str(settings.get("partition.assignment.strategy", "range,roundrobin"))
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy={text} does not fit: the native engine has "
                f"{', '.join(ASSIGNORS)}{IN_PLACE_OF_STICKY if name == 'sticky' else ''}",
                property="partition.assignment.strategy",
            )
    return names


def reset_of(settings: Mapping[str, object]) -> str:
    """Return earliest, latest or error, as auto.offset.reset says."""
    return RESETS[str(settings.get("auto.offset.reset", "latest"))]
