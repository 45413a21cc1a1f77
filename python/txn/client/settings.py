"""Kafka's settings for producers and consumers, checked where exactly-once depends on them.

Every property keeps its Kafka (librdkafka) name and its value. This module does three things.
It refuses settings that are given twice or contradict exactly-once, before any I/O. It turns
keywords into names (`linger_ms` is `linger.ms`). It sets the few properties that exactly-once needs
and the partitioner of a producer, where they are left out.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaException

from txn.access.librdkafka import in_librdkafkas_names
from txn.client.failures import error_of
from txn.client.reach import fault_in
from txn.client.redaction import Redaction
from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client_names import READ, SECRETS

Settings = dict[str, object]

ALIASES: Final[Mapping[str, str]] = {
    "acks": "request.required.acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "metadata.broker.list": "bootstrap.servers",
}
"""librdkafka's second names, to the one this module looks at."""

USUAL: Final = {"request.required.acks": "acks"}
"""The name that people know a property by, where it is not the one looked at."""

IN_MESSAGES: Final = {
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
}
"""The name of a property in librdkafka's messages, to another that may have been given."""

BYTES: Final = (
    "keys and values are bytes. Give produce() the value of a serializer, as json.dumps(value), "
    "and hand message.value() to a deserializer"
)

SESSION_MS: Final = 45_000
HEARTBEAT_MS: Final = 3_000
"""session.timeout.ms and heartbeat.interval.ms where they are left out."""

MOCK_CLUSTER: Final = "test.mock.num.brokers"
"""The property of librdkafka's own mock cluster, for which no bootstrap servers are named."""


PARTITIONER: Final = "murmur2_random"
"""The default partitioner: a key goes where Java's producer and Spark put it. librdkafka's own,
`consistent_random`, takes the CRC-32 of the key."""

PROPAGATION_MS: Final = 10_000
"""Time that a topic may take to appear after its creation; librdkafka's own default is 30 s, after
which it says that there is no such topic."""

PROPERTIES: Final = frozenset(
    """
    acks allow.auto.create.topics api.version.request.timeout.ms auto.commit.interval.ms
    auto.offset.reset batch.num.messages batch.size bootstrap.servers broker.address.family
    broker.address.ttl check.crcs client.dns.lookup client.id client.rack compression.codec
    compression.level compression.type connections.max.idle.ms coordinator.query.interval.ms debug
    delivery.report.only.error delivery.timeout.ms enable.auto.commit enable.auto.offset.store
    enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof
    enable.ssl.certificate.verification error_cb fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms isolation.level
    linger.ms log.connection.close logger max.in.flight max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.strategy oauth_cb on_delivery partition.assignment.strategy partitioner
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.password sasl.username security.protocol session.timeout.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.location ssl.keystore.password statistics.interval.ms stats_cb
    sticky.partitioning.linger.ms throttle_cb topic.metadata.propagation.max.ms
    topic.metadata.refresh.interval.ms transaction.timeout.ms transactional.id
    """.split()
)
"""What to look through for the name that a mistaken one was meant to be; others exist."""


def producer_settings(
    config: Mapping[str, object] | None,
    *,
    transactional_id: str | None,
    bootstrap_servers: str | list[str] | None,
    keywords: Mapping[str, object],
) -> Settings:
    """Return the configuration of an idempotent producer, transactional if it has an id.

    Raises:
        ConfigError: a property is given twice, is missing, or contradicts idempotence.
    """
    settings = _merged(config, keywords, bootstrap_servers=bootstrap_servers)
    if transactional_id is not None:
        _put(settings, "transactional.id", transactional_id)
    if settings.get("transactional.id") == "":
        raise ConfigError(
            "transactional.id is empty: name the producer, the same name after each restart, "
            "or leave it out for a producer without transactions",
            property="transactional.id",
        )
    _require_servers(settings)
    why = "txn's producers are idempotent, which leaves no other choice"
    _require(settings, "enable.idempotence", {"true"}, why)
    _require(settings, "request.required.acks", {"all", "-1"}, why)
    _require_range(settings, "max.in.flight.requests.per.connection", 1, 5, why)
    _require_range(
        settings,
        "retries",
        1,
        None,
        "an idempotent producer sends a record again if no answer came",
    )
    settings.setdefault("enable.idempotence", True)
    settings.setdefault("topic.metadata.propagation.max.ms", PROPAGATION_MS)
    of_topics = settings.get("default.topic.config")
    if not (isinstance(of_topics, Mapping) and "partitioner" in of_topics):
        settings.setdefault("partitioner", PARTITIONER)
    return settings


def consumer_settings(
    config: Mapping[str, object] | None,
    *,
    group_id: str | None,
    bootstrap_servers: str | list[str] | None,
    keywords: Mapping[str, object],
) -> Settings:
    """Return the configuration of a consumer whose offsets are committed in transactions.

    Raises:
        ConfigError: a property is given twice, is missing, or would commit offsets or show
            records outside transactions.
    """
    settings = _merged(config, keywords, bootstrap_servers=bootstrap_servers)
    if group_id is not None:
        _put(settings, "group.id", group_id)
    _require_servers(settings)
    if not settings.get("group.id"):
        raise ConfigError(
            "group.id is missing: the transaction stores the consumer's offsets under it",
            property="group.id",
        )
    _require(
        settings,
        "enable.auto.commit",
        {"false"},
        "offsets are committed with the transaction; a commit beside it skips records when the "
        "transaction aborts",
    )
    _require(
        settings,
        "isolation.level",
        {"read_committed"},
        "a consumer in a transaction must see neither aborted records nor offsets of a "
        "transaction still open",
    )
    _require_heartbeats(settings)
    settings.setdefault("enable.auto.commit", False)
    return settings


def refused(whose: str, raised: KafkaException, settings: Settings) -> ConfigError:
    """Return the error for a configuration that librdkafka refuses, without its secrets."""
    said = Redaction(settings).text(error_of(raised).str())
    if "No provider for SASL mechanism GSSAPI" in said and "sasl.mechanism" not in settings:
        return ConfigError(
            f"{whose} has security.protocol={settings.get('security.protocol')} and no "
            "sasl.mechanism, whose default, GSSAPI, this librdkafka lacks: set it to PLAIN, "
            "SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
            property="sasl.mechanism",
        )
    unknown = re.fullmatch(r'No such configuration property: "(.*)"', said)
    if unknown is None:
        for named, given in IN_MESSAGES.items():
            if given in settings and named not in settings:
                said = said.replace(f'"{named}"', f'"{given}"')
        return ConfigError(f"the configuration of {whose} is refused: {said}")
    name = unknown[1]
    if name.endswith(("serializer", "deserializer")):
        return ConfigError(f"{whose} knows no {name}: {BYTES}", property=name)
    return ConfigError(
        f"{whose} knows no property {name!r}{did_you_mean(name, PROPERTIES | READ)}", property=name
    )


def _merged(
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
    *,
    bootstrap_servers: str | list[str] | None,
) -> Settings:
    settings: Settings = {}
    if not isinstance(config, Mapping | None):
        raise TypeError(
            f"the configuration is a mapping from Kafka's names to values, not a "
            f"{type(config).__name__}; "
            "bootstrap servers go into bootstrap_servers='HOST:PORT'"
        )
    for keyword in ("config", "conf"):
        if isinstance(keywords.get(keyword), Mapping):
            raise ConfigError(
                f"{keyword}= is no property: give the configuration as the first argument, without "
                "a name",
                property=keyword,
            )
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is no property name: names are strings", property=name)
        _put(settings, name, value)
    for keyword, value in keywords.items():
        # Callbacks are the only properties with an underscore in their Kafka name.
        is_callback = keyword.endswith("_cb") or keyword in ("on_commit", "on_delivery")
        _put(settings, keyword if is_callback else keyword.replace("_", "."), value)
    if bootstrap_servers is not None:
        _put(settings, "bootstrap.servers", bootstrap_servers)
    return in_librdkafkas_names(settings)


def _put(settings: Settings, name: str, value: object) -> None:
    name = ALIASES.get(name, name)
    if name == "bootstrap.servers" and isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if name in settings:
        values = "" if name in SECRETS else f", as {settings[name]!r} and as {value!r}"
        raise ConfigError(
            f"{name} is given twice{values}; give it once",
            property=name,
        )
    settings[name] = value


def _require_servers(settings: Settings) -> None:
    if not settings.get("bootstrap.servers") and MOCK_CLUSTER not in settings:
        raise ConfigError(
            "bootstrap.servers is missing: name at least one broker as host:port",
            property="bootstrap.servers",
        )
    servers = settings.get("bootstrap.servers")
    if servers and (
        fault := fault_in(str(servers), str(settings.get("security.protocol", "plaintext")))
    ):
        raise ConfigError(f"bootstrap.servers: {fault}", property="bootstrap.servers")


def _require(settings: Settings, name: str, allowed: set[str], why: str) -> None:
    if name in settings and _text(settings[name]) not in allowed:
        known = USUAL.get(name, name)
        raise ConfigError(
            f"{known}={settings[name]} does not fit: {why}. Leave it out, or set it to "
            f"{' or '.join(sorted(allowed))}",
            property=known,
        )


def _require_range(
    settings: Settings, name: str, lowest: int, highest: int | None, why: str
) -> None:
    if name not in settings:
        return
    text = _text(settings[name])
    number = int(text) if text.lstrip("-").isdigit() else None
    if number is not None and lowest <= number and (highest is None or number <= highest):
        return
    allowed = f"at least {lowest}" if highest is None else f"{lowest} to {highest}"
    raise ConfigError(
        f"{name}={settings[name]} does not fit: {why}. Leave it out, or set it to {allowed}",
        property=name,
    )


def _require_heartbeats(settings: Settings) -> None:
    """Require a session that outlives the pause between two heartbeats, as Java's consumer does."""
    session = _text(settings.get("session.timeout.ms", SESSION_MS))
    heartbeat = _text(settings.get("heartbeat.interval.ms", HEARTBEAT_MS))
    are_numbers = session.isdigit() and heartbeat.isdigit()
    if are_numbers and int(session) <= int(heartbeat):
        raise ConfigError(
            f"session.timeout.ms={session} does not fit: it has to be more than "
            f"heartbeat.interval.ms={heartbeat}, or the group takes the consumer for dead between "
            "two heartbeats. Three times as much is usual",
            property="session.timeout.ms",
        )


def is_false(value: object) -> bool:
    """Return True if the value of a property is one that librdkafka takes for false."""
    return _text(value) in ("false", "f", "0")


def _text(value: object) -> str:
    return str(value).strip().lower()


def take_callback(settings: dict[str, object], name: str) -> Callable[..., None] | None:
    """Remove and return a callback; None if there is none. Raises ConfigError."""
    callback = settings.pop(name, None)
    if callback is None:
        return None
    if not callable(callback):
        raise ConfigError(f"{name}={callback!r} is not callable", property=name)
    wrapped: Callable[..., None] = callback
    return wrapped
